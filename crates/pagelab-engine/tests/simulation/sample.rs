//! Sampled replay: faults and mappings are those of the whole source, whatever the windows are.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::common::{ScriptWriter, config, run};
use pagelab_engine::run::{Request, run as run_request};
use pagelab_trace::{AccessKind, EventKind, ProcessIx, sample};
use proptest::prelude::*;

const PAGE: u64 = 4096;
const BASE: u64 = 0x7000_0000_0000;
const PAGES: u64 = 1024;

/// Two processes that touch pages repeatedly, and change their mappings in between.
fn script(acts: &[(u8, u64, u64)]) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, PAGES * PAGE);
    let (mut children, mut live) = (0, vec![0]);
    for &(what, page, len) in acts {
        let thread = live[page as usize % live.len()];
        let (addr, bytes) = (BASE + page * PAGE, len.min(PAGES - page) * PAGE);
        match what {
            0 => script.event(thread, EventKind::Madvise { addr, len: bytes, advice: 4 }),
            1 => {
                script.event(thread, EventKind::Munmap { addr, len: bytes });
                script.mmap(thread, addr, bytes);
            }
            2 if children < 3 => {
                children += 1;
                script.event(thread, EventKind::Fork { child: ProcessIx(children) });
                live.push(script.thread(children));
            }
            _ => {
                for n in 0..8 * len {
                    let kind = if (n + page).is_multiple_of(3) { AccessKind::Store } else { AccessKind::Load };
                    script.access(thread, kind, BASE + (page + n * 7 % len) % PAGES * PAGE + n % 512 * 8);
                }
            }
        }
    }
    script
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(pagelab_trace::cases(24)))]

    #[test]
    fn faults_of_the_whole_program_are_exact(
        acts in prop::collection::vec((0_u8..10, 0..PAGES, 1_u64..60), 10..40),
        every in 50_u64..900,
        share in 1_u64..9,
        thp in any::<bool>(),
    ) {
        let system = if thp { "radix-thp" } else { "radix" };
        let whole = run(&config(system, &[]), script(&acts).finish(), &[0]).1;
        let sample = format!("engine.sample=every={every},length={},warm={}", (every * share / 20).max(1), every / 5);
        let (simulation, end) = run(&config(system, &[&sample]), script(&acts).finish(), &[0]);
        for name in ["fault.minor.count", "fault.copy.count", "fault.reuse.count", "fault.zero_page.count", "mapping.calls"] {
            prop_assert_eq!(end.values[name], whole.values[name], "{}", name);
        }
        prop_assert!(simulation.observers.windows.has_stretches());
        if simulation.observers.windows.has_begun() {
            let counted = simulation.observers.windows.counted(&end);
            prop_assert_eq!(counted.values["program.fault.minor.count"], whole.values["fault.minor.count"]);
            prop_assert!(counted.values["instructions"] <= whole.values["instructions"]);
        }
    }
}

fn request(sources: &[&str], sample: &str) -> Request {
    Request {
        sources: sources.iter().map(|&source| source.to_owned()).collect(),
        systems: vec!["radix".to_owned()],
        sample: Some(sample.to_owned()),
        ..Request::default()
    }
}

fn refusal(request: &Request) -> String {
    run_request(request, &|_| true).map(|_| ()).expect_err("it was run").to_string()
}

const GUPS: &str = "gups:size=16MiB,updates=200K";

#[test]
fn a_sample_says_which_windows_it_has_and_rates_are_those_of_the_whole() {
    let sampled = run_request(&request(&[GUPS], "every=20K,length=2K,warm=2K"), &|_| true).unwrap();
    let whole = run_request(&Request { sample: None, ..request(&[GUPS], "off") }, &|_| true).unwrap();
    let (sampled, whole) = (&sampled.results[0], &whole.results[0]);
    let sample = sampled.sample.as_ref().unwrap();
    assert!(whole.sample.is_none());
    assert!(sample.offset <= 18_000);
    let windows = whole.stats["instructions"].div_ceil(20_000) as usize;
    assert!((windows - 1..=windows).contains(&sampled.windows.len()), "{}", sampled.windows.len());
    assert_eq!(sample.longer, (0..sampled.windows.len()).filter(|n| n % 8 == 4).collect::<Vec<_>>());
    assert_eq!(sampled.config.engine.sample.to_string(), "every=20000,length=2000,warm=2000");
    let lengths: BTreeMap<u64, usize> = sampled.windows.iter().fold(BTreeMap::new(), |mut lengths, window| {
        *lengths.entry(window["instructions"]).or_default() += 1;
        lengths
    });
    // An access has a few instructions, and the program ends at most within the last window.
    assert!(lengths.keys().filter(|length| !(1990..=2010).contains(*length)).count() <= 1, "{lengths:?}");
    let rate = |stats: &BTreeMap<String, u64>| stats["dtlb.l2.misses"] as f64 / stats["instructions"] as f64;
    let late: BTreeMap<String, u64> =
        sampled.windows[sampled.windows.len() / 2..].iter().fold(BTreeMap::new(), |mut sum, window| {
            window.iter().for_each(|(name, value)| *sum.entry(name.clone()).or_default() += value);
            sum
        });
    assert!((rate(&late) / rate(&whole.stats) - 1.0).abs() < 0.2, "{} {}", rate(&late), rate(&whole.stats));
}

#[test]
fn the_seed_places_the_windows_and_an_offset_does() {
    let offset = |sample: &str, seed| {
        let request = Request { seed: Some(seed), ..request(&[GUPS], sample) };
        run_request(&request, &|_| true).unwrap().results[0].sample.as_ref().unwrap().offset
    };
    assert_ne!(offset("every=20K,length=2K", 1), offset("every=20K,length=2K", 2));
    assert_eq!(offset("every=20K,length=2K", 1), offset("every=20K,length=2K", 1));
    assert_eq!(offset("every=20K,length=2K,offset=77", 2), 77);
}

/// Two processes alternate, 1000 accesses each, on two CPUs: 200 to new pages, then as many to old ones as there are
/// remaining pages.
fn two_by_turns() -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, PAGES * PAGE);
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    for turn in 0..8 {
        for n in 0..1000 {
            let page = if n < 100 { turn * 100 + n } else { turn * 100 };
            script.access([0, child][turn as usize % 2], AccessKind::Store, BASE + page % PAGES * PAGE + n % 8 * 64);
        }
    }
    script
}

#[test]
fn a_window_has_what_lies_in_it_of_all_processes() {
    let instructions: Vec<u64> = (0..8).map(|turn| turn * 1000).collect();
    for begin in instructions {
        let sample = format!("engine.sample=every=100K,length=1000,offset={begin}");
        let (simulation, end) = run(&config("radix", &[&sample]), two_by_turns().finish(), &[0, 1]);
        let counted = simulation.observers.windows.counted(&end);
        let faults = counted.values["fault.minor.count"];
        assert!((99..=101).contains(&faults), "{faults} in the window at {begin}");
        assert_eq!(counted.values["cycles.idle"], 0, "nobody waits for the other's window");
    }
}

#[test]
fn a_saved_sample_gives_what_the_sample_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.trace");
    let text = "every=20K,length=2K,warm=2K";
    let saved =
        sample::save(GUPS, &path, Some(text.parse().unwrap()), 1, None, None, &mut |_, _| ControlFlow::Continue(()));
    let saved = saved.unwrap();
    assert_eq!((saved.read, saved.stretches.windows), (400_000, 60));
    let path = path.to_str().unwrap();
    let of_saved = run_request(&Request { sample: None, ..request(&[path], "off") }, &|_| true).unwrap();
    let of_sample = run_request(&request(&[GUPS], text), &|_| true).unwrap();
    let (saved, sampled) = (&of_saved.results[0], &of_sample.results[0]);
    assert_eq!((&saved.stats, &saved.windows), (&sampled.stats, &sampled.windows));
    let [saved, sampled] = [saved, sampled].map(|result| result.sample.as_ref().unwrap());
    assert_eq!((saved.offset, &saved.longer), (sampled.offset, &sampled.longer));
    let twice = refusal(&request(&[path], text));
    assert!(twice.contains("stretches of it were skipped"), "{twice}");
}

#[test]
fn a_failed_save_leaves_no_sample() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.trace");
    let text = "every=20K,length=2K";
    let save = |source: &str, go_on| {
        let flow = if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        sample::save(source, &path, Some(text.parse().unwrap()), 1, None, None, &mut |_, _| flow)
            .map(|saved| saved.accesses)
    };
    assert!(save(GUPS, false).unwrap_err().to_string().contains("interrupted"));
    assert!(!path.exists());
    assert!(save("nonsense:size=1", true).is_err());
    assert!(!path.exists());
    let accesses = save(GUPS, true).unwrap();
    assert!(save(GUPS, true).unwrap_err().to_string().contains("not empty"));
    assert!(accesses > 0 && path.join("trace.json").exists());
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let sample = "every=20K,length=2K";
    let one = || request(&[GUPS], sample);
    for (request, what) in [
        (request(&[GUPS, GUPS], sample), "replay only one source"),
        (Request { with: vec![GUPS.to_owned()], ..one() }, "replay only one source"),
        (Request { warm_up: Some(5), ..one() }, "set warm= in the sample"),
        (Request { windows: Some(5), ..one() }, "omit other windows"),
        (Request { page_faults: true, ..one() }, "fault trace of the whole source"),
        (request(&[GUPS], "auto").tap(|request| request.max_accesses = Some(1000)), "1000 accesses are too few"),
        (request(&[GUPS], "every=1K,length=2K"), "longer than its period"),
        (request(&[GUPS], "every=1K"), "length is missing"),
        (request(&[GUPS], "every=1K,length=10,seed=4"), "`seed` is not known here"),
        (request(&[GUPS], "every=1K,length=10,offset=random"), "must be a count"),
        (request(&[GUPS], "every=1G,length=1K,offset=500M"), "nothing can be measured"),
    ] {
        let refusal = refusal(&request);
        assert!(refusal.contains(what), "{refusal}");
    }
}

trait Tap: Sized {
    fn tap(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Tap for Request {}

#[test]
fn fault_costs_cover_the_whole_program() {
    let result = |sample: Option<&str>| {
        let request = Request { sample: sample.map(str::to_owned), profile: true, ..request(&[GUPS], "off") };
        run_request(&request, &|_| true).unwrap().results.remove(0)
    };
    let (whole, sampled) = (result(None), result(Some("every=20K,length=2K,warm=1K")));
    let layer = &whole.sources[0].layer;
    let zeroed = format!("layer.{layer}.fault.zeroed_bytes");
    assert_eq!(sampled.stats[&format!("program.{zeroed}")], whole.stats[&zeroed]);
    // Almost equal: after a skipped stretch caches contain other lines.
    let (taken, exact) = (sampled.stats["program.cycles.fault"], whole.stats["cycles.fault"]);
    assert!(taken.abs_diff(exact) * 20 < exact, "{taken} {exact}");
    assert!(sampled.stats["cycles.fault"] * 2 < taken);
    // The profile contains them by place, except those before the first stretch.
    let regions = sampled.profile.unwrap().regions;
    let faults: u64 = regions.rows.iter().map(|row| row.cost.faults + row.cost.skipped_faults).sum();
    let faults = faults + regions.others_cost.faults + regions.others_cost.skipped_faults;
    let all = whole.stats["fault.minor.count"];
    assert!(faults <= all && faults * 20 > all * 19, "{faults} {all}");
    assert!(whole.profile.unwrap().regions.rows.iter().all(|row| row.cost.skipped_faults == 0));
}

#[test]
fn a_short_limit_is_one_of_the_source_and_not_of_what_is_passed_on() {
    let statistics = |sample: Option<&str>| {
        let request =
            Request { sample: sample.map(str::to_owned), max_accesses: Some(100_000), ..request(&[GUPS], "off") };
        run_request(&request, &|_| true).unwrap().results.remove(0).stats
    };
    let (whole, sampled) = (statistics(None), statistics(Some("every=20K,length=2K,warm=1K")));
    assert_eq!(sampled["program.fault.minor.count"], whole["fault.minor.count"]);
    assert!(sampled["accesses"] * 5 < whole["accesses"]);
    let lines = statistics(Some("every=2K,length=200,warm=200"));
    assert_eq!(lines["program.fault.minor.count"], whole["fault.minor.count"], "touches do not count");
}
