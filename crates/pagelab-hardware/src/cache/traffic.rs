//! Lines in flight between memory and caches, and requests of hierarchies that model them: those with prefetchers, or
//! with memory that has more than a latency.
//!
//! A line is in the caches as soon as it is requested, but its data arrive later: a request that finds the line earlier
//! waits for the rest. So requests have times. For a program's access the core model gives the time at which it issues
//! ([`Traffic::arrival`]). All other requests are made at the time set by [`Hierarchy::set_time`].

mod ahead;

use super::array::Evicted;
use super::memory::{MainMemory, MemoryConfig, MemoryCounts, RequestKind};
use super::prefetch::unit::Unit;
use super::prefetch::{CacheLevel, LevelPrefetchConfig, PrefetchCounts, Proposals};
use super::shape::{Code, Shape};
use super::streams::LineRuns;
use super::{Hierarchy, HitLevel, RequestOutcome, Requester};
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, NodeId};

/// The cause of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filling {
    /// A request for this line.
    Request(LineAddr, Requester),
    Prefetch,
}

/// The last request.
#[derive(Clone, Copy, Debug)]
struct LastRequest {
    core: CoreId,
    line: LineAddr,
    by: Requester,
    served: HitLevel,
    /// The level where the line was found, if it was prefetched there and this is its first use.
    first_use: Option<CacheLevel>,
    /// Time of the request.
    at: Cycles,
}

/// State of prefetchers and memory.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Time of requests that no core model times.
    now: Cycles,
    /// Units of L1 and L2 for one core after the other, then the L3's unit.
    units: Vec<Unit>,
    /// Whether any of them has a prefetcher, or lines are fetched beside walks.
    prefetches: bool,
    /// Whether a prefetcher of the L3 follows walks.
    follows_walks: bool,
    filling: Filling,
    last_request: LastRequest,
    /// Present if memory has more than a latency.
    memory: Option<MainMemory>,
    /// Lines that the current request makes memory write.
    written: Vec<LineAddr>,
    /// When memory has taken the lines that the current line of a bulk operation makes it write.
    taken: Cycles,
    /// Buffer for proposed lines.
    proposals: Proposals,
}

impl Traffic {
    fn new(levels: [&LevelPrefetchConfig; 3], beside_walks: bool, memory: Option<MainMemory>, cores: usize) -> Self {
        let prefetches = beside_walks || levels.iter().any(|level| level.is_on());
        let private = (0..cores).flat_map(|_| [Unit::new(levels[0]), Unit::new(levels[1])]);
        let (line, by) = (LineAddr(0), Requester::Data);
        Self {
            now: Cycles::ZERO,
            units: private.chain([Unit::new(levels[2])]).collect(),
            prefetches,
            follows_walks: levels[2].follows_walks(),
            filling: Filling::Prefetch,
            last_request: LastRequest {
                core: CoreId::FIRST,
                line,
                by,
                served: HitLevel::L1,
                first_use: None,
                at: Cycles::ZERO,
            },
            memory,
            written: Vec::new(),
            taken: Cycles::ZERO,
            proposals: Proposals::default(),
        }
    }

    fn unit(&mut self, level: CacheLevel, core: CoreId) -> &mut Unit {
        let last = self.units.len() - 1;
        &mut self.units[if level == CacheLevel::L3 { last } else { 2 * core.index() + level as usize }]
    }

    /// Arrival of the last request's data, if it was made at `from` and would take `latency`.
    pub fn arrival(&mut self, from: Cycles, latency: Cycles) -> Cycles {
        let LastRequest { core, line, by, served, first_use, .. } = self.last_request;
        let hit = from
            + if served == HitLevel::Dram {
                self.memory_latency(core, line, RequestKind::Read, from, latency)
            } else {
                latency
            };
        self.write(from);
        let arrival = self.fill_time(core, line, from, hit);
        if let Some(level) = first_use {
            self.unit(level, core).count_use(arrival - hit, Some(by));
        }
        self.last_request.at = from;
        arrival
    }

    /// Latency of a memory request at time `at`, instead of `latency`.
    fn memory_latency(
        &mut self,
        core: CoreId,
        line: LineAddr,
        want: RequestKind,
        at: Cycles,
        latency: Cycles,
    ) -> Cycles {
        let memory = self.memory.as_mut();
        memory.map_or(latency, |memory| Cycles(latency.0.saturating_add_signed(memory.transfer(core, line, want, at))))
    }

    /// Makes memory write the lines that the current request evicted.
    fn write(&mut self, at: Cycles) {
        while let Some(line) = self.written.pop() {
            self.write_line(line, at);
        }
    }

    /// Makes memory write a line.
    fn write_line(&mut self, line: LineAddr, at: Cycles) {
        if let Some(memory) = &mut self.memory {
            self.taken = self.taken.max(memory.write(line, at));
        }
    }

    /// Arrival of a line: `hit`, or later if the line is in flight.
    fn fill_time(&mut self, core: CoreId, line: LineAddr, from: Cycles, hit: Cycles) -> Cycles {
        if !self.prefetches {
            return hit;
        }
        CacheLevel::ALL.into_iter().fold(hit, |arrival, level| self.unit(level, core).arrival(line, from, arrival))
    }

    /// Records a core's request.
    fn note_request(&mut self, core: CoreId, line: LineAddr, by: Requester, served: HitLevel) {
        let level = match served {
            HitLevel::L1 => Some(CacheLevel::L1),
            HitLevel::L2 => Some(CacheLevel::L2),
            HitLevel::L3 => Some(CacheLevel::L3),
            HitLevel::Remote | HitLevel::Dram => None,
        };
        let first_use = level.filter(|&level| self.prefetches && self.unit(level, core).take_unused(line));
        self.last_request = LastRequest { core, line, by, served, first_use, at: self.now };
    }
}

impl Hierarchy {
    /// Gives requests times, adds prefetchers to the levels L1 to L3 if any is on, and gives memory its nodes.
    /// `beside_walks`: whether lines are fetched beside walks ([`Self::prefetch_beside_walk`]). `of_core` is the node
    /// of each core.
    pub fn set_traffic(
        &mut self,
        levels: [&LevelPrefetchConfig; 3],
        beside_walks: bool,
        memory: &MemoryConfig,
        of_core: Vec<NodeId>,
    ) {
        let plain = self.latency[HitLevel::Dram as usize].into();
        let memory = (!memory.is_plain()).then(|| MainMemory::new(memory, of_core, plain));
        self.traffic = Some(Box::new(Traffic::new(levels, beside_walks, memory, self.private.len())));
        self.private.iter_mut().for_each(|private| private.l1.watch());
        self.code = Code::choose_timed(&self.private, self.l3.as_ref());
    }

    /// State of prefetchers and memory, if modelled.
    pub fn traffic(&mut self) -> Option<&mut Traffic> {
        self.traffic.as_deref_mut()
    }

    /// Whether requests have times: see [`Self::set_time`].
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        self.traffic.is_some()
    }

    /// Sets the time of the following requests, except for those that a core model times.
    #[inline(always)]
    pub fn set_time(&mut self, now: Cycles) {
        if let Some(traffic) = &mut self.traffic {
            traffic.now = now;
        }
    }

    /// Advances that time.
    #[inline(always)]
    pub fn pass(&mut self, cycles: Cycles) {
        if let Some(traffic) = &mut self.traffic {
            traffic.now += cycles;
        }
    }

    /// That time.
    #[inline(always)]
    pub fn time(&self) -> Cycles {
        self.traffic.as_ref().map_or(Cycles::ZERO, |traffic| traffic.now)
    }

    /// Begins a line of a bulk operation.
    pub(super) fn begin_line(&mut self, now: Cycles) {
        if let Some(traffic) = &mut self.traffic {
            (traffic.now, traffic.taken) = (now, Cycles::ZERO);
        }
    }

    /// When memory has taken the lines that it writes because of the line that has begun.
    pub(super) fn written(&self) -> Cycles {
        self.traffic.as_ref().map_or(Cycles::ZERO, |traffic| traffic.taken)
    }

    /// Makes memory write a line that no cache writes back.
    pub(super) fn write_to_memory(&mut self, line: LineAddr) {
        if let Some(traffic) = &mut self.traffic {
            traffic.write_line(line, traffic.now);
        }
    }

    /// Statistics of the memory nodes, if memory has more than a latency.
    pub fn memory_counts(&self) -> Option<Vec<MemoryCounts>> {
        Some(self.traffic.as_ref()?.memory.as_ref()?.counts())
    }

    /// Records that memory must write a line.
    #[inline(always)]
    pub(super) fn note_write<S: Shape>(&mut self, line: LineAddr) {
        if S::HAS_TRAFFIC
            && let Some(traffic) = &mut self.traffic
            && traffic.memory.is_some()
        {
            traffic.written.push(line);
        }
    }

    /// References of walks that a core has made, by the level at which lines were found.
    pub fn walk_refs(&self, core: CoreId) -> [u64; 5] {
        self.private[core].stats.served[Requester::Walk as usize]
    }

    /// Removes the references of walks since `before` from a core's statistics, and returns them.
    pub fn take_walk_refs_since(&mut self, core: CoreId, before: [u64; 5]) -> [u64; 5] {
        let served = &mut self.private[core].stats.served[Requester::Walk as usize];
        let all = std::mem::replace(served, before);
        std::array::from_fn(|place| all[place] - before[place])
    }

    /// Statistics of prefetchers by level, if there are any.
    pub fn prefetched(&self) -> Option<[PrefetchCounts; 3]> {
        let units = &self.traffic.as_ref().filter(|traffic| traffic.prefetches)?.units;
        let mut all = [PrefetchCounts::default(); 3];
        let (l3, private) = units.split_last()?;
        private.iter().enumerate().for_each(|(n, unit)| all[n % 2].add(&unit.counts()));
        all[2] = l3.counts();
        Some(all)
    }

    /// A whole request with traffic. For a program's request, the returned latency excludes traffic, since the core
    /// model knows when the access issues and asks for the arrival; for other requests it includes traffic.
    #[inline(always)]
    pub(super) fn serve_timed<S: Shape>(
        &mut self,
        core: CoreId,
        line: LineAddr,
        write: bool,
        by: Requester,
    ) -> RequestOutcome {
        if let Some(traffic) = &mut self.traffic {
            traffic.filling = Filling::Request(line, by);
        }
        let private = &mut self.private[core];
        let in_l1 = !(by == Requester::Walk && self.walker_at_l2) && private.l1.access_as::<S::L1>(line, write);
        let outcome = if in_l1 {
            private.stats.served[by as usize][HitLevel::L1 as usize] += 1;
            RequestOutcome { served: HitLevel::L1, cycles: self.l1_latency() }
        } else {
            self.serve_miss::<S>(core, line, write, by)
        };
        let Some(traffic) = &mut self.traffic else { return outcome };
        traffic.note_request(core, line, by, outcome.served);
        if by == Requester::Data {
            return outcome;
        }
        let now = traffic.now;
        let arrival = traffic.arrival(now, outcome.cycles.into());
        RequestOutcome { cycles: (arrival - now).0 as u32, ..outcome }
    }

    /// Begins the fetch of a line of code, which trains no prefetcher.
    pub(super) fn begin_fetch(&mut self, line: LineAddr) {
        if let Some(traffic) = &mut self.traffic {
            traffic.filling = Filling::Request(line, Requester::Kernel);
        }
    }

    /// The latency of such a line, which takes `latency` without traffic.
    pub(super) fn fetch_latency(&mut self, core: CoreId, line: LineAddr, served: HitLevel, latency: Cycles) -> Cycles {
        let Some(traffic) = &mut self.traffic else { return latency };
        traffic.note_request(core, line, Requester::Kernel, served);
        let now = traffic.now;
        traffic.arrival(now, latency) - now
    }

    /// The loop of a bulk write with traffic.
    #[inline(always)]
    pub(super) fn write_lines_timed<S: Shape>(
        &mut self,
        core: CoreId,
        first: LineAddr,
        lines: u64,
        found: &mut LineRuns,
    ) {
        for line in (first.0..first.0 + lines).map(LineAddr) {
            let upgrades = self.private[core].stats.upgrades;
            if let Some(traffic) = &mut self.traffic {
                traffic.filling = Filling::Request(line, Requester::Kernel);
            }
            let served = if self.private[core].l1.access_as::<S::L1>(line, true) {
                HitLevel::L1
            } else {
                self.request::<S>(core, line, true, false, false).served
            };
            found.push(served as usize, self.private[core].stats.upgrades > upgrades, 1);
            if let Some(traffic) = &mut self.traffic {
                traffic.note_request(core, line, Requester::Kernel, served);
                // Whole lines are overwritten: nothing waits for their old data, and memory does not read it.
                if served == HitLevel::Dram {
                    traffic.write(traffic.now);
                } else {
                    traffic.arrival(traffic.now, Cycles::ZERO);
                }
            }
        }
    }

    /// Records that a line was filled into a level, and which line it replaced.
    #[inline(always)]
    pub(super) fn note_fill<S: Shape>(
        &mut self,
        level: CacheLevel,
        core: CoreId,
        line: LineAddr,
        evicted: Option<&Evicted>,
    ) {
        if !S::HAS_TRAFFIC {
            return;
        }
        let Some(traffic) = self.traffic.as_mut().filter(|traffic| traffic.prefetches) else { return };
        let filling = traffic.filling;
        let unit = traffic.unit(level, core);
        unit.note_fill(line, filling == Filling::Request(line, Requester::Walk));
        if let Some(evicted) = evicted {
            unit.lose(evicted.line);
            if filling == Filling::Prefetch {
                unit.displace(evicted.line);
            }
        }
    }

    /// Records that a core's caches, or the L3, have lost a line.
    #[inline(always)]
    pub(super) fn note_loss<S: Shape>(&mut self, levels: &[CacheLevel], core: CoreId, line: LineAddr) {
        if !S::HAS_TRAFFIC {
            return;
        }
        let Some(traffic) = self.traffic.as_mut().filter(|traffic| traffic.prefetches) else { return };
        levels.iter().for_each(|&level| traffic.unit(level, core).lose(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::prefetch::ObservedAccess;
    use crate::cache::shape::{AnyCores, Anything, Timed};
    use crate::cache::test_support::sandy_bridge;
    use crate::cache::{CacheConfig, CacheStats, Inclusion, ReplacementPolicy, WalkerEntry};
    use pagelab_base::addr::{LINE_SHIFT, MachineAddr, PageSize, VirtAddr};
    use pagelab_base::host::Portable;
    use pagelab_base::rng::Rng;
    use pagelab_base::translation::Translation;
    use pagelab_trace::quantity::Bytes;

    /// Small caches that fill quickly: 2, 8 and 32 KiB.
    fn small(inclusion: Inclusion, walker_entry: WalkerEntry, policy: ReplacementPolicy) -> CacheConfig {
        let mut config = CacheConfig { walker_entry, ..sandy_bridge() };
        config.l1.size_bytes = Bytes(2 << 10);
        config.l2.as_mut().unwrap().size_bytes = Bytes(8 << 10);
        let l3 = config.l3.as_mut().unwrap();
        (l3.size_bytes, l3.ways, l3.inclusion, l3.policy) = (Bytes(32 << 10), 16, inclusion, policy);
        config
    }

    fn set(caches: &mut Hierarchy, levels: [&LevelPrefetchConfig; 3]) {
        caches.set_traffic(levels, false, &MemoryConfig::default(), vec![NodeId::FIRST; caches.cores()]);
    }

    /// A random request, like the engine's, and its latency. One core at a time goes through memory line by line.
    fn request(caches: &mut Hierarchy, rng: &mut Rng, now: Cycles, last: &mut [u64], n: u64) -> Cycles {
        let (goes, cores) = (n / 50 % 2 == 1, last.len() as u64);
        let core = if goes { n / 100 % cores } else { rng.below(cores) };
        let core = CoreId::from(core as usize);
        let (pc, line) = match if goes { 2 } else { rng.below(2) } {
            0 => (8, rng.below(4096)),
            1 => (16, rng.below(64) + 64 * rng.below(4)),
            _ => {
                last[core] += 1;
                (24, last[core] % 4096)
            }
        };
        let line = LineAddr(line);
        caches.set_time(now);
        let write = rng.below(3) == 0;
        match rng.below(20) {
            0..14 => {
                let outcome = caches.access(core, line, write, Requester::Data);
                let arrival = match caches.traffic() {
                    Some(traffic) => traffic.arrival(now, outcome.cycles.into()),
                    None => now + outcome.cycles.into(),
                };
                let page = MachineAddr(line.0 << LINE_SHIFT & !PageSize::Size4K.offset_mask());
                let translation = Translation::new(page, PageSize::Size4K, true, true);
                caches.prefetch_for(&ObservedAccess { pc, va: VirtAddr(line.0 << LINE_SHIFT), translation });
                arrival - now
            }
            14..17 => {
                let outcome = caches.access(core, line, write, Requester::Walk);
                if outcome.served == HitLevel::Dram && caches.follows_walks() {
                    caches.prefetch_after_walk(core, LineAddr((7 * line.0 + 1) % 4096));
                }
                outcome.cycles.into()
            }
            17 => caches.zero_lines(core, line, rng.below(80), Requester::Kernel),
            18 => caches.load_lines(core, line, rng.below(80), Requester::Kernel),
            _ => {
                caches.dma_write(line, rng.below(4));
                Cycles::ZERO
            }
        }
    }

    /// Makes random requests; returns the latency of each, and the statistics.
    fn run(mut caches: Hierarchy, cores: usize) -> (Vec<Cycles>, CacheStats, Option<[PrefetchCounts; 3]>) {
        let mut rng = Rng::new(pagelab_trace::case_seed(3), "traffic");
        let mut now = Cycles::ZERO;
        let (mut took, mut last) = (Vec::new(), vec![0; cores]);
        for n in 0..pagelab_trace::cases(3000_u64) {
            took.push(request(&mut caches, &mut rng, now, &mut last, n));
            now += took[took.len() - 1] + Cycles(rng.below(50));
            if n % 100 == 0 {
                caches.assert_coherent();
                assert_unused_lines_are_there(&caches);
            }
        }
        (took, caches.stats(), caches.prefetched())
    }

    fn assert_unused_lines_are_there(caches: &Hierarchy) {
        let Some(traffic) = &caches.traffic else { return };
        let (l3, private) = traffic.units.split_last().unwrap();
        for (n, unit) in private.iter().enumerate() {
            let private = &caches.private[n / 2];
            let array = if n % 2 == 0 { &private.l1 } else { private.l2.as_ref().unwrap() };
            assert!(unit.holds_only(|line| array.lines().any(|(held, _)| held == line)), "core {} level {n}", n / 2);
        }
        assert!(l3.holds_only(|line| caches.l3.as_ref().unwrap().lines().any(|(held, _)| held == line)), "L3");
    }

    fn variants() -> impl Iterator<Item = (CacheConfig, usize)> {
        use ReplacementPolicy::{Lru, Srrip};
        let kinds = [Inclusion::Inclusive, Inclusion::NonInclusive].into_iter().flat_map(|inclusion| {
            [(WalkerEntry::L1, Lru), (WalkerEntry::L2, Srrip)].map(|(entry, policy)| small(inclusion, entry, policy))
        });
        kinds.flat_map(|config| [1, 3].map(|cores| (config.clone(), cores)))
    }

    #[test]
    fn every_prefetched_line_ends_in_one_count_and_is_where_it_was_put() {
        for (config, cores) in variants() {
            for level in CacheLevel::ALL {
                for sample in LevelPrefetchConfig::samples(level) {
                    let mut caches = Hierarchy::new(&config, cores, 1).unwrap();
                    let mut levels = [&LevelPrefetchConfig::OFF; 3];
                    levels[level as usize] = &sample;
                    set(&mut caches, levels);
                    let (_, _, counts) = run(caches, cores);
                    let of_level = counts.unwrap()[level as usize];
                    assert!(of_level.issued > 0, "{sample:?}: {of_level:?}");
                    assert_eq!(
                        of_level.issued,
                        of_level.useful + of_level.late + of_level.useless + of_level.unused,
                        "{sample:?}: {of_level:?}"
                    );
                    assert_eq!(of_level.late > 0, of_level.late_cycles > Cycles::ZERO);
                }
            }
        }
    }

    #[test]
    fn levels_count_apart_what_they_fetch_together() {
        for (config, cores) in variants() {
            // A stride prefetcher at the L1, next-line prefetchers at the others.
            let all = [(CacheLevel::L1, 2), (CacheLevel::L2, 0), (CacheLevel::L3, 1)]
                .map(|(level, n)| LevelPrefetchConfig::samples(level).remove(n));
            let mut caches = Hierarchy::new(&config, cores, 1).unwrap();
            set(&mut caches, [&all[0], &all[1], &all[2]]);
            let (took, _, counts) = run(caches.clone(), cores);
            let counts = counts.unwrap();
            for count in &counts {
                assert_eq!(count.issued, count.useful + count.late + count.useless + count.unused, "{count:?}");
            }
            assert!(counts.iter().all(|count| count.issued > 0) && counts[0].useful > 0, "{counts:?}");
            assert_eq!(run(caches, cores).0, took, "the same again");
        }
    }

    #[test]
    fn known_ways_change_nothing() {
        let all = [(CacheLevel::L1, 2), (CacheLevel::L2, 0), (CacheLevel::L3, 1)]
            .map(|(level, n)| LevelPrefetchConfig::samples(level).remove(n));
        for (config, cores) in variants() {
            for (l2_ways, l3_ways) in [(8, 16), (8, 20), (4, 16), (4, 12)] {
                let mut config = config.clone();
                let (l2, l3) = (config.l2.as_mut().unwrap(), config.l3.as_mut().unwrap());
                (l2.ways, l3.ways, l3.size_bytes) = (l2_ways, l3_ways, Bytes(u64::from(l3_ways) << 11));
                let mut known = Hierarchy::new(&config, cores, 1).unwrap();
                set(&mut known, [&all[0], &all[1], &all[2]]);
                let mut any = known.clone();
                any.code = match cores {
                    1 => Code::for_shape::<Timed<AnyCores<false>>, Portable>(),
                    _ => Code::for_shape::<Timed<Anything>, Portable>(),
                };
                let (expected, found) = (run(any, cores), run(known, cores));
                assert_eq!((found.0, found.1, found.2), (expected.0, expected.1, expected.2), "{l2_ways} {l3_ways}");
            }
        }
    }

    #[test]
    fn times_alone_change_nothing() {
        for (config, cores) in variants() {
            let plain = Hierarchy::new(&config, cores, 1).unwrap();
            let mut timed = plain.clone();
            set(&mut timed, [&LevelPrefetchConfig::OFF; 3]);
            let (expected, found) = (run(plain, cores), run(timed, cores));
            assert_eq!((found.0, found.1, found.2), (expected.0, expected.1, None), "{cores} cores");
        }
    }

    #[test]
    fn walks_miss_what_a_prefetch_displaced() {
        // One set of two ways: first a line of a page table and a line of the program; then the line after that
        // replaces the table's.
        let mut config = CacheConfig { l2: None, l3: None, ..sandy_bridge() };
        (config.l1.size_bytes, config.l1.ways) = (Bytes(128), 2);
        let on = LevelPrefetchConfig::samples(CacheLevel::L1).remove(0);
        let mut caches = Hierarchy::new(&config, 1, 1).unwrap();
        set(&mut caches, [&on, &LevelPrefetchConfig::OFF, &LevelPrefetchConfig::OFF]);
        caches.access(CoreId::FIRST, LineAddr(1000), false, Requester::Walk);
        caches.access(CoreId::FIRST, LineAddr(0), false, Requester::Data);
        assert_eq!(caches.traffic().unwrap().arrival(Cycles(500), Cycles(100)), Cycles(600));
        let translation = Translation::new(MachineAddr(0), PageSize::Size4K, true, true);
        caches.prefetch_for(&ObservedAccess { pc: 0, va: VirtAddr(0), translation });
        caches.set_time(Cycles(550));
        let walk =
            |caches: &mut Hierarchy, line| caches.access(CoreId::FIRST, LineAddr(line), false, Requester::Walk).cycles;
        // The prefetched line is half-way: a walk that needs it waits for the other half, whatever was evicted
        // meanwhile.
        assert_eq!(walk(&mut caches, 1), 50);
        assert_eq!(walk(&mut caches, 1000), 100);
        assert_eq!(walk(&mut caches, 1000), 4);
        let l1_counts = caches.prefetched().unwrap()[0];
        assert_eq!(
            [l1_counts.walk_misses, l1_counts.used_by_walks, l1_counts.late, l1_counts.late_cycles.0],
            [1, 1, 1, 46]
        );
    }
}
