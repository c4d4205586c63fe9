//! A path through a radix tree: the entries that an ordinary walk reads.

use super::entry::{ACCESSED, DIRTY, INDEX_BITS, LARGE, PRESENT, WRITABLE, decode, target};
use super::paths::{Path, Paths};
use super::{Leaf, Mapping, PageGroup, WalkList, WalkRef};
use pagelab_base::addr::{FRAME_SHIFT, LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::memory::{PhysMem, WORDS_PER_FRAME};
use pagelab_base::translation::Translation;

/// A path from the root of a tree of 512-entry tables to the entry of a 4 KiB or 2 MiB page.
#[derive(Clone, Copy, Debug)]
pub struct WalkPath {
    /// Level of the root.
    pub root: u8,
    /// Level of the page's entry: 1 or 2.
    pub leaf: u8,
    /// Frame numbers of the tables; index = level - 1.
    tables: [u32; 5],
    /// Content of the page's entry.
    entry: u64,
}

impl WalkPath {
    /// The path to the entry at level `leaf`; `None` if that entry does not map a page itself.
    #[inline(always)]
    pub(super) fn new(root: u8, leaf: u8, path: &Path, mem: &PhysMem, va: VirtAddr) -> Option<Self> {
        let mut way = Self { root, leaf, tables: path.tables, entry: 0 };
        way.entry = mem.read_in(path.leaf_slot, way.entry_addr(leaf, va));
        (leaf == 1 || way.entry & (PRESENT | LARGE) == PRESENT | LARGE).then_some(way)
    }

    /// Address of the entry that a walk for `va` reads at `level`, between [`Self::root`] and [`Self::leaf`].
    #[inline(always)]
    pub fn entry_addr(&self, level: u8, va: VirtAddr) -> PhysAddr {
        entry_addr(Pfn(self.tables[usize::from(level) - 1].into()), level, va)
    }

    /// Whether another path has the same tables above the one of level 1. Both are of one tree.
    #[inline(always)]
    pub fn shares_upper_tables(&self, other: &Self) -> bool {
        let [[_, own @ ..], [_, others @ ..]] = [&self.tables, &other.tables];
        self.leaf == other.leaf && own == others
    }

    /// Whether the page is mapped, allows the access, and needs no change of its accessed and dirty bits.
    #[inline(always)]
    pub fn serves(&self, store: bool) -> bool {
        let needed = PRESENT | ACCESSED | if store { WRITABLE | DIRTY } else { 0 };
        self.entry & needed == needed
    }

    /// The translation of the page, which is mapped.
    #[inline(always)]
    pub fn translation(&self) -> Translation<PhysAddr> {
        Translation::new(
            target(self.entry).addr(),
            PageSize::from_level(self.leaf),
            self.entry & WRITABLE != 0,
            self.entry & DIRTY != 0,
        )
    }

    /// log2 of the bytes that an entry of `level` maps.
    #[inline(always)]
    pub const fn shift(level: u8) -> u32 {
        FRAME_SHIFT + INDEX_BITS * (level as u32 - 1)
    }

    /// The reference to an entry of `level`.
    #[inline(always)]
    pub(super) fn reference(addr: PhysAddr, level: u8, step: u8) -> WalkRef {
        WalkRef { addr, level, shift: Self::shift(level) as u8, factor: 1, step }
    }

    /// Whether the path contains an entry of `level` above the page's entry.
    #[inline(always)]
    pub fn passes(&self, level: u8) -> bool {
        self.leaf < level && level <= self.root
    }

    /// The mapping of the page; `None` if it is not present.
    #[inline(always)]
    pub fn page(&self) -> Option<Mapping> {
        (self.entry & PRESENT != 0).then(|| decode(self.leaf, self.entry))
    }

    /// The references of a walk for `va`.
    pub fn list(&self, va: VirtAddr) -> WalkList {
        let mut list = WalkList::new();
        for level in (self.leaf..=self.root).rev() {
            list.push(Self::reference(self.entry_addr(level, va), level, self.root - level));
        }
        list.leaf = self.page().map_or(Leaf::nothing(self.leaf), Leaf::Present);
        list
    }
}

/// The remembered paths of a radix tree.
#[derive(Clone, Copy)]
pub struct Ways<'a> {
    pub(super) root: u8,
    /// Paths to level-1 tables, and to level-2 tables.
    pub(super) paths: &'a Paths<1>,
    pub(super) upper_paths: &'a Paths<2>,
    pub(super) mem: &'a PhysMem,
}

impl Ways<'_> {
    /// The path of a walk for `va`, if it is remembered.
    #[inline(always)]
    pub fn get(&self, va: VirtAddr) -> Option<WalkPath> {
        if let Some(path) = self.paths.get(va) {
            return WalkPath::new(self.root, 1, &path, self.mem, va);
        }
        let path = self.upper_paths.get(va)?;
        WalkPath::new(self.root, 2, &path, self.mem, va)
    }

    /// The group of the page at `va`, if it is mapped by an entry of a level-1 table and the path is remembered.
    pub fn group(&self, va: VirtAddr) -> Option<PageGroup> {
        let path = self.paths.get(va)?;
        let way = WalkPath::new(self.root, 1, &path, self.mem, va)?;
        let line = self.mem.line(way.entry_addr(1, va).align_down(LINE_BYTES));
        let pages = line.map(|entry| (entry & PRESENT != 0).then(|| decode(1, entry)));
        Some(PageGroup { own: way.page()?, pages })
    }

    /// Prefetches on the host what [`Self::hint_entry`] and [`Self::peek`] will read.
    #[inline(always)]
    pub fn hint(&self, va: VirtAddr) {
        self.paths.hint(va);
    }

    /// Prefetches the level-1 entry of `va` on the host.
    #[inline(always)]
    pub fn hint_entry(&self, va: VirtAddr) {
        if let Some(path) = self.paths.get(va) {
            self.mem.hint_in(path.leaf_slot, entry_addr(Pfn(path.tables[0].into()), 1, va));
        }
    }

    /// Address of the level-1 entry of `va`, and start address of the page that it maps.
    #[inline(always)]
    pub fn peek(&self, va: VirtAddr) -> Option<(PhysAddr, PhysAddr)> {
        let path = self.paths.get(va)?;
        let addr = entry_addr(Pfn(path.tables[0].into()), 1, va);
        let entry = self.mem.read_in(path.leaf_slot, addr);
        (entry & PRESENT != 0).then(|| (addr, target(entry).addr()))
    }
}

/// Address of the entry for `va` in a table of `level`.
#[inline(always)]
pub(super) fn entry_addr(table: Pfn, level: u8, va: VirtAddr) -> PhysAddr {
    let index = va.0 >> WalkPath::shift(level) & (WORDS_PER_FRAME as u64 - 1);
    table.addr() + index * 8
}
