//! Checks that what a walk says of its references is true: which steps overlap, what an entry maps, and which entries
//! an MMU cache can hold. A wrong answer translates every address correctly and only changes cycles, so nothing else
//! notices it.

use std::collections::BTreeSet;

use pagelab_engine::base::addr::{FRAME_SHIFT, PhysAddr, VirtAddr};
use pagelab_engine::base::memory::PhysMem;
use pagelab_engine::base::rng::Rng;
use pagelab_engine::page_table::{Leaf, PageTable, PageTableConfig, UpperEntries, WalkList, WalkRef, table_of};

use crate::model::FIRST_FRAME;

/// log2 of the entries in a table of one frame.
const INDEX_BITS: u32 = 9;

/// What the walks of one table had in common.
pub struct Walks {
    config: PageTableConfig,
    /// Number of references of the first step. The walker knows them before it has read anything.
    first_step: Option<usize>,
    /// Numbers of steps of walks.
    lengths: BTreeSet<usize>,
    /// Whether what a step read ever decided about the next one.
    steps_depend: bool,
    /// Whether some walk read two entries of one level.
    repeats_a_level: bool,
    /// Whether some table had more than 512 entries.
    has_larger_tables: bool,
}

impl Walks {
    pub fn new(config: &PageTableConfig) -> Self {
        Self {
            config: config.clone(),
            first_step: None,
            lengths: BTreeSet::new(),
            steps_depend: false,
            repeats_a_level: false,
            has_larger_tables: false,
        }
    }

    /// Checks the references of a walk for `va`.
    pub fn check(&mut self, table: &PageTable, mem: &mut PhysMem, va: VirtAddr, rng: &mut Rng) {
        let list = walk(table, mem, va);
        let (refs, config) = (list.refs(), &self.config);
        let last = refs[refs.len() - 1];
        if let Leaf::Present(mapping) = list.leaf {
            let mapped = mapping.size.bytes();
            assert_eq!(last.span_bytes(), mapped, "`shift` of the entry of a page of {:?}: {config:?}", mapping.size);
        }
        let steps: Vec<&[WalkRef]> = refs.chunk_by(|one, next| one.step == next.step).collect();
        self.lengths.insert(steps.len());
        let first = *self.first_step.get_or_insert(steps[0].len());
        assert_eq!(steps[0].len(), first, "the references of the first `step` are not known in advance: {config:?}");
        self.repeats_a_level |= refs.windows(2).any(|pair| pair[0].level == pair[1].level);
        let spans = std::iter::once(1 << table.va_bits()).chain(refs.iter().map(WalkRef::span_bytes));
        self.has_larger_tables |= spans.collect::<Vec<_>>().windows(2).any(|pair| pair[0] > pair[1] << INDEX_BITS);
        match config.upper_entries() {
            UpperEntries::Levels(levels) => {
                check_levels(refs, levels, mem, va, config);
                check_tree(refs, table, mem, va, rng, config);
            }
            UpperEntries::LargerTables | UpperEntries::Packed | UpperEntries::OfSomePages => {
                check_tree(refs, table, mem, va, rng, config)
            }
            UpperEntries::Nothing => assert_eq!(refs.len(), 1, "`upper_entries` are `Nothing`: {refs:?} {config:?}"),
            UpperEntries::Segments | UpperEntries::Unfit => self.check_steps(refs, table, mem, va),
        }
    }

    /// References of one step do not depend on each other: without the content of one, the walk reads the same others.
    fn check_steps(&mut self, refs: &[WalkRef], table: &PageTable, mem: &mut PhysMem, va: VirtAddr) {
        let last = refs[refs.len() - 1].step;
        for changed in refs {
            let upto = |refs: &[WalkRef]| -> BTreeSet<(u8, PhysAddr)> {
                let steps = refs.iter().take_while(|r| r.step <= changed.step);
                steps.map(|r| (r.step, r.addr)).collect()
            };
            let word = replace(mem, changed.addr, 0);
            let without = walk(table, mem, va);
            replace(mem, changed.addr, word);
            let (known, now) = (upto(refs), upto(without.refs()));
            assert_eq!(now, known, "another reference of the same `step` depends on {changed:?}: {:?}", self.config);
            self.steps_depend |= changed.step < last && without.refs() != refs;
        }
    }

    /// Checks what all walks together must show.
    pub fn end(&self) {
        let &Self { ref config, ref lengths, steps_depend, repeats_a_level, has_larger_tables, .. } = self;
        let longest = lengths.last().copied().unwrap_or(0);
        let kept = config.upper_entries();
        match kept {
            UpperEntries::Levels(levels) => assert_eq!(longest, usize::from(levels), "{kept:?}: {config:?}"),
            UpperEntries::LargerTables => {
                assert!(
                    longest > 1,
                    "no walk reads an upper-level entry, so `upper_entries` are `Nothing`: {config:?}"
                );
                assert!(has_larger_tables, "every table has 512 entries, so `upper_entries` are `Levels`: {config:?}");
            }
            UpperEntries::Packed | UpperEntries::OfSomePages => {
                assert!(longest > 1, "no walk reads an upper-level entry: {config:?}")
            }
            UpperEntries::Nothing => {}
            UpperEntries::Segments => {
                assert!(longest > 1, "no walk reads an entry of a segment: {config:?}");
                assert!(steps_depend, "no `step` depends on what the one before read, so they overlap: {config:?}");
            }
            UpperEntries::Unfit => {
                assert!(repeats_a_level, "a walk reads one entry per level, so an MMU cache can hold them: {config:?}");
                let dependent = longest == 1 || lengths.len() > 1 || steps_depend;
                assert!(dependent, "no `step` depends on what the one before read, so they overlap: {config:?}");
            }
        }
    }
}

fn walk(table: &PageTable, mem: &PhysMem, va: VirtAddr) -> WalkList {
    let mut list = WalkList::new();
    table.walk(mem, va, &mut list);
    list
}

/// Replaces a word of a table, in a frame or in the block that was set aside at boot. Returns the old one.
fn replace(mem: &mut PhysMem, addr: PhysAddr, word: u64) -> u64 {
    if mem.block_frames() > 0 && addr.pfn().0 < FIRST_FRAME {
        let old = mem.read_block(addr);
        mem.write_block(addr, word);
        return old;
    }
    let old = mem.read(addr);
    mem.write(addr, word);
    old
}

/// The walk goes down from the root without leaving out a level, and each entry is one of 512 in a frame.
fn check_levels(refs: &[WalkRef], levels: u8, mem: &PhysMem, va: VirtAddr, config: &PageTableConfig) {
    for (n, reference) in refs.iter().enumerate() {
        let level = levels - n as u8;
        assert_eq!(reference.level, level, "a tree of {levels} levels: {config:?}");
        let shift = FRAME_SHIFT + INDEX_BITS * u32::from(level - 1);
        assert_eq!(u32::from(reference.shift), shift, "`shift` of an entry of level {level}: {config:?}");
        let index = va.0 >> shift & ((1 << INDEX_BITS) - 1);
        assert_eq!(reference.addr.0 % (8 << INDEX_BITS), 8 * index, "{reference:?} has another index: {config:?}");
    }
    for pair in refs.windows(2) {
        assert_eq!(table_of(mem, pair[0].addr), Some(pair[1].addr.pfn()), "{pair:?}: {config:?}");
    }
}

/// Each entry of a walk through a tree is known only when the one above has been read. It is read for exactly the
/// addresses of the region that it maps.
fn check_tree(
    refs: &[WalkRef],
    table: &PageTable,
    mem: &PhysMem,
    va: VirtAddr,
    rng: &mut Rng,
    config: &PageTableConfig,
) {
    for pair in refs.windows(2) {
        assert!(pair[0].level > pair[1].level, "an upper-level entry is above the next one: {pair:?} {config:?}");
        assert!(pair[0].step < pair[1].step, "the next `step` begins once an entry was read: {pair:?} {config:?}");
        assert!(pair[0].span_bytes() > pair[1].span_bytes(), "an entry maps more than the next: {pair:?} {config:?}");
    }
    for (n, reference) in refs.iter().enumerate() {
        let mapped = reference.span_bytes();
        let start = va.0 / mapped * mapped;
        let same = walk(table, mem, VirtAddr(start + rng.below(mapped.min((1 << table.va_bits()) - start))));
        assert_eq!(same.refs().get(n), Some(reference), "`shift` is too large: {reference:?} {config:?}");
        let end = start + mapped;
        let next = if end < 1 << table.va_bits() { Some(end) } else { start.checked_sub(1) };
        let Some(next) = next else { continue };
        let other = walk(table, mem, VirtAddr(next));
        let shared = other.refs().iter().any(|r| r.addr == reference.addr);
        assert!(!shared, "`shift` is too small, as the next region has the same entry: {reference:?} {config:?}");
    }
}
