//! Elastic cuckoo page table: a hashed table per address space with three candidate lines per page that is resized
//! gradually.
//!
//! Models: three *ways*, each contiguous, with a hash function of its own. A 64-byte line holds the entries of 8
//! neighbouring pages; their tag is spread over bits that entries leave unused. A walk reads the page's line in all
//! ways at once: three references of one dependency step. An insertion picks a random way and displaces the line there
//! to another of its ways, until a line was empty. Above `max_load`, a second table of twice the size is allocated, and
//! each insertion moves a few lines to it: in a random way, the line at the *rehash pointer*, which then advances. A
//! page whose position in the old way is below the pointer has its line in the new one, so a walk always reads three
//! lines. If the load reaches its limit again before all lines have moved, the rest moves at once. Below `min_load` the
//! table is halved in the same manner. A line without entries is freed at once. The table belongs to the process, whose
//! exit frees it.
//! Source: Skarlatos, Kokolis, Xu and Torrellas, "Elastic Cuckoo Page Tables: Rethinking Virtual Memory Translation for
//! Parallelism", ASPLOS 2020.
//! Parameters: `way_entries`, initial lines per way (128, as the contiguous 8 KiB of Stojkovic et al., HPCA 2023, for
//! this design); `max_load` (0.6) and `min_load` (0.2), as in the paper; `rehashes_per_insert`, lines (2, estimated:
//! with 1, the load reaches its limit again before all lines have moved, since some of the lines inserted meanwhile
//! must move too); `max_displacements` (32, estimated); `seed` (0).
//! Stats: `layer.NAME.page_table.*`.
//! Deviations: pages of 4 KiB only, so there are no cuckoo walk tables and caches, which tell which sizes and ways to
//! probe: every walk probes all three ways. A way is one block of the allocator, up to 1 GiB; if memory is too
//! fragmented for it, the run ends with an error. Halving begins at an insertion, too. The lines that an insertion
//! moves are charged to its fault after the entry is written. They are not charged for fork and mremap, whose entries
//! are not charged either. The set of mapped pages is kept separately ([`super::page_index`]).

mod layer;
mod parameters;
mod way;

use arrayvec::ArrayVec;

use super::entry::{PRESENT, decode, encode, leaf_of};
use super::page_index::PageIndex;
use super::{
    Context, Design, Exhausted, Leaf, Mapping, NoRoom, NoTable, PageSizes, PteFlags, Removed, TableBlock, TableFrames,
    TableWork, UpperEntries, WalkList, WalkRef,
};
use layer::CuckooCounters;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;
use pagelab_trace::quantity::format_bytes;
pub use parameters::ElasticCuckooConfig;
use way::{EMPTY, FRAME_LINES_SHIFT, Line, Way, has_tag, index, swap, tag, tag_of, tag_part, vpn, with_tag};

const WAYS: usize = 3;
const VA_BITS: u32 = 48;
/// Attempts of an insertion, each with other random choices.
const TRIES: u32 = 8;

/// A resize in progress.
#[derive(Clone)]
struct Resize {
    ways: [Way; WAYS],
    /// Rehash pointer of each old way: the first line that has not been moved.
    pointers: [u64; WAYS],
}

/// The elastic cuckoo page table of one address space.
#[derive(Clone)]
pub struct ElasticCuckoo {
    config: ElasticCuckooConfig,
    ways: [Way; WAYS],
    resize: Option<Box<Resize>>,
    /// Blocks allocated so far for the ways of the next table.
    pending: Vec<TableBlock>,
    /// Lines in use.
    used: u64,
    pages: PageIndex,
    rng: Rng,
    /// Counters and work of insertions since the last [`Design::report_work`].
    counters: CuckooCounters,
    work: TableWork,
}

/// Order of the block of a way with this many lines.
fn order_of(way_entries: u32) -> u32 {
    way_entries.ilog2() - FRAME_LINES_SHIFT
}

impl ElasticCuckoo {
    /// Number of lines of all ways; during a resize, of the new table.
    pub fn lines(&self) -> u64 {
        let ways = self.resize.as_ref().map_or(&self.ways, |resize| &resize.ways);
        WAYS as u64 * ways[0].lines()
    }

    pub fn used(&self) -> u64 {
        self.used
    }

    /// Address of a tag's line in a way.
    #[inline(always)]
    fn line(&self, way: usize, tag: u64) -> PhysAddr {
        let place = self.ways[way].place(tag);
        match &self.resize {
            Some(resize) if place < resize.pointers[way] => {
                let new = &resize.ways[way];
                new.line(new.place(tag))
            }
            _ => self.ways[way].line(place),
        }
    }

    #[inline(always)]
    fn find(&self, mem: &PhysMem, tag: u64) -> Option<PhysAddr> {
        (0..WAYS).map(|way| self.line(way, tag)).find(|&line| has_tag(mem.line(line), tag))
    }

    /// The way that the next new line goes to.
    fn next_way(&self) -> usize {
        self.rng.clone().below(WAYS as u64) as usize
    }

    /// Order of the blocks for the next table, if the load requires a resize.
    pub fn wanted_order(&self) -> Option<u32> {
        let (order, lines) = (self.ways[0].block.order, self.lines() as f64);
        match () {
            () if self.resize.is_some() => None,
            () if (self.used + 1) as f64 > self.config.max_load * lines => Some(order + 1),
            () if order > order_of(self.config.way_entries)
                && ((self.used + 1) as f64) < self.config.min_load * lines =>
            {
                Some(order - 1)
            }
            () => None,
        }
    }

    /// Puts a line in a way and displaced lines in others. If one finds no place, everything is restored.
    fn insert(&mut self, mem: &mut PhysMem, line: Line, first: usize) -> Result<(), NoRoom> {
        let (mut line, mut way, from) = (line, first, self.work.lines.len());
        for _ in 0..=self.config.max_displacements {
            let at = self.line(way, tag_of(&line));
            self.work.lines.push(at);
            line = swap(mem, at, &line);
            if line == EMPTY {
                self.counters.displaced += (self.work.lines.len() - from - 1) as u64;
                return Ok(());
            }
            way = (way + 1 + self.rng.below(WAYS as u64 - 1) as usize) % WAYS;
        }
        for at in self.work.lines.drain(from..).rev() {
            line = swap(mem, at, &line);
        }
        Err(NoRoom)
    }

    /// Moves the next lines to the new table.
    fn rehash(&mut self, mem: &mut PhysMem) {
        // A table that fills up during a resize moves the rest at once.
        let full = self.used as f64 > self.config.max_load * self.lines() as f64;
        let most = if full { u32::MAX } else { self.config.rehashes_per_insert };
        for _ in 0..most {
            let Some(resize) = &mut self.resize else { return };
            let lines = self.ways[0].lines();
            let left: Vec<usize> = (0..WAYS).filter(|&way| resize.pointers[way] < lines).collect();
            let way = left[self.rng.below(left.len() as u64) as usize];
            // Skip empty lines.
            let mut line = EMPTY;
            while line == EMPTY && resize.pointers[way] < lines {
                let at = self.ways[way].line(resize.pointers[way]);
                line = swap(mem, at, &EMPTY);
                self.work.lines.push(at);
                resize.pointers[way] += 1;
            }
            if line != EMPTY {
                self.counters.rehashed += 1;
                if self.insert(mem, line, way).is_err() {
                    // Try again later, with other random choices.
                    return self.take_back(mem, way, line);
                }
            }
            self.end_resize(mem);
        }
    }

    /// Returns a line to the old table for now.
    fn take_back(&mut self, mem: &mut PhysMem, way: usize, line: Line) {
        let resize = self.resize.as_mut().expect("the table is on its way to another size");
        resize.pointers[way] -= 1;
        let at = self.ways[way].line(resize.pointers[way]);
        swap(mem, at, &line);
        self.counters.rehashed -= 1;
    }

    /// Completes the resize once all lines have moved: frees the old table.
    fn end_resize(&mut self, mem: &mut PhysMem) {
        let lines = self.ways[0].lines();
        let done = |resize: &mut Box<Resize>| resize.pointers == [lines; WAYS];
        if let Some(resize) = self.resize.take_if(done) {
            for old in std::mem::replace(&mut self.ways, resize.ways) {
                old.block.destroy(mem);
                self.work.released.push(old.block.first);
            }
        }
    }

    /// Inserts an empty line for a tag and continues a resize.
    fn place(&mut self, mem: &mut PhysMem, tag: u64) -> Result<(), NoRoom> {
        for _ in 0..TRIES {
            let way = self.rng.below(WAYS as u64) as usize;
            let placed = self.insert(mem, with_tag(tag), way);
            self.rehash(mem);
            if placed.is_ok() {
                self.used += 1;
                self.counters.inserted += 1;
                self.counters.most_used = self.counters.most_used.max(self.used);
                return Ok(());
            }
        }
        Err(NoRoom)
    }

    fn write(&self, mem: &mut PhysMem, addr: PhysAddr, va: VirtAddr, mapping: &Mapping) {
        mem.write(addr, encode(1, mapping) | tag_part(tag(vpn(va)), index(vpn(va))));
    }

    /// Address and mapping of the entry of a mapped page.
    fn present(&self, mem: &PhysMem, va: VirtAddr) -> (PhysAddr, Mapping) {
        let line = self.find(mem, tag(vpn(va)));
        let addr = line.map(|line| line + 8 * index(vpn(va)) as u64);
        let present = addr.map(|addr| (addr, mem.read(addr))).filter(|(_, entry)| entry & PRESENT != 0);
        let (addr, entry) = present.unwrap_or_else(|| panic!("{va:?} is not mapped"));
        (addr, decode(1, entry))
    }
}

impl Design for ElasticCuckoo {
    type Parameters = ElasticCuckooConfig;
    type Shared = CuckooCounters;

    const PAGE_SIZES: PageSizes =
        PageSizes::only_4k("others have tables of their own in the design, of which the one for 4 KiB pages is here");
    const WORDS: Result<&'static [PageSize], &'static str> =
        Err("the bits of an elastic-cuckoo entry that is not present hold a part of its line's tag");
    const MOVES_ENTRIES: bool = true;

    fn samples() -> Vec<ElasticCuckooConfig> {
        let small = ElasticCuckooConfig { way_entries: 64, ..ElasticCuckooConfig::default() };
        let sparse = ElasticCuckooConfig { max_load: 0.3, min_load: 0.1, seed: 5, ..small };
        vec![ElasticCuckooConfig::default(), small, sparse, ElasticCuckooConfig { rehashes_per_insert: 1, ..small }]
    }

    fn upper_entries(_: &ElasticCuckooConfig) -> UpperEntries {
        UpperEntries::Unfit
    }

    fn validate(parameters: &ElasticCuckooConfig, context: &Context) -> Result<(), EngineError> {
        parameters.validate(context)
    }

    /// The largest way has 1 GiB.
    fn largest_block(_: &ElasticCuckooConfig) -> u32 {
        PageSize::Size1G.order()
    }

    fn create(
        config: &ElasticCuckooConfig,
        _: &mut CuckooCounters,
        mem: &mut PhysMem,
        frames: TableFrames,
        _: Option<u64>,
    ) -> Result<Self, NoTable> {
        let order = order_of(config.way_entries);
        let mut blocks = [TableBlock { first: Pfn(0), order }; WAYS];
        for block in &mut blocks {
            block.first = frames(order).ok_or(NoTable::Block { order })?;
            block.create(mem);
        }
        Ok(Self {
            config: *config,
            ways: ways(&blocks, config.seed),
            resize: None,
            pending: Vec::new(),
            used: 0,
            pages: PageIndex::default(),
            rng: Rng::new(config.seed, "elastic cuckoo"),
            counters: CuckooCounters { way_frames: 1 << order, ..Default::default() },
            work: TableWork::default(),
        })
    }

    #[inline]
    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        let (tag, index) = (tag(vpn(va)), index(vpn(va)));
        let lines: [PhysAddr; WAYS] = std::array::from_fn(|way| self.line(way, tag));
        let found = lines.iter().position(|&line| has_tag(mem.line(line), tag));
        let mut refs = lines.map(|line| WalkRef::to_leaf(line + 8 * index as u64, 0));
        // The walk reads them at once; the list ends with the one that decides where the page is.
        refs.swap(found.unwrap_or_else(|| self.next_way()), WAYS - 1);
        list.set(refs);
        list.leaf = match found {
            Some(_) => leaf(mem.read(refs[WAYS - 1].addr)),
            None => Leaf::nothing(1),
        };
    }

    #[inline]
    fn hint(&self, mem: &PhysMem, va: VirtAddr) {
        (0..WAYS).for_each(|way| mem.hint(self.line(way, tag(vpn(va)))));
    }

    #[inline]
    fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        let addr = PhysAddr(self.find(mem, tag(vpn(va)))?.0 + 8 * index(vpn(va)) as u64);
        let entry = mem.read(addr);
        (entry & PRESENT != 0).then(|| (addr, decode(1, entry).pfn))
    }

    /// Number of blocks that are missing for the next table.
    fn missing_tables(&self, _: &PhysMem, _: VirtAddr, _: PageSize) -> usize {
        self.wanted_order().map_or(0, |_| WAYS - self.pending.len())
    }

    fn next_table_orders(&self, _: &PhysMem, _: VirtAddr) -> ArrayVec<u32, 2> {
        ArrayVec::from_iter([self.wanted_order().unwrap_or(0)])
    }

    /// Accepts a block (whose zeroed contents exist) for a way of the next table; with the last one, the resize begins.
    /// Returns the address where the table is described; `None` if no such block is needed any more.
    fn link_table(&mut self, mem: &mut PhysMem, _: VirtAddr, _: PageSize, block: TableBlock) -> Option<PhysAddr> {
        let order = self.wanted_order().filter(|&order| order == block.order)?;
        // The load may have changed direction since the other blocks were accepted.
        for stale in self.pending.extract_if(.., |pending| pending.order != order) {
            stale.destroy(mem);
            self.work.released.push(stale.first);
        }
        self.pending.push(block);
        if self.pending.len() == WAYS {
            let counters = &mut self.counters;
            *if order > self.ways[0].block.order { &mut counters.upsizes } else { &mut counters.downsizes } += 1;
            counters.way_frames = counters.way_frames.max(1 << order);
            let ways = ways(&self.pending, self.config.seed);
            self.resize = Some(Box::new(Resize { ways, pointers: [0; WAYS] }));
            self.pending.clear();
        }
        Some(self.ways[0].block.first.addr())
    }

    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        assert_eq!(mapping.size, PageSize::Size4K, "the table has no larger pages");
        let tag = tag(vpn(va));
        if self.find(mem, tag).is_none() {
            self.place(mem, tag)?;
        }
        let line = self.find(mem, tag).expect("the line has a place");
        let addr = line + 8 * index(vpn(va)) as u64;
        assert_eq!(mem.read(addr) & PRESENT, 0, "the entry of {va:?} is in use");
        self.write(mem, addr, va, &mapping);
        self.pages.insert(vpn(va));
        Ok(addr)
    }

    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        let (addr, mapping) = self.present(mem, va);
        self.write(mem, addr, va, &Mapping { flags, ..mapping });
        addr
    }

    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        assert_eq!(mapping.size, PageSize::Size4K, "the table has no larger pages");
        let (addr, _) = self.present(mem, va);
        self.write(mem, addr, va, &mapping);
        addr
    }

    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        let (addr, _) = self.present(mem, va);
        mem.write(addr, tag_part(tag(vpn(va)), index(vpn(va))));
        let line = PhysAddr(addr.0 - 8 * index(vpn(va)) as u64);
        if mem.line(line).iter().all(|entry| entry & PRESENT == 0) {
            swap(mem, line, &EMPTY);
            self.used -= 1;
        }
        self.pages.remove(vpn(va));
        addr
    }

    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        let last = end.0.div_ceil(1 << FRAME_SHIFT);
        let left = most.saturating_sub(out.len());
        for vpn in self.pages.range(start.page_number(), last).take(left) {
            let va = VirtAddr::from_page_number(vpn);
            out.push(Removed { va, mapping: self.present(mem, va).1 });
        }
    }

    fn report_work(&mut self, all: &mut CuckooCounters, work: &mut TableWork) {
        all.add(std::mem::take(&mut self.counters));
        work.lines.append(&mut self.work.lines);
        work.released.append(&mut self.work.released);
    }

    fn destroy(self, _: &mut CuckooCounters, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        let next = self.resize.iter().flat_map(|resize| resize.ways);
        let blocks = self.ways.into_iter().chain(next).map(|way| way.block).chain(self.pending);
        for block in blocks {
            assert!(block.is_zero(mem), "a page table that is destroyed maps nothing");
            block.destroy(mem);
            release(block.first);
        }
        self.work.released.into_iter().for_each(release);
    }

    fn va_bits(&self) -> u32 {
        VA_BITS
    }

    fn exhausted(_: &CuckooCounters, _: &PhysMem, layer: &str, what: Exhausted) -> String {
        match what {
            Exhausted::Tags => unreachable!("each table is a space's own"),
            Exhausted::Places(va) => format!(
                "layer `{layer}` has no place for {va:?} in its elastic-cuckoo page table, whatever it displaces; set a lower \
                 system.layers.{layer}.page_table.max_load or more max_displacements"
            ),
            Exhausted::Block { order, free_frames } => format!(
                "layer `{layer}` has no {} of contiguous memory for a way of an elastic-cuckoo page table, though {} are free: the \
                 design needs its ways whole. Give it more by --set system.layers.{layer}.memory_bytes=SIZE, or memory that is \
                 less aged",
                format_bytes(FRAME_BYTES << order),
                format_bytes(FRAME_BYTES * free_frames),
            ),
        }
    }
}

/// Result of a walk that ends at an entry of an existing line. If not present, the entry holds tag bits instead of a
/// software word.
#[inline]
fn leaf(entry: u64) -> Leaf {
    if entry & PRESENT == 0 { Leaf::nothing(1) } else { leaf_of(1, entry) }
}

/// The ways of a table in these blocks.
fn ways(blocks: &[TableBlock], seed: u64) -> [Way; WAYS] {
    std::array::from_fn(|number| Way::new(blocks[number], number, seed))
}

#[cfg(test)]
mod tests;
