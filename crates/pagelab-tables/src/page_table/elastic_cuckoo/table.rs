//! One elastic cuckoo table: its ways, insertions that displace lines, and resizes.

use super::layer::CuckooCounters;
use super::parameters::ElasticCuckooConfig;
use super::way::{EMPTY, FRAME_LINES_SHIFT, Line, WAYS, Way, has_tag, swap, tag_of, with_tag};
use crate::page_table::{NoRoom, NoTable, TableBlock, TableFrames, TableWork};
use pagelab_base::addr::{Pfn, PhysAddr};
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// Attempts of an insertion, each with other random choices.
const TRIES: u32 = 8;

/// A resize in progress.
#[derive(Clone)]
struct Resize {
    ways: [Way; WAYS],
    /// Rehash pointer of each old way: the first line that has not been moved.
    pointers: [u64; WAYS],
}

/// A table of lines of eight entries.
#[derive(Clone)]
pub struct CuckooTable {
    config: ElasticCuckooConfig,
    ways: [Way; WAYS],
    resize: Option<Box<Resize>>,
    /// Blocks allocated so far for the ways of the next table.
    pending: Vec<TableBlock>,
    /// Lines in use.
    used: u64,
    rng: Rng,
    /// Counters and work of insertions since the last [`crate::page_table::Design::report_work`].
    pub counters: CuckooCounters,
    pub work: TableWork,
}

/// Order of the block of a way with this many lines.
fn order_of(way_entries: u32) -> u32 {
    way_entries.ilog2() - FRAME_LINES_SHIFT
}

impl CuckooTable {
    /// An empty table.
    pub fn new(config: &ElasticCuckooConfig, mem: &mut PhysMem, frames: TableFrames) -> Result<Self, NoTable> {
        let order = order_of(config.way_entries);
        let mut blocks = [TableBlock { first: Pfn(0), order }; WAYS];
        for block in &mut blocks {
            block.first = frames(order).ok_or(NoTable::Block { order })?;
            block.create(mem);
        }
        Ok(Self {
            ways: ways(&blocks, config.seed),
            resize: None,
            pending: Vec::new(),
            used: 0,
            rng: Rng::new(config.seed, "elastic cuckoo"),
            counters: CuckooCounters { way_frames: 1 << order, ..Default::default() },
            work: TableWork::default(),
            config: config.clone(),
        })
    }

    /// Number of lines of all ways; during a resize, of the new table.
    pub fn lines(&self) -> u64 {
        let ways = self.resize.as_ref().map_or(&self.ways, |resize| &resize.ways);
        WAYS as u64 * ways[0].lines()
    }

    #[cfg(test)]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Address of a tag's line in a way.
    #[inline(always)]
    pub fn line(&self, way: usize, tag: u64) -> PhysAddr {
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
    pub fn find(&self, mem: &PhysMem, tag: u64) -> Option<PhysAddr> {
        (0..WAYS).map(|way| self.line(way, tag)).find(|&line| has_tag(mem.line(line), tag))
    }

    /// The way that the next new line goes to.
    pub fn next_way(&self) -> usize {
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
    pub fn place(&mut self, mem: &mut PhysMem, tag: u64) -> Result<(), NoRoom> {
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

    /// Number of blocks that are missing for the next table.
    pub fn missing_blocks(&self) -> usize {
        self.wanted_order().map_or(0, |_| WAYS - self.pending.len())
    }

    /// Accepts a block (whose zeroed contents exist) for a way of the next table; with the last one, the resize begins.
    /// Returns the address where the table is described; `None` if no such block is needed any more.
    pub fn accept(&mut self, mem: &mut PhysMem, block: TableBlock) -> Option<PhysAddr> {
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

    /// Frees a line in which no page is mapped any more.
    pub fn remove(&mut self, mem: &mut PhysMem, line: PhysAddr) {
        swap(mem, line, &EMPTY);
        self.used -= 1;
    }

    /// All blocks that the table has, and those that it no longer uses.
    pub fn into_blocks(self, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        let next = self.resize.iter().flat_map(|resize| resize.ways);
        let blocks = self.ways.into_iter().chain(next).map(|way| way.block).chain(self.pending);
        for block in blocks {
            assert!(block.is_zero(mem), "a page table that is destroyed maps nothing");
            block.destroy(mem);
            release(block.first);
        }
        self.work.released.into_iter().for_each(release);
    }
}

/// The ways of a table in these blocks.
fn ways(blocks: &[TableBlock], seed: u64) -> [Way; WAYS] {
    std::array::from_fn(|number| Way::new(blocks[number], number, seed))
}
