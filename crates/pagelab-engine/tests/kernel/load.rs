//! Co-runners and arrivals: scheduling, accounting, and reproducibility.

use pagelab_engine::base::cycles::Cycles;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{
    ScriptWriter, assert_all_is_on_an_account, assert_conserved, assert_frames_conserved, config, opener, run,
    run_beside, run_workload,
};
use pagelab_engine::programs::arrivals::{ArrivalRate, Spacing};
use pagelab_engine::programs::load::{ArrivalStream, BackgroundLoad, CoRunner, Open};
use pagelab_engine::run::{Request, run as run_request};
use pagelab_trace::{Batch, Source, SourceInfo, TraceError};

const BASE: u64 = 0x7f00_0000_0000;
const MAIN: &str = "random:size=8MiB,accesses=60K";

fn main_source() -> Box<dyn Source> {
    pagelab_trace::workload::parse(MAIN, 1).unwrap_or_else(|e| panic!("{e}"))
}

fn co_runner(spec: &str, cpus: &[usize]) -> BackgroundLoad {
    BackgroundLoad {
        co_runners: vec![CoRunner { open: opener(spec), cpus: cpus.to_vec(), memory_limit: None }],
        ..BackgroundLoad::default()
    }
}

/// Arrivals every so many cycles.
fn every(cycles: u64, count: Option<u64>, open: Open, cpus: &[usize]) -> BackgroundLoad {
    let megahertz = f64::from(config("radix", &[]).machine.frequency_mhz);
    let pace = ArrivalRate { per_second: megahertz * 1e6 / cycles as f64, count, spacing: Spacing::Uniform };
    BackgroundLoad {
        arrivals: vec![ArrivalStream { open, cpus: cpus.to_vec(), pace, memory_limit: None }],
        ..BackgroundLoad::default()
    }
}

#[test]
fn a_co_runner_restarts_until_the_main_source_ends() {
    let config = config("radix", &["engine.sync_quantum_cycles=0"]);
    let alone = run_workload(&config, MAIN);
    let (simulation, stats) =
        run_beside(&config, vec![(main_source(), &[0])], co_runner("seq:size=64KiB,passes=1", &[2]));
    assert_conserved(&stats);
    assert_all_is_on_an_account(&stats);
    let value = |name: &str| stats.values[name];
    assert!(value("co_runner.completed") > 10, "{}", value("co_runner.completed"));
    // At most one step of the co-runner follows the end.
    assert!(value("elapsed_cycles") - value("main.elapsed_cycles") < 20_000);
    assert_eq!(value("main.cycles"), value("main.elapsed_cycles"), "the main source has its CPU to itself");
    for name in ["cycles.base", "walk.count", "fault.minor.count"] {
        assert_eq!(value(&format!("main.{name}")), alone.values[name], "{name}");
    }
    assert_eq!(simulation.programs.inputs.len(), 2);
    // One page fault per page, and per page table, in each run of 16 pages.
    assert!(value("co_runner.fault.minor.count") >= 16 * value("co_runner.completed"));
}

#[test]
fn sources_that_share_a_cpu_are_charged_for_their_own_time() {
    let config = config("radix", &["kernel.quantum_cycles=100000", r#"kernel.scheduler={"kind":"recorded"}"#]);
    let alone = run_workload(&config, MAIN);
    let (simulation, stats) = run_beside(&config, vec![(main_source(), &[0])], co_runner("chase:size=1MiB", &[0]));
    assert_conserved(&stats);
    assert_all_is_on_an_account(&stats);
    let value = |name: &str| stats.values[name];
    // Each switch rounds off part of a cycle.
    let base = value("main.cycles.base").abs_diff(alone.values["cycles.base"]);
    assert!(base <= value("context_switches"), "{base}");
    assert_eq!(value("main.fault.minor.count"), alone.values["fault.minor.count"]);
    assert_eq!(value("main.cycles") + value("co_runner.cycles"), value("cycles"));
    // Slices alternate and have equal length, except the slices in which a process ends.
    let cut_slices = value("co_runner.completed") + 1;
    assert!(value("main.cycles").abs_diff(value("co_runner.cycles")) < 100_000 * cut_slices + value("cycles") / 100);
    assert!(value("main.walk.count") > alone.values["walk.count"], "the co-runner takes entries of its TLBs");
    assert_eq!(simulation.scheduler.cpus[0].lanes.len(), 1, "the main source has gone");
}

#[test]
fn main_sources_have_separate_statistics() {
    let config = config("radix", &[]);
    let sources = vec![(main_source(), &[0][..]), (main_source(), &[2][..])];
    let (_, stats) = run_beside(&config, sources, BackgroundLoad::default());
    assert_all_is_on_an_account(&stats);
    let value = |name: &str| stats.values[name];
    assert_eq!(value("source.0.cycles") + value("source.1.cycles"), value("main.cycles"));
    assert_eq!(value("source.0.walk.count") + value("source.1.walk.count"), value("walk.count"));
    assert_eq!(value("source.0.cycles.base"), value("source.1.cycles.base"));
    assert_eq!(value("main.elapsed_cycles"), value("elapsed_cycles"));
}

#[test]
fn walks_and_faults_of_two_layers_are_on_accounts() {
    let settings = [
        r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#,
        "kernel.quantum_cycles=100000",
        "system.layers.guest.memory_bytes=12MiB",
    ];
    let config = config("nested-radix", &settings);
    let main = || pagelab_trace::workload::parse("random:size=8MiB,accesses=6K", 1).unwrap();
    let (mains, co_runner_specs) = ([(main(), &[0][..]), (main(), &[2][..])], ["chase:size=1MiB", "seq:size=256KiB"]);
    let co_runner = |(spec, cpu): (&&str, usize)| CoRunner { open: opener(spec), cpus: vec![cpu], memory_limit: None };
    let beside = BackgroundLoad {
        co_runners: co_runner_specs.iter().zip([0, 4]).map(co_runner).collect(),
        ..BackgroundLoad::default()
    };
    let (_, stats) = run_beside(&config, mains.into(), beside);
    assert_conserved(&stats);
    assert_all_is_on_an_account(&stats);
    let value = |name: &str| stats.values[name];
    assert!(value("kthread.runs") > 0 && value("kthread.walk.kernel.count") > 0, "kswapd's own walks");
    assert!(value("cycles.io") > 0 && value("cycles.stolen") > 0, "accounts have these, too");
    for source in ["source.0", "source.1", "co_runner.0", "co_runner.1"] {
        let source_value = |name: &str| value(&format!("{source}.{name}"));
        let refs = |layer: &str| {
            (1..=4)
                .filter_map(|level| stats.values.get(&format!("{source}.walk.layer.{layer}.level{level}.refs")))
                .sum::<u64>()
        };
        assert!(refs("guest") > 0 && refs("host") > 0, "{source}");
        assert_eq!(refs("guest") + refs("host"), source_value("walk.refs"), "{source}");
        let places =
            ["l1", "l2", "l3", "dram", "remote", "uncached"].map(|place| source_value(&format!("walk.refs.{place}")));
        assert_eq!(places.iter().sum::<u64>(), source_value("walk.refs"), "{source}");
        assert!(source_value("layer.guest.fault.stage.zeroing.cycles") > 0, "{source}");
    }
}

#[test]
fn counting_starts_at_the_exact_access_and_earlier_costs_are_on_accounts() {
    let request = |warm_up, set: &[&str]| Request {
        // Its first 2,048 accesses touch the pages of 8 MiB one after the other; the co-runner shares its CPU.
        sources: vec!["random:size=8MiB,accesses=60K,init=pages@0".to_owned()],
        with: vec!["chase:size=1MiB@0".to_owned(), "seq:size=256KiB@2".to_owned()],
        systems: vec!["nested-radix".to_owned()],
        set: set.iter().map(|&text| text.to_owned()).collect(),
        warm_up: Some(warm_up),
        windows: Some(3),
        ..Request::default()
    };
    let run = |warm_up, set: &[&str]| {
        let mut results = run_request(&request(warm_up, set), &|_| true).unwrap_or_else(|e| panic!("{e}"));
        results.results.remove(0)
    };
    for set in [&[][..], &["kernel.quantum_cycles=50000"], &["engine.sync_quantum_cycles=100"]] {
        for (warm_up, touches) in [(2048, 0), (2047, 1), (2040, 8)] {
            let result = run(warm_up, set);
            let value = |name: &str| result.stats[name];
            assert_eq!(value("main.fault.minor.count"), touches, "{warm_up} {set:?}");
            for name in ["walk.count", "walk.refs", "walk.kernel.count", "fault.minor.count", "cycles.base"] {
                let sum = ["main", "co_runner", "kthread"]
                    .map(|who| result.stats.get(&format!("{who}.{name}")).unwrap_or(&0));
                assert_eq!(sum.into_iter().sum::<u64>(), value(name), "{name} {warm_up} {set:?}");
            }
            let parts = result.windows.iter().map(|part| part["main.fault.minor.count"]);
            assert_eq!(parts.collect::<Vec<_>>(), [touches, 0, 0]);
        }
    }
}

#[test]
fn stages_of_faults_are_reported_by_layer() {
    let stats = run_workload(&config("nested-radix-cold", &[]), MAIN);
    let value = |name: &str| stats.values[name];
    for stage in ["entry", "allocation", "zeroing"] {
        let by_layer = ["guest", "host"].map(|layer| value(&format!("layer.{layer}.fault.stage.{stage}.cycles")));
        assert!(by_layer.iter().all(|&cycles| cycles > 0));
        assert_eq!(by_layer.iter().sum::<u64>(), value(&format!("fault.stage.{stage}.cycles")));
    }
    // Handlers of the host alone have separate counters already.
    let stages = stats.values.iter().filter(|(name, _)| name.starts_with("layer.host.fault.stage."));
    assert_eq!(stages.map(|(_, &cycles)| cycles).sum::<u64>(), value("fault.nested.cycles"));
}

#[test]
fn arrivals_that_do_not_overlap_take_their_own_run_time() {
    const DISTANCE: u64 = 3_000_000;
    let config = config("radix", &[]);
    let beside = every(DISTANCE, Some(10), opener("seq:size=64KiB,passes=1"), &[0]);
    let (simulation, stats) = run_beside(&config, Vec::new(), beside);
    assert_conserved(&stats);
    assert_all_is_on_an_account(&stats);
    assert_frames_conserved(&simulation, &[]);
    let value = |name: &str| stats.values[name];
    let sojourns = &simulation.programs.load.sojourns;
    assert_eq!((sojourns.len(), value("arrivals.count")), (10, 10));
    assert_eq!(value("arrivals.sojourn.cycles"), sojourns.iter().sum::<Cycles>().0);
    assert_eq!(value("arrivals.cycles"), sojourns.iter().sum::<Cycles>().0);
    // The last of ten arrives after ten intervals; the rate is rounded.
    assert!(value("elapsed_cycles").abs_diff(10 * DISTANCE + sojourns[9].0) <= 1);
    assert_eq!(value("cycles.idle"), value("elapsed_cycles") - value("arrivals.cycles"));
    let mut sorted = sojourns.clone();
    sorted.sort_unstable();
    let percentiles = ["p50", "p99", "max"].map(|name| value(&format!("arrivals.sojourn.{name}_cycles")));
    assert_eq!(percentiles, [sorted[4], sorted[9], sorted[9]].map(|time| time.0));
}

#[test]
fn an_arrival_goes_to_the_cpu_with_the_fewest_and_stays_there() {
    let config = config("radix", &[]);
    // All arrive before the first one ends.
    let beside = every(100, Some(12), opener("seq:size=256KiB,passes=1"), &[0, 2, 4]);
    let (simulation, stats) = run_beside(&config, Vec::new(), beside);
    assert_conserved(&stats);
    assert_all_is_on_an_account(&stats);
    let instructions: Vec<u64> = simulation.scheduler.cpus.iter().map(|cpu| cpu.clock.instructions()).collect();
    assert!(instructions[0] > 0 && instructions.iter().all(|&n| n == instructions[0]), "{instructions:?}");
    assert_eq!(stats.values["arrivals.count"], 12);
    assert!(simulation.scheduler.cpus.iter().all(|cpu| cpu.lanes.is_empty()));
    // Four share a CPU, so the mean is well above the time of one alone.
    let mean = stats.values["arrivals.sojourn.cycles"] / 12;
    assert!(mean > stats.values["arrivals.cycles"] / 12 * 2, "{mean}");
}

#[test]
fn arrivals_end_with_the_main_source() {
    let config = config("radix", &[]);
    let beside = every(200_000, None, opener("seq:size=16KiB,passes=1"), &[2]);
    let (_, stats) = run_beside(&config, vec![(main_source(), &[0])], beside);
    assert_all_is_on_an_account(&stats);
    let value = |name: &str| stats.values[name];
    let expected = value("main.elapsed_cycles") / 200_000;
    assert!(
        expected > 10 && value("arrivals.count").abs_diff(expected) <= 1,
        "{} of {expected}",
        value("arrivals.count")
    );
}

/// A source that counts how many are open.
struct Counted {
    inner: Box<dyn Source>,
    open: Arc<AtomicUsize>,
}

impl Source for Counted {
    fn info(&self) -> &SourceInfo {
        self.inner.info()
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        self.inner.next_batch(batch)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_thousand_arrivals_leave_nothing_behind() {
    let config = config("radix", &[]);
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let opener: Open = {
        let (open, most) = (open.clone(), most.clone());
        Arc::new(move || {
            most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            // It neither unmaps its memory nor exits.
            let mut script = ScriptWriter::new();
            script.mmap(0, BASE, 0x4000);
            (0..4).for_each(|page| script.store(0, BASE + page * 4096));
            Ok(Box::new(Counted { inner: script.finish(), open: open.clone() }))
        })
    };
    let (simulation, stats) = run_beside(&config, Vec::new(), every(30_000, Some(1000), opener, &[0, 2]));
    assert_eq!(stats.values["arrivals.count"], 1000);
    assert_eq!(open.load(Ordering::Relaxed), 0);
    assert!(most.load(Ordering::Relaxed) <= 4, "{} were open at once", most.load(Ordering::Relaxed));
    assert!(simulation.programs.inputs.len() <= 4, "{} places", simulation.programs.inputs.len());
    assert_frames_conserved(&simulation, &[]);
    assert_eq!(stats.values["fault.minor.count"], 4000);
}

#[test]
fn a_run_is_the_same_again_and_on_any_number_of_host_threads() {
    let request = |seed, threads| Request {
        sources: vec!["gups:size=4MiB,updates=5K".to_owned()],
        with: vec!["seq:size=64KiB,passes=1@0".to_owned()],
        arrivals: vec!["bfs:vertices=100,degree=4@2,3,per_second=20K,count=20".to_owned()],
        systems: vec!["radix".to_owned(), "nested-radix".to_owned(), "radix-2m".to_owned()],
        seed: Some(seed),
        threads: Some(threads),
        check: true,
        ..Request::default()
    };
    let text = |seed, threads| {
        let results = run_request(&request(seed, threads), &|_| true).unwrap_or_else(|e| panic!("{e}"));
        serde_json::to_string(&results).unwrap()
    };
    let reference = text(1, 1);
    assert_eq!(reference, text(1, 3));
    assert_ne!(reference, text(2, 1));
    let roles = r#""role":"main""#;
    assert!(reference.contains(roles) && reference.contains(r#""role":"co-runner""#));
}

#[test]
fn impossible_loads_are_refused_before_anything_runs() {
    for (with, arrivals, sources, what) in [
        (vec!["seq"], vec![], vec![], "name at least one trace or workload"),
        (vec!["sequel"], vec![], vec!["seq"], "sequel"),
        (vec!["seq@900"], vec![], vec!["seq"], "with: `@900` does not name CPUs"),
        (
            vec![],
            vec!["seq,per_second=5"],
            vec![],
            "without a main source the run has no end; write seq,per_second=5,count=N",
        ),
        (vec![], vec!["seq"], vec!["seq"], "per_second is missing"),
        (vec![], vec!["seq@77,per_second=5"], vec!["seq"], "arrivals: `@77` does not name CPUs"),
        (vec![], vec!["/nowhere/a.bin,per_second=5"], vec!["seq"], "arrivals: `/nowhere/a.bin` is neither"),
    ] {
        let own = |texts: Vec<&str>| texts.into_iter().map(String::from).collect::<Vec<_>>();
        let request = Request {
            sources: own(sources),
            with: own(with),
            arrivals: own(arrivals),
            systems: vec!["radix".to_owned()],
            ..Request::default()
        };
        let error = run_request(&request, &|_| panic!("it runs")).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let nothing = || -> Open { Arc::new(|| Ok(ScriptWriter::new().finish())) };
    let beside = BackgroundLoad {
        co_runners: vec![CoRunner { open: nothing(), cpus: vec![2], memory_limit: None }],
        ..BackgroundLoad::default()
    };
    let placed =
        pagelab_engine::machine::simulation::PlacedSource { source: main_source(), cpus: vec![0], memory_limit: None };
    let mut simulation =
        pagelab_engine::machine::simulation::Simulation::with_load(&config("radix", &[]), vec![placed], beside, None)
            .unwrap();
    let error = simulation.run(&mut |_| true).unwrap_err().to_string();
    assert!(error.contains("makes no access"), "{error}");
}

#[test]
fn a_single_source_has_no_separate_accounts() {
    let (_, stats) = run(&config("radix", &[]), main_source(), &[0, 2]);
    assert!(!stats.values.keys().any(|name| name.starts_with("main.") || name.starts_with("arrivals.")));
}
