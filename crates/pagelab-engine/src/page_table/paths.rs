//! A memo of ways down a radix tree: which table maps the 2 MiB around an address, and the tables above it.
//!
//! Finding the leaf table is a chain of reads of the simulator's own memory, a host cache miss each where a program touches
//! gigabytes at random. The memo is a direct-mapped array in front of it; it holds nothing that the tables do not say, and
//! changes no result. A way stays valid as long as its leaf table does, since tables are freed from the leaf upwards.

use std::cell::{Cell, OnceCell};

use crate::base::addr::{FRAME_SHIFT, VirtAddr};

/// Ways that are kept: 8 GiB of address space.
const WAYS: usize = 4096;
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
    ways: OnceCell<Box<[Cell<Path>]>>,
}

impl Paths {
    /// For virtual addresses of `va_bits` bits.
    pub fn new(va_bits: u32) -> Self {
        Self { va_mask: (1 << va_bits) - 1, ways: OnceCell::new() }
    }

    #[inline(always)]
    fn region(&self, va: VirtAddr) -> u64 {
        ((va.0 & self.va_mask) >> REGION_SHIFT) + 1
    }

    #[inline(always)]
    pub fn get(&self, va: VirtAddr) -> Option<Path> {
        let region = self.region(va);
        let path = self.ways.get()?[region as usize % WAYS].get();
        (path.region == region).then_some(path)
    }

    #[cold]
    pub fn put(&self, va: VirtAddr, tables: [u32; 5], leaf_slot: u32) {
        let ways = self.ways.get_or_init(|| vec![Cell::default(); WAYS].into());
        let region = self.region(va);
        ways[region as usize % WAYS].set(Path { region, tables, leaf_slot });
    }

    /// The leaf table of `va` is no more.
    pub fn forget(&self, va: VirtAddr) {
        if let (Some(ways), Some(_)) = (self.ways.get(), self.get(va)) {
            ways[self.region(va) as usize % WAYS].set(Path::default());
        }
    }
}
