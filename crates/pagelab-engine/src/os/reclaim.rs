//! Giving memory back when it runs short: LRU lists of anonymous pages, and a swap device behind them.
//!
//! Models: an active and an inactive list a layer. New pages go to the head of one of them; a scan takes pages from the
//! tail of the inactive list, gives those whose accessed bit is set a place on the active list, and swaps the others out;
//! when the inactive list is short, pages move to it from the tail of the active one, their accessed bits cleared.
//! Source: Linux mm/vmscan.c (`shrink_inactive_list`, `shrink_active_list`, `inactive_is_low`, `folio_check_references`),
//! mm/page_alloc.c (`calculate_min_free_kbytes`), mm/swapfile.c, mm/rmap.c (`try_to_unmap`).
//! Parameters: `kernel.swap`, `kernel.cgroup_limit_bytes`, `kernel.new_pages`.
//! Deviations: there is no kswapd; the fault that finds memory below the low watermark, or its cgroup at its limit, makes
//! room itself, 32 pages at a time, and waits for their write-back. Pages that several page tables map, pages of files
//! and pages larger than 4 KiB stay in memory. A page that is read back leaves its swap slot at once, so it is written
//! again even if it stays clean. No multi-generational LRU, no refault distance.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use crate::addr::{Cycles, FRAME_BYTES, FRAME_SHIFT, Pfn, VirtAddr};
use crate::config::SwapConfig;
use crate::os::vma::VaRange;

/// Pages that one scan looks at (Linux `SWAP_CLUSTER_MAX`).
pub const SCAN_PAGES: usize = 32;

/// A page of an address space of the layer: the space's number, and the page's.
type PageOf = (u32, u64);

/// A list, by age: the oldest page first. The key is the time at which a page was put at its head.
#[derive(Default)]
struct List {
    pages: BTreeMap<u64, Pfn>,
}

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    active: bool,
    time: u64,
    page: PageOf,
}

/// What a scan does with one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was accessed: stays.
    Keep,
    /// To be swapped out.
    Evict,
}

/// What reclaim counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReclaimCounters {
    pub scanned: u64,
    pub activated: u64,
    pub deactivated: u64,
    pub swapped_out: u64,
    pub swapped_in: u64,
}

/// See the module's text.
pub struct Reclaim {
    lists: [List; 2],
    places: HashMap<Pfn, Place>,
    time: u64,
    new_active: bool,
    /// Frames that must stay free.
    pub low_frames: u64,
    /// Frames that programs may use.
    pub limit_frames: u64,
    /// Frames that they use.
    pub used_frames: u64,
    pub swap: Swap,
    pub counters: ReclaimCounters,
}

impl Reclaim {
    /// For a layer of `frames`, of which programs may use `limit_frames`.
    pub fn new(frames: u64, limit_frames: u64, new_active: bool, swap: &SwapConfig) -> Self {
        Self {
            lists: Default::default(),
            places: HashMap::new(),
            time: 0,
            new_active,
            low_frames: low_watermark(frames),
            limit_frames,
            used_frames: 0,
            swap: Swap::new(swap),
            counters: ReclaimCounters::default(),
        }
    }

    /// Whether room must be made before `frames` more are taken, with `free` left.
    pub fn is_short(&self, free: u64, frames: u64) -> bool {
        free < self.low_frames + frames || self.used_frames + frames > self.limit_frames
    }

    /// Whether there is a page to scan.
    pub fn has_pages(&self) -> bool {
        !self.places.is_empty()
    }

    fn put(&mut self, pfn: Pfn, active: bool, page: PageOf) {
        self.time += 1;
        self.lists[usize::from(active)].pages.insert(self.time, pfn);
        self.places.insert(pfn, Place { active, time: self.time, page });
    }

    /// A page goes onto its first list. Nothing changes if it is on one.
    pub fn add(&mut self, pfn: Pfn, space: u32, va: VirtAddr) {
        if !self.places.contains_key(&pfn) {
            self.put(pfn, self.new_active, (space, va.0 >> FRAME_SHIFT));
        }
    }

    /// A page is free, shared or moved.
    pub fn forget(&mut self, pfn: Pfn) {
        if let Some(place) = self.places.remove(&pfn) {
            self.lists[usize::from(place.active)].pages.remove(&place.time);
        }
    }

    /// Evens the lists out; `accessed` clears a page's accessed bit.
    pub fn balance(&mut self, mut accessed: impl FnMut(u32, VirtAddr) -> bool) {
        let [inactive, active] = &self.lists;
        if !inactive_is_low(inactive.pages.len() as u64, active.pages.len() as u64) {
            return;
        }
        for pfn in self.oldest(true) {
            let page = self.places[&pfn].page;
            accessed(page.0, VirtAddr(page.1 << FRAME_SHIFT));
            self.forget(pfn);
            self.put(pfn, false, page);
            self.counters.deactivated += 1;
        }
    }

    fn oldest(&self, active: bool) -> Vec<Pfn> {
        self.lists[usize::from(active)].pages.values().copied().take(SCAN_PAGES).collect()
    }

    /// The pages that the next scan looks at, with their places in page tables.
    pub fn candidates(&self) -> impl Iterator<Item = (Pfn, u32, VirtAddr)> {
        let oldest = self.oldest(false).into_iter();
        oldest.map(|pfn| {
            let (space, page) = self.places[&pfn].page;
            (pfn, space, VirtAddr(page << FRAME_SHIFT))
        })
    }

    /// A candidate has been looked at.
    pub fn decide(&mut self, pfn: Pfn, verdict: Verdict) {
        let page = self.places[&pfn].page;
        self.counters.scanned += 1;
        self.forget(pfn);
        match verdict {
            Verdict::Keep => {
                self.counters.activated += 1;
                self.put(pfn, true, page);
            }
            Verdict::Evict => {
                self.counters.swapped_out += 1;
                self.swap.put(page.0, page.1);
            }
        }
    }
}

/// Frames below which room is made: the low watermark of a kernel with this memory.
fn low_watermark(frames: u64) -> u64 {
    let kib = frames * FRAME_BYTES / 1024;
    let min_kib = (kib * 16).isqrt().clamp(128, 262_144);
    // A tiny memory keeps a sixteenth.
    (min_kib * 1024 / FRAME_BYTES * 5 / 4).min(frames / 16)
}

/// Whether the inactive list is to be filled up: its share falls with the size of memory.
fn inactive_is_low(inactive: u64, active: u64) -> bool {
    let gib = (inactive + active) >> (30 - FRAME_SHIFT);
    let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
    inactive * ratio < active
}

/// A swap area: which pages are on it, and the device that it is on.
pub struct Swap {
    pages: BTreeMap<PageOf, u32>,
    /// Slots given back, and the number of those that were ever used.
    free: BTreeSet<u32>,
    used: u32,
    slots: u32,
    /// Page tables that refer to a slot, beyond the first.
    further: HashMap<u32, u32>,
    pub device: BlockDevice,
}

impl Swap {
    fn new(config: &SwapConfig) -> Self {
        Self {
            pages: BTreeMap::new(),
            free: BTreeSet::new(),
            used: 0,
            slots: (config.size_bytes.0 >> FRAME_SHIFT).min(u64::from(u32::MAX)) as u32,
            further: HashMap::new(),
            device: BlockDevice::new(config),
        }
    }

    /// Whether a page more fits.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.used < self.slots
    }

    fn put(&mut self, space: u32, page: u64) {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        let old = self.pages.insert((space, page), slot);
        assert!(old.is_none(), "page {page:#x} of space {space} is swapped out twice");
    }

    pub fn holds(&self, space: u32, va: VirtAddr) -> bool {
        !self.pages.is_empty() && self.pages.contains_key(&(space, va.0 >> FRAME_SHIFT))
    }

    /// A page has been read back, or is no more.
    pub fn remove(&mut self, space: u32, va: VirtAddr) {
        if let Some(slot) = self.pages.remove(&(space, va.0 >> FRAME_SHIFT)) {
            self.release(slot);
        }
    }

    fn release(&mut self, slot: u32) {
        match self.further.get_mut(&slot) {
            Some(further) if *further > 1 => *further -= 1,
            Some(_) => _ = self.further.remove(&slot),
            None => _ = self.free.insert(slot),
        }
    }

    fn within(&self, space: u32, range: VaRange) -> Vec<(u64, u32)> {
        let (first, end) = (range.start.0 >> FRAME_SHIFT, range.end.0 >> FRAME_SHIFT);
        let bounds = (Bound::Included((space, first)), Bound::Excluded((space, end)));
        if self.pages.is_empty() || first >= end {
            return Vec::new();
        }
        self.pages.range(bounds).map(|(&(_, page), &slot)| (page, slot)).collect()
    }

    /// The pages of a range are unmapped.
    pub fn drop_range(&mut self, space: u32, range: VaRange) {
        for (page, _) in self.within(space, range) {
            self.remove(space, VirtAddr(page << FRAME_SHIFT));
        }
    }

    /// The pages of a range are mapped elsewhere now.
    pub fn move_range(&mut self, space: u32, from: VaRange, to: VirtAddr) {
        for (page, slot) in self.within(space, from) {
            self.pages.remove(&(space, page));
            let moved = page.wrapping_sub(from.start.0 >> FRAME_SHIFT).wrapping_add(to.0 >> FRAME_SHIFT);
            self.pages.insert((space, moved), slot);
        }
    }

    /// A forked child has its parent's pages of a range.
    pub fn share_range(&mut self, parent: u32, child: u32, range: VaRange) {
        for (page, slot) in self.within(parent, range) {
            self.pages.insert((child, page), slot);
            *self.further.entry(slot).or_insert(0) += 1;
        }
    }

    /// Pages on it.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Slots in use.
    pub fn used_slots(&self) -> u64 {
        u64::from(self.used) - self.free.len() as u64
    }
}

/// A device that serves a number of requests at a time, each in the same time.
pub struct BlockDevice {
    read_cycles: Cycles,
    write_cycles: Cycles,
    /// When each of its places for a request is free again.
    free_at: Vec<Cycles>,
}

/// What a step asks of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequests {
    pub reads: u32,
    pub writes: u32,
}

impl BlockDevice {
    fn new(config: &SwapConfig) -> Self {
        Self {
            read_cycles: config.read_cycles,
            write_cycles: config.write_cycles,
            free_at: vec![0; config.queue_depth as usize],
        }
    }

    /// Makes requests at `now`; returns when the last of them is done.
    pub fn submit(&mut self, requests: DeviceRequests, now: Cycles) -> Cycles {
        let reads = (0..requests.reads).map(|_| self.read_cycles);
        let writes = (0..requests.writes).map(|_| self.write_cycles);
        let all: Vec<Cycles> = reads.chain(writes).collect();
        let mut done = now;
        for cycles in all {
            let place = self.free_at.iter_mut().min().expect("it serves one request at least");
            *place = now.max(*place) + cycles;
            done = done.max(*place);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use pagelab_trace::quantity::Bytes;

    use super::*;

    fn config(slots: u64, queue_depth: u32) -> SwapConfig {
        SwapConfig { size_bytes: Bytes(slots * FRAME_BYTES), read_cycles: 100, write_cycles: 40, queue_depth }
    }

    #[test]
    fn a_device_overlaps_as_many_requests_as_its_queue_is_deep() {
        let mut device = BlockDevice::new(&config(1, 2));
        assert_eq!(device.submit(DeviceRequests { reads: 1, writes: 0 }, 1000), 1100);
        // One beside the read, the next behind itself, the third behind the second or the read.
        assert_eq!(device.submit(DeviceRequests { reads: 0, writes: 3 }, 1000), 1120);
        assert_eq!(device.submit(DeviceRequests::default(), 5000), 5000);
    }

    #[test]
    fn slots_are_given_back_by_their_last_user() {
        let mut swap = Swap::new(&config(3, 1));
        let range = |from: u64, to: u64| VaRange { start: VirtAddr(from << 12), end: VirtAddr(to << 12) };
        (10..13).for_each(|page| swap.put(1, page));
        assert!(!swap.has_room());
        swap.share_range(1, 2, range(10, 12));
        swap.drop_range(1, range(0, 100));
        assert_eq!((swap.pages(), swap.used_slots()), (2, 2));
        swap.move_range(2, range(10, 12), VirtAddr(50 << 12));
        assert!(swap.holds(2, VirtAddr(51 << 12)) && !swap.holds(2, VirtAddr(10 << 12)));
        swap.remove(2, VirtAddr(50 << 12));
        swap.drop_range(2, range(51, 52));
        assert_eq!((swap.pages(), swap.used_slots()), (0, 0));
        swap.put(3, 1);
        assert_eq!(swap.used, 3, "a slot given back is used first");
    }

    #[test]
    fn pages_that_are_accessed_outlive_those_that_are_not() {
        let mut reclaim = Reclaim::new(1000, 1000, false, &config(1000, 1));
        (0..100).for_each(|n| reclaim.add(Pfn(n), 1, VirtAddr(n << 12)));
        for _ in 0..3 {
            let pages: Vec<_> = reclaim.candidates().collect();
            assert_eq!(pages.len(), SCAN_PAGES);
            for (pfn, _, va) in pages {
                assert_eq!(pfn.0, va.0 >> 12);
                reclaim.decide(pfn, if pfn.0 % 2 == 0 { Verdict::Keep } else { Verdict::Evict });
            }
        }
        let kept: Vec<u64> = (0..100).filter(|&n| reclaim.places.contains_key(&Pfn(n))).collect();
        assert!(kept.iter().all(|n| n % 2 == 0 || *n >= 96), "{kept:?}");
        assert_eq!((reclaim.counters.activated, reclaim.counters.swapped_out), (48, 48));
        // 4 inactive against 48 active ones: some come back, the oldest first.
        let mut cleared = Vec::new();
        reclaim.balance(|_, va| {
            cleared.push(va.0 >> 12);
            true
        });
        assert_eq!(cleared, (0..64).step_by(2).collect::<Vec<_>>());
        assert_eq!(reclaim.candidates().next().unwrap().0, Pfn(96));
    }
}
