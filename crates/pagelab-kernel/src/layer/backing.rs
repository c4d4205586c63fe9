//! Guests whose memory the host has backed before the run.
//!
//! Models: a virtual machine that has already used all of its memory, so that first touches cost the host nothing.
//! Parameters: `system.layers.GUEST.backing`.
//! Deviations: the host allocates each frame when the guest first touches it, at no cost, and not before the run. So
//! the frames are the ones that first touches in this order get.

use crate::config::Backing;
use crate::entry_word::EntryWord;
use crate::layer::Layer;
use pagelab_base::addr::VirtAddr;
use pagelab_base::ids::SpaceIx;
use pagelab_base::page_fault::PageFault;
use pagelab_tables::page_table::Leaf;

/// Whether a fault is a first touch, in a host, of memory that a guest has had since before the run. Pages that the
/// host has swapped out or discarded since then fault as usual.
pub fn is_backed(layers: &[Layer], fault: &PageFault) -> bool {
    let is_guest = |layer: &Layer| layer.host == Some(fault.space) && layer.paging.backing == Backing::Present;
    layers.iter().any(is_guest) && layers[fault.space.layer].was_never_touched(fault.space.index, fault.va)
}

impl Layer {
    /// Whether nothing is mapped at an address, no device holds contents for it, and the host has not discarded it.
    fn was_never_touched(&self, index: SpaceIx, va: VirtAddr) -> bool {
        if self.spaces[index].discarded.contains(va.page_number()) {
            return false;
        }
        let leaf = self.leaf(index, va);
        match (&leaf, self.word_behind(index, va, &leaf).map(|entry| entry.word)) {
            (Leaf::Present(_), _) | (_, Some(EntryWord::Swap(_) | EntryWord::Stored(_))) => false,
            (Leaf::NotPresent { .. }, None | Some(EntryWord::Armed(_))) => true,
        }
    }
}
