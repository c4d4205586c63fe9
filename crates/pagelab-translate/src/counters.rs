//! Counters of translation.

use pagelab_base::cycles::Cycles;
use pagelab_base::ids::LayerId;
use pagelab_base::page_fault::Origin;
use pagelab_hardware::cache::HitLevel;

/// Array size for page-table levels: 1 to 5; index 0 is unused.
pub const WALK_LEVELS: usize = 6;

/// Array size for the places that serve a reference: the five [`HitLevel`]s, and one for references that bypass the
/// caches.
pub const WALK_PLACES: usize = 6;

/// Names of the places in statistics, in the order of [`place_index`].
pub const PLACE_NAMES: [&str; WALK_PLACES] = ["l1", "l2", "l3", "dram", "remote", "uncached"];

/// One reference of a walk.
#[derive(Clone, Copy, Debug)]
pub struct MadeRef {
    /// Flat index of its counter in [`WalkCounts::refs`].
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

    /// Index of the place that served it, see [`place_index`].
    pub fn place(self) -> usize {
        self.at as usize % WALK_PLACES
    }
}

/// Counters of completed walks of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkCounts {
    /// Number of walks.
    pub count: u64,
    /// Cycles of these walks, from the TLB miss to the end.
    pub cycles: Cycles,
    /// References, by layer, level and place.
    pub refs: Vec<[[u64; WALK_PLACES]; WALK_LEVELS]>,
}

/// Counters of aborted walks by what they were made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbortedWalks {
    /// For programs' accesses.
    pub program: WalkCounts,
    /// For kernels' references through their direct maps: in guests, whose hosts have not mapped all their memory.
    pub kernel: WalkCounts,
}

impl AbortedWalks {
    /// Both together.
    pub fn total(&self) -> WalkCounts {
        let mut sum = self.program.clone();
        sum.add(&self.kernel);
        sum
    }

    /// The walks of one origin.
    fn by_origin(&mut self, origin: Origin) -> &mut WalkCounts {
        match origin {
            Origin::Program => &mut self.program,
            Origin::Kernel => &mut self.kernel,
        }
    }
}

/// Counters of the walks of one account. A walk that ends in a page fault is counted as aborted only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalksByKind {
    /// Walks for programs' accesses.
    pub program: WalkCounts,
    /// Walks for kernels' references through their direct maps.
    pub kernel: WalkCounts,
    /// Walks of either that ended in a page fault.
    pub aborted: AbortedWalks,
}

/// Counters of all walks.
#[derive(Clone, Debug)]
pub struct WalkCounters {
    /// By account; the first one counts walks that belong to no source.
    accounts: Vec<WalksByKind>,
    /// Sum of the accounts that have been closed.
    closed: WalksByKind,
    /// The account that walks are counted on now.
    current: usize,
    /// Locked updates of accessed and dirty bits; not counted as references.
    pub ad_updates: u64,
    /// Walks for accesses that the trace attributes to the kernel; also counted as walks of programs.
    pub by_kernel: WalkCounts,
    /// Whether the current access is one of those.
    pub are_by_kernel: bool,
    /// Walks of programs that only set a dirty bit: their page was in a TLB.
    pub dirty_walks: u64,
    /// References of the current walk, or of the last one.
    pub log: Vec<MadeRef>,
    /// Number of walks so far, including aborted ones.
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
        let counts = || WalkCounts::new(layers);
        Self { program: counts(), kernel: counts(), aborted: AbortedWalks { program: counts(), kernel: counts() } }
    }

    /// Adds the counts of another account or run.
    pub fn add(&mut self, other: &Self) {
        self.program.add(&other.program);
        self.kernel.add(&other.kernel);
        self.aborted.program.add(&other.aborted.program);
        self.aborted.kernel.add(&other.aborted.kernel);
    }
}

impl WalkCounters {
    /// The account of walks that belong to no source.
    pub const NO_SOURCE: usize = 0;

    /// Counters for this number of layers, all 0.
    pub fn new(layers: usize) -> Self {
        Self {
            accounts: vec![WalksByKind::new(layers)],
            closed: WalksByKind::default(),
            current: Self::NO_SOURCE,
            ad_updates: 0,
            by_kernel: WalkCounts::new(layers),
            are_by_kernel: false,
            dirty_walks: 0,
            log: Vec::with_capacity(1024),
            made: 0,
            last_cycles: Cycles::ZERO,
        }
    }

    /// Sum of all accounts.
    pub fn total(&self) -> WalksByKind {
        let mut sum = self.closed.clone();
        self.accounts.iter().for_each(|account| sum.add(account));
        sum
    }

    /// The counts of one account.
    pub fn account(&self, account: usize) -> WalksByKind {
        self.accounts.get(account).cloned().unwrap_or_default()
    }

    /// Counts the walks that follow on this account.
    #[inline]
    pub fn count_for(&mut self, account: usize) {
        self.current = account;
        if account >= self.accounts.len() {
            self.open(account);
        }
    }

    /// Adds an account to the closed ones and empties it, so that another source can use its number.
    pub fn close(&mut self, account: usize) {
        let layers = self.accounts[Self::NO_SOURCE].program.refs.len();
        if let Some(counts) = self.accounts.get_mut(account) {
            self.closed.add(&std::mem::replace(counts, WalksByKind::new(layers)));
        }
    }

    #[cold]
    fn open(&mut self, account: usize) {
        let layers = self.accounts[Self::NO_SOURCE].program.refs.len();
        self.accounts.resize_with(account + 1, || WalksByKind::new(layers));
    }

    /// Records a reference of the current walk.
    #[inline]
    pub fn note(&mut self, layer: LayerId, level: u8, served: Option<HitLevel>, cycles: Cycles) {
        let at = layer.index() * WALK_LEVELS + usize::from(level);
        let at = (at * WALK_PLACES + place_index(served)) as u32;
        self.log.push(MadeRef { at, cycles: cycles.0 as u32 });
    }

    /// Completed program walks of the current account.
    pub fn program_counts(&mut self) -> &mut WalkCounts {
        &mut self.accounts[self.current].program
    }

    /// Counts a walk that ended in a page fault.
    #[inline]
    pub fn abort(&mut self, origin: Origin, cycles: Cycles) {
        self.accounts[self.current].aborted.by_origin(origin).count_walk(cycles, &self.log);
        (self.made, self.last_cycles) = (self.made + 1, cycles);
    }

    /// Counts a walk that found a translation.
    #[inline]
    pub fn complete(&mut self, origin: Origin, cycles: Cycles) {
        let walks = &mut self.accounts[self.current];
        let counts = match origin {
            Origin::Program => &mut walks.program,
            Origin::Kernel => &mut walks.kernel,
        };
        counts.count_walk(cycles, &self.log);
        (self.made, self.last_cycles) = (self.made + 1, cycles);
        if self.are_by_kernel && origin == Origin::Program {
            self.by_kernel.count_walk(cycles, &self.log);
        }
    }
}

/// Index of a place in [`WalkCounts::refs`]; `None` is a reference that bypassed the caches.
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

/// TLB look-ups that did not hit. First-level hits are the accesses minus these.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlbCounters {
    /// First level.
    pub l1: LevelCounters,
    /// Second level, which is looked up after a first-level miss.
    pub l2: LevelCounters,
}

/// Look-ups of one level that did not hit, each by [`TLB_DATA`], [`TLB_FETCH`], [`TLB_KERNEL`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelCounters {
    /// Look-ups that found no entry.
    pub misses: [u64; 3],
    /// Stores that found a read-only or clean entry, which is handled like a miss.
    pub unwritable: [u64; 3],
    /// Both of the above, for accesses that are retried after a fault. Their first attempt is counted above.
    pub retries: [u64; 3],
}

impl LevelCounters {
    /// Counts a look-up that did not hit; `missed` if it found no entry.
    #[inline(always)]
    pub fn count(&mut self, kind: usize, missed: bool) {
        let counter = if missed { &mut self.misses } else { &mut self.unwritable };
        counter[kind] += 1;
    }

    /// Moves what was counted since `before` to the retries.
    fn move_to_retries(&mut self, before: &Self) {
        for (kind, retries) in self.retries.iter_mut().enumerate() {
            let all = |now: &[u64; 3], others: &[u64; 3]| now[kind] - others[kind];
            *retries += all(&self.misses, &before.misses) + all(&self.unwritable, &before.unwritable);
        }
        (self.misses, self.unwritable) = (before.misses, before.unwritable);
    }
}

impl TlbCounters {
    /// Moves the look-ups since `before` to the retries: they belong to an access that is retried after a fault.
    #[cold]
    pub fn move_retries(&mut self, before: &Self) {
        self.l1.move_to_retries(&before.l1);
        self.l2.move_to_retries(&before.l2);
    }
}

/// Index of look-ups for programs' loads and stores.
pub const TLB_DATA: usize = 0;

/// Index of look-ups for programs' instruction fetches.
pub const TLB_FETCH: usize = 1;

/// Index of look-ups for kernels.
pub const TLB_KERNEL: usize = 2;

/// Counters of direct segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentCounters {
    /// Accesses that a segment translated, without TLB or walk.
    pub translations: u64,
    /// Addresses that a segment translated during a walk.
    pub walk_translations: u64,
}

/// Counters of walks in regions and of the tags that they are checked with.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameTagCounters {
    /// Walks that found a translation.
    pub walks: u64,
    /// Look-ups of tag caches.
    pub look_ups: u64,
    /// Lines of tags that were read from memory.
    pub refs: u64,
    /// Tags that kernels wrote when a frame had another owner.
    pub writes: u64,
    /// Exits in which the hypervisor gave a guest frames.
    pub grants: u64,
    /// Frames that it gave.
    pub granted_frames: u64,
    /// Cycles of these exits.
    pub grant_cycles: Cycles,
}

/// Counters of references to tables in virtual memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct PinnedCounters {
    /// References that the TLBs were asked for.
    pub translations: u64,
    /// Those that no TLB held.
    pub misses: u64,
}

/// Counters of exits of guests with shadow page tables, and their cycles including the references of the hypervisor's
/// work.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShadowCounters {
    /// Exits because the shadow table had no translation, or none that allows the store.
    pub misses: u64,
    /// Exits because the guest invalidated translations.
    pub invalidations: u64,
    /// Exits because the guest switched address spaces.
    pub switches: u64,
    /// Slots of an inverted shadow table that held another page when they were filled.
    pub replaced: u64,
    /// Cycles of all exits.
    pub cycles: Cycles,
}

/// Counters of speculation, for completed walks of programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpeculationCounters {
    /// Speculations that the walk confirmed.
    pub right: u64,
    /// Speculations that were wrong: the walk found another frame, or a page fault.
    pub wrong: u64,
    /// Look-ups whose slot held another page, or did not allow the access.
    pub missed: u64,
    /// Slots that were written.
    pub updates: u64,
    /// References that the core waited for.
    pub critical_refs: u64,
    /// All references: of walks, look-ups and updates.
    pub all_refs: u64,
    /// Walk cycles that the core did not wait for.
    pub hidden_cycles: Cycles,
}
