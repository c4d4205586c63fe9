//! Counters that every translation unit has, whatever its design.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::{Entry, FillSource, LineCounts, Lines, LookUpPlace, MOST_PROPOSALS, TranslationUnit, UnitLookUp};
use pagelab_base::addr::{LINE_BYTES, LineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::measure::Measure;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::HitLevel;
use pagelab_tables::mmu_cache::Asid;

/// A prefetch walk that a unit asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchWalk {
    /// Cycles of the walk; no access waits for them.
    pub cycles: Cycles,
    /// Its references, by [`HitLevel`].
    pub refs: [u64; HitLevel::ALL.len()],
    /// Whether it found a page to insert.
    pub is_mapped: bool,
}

/// Counters of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitCounts {
    /// Look-ups, including hits.
    pub look_ups: u64,
    /// Look-ups that found no entry, or none that allows the access.
    pub misses: u64,
    /// Prefetch walks that the unit asked for.
    walks: u64,
    /// Prefetch walks that found no page to insert.
    unmapped: u64,
    /// Cycles of the prefetch walks.
    walk_cycles: Cycles,
    /// References of the prefetch walks, as in [`PrefetchWalk`].
    walk_refs: [u64; HitLevel::ALL.len()],
    /// References of a unit in memory.
    lines: LineCounts,
}

/// A level that serves references, the end of a statistic's name, and what it is called.
const PLACES: [(HitLevel, &str, &str); 5] = [
    (HitLevel::L1, "l1", "the first-level data cache"),
    (HitLevel::L2, "l2", "the second-level cache"),
    (HitLevel::L3, "l3", "the last-level cache"),
    (HitLevel::Dram, "dram", "memory"),
    (HitLevel::Remote, "remote", "another core's cache"),
];

impl UnitCounts {
    /// Statistics of look-ups and misses of a unit at this place.
    pub fn look_up_measures(&self, place: LookUpPlace) -> [Measure; 2] {
        let [look_ups, misses] = match place {
            LookUpPlace::AfterTlbs => [
                "Look-ups after a miss of all TLBs, and of the stages before",
                "Look-ups that found nothing, or a page that does not allow the store",
            ],
            LookUpPlace::GuestPages => [
                "Look-ups in the TLB of guests' large pages, one per walk of a guest",
                "Look-ups that missed, so that the walk read the guest's tables",
            ],
            LookUpPlace::HostPages => [
                "Guest-physical addresses looked up during walks",
                "Guest-physical addresses that needed a walk of the host's page table",
            ],
        };
        [Measure::count("look_ups", self.look_ups, look_ups), Measure::count("misses", self.misses, misses)]
    }

    /// Statistics of the prefetch walks.
    fn walk_measures(&self) -> Vec<Measure> {
        let refs = self.walk_refs.iter().sum();
        let mut all = vec![
            Measure::count("walks", self.walks, "Prefetch walks; not included in walk.count"),
            Measure::count(
                "unmapped",
                self.unmapped,
                "Prefetch walks that found no translation, or a page that was never accessed",
            ),
            Measure::count("refs", refs, "Memory references of prefetch walks; not included in cache.refs.walk"),
            Measure::cycles("cycles", self.walk_cycles, "Cycles of prefetch walks, which no access waits for"),
        ];
        all.extend(PLACES.iter().map(|&(level, name, place)| {
            let refs = self.walk_refs[level as usize];
            Measure::count(format!("refs.{name}"), refs, format!("References of prefetch walks that {place} served"))
        }));
        all
    }

    /// Statistics of references to a unit in memory; `prefix` begins their names.
    fn line_measures(&self, prefix: &str) -> Vec<Measure> {
        let LineCounts { reads, writes, write_cycles, levels } = self.lines;
        let name = |name: &str| format!("{prefix}{name}");
        let mut all = vec![
            Measure::count(name("refs"), reads, "Memory references of look-ups; not included in cache.refs.walk"),
            Measure::count(name("writes"), writes, "Memory references that wrote entries after walks, or dropped them"),
            Measure::cycles(
                name("write_cycles"),
                write_cycles,
                "Cycles of these references; no access waits for those after walks",
            ),
        ];
        all.extend(PLACES.iter().map(|&(level, end, place)| {
            let text = format!("References of look-ups and writes that {place} served");
            Measure::count(name(&format!("refs.{end}")), levels[level as usize], text)
        }));
        all
    }
}

/// A unit with its counters. See [`TranslationUnit`] for what each function does.
#[derive(Clone, Debug)]
pub struct Counted<U> {
    pub(crate) unit: U,
    /// The first line of its memory, once it is known.
    first: Option<LineAddr>,
    /// The counters. Prefetch walks restore them, since no access waits for these walks.
    pub counts: UnitCounts,
}

impl<U: TranslationUnit> Counted<U> {
    /// An empty unit; `key` is the configuration key of its parameters. Errors: impossible parameters.
    pub fn new(parameters: &U::Parameters, key: &str, rng: &Rng) -> Result<Self, EngineError> {
        Ok(Self { unit: U::new(parameters, key, rng)?, first: None, counts: UnitCounts::default() })
    }

    /// See [`TranslationUnit::look_up`].
    #[inline(always)]
    pub fn look_up(
        &mut self,
        look_up: &UnitLookUp,
        lines: &mut impl Lines,
        cycles: &mut Cycles,
    ) -> Option<Translation<U::Target>> {
        let held = self.unit.look_up(look_up, lines, cycles);
        debug_assert!(held.is_none_or(|held| look_up.is_allowed_by(&held)), "what it returns allows the access");
        self.counts.look_ups += 1;
        self.counts.misses += u64::from(held.is_none());
        held
    }

    /// See [`TranslationUnit::holds`].
    pub fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        self.unit.holds(asid, va)
    }

    /// See [`TranslationUnit::fill`].
    #[inline(always)]
    pub fn fill(&mut self, entry: &Entry<U::Target>, source: FillSource, lines: &mut impl Lines) {
        self.unit.fill(entry, source, lines);
    }

    /// Counts references that the unit has made.
    pub fn count_lines(&mut self, more: &LineCounts) {
        self.counts.lines.add(more);
    }

    /// See [`TranslationUnit::memory_bytes`].
    pub fn memory_bytes(&self) -> u64 {
        self.unit.memory_bytes()
    }

    /// See [`TranslationUnit::put_at`].
    pub fn put_at(&mut self, first: LineAddr) {
        self.first = Some(first);
        self.unit.put_at(first);
    }

    /// The lines of its memory.
    pub fn memory(&self) -> Option<Range<LineAddr>> {
        let first = self.first?;
        Some(first..first + self.memory_bytes() / LINE_BYTES)
    }

    /// See [`TranslationUnit::takes_free`].
    pub fn takes_free(&self) -> bool {
        self.unit.takes_free()
    }

    /// See [`TranslationUnit::next_walks`].
    pub fn next_walks(
        &mut self,
        look_up: &UnitLookUp,
        found: Translation,
        lines: &mut impl Lines,
    ) -> ArrayVec<VirtAddr, MOST_PROPOSALS> {
        if U::PREFETCHES { self.unit.next_walks(look_up, found, lines) } else { ArrayVec::new() }
    }

    /// Counts a walk that the unit asked for.
    pub fn count_walk(&mut self, walk: &PrefetchWalk) {
        let counts = &mut self.counts;
        counts.walks += 1;
        counts.walk_cycles += walk.cycles;
        counts.walk_refs.iter_mut().zip(walk.refs).for_each(|(sum, more)| *sum += more);
        counts.unmapped += u64::from(!walk.is_mapped);
    }

    /// See [`TranslationUnit::invalidate`].
    pub fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, lines: &mut impl Lines) {
        self.unit.invalidate(asid, start, end, lines);
    }

    /// See [`TranslationUnit::flush`].
    pub fn flush(&mut self, asid: Asid) {
        self.unit.flush(asid);
    }

    /// All statistics of a stage.
    pub fn stage_measures(&self) -> Vec<Measure> {
        let mut all = Vec::new();
        if U::COUNTS_LOOK_UPS {
            all.extend(self.counts.look_up_measures(U::PLACE));
        }
        if U::PREFETCHES {
            all.extend(self.counts.walk_measures());
        }
        let text = "Bits of storage of the units of all cores in use; an entry takes 102 (an estimate)";
        if U::IS_IN_MEMORY {
            // Prefetch walks have references, too.
            all.extend(self.counts.line_measures(if U::PREFETCHES { "memory." } else { "" }));
            let text = "Bytes of memory that it takes, beyond machine.memory_bytes";
            all.push(Measure::state("memory_bytes", self.unit.memory_bytes(), "bytes", text));
        }
        all.push(Measure::state("storage_bits", self.unit.storage_bits(), "bits", text));
        all.extend(self.unit.measures());
        all
    }
}
