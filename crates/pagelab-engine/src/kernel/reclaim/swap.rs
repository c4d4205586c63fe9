//! The swap area: which pages are on it, and which of those have been read back for some of their users.
//!
//! Models: slots with a count of the page tables that refer to them, and the swap cache: a page that several address
//! spaces had before it was swapped out is read once; the others then find it in memory, by a minor fault.
//! Source: Linux mm/swapfile.c (`swap_duplicate`, `swap_free`), mm/swap_state.c, mm/memory.c (`do_swap_page`).
//! Parameters: `kernel.swap`.
//! Deviations: a page that is read back leaves its slot unless others refer to it, so it is written again even if it
//! stays clean. A store that reads a slot which others refer to gets a frame of its own at once, and the others read the
//! slot anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use rustc_hash::FxHashMap;

use super::rmap::PageOf;
use crate::base::addr::{FRAME_SHIFT, Pfn, VirtAddr};
use crate::config::SwapConfig;
use crate::device::BlockDevice;
use crate::kernel::vma::VaRange;

/// Where a page that was swapped out is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    OnDevice,
    /// In memory too: another user has read it back.
    InMemory(Pfn),
}

/// See the module's text.
#[derive(Clone)]
pub struct Swap {
    pages: BTreeMap<PageOf, u32>,
    /// Pages that refer to each slot ever used.
    references: Vec<u32>,
    /// Slots given back.
    free: BTreeSet<u32>,
    slots: u32,
    /// Frames that hold what is in a slot, and the same by frame.
    cached: FxHashMap<u32, Pfn>,
    slot_of: FxHashMap<Pfn, u32>,
    pub device: BlockDevice,
}

impl Swap {
    pub fn new(config: &SwapConfig) -> Self {
        Self {
            pages: BTreeMap::new(),
            references: Vec::new(),
            free: BTreeSet::new(),
            slots: (config.size_bytes.0 >> FRAME_SHIFT).min(u64::from(u32::MAX)) as u32,
            cached: FxHashMap::default(),
            slot_of: FxHashMap::default(),
            device: BlockDevice::new(&config.device),
        }
    }

    /// Slots that are free.
    pub fn room(&self) -> u64 {
        self.free.len() as u64 + u64::from(self.slots) - self.references.len() as u64
    }

    /// The contents of a frame leave for a slot; `pages` were mapped to it.
    pub fn put(&mut self, frame: Pfn, pages: &[PageOf]) {
        let slot = match self.slot_of.remove(&frame) {
            Some(slot) => {
                self.cached.remove(&slot);
                slot
            }
            None => self.free.pop_first().unwrap_or_else(|| {
                self.references.push(0);
                self.references.len() as u32 - 1
            }),
        };
        for &(space, page) in pages {
            let old = self.pages.insert((space, page), slot);
            assert!(old.is_none(), "page {page:#x} of space {space} is swapped out twice");
        }
        self.references[slot as usize] += pages.len() as u32;
    }

    pub fn find(&self, space: u32, va: VirtAddr) -> Option<Swapped> {
        if self.pages.is_empty() {
            return None;
        }
        let slot = self.pages.get(&(space, va.0 >> FRAME_SHIFT))?;
        Some(self.cached.get(slot).map_or(Swapped::OnDevice, |frame| Swapped::InMemory(*frame)))
    }

    /// A page has been read back into a frame. If it is to be `shared`, those that refer to the slot too will find it
    /// there; returns how many these are.
    pub fn read(&mut self, space: u32, va: VirtAddr, frame: Pfn, shared: bool) -> u32 {
        let slot = self.pages.remove(&(space, va.0 >> FRAME_SHIFT)).expect("the page was swapped out");
        let others = self.release(slot);
        if others == 0 || !shared {
            return 0;
        }
        self.cached.insert(slot, frame);
        self.slot_of.insert(frame, slot);
        others
    }

    /// A page refers to its slot no more. Returns the frame that it could have had, if there is one.
    pub fn remove(&mut self, space: u32, va: VirtAddr) -> Option<Pfn> {
        let slot = self.pages.remove(&(space, va.0 >> FRAME_SHIFT))?;
        let frame = self.cached.get(&slot).copied();
        self.release(slot);
        frame
    }

    /// One page less refers to a slot; returns how many do.
    fn release(&mut self, slot: u32) -> u32 {
        let left = &mut self.references[slot as usize];
        *left -= 1;
        if *left == 0 {
            self.free.insert(slot);
            if let Some(frame) = self.cached.remove(&slot) {
                self.slot_of.remove(&frame);
            }
        }
        *left
    }

    fn within(&self, space: u32, range: VaRange) -> impl Iterator<Item = (u64, u32)> + '_ {
        let (first, end) = (range.start.0 >> FRAME_SHIFT, range.end.0 >> FRAME_SHIFT);
        let bounds = (Bound::Included((space, first)), Bound::Excluded((space, end)));
        let pages = (first < end && !self.pages.is_empty()).then(|| self.pages.range(bounds));
        pages.into_iter().flatten().map(|(&(_, page), &slot)| (page, slot))
    }

    /// Whether a page of a range is on it.
    pub fn holds_some(&self, space: u32, range: VaRange) -> bool {
        self.within(space, range).next().is_some()
    }

    /// The pages of a range are unmapped. Returns the frames that lose a user by it.
    pub fn drop_range(&mut self, space: u32, range: VaRange) -> Vec<Pfn> {
        let pages: Vec<_> = self.within(space, range).collect();
        pages.into_iter().filter_map(|(page, _)| self.remove(space, VirtAddr(page << FRAME_SHIFT))).collect()
    }

    /// The pages of a range are mapped elsewhere now.
    pub fn move_range(&mut self, space: u32, from: VaRange, to: VirtAddr) {
        for (page, slot) in self.within(space, from).collect::<Vec<_>>() {
            self.pages.remove(&(space, page));
            let moved = page.wrapping_sub(from.start.0 >> FRAME_SHIFT).wrapping_add(to.0 >> FRAME_SHIFT);
            self.pages.insert((space, moved), slot);
        }
    }

    /// A forked child has its parent's pages of a range. Returns the frames that have a user more by it.
    pub fn share_range(&mut self, parent: u32, child: u32, range: VaRange) -> Vec<Pfn> {
        let mut shared = Vec::new();
        for (page, slot) in self.within(parent, range).collect::<Vec<_>>() {
            self.pages.insert((child, page), slot);
            self.references[slot as usize] += 1;
            shared.extend(self.cached.get(&slot));
        }
        shared
    }

    /// Frames that hold what is in a slot, each with the number of pages that refer to the slot still.
    pub fn in_memory(&self) -> impl Iterator<Item = (Pfn, u32)> + '_ {
        self.cached.iter().map(|(&slot, &frame)| (frame, self.references[slot as usize]))
    }

    /// Pages on it.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
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
    use crate::base::addr::FRAME_BYTES;
    use crate::device::DeviceConfig;

    fn swap(slots: u64) -> Swap {
        let device = DeviceConfig::samples().swap_remove(0);
        Swap::new(&SwapConfig { size_bytes: Bytes(slots * FRAME_BYTES), device })
    }

    fn range(from: u64, to: u64) -> VaRange {
        VaRange { start: VirtAddr(from << 12), end: VirtAddr(to << 12) }
    }

    fn va(page: u64) -> VirtAddr {
        VirtAddr(page << 12)
    }

    #[test]
    fn slots_are_given_back_by_their_last_user() {
        let mut swap = swap(3);
        (10..13).for_each(|page| swap.put(Pfn(page), &[(1, page)]));
        assert_eq!(swap.room(), 0);
        assert!(swap.share_range(1, 2, range(10, 12)).is_empty());
        assert!(swap.drop_range(1, range(0, 100)).is_empty());
        assert_eq!((swap.pages(), swap.used_slots()), (2, 2));
        swap.move_range(2, range(10, 12), va(50));
        assert_eq!((swap.find(2, va(51)), swap.find(2, va(10))), (Some(Swapped::OnDevice), None));
        assert_eq!(swap.remove(2, va(50)), None);
        swap.drop_range(2, range(51, 52));
        assert_eq!((swap.pages(), swap.used_slots(), swap.room()), (0, 0, 3));
        swap.put(Pfn(1), &[(3, 1)]);
        assert_eq!(swap.references.len(), 3, "a slot given back is used first");
    }

    #[test]
    fn what_one_has_read_back_the_others_find_in_memory() {
        let mut swap = swap(8);
        swap.put(Pfn(5), &[(1, 10), (2, 10), (3, 10)]);
        assert_eq!(swap.read(1, va(10), Pfn(9), true), 2);
        assert_eq!((swap.find(1, va(10)), swap.find(2, va(10))), (None, Some(Swapped::InMemory(Pfn(9)))));
        assert_eq!(swap.share_range(2, 4, range(0, 20)), [Pfn(9)]);
        assert_eq!(swap.remove(2, va(10)), Some(Pfn(9)));
        // It leaves again: those that had it refer to the same slot as those that never came back.
        swap.put(Pfn(9), &[(1, 10), (2, 10)]);
        assert_eq!((swap.pages(), swap.used_slots()), (4, 1));
        assert_eq!(swap.find(3, va(10)), Some(Swapped::OnDevice));
        // A store has its own, and the others nothing of it.
        assert_eq!(swap.read(1, va(10), Pfn(7), false), 0);
        assert_eq!(swap.find(2, va(10)), Some(Swapped::OnDevice));
        for space in 2..5 {
            assert_eq!(swap.remove(space, va(10)), None);
        }
        assert_eq!((swap.used_slots(), swap.cached.len(), swap.slot_of.len()), (0, 0, 0));
    }
}
