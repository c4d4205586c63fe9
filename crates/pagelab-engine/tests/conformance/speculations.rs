//! Tests every registered speculation: in storms of calls, and in programs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use pagelab_engine::base::addr::{MachineAddr, PageSize, VirtAddr};
use pagelab_engine::base::hash_tiers::{HashDomain, MOST_TIERS};
use pagelab_engine::base::page_fault::Intent;
use pagelab_engine::base::rng::Rng;
use pagelab_engine::base::translation::Translation;
use pagelab_engine::config::Config;
use pagelab_engine::core_model::CoreConfig;
use pagelab_engine::kernel::placement::PlacementConfig;
use pagelab_engine::mmu_cache::Asid;
use pagelab_engine::translate::speculation::{self, AnySpeculation, FoundPage, MissedAccess, SpeculationConfig};
use pagelab_trace::{case_seed, cases};

use super::{SHORT_OF_MEMORY, check, with};
use crate::common::{on_two_threads, with_each_page_table};

const FIRST_PAGE: u64 = 0x7f_0000_0000;
const PAGES: u64 = 48;

fn missed(rng: &mut Rng) -> MissedAccess {
    let (page, pc) = (FIRST_PAGE + rng.below(PAGES), [0, 0x40_1000, 0x40_1004, 0x40_1010][rng.below(4) as usize]);
    let intent = [Intent::Load, Intent::Store][rng.below(2) as usize];
    let (asid, va) = (Asid(1 + rng.below(2) as u16), VirtAddr(page << 12 | rng.below(4096)));
    // Among the frames of the first distance below.
    let domain = HashDomain { process: asid.0.into(), first: 0x1000, frames: PAGES };
    MissedAccess { asid, va, pc, intent, domain }
}

/// Random calls of a design. Returns how often it guessed right.
fn torture(config: &SpeculationConfig, steps: u64) -> u64 {
    let unit = || AnySpeculation::new(config, SpeculationConfig::KEY, &Rng::new(3, "unit")).unwrap();
    let (mut unit, mut again, mut copied) = (unit(), unit(), None::<AnySpeculation>);
    let (mut rng, mut right) = (Rng::new(case_seed(5), config.name()), 0);
    for step in 0..steps {
        let miss = missed(&mut rng);
        let what = format!("{config:?}: step {step}, {miss:?}");
        let (units, asid) = ([Some(&mut unit), Some(&mut again), copied.as_mut()], miss.asid);
        match rng.below(100) {
            0..90 => {
                // Runs at a distance that changes now and then, with pages elsewhere.
                let distance =
                    [0x1000, 0x2000 + step / 4000 * 64, rng.below(64)][rng.below(12).saturating_sub(9) as usize];
                let size = if rng.below(40) > 0 { PageSize::Size4K } else { PageSize::Size2M };
                let frame = MachineAddr((miss.page() - FIRST_PAGE + distance) << 12 & !size.offset_mask());
                let found = FoundPage {
                    translation: Translation::new(frame, size, rng.below(8) > 0, true),
                    is_in_run: rng.below(8) > 0,
                };
                let guesses: Vec<_> = units
                    .into_iter()
                    .flatten()
                    .map(|unit| {
                        let guess = unit.guess(&miss);
                        assert_eq!(unit.guess(&miss), guess, "{what}: a guess changes nothing");
                        unit.learn(&miss, &found);
                        guess
                    })
                    .collect();
                assert!(guesses.iter().all(|guess| *guess == guesses[0]), "{what}: {guesses:?} follow from the calls");
                right += u64::from(guesses[0].frames().contains(&found.frame(&miss)));
            }
            90..98 => {
                let end = VirtAddr(miss.va.0 + ([1, 20][rng.below(2) as usize] << 12));
                for unit in units.into_iter().flatten() {
                    unit.invalidate(asid, miss.va, end);
                    assert!(!unit.keeps_pages() || unit.guess(&miss).is_none(), "{what}: it was invalidated");
                }
            }
            _ => {
                for unit in units.into_iter().flatten() {
                    unit.flush(asid);
                    for page in 0..2 * PAGES {
                        let of_space = MissedAccess { va: VirtAddr((FIRST_PAGE + page) << 12), ..miss };
                        let is_flushed = !unit.keeps_spaces() || unit.guess(&of_space).is_none();
                        assert!(is_flushed, "{what}: its space was flushed");
                    }
                }
            }
        }
        if step == steps / 2 {
            copied = Some(unit.clone());
        }
    }
    right
}

#[test]
fn every_speculation_follows_its_calls_and_forgets() {
    for config in SpeculationConfig::samples() {
        let right = torture(&config, cases(8000));
        assert!(right > 0 || config.is_off(), "{config:?}: it was never right");
    }
}

/// TLBs smaller than a program's working set.
const SMALL: [&str; 3] = [
    r#"machine.tlb.l1d=[{"pages":["4K","2M"],"entries":2,"ways":1}]"#,
    r#"machine.tlb.l1i=[{"pages":["4K","2M"],"entries":1,"ways":1}]"#,
    r#"machine.tlb.l2=[{"pages":["4K","2M"],"entries":4,"ways":2}]"#,
];

const KHUGEPAGED: &str =
    r#"kernel.threads.khugepaged={"scan_sleep_cycles":20000,"pages_to_scan":4096,"max_ptes_none":511}"#;

/// Systems with a speculation: guests; cores; large pages that are created and split; pages that are evicted.
fn systems(speculation: &SpeculationConfig) -> Vec<Config> {
    let with = |name: &str, more: &[&str]| {
        let set: Vec<&str> = SMALL.into_iter().chain(more.iter().copied()).collect();
        let mut config = with(name, &set);
        config.machine.tlb.speculation = speculation.clone();
        config
    };
    let mut all = vec![
        with("radix-thp", &[KHUGEPAGED]),
        with("radix-mthp32k", &SHORT_OF_MEMORY),
        with("radix-ptemagnet", &["machine.tlb.stages.victim=on"]),
        with("radix-ca-paging", &["machine.prefetch.tlb.next_page=on", "machine.prefetch.l2.stream=on"]),
        with("nested-radix-cold", &SHORT_OF_MEMORY),
        with("nested-radix-2m-cold", &[]),
        with("nested-radix-ptemagnet", &[]),
    ];
    all.extend(CoreConfig::samples().into_iter().map(|core| {
        let mut config = with("radix-mthp32k", &[]);
        config.machine.core = core;
        config
    }));
    all.into_iter().filter_map(|config| suited(config, speculation)).collect()
}

/// A system in which a speculation is possible: one by hash needs a kernel that places pages by it, and no guests.
fn suited(mut config: Config, speculation: &SpeculationConfig) -> Option<Config> {
    if !speculation.is_by_hash() {
        return Some(config);
    }
    for layer in &mut config.system.layers {
        layer.placement = PlacementConfig::HashTiers(Default::default());
        layer.folios.clear();
    }
    config.system.layers.iter().all(|layer| layer.host.is_none()).then_some(config)
}

/// Systems with a speculation and each page table.
fn under_each_page_table(speculation: &SpeculationConfig) -> impl Iterator<Item = Config> {
    let mut config = with("radix", &SMALL);
    config.machine.tlb.speculation = speculation.clone();
    with_each_page_table(suited(config, speculation).expect("it has no guests"))
}

/// The systems of all speculations.
pub fn all_systems() -> Vec<Config> {
    SpeculationConfig::samples().iter().filter(|config| !config.is_off()).flat_map(systems).collect()
}

#[test]
fn every_speculation_is_judged_in_guests_and_hosts_under_every_page_table() {
    let all = Mutex::new(BTreeMap::new());
    // Of a design, not of each sample: random programs hardly have what a sample may ask for, such as long runs.
    let mut guesses_of = BTreeMap::new();
    for speculation in SpeculationConfig::samples().iter().filter(|config| !config.is_off()) {
        let guesses = AtomicU64::new(0);
        let all_systems: Vec<Config> =
            systems(speculation).into_iter().chain(under_each_page_table(speculation)).collect();
        on_two_threads(&all_systems, |config| {
            let counts = check(config, 2);
            let count = |what: &str| counts[&format!("tlb.speculation.{what}")];
            guesses.fetch_add(count("right") + count("wrong"), Ordering::Relaxed);
            // What does not end in a fault is a walk of an access that missed, counted once.
            let misses = counts["dtlb.l2.misses"] + counts["dtlb.l2.retries"];
            assert!(count("right") + count("wrong") + count("none") <= misses, "{speculation:?}");
            assert!(count("hidden_walks") <= count("right"));
            let lines = if speculation.fetches() { u64::from(MOST_TIERS) } else { 1 };
            let fetches = count("wrong") + count("faulted") + if lines > 1 { count("right") } else { 0 };
            assert!(count("wrong_lines") <= lines * fetches);
            for (name, value) in counts.iter().filter(|(name, _)| name.starts_with("tlb.speculation.")) {
                *all.lock().unwrap().entry(name.clone()).or_insert(0) += value;
            }
        });
        *guesses_of.entry(speculation.name()).or_insert(0) += guesses.into_inner();
    }
    assert!(guesses_of.values().all(|&guesses| guesses > 0), "{guesses_of:?}");
    let all = all.into_inner().unwrap();
    assert!(all.len() > 9 && all.values().all(|&value| value > 0), "{all:?}");
}

#[test]
fn every_speculation_has_samples_and_a_description() {
    let sampled: BTreeSet<_> = SpeculationConfig::samples().iter().map(SpeculationConfig::name).collect();
    assert_eq!(sampled, speculation::DESIGNS.iter().map(|(name, _)| *name).collect());
    for config in SpeculationConfig::samples() {
        config.validate(SpeculationConfig::KEY).unwrap();
        let written = serde_json::to_value(&config).unwrap();
        assert_eq!(serde_json::from_value::<SpeculationConfig>(written).unwrap(), config);
    }
    assert!(SpeculationConfig::default().is_off());
    assert!(speculation::DESIGNS.iter().all(|(_, text)| !text.contains('\n')));
}
