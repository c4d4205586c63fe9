//! A way down a tree of tables: what a walk reads that meets nothing unusual.

use super::Mapping;
use super::entry::{PRESENT, decode};
use crate::base::addr::{FRAME_SHIFT, Pfn, PhysAddr, VirtAddr};
use crate::base::memory::WORDS_PER_FRAME;

/// log2 of the entries of a table.
pub(super) const INDEX_BITS: u32 = 9;

/// A way from the root of a tree of tables of 512 entries each to the entry of a page of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Level of the root.
    pub levels: u8,
    /// Frame numbers of the tables by level, less 1.
    pub(super) tables: [u32; 5],
    /// What the entry of level 1 says.
    pub(super) leaf: u64,
}

impl Way {
    /// The entry that a walk for `va` reads at `level`, 1 to [`Self::levels`].
    #[inline(always)]
    pub fn entry(&self, level: u8, va: VirtAddr) -> PhysAddr {
        entry_addr(Pfn(self.tables[usize::from(level) - 1].into()), level, va)
    }

    /// The page at its end, if there is one.
    #[inline(always)]
    pub fn page(&self) -> Option<Mapping> {
        (self.leaf & PRESENT != 0).then(|| decode(1, self.leaf))
    }
}

/// The entry for `va` in a table of `level`.
#[inline(always)]
pub(super) fn entry_addr(table: Pfn, level: u8, va: VirtAddr) -> PhysAddr {
    let index = va.0 >> (FRAME_SHIFT + INDEX_BITS * u32::from(level - 1)) & (WORDS_PER_FRAME as u64 - 1);
    PhysAddr(table.addr().0 + index * 8)
}
