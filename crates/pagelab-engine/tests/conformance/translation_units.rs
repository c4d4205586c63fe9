//! Tests every registered translation unit: against a map, and in programs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use pagelab_engine::base::addr::{LineAddr, PageSize, VirtAddr};
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::page_fault::{Intent, Origin};
use pagelab_engine::base::rng::Rng;
use pagelab_engine::base::translation::{Target, Translation};
use pagelab_engine::cache::{BlockCache, BlockPlace, DataMisses};
use pagelab_engine::config::Config;
use pagelab_engine::mmu_cache::Asid;
use pagelab_engine::translate::translation_unit::{
    self, Blocks, Entry, FillSource, FreeDistance, LeafRead, LineRead, LineServed, Lines, TlbPrefetchConfig,
    TlbStagesConfig, TranslationUnit, UnitLookUp, Visitor,
};
use pagelab_trace::{case_seed, cases};

use super::{SHORT_OF_MEMORY, check, with};
use crate::common::{on_two_threads, run_workload, with_each_page_table};

/// Memory of a unit: caches hold every line that was read or written in the last few references, and the last few
/// blocks of translations.
#[derive(Clone, Default)]
struct RecentLines(VecDeque<LineAddr>, VecDeque<BlockPlace>);

impl RecentLines {
    fn refer(&mut self, line: LineAddr) -> bool {
        let is_cached = self.0.contains(&line);
        self.0.push_back(line);
        if self.0.len() > 3 {
            self.0.pop_front();
        }
        is_cached
    }
}

impl Blocks for RecentLines {
    fn cache(&self) -> BlockCache {
        BlockCache { sets: 2, ways: 4, latency: Cycles(12) }
    }

    fn holds(&self, block: BlockPlace) -> bool {
        self.1.contains(&block)
    }

    fn look_up(&mut self, block: BlockPlace) -> bool {
        self.holds(block)
    }

    fn insert(&mut self, block: BlockPlace) {
        assert!(!self.holds(block), "{block:?} is there");
        self.1.push_back(block);
        if self.1.len() > 4 {
            self.1.pop_front();
        }
    }

    fn remove(&mut self, block: BlockPlace) {
        self.1.retain(|&other| other != block);
    }

    fn give_up(&mut self, line: LineAddr) {
        self.0.retain(|&other| other != line);
    }

    fn set_misses_often(&mut self, _: bool) {}

    fn data_misses(&self) -> DataMisses {
        DataMisses::default()
    }
}

impl Lines for RecentLines {
    fn read(&mut self, read: &LineRead) -> LineServed {
        let is_cached = self.refer(read.line);
        LineServed { is_cached, cycles: Cycles(if is_cached { 10 } else { 100 }) }
    }

    fn write(&mut self, line: LineAddr) {
        self.refer(line);
    }

    fn leaf(&self) -> Option<LeafRead> {
        Some(LeafRead { line: LineAddr(77), from_memory: true })
    }

    fn blocks(&mut self) -> Option<&mut dyn Blocks> {
        Some(self)
    }
}

/// Number of pages of each size, at separate addresses.
const PAGES: u64 = 24;

fn first(size: PageSize, page: u64) -> VirtAddr {
    VirtAddr((0x7e00_0000_0000 + ((size as u64) << 40)) | (page << size.shift()))
}

/// Mappings by space, size and page: frame and permissions.
struct Mapped {
    pages: BTreeMap<(u16, PageSize, u64), (u64, bool, bool)>,
    changes: u64,
}

impl Mapped {
    fn get(&mut self, asid: u16, size: PageSize, page: u64) -> &mut (u64, bool, bool) {
        let changes = &mut self.changes;
        self.pages.entry((asid, size, page)).or_insert_with(|| {
            *changes += 1;
            (*changes << 30, !(*changes).is_multiple_of(4), *changes % 8 > 3)
        })
    }

    fn translation<A: Target>(&mut self, asid: u16, size: PageSize, page: u64) -> Translation<A> {
        let &mut (target, writable, dirty) = self.get(asid, size, page);
        Translation::new(A::from_bits(target), size, writable, dirty && writable)
    }
}

/// Random operations on a unit and on a map. Returns the number of hits.
fn torture<U: TranslationUnit>(parameters: &U::Parameters, key: &str, steps: u64) -> u64 {
    let unit = || {
        let unit = U::new(parameters, key, &Rng::new(3, key)).unwrap_or_else(|e| panic!("{e}"));
        (unit, RecentLines::default())
    };
    let (mut unit, mut again, mut copied) = (unit(), unit(), None);
    let mut mapped = Mapped { pages: BTreeMap::new(), changes: 0 };
    let (mut rng, mut hits, mut now) = (Rng::new(case_seed(5), key), 0, 0);
    for step in 0..steps {
        now += rng.below(100);
        let (asid, size) = (1 + rng.below(2) as u16, PageSize::ALL[rng.below(3) as usize]);
        // Few pages at a time, so that cached pages are requested again.
        let page = (step / 64 + rng.below(3)) % PAGES;
        let va = VirtAddr(first(size, page).0 + rng.below(size.bytes()));
        let what = format!("{key} {parameters:?}: step {step}, {va:?} of space {asid}");
        match rng.below(100) {
            0..40 => {
                let intent = [Intent::Load, Intent::Store, Intent::Fetch][rng.below(3) as usize];
                let look_up =
                    UnitLookUp { asid: Asid(asid), va, pc: 0, intent, origin: Origin::Program, now: Cycles(now) };
                let ask = |(unit, lines): &mut (U, RecentLines)| {
                    let mut cycles = Cycles::ZERO;
                    let held = unit.look_up(&look_up, lines, &mut cycles);
                    (held.map(Translation::to_word), cycles)
                };
                let answer = ask(&mut unit);
                assert_eq!(ask(&mut again), answer, "{what}: answers follow from the calls");
                if let Some(copy) = &mut copied {
                    assert_eq!(ask(copy), answer, "{what}: a copy answers as the original");
                }
                let held = answer.0.map(Translation::<U::Target>::from_word);
                if let Some(held) = held {
                    let truth = mapped.translation::<U::Target>(asid, size, page);
                    assert_eq!(held.address(va).bits(), truth.address(va).bits(), "{what}: another frame");
                    assert!(held.size() <= size && held.writable() <= truth.writable(), "{what}");
                    assert!(held.stores() <= truth.stores(), "{what}: a dirty bit that is not set");
                    assert!(look_up.is_allowed_by(&held), "{what}: not allowed");
                    hits += 1;
                }
            }
            40..80 => {
                let entry = Entry { asid: Asid(asid), va, translation: mapped.translation(asid, size, page) };
                let arrives = Cycles(now + rng.below(200));
                let distance = 1 + rng.below(7) as FreeDistance;
                let free = FillSource::Free { distance, arrives };
                let source = [FillSource::Walk, FillSource::Eviction, FillSource::Prefetch { arrives }, free];
                let source = source[rng.below(4) as usize];
                for (unit, lines) in [&mut unit, &mut again].into_iter().chain(&mut copied) {
                    unit.fill(&entry, source, lines);
                }
            }
            // A walk sets a dirty bit, which invalidates no entry.
            80..90 => mapped.get(asid, size, page).2 = true,
            90..99 => {
                let pages = page..(page + 1 + rng.below(3)).min(PAGES);
                let (start, end) = (first(size, pages.start), first(size, pages.end));
                for (unit, lines) in [&mut unit, &mut again].into_iter().chain(&mut copied) {
                    unit.invalidate(Asid(asid), start, end, lines);
                }
                for page in pages {
                    mapped.pages.remove(&(asid, size, page));
                    assert!(!unit.0.holds(Asid(asid), first(size, page)), "{what}: it was invalidated");
                }
            }
            _ => {
                for (unit, _) in [&mut unit, &mut again].into_iter().chain(&mut copied) {
                    unit.flush(Asid(asid));
                }
                mapped.pages.retain(|&(other, ..), _| other != asid);
                for (size, page) in PageSize::ALL.into_iter().flat_map(|size| (0..PAGES).map(move |n| (size, n))) {
                    assert!(!unit.0.holds(Asid(asid), first(size, page)), "{what}: its space was flushed");
                }
            }
        }
        if step == steps / 2 {
            copied = Some(unit.clone());
        }
    }
    assert_eq!(unit.0.measures(), again.0.measures(), "{key}");
    hits
}

#[test]
fn every_translation_unit_agrees_with_a_map() {
    struct Torture;
    impl Visitor for Torture {
        fn visit<U: TranslationUnit>(&mut self, key: &str) {
            for parameters in U::samples() {
                let hits = torture::<U>(&parameters, key, cases(40_000));
                assert!(hits > 0, "{key} {parameters:?}: it never hit");
            }
        }
    }
    translation_unit::visit_all(&mut Torture);
}

/// A sample configuration of a unit.
struct Sample {
    set: String,
    statistics: &'static str,
    prefetches: bool,
    counts_look_ups: bool,
}

fn samples() -> Vec<Sample> {
    struct Samples(Vec<Sample>);
    impl Visitor for Samples {
        fn visit<U: TranslationUnit>(&mut self, key: &str) {
            self.0.extend(U::samples().into_iter().map(|parameters| Sample {
                set: format!("{key}={}", serde_json::to_string(&parameters).unwrap()),
                statistics: U::STATISTICS,
                prefetches: U::PREFETCHES,
                counts_look_ups: U::COUNTS_LOOK_UPS,
            }));
        }
    }
    let mut all = Samples(Vec::new());
    translation_unit::visit_all(&mut all);
    all.0
}

#[test]
fn every_translation_unit_has_samples_and_can_be_configured() {
    struct Names(BTreeSet<&'static str>, BTreeSet<String>);
    impl Visitor for Names {
        fn visit<U: TranslationUnit>(&mut self, key: &str) {
            assert!(!U::samples().is_empty(), "{key}");
            assert!(self.0.insert(U::STATISTICS), "{key}: `{}` is another unit's", U::STATISTICS);
            self.1.insert(key.to_owned());
        }
    }
    let mut names = Names(BTreeSet::new(), BTreeSet::new());
    translation_unit::visit_all(&mut names);
    assert_eq!(names.0.len(), translation_unit::DESIGNS.len());
    for (name, text) in translation_unit::DESIGNS {
        assert!(!text.contains('\n'), "{name}");
        assert!(names.1.iter().any(|key| text.contains(key.trim_end_matches(&format!(".{name}")))), "{name}: {text}");
    }
    // `on` means default parameters, and off is the default.
    for name in TlbStagesConfig::DESIGNS.iter().map(|(name, _)| *name) {
        let config = |value: &str| with("radix", &[&format!("machine.tlb.stages.{name}={value}")]).machine.tlb.stages;
        assert!(!config("on").is_off() && config("off") == TlbStagesConfig::default(), "{name}");
    }
    for name in TlbPrefetchConfig::DESIGNS.iter().map(|(name, _)| *name) {
        let config = |value: &str| with("radix", &[&format!("machine.prefetch.tlb.{name}={value}")]);
        assert!(!config("on").machine.prefetch.is_off() && config("off").machine.prefetch.is_off(), "{name}");
    }
}

/// TLBs smaller than a program's working set.
const SMALL_TLBS: [&str; 3] = [
    r#"machine.tlb.l1d=[{"pages":["4K","2M"],"entries":2,"ways":1}]"#,
    r#"machine.tlb.l1i=[{"pages":["4K"],"entries":1,"ways":1}]"#,
    r#"machine.tlb.l2=[{"pages":["4K","2M"],"entries":4,"ways":2}]"#,
];

const KHUGEPAGED: &str =
    r#"kernel.threads.khugepaged={"scan_sleep_cycles":20000,"pages_to_scan":4096,"max_ptes_none":511}"#;

/// Systems with a unit: guests; large pages that are created and split; pages that are evicted. The first one is plain.
fn systems(unit: &Sample) -> Vec<Config> {
    let set = |more: &[&'static str]| -> Vec<String> {
        SMALL_TLBS.iter().chain(more).map(|&set| set.to_owned()).chain([unit.set.clone()]).collect()
    };
    let with = |name: &str, more: &[&'static str]| {
        let set = set(more);
        with(name, &set.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mut all = vec![
        with("radix", &[]),
        with("radix-thp", &[KHUGEPAGED]),
        with("radix", &SHORT_OF_MEMORY),
        with("radix", &["machine.tlb.l2=[]"]),
        with("nested-radix-cold", &[]),
        with("nested-radix-cold", &SHORT_OF_MEMORY),
        with("nested-radix-2m-cold", &[]),
    ];
    // Prefetchers reject tables that the hardware walker does not read.
    if !unit.prefetches {
        all.push(with("nested-radix-shadow", &[]));
    }
    all
}

/// The systems of all units.
pub fn all_systems() -> Vec<Config> {
    samples().iter().flat_map(systems).collect()
}

#[test]
fn every_translation_unit_translates_right_in_guests_and_hosts_under_every_page_table() {
    for unit in samples() {
        let hits = AtomicU64::new(0);
        let note = |counts: &BTreeMap<String, u64>| {
            let count = |name: &str| counts.get(&format!("{}.{name}", unit.statistics)).copied().unwrap_or(0);
            let used = match unit.counts_look_ups {
                true => count("look_ups") - count("misses"),
                false => ["useful", "late", "free.useful", "free.late"].map(count).iter().sum(),
            };
            hits.fetch_add(used, Ordering::Relaxed);
        };
        let systems = systems(&unit);
        let all: Vec<Config> = with_each_page_table(systems[0].clone()).chain(systems[1..].iter().cloned()).collect();
        on_two_threads(&all, |config| note(&check(config, 5)));
        if unit.prefetches {
            // Random programs seldom do what a prefetcher expects.
            note(&run_workload(&systems[0], "stride:size=1MiB,stride=4KiB,passes=2").values);
        }
        assert!(hits.into_inner() > 0, "{}: no program ever used it", unit.set);
    }
}
