//! Two-level page table: a walk makes two references, as long as there is memory for its large tables.
//!
//! Models: a tree of tables with 2^18 entries of 8 bytes, each in 2 MiB of contiguous memory. Each entry of the root
//! covers 1 GiB and points to a table for it if that GiB is in use. With 12 bits of offset that gives 48 bits of
//! virtual address. Over d layers a walk makes (2 + 1)^d - 1 references.
//! Source: none; this project's own design, as an example. It equals the flattened table if memory for tables is never
//! short.
//! Parameters: none.
//! Stats: `layer.NAME.fault.tables`, `layer.NAME.page_table_frames`.
//! Deviations: pages of 4 KiB only. A space needs 2 MiB for its root and 2 MiB for each GiB that it touches. The fault
//! that builds a table zeroes it. Without a free 2 MiB block the run ends with an error.

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

const INDEX_BITS: u32 = 18;
/// Order of the block of a table.
const ORDER: u32 = INDEX_BITS + 3 - FRAME_SHIFT;
/// log2 of the bytes that a lower-level table maps.
const REGION_SHIFT: u32 = FRAME_SHIFT + INDEX_BITS;
const VA_BITS: u32 = REGION_SHIFT + INDEX_BITS;
/// Level of the root's entries.
const UPPER: u8 = 2;

/// A two-level page table has no parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TwoLevelConfig {}

/// The two-level page table of one address space.
#[derive(Clone)]
pub struct TwoLevel {
    root: Pfn,
}

fn block(first: Pfn) -> TableBlock {
    TableBlock { first, order: ORDER }
}

/// Address of the entry for `va` in a table whose entries map 2^`shift` bytes each.
#[inline]
fn entry_of(table: Pfn, va: VirtAddr, shift: u32) -> PhysAddr {
    PhysAddr(table.addr().0 + 8 * (va.0 >> shift & ((1 << INDEX_BITS) - 1)))
}

/// Calls `each` for the nonzero entries of a table that map a part of `start..end`, with the first address that the
/// entry maps, the entry's address and its content. The table maps addresses from `base` on.
fn used(
    mem: &PhysMem,
    table: Pfn,
    (base, shift): (u64, u32),
    (start, end): (VirtAddr, VirtAddr),
    mut each: impl FnMut(u64, PhysAddr, u64) -> bool,
) -> bool {
    let first = start.0.saturating_sub(base) >> shift;
    let last = ((end.0 - 1 - base) >> shift).min((1 << INDEX_BITS) - 1);
    let mut index = first;
    while index <= last {
        let entry = table.addr() + 8 * index;
        if mem.is_zero(entry.pfn()) {
            index = (index | (WORDS_PER_FRAME as u64 - 1)) + 1;
            continue;
        }
        let word = mem.read(entry);
        if word != 0 && !each(base + (index << shift), entry, word) {
            return false;
        }
        index += 1;
    }
    true
}

impl TwoLevel {
    #[inline]
    fn upper(&self, va: VirtAddr) -> PhysAddr {
        entry_of(self.root, va, REGION_SHIFT)
    }

    /// Address of a page's entry, if its table exists.
    #[inline]
    fn lower(&self, mem: &PhysMem, va: VirtAddr) -> Option<PhysAddr> {
        let word = mem.read(self.upper(va));
        (word & PRESENT != 0).then(|| entry_of(target(word), va, FRAME_SHIFT))
    }

    /// Address and mapping of the entry of a mapped page.
    fn present(&self, mem: &PhysMem, va: VirtAddr) -> (PhysAddr, Mapping) {
        let entry = self.lower(mem, va).filter(|&entry| mem.read(entry) & PRESENT != 0);
        let entry = entry.unwrap_or_else(|| panic!("{va:?} is not mapped"));
        (entry, decode(1, mem.read(entry)))
    }

    /// Calls `each` with page and content of every nonzero entry in a range. `each` returns whether to continue.
    fn visit(&self, mem: &PhysMem, range: (VirtAddr, VirtAddr), mut each: impl FnMut(VirtAddr, u64) -> bool) {
        if range.0 < range.1 {
            used(mem, self.root, (0, REGION_SHIFT), range, |base, _, word| {
                used(mem, target(word), (base, FRAME_SHIFT), range, |va, _, word| each(VirtAddr(va), word))
            });
        }
    }
}

impl Design for TwoLevel {
    type Parameters = TwoLevelConfig;
    type Shared = ();

    const PAGE_SIZES: PageSizes = PageSizes::only_4k("its tables have no level whose entries stand for a larger one");
    const WORDS: Result<&'static [PageSize], &'static str> = Ok(&[PageSize::Size4K]);

    fn samples() -> Vec<TwoLevelConfig> {
        vec![TwoLevelConfig {}]
    }

    fn upper_entries(_: &TwoLevelConfig) -> UpperEntries {
        UpperEntries::LargerTables
    }

    fn largest_block(_: &TwoLevelConfig) -> u32 {
        ORDER
    }

    fn create(
        _: &TwoLevelConfig,
        (): &mut (),
        mem: &mut PhysMem,
        frames: TableFrames,
        _: Option<u64>,
    ) -> Result<Self, NoTable> {
        let root = frames(ORDER).ok_or(NoTable::Block { order: ORDER })?;
        block(root).create(mem);
        Ok(Self { root })
    }

    #[inline]
    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        let upper = WalkRef { addr: self.upper(va), level: UPPER, shift: REGION_SHIFT as u8, factor: 1, step: 0 };
        match self.lower(mem, va) {
            Some(addr) => {
                list.set([upper, WalkRef::to_leaf(addr, 1)]);
                list.leaf = leaf_of(1, mem.read(addr));
            }
            None => {
                list.set([upper]);
                // All pages are mapped at level 1.
                list.leaf = Leaf::nothing(1);
            }
        }
    }

    fn hint(&self, mem: &PhysMem, va: VirtAddr) {
        if let Some(entry) = self.lower(mem, va) {
            mem.hint(entry);
        }
    }

    fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        let entry = self.lower(mem, va)?;
        let word = mem.read(entry);
        (word & PRESENT != 0).then(|| (entry, target(word)))
    }

    fn missing_tables(&self, mem: &PhysMem, va: VirtAddr, _: PageSize) -> usize {
        usize::from(self.lower(mem, va).is_none())
    }

    fn next_table_orders(&self, _: &PhysMem, _: VirtAddr, _: PageSize) -> ArrayVec<u32, 2> {
        ArrayVec::from_iter([ORDER])
    }

    fn link_table(&mut self, mem: &mut PhysMem, va: VirtAddr, _: PageSize, table: TableBlock) -> Option<PhysAddr> {
        let upper = self.upper(va);
        if mem.read(upper) & PRESENT != 0 || table.order != ORDER {
            return None;
        }
        mem.write(upper, table.first.addr().0 | TABLE);
        Some(upper)
    }

    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        let entry = self.lower(mem, va).expect("the table above the page exists");
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
        self.visit(mem, (start, end), |va, word| {
            if word & PRESENT != 0 && out.len() < most {
                out.push(Removed { va, mapping: decode(1, word) });
            }
            out.len() < most
        });
    }

    fn set_word(&mut self, mem: &mut PhysMem, va: VirtAddr, _: PageSize, word: u64) -> PhysAddr {
        let entry = self.lower(mem, va).expect("the table above the page exists");
        write_word(mem, entry, word);
        entry
    }

    fn words(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Word>) {
        self.visit(mem, (start, end), |va, word| {
            if word & PRESENT == 0 && out.len() < most {
                out.push(Word::for_4k(va, word_of(word)));
            }
            out.len() < most
        });
    }

    fn prune(&mut self, mem: &mut PhysMem, (start, end): AddrRange, room: AddrRange, release: &mut dyn FnMut(Pfn)) {
        if start >= end {
            return;
        }
        let mut empty = Vec::new();
        used(mem, self.root, (0, REGION_SHIFT), (start, end), |va, entry, word| {
            if is_within((va, 1 << REGION_SHIFT), room) && block(target(word)).is_zero(mem) {
                empty.push((entry, target(word)));
            }
            true
        });
        for (entry, table) in empty {
            mem.write(entry, 0);
            block(table).destroy(mem);
            release(table);
        }
    }

    fn destroy(self, (): &mut (), mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        assert!(block(self.root).is_zero(mem), "a page table that is destroyed maps nothing");
        block(self.root).destroy(mem);
        release(self.root);
    }

    fn va_bits(&self) -> u32 {
        VA_BITS
    }
}
