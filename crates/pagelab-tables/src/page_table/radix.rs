//! x86-64 radix page table.
//!
//! Models: 512-entry tables at 4 levels (48-bit addresses) or 5 (57-bit), with leaves at levels 1 to 3 (to 1 GiB).
//! Source: Intel SDM vol. 3A, chapter 4 (4-level and 5-level paging, entry formats of tables 4-15 to 4-20).
//! Parameters: `levels`, 4 or 5, default 4.
//! Deviations: no protection keys, PAT or global bit. Permissions are those of the leaf, as Linux sets them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entry::{INDEX_BITS, LARGE, MARK, PRESENT, TABLE, decode, encode, leaf_of, target, word_of, write_word};
use super::paths::Paths;
use super::way::{WalkPath, Ways, entry_addr};
use super::{
    AddrRange, Context, Design, Mapping, NoRoom, NoTable, PageSizes, PageTable, PteFlags, Removed, TableBlock,
    TableFrames, UpperEntries, WalkList, Word, is_within,
};
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::memory::{PhysMem, WORDS_PER_FRAME};

const MAX_LEVELS: u8 = 5;

/// Parameters of a radix page table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RadixConfig {
    /// 4 (48-bit virtual addresses) or 5 (57-bit).
    pub levels: u8,
}

/// The radix page table of one address space.
#[derive(Clone)]
pub struct Radix {
    root: Pfn,
    levels: u8,
    /// Paths to level-1 tables.
    paths: Paths<1>,
    /// Paths to level-2 tables.
    upper_paths: Paths<2>,
}

/// Level of the leaf that maps a page of this size.
fn leaf_level(size: PageSize) -> u8 {
    1 + (size.order() / INDEX_BITS) as u8
}

/// True if an entry of this level maps a page (or could).
#[inline]
fn is_leaf(level: u8, entry: u64) -> bool {
    level == 1 || entry & LARGE != 0
}

#[cold]
fn remember<const LEVEL: u8>(paths: &Paths<LEVEL>, mem: &PhysMem, va: VirtAddr, last: Pfn, tables: [u32; 5]) {
    // A path stores frame numbers in 32 bits, which covers 16 TiB.
    if mem.frames_end() <= 1 << 32 {
        paths.put(va, tables, mem.slot_of(last));
    }
}

impl Radix {
    /// An empty tree. Error: there is no frame for its root.
    pub fn new(levels: u8, mem: &mut PhysMem, frames: TableFrames) -> Result<Self, NoTable> {
        let root = frames(0).ok_or(NoTable::Block { order: 0 })?;
        mem.create(root);
        let va_bits = FRAME_SHIFT + INDEX_BITS * u32::from(levels);
        Ok(Self { root, levels, paths: Paths::new(va_bits), upper_paths: Paths::new(va_bits) })
    }

    /// [`Design::walk`] without a remembered path: reads the tables one by one.
    fn walk_down(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        list.clear();
        let mut tables = [0; MAX_LEVELS as usize];
        let mut table = self.root;
        for level in (1..=self.levels).rev() {
            tables[usize::from(level) - 1] = table.0 as u32;
            let addr = entry_addr(table, level, va);
            list.push(WalkPath::reference(addr, level, MAX_LEVELS - level));
            let entry = mem.read(addr);
            if entry & PRESENT == 0 || is_leaf(level, entry) {
                list.leaf = leaf_of(level, entry);
                match level {
                    1 => remember(&self.paths, mem, va, table, tables),
                    2 => remember(&self.upper_paths, mem, va, table, tables),
                    _ => {}
                }
                return;
            }
            table = target(entry);
        }
    }

    #[inline(always)]
    fn remembered<'a>(&'a self, mem: &'a PhysMem) -> Ways<'a> {
        Ways { root: self.levels, paths: &self.paths, upper_paths: &self.upper_paths, mem }
    }

    /// Call it when an entry of `level` has been linked to a new table.
    fn make_room(&mut self, level: u8) {
        match level {
            2 => self.paths.make_room(),
            3 => self.upper_paths.make_room(),
            _ => {}
        }
    }

    /// The table of `level` that translates `va`, or level and address of the entry at which the descent ends above it.
    fn descend(&self, mem: &PhysMem, va: VirtAddr, level: u8) -> Result<Pfn, (u8, PhysAddr)> {
        if level == 1
            && let Some(path) = self.paths.get(va)
        {
            return Ok(Pfn(path.tables[0].into()));
        }
        let mut table = self.root;
        for at in (level + 1..=self.levels).rev() {
            let addr = entry_addr(table, at, va);
            let entry = mem.read(addr);
            if entry & PRESENT == 0 || is_leaf(at, entry) {
                return Err((at, addr));
            }
            table = target(entry);
        }
        Ok(table)
    }

    /// Level and address of the leaf entry that maps `va`.
    fn leaf(&self, mem: &PhysMem, va: VirtAddr) -> (u8, PhysAddr) {
        match self.descend(mem, va, 1) {
            Ok(table) => (1, entry_addr(table, 1, va)),
            Err(leaf) => leaf,
        }
    }

    /// Calls `each` with level, address and content of every nonzero entry that does not point to a table. `each`
    /// returns whether to continue.
    fn visit<F: FnMut(u8, u64, u64) -> bool>(
        &self,
        mem: &PhysMem,
        (table, level): (Pfn, u8),
        base: u64,
        (start, end): (VirtAddr, VirtAddr),
        each: &mut F,
    ) -> bool {
        let shift = FRAME_SHIFT + INDEX_BITS * u32::from(level - 1);
        let first = start.0.saturating_sub(base) >> shift;
        let last = ((end.0 - 1 - base) >> shift).min(WORDS_PER_FRAME as u64 - 1);
        let words = mem.frame(table);
        for index in first..=last {
            let (entry, va) = (words[index as usize], base + (index << shift));
            let continues = match entry {
                0 => true,
                _ if entry & PRESENT == 0 || is_leaf(level, entry) => each(level, va, entry),
                _ => self.visit(mem, (target(entry), level - 1), va, (start, end), each),
            };
            if !continues {
                return false;
            }
        }
        true
    }

    fn prune_below(
        &mut self,
        mem: &mut PhysMem,
        (table, level, base): (Pfn, u8, u64),
        (start, end): AddrRange,
        room: AddrRange,
        release: &mut dyn FnMut(Pfn),
    ) {
        let shift = FRAME_SHIFT + INDEX_BITS * u32::from(level - 1);
        let first = start.0.saturating_sub(base) >> shift;
        let last = ((end.0 - 1 - base) >> shift).min(WORDS_PER_FRAME as u64 - 1);
        for index in first..=last {
            let addr = table.addr() + index * 8;
            let entry = mem.read(addr);
            if entry & PRESENT == 0 || is_leaf(level, entry) {
                continue;
            }
            let (below, va) = (target(entry), base + (index << shift));
            if level > 2 {
                self.prune_below(mem, (below, level - 1, va), (start, end), room, release);
            }
            if is_within((va, 1 << shift), room) && mem.is_zero(below) {
                mem.write(addr, 0);
                match level {
                    2 => self.paths.forget(VirtAddr(va)),
                    3 => self.upper_paths.forget(VirtAddr(va)),
                    _ => {}
                }
                mem.destroy(below);
                release(below);
            }
        }
    }
}

impl Design for Radix {
    type Parameters = RadixConfig;
    type Shared = ();

    const PAGE_SIZES: PageSizes = PageSizes::ALL;
    const WORDS: Result<&'static [PageSize], &'static str> = Ok(&PageSize::ALL);
    const MARKS: bool = true;
    const REMEMBERS_WAYS: bool = true;

    fn samples() -> Vec<RadixConfig> {
        [4, 5].map(|levels| RadixConfig { levels }).into()
    }

    fn upper_entries(parameters: &RadixConfig) -> UpperEntries {
        UpperEntries::Levels(parameters.levels)
    }

    fn validate(&RadixConfig { levels }: &RadixConfig, context: &Context) -> Result<(), EngineError> {
        if (4..=MAX_LEVELS).contains(&levels) {
            return Ok(());
        }
        context.refuse("page_table.levels", format!("{levels} levels are not possible; x86-64 has 4 or 5"))
    }

    fn direct_map_levels(parameters: &RadixConfig) -> u8 {
        parameters.levels
    }

    fn create(
        parameters: &RadixConfig,
        (): &mut (),
        mem: &mut PhysMem,
        frames: TableFrames,
        _: Option<u64>,
    ) -> Result<Self, NoTable> {
        Self::new(parameters.levels, mem, frames)
    }

    #[inline]
    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        let Some(path) = self.paths.get(va) else { return self.walk_down(mem, va, list) };
        let at = |level: u8| {
            let addr = entry_addr(Pfn(path.tables[usize::from(level) - 1].into()), level, va);
            WalkPath::reference(addr, level, MAX_LEVELS - level)
        };
        if self.levels == 4 {
            list.set([at(4), at(3), at(2), at(1)]);
        } else {
            list.set([at(5), at(4), at(3), at(2), at(1)]);
        }
        list.leaf = leaf_of(1, mem.read_in(path.leaf_slot, at(1).addr));
    }

    #[inline(always)]
    fn hint_way(&self, va: VirtAddr) {
        self.paths.hint(va);
    }

    #[inline]
    fn hint(&self, mem: &PhysMem, va: VirtAddr) {
        self.remembered(mem).hint_entry(va);
    }

    fn entry(&self, mem: &PhysMem, va: VirtAddr, _: PageSize) -> PhysAddr {
        self.leaf(mem, va).1
    }

    #[inline]
    fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        self.remembered(mem).peek(va).map(|(entry, page)| (entry, page.pfn()))
    }

    #[inline(always)]
    fn ways<'a>(&'a self, mem: &'a PhysMem) -> Option<Ways<'a>> {
        Some(self.remembered(mem))
    }

    fn missing_tables(&self, mem: &PhysMem, va: VirtAddr, size: PageSize) -> usize {
        let level = leaf_level(size);
        match self.descend(mem, va, level) {
            Ok(_) => 0,
            Err((_, addr)) if mem.read(addr) & PRESENT != 0 => 0,
            Err((at, _)) => usize::from(at - level),
        }
    }

    fn link_table(&mut self, mem: &mut PhysMem, va: VirtAddr, size: PageSize, block: TableBlock) -> Option<PhysAddr> {
        let (at, addr) = self.descend(mem, va, leaf_level(size)).err()?;
        if mem.read(addr) & PRESENT != 0 {
            return None;
        }
        assert_eq!(mem.read(addr), 0, "a word stands where the table of {va:?} is to be linked");
        mem.write(addr, block.first.addr().0 | TABLE);
        self.make_room(at);
        Some(addr)
    }

    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        let level = leaf_level(mapping.size);
        let table = self.descend(mem, va, level).expect("the tables above the page exist");
        let addr = entry_addr(table, level, va);
        assert_eq!(mem.read(addr) & PRESENT, 0, "the entry of {va:?} is in use");
        mem.write(addr, encode(level, &mapping));
        Ok(addr)
    }

    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        let (level, addr) = self.leaf(mem, va);
        let entry = mem.read(addr);
        assert!(entry & PRESENT != 0, "{va:?} is not mapped");
        mem.write(addr, encode(level, &Mapping { flags, ..decode(level, entry) }) | entry & MARK);
        addr
    }

    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        let (level, addr) = self.leaf(mem, va);
        let entry = mem.read(addr);
        assert!(entry & PRESENT != 0, "{va:?} is not mapped");
        assert_eq!(level, leaf_level(mapping.size), "{va:?} is mapped in another size");
        mem.write(addr, encode(level, &mapping) | entry & MARK);
        addr
    }

    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        let (_, leaf) = self.leaf(mem, va);
        assert!(mem.read(leaf) & PRESENT != 0, "{va:?} is not mapped");
        mem.write(leaf, 0);
        leaf
    }

    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        if start >= end {
            return;
        }
        self.visit(mem, (self.root, self.levels), 0, (start, end), &mut |level, va, entry| {
            let present = entry & PRESENT != 0;
            let continues = !present || out.len() < most;
            if present && continues {
                out.push(Removed { va: VirtAddr(va), mapping: decode(level, entry) });
            }
            continues
        });
    }

    fn set_word(&mut self, mem: &mut PhysMem, va: VirtAddr, size: PageSize, word: u64) -> PhysAddr {
        let level = leaf_level(size);
        let table = self.descend(mem, va, level).expect("the tables above the page exist");
        let addr = entry_addr(table, level, va);
        write_word(mem, addr, word);
        addr
    }

    fn words(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Word>) {
        if start >= end {
            return;
        }
        self.visit(mem, (self.root, self.levels), 0, (start, end), &mut |level, va, entry| {
            let absent = entry & PRESENT == 0;
            let continues = !absent || out.len() < most;
            if absent && continues {
                out.push(Word { va: VirtAddr(va), size: PageSize::from_level(level), word: word_of(entry) });
            }
            continues
        });
    }

    fn mark(&self, mem: &PhysMem, va: VirtAddr, level: u8) -> Option<(PhysAddr, bool)> {
        let table = self.descend(mem, va, level).ok()?;
        let addr = entry_addr(table, level, va);
        let entry = mem.read(addr);
        Some((addr, entry & (PRESENT | MARK) == PRESENT | MARK))
    }

    fn set_mark(&mut self, mem: &mut PhysMem, va: VirtAddr, level: u8, on: bool) -> PhysAddr {
        let table = self.descend(mem, va, level).expect("the entry is there");
        let addr = entry_addr(table, level, va);
        let entry = mem.read(addr);
        assert!(entry & PRESENT != 0, "the entry of {va:?} at level {level} is not present");
        mem.write(addr, if on { entry | MARK } else { entry & !MARK });
        addr
    }

    fn prune(&mut self, mem: &mut PhysMem, range: AddrRange, room: AddrRange, release: &mut dyn FnMut(Pfn)) {
        if range.0 < range.1 {
            self.prune_below(mem, (self.root, self.levels, 0), range, room, release);
        }
    }

    fn unlink_leaf_table(&mut self, mem: &mut PhysMem, va: VirtAddr) -> Option<Pfn> {
        let table = self.descend(mem, va, 1).ok()?;
        assert!(mem.is_zero(table), "a table that is unlinked maps nothing");
        let above = self.descend(mem, va, 2).expect("it is linked somewhere");
        mem.write(entry_addr(above, 2, va), 0);
        self.paths.forget(va);
        mem.destroy(table);
        Some(table)
    }

    fn split(&mut self, mem: &mut PhysMem, va: VirtAddr, frame: Pfn) {
        let (level, addr) = self.leaf(mem, va);
        let large = decode(level, mem.read(addr));
        assert!(level > 1, "{va:?} is not mapped by a large page");
        let size = PageSize::ALL[usize::from(level) - 2];
        for index in 0..WORDS_PER_FRAME as u64 {
            let small = Mapping { pfn: Pfn(large.pfn.0 + (index << size.order())), size, flags: large.flags };
            mem.write(frame.addr() + 8 * index, encode(level - 1, &small));
        }
        mem.write(addr, frame.addr().0 | TABLE);
        self.make_room(level);
    }

    fn destroy(self, (): &mut (), mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        assert!(mem.is_zero(self.root), "a page table that is destroyed maps nothing");
        mem.destroy(self.root);
        release(self.root);
    }

    fn va_bits(&self) -> u32 {
        FRAME_SHIFT + INDEX_BITS * u32::from(self.levels)
    }
}

impl PageTable {
    /// An x86-64 tree with this many levels, for a kernel's own translations.
    pub fn x86_64(levels: u8, mem: &mut PhysMem, frames: TableFrames) -> Result<Self, NoTable> {
        Radix::new(levels, mem, frames).map(Self::Radix)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Leaf;
    use super::*;

    const FLAGS: PteFlags = PteFlags { writable: true, user: true, executable: false, accessed: true, dirty: false };
    const ALL: AddrRange = (VirtAddr(0), VirtAddr(1 << 48));

    fn build(table: &mut Radix, mem: &mut PhysMem, next: &mut u64, va: u64, size: PageSize, pfn: u64) {
        while table.missing_tables(mem, VirtAddr(va), size) > 0 {
            mem.create(Pfn(*next));
            table.link_table(mem, VirtAddr(va), size, TableBlock::frame(Pfn(*next))).expect("a table is missing");
            *next += 1;
        }
        table.map(mem, VirtAddr(va), Mapping { pfn: Pfn(pfn), size, flags: FLAGS }).unwrap();
    }

    fn walk(table: &Radix, mem: &PhysMem, va: u64) -> WalkList {
        let mut list = WalkList::new();
        table.walk(mem, VirtAddr(va), &mut list);
        list
    }

    #[test]
    fn a_walk_reads_one_entry_a_level() {
        for (levels, size, refs) in [
            (4, PageSize::Size4K, 4),
            (4, PageSize::Size2M, 3),
            (4, PageSize::Size1G, 2),
            (5, PageSize::Size4K, 5),
            (5, PageSize::Size2M, 4),
        ] {
            let mut mem = PhysMem::default();
            let mut next = 100;
            let mut table = Radix::new(levels, &mut mem, &mut |_| Some(Pfn(99))).unwrap();
            let va = 0x7f12_c000_0000;
            assert_eq!(walk(&table, &mem, va).refs().len(), 1, "an empty root ends the walk");
            assert_eq!(table.missing_tables(&mem, VirtAddr(va), size), refs - 1);
            build(&mut table, &mut mem, &mut next, va, size, 1 << 18);
            let list = walk(&table, &mem, va + size.bytes() - 1);
            assert_eq!(list.refs().len(), refs);
            assert_eq!(list.leaf, Leaf::Present(Mapping { pfn: Pfn(1 << 18), size, flags: FLAGS }));
            assert_eq!(list.refs().iter().map(|r| r.level).min(), Some(leaf_level(size)));
        }
    }

    #[test]
    fn empty_tables_are_given_back_when_their_range_is_pruned() {
        let mut mem = PhysMem::default();
        let mut next = 100;
        let mut table = Radix::new(4, &mut mem, &mut |_| Some(Pfn(99))).unwrap();
        let pages = [0x1000, 0x2000, 0x40_0000_0000, 0x7fff_ffff_f000];
        for (n, &va) in pages.iter().enumerate() {
            build(&mut table, &mut mem, &mut next, va, PageSize::Size4K, 5000 + n as u64);
        }
        let mut found = Vec::new();
        table.mapped(&mem, VirtAddr(0x2000), VirtAddr(0x7fff_ffff_f001), 9, &mut found);
        assert_eq!(found.iter().map(|r| r.va.0).collect::<Vec<_>>(), &pages[1..]);
        found.clear();
        table.mapped(&mem, VirtAddr(0), VirtAddr(1 << 48), 2, &mut found);
        assert_eq!(found.iter().map(|r| r.va.0).collect::<Vec<_>>(), &pages[..2]);
        let mut released = Vec::new();
        pages.iter().for_each(|&va| _ = table.unmap(&mut mem, VirtAddr(va)));
        assert_eq!(mem.frames_in_use() as u64, 1 + next - 100, "tables stay until they are asked for");
        table.prune(&mut mem, (VirtAddr(0x1000), VirtAddr(0x3000)), ALL, &mut |pfn| released.push(pfn.0));
        assert_eq!(released, [102, 101], "the leaf table and the one above it, which has no other");
        table.prune(&mut mem, ALL, ALL, &mut |pfn| released.push(pfn.0));
        released.sort_unstable();
        assert_eq!(released, (100..next).collect::<Vec<_>>());
        table.destroy(&mut (), &mut mem, &mut |pfn| assert_eq!(pfn, Pfn(99)));
        assert_eq!(mem.frames_in_use(), 0);
    }

    #[test]
    fn a_split_page_translates_as_before() {
        let mut mem = PhysMem::default();
        let mut next = 100;
        let mut table = Radix::new(4, &mut mem, &mut |_| Some(Pfn(99))).unwrap();
        build(&mut table, &mut mem, &mut next, 0x20_0000, PageSize::Size2M, 512);
        mem.create(Pfn(90));
        table.split(&mut mem, VirtAddr(0x20_0000), Pfn(90));
        for page in [0, 1, 511] {
            let mapping = Mapping { pfn: Pfn(512 + page), size: PageSize::Size4K, flags: FLAGS };
            assert_eq!(walk(&table, &mem, 0x20_0000 + page * 4096).leaf, Leaf::Present(mapping));
        }
    }

    #[test]
    fn marks_stay_where_they_are_and_mean_nothing_to_walks() {
        let (mut mem, mut next) = (PhysMem::default(), 100);
        let mut table = Radix::new(4, &mut mem, &mut |_| Some(Pfn(99))).unwrap();
        let va = VirtAddr(0x7000_1000);
        assert_eq!(table.mark(&mem, va, 3), None, "no table has the entry");
        build(&mut table, &mut mem, &mut next, va.0, PageSize::Size4K, 5000);
        let before = walk(&table, &mem, va.0);
        for level in [1, 2, 3] {
            let addr = table.set_mark(&mut mem, va, level, true);
            assert_eq!(table.mark(&mem, va, level), Some((addr, true)));
            assert_eq!(before.refs().iter().find(|r| r.level == level).unwrap().addr, addr);
        }
        assert_eq!((walk(&table, &mem, va.0).refs(), walk(&table, &mem, va.0).leaf), (before.refs(), before.leaf));
        let dirty = PteFlags { dirty: true, ..FLAGS };
        table.set_flags(&mut mem, va, dirty);
        assert!(table.mark(&mem, va, 1).unwrap().1, "a store leaves it");
        let mapping = Mapping { pfn: Pfn(7), size: PageSize::Size4K, flags: dirty };
        table.replace(&mut mem, va, mapping);
        assert_eq!((walk(&table, &mem, va.0).leaf, table.mark(&mem, va, 1).unwrap().1), (Leaf::Present(mapping), true));
        table.set_mark(&mut mem, va, 1, false);
        assert!(!table.mark(&mem, va, 1).unwrap().1 && table.mark(&mem, va, 2).unwrap().1);
        table.unmap(&mut mem, va);
        table.set_word(&mut mem, va, PageSize::Size4K, (1 << 63) - 1);
        assert!(!table.mark(&mem, va, 1).unwrap().1, "a word is no mark");
    }

    #[test]
    fn words_stand_where_pages_could_and_keep_their_tables() {
        let mut mem = PhysMem::default();
        let mut next = 100;
        let mut table = Radix::new(4, &mut mem, &mut |_| Some(Pfn(99))).unwrap();
        build(&mut table, &mut mem, &mut next, 0x1000, PageSize::Size4K, 5000);
        let word = (1 << 63) - 2;
        let entry = table.set_word(&mut mem, VirtAddr(0x3000), PageSize::Size4K, word);
        let list = walk(&table, &mem, 0x3fff);
        assert_eq!((list.refs().last().unwrap().addr, list.leaf), (entry, Leaf::NotPresent { level: 1, word }));
        assert_eq!(walk(&table, &mem, 0x2000).leaf, Leaf::nothing(1));
        let mut listed = (Vec::new(), Vec::new());
        table.mapped(&mem, VirtAddr(0), VirtAddr(1 << 48), 9, &mut listed.0);
        table.words(&mem, VirtAddr(0), VirtAddr(1 << 48), 9, &mut listed.1);
        assert_eq!(listed.0.iter().map(|r| r.va.0).collect::<Vec<_>>(), [0x1000], "a word maps nothing");
        assert_eq!(listed.1, [Word::for_4k(VirtAddr(0x3000), word)]);
        table.unmap(&mut mem, VirtAddr(0x1000));
        table.prune(&mut mem, ALL, ALL, &mut |pfn| panic!("{pfn:?} has a word"));
        // A new mapping replaces the word.
        table.map(&mut mem, VirtAddr(0x3000), Mapping { pfn: Pfn(7), size: PageSize::Size4K, flags: FLAGS }).unwrap();
        table.unmap(&mut mem, VirtAddr(0x3000));
        assert_eq!(walk(&table, &mem, 0x3000).leaf, Leaf::nothing(1));
        table.set_word(&mut mem, VirtAddr(0x1000), PageSize::Size4K, 1);
        table.set_word(&mut mem, VirtAddr(0x1000), PageSize::Size4K, 0);
        table.prune(&mut mem, ALL, ALL, &mut |_| {});
        table.destroy(&mut (), &mut mem, &mut |_| {});
        assert_eq!(mem.frames_in_use(), 0);
    }

    #[test]
    fn words_of_large_pages_stand_at_their_level_and_are_found_from_every_part() {
        let (mut mem, mut next) = (PhysMem::default(), 100);
        let mut table = Radix::new(4, &mut mem, &mut |_| Some(Pfn(99))).unwrap();
        build(&mut table, &mut mem, &mut next, 0x1000, PageSize::Size4K, 5000);
        let (va, size, word) = (VirtAddr(0x20_0000), PageSize::Size2M, (1 << 63) - 1);
        assert_eq!(table.missing_tables(&mem, va, size), 0);
        let entry = table.set_word(&mut mem, va, size, word);
        let list = walk(&table, &mem, 0x3f_ffff);
        assert_eq!((list.refs().last().unwrap().addr, list.leaf), (entry, Leaf::NotPresent { level: 2, word }));
        assert_eq!(table.missing_tables(&mem, va, PageSize::Size4K), 1, "a word is no table");
        for (start, end, expected) in
            [(0x20_5000, 0x20_6000, true), (0x1000, 0x20_0000, false), (0x40_0000, 1 << 40, false)]
        {
            let mut words = Vec::new();
            table.words(&mem, VirtAddr(start), VirtAddr(end), 9, &mut words);
            assert_eq!(words, if expected { vec![Word { va, size, word }] } else { Vec::new() });
        }
        table.unmap(&mut mem, VirtAddr(0x1000));
        let mut released = Vec::new();
        table.prune(&mut mem, ALL, ALL, &mut |pfn| released.push(pfn.0));
        assert_eq!(released, [102], "the table of the page alone: that of the word stays");
        table.set_word(&mut mem, va, size, 0);
        assert_eq!(walk(&table, &mem, va.0).leaf, Leaf::nothing(2));
    }

    #[test]
    fn ways_are_those_of_walks_and_go_with_their_tables() {
        let (mut mem, mut next) = (PhysMem::default(), 100);
        let mut table = Radix::new(4, &mut mem, &mut |_| Some(Pfn(99))).unwrap();
        let (small, large) = (VirtAddr(0x1000), VirtAddr(0x8020_0000));
        build(&mut table, &mut mem, &mut next, small.0, PageSize::Size4K, 5000);
        build(&mut table, &mut mem, &mut next, large.0, PageSize::Size2M, 1 << 20);
        let refs = |table: &Radix, mem: &PhysMem, va: VirtAddr| {
            let way = table.ways(mem).unwrap().get(va);
            way.map(|way| way.list(va).refs().iter().map(|r| (r.level, r.addr)).collect::<Vec<_>>())
        };
        assert_eq!((refs(&table, &mem, small), refs(&table, &mem, large)), (None, None), "nobody has walked yet");
        for va in [small, large] {
            let walked: Vec<_> = walk(&table, &mem, va.0).refs().iter().map(|r| (r.level, r.addr)).collect();
            assert_eq!(refs(&table, &mem, va), Some(walked));
        }
        mem.create(Pfn(7000));
        table.split(&mut mem, large, Pfn(7000));
        assert_eq!(refs(&table, &mem, large), None, "a table hangs where the page was");
        walk(&table, &mem, large.0);
        assert_eq!(refs(&table, &mem, large).unwrap().len(), 4);
        for page in 0..512 {
            table.unmap(&mut mem, large + page * 4096);
        }
        table.prune(&mut mem, (large, large + (1 << 30)), ALL, &mut |_| {});
        // The freed tables' memory is reused by others.
        build(&mut table, &mut mem, &mut next, large.0 + (1 << 30), PageSize::Size2M, 1 << 20);
        assert_eq!(refs(&table, &mem, large), None, "its tables have gone");
        assert_eq!(refs(&table, &mem, small).unwrap().len(), 4, "those of others have not");
    }

    #[test]
    fn ways_serve_accesses_that_their_pages_allow_and_have_been_marked_for() {
        let (mut mem, mut next) = (PhysMem::default(), 100);
        let mut table = Radix::new(4, &mut mem, &mut |_| Some(Pfn(99))).unwrap();
        let va = VirtAddr(0x1000);
        build(&mut table, &mut mem, &mut next, va.0, PageSize::Size4K, 5000);
        walk(&table, &mem, va.0);
        for bits in 0..8 {
            let [writable, accessed, dirty] = [1, 2, 4].map(|bit| bits & bit != 0);
            table.set_flags(&mut mem, va, PteFlags { writable, accessed, dirty, ..FLAGS });
            let way = table.ways(&mem).unwrap().get(va).unwrap();
            assert_eq!(way.serves(false), accessed);
            assert_eq!(way.serves(true), accessed && writable && dirty);
            assert_eq!((way.translation().page(), way.translation().stores()), (Pfn(5000).addr(), writable && dirty));
        }
        table.unmap(&mut mem, va);
        assert!(!table.ways(&mem).unwrap().get(va).unwrap().serves(false));
    }
}
