//! A way down a tree of tables: what a walk reads that meets nothing unusual.

use super::entry::{ACCESSED, DIRTY, INDEX_BITS, LARGE, PRESENT, WRITABLE, decode, target};
use super::paths::{Path, Paths};
use super::{Leaf, Mapping, WalkList, WalkRef};
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::memory::{PhysMem, WORDS_PER_FRAME};
use pagelab_base::translation::Translation;

/// A way from the root of a tree of tables of 512 entries each to the entry of a page of 4 KiB or 2 MiB.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Level of the root.
    pub root: u8,
    /// Level of the page's entry: 1 or 2.
    pub leaf: u8,
    /// Frame numbers of the tables by level, less 1.
    tables: [u32; 5],
    /// What the page's entry says.
    entry: u64,
}

impl Way {
    /// Down `path` to an entry of level `leaf`; none if a table hangs from that.
    #[inline(always)]
    pub(super) fn new(root: u8, leaf: u8, path: &Path, mem: &PhysMem, va: VirtAddr) -> Option<Self> {
        let mut way = Self { root, leaf, tables: path.tables, entry: 0 };
        way.entry = mem.read_in(path.leaf_slot, way.entry_addr(leaf, va));
        (leaf == 1 || way.entry & (PRESENT | LARGE) == PRESENT | LARGE).then_some(way)
    }

    /// The entry that a walk for `va` reads at `level`, from [`Self::root`] down to [`Self::leaf`].
    #[inline(always)]
    pub fn entry_addr(&self, level: u8, va: VirtAddr) -> PhysAddr {
        entry_addr(Pfn(self.tables[usize::from(level) - 1].into()), level, va)
    }

    /// Whether the page is mapped, allows an access and is marked as that would mark it.
    #[inline(always)]
    pub fn serves(&self, store: bool) -> bool {
        let needed = PRESENT | ACCESSED | if store { WRITABLE | DIRTY } else { 0 };
        self.entry & needed == needed
    }

    /// What the page's entry says of the page, which is mapped.
    #[inline(always)]
    pub fn translation(&self) -> Translation<PhysAddr> {
        Translation::new(
            target(self.entry).addr(),
            PageSize::of_level(self.leaf),
            self.entry & WRITABLE != 0,
            self.entry & DIRTY != 0,
        )
    }

    /// log2 of the bytes that an entry of `level` translates.
    #[inline(always)]
    pub const fn shift(level: u8) -> u32 {
        FRAME_SHIFT + INDEX_BITS * (level as u32 - 1)
    }

    /// Whether it passes an entry of `level` on its way to the page's.
    #[inline(always)]
    pub fn passes(&self, level: u8) -> bool {
        self.leaf < level && level <= self.root
    }

    /// The page at its end, if there is one.
    #[inline(always)]
    pub fn page(&self) -> Option<Mapping> {
        (self.entry & PRESENT != 0).then(|| decode(self.leaf, self.entry))
    }

    /// The references of a walk for `va`.
    pub fn list(&self, va: VirtAddr) -> WalkList {
        let mut list = WalkList::new();
        for level in (self.leaf..=self.root).rev() {
            let shift = Self::shift(level) as u8;
            list.push(WalkRef { addr: self.entry_addr(level, va), level, shift, step: self.root - level });
        }
        list.leaf = self.page().map_or(Leaf::nothing(self.leaf), Leaf::Present);
        list
    }
}

/// The ways that a tree of tables remembers.
#[derive(Clone, Copy)]
pub struct Ways<'a> {
    pub(super) root: u8,
    /// To leaf tables, and to those above them.
    pub(super) paths: &'a Paths<1>,
    pub(super) upper_paths: &'a Paths<2>,
    pub(super) mem: &'a PhysMem,
}

impl Ways<'_> {
    /// The way of a walk for `va`.
    #[inline(always)]
    pub fn get(&self, va: VirtAddr) -> Option<Way> {
        if let Some(path) = self.paths.get(va) {
            return Way::new(self.root, 1, &path, self.mem, va);
        }
        let path = self.upper_paths.get(va)?;
        Way::new(self.root, 2, &path, self.mem, va)
    }

    /// Has the host fetch what the next two will look at.
    #[inline(always)]
    pub fn hint(&self, va: VirtAddr) {
        self.paths.hint(va);
    }

    /// Has the host fetch the entry of level 1 for `va`.
    #[inline(always)]
    pub fn hint_entry(&self, va: VirtAddr) {
        if let Some(path) = self.paths.get(va) {
            self.mem.hint_in(path.leaf_slot, entry_addr(Pfn(path.tables[0].into()), 1, va));
        }
    }

    /// That entry's address, and the first byte of the page that it maps.
    #[inline(always)]
    pub fn peek(&self, va: VirtAddr) -> Option<(PhysAddr, PhysAddr)> {
        let path = self.paths.get(va)?;
        let addr = entry_addr(Pfn(path.tables[0].into()), 1, va);
        let entry = self.mem.read_in(path.leaf_slot, addr);
        (entry & PRESENT != 0).then(|| (addr, target(entry).addr()))
    }
}

/// The entry for `va` in a table of `level`.
#[inline(always)]
pub(super) fn entry_addr(table: Pfn, level: u8, va: VirtAddr) -> PhysAddr {
    let index = va.0 >> Way::shift(level) & (WORDS_PER_FRAME as u64 - 1);
    table.addr() + index * 8
}
