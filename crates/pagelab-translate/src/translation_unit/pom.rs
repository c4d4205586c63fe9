//! Part-of-memory TLB (POM-TLB).
//!
//! Models: a TLB in memory that all cores share, looked up after the last TLB and before the walk. It has a partition
//! for pages of 4 KiB and one for pages of 2 MiB. A set is a line of 64 bytes with four entries of 16 bytes, so that
//! one reference looks up a page: `base + 64 * (page number mod sets)`. The references go through the data caches,
//! where the lines compete with those of programs. A predictor of one bit per entry says in which partition to look
//! first. A second one says whether the caches hold the line, or memory is to be asked at once. After a walk the entry
//! is written to its set, where it replaces the least recently used one. An eviction from the TLBs writes nothing.
//! Source: Ryoo, Gulur, Song, John, "Rethinking TLB Designs in Virtualized Environments: A Very Large Part-of-Memory
//! TLB", ISCA 2017, of which only notes were at hand.
//! Parameters: `machine.tlb.stages.pom`: `small_bytes` and `large_bytes` of the partitions (8 MiB each; the paper's 16
//! MiB in equal parts, which is a choice), `ways` of a line that are used (4), `size_predictor` and `cache_predictor`
//! with their bits (512), `wrong_size` (`probe`), `memory_latency_cycles`.
//! Stats: `tlb.stages.pom.*`. Its references are not included in `cache.refs.walk`.
//! Choices, where the notes say nothing or contradict each other: the size is predicted by the bits of the address from
//! 2 MiB up, and both predictors, which all cores share, learn the last outcome. The other partition is looked up if
//! the first does not hold the page (`wrong_size = "probe"`), or the walk begins at once (`"walk"`). A reference that
//! skips the caches saves the latency of the last cache if none of them holds the line; otherwise it takes the latency
//! of memory. A hit writes no bits of recency. A walk sets accessed and dirty bits; a store to a page whose entry is
//! clean takes one, and writes the entry anew. Each entry that a shootdown drops is written, and the CPU that shoots
//! down waits for that. If a whole space is flushed, it gets a new tag, which takes no references; its old entries stay
//! until they are replaced. There are 2^19 tags; after the last one the table is emptied. Prefetch walks neither look
//! it up nor fill it.
//! Deviations: the table is in memory of its own, after `machine.memory_bytes`, and uses the channel of that address;
//! with NUMA nodes in address order this is the last one's. An entry is found by the tag of its space alone, which
//! stands for the numbers of virtual machine and process. A page of 1 GiB takes an entry per 2 MiB.

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Entry, FillSource, LineRead, Lines, LookUpPlace, TranslationUnit, UnitLookUp, VA_MASK};
use pagelab_base::addr::{LINE_BYTES, LineAddr, MachineAddr, PageSize, VirtAddr};
use pagelab_base::assoc::{AssocArray, AssocPolicy};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::{EngineError, between};
use pagelab_base::measure::Measure;
use pagelab_base::rng::Rng;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Entries of 16 bytes in a line.
const MOST_WAYS: u32 = 4;
/// Largest partition: 2^22 sets.
const MOST_BYTES: u64 = 256 << 20;
/// Bits of a tag in a key; above them is the number of the page.
const TAG_BITS: u32 = 19;
/// Tags that spaces can have: those from 1 up. No key is that of an empty way.
const MOST_TAGS: u64 = (1 << TAG_BITS) - 2;

/// What follows if the partition that was predicted does not hold the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WrongSize {
    /// A look-up in the other partition.
    #[default]
    Probe,
    /// The walk.
    Walk,
}

/// Parameters of a part-of-memory TLB, which all cores share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PomTlbConfig {
    /// Bytes of the partition for pages of 4 KiB: 64 per set. Default 8 MiB.
    pub small_bytes: Bytes,
    /// Bytes of the partition for pages of 2 MiB: 64 per set. Default 8 MiB.
    pub large_bytes: Bytes,
    /// Entries of a set that are used, 1 to 4. Default 4.
    pub ways: u32,
    /// Bits of the predictor of the page's size, 0 to 65536. Without one, pages of 4 KiB are looked up first. Default
    /// 512.
    pub size_predictor: u32,
    /// Bits of the predictor that says whether the caches are asked, 0 to 65536. Without one, they always are. Default
    /// 512.
    pub cache_predictor: u32,
    /// What follows if the partition that was predicted does not hold the page. Default `probe`.
    pub wrong_size: WrongSize,
    /// Cycles of a reference that memory serves, as for `machine.cache.dram_latency_cycles`, if the table is in memory
    /// of another kind. Default: the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_latency_cycles: Option<u32>,
}

impl Default for PomTlbConfig {
    fn default() -> Self {
        Self {
            small_bytes: Bytes(8 << 20),
            large_bytes: Bytes(8 << 20),
            ways: MOST_WAYS,
            size_predictor: 512,
            cache_predictor: 512,
            wrong_size: WrongSize::default(),
            memory_latency_cycles: None,
        }
    }
}

/// One bit per entry: the last outcome.
#[derive(Clone, Debug)]
struct Predictor(Vec<bool>);

impl Predictor {
    /// With none, the prediction is always false.
    fn new(key: &str, bits: u32) -> Result<Self, EngineError> {
        between(key, bits, 0, 1 << 16)?;
        Ok(Self(vec![false; bits as usize]))
    }

    fn index(&self, by: u64) -> Option<usize> {
        (!self.0.is_empty()).then(|| (by % self.0.len() as u64) as usize)
    }

    fn predict(&self, by: u64) -> bool {
        self.index(by).is_some_and(|at| self.0[at])
    }

    fn learn(&mut self, by: u64, outcome: bool) {
        if let Some(at) = self.index(by) {
            self.0[at] = outcome;
        }
    }
}

/// The tags of spaces. A space gets a new one with its first entry, and with its first after a flush.
#[derive(Clone, Debug)]
struct Tags {
    /// By [`Asid`]; 0 for a space without entries.
    held: Box<[u32]>,
    given: u64,
}

impl Tags {
    fn new() -> Self {
        Self { held: vec![0; 1 << u16::BITS].into(), given: 0 }
    }

    fn tag(&self, asid: Asid) -> Option<u64> {
        Some(self.held[usize::from(asid.0)].into()).filter(|&tag| tag != 0)
    }

    /// The tag of a space, a new one if it has none; `None` if there are no more.
    fn tag_or_new(&mut self, asid: Asid) -> Option<u64> {
        if self.tag(asid).is_none() && self.given < MOST_TAGS {
            self.given += 1;
            self.held[usize::from(asid.0)] = self.given as u32;
        }
        self.tag(asid)
    }

    fn take(&mut self, asid: Asid) {
        self.held[usize::from(asid.0)] = 0;
    }

    fn clear(&mut self) {
        self.held.fill(0);
        self.given = 0;
    }
}

/// The entries of a page size.
#[derive(Clone, Debug)]
struct Partition {
    size: PageSize,
    array: AssocArray,
    first: LineAddr,
}

impl Partition {
    fn new(key: &str, size: PageSize, bytes: Bytes, ways: u32, rng: &Rng) -> Result<Self, EngineError> {
        if !bytes.0.is_multiple_of(LINE_BYTES) || !(LINE_BYTES..=MOST_BYTES).contains(&bytes.0) {
            let what = format!("{bytes} is not possible; allowed are multiples of 64 from 64 to 256MiB");
            return Err(EngineError::config(key, what));
        }
        let array = AssocArray::new((bytes.0 / LINE_BYTES) as u32, ways, AssocPolicy::Lru, rng.clone());
        let array = array.map_err(|e| EngineError::config(key, e.to_string()))?;
        Ok(Self { size, array, first: LineAddr(0) })
    }

    fn sets(&self) -> u64 {
        self.array.sets().into()
    }

    fn number(&self, va: VirtAddr) -> u64 {
        (va.0 & VA_MASK) >> self.size.shift()
    }

    fn key(tag: u64, number: u64) -> u64 {
        number << TAG_BITS | tag
    }

    /// The line of a page's set.
    fn line(&self, number: u64) -> LineAddr {
        LineAddr(self.first.0 + number % self.sets())
    }

    /// Drops the pages of `start..=last`, writing each line that loses entries.
    fn invalidate(&mut self, tag: u64, start: VirtAddr, last: VirtAddr, lines: &mut impl Lines) -> u64 {
        let (first, last) = (self.number(start), self.number(last));
        let (first_line, sets) = (self.first.0, self.sets());
        let line = |number: u64| LineAddr(first_line + number % sets);
        // Each page has a set of its own.
        if last.checked_sub(first).is_some_and(|pages| pages < sets) {
            let held = (first..=last).filter(|&number| self.array.remove(number, Self::key(tag, number)));
            return held.map(|number| lines.write(line(number))).count() as u64;
        }
        // Sets come one after the other, so entries of one line do, too.
        let mut written = None;
        self.array.invalidate(|key, _| {
            let number = key >> TAG_BITS;
            let is_dropped = key & ((1 << TAG_BITS) - 1) == tag && (first..=last).contains(&number);
            if is_dropped && written.replace(line(number)) != Some(line(number)) {
                lines.write(line(number));
            }
            is_dropped
        })
    }
}

/// The unit, see the module's text.
#[derive(Clone, Debug)]
pub struct PomTlb {
    small: Partition,
    large: Partition,
    tags: Tags,
    sizes: Predictor,
    caches: Predictor,
    wrong_size: WrongSize,
    memory_latency: Option<Cycles>,
    counts: PomCounts,
}

/// What happened in look-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PomCounts {
    wrong_size: u64,
    skipped: u64,
    skipped_cached: u64,
    dropped: u64,
}

/// What predicts the size of the page of an address.
fn region(va: VirtAddr) -> u64 {
    (va.0 & VA_MASK) >> PageSize::Size2M.shift()
}

impl PomTlb {
    /// The tag of a space. If there are no more tags, the table is emptied, and all spaces get new ones.
    fn tag_or_new(&mut self, asid: Asid) -> u64 {
        if let Some(tag) = self.tags.tag_or_new(asid) {
            return tag;
        }
        self.small.array.clear();
        self.large.array.clear();
        self.tags.clear();
        self.tags.tag_or_new(asid).expect("all tags are free")
    }

    /// Looks up a page in one partition.
    fn probe(
        &mut self,
        is_large: bool,
        look_up: &UnitLookUp,
        lines: &mut impl Lines,
        cycles: &mut Cycles,
    ) -> Option<Translation> {
        let partition = if is_large { &mut self.large } else { &mut self.small };
        let number = partition.number(look_up.va);
        let line = partition.line(number);
        let skips_caches = self.caches.predict(line.0);
        let served = lines.read(&LineRead { line, skips_caches, memory_latency: self.memory_latency });
        self.caches.learn(line.0, !served.is_cached);
        self.counts.skipped += u64::from(skips_caches);
        self.counts.skipped_cached += u64::from(skips_caches && served.is_cached);
        *cycles += served.cycles;
        let tag = self.tags.tag(look_up.asid)?;
        partition.array.lookup(number, Partition::key(tag, number)).map(Translation::from_word)
    }
}

impl TranslationUnit for PomTlb {
    type Parameters = PomTlbConfig;
    type Target = MachineAddr;

    const PLACE: LookUpPlace = LookUpPlace::AfterTlbs;
    const STATISTICS: &'static str = "tlb.stages.pom";
    const IS_SHARED: bool = true;
    const IS_IN_MEMORY: bool = true;

    fn new(parameters: &PomTlbConfig, key: &str, rng: &Rng) -> Result<Self, EngineError> {
        between(&format!("{key}.ways"), parameters.ways, 1, MOST_WAYS)?;
        let partition =
            |name: &str, size, bytes| Partition::new(&format!("{key}.{name}"), size, bytes, parameters.ways, rng);
        Ok(Self {
            small: partition("small_bytes", PageSize::Size4K, parameters.small_bytes)?,
            large: partition("large_bytes", PageSize::Size2M, parameters.large_bytes)?,
            tags: Tags::new(),
            sizes: Predictor::new(&format!("{key}.size_predictor"), parameters.size_predictor)?,
            caches: Predictor::new(&format!("{key}.cache_predictor"), parameters.cache_predictor)?,
            wrong_size: parameters.wrong_size,
            memory_latency: parameters.memory_latency_cycles.map(Cycles::from),
            counts: PomCounts::default(),
        })
    }

    fn samples() -> Vec<PomTlbConfig> {
        let default = PomTlbConfig::default();
        vec![
            PomTlbConfig { small_bytes: Bytes(64), large_bytes: Bytes(64), ways: 1, ..default },
            PomTlbConfig {
                small_bytes: Bytes(192),
                large_bytes: Bytes(128),
                size_predictor: 2,
                cache_predictor: 2,
                wrong_size: WrongSize::Walk,
                memory_latency_cycles: Some(50),
                ..default
            },
            PomTlbConfig { small_bytes: Bytes(1 << 16), large_bytes: Bytes(1 << 16), ..default },
        ]
    }

    fn look_up(&mut self, look_up: &UnitLookUp, lines: &mut impl Lines, cycles: &mut Cycles) -> Option<Translation> {
        let region = region(look_up.va);
        let predicted = self.sizes.predict(region);
        let mut held = self.probe(predicted, look_up, lines, cycles);
        if held.is_none() && self.wrong_size == WrongSize::Probe {
            held = self.probe(!predicted, look_up, lines, cycles);
            self.counts.wrong_size += u64::from(held.is_some());
        }
        let held = held?;
        self.sizes.learn(region, held.size() != PageSize::Size4K);
        look_up.is_allowed_by(&held).then_some(held)
    }

    fn holds(&self, asid: Asid, va: VirtAddr) -> bool {
        self.tags.tag(asid).is_some_and(|tag| {
            [&self.small, &self.large].iter().any(|partition| {
                let number = partition.number(va);
                partition.array.holds(number, Partition::key(tag, number))
            })
        })
    }

    fn fill(&mut self, entry: &Entry, source: FillSource, lines: &mut impl Lines) {
        match source {
            FillSource::Walk => {
                let &Entry { asid, va, translation } = entry;
                let is_large = translation.size() != PageSize::Size4K;
                let tag = self.tag_or_new(asid);
                self.sizes.learn(region(va), is_large);
                let (partition, held) = match is_large {
                    true => (&mut self.large, translation.fractured(va, PageSize::Size2M)),
                    false => (&mut self.small, translation),
                };
                let number = partition.number(va);
                partition.array.insert(number, Partition::key(tag, number), held.to_word());
                lines.write(partition.line(number));
            }
            FillSource::Eviction | FillSource::Prefetch { .. } | FillSource::Free { .. } => {}
        }
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, lines: &mut impl Lines) {
        let (last, Some(tag)) = (VirtAddr(end.0.wrapping_sub(1)), self.tags.tag(asid)) else { return };
        for partition in [&mut self.small, &mut self.large] {
            self.counts.dropped += partition.invalidate(tag, start, last, lines);
        }
    }

    fn flush(&mut self, asid: Asid) {
        self.tags.take(asid);
    }

    /// The predictors; the table is in memory.
    fn storage_bits(&self) -> u64 {
        (self.sizes.0.len() + self.caches.0.len()) as u64
    }

    fn memory_bytes(&self) -> u64 {
        (self.small.sets() + self.large.sets()) * LINE_BYTES
    }

    fn put_at(&mut self, first: LineAddr) {
        self.small.first = first;
        self.large.first = first + self.small.sets();
    }

    fn measures(&self) -> Vec<Measure> {
        let PomCounts { wrong_size, skipped, skipped_cached, dropped } = self.counts;
        vec![
            Measure::count(
                "wrong_size",
                wrong_size,
                "Look-ups that found their page in the partition that they read second",
            ),
            Measure::count("skipped", skipped, "References of look-ups that asked memory and no cache"),
            Measure::count(
                "skipped_cached",
                skipped_cached,
                "References that asked memory alone, but a cache held the line",
            ),
            Measure::count("dropped", dropped, "Entries that shootdowns of ranges dropped"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::LineLog;
    use super::*;
    use pagelab_base::page_fault::{Intent, Origin};

    const ASID: Asid = Asid(3);
    const MIB: u64 = 1 << 20;
    /// First line of the table; 16 sets of small pages and 8 of large ones follow.
    const TABLE: u64 = 1000;
    const LARGE: u64 = TABLE + 16;

    fn table(change: impl FnOnce(&mut PomTlbConfig)) -> PomTlb {
        let mut config =
            PomTlbConfig { small_bytes: Bytes(16 * 64), large_bytes: Bytes(8 * 64), ..PomTlbConfig::default() };
        change(&mut config);
        let mut unit = PomTlb::new(&config, "machine.tlb.stages.pom", &Rng::new(1, "pom")).unwrap();
        unit.put_at(LineAddr(TABLE));
        unit
    }

    fn entry(va: u64, size: PageSize, dirty: bool) -> Entry {
        let translation = Translation::new(MachineAddr((va << 2) & !size.offset_mask()), size, true, dirty);
        Entry { asid: ASID, va: VirtAddr(va), translation }
    }

    fn fill(unit: &mut PomTlb, va: u64, size: PageSize) -> Vec<u64> {
        let mut lines = LineLog::default();
        unit.fill(&entry(va, size, true), FillSource::Walk, &mut lines);
        assert!(lines.read.is_empty());
        lines.written
    }

    /// Whether a load hits, the lines that it reads, and its cycles.
    fn load(unit: &mut PomTlb, va: u64, cached: &[u64]) -> (bool, Vec<u64>, u64) {
        let mut lines = LineLog { cached: cached.to_vec(), ..LineLog::default() };
        let (va, intent, origin) = (VirtAddr(va), Intent::Load, Origin::Program);
        let mut cycles = Cycles::ZERO;
        let look_up = UnitLookUp { asid: ASID, va, pc: 0, intent, origin, now: Cycles::ZERO };
        let held = unit.look_up(&look_up, &mut lines, &mut cycles);
        assert!(lines.written.is_empty());
        if let Some(held) = held {
            assert_eq!(held.address(va).0 & 0xfff, va.0 & 0xfff);
        }
        (held.is_some(), lines.read, cycles.0)
    }

    #[test]
    fn a_page_has_one_line_and_the_predictor_of_sizes_learns_where_it_is() {
        let mut unit = table(|_| {});
        assert_eq!(fill(&mut unit, 0x12_3000, PageSize::Size4K), [TABLE + 3]);
        assert_eq!(fill(&mut unit, 9 * 2 * MIB + 0x5000, PageSize::Size2M), [LARGE + 1]);
        assert_eq!(load(&mut unit, 0x12_3008, &[]).1, [TABLE + 3]);
        assert_eq!(load(&mut unit, 9 * 2 * MIB + 0x7008, &[]).1, [LARGE + 1], "the walk has said its size");
        // Another region with the same bit of the predictor: 512 regions of 2 MiB further.
        let other = 1024 * MIB + 0x4000;
        assert_eq!(fill(&mut unit, other, PageSize::Size2M), [LARGE]);
        assert_eq!(load(&mut unit, 0x12_3008, &[]).1, [LARGE, TABLE + 3], "its size was wrong, and both are probed");
        assert_eq!(load(&mut unit, 0x12_3008, &[]).1, [TABLE + 3], "this has taught it");
        assert_eq!(unit.counts.wrong_size, 1);
        assert_eq!(load(&mut unit, 0x12_4008, &[]).1, [TABLE + 4, LARGE], "no page is found, in both partitions");
        assert_eq!(unit.counts.wrong_size, 1);
    }

    #[test]
    fn a_wrong_size_may_mean_a_walk() {
        let mut unit = table(|config| (config.wrong_size, config.size_predictor) = (WrongSize::Walk, 0));
        fill(&mut unit, 2 * MIB, PageSize::Size2M);
        assert_eq!(load(&mut unit, 2 * MIB, &[]), (false, vec![TABLE], 100), "small pages are looked up first");
        let mut unit = table(|config| config.wrong_size = WrongSize::Walk);
        assert_eq!(load(&mut unit, 2 * MIB, &[]).1, [TABLE]);
        fill(&mut unit, 2 * MIB, PageSize::Size2M);
        assert_eq!(load(&mut unit, 2 * MIB, &[]), (true, vec![LARGE + 1], 100), "the walk has taught it");
    }

    #[test]
    fn caches_are_skipped_where_the_last_reference_found_no_copy() {
        let mut unit = table(|_| {});
        fill(&mut unit, 0x3000, PageSize::Size4K);
        let line = TABLE + 3;
        // In memory; skipped, in memory; skipped, although there is a copy; asked, there is a copy.
        let cycles = [&[][..], &[], &[line], &[line], &[line], &[]].map(|cached| load(&mut unit, 0x3000, cached).2);
        assert_eq!(cycles, [100, 70, 70, 10, 10, 100]);
        assert_eq!((unit.counts.skipped, unit.counts.skipped_cached), (2, 1));
        let mut never = table(|config| config.cache_predictor = 0);
        fill(&mut never, 0x3000, PageSize::Size4K);
        assert_eq!([&[][..], &[], &[line]].map(|cached| load(&mut never, 0x3000, cached).2), [100, 100, 10]);
        let mut own = table(|config| config.memory_latency_cycles = Some(60));
        fill(&mut own, 0x3000, PageSize::Size4K);
        assert_eq!([&[][..], &[], &[line], &[line]].map(|cached| load(&mut own, 0x3000, cached).2), [60, 30, 30, 10]);
    }

    #[test]
    fn a_set_has_four_entries_and_loses_the_least_recently_used_one() {
        for ways in [1, 4] {
            let mut unit = table(|config| config.ways = ways);
            let page = |n: u64| n << 16;
            (0..4).for_each(|n| assert_eq!(fill(&mut unit, page(n), PageSize::Size4K), [TABLE]));
            assert!(load(&mut unit, page(3), &[]).0);
            load(&mut unit, page(0), &[]);
            fill(&mut unit, page(4), PageSize::Size4K);
            let held = [0, 1, 2, 3, 4].map(|n| load(&mut unit, page(n), &[]).0);
            let expected = if ways == 1 { [false, false, false, false, true] } else { [true, false, true, true, true] };
            assert_eq!(held, expected, "{ways} ways");
        }
    }

    #[test]
    fn shootdowns_write_the_lines_that_lose_entries_and_flushes_none() {
        let dropped = |asid: u16, start: u64, end: u64| {
            let mut unit = table(|_| {});
            // Two share a line, and so does the next space's.
            for va in [0x3000, 0x13_3000, 0x4000] {
                fill(&mut unit, va, PageSize::Size4K);
            }
            fill(&mut unit, 8 * MIB, PageSize::Size2M);
            let mut lines = LineLog::default();
            unit.invalidate(Asid(asid), VirtAddr(start), VirtAddr(end), &mut lines);
            let held = [0x3000, 0x13_3000, 0x4000, 8 * MIB].map(|va| unit.holds(ASID, VirtAddr(va)));
            assert_eq!(unit.counts.dropped, held.iter().filter(|held| !**held).count() as u64);
            (lines.written, held)
        };
        assert_eq!(dropped(3, 0x3fff, 0x4000), (vec![TABLE + 3], [false, true, true, true]));
        assert_eq!(dropped(3, 0x4000, 0x6000), (vec![TABLE + 4], [true, true, false, true]));
        assert_eq!(dropped(3, 8 * MIB + 0x5000, 8 * MIB + 0x6000), (vec![LARGE + 4], [true, true, true, false]));
        let all = [TABLE + 3, TABLE + 4, LARGE + 4];
        assert_eq!(dropped(3, 0, u64::MAX), (all.to_vec(), [false; 4]), "each line once");
        assert_eq!(dropped(4, 0, u64::MAX), (vec![], [true; 4]));
        let mut unit = table(|_| {});
        fill(&mut unit, 0x3000, PageSize::Size4K);
        unit.flush(Asid(4));
        assert!(unit.holds(ASID, VirtAddr(0x3000)));
        unit.flush(ASID);
        assert!(!unit.holds(ASID, VirtAddr(0x3000)));
    }

    #[test]
    fn a_flushed_space_gets_a_new_tag_and_the_table_is_emptied_when_there_are_no_more() {
        let mut unit = table(|_| {});
        fill(&mut unit, 0x3000, PageSize::Size4K);
        let other = Entry { asid: Asid(4), ..entry(0x4000, PageSize::Size4K, true) };
        for flushes in 0..MOST_TAGS + 10 {
            unit.fill(&other, FillSource::Walk, &mut LineLog::default());
            assert!(unit.holds(Asid(4), other.va));
            // The first space has a tag, too.
            assert_eq!(unit.holds(ASID, VirtAddr(0x3000)), flushes + 1 < MOST_TAGS, "after {flushes} flushes");
            unit.flush(Asid(4));
            assert!(!unit.holds(Asid(4), other.va));
        }
    }

    #[test]
    fn a_page_of_1_gib_takes_an_entry_per_2_mib_and_a_clean_page_serves_no_store() {
        let mut unit = table(|_| {});
        let mut lines = LineLog::default();
        let gib = 1024 * MIB;
        unit.fill(&entry(5 * gib + 3 * 2 * MIB, PageSize::Size1G, false), FillSource::Walk, &mut lines);
        assert_eq!(lines.written, [LARGE + 3]);
        assert!(load(&mut unit, 5 * gib + 3 * 2 * MIB + 0x1008, &[]).0);
        assert!(!load(&mut unit, 5 * gib + 4 * 2 * MIB, &[]).0);
        let (va, origin, now) = (VirtAddr(5 * gib + 3 * 2 * MIB), Origin::Program, Cycles::ZERO);
        let store = UnitLookUp { asid: ASID, va, pc: 0, intent: Intent::Store, origin, now };
        assert_eq!(unit.look_up(&store, &mut lines, &mut Cycles(0)), None);
        unit.fill(&entry(va.0, PageSize::Size1G, true), FillSource::Walk, &mut lines);
        assert!(unit.look_up(&store, &mut lines, &mut Cycles(0)).is_some());
        unit.fill(&entry(0x9000, PageSize::Size4K, true), FillSource::Eviction, &mut lines);
        assert!(!unit.holds(ASID, VirtAddr(0x9000)), "evictions from the TLBs write nothing");
    }
}
