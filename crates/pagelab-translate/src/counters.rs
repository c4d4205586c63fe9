//! Counters of translation.

use pagelab_base::cycles::Cycles;
use pagelab_base::ids::LayerId;
use pagelab_base::page_fault::Origin;
use pagelab_hardware::cache::HitLevel;

/// Levels that references are counted by: 1 to 5, index 0 unused.
pub const WALK_LEVELS: usize = 6;

/// Places that references are counted by: the five of the caches, and one for references that left the caches alone.
pub const WALK_PLACES: usize = 6;

/// What a reference is counted by at each place, in the order of [`place_index`].
pub const PLACE_NAMES: [&str; WALK_PLACES] = ["l1", "l2", "l3", "dram", "remote", "uncached"];

/// A reference that a walk has made.
#[derive(Clone, Copy, Debug)]
pub struct MadeRef {
    /// Its place in [`WalkCounts::refs`], counted through.
    at: u32,
    /// Cycles of the reference.
    pub cycles: u32,
}

impl MadeRef {
    /// The layer whose page table was read.
    pub fn layer(self) -> LayerId {
        LayerId::from(self.at as usize / WALK_PLACES / WALK_LEVELS)
    }

    /// Level of the page-table entry; 1 is the leaf.
    pub fn level(self) -> u8 {
        (self.at as usize / WALK_PLACES % WALK_LEVELS) as u8
    }

    /// As [`place_index`].
    pub fn place(self) -> usize {
        self.at as usize % WALK_PLACES
    }
}

/// Counters of completed walks of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkCounts {
    /// Walks.
    pub count: u64,
    /// Cycles of these walks, from the misses in the TLBs on.
    pub cycles: Cycles,
    /// By layer, level and place.
    pub refs: Vec<[[u64; WALK_PLACES]; WALK_LEVELS]>,
}

/// Counters of the walks that were made for somebody. A walk that ends in a page fault is counted as aborted only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalksByKind {
    /// Walks for programs' accesses.
    pub program: WalkCounts,
    /// Walks for kernels' references through their direct maps.
    pub kernel: WalkCounts,
    /// Walks of either that ended in a page fault.
    pub aborted: WalkCounts,
}

/// Counters of all walks.
#[derive(Clone, Debug)]
pub struct WalkCounters {
    /// By account: the first is of walks that were made for no source.
    accounts: Vec<WalksByKind>,
    /// What was on accounts that have been closed.
    closed: WalksByKind,
    /// The account of those who walk now.
    current: usize,
    /// Locked updates of accessed and dirty bits, not among the references above.
    pub ad_updates: u64,
    /// Those walks of programs that their kernels made, as the trace says.
    pub by_kernel: WalkCounts,
    /// Whether such an access is under way.
    pub are_by_kernel: bool,
    /// Program walks that only set a dirty bit: their page was in a TLB.
    pub dirty_walks: u64,
    /// References of the walk under way, or of the last one.
    pub log: Vec<MadeRef>,
    /// Walks so far, aborted ones too.
    pub made: u64,
    /// Cycles of the last one.
    pub last_cycles: Cycles,
}

impl WalkCounts {
    fn new(layers: usize) -> Self {
        Self { refs: vec![Default::default(); layers], ..Self::default() }
    }

    /// Counts a walk and its references.
    #[inline]
    fn count_walk(&mut self, cycles: Cycles, log: &[MadeRef]) {
        self.count += 1;
        self.cycles += cycles;
        let refs = self.refs.as_flattened_mut().as_flattened_mut();
        log.iter().for_each(|made| refs[made.at as usize] += 1);
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.cycles += other.cycles;
        if self.refs.len() < other.refs.len() {
            self.refs.resize(other.refs.len(), Default::default());
        }
        let refs = self.refs.as_flattened_mut().as_flattened_mut();
        for (sum, more) in refs.iter_mut().zip(other.refs.as_flattened().as_flattened()) {
            *sum += more;
        }
    }
}

impl WalksByKind {
    fn new(layers: usize) -> Self {
        let of = || WalkCounts::new(layers);
        Self { program: of(), kernel: of(), aborted: of() }
    }

    /// Adds the counts of another walk or run.
    pub fn add(&mut self, other: &Self) {
        self.program.add(&other.program);
        self.kernel.add(&other.kernel);
        self.aborted.add(&other.aborted);
    }
}

impl WalkCounters {
    /// The account of walks for no source.
    pub const NOBODY: usize = 0;

    /// Counters of walks in a system with this many layers, all 0.
    pub fn new(layers: usize) -> Self {
        Self {
            accounts: vec![WalksByKind::new(layers)],
            closed: WalksByKind::default(),
            current: Self::NOBODY,
            ad_updates: 0,
            by_kernel: WalkCounts::new(layers),
            are_by_kernel: false,
            dirty_walks: 0,
            log: Vec::with_capacity(1024),
            made: 0,
            last_cycles: Cycles::ZERO,
        }
    }

    /// Those of everybody.
    pub fn total(&self) -> WalksByKind {
        let mut sum = self.closed.clone();
        self.accounts.iter().for_each(|account| sum.add(account));
        sum
    }

    /// What has been counted on an account.
    pub fn account(&self, account: usize) -> WalksByKind {
        self.accounts.get(account).cloned().unwrap_or_default()
    }

    /// Counts what comes next on an account.
    #[inline]
    pub fn count_for(&mut self, account: usize) {
        self.current = account;
        if account >= self.accounts.len() {
            self.open(account);
        }
    }

    /// An account is somebody else's from here on.
    pub fn close(&mut self, account: usize) {
        let layers = self.accounts[Self::NOBODY].program.refs.len();
        if let Some(of) = self.accounts.get_mut(account) {
            self.closed.add(&std::mem::replace(of, WalksByKind::new(layers)));
        }
    }

    #[cold]
    fn open(&mut self, account: usize) {
        let layers = self.accounts[Self::NOBODY].program.refs.len();
        self.accounts.resize_with(account + 1, || WalksByKind::new(layers));
    }

    /// Counts a reference of the walk under way.
    #[inline]
    pub fn note(&mut self, layer: LayerId, level: u8, served: Option<HitLevel>, cycles: Cycles) {
        let at = layer.index() * WALK_LEVELS + usize::from(level);
        let at = (at * WALK_PLACES + place_index(served)) as u32;
        self.log.push(MadeRef { at, cycles: cycles.0 as u32 });
    }

    /// Those of programs' completed walks that are made now.
    pub fn of_programs(&mut self) -> &mut WalkCounts {
        &mut self.accounts[self.current].program
    }

    /// Counts a walk that ended, with its cycles.
    #[inline]
    pub fn finish(&mut self, kind: fn(&mut WalksByKind) -> &mut WalkCounts, cycles: Cycles) {
        kind(&mut self.accounts[self.current]).count_walk(cycles, &self.log);
        (self.made, self.last_cycles) = (self.made + 1, cycles);
    }

    /// [`Self::finish`] of a walk that is complete.
    #[inline]
    pub fn complete(&mut self, origin: Origin, cycles: Cycles) {
        match origin {
            Origin::Program => self.finish(|walks| &mut walks.program, cycles),
            Origin::Kernel => self.finish(|walks| &mut walks.kernel, cycles),
        }
        if self.are_by_kernel && origin == Origin::Program {
            self.by_kernel.count_walk(cycles, &self.log);
        }
    }
}

/// Index of a place in [`WalkCounts::refs`].
#[inline]
pub fn place_index(served: Option<HitLevel>) -> usize {
    match served {
        Some(HitLevel::L1) => 0,
        Some(HitLevel::L2) => 1,
        Some(HitLevel::L3) => 2,
        Some(HitLevel::Dram) => 3,
        Some(HitLevel::Remote) => 4,
        None => 5,
    }
}

/// Look-ups that did not hit. Hits of the first level are the accesses less these.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlbCounters {
    /// Those of the first level.
    pub l1: LevelCounters,
    /// Those of the second level, which are asked after the first.
    pub l2: LevelCounters,
}

/// Look-ups of one level that did not hit, by [`TLB_DATA`], [`TLB_FETCH`], [`TLB_KERNEL`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelCounters {
    /// Those that found nothing.
    pub misses: [u64; 3],
    /// Stores that found an entry that is read-only or clean, and went on as if they had missed.
    pub unwritable: [u64; 3],
    /// Either, of accesses that were made again after a fault and are among the others already.
    pub retries: [u64; 3],
}

impl LevelCounters {
    /// Counts a look-up of some kind that did not hit.
    #[inline(always)]
    pub fn count(&mut self, kind: usize, missed: bool) {
        let of = if missed { &mut self.misses } else { &mut self.unwritable };
        of[kind] += 1;
    }

    /// Makes retries of what has been counted since `before`.
    fn set_apart(&mut self, before: &Self) {
        for (kind, retries) in self.retries.iter_mut().enumerate() {
            let all = |of: &[u64; 3], others: &[u64; 3]| of[kind] - others[kind];
            *retries += all(&self.misses, &before.misses) + all(&self.unwritable, &before.unwritable);
        }
        (self.misses, self.unwritable) = (before.misses, before.unwritable);
    }
}

impl TlbCounters {
    /// The look-ups since `before` were of an access that was made again after a fault: they are set apart.
    #[cold]
    pub fn set_retries_apart(&mut self, before: &Self) {
        self.l1.set_apart(&before.l1);
        self.l2.set_apart(&before.l2);
    }
}

/// Look-ups of the programs' loads and stores.
pub const TLB_DATA: usize = 0;

/// Look-ups of the programs' instruction fetches.
pub const TLB_FETCH: usize = 1;

/// Look-ups of the kernels.
pub const TLB_KERNEL: usize = 2;

/// What segments translated.
#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentCounters {
    /// Look-ups that needed no TLB.
    pub translations: u64,
    /// Addresses that walks met on their way.
    pub walk_translations: u64,
}

/// Exits of shadowed guests and what they cost, the references of their work included.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShadowCounters {
    /// A translation was missing, or one that allows stores.
    pub misses: u64,
    /// The guest invalidated translations.
    pub invalidations: u64,
    /// The guest switched address spaces.
    pub switches: u64,
    /// Cycles of all these.
    pub cycles: Cycles,
}

/// What speculation did for the programs' completed walks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpeculationCounters {
    /// Pages that the table held and the walk confirmed.
    pub right: u64,
    /// Another frame was found, or a page fault.
    pub wrong: u64,
    /// Slots that were not the page's, or did not allow the access.
    pub missed: u64,
    /// Slots written.
    pub updates: u64,
    /// References that the core waited for.
    pub critical_refs: u64,
    /// Those of walks, look-ups and updates.
    pub all_refs: u64,
    /// Cycles of walks that the core did not wait for.
    pub hidden_cycles: Cycles,
}
