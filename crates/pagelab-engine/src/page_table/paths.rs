//! A memo of ways down a radix tree: which table maps the 2 MiB around an address, and the tables above it.
//!
//! Finding the leaf table is a chain of reads of the simulator's own memory, a host cache miss each where a program touches
//! gigabytes at random. The memo is a direct-mapped array in front of it, with a place at least for each leaf table; it holds
//! nothing that the tables do not say, and changes no result. A way stays valid as long as its leaf table does, since tables are
//! freed from the leaf upwards.

use std::cell::Cell;

use crate::base::addr::{FRAME_SHIFT, VirtAddr};
use crate::cache::host::prefetch;

/// Ways that are kept at least, once there are any.
const FEW_WAYS: usize = 64;
/// log2 of the bytes that a leaf table maps.
const REGION_SHIFT: u32 = FRAME_SHIFT + 9;

/// A way from the root to a leaf table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    /// Number of the 2 MiB region that the leaf table maps, and 1; 0 for no way.
    region: u64,
    /// Frame numbers of the tables by level, less 1.
    pub tables: [u32; 5],
    /// Where the contents of the leaf table are.
    pub leaf_slot: u32,
}

/// See the module's text.
#[derive(Clone)]
pub(super) struct Paths {
    va_mask: u64,
    /// None, or a power of two, by region.
    ways: Vec<Cell<Path>>,
    leaf_tables: usize,
}

impl Paths {
    /// For virtual addresses of `va_bits` bits.
    pub fn new(va_bits: u32) -> Self {
        Self { va_mask: (1 << va_bits) - 1, ways: Vec::new(), leaf_tables: 0 }
    }

    #[inline(always)]
    fn region(&self, va: VirtAddr) -> u64 {
        ((va.0 & self.va_mask) >> REGION_SHIFT) + 1
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

    /// There is a leaf table more.
    pub fn make_room(&mut self) {
        self.leaf_tables += 1;
        if self.leaf_tables > self.ways.len() {
            let places = (2 * self.ways.len()).max(FEW_WAYS);
            let old = std::mem::replace(&mut self.ways, vec![Cell::default(); places]);
            for way in old.into_iter().filter(|way| way.get().region != 0) {
                let place = self.place(way.get().region);
                self.ways[place] = way;
            }
        }
    }

    /// The leaf table of `va` is no more.
    pub fn forget(&mut self, va: VirtAddr) {
        self.leaf_tables -= 1;
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
        VirtAddr(region << REGION_SHIFT)
    }

    #[test]
    fn there_is_a_place_for_every_leaf_table_and_none_is_found_after_it_has_gone() {
        let mut paths = Paths::new(48);
        paths.put(va(7), [7; 5], 7);
        assert_eq!(paths.get(va(7)), None, "no room yet");
        for region in 0..1000_u32 {
            paths.make_room();
            paths.put(va(region.into()), [region; 5], region);
        }
        let found = |paths: &Paths, region: u64| paths.get(va(region)).map(|path| u64::from(path.leaf_slot));
        assert!((0..1000).all(|region| found(&paths, region) == Some(region)), "those from before it grew, too");
        assert_eq!(found(&paths, 1024), None, "another region in the same place");
        paths.forget(va(12));
        assert_eq!((found(&paths, 12), found(&paths, 13)), (None, Some(13)));
        paths.put(va(13 + 1024), [1; 5], 1);
        assert_eq!((found(&paths, 13), found(&paths, 13 + 1024)), (None, Some(1)));
    }
}
