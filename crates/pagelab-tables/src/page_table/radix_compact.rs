//! Radix table with compact entries: up to 10 in a cache line, so that a table has 640 entries and not 512.
//!
//! Models: the radix tree of x86-64 with entries of 51 bits (10 in a line of 64 bytes, 640 in a table), of 56 bits (9
//! in a line, 576 in a table) or of 64 bits (8 in a line, 512 in a table). The number of entries of a table is not a
//! power of two, so an index is no field of the address. A page's number is divided by the number of entries; the
//! remainder is the index at level 1, and the quotient is divided again for the next level. The divisions depend on
//! each other, and the top level needs the last one, so they delay every walk. An entry of level n maps 640^(n-1)
//! pages: 2.5 MiB at level 2, 1600 MiB at level 3. MMU caches tag it by the address divided by that.
//! Source: Yaniv, Tsafrir, SIGMETRICS 2016, 4.3, who describe such a table as an alternative that needs a sequence of
//! three divisions, and do not simulate it.
//! Parameters: `line_entries` (8 to 10), `levels` (4 or 5), `division_cycles`.
//! Stats: `layer.NAME.fault.tables`, `layer.NAME.page_table_frames`.
//! Deviations: the paper counts the 12 upper bits of each entry as unused, which gives 9.8 entries of 52 bits per line
//! and not 10. Here an entry of 51 bits has a frame number of 40 bits, as x86-64, and 11 attribute bits. It has no room
//! for software words, so these are beside the table. Pages of 4 KiB only, as larger ones would have 2.5 MiB and more.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AddrRange, Context, Design, Leaf, Mapping, NoRoom, NoTable, PageSizes, PteFlags, Removed, TableBlock, TableFrames,
    UpperEntries, WalkList, WalkRef,
};
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;

const LINES_PER_TABLE: u64 = FRAME_BYTES / LINE_BYTES;
const LINE_BITS: u32 = 8 * LINE_BYTES as u32;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 3;
const DIRTY: u64 = 1 << 4;
const NO_EXECUTE: u64 = 1 << 5;
/// Position of the frame number, behind 11 attribute bits.
const TARGET_SHIFT: u32 = 11;
/// Flags of an entry that points to a table.
const TABLE: u64 = PRESENT | WRITABLE | USER | ACCESSED | DIRTY;

/// Parameters of a radix table with compact entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RadixCompactConfig {
    /// Entries per cache line: 8, 9 or 10; a table has 64 times as many. Default: 10.
    #[serde(default = "ten")]
    pub line_entries: u32,
    /// Levels of tables: 4 (48-bit virtual addresses) or 5 (57-bit). Default: 4.
    #[serde(default = "four")]
    pub levels: u8,
    /// Cycles of one division of a page number by the entries per table. A walk begins after as many as there are
    /// levels less one. Default: 4, estimated as a multiplication by the reciprocal and a shift.
    #[serde(default = "division_cycles")]
    pub division_cycles: u32,
}

fn ten() -> u32 {
    10
}

fn four() -> u8 {
    4
}

fn division_cycles() -> u32 {
    4
}

/// The table of one address space.
#[derive(Clone)]
pub struct RadixCompact {
    root: Pfn,
    levels: u8,
    line_entries: u64,
    /// Cycles of all divisions of a walk.
    divisions: Cycles,
}

fn target(entry: u64) -> Pfn {
    Pfn(entry >> TARGET_SHIFT)
}

fn encode(mapping: &Mapping) -> u64 {
    let flag = |set: bool, bit: u64| if set { bit } else { 0 };
    let flags = &mapping.flags;
    mapping.pfn.0 << TARGET_SHIFT
        | PRESENT
        | flag(flags.writable, WRITABLE)
        | flag(flags.user, USER)
        | flag(flags.accessed, ACCESSED)
        | flag(flags.dirty, DIRTY)
        | flag(!flags.executable, NO_EXECUTE)
}

fn decode(entry: u64) -> Mapping {
    Mapping {
        pfn: target(entry),
        size: PageSize::Size4K,
        flags: PteFlags {
            writable: entry & WRITABLE != 0,
            user: entry & USER != 0,
            executable: entry & NO_EXECUTE == 0,
            accessed: entry & ACCESSED != 0,
            dirty: entry & DIRTY != 0,
        },
    }
}

/// Place of an entry: its line, and the first of its bits there.
#[derive(Clone, Copy)]
struct Place {
    line: PhysAddr,
    bit: u32,
    width: u32,
}

impl Place {
    /// Address of the byte in which the entry begins, another one for each entry.
    fn addr(self) -> PhysAddr {
        self.line + u64::from(self.bit / 8)
    }

    fn read(self, mem: &PhysMem) -> u64 {
        let words = mem.line(self.line);
        let (word, shift) = ((self.bit / 64) as usize, self.bit % 64);
        let mut entry = words[word] >> shift;
        if shift + self.width > 64 {
            entry |= words[word + 1] << (64 - shift);
        }
        entry & (u64::MAX >> (64 - self.width))
    }

    fn write(self, mem: &mut PhysMem, entry: u64) {
        let (word, shift) = (self.line + u64::from(self.bit / 64) * 8, self.bit % 64);
        let mask = u64::MAX >> (64 - self.width);
        assert_eq!(entry & !mask, 0, "an entry of {} bits", self.width);
        mem.write(word, mem.read(word) & !(mask << shift) | entry << shift);
        if shift + self.width > 64 {
            let shift = 64 - shift;
            mem.write(word + 8, mem.read(word + 8) & !(mask >> shift) | entry >> shift);
        }
    }
}

impl RadixCompact {
    /// Entries per table.
    fn entries(&self) -> u64 {
        LINES_PER_TABLE * self.line_entries
    }

    /// Pages that an entry of a level maps.
    fn pages(&self, level: u8) -> u64 {
        self.entries().pow(u32::from(level) - 1)
    }

    fn place(&self, table: Pfn, index: u64) -> Place {
        let width = LINE_BITS / self.line_entries as u32;
        let line = table.addr() + index / self.line_entries * LINE_BYTES;
        Place { line, bit: width * (index % self.line_entries) as u32, width }
    }

    /// Place of the entry for `va` in a table of a level.
    fn place_for(&self, table: Pfn, level: u8, va: VirtAddr) -> Place {
        self.place(table, va.page_number() / self.pages(level) % self.entries())
    }

    fn reference(&self, place: Place, level: u8) -> WalkRef {
        let bytes = self.pages(level) << FRAME_SHIFT;
        let shift = bytes.trailing_zeros();
        WalkRef {
            addr: place.addr(),
            level,
            shift: shift as u8,
            factor: (bytes >> shift) as u16,
            step: self.levels - level,
        }
    }

    /// Calls `each` for the entries that a walk reads, from the root on, with level, place and content.
    fn descend(&self, mem: &PhysMem, va: VirtAddr, mut each: impl FnMut(u8, Place, u64)) {
        let mut table = self.root;
        for level in (1..=self.levels).rev() {
            let place = self.place_for(table, level, va);
            let entry = place.read(mem);
            each(level, place, entry);
            if entry & PRESENT == 0 {
                return;
            }
            table = target(entry);
        }
    }

    /// Level, place and content of the last entry that a walk reads.
    fn last(&self, mem: &PhysMem, va: VirtAddr) -> (u8, Place, u64) {
        let mut last = None;
        self.descend(mem, va, |level, place, entry| last = Some((level, place, entry)));
        last.expect("a walk reads the root")
    }

    /// Place and mapping of the entry of a mapped page.
    fn present(&self, mem: &PhysMem, va: VirtAddr) -> (Place, Mapping) {
        let (level, place, entry) = self.last(mem, va);
        assert!(level == 1 && entry & PRESENT != 0, "{va:?} is not mapped");
        (place, decode(entry))
    }

    /// Indices of the entries of a table of a level that map a part of `range`, in pages; the table maps pages from
    /// `base` on.
    fn indices(&self, level: u8, base: u64, range: (u64, u64)) -> std::ops::Range<u64> {
        let pages = self.pages(level);
        let first = range.0.saturating_sub(base) / pages;
        let end = range.1.saturating_sub(base).div_ceil(pages).min(self.entries());
        first..end
    }

    /// Lists the mapped pages of a range in a table and those below; false once `out` is full.
    fn list(
        &self,
        mem: &PhysMem,
        (table, level, base): (Pfn, u8, u64),
        range: (u64, u64),
        most: usize,
        out: &mut Vec<Removed>,
    ) -> bool {
        if mem.is_zero(table) {
            return true;
        }
        for index in self.indices(level, base, range) {
            let entry = self.place(table, index).read(mem);
            if entry & PRESENT == 0 {
                continue;
            }
            if out.len() >= most {
                return false;
            }
            let page = base + index * self.pages(level);
            if level == 1 {
                out.push(Removed { va: VirtAddr::from_page_number(page), mapping: decode(entry) });
            } else if !self.list(mem, (target(entry), level - 1, page), range, most, out) {
                return false;
            }
        }
        true
    }

    /// Frees the empty tables of a range below a table.
    fn prune_below(
        &self,
        mem: &mut PhysMem,
        (table, level, base): (Pfn, u8, u64),
        range: (u64, u64),
        room: (u64, u64),
        release: &mut dyn FnMut(Pfn),
    ) {
        for index in self.indices(level, base, range) {
            let place = self.place(table, index);
            let entry = place.read(mem);
            if entry & PRESENT == 0 {
                continue;
            }
            let (below, first) = (target(entry), base + index * self.pages(level));
            if level > 2 && !mem.is_zero(below) {
                self.prune_below(mem, (below, level - 1, first), range, room, release);
            }
            let inside = room.0 <= first && first + self.pages(level) <= room.1;
            if inside && mem.is_zero(below) {
                place.write(mem, 0);
                mem.destroy(below);
                release(below);
            }
        }
    }
}

impl Design for RadixCompact {
    type Parameters = RadixCompactConfig;
    type Shared = ();

    const PAGE_SIZES: PageSizes = PageSizes::only_4k("an entry of level 2 maps 2.5 MiB, which is no size of pages");
    const WORDS: Result<&'static [PageSize], &'static str> = Err("its entries are too short for software words");

    fn samples() -> Vec<RadixCompactConfig> {
        let samples = [(8, 4), (9, 4), (10, 4), (10, 5)];
        samples.map(|(line_entries, levels)| RadixCompactConfig { line_entries, levels, division_cycles: 4 }).into()
    }

    fn upper_entries(_: &RadixCompactConfig) -> UpperEntries {
        UpperEntries::Packed
    }

    fn validate(parameters: &RadixCompactConfig, context: &Context) -> Result<(), EngineError> {
        let &RadixCompactConfig { line_entries, levels, division_cycles: _ } = parameters;
        if !(8..=10).contains(&line_entries) {
            let what = format!("{line_entries} is not possible; allowed are 8, 9 and 10 entries in a line of 64 bytes");
            return context.refuse("page_table.line_entries", what);
        }
        if !(4..=5).contains(&levels) {
            return context
                .refuse("page_table.levels", format!("{levels} levels are not possible; allowed are 4 and 5"));
        }
        Ok(())
    }

    fn direct_map_levels(parameters: &RadixCompactConfig) -> u8 {
        parameters.levels
    }

    fn create(
        parameters: &RadixCompactConfig,
        (): &mut (),
        mem: &mut PhysMem,
        frames: TableFrames,
        _: Option<u64>,
    ) -> Result<Self, NoTable> {
        let root = frames(0).ok_or(NoTable::Block { order: 0 })?;
        mem.create(root);
        let divisions = Cycles::from(parameters.division_cycles) * u64::from(parameters.levels - 1);
        Ok(Self { root, levels: parameters.levels, line_entries: parameters.line_entries.into(), divisions })
    }

    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        list.clear();
        list.lead_cycles = self.divisions;
        // All pages are mapped at level 1.
        list.leaf = Leaf::nothing(1);
        self.descend(mem, va, |level, place, entry| {
            list.push(self.reference(place, level));
            if level == 1 && entry & PRESENT != 0 {
                list.leaf = Leaf::Present(decode(entry));
            }
        });
    }

    fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        let (level, place, entry) = self.last(mem, va);
        (level == 1 && entry & PRESENT != 0).then(|| (place.addr(), target(entry)))
    }

    fn leaf_table_range(&self, va: VirtAddr) -> AddrRange {
        let first = va.page_number() / self.entries() * self.entries();
        let end = VirtAddr((first + self.entries()) << FRAME_SHIFT);
        (VirtAddr(first << FRAME_SHIFT), end)
    }

    fn missing_tables(&self, mem: &PhysMem, va: VirtAddr, _: PageSize) -> usize {
        usize::from(self.last(mem, va).0) - 1
    }

    fn link_table(&mut self, mem: &mut PhysMem, va: VirtAddr, _: PageSize, table: TableBlock) -> Option<PhysAddr> {
        let (level, place, _) = self.last(mem, va);
        if level == 1 || table.order != 0 {
            return None;
        }
        place.write(mem, table.first.0 << TARGET_SHIFT | TABLE);
        Some(place.addr())
    }

    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        let (level, place, entry) = self.last(mem, va);
        assert_eq!(level, 1, "the tables above the page exist");
        assert_eq!(entry & PRESENT, 0, "the entry of {va:?} is in use");
        place.write(mem, encode(&mapping));
        Ok(place.addr())
    }

    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        let (place, mapping) = self.present(mem, va);
        place.write(mem, encode(&Mapping { flags, ..mapping }));
        place.addr()
    }

    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        let (place, _) = self.present(mem, va);
        place.write(mem, encode(&mapping));
        place.addr()
    }

    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        let (place, _) = self.present(mem, va);
        place.write(mem, 0);
        place.addr()
    }

    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        let range = (start.page_number(), end.0.div_ceil(FRAME_BYTES));
        if start < end {
            self.list(mem, (self.root, self.levels, 0), range, most, out);
        }
    }

    fn prune(&mut self, mem: &mut PhysMem, range: AddrRange, room: AddrRange, release: &mut dyn FnMut(Pfn)) {
        let pages = |(start, end): AddrRange| (start.page_number(), end.0.div_ceil(FRAME_BYTES));
        if range.0 < range.1 {
            self.prune_below(mem, (self.root, self.levels, 0), pages(range), pages(room), release);
        }
    }

    fn destroy(self, (): &mut (), mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        assert!(mem.is_zero(self.root), "a page table that is destroyed maps nothing");
        mem.destroy(self.root);
        release(self.root);
    }

    fn va_bits(&self) -> u32 {
        if self.levels == 5 { 57 } else { 48 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const BASE: u64 = 0x7f00_0000_0000;

    /// A table with `pages` pages from `base` on, and the frames of its tables, the root included.
    fn table(line_entries: u32, base: u64, pages: u64) -> (RadixCompact, PhysMem, u64) {
        let (mut mem, mut next) = (PhysMem::default(), 0);
        let config = RadixCompactConfig { line_entries, levels: 4, division_cycles: 5 };
        let mut take = |_| {
            next += 1;
            Some(Pfn(next))
        };
        let mut table = RadixCompact::create(&config, &mut (), &mut mem, &mut take, None).unwrap();
        for page in 0..pages {
            let va = VirtAddr(base) + (page << FRAME_SHIFT);
            while table.missing_tables(&mem, va, PageSize::Size4K) > 0 {
                let frame = take(0).unwrap();
                mem.create(frame);
                table.link_table(&mut mem, va, PageSize::Size4K, TableBlock::frame(frame)).expect("one is missing");
            }
            let flags =
                PteFlags { writable: true, user: true, executable: false, accessed: true, dirty: page % 2 == 0 };
            let mapping = Mapping { pfn: Pfn((1 << 40) - 1 - page), size: PageSize::Size4K, flags };
            table.map(&mut mem, va, mapping).unwrap();
        }
        (table, mem, next)
    }

    fn walk(table: &RadixCompact, mem: &PhysMem, va: u64) -> WalkList {
        let mut list = WalkList::new();
        table.walk(mem, VirtAddr(va), &mut list);
        list
    }

    #[test]
    fn ten_entries_in_a_line_need_fewer_lines_and_tables() {
        // Pages from the first of a table of level 1 on, also where the number of pages divides by neither.
        for (line_entries, lines, leaf_tables) in [(8, 801, 13), (9, 712, 12), (10, 641, 11)] {
            let span = 64 * u64::from(line_entries) * FRAME_BYTES;
            let (table, mem, frames) = table(line_entries, span * 1000, 6401);
            let walks = (0..6401).map(|page| walk(&table, &mem, span * 1000 + page * FRAME_BYTES));
            let touched: BTreeSet<_> = walks.map(|list| list.refs()[3].addr.0 / LINE_BYTES).collect();
            assert_eq!(touched.len(), lines, "6401 / {line_entries}, rounded up");
            assert_eq!(frames, 1 + 1 + 1 + leaf_tables, "{line_entries}");
        }
    }

    #[test]
    fn entries_of_a_line_keep_what_is_written_to_them() {
        for line_entries in 8..=10 {
            let (table, mem, _) = table(line_entries, BASE, 64);
            let mut addresses = BTreeSet::new();
            for page in 0..64 {
                let list = walk(&table, &mem, BASE + page * FRAME_BYTES);
                let Leaf::Present(mapping) = list.leaf else { panic!("{page} is not mapped") };
                assert_eq!((mapping.pfn.0, mapping.flags.dirty), ((1 << 40) - 1 - page, page % 2 == 0));
                addresses.insert(list.refs()[3].addr);
            }
            assert_eq!(addresses.len(), 64, "no two entries begin in one byte");
        }
    }

    #[test]
    fn levels_divide_the_address_by_640() {
        let (table, mem, _) = table(10, BASE, 1);
        let list = walk(&table, &mem, BASE);
        let spans: Vec<u64> = list.refs().iter().map(|r| r.span_bytes()).collect();
        let page = FRAME_BYTES;
        assert_eq!(spans, [640 * 640 * 640 * page, 640 * 640 * page, 640 * page, page]);
        let vpn = BASE / page;
        for (reference, pages) in list.refs().iter().zip([640 * 640 * 640, 640 * 640, 640, 1]) {
            let index = vpn / pages % 640;
            let byte = index / 10 * 64 + index % 10 * 51 / 8;
            assert_eq!(reference.addr.0 % page, byte, "{reference:?}");
        }
        assert_eq!(list.lead_cycles, Cycles(3 * 5), "a division for each level below the root");
    }

    #[test]
    fn with_eight_entries_it_is_the_tree_of_x86_64() {
        let (table, mem, _) = table(8, BASE + 0x1234_5000, 1);
        for (reference, shift) in walk(&table, &mem, BASE + 0x1234_5000).refs().iter().zip([39, 30, 21, 12]) {
            assert_eq!((u32::from(reference.shift), reference.factor), (shift, 1));
            assert_eq!(reference.addr.0 % FRAME_BYTES, ((BASE + 0x1234_5000) >> shift & 511) * 8);
        }
    }
}
