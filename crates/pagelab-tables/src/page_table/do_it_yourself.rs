//! Do-it-yourself translation: a program's large mappings are translated by arrays that the program keeps, everything
//! else by a radix tree.
//!
//! Models: a few region registers per address space. A region is a range of virtual addresses and the array of its
//! entries, one of 8 bytes per page, in contiguous memory. A walk in a region reads the page's entry: one reference. A
//! walk elsewhere goes down the x86-64 tree. The program writes the array, from frames that the kernel gives it: here
//! the page-fault handler writes the entry on its behalf, with the same references as for any page table.
//! Source: Alam, Zhang, Erez, Etsion, "Do-It-Yourself Virtual Memory Translation", ISCA 2017, of which only the
//! abstract was at hand: applications choose how addresses are mapped, and the operating system keeps the access
//! permissions apart from that. That an array is the chosen scheme, its layout, the registers and all that follows is
//! this project's choice. `pagelab_translate::scheme::do_it_yourself` has the check of permissions and the form for
//! virtual machines.
//! Parameters: `levels` of the tree; `regions`, the registers; `least_bytes`, the smallest mapping that gets one;
//! `region_bytes`, the most that one region covers.
//! Stats: `layer.NAME.page_table.regions.*`, `layer.NAME.page_table_frames`.
//! Deviations: programs do not ask for regions. The private anonymous mappings that are readable and writable get them
//! in the order of their mmap, from their start on. A region consists of whole blocks of 2 MiB in which the tree has
//! no leaf table yet; smaller mappings that later share its first or last block belong to it. The first fault in a
//! region allocates and zeroes the array; without a block of its size the region is given up, and the tree translates
//! its pages. Pages of 4 KiB only. A region ends with the last mapping in it. A child has no regions: its copy of the
//! memory is in its tree. Reclaim, swap and write-protection work on entries of an array as on those of a tree.

use arrayvec::ArrayVec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entry::{PRESENT, decode, encode, leaf_of, target, word_of, write_word};
use super::radix::{Radix, RadixConfig};
use super::{
    AddrRange, Boot, Context, Design, Leaf, Mapping, NoRoom, NoTable, PageSizes, PteFlags, Removed, SetAside, Shared,
    TableBlock, TableFrames, TableWork, UpperEntries, WalkList, WalkRef, Word, is_within,
};
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::measure::Measure;
use pagelab_base::memory::{PhysMem, WORDS_PER_FRAME};
use pagelab_trace::quantity::Bytes;

/// Most registers of a space.
const MOST_REGIONS: usize = 16;
/// Kernels expect that the pages of 2 MiB are translated by one table: a region consists of such blocks.
const BLOCK_BYTES: u64 = FRAME_BYTES * WORDS_PER_FRAME as u64;
/// Most bytes that a region covers: its array is a block of 1 GiB, the largest that allocators have.
const MOST_BYTES: u64 = 512 << 30;

/// Parameters of do-it-yourself translation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DoItYourselfConfig {
    /// Levels of the tree for everything else: 4 (48-bit virtual addresses) or 5 (57-bit).
    pub levels: u8,
    /// Region registers per address space, 1 to 16.
    pub regions: u32,
    /// The smallest mapping that gets a region, a multiple of 4096.
    pub least_bytes: Bytes,
    /// The most that a region covers, a multiple of 2 MiB up to 512 GiB. Its array takes a 512th of the memory.
    pub region_bytes: Bytes,
}

/// A region of an address space.
#[derive(Clone, Copy, Debug)]
struct Region {
    start: VirtAddr,
    end: VirtAddr,
    /// The first frame of its array, once a fault has allocated it.
    array: Option<Pfn>,
}

impl Region {
    fn contains(&self, va: VirtAddr) -> bool {
        (self.start.0..self.end.0).contains(&va.0)
    }

    /// Order of the block that holds the array.
    fn order(&self) -> u32 {
        let words = (self.end.0 - self.start.0) >> FRAME_SHIFT;
        words.div_ceil(WORDS_PER_FRAME as u64).next_power_of_two().ilog2()
    }

    /// The array's block; `None` before the first fault.
    fn block(&self) -> Option<TableBlock> {
        self.array.map(|first| TableBlock { first, order: self.order() })
    }

    /// Address of a page's entry, if there is an array.
    fn entry(&self, va: VirtAddr) -> Option<PhysAddr> {
        self.array.map(|first| first.addr() + 8 * ((va.0 - self.start.0) >> FRAME_SHIFT))
    }

    /// Calls `each` with page and content of every nonzero entry of `start..end`. `each` returns whether to continue.
    fn visit(&self, mem: &PhysMem, (start, end): (u64, u64), each: &mut dyn FnMut(VirtAddr, u64) -> bool) -> bool {
        let mut page = start.max(self.start.0) & !(FRAME_BYTES - 1);
        let end = end.min(self.end.0);
        while page < end {
            let Some(entry) = self.entry(VirtAddr(page)) else { return true };
            if mem.is_zero(entry.pfn()) {
                let words_left = WORDS_PER_FRAME as u64 - (entry.0 / 8) % WORDS_PER_FRAME as u64;
                page += words_left << FRAME_SHIFT;
                continue;
            }
            let word = mem.read(entry);
            if word != 0 && !each(VirtAddr(page), word) {
                return false;
            }
            page += FRAME_BYTES;
        }
        true
    }
}

/// The table of one address space: its regions and its tree.
#[derive(Clone)]
pub struct DoItYourself {
    tree: Radix,
    /// By address.
    regions: Vec<Region>,
    most_regions: usize,
    least_bytes: u64,
    region_bytes: u64,
    /// Not yet reported.
    counters: RegionCounters,
}

impl DoItYourself {
    fn region(&self, va: VirtAddr) -> Option<&Region> {
        self.regions.iter().find(|region| region.contains(va))
    }

    /// Address of the entry of a page that an array translates.
    fn entry_in_array(&self, va: VirtAddr) -> Option<PhysAddr> {
        self.region(va)?.entry(va)
    }

    /// The region of a page, if it still needs its array.
    fn region_without_array(&self, va: VirtAddr) -> Option<Region> {
        self.region(va).filter(|region| region.array.is_none()).copied()
    }

    /// Address and mapping of a page that an array maps.
    fn in_array(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Mapping)> {
        let entry = self.entry_in_array(va)?;
        assert!(mem.read(entry) & PRESENT != 0, "{va:?} is not mapped");
        Some((entry, decode(1, mem.read(entry))))
    }

    /// Calls `tree` for the parts of a range that the tree translates and `array` for those of regions, in ascending
    /// order.
    fn parts(
        &self,
        (start, end): (VirtAddr, VirtAddr),
        tree: &mut dyn FnMut(VirtAddr, VirtAddr),
        array: &mut dyn FnMut(&Region, VirtAddr, VirtAddr),
    ) {
        let mut from = start;
        for region in self.regions.iter().filter(|region| region.array.is_some()) {
            if region.end <= from || region.start >= end {
                continue;
            }
            if from < region.start {
                tree(from, region.start);
            }
            array(region, from.max(region.start), end.min(region.end));
            from = region.end.min(end);
        }
        if from < end {
            tree(from, end);
        }
    }
}

impl Design for DoItYourself {
    type Parameters = DoItYourselfConfig;
    type Shared = RegionCounters;

    const PAGE_SIZES: PageSizes = PageSizes::only_4k("an array of a region has one entry per 4 KiB");
    const WORDS: Result<&'static [PageSize], &'static str> = Ok(&[PageSize::Size4K]);

    const REGIONS: bool = true;

    fn samples() -> Vec<DoItYourselfConfig> {
        let sample = |levels, regions, pages: u64, most: u64| DoItYourselfConfig {
            levels,
            regions,
            least_bytes: Bytes(pages * FRAME_BYTES),
            region_bytes: Bytes(most * FRAME_BYTES),
        };
        vec![sample(4, 4, 4, 1 << 18), sample(5, 1, 1, 1024)]
    }

    fn upper_entries(_: &DoItYourselfConfig) -> UpperEntries {
        UpperEntries::OfSomePages
    }

    fn validate(parameters: &DoItYourselfConfig, context: &Context) -> Result<(), EngineError> {
        let &DoItYourselfConfig { levels, regions, least_bytes, region_bytes } = parameters;
        Radix::validate(&RadixConfig { levels }, context)?;
        if !(1..=MOST_REGIONS as u32).contains(&regions) {
            let what = format!("{regions} registers are not possible; allowed are 1 to {MOST_REGIONS}");
            return context.refuse("page_table.regions", what);
        }
        for (key, bytes, unit) in
            [("least_bytes", least_bytes, FRAME_BYTES), ("region_bytes", region_bytes, BLOCK_BYTES)]
        {
            if !bytes.0.is_multiple_of(unit) || !(unit..=MOST_BYTES).contains(&bytes.0) {
                let what = format!("{bytes} is not possible; allowed are multiples of {unit} up to 512 GiB");
                return context.refuse(&format!("page_table.{key}"), what);
            }
        }
        Ok(())
    }

    fn optional_block(parameters: &DoItYourselfConfig) -> u32 {
        Region { start: VirtAddr(0), end: VirtAddr(parameters.region_bytes.0), array: None }.order()
    }

    fn direct_map_levels(parameters: &DoItYourselfConfig) -> u8 {
        parameters.levels
    }

    fn create(
        parameters: &DoItYourselfConfig,
        _: &mut RegionCounters,
        mem: &mut PhysMem,
        frames: TableFrames,
        _: Option<u64>,
    ) -> Result<Self, NoTable> {
        Ok(Self {
            tree: Radix::new(parameters.levels, mem, frames)?,
            regions: Vec::new(),
            most_regions: parameters.regions as usize,
            least_bytes: parameters.least_bytes.0,
            region_bytes: parameters.region_bytes.0,
            counters: RegionCounters::default(),
        })
    }

    #[inline]
    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        match self.entry_in_array(va) {
            Some(addr) => {
                list.set([WalkRef::to_leaf(addr, 0)]);
                list.leaf = leaf_of(1, mem.read(addr));
            }
            None => {
                self.tree.walk(mem, va, list);
                // All pages are mapped at level 1.
                if let Leaf::NotPresent { level, .. } = list.leaf
                    && level > 1
                {
                    list.leaf = Leaf::nothing(1);
                }
            }
        }
    }

    fn hint(&self, mem: &PhysMem, va: VirtAddr) {
        match self.entry_in_array(va) {
            Some(entry) => mem.hint(entry),
            None => self.tree.hint(mem, va),
        }
    }

    fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        let Some(entry) = self.entry_in_array(va) else { return self.tree.peek(mem, va) };
        let word = mem.read(entry);
        (word & PRESENT != 0).then(|| (entry, target(word)))
    }

    fn least_region_bytes(&self) -> Option<u64> {
        Some(self.least_bytes)
    }

    fn begin_region(&mut self, mem: &PhysMem, start: VirtAddr, end: VirtAddr) {
        let start = VirtAddr(start.0 & !(BLOCK_BYTES - 1));
        let end = VirtAddr(end.0.next_multiple_of(BLOCK_BYTES)).min(start + self.region_bytes);
        let overlaps = self.regions.iter().any(|region| region.start < end && start < region.end);
        let mut blocks = (start.0..end.0).step_by(BLOCK_BYTES as usize).map(VirtAddr);
        let in_tree = blocks.any(|block| self.tree.missing_tables(mem, block, PageSize::Size4K) == 0);
        if overlaps || in_tree || self.regions.len() == self.most_regions {
            self.counters.refused += 1;
            return;
        }
        self.regions.push(Region { start, end, array: None });
        self.regions.sort_by_key(|region| region.start);
        self.counters.begun += 1;
    }

    fn end_regions(&mut self, is_mapped: &dyn Fn(VirtAddr, VirtAddr) -> bool) {
        self.regions.retain(|region| region.array.is_some() || is_mapped(region.start, region.end));
    }

    #[inline]
    fn translates_by_region(&self, va: VirtAddr) -> bool {
        self.entry_in_array(va).is_some()
    }

    fn missing_tables(&self, mem: &PhysMem, va: VirtAddr, size: PageSize) -> usize {
        match self.region(va) {
            Some(region) => usize::from(region.array.is_none()),
            None => self.tree.missing_tables(mem, va, size),
        }
    }

    /// Without a free block for its array, the region is given up for a frame of the tree.
    fn next_table_orders(&self, _: &PhysMem, va: VirtAddr, _: PageSize) -> ArrayVec<u32, 2> {
        match self.region_without_array(va).map(|region| region.order()) {
            Some(order) if order > 0 => [order, 0].into(),
            Some(_) | None => ArrayVec::from_iter([0]),
        }
    }

    fn link_table(&mut self, mem: &mut PhysMem, va: VirtAddr, size: PageSize, block: TableBlock) -> Option<PhysAddr> {
        let Some(at) = self.regions.iter().position(|region| region.contains(va)) else {
            return if block.order == 0 { self.tree.link_table(mem, va, size, block) } else { None };
        };
        let region = &mut self.regions[at];
        if region.array.is_some() {
            return None;
        }
        if block.order == region.order() {
            region.array = Some(block.first);
            self.counters.arrays += 1;
            return region.entry(va);
        }
        if block.order != 0 {
            return None;
        }
        self.regions.remove(at);
        self.counters.given_up += 1;
        self.tree.link_table(mem, va, size, block)
    }

    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        let Some(entry) = self.entry_in_array(va) else { return self.tree.map(mem, va, mapping) };
        assert_eq!(mem.read(entry) & PRESENT, 0, "the entry of {va:?} is in use");
        mem.write(entry, encode(1, &mapping));
        Ok(entry)
    }

    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        let Some((entry, mapping)) = self.in_array(mem, va) else { return self.tree.set_flags(mem, va, flags) };
        mem.write(entry, encode(1, &Mapping { flags, ..mapping }));
        entry
    }

    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        let Some((entry, _)) = self.in_array(mem, va) else { return self.tree.replace(mem, va, mapping) };
        mem.write(entry, encode(1, &mapping));
        entry
    }

    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        let Some((entry, _)) = self.in_array(mem, va) else { return self.tree.unmap(mem, va) };
        mem.write(entry, 0);
        entry
    }

    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        let out = std::cell::RefCell::new(out);
        self.parts(
            (start, end),
            &mut |start, end| {
                if out.borrow().len() < most {
                    self.tree.mapped(mem, start, end, most, &mut out.borrow_mut());
                }
            },
            &mut |region, start, end| {
                let mut out = out.borrow_mut();
                region.visit(mem, (start.0, end.0), &mut |va, word| {
                    if word & PRESENT != 0 && out.len() < most {
                        out.push(Removed { va, mapping: decode(1, word) });
                    }
                    out.len() < most
                });
            },
        );
    }

    fn set_word(&mut self, mem: &mut PhysMem, va: VirtAddr, size: PageSize, word: u64) -> PhysAddr {
        let Some(entry) = self.entry_in_array(va) else { return self.tree.set_word(mem, va, size, word) };
        write_word(mem, entry, word);
        entry
    }

    fn words(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Word>) {
        let out = std::cell::RefCell::new(out);
        self.parts(
            (start, end),
            &mut |start, end| {
                if out.borrow().len() < most {
                    self.tree.words(mem, start, end, most, &mut out.borrow_mut());
                }
            },
            &mut |region, start, end| {
                let mut out = out.borrow_mut();
                region.visit(mem, (start.0, end.0), &mut |va, word| {
                    if word & PRESENT == 0 && out.len() < most {
                        out.push(Word::for_4k(va, word_of(word)));
                    }
                    out.len() < most
                });
            },
        );
    }

    /// Frees the empty arrays of regions in the range, too.
    fn prune(&mut self, mem: &mut PhysMem, (start, end): AddrRange, room: AddrRange, release: &mut dyn FnMut(Pfn)) {
        let is_pruned = |region: &Region| {
            region.start < end && start < region.end && is_within((region.start.0, region.end.0 - region.start.0), room)
        };
        for region in self.regions.iter_mut().filter(|region| is_pruned(region)) {
            if let Some(block) = region.block().filter(|block| block.is_zero(mem)) {
                block.destroy(mem);
                release(block.first);
                region.array = None;
            }
        }
        self.tree.prune(mem, (start, end), room, release);
    }

    fn report_work(&mut self, all: &mut RegionCounters, _: &mut TableWork) {
        all.add(std::mem::take(&mut self.counters));
    }

    fn destroy(self, all: &mut RegionCounters, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        assert!(self.regions.iter().all(|region| region.array.is_none()), "a table that is destroyed maps nothing");
        all.add(self.counters);
        self.tree.destroy(&mut (), mem, release);
    }

    fn va_bits(&self) -> u32 {
        self.tree.va_bits()
    }
}

/// What became of the regions of all spaces of a layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionCounters {
    begun: u64,
    refused: u64,
    arrays: u64,
    given_up: u64,
}

impl RegionCounters {
    fn add(&mut self, more: Self) {
        let Self { begun, refused, arrays, given_up } = more;
        self.begun += begun;
        self.refused += refused;
        self.arrays += arrays;
        self.given_up += given_up;
    }
}

impl Shared<DoItYourself> for RegionCounters {
    fn boot(_: &DoItYourselfConfig, boot: &Boot, _: &mut PhysMem) -> Result<(Self, SetAside), EngineError> {
        Ok((Self::default(), SetAside::nothing(boot)))
    }

    fn statistics(&self, _: &PhysMem) -> Vec<Measure> {
        let Self { begun, refused, arrays, given_up } = *self;
        vec![
            Measure::count("regions", begun, "Mappings that got a region of do-it-yourself translation"),
            Measure::count(
                "regions.refused",
                refused,
                "Mappings that got none: all registers were in use, or a part of their blocks was in use already",
            ),
            Measure::count("regions.arrays", arrays, "Arrays allocated for the entries of regions"),
            Measure::count("regions.given_up", given_up, "Regions given up, as no block was free for their array"),
        ]
    }
}
