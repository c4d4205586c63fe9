//! The swap area: which slots are in use, and what of them has been read back for some of its users.
//!
//! Models: slots with a count of the entries that refer to them, and the swap cache: a page that several address
//! spaces had before it was swapped out is read once; the others then find it in memory, by a minor fault.
//! Source: Linux mm/swapfile.c (`swap_duplicate`, `swap_free`), mm/swap_state.c, mm/memory.c (`do_swap_page`).
//! Parameters: `kernel.swap`.
//! Deviations: a page that is read back leaves its slot unless others refer to it, so it is written again even if it
//! stays clean. A store that reads a slot which others refer to gets a frame of its own at once, and the others read
//! the slot anew.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::config::SwapConfig;
use crate::entry_word::Slot;
use pagelab_base::addr::{FRAME_SHIFT, Pfn};
use pagelab_hardware::device::{BlockDevice, Clock};

/// Where a page that was swapped out is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// On the swap device only: it must be read.
    OnDevice,
    /// In memory too: another user has read it back.
    InMemory(Pfn),
}

/// See the module's text. Which page has which slot, page tables say
/// ([`EntryWord::Swap`](crate::entry_word::EntryWord::Swap)).
#[derive(Clone)]
pub struct Swap {
    /// Entries that refer to each slot ever used.
    references: Vec<u32>,
    /// Slots given back.
    free: BTreeSet<Slot>,
    slots: u32,
    /// Frames that hold what is in a slot, and the same by frame.
    cached: FxHashMap<Slot, Pfn>,
    slot_of: FxHashMap<Pfn, Slot>,
    /// The device that the area is on.
    pub device: BlockDevice,
}

impl Swap {
    /// An area without a page.
    pub fn new(config: &SwapConfig, clock: Clock) -> Self {
        Self {
            references: Vec::new(),
            free: BTreeSet::new(),
            slots: (config.size_bytes.0 >> FRAME_SHIFT).min(u64::from(u32::MAX)) as u32,
            cached: FxHashMap::default(),
            slot_of: FxHashMap::default(),
            device: BlockDevice::new(&config.device, clock),
        }
    }

    /// Slots that are free.
    pub fn room(&self) -> u64 {
        self.free.len() as u64 + u64::from(self.slots) - self.references.len() as u64
    }

    /// The contents of a frame leave for a slot, to which so many entries that mapped the frame refer from now on.
    pub fn put(&mut self, frame: Pfn, entries: usize) -> Slot {
        let slot = match self.slot_of.remove(&frame) {
            Some(slot) => {
                self.cached.remove(&slot);
                slot
            }
            None => self.free.pop_first().unwrap_or_else(|| {
                self.references.push(0);
                Slot(self.references.len() as u32 - 1)
            }),
        };
        self.references[slot.0 as usize] += entries as u32;
        slot
    }

    /// Where the contents of a slot are that entries refer to.
    pub fn find(&self, slot: Slot) -> Swapped {
        assert!(self.references[slot.0 as usize] > 0, "{slot:?} has been given back");
        self.cached.get(&slot).map_or(Swapped::OnDevice, |frame| Swapped::InMemory(*frame))
    }

    /// A slot has been read into a frame, to which one of its entries refers now. If the page is to be `shared`, the
    /// others will find it there; returns how many these are.
    pub fn read(&mut self, slot: Slot, frame: Pfn, shared: bool) -> u32 {
        let others = self.release(slot);
        if others == 0 || !shared {
            return 0;
        }
        self.cached.insert(slot, frame);
        self.slot_of.insert(frame, slot);
        others
    }

    /// An entry refers to a slot no more. Returns the frame that it could have had, if there is one.
    pub fn remove(&mut self, slot: Slot) -> Option<Pfn> {
        let frame = self.cached.get(&slot).copied();
        self.release(slot);
        frame
    }

    /// One entry less refers to a slot; returns how many do.
    fn release(&mut self, slot: Slot) -> u32 {
        let left = &mut self.references[slot.0 as usize];
        *left -= 1;
        if *left == 0 {
            self.free.insert(slot);
            if let Some(frame) = self.cached.remove(&slot) {
                self.slot_of.remove(&frame);
            }
        }
        *left
    }

    /// One entry more refers to a slot: a forked child's. Returns the frame that has a user more by it.
    pub fn share(&mut self, slot: Slot) -> Option<Pfn> {
        self.references[slot.0 as usize] += 1;
        self.cached.get(&slot).copied()
    }

    /// Frames that hold what is in a slot, each with the number of entries that refer to the slot still.
    pub fn in_memory(&self) -> impl Iterator<Item = (Pfn, u32)> + '_ {
        self.cached.iter().map(|(&slot, &frame)| (frame, self.references[slot.0 as usize]))
    }

    /// Slots that entries refer to, each with the number of these.
    pub fn in_use(&self) -> impl Iterator<Item = (Slot, u32)> + '_ {
        let slots = self.references.iter().enumerate().map(|(slot, &entries)| (Slot(slot as u32), entries));
        slots.filter(|(_, entries)| *entries > 0)
    }

    /// Slots in use.
    pub fn used_slots(&self) -> u64 {
        self.references.len() as u64 - self.free.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use pagelab_trace::quantity::Bytes;

    use super::*;
    use pagelab_base::addr::FRAME_BYTES;
    use pagelab_hardware::device::DeviceConfig;

    fn swap(slots: u64) -> Swap {
        let device = DeviceConfig::samples().swap_remove(0);
        Swap::new(&SwapConfig { size_bytes: Bytes(slots * FRAME_BYTES), device }, Clock { mhz: 1000 })
    }

    #[test]
    fn slots_are_given_back_by_their_last_user() {
        let mut swap = swap(3);
        let slots = [10, 11, 12].map(|frame| swap.put(Pfn(frame), 1));
        assert_eq!((swap.room(), slots), (0, [0, 1, 2].map(Slot)));
        assert_eq!((swap.share(slots[0]), swap.share(slots[1])), (None, None));
        slots.iter().for_each(|&slot| assert_eq!(swap.remove(slot), None));
        assert_eq!(swap.in_use().collect::<Vec<_>>(), [(slots[0], 1), (slots[1], 1)]);
        assert_eq!((swap.used_slots(), swap.find(slots[1])), (2, Swapped::OnDevice));
        slots[..2].iter().for_each(|&slot| assert_eq!(swap.remove(slot), None));
        assert_eq!((swap.in_use().count(), swap.used_slots(), swap.room()), (0, 0, 3));
        assert_eq!(swap.put(Pfn(1), 1), slots[0]);
        assert_eq!(swap.references.len(), 3, "a slot given back is used first");
    }

    #[test]
    fn what_one_has_read_back_the_others_find_in_memory() {
        let mut swap = swap(8);
        let slot = swap.put(Pfn(5), 3);
        assert_eq!(swap.read(slot, Pfn(9), true), 2);
        assert_eq!(swap.find(slot), Swapped::InMemory(Pfn(9)));
        assert_eq!(swap.share(slot), Some(Pfn(9)));
        assert_eq!(swap.remove(slot), Some(Pfn(9)));
        // It leaves again: those that had it refer to the same slot as those that never came back.
        assert_eq!(swap.put(Pfn(9), 2), slot);
        assert_eq!((swap.in_use().collect::<Vec<_>>(), swap.find(slot)), (vec![(slot, 4)], Swapped::OnDevice));
        // A store has its own, and the others nothing of it.
        assert_eq!(swap.read(slot, Pfn(7), false), 0);
        assert_eq!(swap.find(slot), Swapped::OnDevice);
        (0..3).for_each(|_| assert_eq!(swap.remove(slot), None));
        assert_eq!((swap.used_slots(), swap.cached.len(), swap.slot_of.len()), (0, 0, 0));
    }
}
