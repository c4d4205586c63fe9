//! Data caches: a private L1 and L2 per core, an L3 shared by the cores, memory behind them, and MESI between the
//! cores.
//!
//! This text defines the model; the code must follow it access for access.
//!
//! # What a level is
//! A level has sets × ways lines of 64 bytes. A line with number n = machine address ÷ 64 lives in set n mod sets, for
//! any number of sets. Each copy has a state: *shared* (S), *exclusive* (E) or *modified* (M, "dirty"); in the L3 only
//! dirty or not matters. L2 and L3 are optional. L1 and L2 are neither inclusive nor exclusive of each other. An L3 is
//! `inclusive` (it holds every line that a private cache holds) or `non-inclusive`.
//!
//! Four operations change a level; its policy sees only the first two:
//! - *access* of a line that it holds: LRU makes it the most recent, tree-PLRU turns the bits of its path away from it,
//!   SRRIP sets its prediction to 0, and `keep-blocks`, which otherwise does the same with lines, lowers it by 1;
//! - *fill* with a line that it does not hold: into the empty way with the lowest number if there is one, otherwise
//!   instead of the victim, which leaves the level. The victim is: under LRU, the line with the oldest access or fill;
//!   under tree-PLRU, the way that the tree points at; under `random`, way `below(ways)` of the level's own generator,
//!   drawn only when a full set needs a victim; under SRRIP, the lowest way whose prediction is 3, after incrementing
//!   all until there is one. The new line is then the most recent, turns the tree's bits as an access would, or gets
//!   the prediction 2. ([`ReplacementPolicy`] describes the tree for any number of ways.)
//! - *removal*, which leaves an empty way, and *change of state*.
//!
//! Generators: `Rng::new(seed, NAME)` with the names `cache.l1.N` and `cache.l2.N` for core N, and `cache.l3`.
//!
//! # A request
//! A request is a read or a write of one line by a core for a [`Requester`]. It enters at the L1; page walks enter at
//! the L2 if `walker_entry = "l2"`. In order:
//!
//! 1. **Walk entering at the L2** only: if the L1 holds the line, the L1's copy is not accessed. If it is M, it is
//!    written back (as a victim is, see below) and becomes E. If it is S or E and the L2 does not hold the line, the L2
//!    is filled with the line in that state. If the request is a write, the L1's copy is then removed.
//! 2. **L1** (unless entered at the L2): if it holds the line, it is accessed there; served by L1. A write to an S copy
//!    is an *upgrade*. A write makes the copy M. Done.
//! 3. **L2**, if there is one: if it holds the line, it is accessed there; served by L2. A write to an S copy is an
//!    upgrade. If the request entered at the L2, a write makes the copy M, and all is done. Otherwise the L2's copy
//!    keeps its state, and the L1 is filled: M for a write, S if the L2's copy is S, else E.
//! 4. **Other cores**: a core *holds* the line if its L1 or its L2 does; in E or M if either copy is. For a read: if
//!    another core holds it in E or M, its copies become S, and if one was M the line is *written to the L3* (below);
//!    served *remotely*. For a write: the copies of all other cores are removed (M data goes to the requester, nothing
//!    is written back); if one held it in E or M, served remotely. A request that was served remotely does not access
//!    the L3.
//! 5. **L3**, if there is one: if it holds the line, it is accessed there; served by L3.
//! 6. **DRAM** otherwise; the L3 is filled (not dirty), and its victim is handled.
//! 7. The L2 is filled, and its victim handled; then the L1 is filled, and its victim handled (not for a request that
//!    entered at the L2). The state filled: S for a read if another core holds the line, else E; but a write makes the
//!    copy at the level of entry M.
//!
//! **Victims.** A victim that is not M is dropped silently. An L1 victim in M goes to the L2: if the L2 holds the line,
//! that copy is accessed and becomes M, otherwise the L2 is filled with it in M, and that fill's victim is handled.
//! Without an L2 it goes where L2 victims go. An L2 victim in M is *written to the L3*: if the L3 holds the line, it is
//! accessed and becomes dirty, otherwise the L3 is filled with it dirty, and that fill's victim is handled. Without an
//! L3 it is written to DRAM. An L3 victim that is dirty is written to DRAM. Before an inclusive L3 evicts a line, the
//! copies in all private caches are removed (*back-invalidation*); there is one write to DRAM if the L3's copy or
//! one of these was M.
//!
//! **Upgrade.** The copies of all other cores are removed.
//!
//! # Cycles
//! The latency of the level that served (load to use, failed look-ups included); `cache_to_cache_latency_cycles` if
//! served remotely; `dram_latency_cycles` for DRAM. An upgrade adds `upgrade_latency_cycles`. Invalidations of a write
//! that misses overlap its fetch. A locked read-modify-write ([`Hierarchy::access_locked`]) is a write that adds
//! `locked_extra_cycles`. Write-backs, fills and back-invalidations cost nothing: buffers hide them.
//!
//! **Bulk write** ([`Hierarchy::zero_lines`]: `rep stosb`, which takes ownership of lines without fetching them): every
//! line in ascending order is a write entering at the L1, whoever requests it, with the same changes of state. But a
//! line that L3 or DRAM would serve costs the latency of the outermost cache, since only ownership is requested. The
//! sum is divided by `bulk_parallelism` and rounded up.
//!
//! **Bulk read** ([`Hierarchy::load_lines`]: the source of `rep movsb`): every line in ascending order is a read of its
//! own; the sum of their cycles is divided by `bulk_parallelism` and rounded up.
//!
//! Once [`Hierarchy::set_bulk`] has been called with a machine whose bulk operations take bandwidth, both take the
//! cycles that `streams.rs` defines instead; non-temporal stores also change where lines are found. Without those, the
//! changes of state are the same.
//!
//! **Device writes** ([`Hierarchy::dma_write`]) remove the lines from every cache; nothing is written back. Device
//! reads get current data and change no cache, so there is no operation for them.
//!
//! # Prefetch
//! A prefetcher of a level ([`prefetch`]) fetches a line into that level: a read by the core, for L1 or L2 as a request
//! that enters there, for L3 as steps 4 to 6 alone. It changes the same state as such a request, including policies and
//! other cores' copies, but is not counted as a request. Nothing happens if the level has the line or, for L2 and L3,
//! if a level nearer to a core has it. Prefetchers observe the requests of programs after these have been made. The
//! line is *in flight* until the time at which a request made together with the prefetch would have its data; an
//! earlier request for the line waits until then.
//!
//! # Memory
//! With `machine.memory` a line from DRAM takes the latency of its node instead of `dram_latency_cycles`, and waits
//! until the node's channel is free (`memory.rs`). This does not change where lines are found.
//!
//! # Transfers between cores
//! Once [`Hierarchy::order_transfers`] has been called, requests that take a line from other cores, or that invalidate
//! their copies, wait for each other (`transfers.rs`). This does not change where lines are found. Between distant
//! cores (`far_cores`) a transfer or an upgrade takes longer, by the largest distance of the cores that lose the line.
//!
//! # Instructions
//! With `l1i`, a core has an instruction cache (`instructions.rs`). A line that it lacks is a read that enters at the
//! L2, as step 1 describes for walks, and then fills it. Its victims are dropped, as nothing writes them. Lines leave
//! it when they leave the core's other caches because of another core, a device or the L3. A core whose instruction
//! cache alone holds a line makes a reader's copy S, so that a later write of the reader is an upgrade; its copies
//! count for nothing else.
//!
//! Not modelled: bank and miss-buffer conflicts, directories of limited size, stores of a core to its own instructions.

mod array;
mod block_bias;
mod bulk;
mod coherence;
mod config;
mod core_caches;
mod exact;
mod index;
mod instructions;
mod memory;
mod ordering;
pub mod prefetch;
mod replacement;
mod request;
mod shape;
mod slices;
mod stats;
mod streams;
mod table_bias;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
mod tlb_blocks;
mod traffic;
mod transfers;
mod ways;

pub use config::{
    CacheConfig, CacheConfigError, FarCores, Inclusion, MAX_CORES, PrivateCacheConfig, ReplacementPolicy,
    SharedCacheConfig, SliceHash, WalkerEntry,
};
pub use core_caches::{AnyCaches, BypassedCaches, CoreCaches, KnownCaches, TimedCaches};
pub use memory::{MemoryConfig, MemoryCounts, MemoryNodeConfig, MemoryPlacement};
pub use stats::{CacheStats, CoreCacheStats, SharedCacheStats};
pub use streams::{BulkConfig, BulkCost, LoadRates, StoreRates};
pub use table_bias::TableBias;
pub use tlb_blocks::{BlockCache, BlockPlace, DataMisses};
pub use traffic::Traffic;

use array::Array;
use block_bias::KeptBlocks;
use pagelab_base::addr::LineAddr;
use pagelab_base::ids::CoreId;
use pagelab_base::rng::Rng;
use shape::Code;
use streams::{LineRuns, Streams};
use transfers::Transfers;

/// Who makes a request, for the statistics; a walk may also enter at another level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Requester {
    /// The program itself.
    Data = 0,
    /// A page-table walker.
    Walk = 1,
    /// Kernel code.
    Kernel = 2,
}

impl Requester {
    /// All requesters, in the order of their counters.
    pub const ALL: [Self; 3] = [Self::Data, Self::Walk, Self::Kernel];
}

/// Whose instructions are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CodeOwner {
    /// The program's.
    Program = 0,
    /// A kernel's.
    Kernel = 1,
}

impl CodeOwner {
    /// All owners with their names, in the order of their counters.
    pub const ALL: [(Self, &str); 2] = [(Self::Program, "program"), (Self::Kernel, "kernel")];
}

/// The level at which a line was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HitLevel {
    /// The core's own L1.
    L1 = 0,
    /// The core's own L2.
    L2 = 1,
    /// The L3, shared by all cores.
    L3 = 2,
    /// Another core's private cache.
    Remote = 3,
    /// Memory: no cache held the line.
    Dram = 4,
}

impl HitLevel {
    /// All levels, in the order of their counters.
    pub const ALL: [Self; 5] = [Self::L1, Self::L2, Self::L3, Self::Remote, Self::Dram];
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOutcome {
    /// The level at which the line was found.
    pub served: HitLevel,
    /// Load-to-use latency including all additional cycles.
    pub cycles: u32,
}

/// All data caches of a machine; the module's text defines their behaviour.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    code: Code,
    private: Vec<Private>,
    l3: Option<Array>,
    inclusive: bool,
    walker_at_l2: bool,
    /// Latency of the instruction cache, which the pipeline hides.
    l1i_latency: u32,
    /// Indexed by [`HitLevel`].
    latency: [u32; 5],
    /// Latencies of a bulk write, indexed by [`HitLevel`].
    bulk_latency: [u32; 5],
    upgrade_latency: u32,
    locked_extra: u32,
    bulk_parallelism: u32,
    perturbation: Perturbation,
    shared_stats: SharedCacheStats,
    /// Present with prefetchers, or with memory that has more than a latency.
    traffic: Option<Box<Traffic>>,
    /// Present if operations on many lines take bandwidth.
    streams: Option<Box<Streams>>,
    /// Empty except while a bulk write is made.
    found: LineRuns,
    /// Present if transfers between cores wait for each other.
    transfers: Option<Box<Transfers>>,
    /// Bits of the lines that several cores want; see `transfers.rs`.
    contended: u64,
    /// Additional cycles of a transfer from one core to another, row by row; empty if all are equally far apart.
    distance: Vec<u32>,
}

/// Random additional cycles of memory accesses, which change how the cores' accesses interleave: Alameldeen and Wood,
/// "Variability in Architectural Simulations of Multi-threaded Workloads", HPCA 2003. With one core there are none.
#[derive(Clone, Debug)]
struct Perturbation {
    rng: Rng,
    /// Maximum number of cycles plus 1; 1 for none.
    below: u32,
}

impl Default for Perturbation {
    fn default() -> Self {
        Self { rng: Rng::new(0, "perturbation"), below: 1 }
    }
}

impl Perturbation {
    fn draw(&mut self) -> u32 {
        if self.below == 1 { 0 } else { self.rng.below(self.below.into()) as u32 }
    }
}

/// The caches of one core.
#[derive(Clone, Debug)]
struct Private {
    l1: Array,
    /// For instructions.
    l1i: Option<Array>,
    l2: Option<Array>,
    stats: CoreCacheStats,
}

impl Hierarchy {
    /// Empty caches for `cores` cores.
    ///
    /// # Errors
    /// If the configuration is impossible or `cores` is not 1 to [`MAX_CORES`]. The caller must check that the
    /// machine's memory fits the tags: [`CacheConfig::check_memory`].
    pub fn new(config: &CacheConfig, cores: usize, seed: u64) -> Result<Self, CacheConfigError> {
        config.validate()?;
        if !(1..=MAX_CORES).contains(&cores) {
            return Err(CacheConfigError::new(
                "cores",
                format!("{cores} is not possible; allowed are 1 to {MAX_CORES}"),
            ));
        }
        let inclusive = config.l3.as_ref().is_some_and(|l3| l3.inclusion == Inclusion::Inclusive);
        let array = |name: &str, rng: String| {
            let level = config.levels().find(|level| level.name == name)?;
            // One core needs no presence bits.
            let keeps_presence = name == "l3" && inclusive && cores > 1;
            Some(Array::new(&level, keeps_presence, Rng::new(seed, &rng)))
        };
        let private = |core| Private {
            l1: array("l1", format!("cache.l1.{core}")).expect("there is always an L1"),
            l1i: config
                .instruction_cache()
                .map(|level| Array::new(&level, false, Rng::new(seed, &format!("cache.l1i.{core}")))),
            l2: array("l2", format!("cache.l2.{core}")),
            stats: CoreCacheStats::default(),
        };
        let latency_of = |name: &str| config.levels().find(|l| l.name == name).map_or(0, |l| l.latency);
        let outermost = config.levels().last().expect("there is always an L1").latency;
        let mut latency = [0; 5];
        latency[HitLevel::L1 as usize] = latency_of("l1");
        latency[HitLevel::L2 as usize] = latency_of("l2");
        latency[HitLevel::L3 as usize] = latency_of("l3");
        latency[HitLevel::Remote as usize] = config.cache_to_cache_latency_cycles;
        latency[HitLevel::Dram as usize] = config.dram_latency_cycles;
        let mut bulk_latency = latency;
        bulk_latency[HitLevel::Dram as usize] = outermost;
        let private: Vec<Private> = (0..cores).map(private).collect();
        let l3 = array("l3", "cache.l3".into());
        Ok(Self {
            code: Code::choose(&private, l3.as_ref()),
            private,
            l3,
            inclusive,
            walker_at_l2: config.walker_entry == WalkerEntry::L2,
            l1i_latency: config.l1i.as_ref().map_or(0, |l1i| l1i.latency_cycles),
            latency,
            bulk_latency,
            upgrade_latency: config.upgrade_latency_cycles,
            locked_extra: config.locked_extra_cycles,
            bulk_parallelism: config.bulk_parallelism,
            perturbation: Perturbation::default(),
            shared_stats: SharedCacheStats::default(),
            traffic: None,
            streams: None,
            found: LineRuns::default(),
            transfers: None,
            contended: 0,
            distance: Vec::new(),
        })
    }

    /// From now on adds 0 to `most` random cycles to accesses to memory, if there are several cores.
    pub fn perturb(&mut self, rng: Rng, most: u32) {
        self.perturbation = Perturbation { rng, below: most + 1 };
    }

    /// One read or write of `line` by `core`.
    #[inline(always)]
    pub fn access(&mut self, core: CoreId, line: LineAddr, write: bool, requester: Requester) -> RequestOutcome {
        if self.hit_l1(core, line, write, requester) {
            return RequestOutcome { served: HitLevel::L1, cycles: self.l1_latency() };
        }
        self.miss_l1(core, line, write, requester)
    }

    /// One read of a line that nobody has asked for: by an access that a core has begun with a wrong address. It counts
    /// for no requester and trains no prefetcher, but fills caches and uses bandwidth. Returns where the line was.
    pub fn access_for_nothing(&mut self, core: CoreId, line: LineAddr) -> HitLevel {
        let by = Requester::Kernel;
        let counted = |stats: &CoreCacheStats| {
            (stats.served[by as usize], stats.queued[by as usize], stats.queue_cycles[by as usize])
        };
        let before = counted(&self.private[core].stats);
        let served = self.access(core, line, false, by).served;
        let stats = &mut self.private[core].stats;
        (stats.served[by as usize], stats.queued[by as usize], stats.queue_cycles[by as usize]) = before;
        served
    }

    /// The part of [`Self::access`] that is worth inlining into a loop: true if the L1 served the request, at
    /// [`Self::l1_latency`]. If it returns false, nothing has changed and [`Self::miss_l1`] must follow.
    #[inline(always)]
    pub fn hit_l1(&mut self, core: CoreId, line: LineAddr, write: bool, requester: Requester) -> bool {
        if requester == Requester::Walk && self.walker_at_l2 {
            return false;
        }
        let private = &mut self.private[core];
        let hit = private.l1.access(line, write);
        private.stats.served[requester as usize][HitLevel::L1 as usize] += u64::from(hit);
        hit
    }

    /// The rest of [`Self::access`] after [`Self::hit_l1`] has returned false for the same arguments.
    #[inline(always)]
    pub fn miss_l1(&mut self, core: CoreId, line: LineAddr, write: bool, requester: Requester) -> RequestOutcome {
        (self.code.miss_l1)(self, core, line, write, requester)
    }

    /// A locked read-modify-write.
    pub fn access_locked(&mut self, core: CoreId, line: LineAddr, requester: Requester) -> RequestOutcome {
        if self.may_be_contended(line) {
            self.do_not_merge(core, line);
        }
        let outcome = self.access(core, line, true, requester);
        RequestOutcome { cycles: outcome.cycles + self.locked_extra, ..outcome }
    }

    /// Cycles of an L1 hit.
    #[inline(always)]
    pub fn l1_latency(&self) -> u32 {
        self.latency[HitLevel::L1 as usize]
    }

    /// Cycles of a request that memory serves, failed look-ups in the caches included.
    pub fn memory_latency(&self) -> u32 {
        self.latency[HitLevel::Dram as usize]
    }

    /// Latency of the last cache.
    pub fn last_latency(&self) -> u32 {
        self.bulk_latency[HitLevel::Dram as usize]
    }

    /// Prefetches on the host the simulator's memory that an access to `line` by `core` will read. Changes nothing.
    #[inline(always)]
    pub fn hint(&self, core: CoreId, line: LineAddr) {
        // An L1's tags fit the host's L1.
        if let Some(l2) = &self.private[core].l2 {
            l2.hint(line);
        }
        if let Some(l3) = &self.l3 {
            l3.hint(line);
        }
    }

    /// Number of physical cores, each with private caches.
    pub fn cores(&self) -> usize {
        self.private.len()
    }

    /// Lines that kernel code on a core has accessed since the start, by the level at which they were found
    /// ([`HitLevel`]), including bulk writes.
    #[inline(always)]
    pub fn kernel_lines(&self, core: CoreId) -> [u64; 5] {
        let CoreCacheStats { served, bulk_written, .. } = &self.private[core].stats;
        let mut found = served[Requester::Kernel as usize];
        found.iter_mut().zip(bulk_written).for_each(|(count, written)| *count += written);
        found
    }

    /// All counters since the start.
    pub fn stats(&self) -> CacheStats {
        let inner = self.private.iter().filter_map(|private| private.l2.as_ref()?.kept_blocks());
        let outer = self.private.iter().filter_map(|private| private.l2.as_ref()).chain(&self.l3);
        CacheStats {
            cores: self.private.iter().map(|p| p.stats).collect(),
            shared: self.shared_stats,
            tables_kept: outer.filter_map(Array::tables_kept).reduce(|sum, kept| sum + kept),
            blocks_kept: inner.map(KeptBlocks::kept).reduce(|sum, kept| sum + kept),
        }
    }
}
