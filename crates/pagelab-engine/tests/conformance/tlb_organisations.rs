//! Tests every registered organisation of TLB arrays: against a map, and in programs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use pagelab_engine::base::addr::{MachineAddr, PageSize, VirtAddr};
use pagelab_engine::base::assoc::AssocPolicy;
use pagelab_engine::base::page_fault::Origin;
use pagelab_engine::base::rng::Rng;
use pagelab_engine::base::translation::Translation;
use pagelab_engine::config::Config;
use pagelab_engine::mmu_cache::Asid;
use pagelab_engine::translate::config::TlbArrayConfig;
use pagelab_engine::translate::tlb::Tlb;
use pagelab_engine::translate::tlb_organisation::{self, Run, TlbOrganisationConfig};
use pagelab_trace::{case_seed, cases};

use super::{SHORT_OF_MEMORY, check, with};
use crate::common::{on_two_threads, with_each_page_table};

/// Pages of a space: some groups of eight, and a large page.
const PAGES: u64 = 64;
const FIRST_PAGE: u64 = 0x7f_0000_0000;
const LARGE_PAGE: VirtAddr = VirtAddr(0x7e00_0000_0000);

/// What is mapped: runs of frames with breaks, permissions and dirty bits.
struct Mapped {
    pages: BTreeMap<(u16, u64), (u64, bool, bool)>,
    rng: Rng,
}

impl Mapped {
    /// Maps a page behind the one before it in memory, or elsewhere.
    fn get(&mut self, asid: u16, page: u64) -> (u64, bool, bool) {
        let before = page.checked_sub(1).and_then(|before| self.pages.get(&(asid, before)).copied());
        let after = self.pages.get(&(asid, page + 1)).copied();
        let (rng, pages) = (&mut self.rng, &mut self.pages);
        *pages.entry((asid, page)).or_insert_with(|| {
            let (near, elsewhere) = (rng.below(8), 8 + rng.below(1 << 20));
            match (before, after) {
                (Some((frame, writable, dirty)), _) if near > 0 => (frame + 1, writable, dirty),
                (_, Some((frame, writable, dirty))) if near > 0 => (frame - 1, writable, dirty),
                _ => (elsewhere * 16 + page, near != 3, near > 4),
            }
        })
    }

    fn translation(&mut self, asid: u16, page: u64) -> Translation {
        let (frame, writable, dirty) = self.get(asid, page);
        Translation::new(MachineAddr(frame << 12), PageSize::Size4K, writable, dirty && writable)
    }

    /// The run of a page, of which a walk knows a part.
    fn run(&mut self, asid: u16, page: u64) -> Run {
        let (frame, writable, _) = self.get(asid, page);
        let mut run = Run::ALONE;
        for other in page & !7..(page & !7) + 8 {
            let distance = other as i64 - page as i64;
            let Some(&(at, may, dirty)) = self.pages.get(&(asid, other)) else { continue };
            if distance != 0 && at as i64 - frame as i64 == distance && may == writable && self.rng.below(4) > 0 {
                run.add(distance, dirty);
            }
        }
        run
    }
}

fn va(page: u64) -> VirtAddr {
    VirtAddr((FIRST_PAGE + page) << 12)
}

/// A level of these arrays: pages, organisation, entries and ways.
fn try_level(arrays: &[(&[PageSize], &TlbOrganisationConfig, u32, u32)], policy: AssocPolicy) -> Option<Tlb> {
    let config = |&(pages, organisation, entries, ways): &(&[PageSize], &TlbOrganisationConfig, u32, u32)| {
        TlbArrayConfig { pages: pages.to_vec(), entries, ways, policy, organisation: organisation.clone() }
    };
    Tlb::new("machine.tlb.l2", &arrays.iter().map(config).collect::<Vec<_>>(), &Rng::new(1, "level")).ok()
}

const BOTH: &[PageSize] = &[PageSize::Size4K, PageSize::Size2M];

/// Ways of an array with this organisation: as many as asked for, or all, if it must be fully associative.
fn ways(organisation: &TlbOrganisationConfig, entries: u32, ways: u32) -> u32 {
    let fits = try_level(&[(BOTH, organisation, entries, ways)], AssocPolicy::Lru).is_some();
    if fits { ways } else { entries }
}

/// A level with this organisation in an array for small and large pages.
fn level(organisation: &TlbOrganisationConfig, (entries, at_best): (u32, u32), policy: AssocPolicy) -> Tlb {
    let ways = ways(organisation, entries, at_best);
    try_level(&[(BOTH, organisation, entries, ways)], policy).expect("every array can be fully associative")
}

/// Levels with this organisation in the array for large pages, beside small pages in other organisations: if that is
/// possible.
fn levels_for_runs(organisation: &TlbOrganisationConfig, policy: AssocPolicy) -> Vec<Tlb> {
    let (small, large) = (&[PageSize::Size4K], &[PageSize::Size2M]);
    let samples = TlbOrganisationConfig::samples();
    let levels = samples
        .iter()
        .filter_map(|first| try_level(&[(small, first, 8, ways(first, 8, 2)), (large, organisation, 4, 4)], policy));
    if organisation.is_of_pages() { Vec::new() } else { levels.collect() }
}

const SHAPES: [(u32, u32); 5] = [(1, 1), (4, 2), (12, 12), (24, 4), (4096, 4)];

/// Random operations on levels and on a map; all levels must answer what the first does if `alike`. Returns hits.
fn torture(levels: &mut [Tlb], alike: bool, what: &str, steps: u64) -> u64 {
    let mut mapped = Mapped { pages: BTreeMap::new(), rng: Rng::new(case_seed(7), what) };
    let (mut rng, mut hits) = (Rng::new(case_seed(8), what), 0);
    for step in 0..steps {
        let (asid, page) = (1 + rng.below(2) as u16, (step / 256 + rng.below(12)) % PAGES);
        let what = format!("{what}: step {step}, page {page} of space {asid}");
        match rng.below(100) {
            0..45 => {
                let at = VirtAddr(va(page).0 + rng.below(4096));
                let held: Vec<_> =
                    levels.iter_mut().map(|level| level.look_up(Asid(asid), at, Origin::Program)).collect();
                assert!(!alike || held.iter().all(|other| *other == held[0]), "{what}: {held:?}");
                for held in held.into_iter().flatten() {
                    let truth = mapped.translation(asid, page);
                    assert_eq!((held.page(), held.size()), (truth.page(), truth.size()), "{what}");
                    assert!(held.writable() <= truth.writable() && held.stores() <= truth.stores(), "{what}");
                    hits += 1;
                }
            }
            45..80 => {
                let (translation, run) = (mapped.translation(asid, page), mapped.run(asid, page));
                for level in levels.iter_mut() {
                    let missed = level.look_up(Asid(asid), va(page), Origin::Program).is_none();
                    let evicted = level.insert(Asid(asid), va(page), translation, run, Origin::Program, missed);
                    let more = level.take_evicted();
                    assert!(evicted.is_some() || more.is_empty(), "{what}");
                    for entry in evicted.into_iter().chain(more) {
                        assert!(!level.holds(entry.asid, entry.va), "{what}: {entry:?} was evicted");
                        if entry.translation.size() == PageSize::Size4K {
                            let truth = mapped.translation(entry.asid.0, (entry.va.0 >> 12) - FIRST_PAGE);
                            assert_eq!(entry.translation.page(), truth.page(), "{what}");
                        }
                    }
                    let held = level.look_up(Asid(asid), va(page), Origin::Program);
                    assert_eq!(held, Some(translation), "{what}: it has just been inserted");
                }
            }
            // A walk sets a dirty bit, which invalidates no entry.
            80..88 => {
                mapped.get(asid, page);
                mapped.pages.get_mut(&(asid, page)).expect("it is mapped").2 = true;
            }
            88..90 => {
                let translation = Translation::new(MachineAddr(1 << 32), PageSize::Size2M, true, true);
                for level in levels.iter_mut() {
                    level.insert(Asid(asid), LARGE_PAGE, translation, Run::ALONE, Origin::Program, false);
                }
            }
            90..98 => {
                let pages = page..page + 1 + [rng.below(3), rng.below(40)][rng.below(2) as usize];
                for level in levels.iter_mut() {
                    level.invalidate(Asid(asid), va(pages.start), va(pages.end));
                }
                for page in pages {
                    mapped.pages.remove(&(asid, page));
                    assert!(levels.iter().all(|level| !level.holds(Asid(asid), va(page))), "{what}: dropped");
                }
            }
            _ => {
                levels.iter_mut().for_each(|level| level.flush(Asid(asid)));
                mapped.pages.retain(|&(other, _), _| other != asid);
                let held = |page| levels.iter().any(|level| level.holds(Asid(asid), va(page)));
                assert!(!(0..2 * PAGES).any(held), "{what}: its space was flushed");
            }
        }
    }
    hits
}

#[test]
fn every_tlb_organisation_agrees_with_a_map() {
    for organisation in TlbOrganisationConfig::samples() {
        for policy in [AssocPolicy::Lru, AssocPolicy::TreePlru, AssocPolicy::Random] {
            // A tree has at most 64 ways.
            let is_possible = |&(entries, at_best): &(u32, u32)| {
                policy != AssocPolicy::TreePlru || ways(&organisation, entries, at_best) <= 64
            };
            let levels = SHAPES.into_iter().filter(is_possible).map(|shape| level(&organisation, shape, policy));
            for (number, level) in levels.chain(levels_for_runs(&organisation, policy)).enumerate() {
                let what = format!("{organisation:?} {policy:?}, level {number}");
                let hits = torture(&mut [level], false, &what, cases(4000));
                assert!(hits > 0, "{what}: it never hit");
            }
        }
    }
}

#[test]
fn entries_of_one_page_are_what_they_are_without_an_organisation() {
    let one: TlbOrganisationConfig =
        serde_json::from_str(r#"{"model":"coalesced","pages":1}"#).expect("it is possible");
    for policy in [AssocPolicy::Lru, AssocPolicy::TreePlru, AssocPolicy::Random] {
        for shape in SHAPES {
            let levels =
                [&TlbOrganisationConfig::default(), &one].map(|organisation| level(organisation, shape, policy));
            torture(&mut levels.clone(), true, &format!("{shape:?} {policy:?}"), cases(10_000));
        }
    }
}

/// TLBs smaller than a program's working set.
fn small(organisation: &TlbOrganisationConfig) -> [String; 3] {
    [("l1d", 2, 1), ("l1i", 1, 1), ("l2", 4, 2)].map(|(name, entries, at_best)| {
        let ways = ways(organisation, entries, at_best);
        let organisation = serde_json::to_string(organisation).expect("parameters serialise");
        format!(
            r#"machine.tlb.{name}=[{{"pages":["4K","2M"],"entries":{entries},"ways":{ways},"organisation":{organisation}}}]"#
        )
    })
}

const KHUGEPAGED: &str =
    r#"kernel.threads.khugepaged={"scan_sleep_cycles":20000,"pages_to_scan":4096,"max_ptes_none":511}"#;

/// Systems with an organisation: guests; large pages that are created and split; pages that are evicted. The first one
/// is plain.
fn systems(organisation: &TlbOrganisationConfig) -> Vec<Config> {
    let small = small(organisation);
    let with = |name: &str, more: &[&str]| {
        let set: Vec<&str> = small.iter().map(String::as_str).chain(more.iter().copied()).collect();
        with(name, &set)
    };
    let mut all = vec![
        with("radix", &[]),
        with("radix-thp", &[KHUGEPAGED]),
        with("radix-mthp32k", &[]),
        with("radix-mthp32k", &SHORT_OF_MEMORY),
        with("radix", &["machine.tlb.stages.victim=on"]),
        with("nested-radix-cold", &[]),
        with("nested-radix-cold", &SHORT_OF_MEMORY),
        with("nested-radix-2m-cold", &[]),
        with("nested-radix-mthp32k", &[]),
    ];
    if !levels_for_runs(organisation, AssocPolicy::Lru).is_empty() {
        let organisation = serde_json::to_string(organisation).expect("parameters serialise");
        let first = format!(
            r#"machine.tlb.l1d=[{{"pages":["4K"],"entries":4,"ways":2}},{{"pages":["2M"],"entries":2,"ways":2,"organisation":{organisation}}}]"#
        );
        let systems = ["radix-thp", "radix-mthp32k", "nested-radix-mthp32k"];
        all.extend(systems.map(|name| with(name, &[first.as_str(), KHUGEPAGED])));
    }
    all
}

/// The systems of all organisations.
pub fn all_systems() -> Vec<Config> {
    TlbOrganisationConfig::samples().iter().flat_map(systems).chain(size_predictions()).collect()
}

/// Systems whose second level predicts the sizes of pages, with one counter and with many.
fn size_predictions() -> Vec<Config> {
    let set = |counters: u32| format!(r#"machine.tlb.size_prediction={{"counters":{counters}}}"#);
    let systems = ["radix-thp", "hashed-compact-thp", "nested-radix-2m-cold"].into_iter();
    let shared = r#"machine.tlb.l2=[{"pages":["4K","2M"],"entries":8,"ways":2}]"#;
    systems.flat_map(|system| [1, 128].map(|counters| with(system, &[shared, &set(counters)]))).collect()
}

#[test]
fn a_prediction_of_page_sizes_changes_no_translation() {
    // Few random programs come back to a large page before it is evicted: hits are in `tests/machine`.
    const OUTCOMES: [&str; 2] = ["missed", "single"];
    let sums = OUTCOMES.map(|_| AtomicU64::new(0));
    on_two_threads(&size_predictions(), |config| {
        let counts = check(config, 4);
        for (sum, outcome) in sums.iter().zip(OUTCOMES) {
            sum.fetch_add(counts[&format!("tlb.size_prediction.{outcome}")], Ordering::Relaxed);
        }
    });
    let sums = sums.map(AtomicU64::into_inner);
    assert!(sums.iter().all(|&sum| sum > 0), "{OUTCOMES:?}: {sums:?}");
}

#[test]
fn every_tlb_organisation_translates_right_in_guests_and_hosts_under_every_page_table() {
    for organisation in TlbOrganisationConfig::samples().iter().filter(|organisation| !organisation.is_of_pages()) {
        let (fills, pages) = (AtomicU64::new(0), AtomicU64::new(0));
        let systems = systems(organisation);
        let all: Vec<Config> = with_each_page_table(systems[0].clone()).chain(systems[1..].iter().cloned()).collect();
        on_two_threads(&all, |config| {
            let counts = check(config, 4);
            let sum = |what: &str| {
                let counted = counts.iter().filter(|(name, _)| name.starts_with("tlb.l") && name.ends_with(what));
                counted.map(|(_, value)| value).sum::<u64>()
            };
            fills.fetch_add(sum(".fills"), Ordering::Relaxed);
            pages.fetch_add(sum(".filled_pages"), Ordering::Relaxed);
        });
        let (fills, pages) = (fills.into_inner(), pages.into_inner());
        let is_plain = serde_json::to_value(organisation).unwrap()["pages"] == 1;
        assert!(fills > 0 && (pages > fills) != is_plain, "{organisation:?}: {pages} pages in {fills} entries");
    }
}

#[test]
fn every_tlb_organisation_has_samples_and_a_description() {
    let sampled: BTreeSet<_> = TlbOrganisationConfig::samples().iter().map(TlbOrganisationConfig::name).collect();
    assert_eq!(sampled, tlb_organisation::DESIGNS.iter().map(|(name, _)| *name).collect());
    assert!(TlbOrganisationConfig::default().is_of_pages());
    assert!(tlb_organisation::DESIGNS.iter().all(|(_, text)| !text.contains('\n')));
}
