//! Direct segments: a contiguous part of an address space that is translated by adding an offset, without TLB and page
//! table.
//!
//! Models: the registers base, limit and offset of an address space, which the hardware asks beside the first-level
//! TLB, at no cost. A layer sets contiguous memory aside when it boots. Of a layer that programs run on, the first
//! private anonymous mapping of some size that can be read and written gets it (`SegmentMemory::is_worth`), from its
//! start on as far as the memory goes; it takes no faults there. Of a layer that hosts others it is the memory of its
//! guests, from address 0 on, in the order of the layers. Where all layers have a segment at an address, it needs
//! neither TLB nor walk: natively (direct segment), or in a virtual machine (dual direct). With one in the host, a
//! guest's walk makes the references of a native one (VMM direct: 4), with one in the guest, the walk is the host's for
//! the data alone (guest direct: 4); both fill the TLBs. Outside its segment a space is paged.
//! Source: Basu et al., ISCA 2013; Gandhi et al., MICRO 2014; as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.3.
//! Parameters: `system.layers.NAME.direct_segment_bytes`.
//! Stats: `segment.translations`, `segment.walk_translations`.
//! Deviations: programs do not ask for a segment, and its memory is zeroed before they start, at no cost. What a call
//! takes out of it (munmap, mprotect, mremap, MADV_DONTNEED, MADV_REMOVE) leaves, with all on the shorter side of it;
//! fork (unless the child does not inherit the mapping), exec and exit end it. What has left is paged in anew where it
//! is touched again: the frame that is zeroed for it stands for the copy that a kernel would make. Segments are neither
//! reclaimed nor charged to a cgroup.

use crate::hardware::Hardware;
use pagelab_base::addr::{PhysAddr, VirtAddr};
use pagelab_base::ids::SpaceId;
use pagelab_base::translation::Translation;
use pagelab_kernel::layer::Layer;

/// The translation of an address that is in segments all the way down.
#[cold]
pub fn through_segments(layers: &[Layer], space: SpaceId, va: VirtAddr) -> Option<Translation> {
    let layer = &layers[space.layer];
    let found = layer.spaces[space.index].segment?.translate(va)?;
    match layer.host {
        None => Some(found.on_bare_machine()),
        Some(host) => {
            let below = through_segments(layers, host, VirtAddr(found.address(va).0))?;
            Some(found.through(va, below))
        }
    }
}

impl Hardware {
    /// What the segment of a space says instead of a walk of its page table.
    #[cold]
    pub fn through_segment(&mut self, layers: &[Layer], space: SpaceId, va: VirtAddr) -> Option<Translation<PhysAddr>> {
        let found = layers[space.layer].spaces[space.index].segment?.translate(va);
        self.segment.walk_translations += u64::from(found.is_some());
        found
    }
}
