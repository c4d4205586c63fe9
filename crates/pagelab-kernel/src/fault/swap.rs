//! Faults on pages in the swap area, or that another user has read back from it.

use super::Fault;
use crate::entry_word::{EntryWord, SwapSlot};
use crate::fault::work::FaultWork;
use crate::layer::Layer;
use crate::reclaim::Swapped;
use pagelab_base::error::EngineError;
use pagelab_base::page_fault::Intent;

impl Fault {
    /// Chooses the work for a page that was swapped out.
    pub(super) fn choose_for_swapped(&mut self, layer: &mut Layer, slot: SwapSlot) -> FaultWork {
        let swap = layer.swap().expect("a slot is one of the swap area");
        let Swapped::InMemory(frame) = swap.find(slot) else { return FaultWork::SwapIn };
        self.target.frame = frame;
        if self.request.intent == Intent::Store && !layer.memory.page_use.are_exclusive(frame, 0) {
            return FaultWork::Copy { from: frame };
        }
        FaultWork::SwapCached
    }

    /// Maps a page that was read back from the swap device, by this fault or by another user; 0 if it has left memory
    /// again.
    pub(super) fn map_swapped(&mut self, layer: &mut Layer) -> Result<u64, EngineError> {
        let context = self.context_in(layer);
        let (space, page) = (self.request.space.index, self.target.page);
        let own = (self.progress.work == FaultWork::SwapIn).then_some(self.target.frame);
        let entry = layer.word(space, page).expect("mappings do not change during a fault");
        let EntryWord::Swap(slot) = entry.word else { unreachable!("{page:?} was in the swap area: {entry:?}") };
        let swap = layer.swap().expect("a slot is one of the swap area");
        match (swap.find(slot), own) {
            (Swapped::OnDevice, Some(frame)) => {
                let others = swap.read(slot, frame, self.request.intent != super::Intent::Store);
                (0..others).for_each(|_| layer.memory.page_use.share(frame));
                self.target.flags.writable &= others == 0;
                layer.memory.reclaim.as_mut().expect("it has a swap area").counters.swapped_in += 1;
            }
            (Swapped::OnDevice, None) => return Ok(0),
            (Swapped::InMemory(frame), own) => {
                swap.remove(slot);
                if let Some(own) = own {
                    layer.free_block(context, own, 0);
                }
                self.target.frame = frame;
                self.target.flags.writable &= layer.memory.page_use.are_exclusive(frame, 0);
            }
        }
        self.target.flags.dirty &= self.target.flags.writable;
        layer.take_word(space, page);
        layer.map(context, space, page, self.target.mapping())?;
        Ok(1)
    }
}
