//! Direct segments: a contiguous part of an address space is translated by adding an offset, without TLB or page table.
//!
//! Models: the registers base, limit and offset of an address space. The hardware compares them in parallel with the
//! first-level TLB, at no cost. A layer reserves contiguous memory when it boots. In a layer that runs programs, the
//! first private, readable and writable anonymous mapping of sufficient size (`SegmentMemory::is_worth`) gets it, from
//! the mapping's start as far as the memory reaches; accesses there do not fault. In a layer that hosts others, the
//! segment is the memory of its guests, from address 0, in the order of the layers. If all layers have a segment at an
//! address, it needs neither TLB nor walk: natively (direct segment), or in a virtual machine (dual direct). If only
//! the host has one, a guest's walk makes as many references as a native walk (VMM direct: 4). If only the guest has
//! one, the host is walked for the data alone (guest direct: 4). Both fill the TLBs. Outside its segment, a space is
//! paged.
//! Source: Basu et al., ISCA 2013; Gandhi et al., MICRO 2014; as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.3.
//! Parameters: `system.layers.NAME.direct_segment_bytes`.
//! Stats: `segment.translations`, `segment.walk_translations`.
//! Deviations: programs do not ask for a segment, and its memory is zeroed before they start, at no cost. A call that
//! changes a part of it (munmap, mprotect, mremap, MADV_DONTNEED, MADV_REMOVE) removes that part from the segment,
//! together with everything on its shorter side. Fork (unless the child does not inherit the mapping), exec and exit
//! end the segment. Removed pages are faulted in again when they are touched: the zeroed frame stands for the copy that
//! a kernel would make. Segments are neither reclaimed nor charged to a cgroup.

use crate::hardware::Hardware;
use pagelab_base::addr::{PhysAddr, VirtAddr};
use pagelab_base::ids::SpaceId;
use pagelab_base::translation::Translation;
use pagelab_kernel::layer::Layer;

/// Translates an address that lies in a segment of every layer; `None` if one of them has no segment there.
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
    /// Translates an address by the segment of one space, instead of a walk of its page table.
    #[cold]
    pub fn through_segment(&mut self, layers: &[Layer], space: SpaceId, va: VirtAddr) -> Option<Translation<PhysAddr>> {
        let found = layers[space.layer].spaces[space.index].segment?.translate(va);
        self.segment.walk_translations += u64::from(found.is_some());
        found
    }
}
