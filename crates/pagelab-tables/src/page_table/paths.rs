//! A memo of ways down a radix tree: which table of a level maps the region around an address, and the tables above it.
//!
//! Finding the table that has a page's entry is a chain of reads of the simulator's own memory, a host cache miss each
//! where a program touches gigabytes at random. The memo is a direct-mapped array in front of it, with a place at least
//! for each table of the level; it holds nothing that the tables do not say, and changes no result. A way stays valid
//! as long as its last table does, since tables are freed from the leaf upwards.

use std::cell::Cell;

use super::entry::INDEX_BITS;
use pagelab_base::addr::{FRAME_SHIFT, VirtAddr};
use pagelab_base::host::prefetch;

/// Ways that are kept at least, once there are any.
const FEW_WAYS: usize = 64;

/// A way from the root to a table of the memo's level, its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    /// Number of the region that the last table maps, and 1; 0 for no way.
    region: u64,
    /// Frame numbers of the tables by level, less 1.
    pub tables: [u32; 5],
    /// Where the contents of the last table are.
    pub leaf_slot: u32,
}

/// A memo of ways to tables of `LEVEL`; see the module's text.
#[derive(Clone)]
pub(super) struct Paths<const LEVEL: u8> {
    va_mask: u64,
    /// None, or a power of two, by region.
    ways: Vec<Cell<Path>>,
    /// Tables of the level.
    tables: usize,
}

impl<const LEVEL: u8> Paths<LEVEL> {
    /// log2 of the bytes that a table of the level maps.
    const REGION_SHIFT: u32 = FRAME_SHIFT + INDEX_BITS * LEVEL as u32;

    /// For virtual addresses of `va_bits` bits.
    pub fn new(va_bits: u32) -> Self {
        Self { va_mask: (1 << va_bits) - 1, ways: Vec::new(), tables: 0 }
    }

    #[inline(always)]
    fn region(&self, va: VirtAddr) -> u64 {
        ((va.0 & self.va_mask) >> Self::REGION_SHIFT) + 1
    }

    /// Where a region's way is. Without places no number is one.
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

    /// Has the host fetch the place of the way to `va`.
    #[inline(always)]
    pub fn hint(&self, va: VirtAddr) {
        prefetch(&self.ways, self.place(self.region(va)));
    }

    /// There is a table more.
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

    /// The table of `va` is no more.
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
    fn there_is_a_place_for_every_leaf_table_and_none_is_found_after_it_has_gone() {
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
