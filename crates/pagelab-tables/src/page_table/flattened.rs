//! Flattened radix page table: merges two levels of the tree into one table.
//!
//! Models: the 4-level x86-64 tree in which a 4 KiB table and the 512 tables below it become one *flattened* table of 2
//! MiB with an 18-bit index. With levels 4 and 3 and levels 2 and 1 merged, a walk makes two references, and
//! (2 + 1)^d − 1 over d layers. A bit in an entry says whether the table that it points to is flattened. Where no 2 MiB
//! block is free, ordinary 4 KiB tables take its place and a walk makes one more reference.
//! Source: Park, Vougioukas, Sandberg and Black-Schaffer, "Every Walk's a Hit: Making Page Walks Single-Access Cache
//! Hits", ASPLOS 2022.
//! Parameters: `merge`, the levels that are merged: `l4l3+l2l1` (default), `l4l3`, `l3l2` or `l2l1`.
//! Stats: `layer.NAME.fault.tables`, `layer.NAME.page_table_frames`.
//! Deviations: pages of 4 KiB only. (The paper copies the entry of a 2 MiB page to all of its 512 slots, or leaves
//! levels 2 and 1 unmerged where there are such pages.) The fault that builds a table zeroes all of its 2 MiB. Caches
//! do not prioritise page-table entries, which is the other half of the paper.

use arrayvec::ArrayVec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entry::{PRESENT, TABLE, decode, encode, leaf_of, target, word_of, write_word};
use super::{
    AddrRange, Design, Leaf, Mapping, NoRoom, NoTable, PageSizes, PteFlags, Removed, TableBlock, TableFrames,
    UpperEntries, WalkList, WalkRef, Word, is_within,
};
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::memory::{PhysMem, WORDS_PER_FRAME};

const INDEX_BITS: u32 = 9;
const LEVELS: u8 = 4;
const VA_BITS: u32 = FRAME_SHIFT + INDEX_BITS * LEVELS as u32;
/// log2 of the bytes that an entry of `level` maps. Levels are numbered as in a tree without merged levels.
fn entry_shift(level: u8) -> u32 {
    FRAME_SHIFT + INDEX_BITS * u32::from(level - 1)
}

/// Order of the block that holds a flattened table.
const FLAT_ORDER: u32 = INDEX_BITS;
/// Marks an entry that points to a flattened table; a bit that x86-64 leaves to software.
const FLAT: u64 = 1 << 9;

/// Parameters of a flattened page table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlattenedConfig {
    #[serde(default)]
    pub merge: MergedLevels,
}

/// Levels of a radix tree that are merged into tables of 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MergedLevels {
    /// Levels 4 and 3, and levels 2 and 1.
    #[default]
    #[serde(rename = "l4l3+l2l1")]
    UpperAndLower,
    #[serde(rename = "l4l3")]
    Upper,
    #[serde(rename = "l3l2")]
    Middle,
    #[serde(rename = "l2l1")]
    Lower,
}

impl MergedLevels {
    const ALL: [Self; 4] = [Self::UpperAndLower, Self::Upper, Self::Middle, Self::Lower];

    /// Whether the table of this level is merged with the tables of the level below.
    fn begin_at(self, level: u8) -> bool {
        match self {
            Self::UpperAndLower => level == 4 || level == 2,
            Self::Upper => level == 4,
            Self::Middle => level == 3,
            Self::Lower => level == 2,
        }
    }
}

/// A table, and the highest level that it covers.
#[derive(Clone, Copy, Debug)]
struct Node {
    block: TableBlock,
    level: u8,
}

impl Node {
    /// Level of its entries.
    fn entry_level(self) -> u8 {
        if self.block.order == FLAT_ORDER { self.level - 1 } else { self.level }
    }

    /// log2 of the bytes that an entry maps.
    fn shift(self) -> u32 {
        entry_shift(self.entry_level())
    }

    fn entries(self) -> u64 {
        (WORDS_PER_FRAME as u64) << self.block.order
    }

    /// Address of the entry with this index.
    fn entry(self, index: u64) -> PhysAddr {
        self.block.first.addr() + 8 * index
    }

    fn entry_of(self, va: VirtAddr) -> PhysAddr {
        self.entry(va.0 >> self.shift() & (self.entries() - 1))
    }

    /// The table that an entry of this one points to.
    fn below(self, entry: u64) -> Self {
        let order = if entry & FLAT != 0 { FLAT_ORDER } else { 0 };
        Self { block: TableBlock { first: target(entry), order }, level: self.entry_level() - 1 }
    }

    /// Index and content of the nonzero entries that map a part of `start..end`; the table maps addresses from `base`
    /// on.
    fn used(self, mem: &PhysMem, base: u64, (start, end): (VirtAddr, VirtAddr)) -> impl Iterator<Item = (u64, u64)> {
        let first = start.0.saturating_sub(base) >> self.shift();
        let last = ((end.0 - 1 - base) >> self.shift()).min(self.entries() - 1);
        let words = WORDS_PER_FRAME as u64;
        let frames = (first / words..=last / words).filter(move |&frame| !mem.is_zero(self.entry(frame * words).pfn()));
        let entries = frames.flat_map(move |frame| first.max(frame * words)..=last.min(frame * words + words - 1));
        entries.map(move |index| (index, mem.read(self.entry(index)))).filter(|&(_, entry)| entry != 0)
    }
}

/// Where the descent to a page ends.
enum End {
    /// At the page's entry.
    Leaf(PhysAddr),
    /// At an entry that does not yet point to a table of this level.
    Missing { entry: PhysAddr, level: u8 },
}

/// The flattened page table of one address space.
#[derive(Clone)]
pub struct Flattened {
    merged: MergedLevels,
    root: TableBlock,
}

impl Flattened {
    fn root(&self) -> Node {
        Node { block: self.root, level: LEVELS }
    }

    /// Descends to a page's entry; calls `visit` with address and level of each entry on the way.
    #[inline]
    fn descend(&self, mem: &PhysMem, va: VirtAddr, mut visit: impl FnMut(PhysAddr, u8)) -> End {
        let mut node = self.root();
        loop {
            let (entry, level) = (node.entry_of(va), node.entry_level());
            visit(entry, level);
            if level == 1 {
                return End::Leaf(entry);
            }
            let word = mem.read(entry);
            if word & PRESENT == 0 {
                return End::Missing { entry, level: level - 1 };
            }
            node = node.below(word);
        }
    }

    /// Address and mapping of the entry of a mapped page.
    fn present(&self, mem: &PhysMem, va: VirtAddr) -> (PhysAddr, Mapping) {
        match self.descend(mem, va, |_, _| {}) {
            End::Leaf(entry) if mem.read(entry) & PRESENT != 0 => (entry, decode(1, mem.read(entry))),
            _ => panic!("{va:?} is not mapped"),
        }
    }
}

impl Design for Flattened {
    type Parameters = FlattenedConfig;
    type Shared = ();

    const PAGE_SIZES: PageSizes = PageSizes::only_4k("the levels of the larger ones are merged with others");
    const WORDS: Result<&'static [PageSize], &'static str> = Ok(&[PageSize::Size4K]);

    fn samples() -> Vec<FlattenedConfig> {
        MergedLevels::ALL.map(|merge| FlattenedConfig { merge }).into()
    }

    fn upper_entries(_: &FlattenedConfig) -> UpperEntries {
        UpperEntries::LargerTables
    }

    fn create(
        parameters: &FlattenedConfig,
        (): &mut (),
        mem: &mut PhysMem,
        frames: TableFrames,
        _: Option<u64>,
    ) -> Result<Self, NoTable> {
        let merged = parameters.merge;
        let flat = if merged.begin_at(LEVELS) { frames(FLAT_ORDER) } else { None };
        let root = match flat {
            Some(first) => TableBlock { first, order: FLAT_ORDER },
            None => TableBlock::frame(frames(0).ok_or(NoTable::Block { order: 0 })?),
        };
        root.create(mem);
        Ok(Self { merged, root })
    }

    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        list.clear();
        let mut step = 0;
        let end = self.descend(mem, va, |addr, level| {
            list.push(WalkRef { addr, level, shift: entry_shift(level) as u8, factor: 1, step });
            step += 1;
        });
        list.leaf = match end {
            End::Leaf(entry) => leaf_of(1, mem.read(entry)),
            // All pages are mapped at level 1.
            End::Missing { .. } => Leaf::nothing(1),
        };
    }

    fn hint(&self, mem: &PhysMem, va: VirtAddr) {
        if let End::Leaf(entry) = self.descend(mem, va, |_, _| {}) {
            mem.hint(entry);
        }
    }

    fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        let End::Leaf(addr) = self.descend(mem, va, |_, _| {}) else { return None };
        let entry = mem.read(addr);
        (entry & PRESENT != 0).then(|| (addr, target(entry)))
    }

    /// Number of missing tables above the page, if flattened tables can be allocated.
    fn missing_tables(&self, mem: &PhysMem, va: VirtAddr, _: PageSize) -> usize {
        let End::Missing { mut level, .. } = self.descend(mem, va, |_, _| {}) else { return 0 };
        let mut tables = 0;
        while level > 0 {
            tables += 1;
            level -= if self.merged.begin_at(level) { 2 } else { 1 };
        }
        tables
    }

    /// Without a free block for a flattened table, a single frame is used.
    fn next_table_orders(&self, mem: &PhysMem, va: VirtAddr, _: PageSize) -> ArrayVec<u32, 2> {
        match self.descend(mem, va, |_, _| {}) {
            End::Missing { level, .. } if self.merged.begin_at(level) => [FLAT_ORDER, 0].into(),
            End::Missing { .. } | End::Leaf(_) => ArrayVec::from_iter([0]),
        }
    }

    fn link_table(&mut self, mem: &mut PhysMem, va: VirtAddr, _: PageSize, block: TableBlock) -> Option<PhysAddr> {
        let End::Missing { entry, level } = self.descend(mem, va, |_, _| {}) else { return None };
        let flat = block.order == FLAT_ORDER;
        if flat && !self.merged.begin_at(level) {
            return None;
        }
        mem.write(entry, block.first.addr().0 | TABLE | if flat { FLAT } else { 0 });
        Some(entry)
    }

    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        assert_eq!(mapping.size, PageSize::Size4K, "{va:?} is to be mapped by a large page");
        let End::Leaf(entry) = self.descend(mem, va, |_, _| {}) else { panic!("the tables above {va:?} exist") };
        assert_eq!(mem.read(entry) & PRESENT, 0, "the entry of {va:?} is in use");
        mem.write(entry, encode(1, &mapping));
        Ok(entry)
    }

    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        let (entry, mapping) = self.present(mem, va);
        mem.write(entry, encode(1, &Mapping { flags, ..mapping }));
        entry
    }

    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        assert_eq!(mapping.size, PageSize::Size4K, "{va:?} is to be mapped by a large page");
        let (entry, _) = self.present(mem, va);
        mem.write(entry, encode(1, &mapping));
        entry
    }

    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        let (entry, _) = self.present(mem, va);
        mem.write(entry, 0);
        entry
    }

    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        if start >= end {
            return;
        }
        visit(mem, self.root(), 0, (start, end), &mut |va, entry| {
            let present = entry & PRESENT != 0;
            let continues = !present || out.len() < most;
            if present && continues {
                out.push(Removed { va, mapping: decode(1, entry) });
            }
            continues
        });
    }

    fn set_word(&mut self, mem: &mut PhysMem, va: VirtAddr, _: PageSize, word: u64) -> PhysAddr {
        let End::Leaf(entry) = self.descend(mem, va, |_, _| {}) else { panic!("the tables above {va:?} exist") };
        write_word(mem, entry, word);
        entry
    }

    fn words(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Word>) {
        if start >= end {
            return;
        }
        visit(mem, self.root(), 0, (start, end), &mut |va, entry| {
            let absent = entry & PRESENT == 0;
            let continues = !absent || out.len() < most;
            if absent && continues {
                out.push(Word::for_4k(va, word_of(entry)));
            }
            continues
        });
    }

    fn prune(&mut self, mem: &mut PhysMem, range: AddrRange, room: AddrRange, release: &mut dyn FnMut(Pfn)) {
        if range.0 < range.1 {
            prune_below(mem, self.root(), 0, (range, room), release);
        }
    }

    fn destroy(self, (): &mut (), mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        assert!(self.root.is_zero(mem), "a page table that is destroyed maps nothing");
        self.root.destroy(mem);
        release(self.root.first);
    }

    fn va_bits(&self) -> u32 {
        VA_BITS
    }
}

/// Calls `each` with page and content of every nonzero level-1 entry in a range. `each` returns whether to continue.
fn visit<F: FnMut(VirtAddr, u64) -> bool>(
    mem: &PhysMem,
    node: Node,
    base: u64,
    range: (VirtAddr, VirtAddr),
    each: &mut F,
) -> bool {
    for (index, entry) in node.used(mem, base, range) {
        let va = base + (index << node.shift());
        let continues = if node.entry_level() == 1 {
            each(VirtAddr(va), entry)
        } else {
            visit(mem, node.below(entry), va, range, each)
        };
        if !continues {
            return false;
        }
    }
    true
}

fn prune_below(
    mem: &mut PhysMem,
    node: Node,
    base: u64,
    (range, room): (AddrRange, AddrRange),
    release: &mut dyn FnMut(Pfn),
) {
    if node.entry_level() == 1 {
        return;
    }
    let used: Vec<(u64, u64)> = node.used(mem, base, range).collect();
    for (index, entry) in used {
        let (below, va) = (node.below(entry), base + (index << node.shift()));
        prune_below(mem, below, va, (range, room), release);
        if is_within((va, 1 << node.shift()), room) && below.block.is_zero(mem) {
            mem.write(node.entry(index), 0);
            below.block.destroy(mem);
            release(below.block.first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pagelab_trace::{case_seed, cases};

    use super::*;
    use pagelab_base::rng::Rng;

    const FLAGS: PteFlags = PteFlags { writable: true, user: true, executable: false, accessed: true, dirty: false };
    const ALL: [MergedLevels; 4] = MergedLevels::ALL;
    const ALL_ADDRESSES: AddrRange = (VirtAddr(0), VirtAddr(1 << VA_BITS));

    /// A table and its memory, and whether blocks of 2 MiB are available.
    struct Lab {
        table: Flattened,
        mem: PhysMem,
        next: u64,
        blocks: bool,
    }

    impl Lab {
        fn new(merged: MergedLevels, blocks: bool) -> Self {
            let mut mem = PhysMem::default();
            let mut frames = |order: u32| (blocks || order == 0).then_some(Pfn(512));
            let parameters = FlattenedConfig { merge: merged };
            let table = Flattened::create(&parameters, &mut (), &mut mem, &mut frames, None).unwrap();
            Self { table, mem, next: 1024, blocks }
        }

        fn walk(&self, vpn: u64) -> WalkList {
            let mut list = WalkList::new();
            self.table.walk(&self.mem, VirtAddr(vpn << FRAME_SHIFT | 0x123), &mut list);
            list
        }

        fn build(&mut self, vpn: u64) {
            while self.table.missing_tables(&self.mem, va(vpn), PageSize::Size4K) > 0 {
                let order =
                    if self.blocks { self.table.next_table_orders(&self.mem, va(vpn), PageSize::Size4K)[0] } else { 0 };
                let block = TableBlock { first: Pfn(self.next), order };
                self.next += 1 << FLAT_ORDER;
                block.create(&mut self.mem);
                self.table.link_table(&mut self.mem, va(vpn), PageSize::Size4K, block).expect("a table is missing");
            }
        }
    }

    fn va(vpn: u64) -> VirtAddr {
        VirtAddr::from_page_number(vpn)
    }

    fn mapping(pfn: u64) -> Mapping {
        Mapping { pfn: Pfn(pfn), size: PageSize::Size4K, flags: FLAGS }
    }

    #[test]
    fn a_merged_pair_of_levels_spares_a_reference_if_there_is_a_block_for_it() {
        for (merged, levels) in ALL.into_iter().zip([&[3, 1][..], &[3, 2, 1], &[4, 2, 1], &[4, 3, 1]]) {
            for (blocks, levels) in [(true, levels), (false, &[4, 3, 2, 1])] {
                let mut lab = Lab::new(merged, blocks);
                let vpn = 0x7_f123_4567;
                assert_eq!((lab.walk(vpn).refs().len(), lab.walk(vpn).leaf), (1, Leaf::nothing(1)));
                if blocks {
                    assert_eq!(
                        lab.table.missing_tables(&lab.mem, va(vpn), PageSize::Size4K),
                        levels.len() - 1,
                        "{merged:?}"
                    );
                }
                lab.build(vpn);
                let entry = lab.table.map(&mut lab.mem, va(vpn), mapping(9)).unwrap();
                let list = lab.walk(vpn);
                assert_eq!(list.refs().iter().map(|r| r.level).collect::<Vec<_>>(), levels, "{merged:?} {blocks}");
                assert_eq!((list.refs().last().unwrap().addr, list.leaf), (entry, Leaf::Present(mapping(9))));
                assert!(list.refs().windows(2).all(|pair| pair[0].step < pair[1].step), "one after the other");
            }
        }
    }

    #[test]
    fn tables_agree_with_a_map_after_many_operations_and_give_all_back() {
        for merged in ALL {
            let mut lab = Lab::new(merged, true);
            let mut rng = Rng::new(case_seed(3), "flattened");
            let mut oracle: BTreeMap<u64, Mapping> = BTreeMap::new();
            for operation in 0..cases(300_000_u32) {
                lab.blocks = rng.below(4) > 0;
                let vpn = rng.below(600) + [0, 0x3_ff80, 0x7_f123_4500, (1 << 36) - 600][rng.below(4) as usize];
                let new = mapping(rng.next_u64() >> 24);
                let known = oracle.get(&vpn).copied();
                assert_eq!(lab.walk(vpn).leaf, known.map_or(Leaf::nothing(1), Leaf::Present));
                assert_eq!(lab.table.peek(&lab.mem, va(vpn)).map(|(_, pfn)| pfn), known.map(|m| m.pfn));
                match (known, rng.below(3)) {
                    (Some(_), 0) => {
                        lab.table.replace(&mut lab.mem, va(vpn), new);
                        oracle.insert(vpn, new);
                    }
                    (Some(_), _) => {
                        lab.table.unmap(&mut lab.mem, va(vpn));
                        oracle.remove(&vpn);
                    }
                    (None, _) => {
                        lab.build(vpn);
                        lab.table.map(&mut lab.mem, va(vpn), new).unwrap();
                        oracle.insert(vpn, new);
                    }
                }
                if rng.below(3000) == 0 {
                    let (start, end) = (vpn.saturating_sub(300), vpn + 200);
                    let mut listed = Vec::new();
                    lab.table.mapped(&lab.mem, va(start), va(end), 150, &mut listed);
                    let known = oracle.range(start..end).take(150).map(|(vpn, mapping)| (*vpn, *mapping));
                    assert!(listed.iter().map(|page| (page.va.page_number(), page.mapping)).eq(known), "{operation}");
                    oracle.range(start..end).for_each(|(&vpn, _)| _ = lab.table.unmap(&mut lab.mem, va(vpn)));
                    oracle.retain(|vpn, _| !(start..end).contains(vpn));
                    lab.table.prune(&mut lab.mem, (va(start), va(end)), ALL_ADDRESSES, &mut |_| {});
                }
            }
            oracle.keys().for_each(|&vpn| _ = lab.table.unmap(&mut lab.mem, va(vpn)));
            lab.table.prune(&mut lab.mem, ALL_ADDRESSES, ALL_ADDRESSES, &mut |_| {});
            assert_eq!(lab.mem.frames_in_use(), 1 << lab.table.root.order, "the root is left");
            lab.table.destroy(&mut (), &mut lab.mem, &mut |first| assert_eq!(first, Pfn(512)));
            assert_eq!(lab.mem.frames_in_use(), 0);
        }
    }
}
