//! The swap area: slots in use, and the swap cache.
//!
//! Models: slots with a count of the entries that refer to them, and the swap cache: a page that several address spaces
//! had before it was swapped out is read once; the others then find it in memory, by a minor fault.
//! Source: Linux mm/swapfile.c (`swap_duplicate`, `swap_free`), mm/swap_state.c, mm/memory.c (`do_swap_page`).
//! Parameters: `kernel.swap`.
//! Deviations: a page that is read back releases its slot unless other entries refer to it, so it is written again even
//! if it stays clean. A store that reads a slot to which other entries refer gets a frame of its own at once, and the
//! others read the slot again.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::config::SwapConfig;
use crate::entry_word::SwapSlot;
use pagelab_base::addr::{FRAME_SHIFT, Pfn};
use pagelab_hardware::device::{BlockDevice, Clock};

/// Location of a page that was swapped out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// On the swap device only: it must be read.
    OnDevice,
    /// Also in memory, since another user has read it back.
    InMemory(Pfn),
}

/// See the module's text. Page tables record the slot of a page
/// ([`EntryWord::Swap`](crate::entry_word::EntryWord::Swap)).
#[derive(Clone)]
pub struct Swap {
    /// By slot: the number of entries that refer to it.
    references: Vec<u32>,
    /// Released slots.
    free: BTreeSet<SwapSlot>,
    slots: u32,
    /// Frames that have the contents of a slot, and the inverse.
    cached: FxHashMap<SwapSlot, Pfn>,
    slot_of: FxHashMap<Pfn, SwapSlot>,
    /// The device of the swap area.
    pub device: BlockDevice,
}

impl Swap {
    /// An empty swap area.
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

    /// Number of free slots.
    pub fn room(&self) -> u64 {
        self.free.len() as u64 + u64::from(self.slots) - self.references.len() as u64
    }

    /// Assigns a slot to the contents of a frame. `entries` is the number of page-table entries that mapped the frame
    /// and now refer to the slot.
    pub fn put(&mut self, frame: Pfn, entries: usize) -> SwapSlot {
        let slot = match self.slot_of.remove(&frame) {
            Some(slot) => {
                self.cached.remove(&slot);
                slot
            }
            None => self.free.pop_first().unwrap_or_else(|| {
                self.references.push(0);
                SwapSlot(self.references.len() as u32 - 1)
            }),
        };
        self.references[slot.0 as usize] += entries as u32;
        slot
    }

    /// Location of the contents of a slot in use.
    pub fn find(&self, slot: SwapSlot) -> Swapped {
        assert!(self.references[slot.0 as usize] > 0, "{slot:?} has been given back");
        self.cached.get(&slot).map_or(Swapped::OnDevice, |frame| Swapped::InMemory(*frame))
    }

    /// Records that a slot was read into a frame for one of its entries. If the page is to be `shared`, the other
    /// entries will find it there; returns their number.
    pub fn read(&mut self, slot: SwapSlot, frame: Pfn, shared: bool) -> u32 {
        let others = self.release(slot);
        if others == 0 || !shared {
            return 0;
        }
        self.cached.insert(slot, frame);
        self.slot_of.insert(frame, slot);
        others
    }

    /// Removes an entry that refers to a slot. Returns the frame with the slot's contents, if any.
    pub fn remove(&mut self, slot: SwapSlot) -> Option<Pfn> {
        let frame = self.cached.get(&slot).copied();
        self.release(slot);
        frame
    }

    /// Decrements the number of entries that refer to a slot, and returns it.
    fn release(&mut self, slot: SwapSlot) -> u32 {
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

    /// Increments the number of entries that refer to a slot, for a forked child. Returns the frame with its contents,
    /// if any.
    pub fn share(&mut self, slot: SwapSlot) -> Option<Pfn> {
        self.references[slot.0 as usize] += 1;
        self.cached.get(&slot).copied()
    }

    /// Frames with the contents of a slot, each with the number of entries that still refer to the slot.
    pub fn in_memory(&self) -> impl Iterator<Item = (Pfn, u32)> + '_ {
        self.cached.iter().map(|(&slot, &frame)| (frame, self.references[slot.0 as usize]))
    }

    /// Slots in use, each with the number of entries that refer to it.
    pub fn in_use(&self) -> impl Iterator<Item = (SwapSlot, u32)> + '_ {
        let slots = self.references.iter().enumerate().map(|(slot, &entries)| (SwapSlot(slot as u32), entries));
        slots.filter(|(_, entries)| *entries > 0)
    }

    /// Number of slots in use.
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
        assert_eq!((swap.room(), slots), (0, [0, 1, 2].map(SwapSlot)));
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
    fn a_page_read_back_by_one_is_found_in_memory_by_others() {
        let mut swap = swap(8);
        let slot = swap.put(Pfn(5), 3);
        assert_eq!(swap.read(slot, Pfn(9), true), 2);
        assert_eq!(swap.find(slot), Swapped::InMemory(Pfn(9)));
        assert_eq!(swap.share(slot), Some(Pfn(9)));
        assert_eq!(swap.remove(slot), Some(Pfn(9)));
        // It is swapped out again: entries that had mapped it refer to the same slot as those that never read it back.
        assert_eq!(swap.put(Pfn(9), 2), slot);
        assert_eq!((swap.in_use().collect::<Vec<_>>(), swap.find(slot)), (vec![(slot, 4)], Swapped::OnDevice));
        // A store gets its own copy, and the others get nothing from it.
        assert_eq!(swap.read(slot, Pfn(7), false), 0);
        assert_eq!(swap.find(slot), Swapped::OnDevice);
        (0..3).for_each(|_| assert_eq!(swap.remove(slot), None));
        assert_eq!((swap.used_slots(), swap.cached.len(), swap.slot_of.len()), (0, 0, 0));
    }
}
