//! A memo of paths through a radix tree: for a region of addresses, the table of one level that maps it, and the tables
//! above.
//!
//! Finding the table that contains a page's entry is a chain of reads in the simulator's own memory. If a program
//! accesses gigabytes at random, each read misses the host's caches. The memo is a direct-mapped array in front of that
//! chain, with at least one slot per table of its level. It only repeats what the tables contain and changes no result.
//! A path stays valid as long as its last table exists, since tables are freed from the leaf upwards.

use std::cell::Cell;

use super::entry::INDEX_BITS;
use pagelab_base::addr::{FRAME_SHIFT, VirtAddr};
use pagelab_base::host::prefetch;

/// Number of slots of a memo that is not empty, at least.
const FEW_WAYS: usize = 64;

/// A path from the root to a table of the memo's level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    /// Number of the region that the last table maps, plus 1; 0 for an empty slot.
    region: u64,
    /// Frame numbers of the tables; index = level - 1.
    pub tables: [u32; 5],
    /// Slot of the last table's contents in [`PhysMem`](pagelab_base::memory::PhysMem).
    pub leaf_slot: u32,
}

/// A memo of paths to tables of level `LEVEL`.
#[derive(Clone)]
pub(super) struct Paths<const LEVEL: u8> {
    va_mask: u64,
    /// The slots: none, or a power of two; indexed by region.
    ways: Vec<Cell<Path>>,
    /// Number of tables of the level.
    tables: usize,
}

impl<const LEVEL: u8> Paths<LEVEL> {
    /// log2 of the bytes that a table of the level maps.
    const REGION_SHIFT: u32 = FRAME_SHIFT + INDEX_BITS * LEVEL as u32;

    /// A memo for virtual addresses of `va_bits` bits.
    pub fn new(va_bits: u32) -> Self {
        Self { va_mask: (1 << va_bits) - 1, ways: Vec::new(), tables: 0 }
    }

    #[inline(always)]
    fn region(&self, va: VirtAddr) -> u64 {
        ((va.0 & self.va_mask) >> Self::REGION_SHIFT) + 1
    }

    /// Index of a region's slot; out of bounds while there are no slots.
    #[inline(always)]
    fn place(&self, region: u64) -> usize {
        region as usize & self.ways.len().wrapping_sub(1)
    }

    #[inline(always)]
    pub fn get(&self, va: VirtAddr) -> Option<Path> {
        let region = self.region(va);
        let path = self.ways.get(self.place(region))?.get();
        (path.region == region).then_some(path)
    }

    #[cold]
    pub fn put(&self, va: VirtAddr, tables: [u32; 5], leaf_slot: u32) {
        let region = self.region(va);
        if let Some(way) = self.ways.get(self.place(region)) {
            way.set(Path { region, tables, leaf_slot });
        }
    }

    /// Prefetches the slot of `va` on the host.
    #[inline(always)]
    pub fn hint(&self, va: VirtAddr) {
        prefetch(&self.ways, self.place(self.region(va)));
    }

    /// Call it when a table of the level is linked: grows the memo if there are more tables than slots.
    pub fn make_room(&mut self) {
        self.tables += 1;
        if self.tables > self.ways.len() {
            let places = (2 * self.ways.len()).max(FEW_WAYS);
            let old = std::mem::replace(&mut self.ways, vec![Cell::default(); places]);
            for way in old.into_iter().filter(|way| way.get().region != 0) {
                let place = self.place(way.get().region);
                self.ways[place] = way;
            }
        }
    }

    /// Call it when the table that maps `va` is freed.
    pub fn forget(&mut self, va: VirtAddr) {
        self.tables -= 1;
        if self.get(va).is_some() {
            let place = self.place(self.region(va));
            self.ways[place] = Cell::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn va(region: u64) -> VirtAddr {
        VirtAddr(region << 21)
    }

    #[test]
    fn every_leaf_table_has_an_entry_until_it_is_freed() {
        let mut paths = Paths::<1>::new(48);
        paths.put(va(7), [7; 5], 7);
        assert_eq!(paths.get(va(7)), None, "no room yet");
        for region in 0..1000_u32 {
            paths.make_room();
            paths.put(va(region.into()), [region; 5], region);
        }
        let found = |paths: &Paths<1>, region: u64| paths.get(va(region)).map(|path| u64::from(path.leaf_slot));
        assert!((0..1000).all(|region| found(&paths, region) == Some(region)), "those from before it grew, too");
        assert_eq!(found(&paths, 1024), None, "another region in the same place");
        paths.forget(va(12));
        assert_eq!((found(&paths, 12), found(&paths, 13)), (None, Some(13)));
        paths.put(va(13 + 1024), [1; 5], 1);
        assert_eq!((found(&paths, 13), found(&paths, 13 + 1024)), (None, Some(1)));
    }
}
