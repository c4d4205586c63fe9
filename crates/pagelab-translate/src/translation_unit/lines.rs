//! References of translation units that keep their entries in memory.

use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;
use pagelab_hardware::cache::{BlockCache, BlockPlace, DataMisses, Hierarchy, HitLevel, Requester};

/// How a unit reads a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRead {
    /// The line.
    pub line: LineAddr,
    /// Whether memory is asked at once, without a look-up in the caches. If no cache holds the line, this saves the
    /// latency of the last cache. If one does, the reference takes the latency of memory without that.
    pub skips_caches: bool,
    /// Latency of memory, if it is not that of the machine.
    pub memory_latency: Option<Cycles>,
}

/// How a reference was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineServed {
    /// Whether a cache held the line.
    pub is_cached: bool,
    /// Cycles of the reference.
    pub cycles: Cycles,
}

/// The last entry that a walk has read in the page table of its own space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafRead {
    /// The line of the entry.
    pub line: LineAddr,
    /// Whether memory served any reference of the walk.
    pub from_memory: bool,
}

/// Memory and data caches, as units refer to them.
pub trait Lines {
    /// Reads a line.
    fn read(&mut self, read: &LineRead) -> LineServed;

    /// Reads and writes a line. Look-ups do not wait for it; shootdowns do.
    fn write(&mut self, line: LineAddr);

    /// The leaf of the walk that is offered ([`FillSource::Walk`](super::FillSource) or `Prefetch`), if one was read.
    fn leaf(&self) -> Option<LeafRead> {
        None
    }

    /// The core's second-level cache, if it has one and there are blocks of translations in it.
    fn blocks(&mut self) -> Option<&mut dyn Blocks> {
        None
    }
}

/// Blocks of translations in a core's second-level cache; see `pagelab_hardware::cache`.
pub trait Blocks {
    /// Shape and latency of the cache.
    fn cache(&self) -> BlockCache;

    /// Whether a block is there; changes nothing.
    fn holds(&self, block: BlockPlace) -> bool;

    /// Looks up a block; the replacement policy takes note of a hit.
    fn look_up(&mut self, block: BlockPlace) -> bool;

    /// Inserts a block that is not there.
    fn insert(&mut self, block: BlockPlace);

    /// Removes a block, if it is there.
    fn remove(&mut self, block: BlockPlace);

    /// Takes out the line whose translations a block is to hold.
    fn give_up(&mut self, line: LineAddr);

    /// Says whether the TLB misses often, for replacement policies that keep blocks then.
    fn set_misses_often(&mut self, often: bool);

    /// Accesses of the program to data since the start.
    fn data_misses(&self) -> DataMisses;
}

/// For units that keep their entries in arrays.
#[derive(Clone, Copy, Debug)]
pub struct NoLines;

impl Lines for NoLines {
    fn read(&mut self, _: &LineRead) -> LineServed {
        unreachable!("a unit in memory is looked up after the TLBs")
    }

    fn write(&mut self, _: LineAddr) {
        unreachable!("a unit in memory is filled after the TLBs")
    }
}

/// References of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// References of look-ups.
    pub reads: u64,
    /// References that write entries, or drop them.
    pub writes: u64,
    /// Cycles of those that write.
    pub write_cycles: Cycles,
    /// References through the caches, by [`HitLevel`].
    pub levels: [u64; HitLevel::ALL.len()],
}

impl LineCounts {
    /// Adds those of other references.
    pub fn add(&mut self, more: &Self) {
        let Self { reads, writes, write_cycles, levels } = more;
        self.reads += reads;
        self.writes += writes;
        self.write_cycles += *write_cycles;
        self.levels.iter_mut().zip(levels).for_each(|(sum, more)| *sum += more);
    }
}

/// The caches of a core. References enter where those of page walks enter, and are kept apart from these.
#[derive(Debug)]
pub struct CoreLines<'a> {
    caches: &'a mut Hierarchy,
    core: CoreId,
    /// Latency of all references if they bypass the caches (`engine.kernel_refs`).
    bypass: Option<Cycles>,
    leaf: Option<LeafRead>,
    counts: LineCounts,
}

impl<'a> CoreLines<'a> {
    /// The caches of a core; `bypass` is the latency of all references if they bypass the caches.
    pub fn new(caches: &'a mut Hierarchy, core: CoreId, bypass: Option<Cycles>) -> Self {
        Self { caches, core, bypass, leaf: None, counts: LineCounts::default() }
    }

    /// The same after a walk.
    pub(crate) fn after_walk(self, leaf: Option<LeafRead>) -> Self {
        Self { leaf, ..self }
    }

    /// Sets the time of the next reference; see [`Hierarchy::set_time`].
    pub(crate) fn set_time(&mut self, now: Cycles) {
        self.caches.set_time(now);
    }

    /// That time.
    pub(crate) fn time(&self) -> Cycles {
        self.caches.time()
    }

    /// The counts since the last call.
    pub fn take_counts(&mut self) -> LineCounts {
        std::mem::take(&mut self.counts)
    }

    /// Makes a reference through the caches; the level that served it and its cycles.
    fn access(&mut self, line: LineAddr, write: bool) -> (HitLevel, Cycles) {
        let before = self.caches.walk_refs(self.core);
        let outcome = self.caches.access(self.core, line, write, Requester::Walk);
        self.caches.take_walk_refs_since(self.core, before);
        self.counts.levels[outcome.served as usize] += 1;
        (outcome.served, outcome.cycles.into())
    }
}

impl Lines for CoreLines<'_> {
    fn read(&mut self, read: &LineRead) -> LineServed {
        self.counts.reads += 1;
        if let Some(cycles) = self.bypass {
            return LineServed { is_cached: true, cycles };
        }
        let (served, mut cycles) = self.access(read.line, false);
        let (last_cache, memory) = (self.caches.last_latency(), self.caches.memory_latency());
        let (last_cache, memory) = (Cycles::from(last_cache), Cycles::from(memory));
        let is_cached = served != HitLevel::Dram;
        if is_cached && read.skips_caches {
            cycles = memory;
        }
        if !is_cached || read.skips_caches {
            if let Some(own) = read.memory_latency {
                cycles = cycles.saturating_sub(memory) + own;
            }
            if read.skips_caches {
                cycles = cycles.saturating_sub(last_cache);
            }
        }
        self.caches.pass(cycles);
        LineServed { is_cached, cycles }
    }

    fn write(&mut self, line: LineAddr) {
        self.counts.writes += 1;
        let cycles = self.bypass.unwrap_or_else(|| self.access(line, true).1);
        self.counts.write_cycles += cycles;
    }

    fn leaf(&self) -> Option<LeafRead> {
        self.leaf
    }

    fn blocks(&mut self) -> Option<&mut dyn Blocks> {
        self.caches.block_cache().is_some().then_some(self)
    }
}

impl Blocks for CoreLines<'_> {
    fn cache(&self) -> BlockCache {
        self.caches.block_cache().expect("a core without a second-level cache has no blocks")
    }

    fn holds(&self, block: BlockPlace) -> bool {
        self.caches.holds_block(self.core, block)
    }

    fn look_up(&mut self, block: BlockPlace) -> bool {
        self.caches.look_up_block(self.core, block)
    }

    fn insert(&mut self, block: BlockPlace) {
        self.caches.insert_block(self.core, block);
    }

    fn remove(&mut self, block: BlockPlace) {
        self.caches.drop_block(self.core, block);
    }

    fn give_up(&mut self, line: LineAddr) {
        self.caches.give_up_line(self.core, line);
    }

    fn set_misses_often(&mut self, often: bool) {
        self.caches.set_misses_often(self.core, often);
    }

    fn data_misses(&self) -> DataMisses {
        self.caches.data_misses(self.core)
    }
}

/// What a unit does with lines: a line that is in `cached` takes 10 cycles, another one 100, of which 30 are saved if
/// no cache is asked. A second-level cache with two ways of two sets has no lines but blocks; the oldest one of a set
/// leaves.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(super) struct LineLog {
    pub cached: Vec<u64>,
    pub read: Vec<u64>,
    pub written: Vec<u64>,
    pub leaf: Option<LeafRead>,
    /// Oldest first.
    pub blocks: Vec<BlockPlace>,
    pub given_up: Vec<u64>,
    pub misses_often: bool,
    pub data: DataMisses,
}

#[cfg(test)]
impl Blocks for LineLog {
    fn cache(&self) -> BlockCache {
        BlockCache { sets: 2, ways: 2, latency: Cycles(12) }
    }

    fn holds(&self, block: BlockPlace) -> bool {
        self.blocks.contains(&block)
    }

    fn look_up(&mut self, block: BlockPlace) -> bool {
        self.holds(block)
    }

    fn insert(&mut self, block: BlockPlace) {
        assert!(!self.holds(block) && block.number <= 2, "{block:?}");
        let mut of_set = self.blocks.iter().enumerate().filter(|(_, other)| other.set == block.set);
        if let (Some((oldest, _)), Some(_)) = (of_set.next(), of_set.next()) {
            self.blocks.remove(oldest);
        }
        self.blocks.push(block);
    }

    fn remove(&mut self, block: BlockPlace) {
        self.blocks.retain(|&other| other != block);
    }

    fn give_up(&mut self, line: LineAddr) {
        self.given_up.push(line.0);
    }

    fn set_misses_often(&mut self, often: bool) {
        self.misses_often = often;
    }

    fn data_misses(&self) -> DataMisses {
        self.data
    }
}

#[cfg(test)]
impl Lines for LineLog {
    fn read(&mut self, read: &LineRead) -> LineServed {
        self.read.push(read.line.0);
        let is_cached = self.cached.contains(&read.line.0);
        let memory = read.memory_latency.unwrap_or(Cycles(100));
        let cycles = match (is_cached, read.skips_caches) {
            (_, true) => memory - Cycles(30),
            (true, false) => Cycles(10),
            (false, false) => memory,
        };
        LineServed { is_cached, cycles }
    }

    fn write(&mut self, line: LineAddr) {
        self.written.push(line.0);
    }

    fn leaf(&self) -> Option<LeafRead> {
        self.leaf
    }

    fn blocks(&mut self) -> Option<&mut dyn Blocks> {
        Some(self)
    }
}
