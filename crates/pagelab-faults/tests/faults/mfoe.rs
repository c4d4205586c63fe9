//! The event model: closed forms, exact shifts, and invariance under changes of time scale.

use crate::support::{ALL, timeline};
use pagelab_faults::{
    Timeline,
    mfoe::{Bound, Config, InitialFill, LatePass, Outcome, Visit, parameters, run, run_with},
    timeline::Recording,
};

fn config(settings: &str) -> Config {
    parameters::parse(settings).unwrap().0
}

/// A process whose faults take as long as hits, so that hits do not shift later faults.
fn steady(spec: &str) -> Timeline {
    let latency = if spec.contains("latency_ns") { "" } else { ",latency_ns=26" };
    Timeline::new(&Recording::open(&format!("{spec}{latency}"), 1).unwrap(), &ALL).unwrap()
}

/// Without the first fill and the miss penalty.
fn steady_state(spec: &str, settings: &str) -> Outcome {
    run(&config(&format!("initial_fill=done,miss_penalty_cycles=0,{settings}")), &steady(spec))
}

#[track_caller]
fn near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{value}, expected {expected}");
}

/// The paper's 90 % at one fault per 21,000 cycles of 3 GHz: 256 pages for 285.7 faults per 2 ms.
#[test]
fn one_core_hits_as_often_as_its_ring_lasts() {
    let one_in_21000_cycles = steady_state("even:rate=142857,cores=1,seconds=2", "period_us=2000");
    near(one_in_21000_cycles.hit_rate, 0.896, 0.0005);
    assert_eq!(one_in_21000_cycles.bound, Bound::Ring);
    for (rate, ring_entries, period_us) in
        [(100_000, 100, 2000.0), (100_000, 300, 2000.0), (250_000, 64, 1000.0), (400, 1, 2000.0), (40_000, 1, 2000.0)]
    {
        let spec = format!("even:rate={rate},cores=1,seconds=2");
        let outcome = steady_state(&spec, &format!("ring_entries={ring_entries},period_us={period_us}"));
        let closed = f64::from(ring_entries) / (f64::from(rate) * period_us / 1e6);
        near(outcome.hit_rate, closed.min(1.0), 0.002);
        assert_eq!(outcome.bound, if closed < 1.0 { Bound::Ring } else { Bound::Nothing });
    }
}

/// Eight rings that are always empty: the thread works at its limit, 3.53 ms per pass.
#[test]
fn eight_cores_hit_as_often_as_the_thread_refills() {
    for rate in [800_000.0, 1_000_000.0, 2_000_000.0] {
        let outcome = steady_state(&format!("even:rate={rate},cores=8,seconds=1"), "period_us=2000");
        near(outcome.hit_rate, 580_169.0 / rate, 0.004);
        assert_eq!((outcome.bound, outcome.late_passes), (Bound::Refill, outcome.passes - 1));
        near(1.0 / outcome.passes as f64, 8.0 * 256.0 / 580_169.0, 3e-5);
        near(outcome.background_seconds, 1.0, 0.01);
    }
    // Two threads refill twice as fast (four larger rings each); eight keep up with the rings.
    let two = steady_state("even:rate=1600K,cores=8,seconds=1", "background_threads=2,ring_entries=512");
    near(two.hit_rate, 2.0 * 580_169.0 / 1.6e6, 0.005);
    let eight = steady_state("even:rate=1600K,cores=8,seconds=1", "background_threads=8");
    near(eight.hit_rate, 256.0 / 400.0, 0.003);
    assert_eq!((eight.bound, eight.late_passes), (Bound::Ring, 0));
}

/// After a pass of 3.53 ms, the next begins at once, at 4 ms, or after 2 ms of sleep; or the pass is cut after 2 ms.
#[test]
fn what_follows_a_pass_that_takes_too_long_is_a_choice() {
    let supplied = |settings: &str| {
        let outcome = steady_state("even:rate=2M,cores=8,seconds=1", settings);
        outcome.hits as f64
    };
    let pages = 8.0 * 256.0;
    let pass = pages / 580_169.0;
    near(supplied("late_pass=at-once"), 580_169.0, 2100.0);
    near(supplied("late_pass=next-period"), pages / 0.004, 2100.0);
    near(supplied("late_pass=sleep"), pages / (pass + 0.002), 2100.0);
    near(supplied("late_pass=cut"), 580_169.0, 2100.0);
    // Cut passes that begin with the first core never reach the last ones, unless they resume where they stopped.
    let hits_of_cores = |visit: &str| -> Vec<f64> {
        let outcome = steady_state("even:rate=2M,cores=8,seconds=1", &format!("late_pass=cut,visit={visit}"));
        outcome.cores.iter().map(|core| core.hits as f64 / core.faults as f64).collect()
    };
    let first = hits_of_cores("first-core");
    assert!(first[0] > 0.5 && first[7] < 0.002, "{first:?}");
    for fair in ["where-stopped", "next-core"] {
        let shares = hits_of_cores(fair);
        assert!(shares.iter().all(|&share| share > 0.25), "{fair}: {shares:?}");
    }
}

#[test]
fn rings_are_filled_at_the_rate_of_the_first_fill() {
    // One fault per core and microsecond; no pass comes before the first fill ends.
    let spec = "even:rate=4M,cores=4,seconds=0.0009";
    let running = run(&config("miss_penalty_cycles=0"), &steady(spec));
    let supplied = (0.0009_f64 * 1_093_075.0).floor() as u64;
    assert!(running.hits <= supplied && running.hits + 4 * 256 > supplied, "{} {supplied}", running.hits);
    assert!(running.misses.initial > 0 && running.passes == 0);
    // The first core is filled first, so it hits from its first page on; the last waits for 768 pages.
    let mut first_hits = [u64::MAX; 4];
    run_with(&config("miss_penalty_cycles=0"), &steady(spec), &mut |core, now, hit| {
        if hit {
            first_hits[core] = first_hits[core].min(now);
        }
    });
    for (core, first) in first_hits.into_iter().enumerate() {
        let ready = (core as f64 * 256.0 + 1.0) * 1e12 / 1_093_075.0;
        assert!((first as f64) >= ready - 1.0 && (first as f64) < ready + 2e6, "{core}: {first} {ready}");
    }
}

#[test]
fn all_hit_or_all_miss() {
    let faults = || (0..1000).map(|n| (n * 10_000, 0, 1000));
    let all_hit = run(&config("ring_entries=1000,initial_fill=done"), &timeline(20_000_000, faults()));
    assert_eq!((all_hit.hit_rate, all_hit.bound), (1.0, Bound::Nothing));
    // 1,000 faults of 1 us in 20 ms, each now 26 ns.
    near(all_hit.overhead_before, 0.05, 1e-12);
    near(all_hit.seconds_after, 0.02 - 1000.0 * 974e-9, 1e-15);
    near(all_hit.speed_up, 0.02 / (0.02 - 974e-6), 1e-12);
    let all_miss = run(&config("fill_pages_per_second=1,miss_penalty_cycles=30"), &timeline(20_000_000, faults()));
    assert_eq!((all_miss.hits, all_miss.bound), (0, Bound::Start));
    near(all_miss.seconds_after, 0.02 + 1000.0 * 10e-9, 1e-15);
    assert!(all_miss.speed_up < 1.0);
}

/// Speed-up and overheads agree as in the paper's table 5: (1 - after) / (1 - before).
#[test]
fn speed_up_and_overheads_agree() {
    for parallelism in ["", ",parallelism=1", ",parallelism=3.5"] {
        let (config, selection) = parameters::parse(&format!("ring_entries=64{parallelism}")).unwrap();
        let process = "bursts:rate=300K,cores=4,seconds=1,burst=300,latency_ns=1270,latency_p95_ns=3200";
        let made = Timeline::new(&Recording::open(process, 1).unwrap(), &selection).unwrap();
        let outcome = run(&config, &made);
        assert!(outcome.hit_rate > 0.2 && outcome.hit_rate < 0.8, "{}", outcome.hit_rate);
        near(outcome.speed_up, (1.0 - outcome.overhead_after) / (1.0 - outcome.overhead_before), 1e-9);
    }
}

/// A hit moves the later faults of its core by the time saved, a miss by the penalty; other cores' faults do not move.
#[test]
fn faults_are_shifted_by_exactly_what_was_saved_or_lost() {
    let config = config("ring_entries=2,initial_fill=done,clock_ghz=3.3");
    let made = timeline(
        1_000_000,
        [
            (1000, 0, 500),
            (1100, 1, 10),
            (3000, 0, 700),
            (5000, 0, 900),
            (9000, 0, 800),
            (10_000, 1, 10),
            (20_000, 1, 10),
        ],
    );
    let (hit, penalty) = (23_636, 4242);
    assert_eq!((config.hit_ps, config.miss_penalty_ps), (hit, penalty));
    let mut seen = Vec::new();
    run_with(&config, &made, &mut |core, now, hit| seen.push((core, now, hit)));
    let (saved_1, saved_2) = (500_000 - hit, 700_000 - hit);
    assert_eq!(
        seen,
        [
            (0, 1_000_000, true),
            (1, 1_100_000, true),
            (0, 3_000_000 - saved_1, true),
            (0, 5_000_000 - saved_1 - saved_2, false),
            (0, 9_000_000 - saved_1 - saved_2 + penalty, false),
            // A hit of 10 ns would be faster than the hardware: it costs 13.636 ns more.
            (1, 10_000_000 + hit - 10_000, true),
            (1, 20_000_000 + 2 * (hit - 10_000), false),
        ]
    );
}

/// Faults of one core cannot overlap: the latency ends with the next fault.
#[test]
fn a_latency_ends_with_the_next_fault() {
    let made = timeline(1_000_000, [(0, 0, 1000), (100, 1, 70), (400, 0, 1000), (400, 0, 50)]);
    assert_eq!(made.cut, 2);
    let latencies: Vec<_> = made.cores[0].iter().map(|fault| fault.latency_ns).collect();
    assert_eq!((latencies, made.cores[1][0].latency_ns), (vec![400, 0, 50], 70));
    let mut last = [0; 2];
    run_with(&config("initial_fill=done"), &made, &mut |core, now, _| {
        assert!(now >= last[core]);
        last[core] = now;
    });
}

/// Ten times slower in all respects: the same faults hit, at ten times their times.
#[test]
fn slower_by_a_factor_is_the_same() {
    let faults = |scale: u64| {
        let spec = "bursts:rate=400K,cores=5,seconds=0.2,burst=400,latency_ns=1000";
        let all = pagelab_faults::process::parse(spec, 3).unwrap();
        timeline(200_000_000 * scale, all.map(move |f| (f.time_ns * scale, f.core, 1000 * scale as u32)))
    };
    for (visit, late_pass) in [
        (Visit::FirstCore, LatePass::AtOnce),
        (Visit::NextCore, LatePass::Sleep),
        (Visit::Emptiest, LatePass::NextPeriod),
        (Visit::WhereStopped, LatePass::Cut),
    ] {
        // Rates whose time per page is a whole number of picoseconds.
        let base = Config {
            ring_entries: 100,
            refill_pages_per_second: 500_000,
            fill_pages_per_second: 1_000_000,
            visit,
            late_pass,
            initial_fill: InitialFill::Running,
            ..Config::default()
        };
        let slow = Config {
            period_ps: base.period_ps * 10,
            hit_ps: base.hit_ps * 10,
            miss_penalty_ps: base.miss_penalty_ps * 10,
            refill_pages_per_second: 50_000,
            fill_pages_per_second: 100_000,
            ..base
        };
        let (mut fast_seen, mut slow_seen) = (Vec::new(), Vec::new());
        let fast = run_with(&base, &faults(1), &mut |core, now, hit| fast_seen.push((core, now * 10, hit)));
        let slow = run_with(&slow, &faults(10), &mut |core, now, hit| slow_seen.push((core, now, hit)));
        assert!(fast.hit_rate > 0.05 && fast.hit_rate < 0.95, "{}", fast.hit_rate);
        assert_eq!((fast.passes, fast.misses), (slow.passes, slow.misses));
        assert!(fast_seen == slow_seen);
        near(fast.speed_up, slow.speed_up, 1e-12);
    }
}

/// Adding cores with faults at other times changes nothing, while the thread keeps up.
#[test]
fn cores_that_never_fault_change_nothing() {
    let alone = timeline(100_000_000, (0..5000).map(|n| (n * 19_000, 0, 1000)));
    let among = timeline(100_000_000, (0..5000).map(|n| (n * 19_000, 0, 1000)).chain([(99_000_000, 9, 5)]));
    let config = Config { initial_fill: InitialFill::Done, ..Config::default() };
    let (alone, among) = (run(&config, &alone), run(&config, &among));
    assert_eq!(alone.cores[0], among.cores[0]);
}

#[test]
fn what_a_trace_does_not_say_must_be_set() {
    let mut info = crate::support::info(1_000_000, 1);
    info.latency = pagelab_faults::LatencyOrigin::Unknown;
    let recording = Recording::from_faults(info, [crate::support::fault(5, 0, 0)]);
    let error = |settings: &str| {
        let selection = parameters::parse(settings).unwrap().1;
        Timeline::new(&recording, &selection).unwrap_err().to_string()
    };
    assert!(error("").contains("set fault_latency_ns"));
    assert!(error("fault_latency_ns=2000000").contains("the program only runs 0.001 s"));
    let selection = parameters::parse("fault_latency_ns=700").unwrap().1;
    let made = Timeline::new(&recording, &selection).unwrap();
    assert_eq!((made.cores[0][0].latency_ns, made.parallelism), (700, 1.0));
}

/// The cost of recording is subtracted from the cores' times, the program's time and its CPU time.
#[test]
fn the_cost_of_recording_is_taken_off() {
    let mut info = crate::support::info(10_000_000, 2);
    (info.recording_cost_ns, info.cpu_time_ns) = (1000, Some(20_000_000));
    let mut all: Vec<_> = [(0, 0), (5000, 0), (5500, 0), (9000, 0), (9000, 1)]
        .map(|(time, core)| crate::support::fault(time, core, 100))
        .into();
    all[1].kind.present = true;
    let recording = Recording::from_faults(info, all);
    let made = Timeline::new(&recording, &ALL).unwrap();
    let times: Vec<_> = made.cores.iter().map(|core| core.iter().map(|f| f.time_ns).collect::<Vec<_>>()).collect();
    // The third comes 500 ns after the second, so 1000 ns cannot be subtracted. The ignored fault counts, too.
    assert_eq!(times, [vec![0, 4000, 6500], vec![9000]]);
    assert_eq!((made.left_out, made.parallelism, made.duration_ns), (1, 2.0, 10_000_000.0 - 2500.0));
    let whole = Timeline::new(&recording, &parameters::parse("recording_cost_ns=0,faults=all").unwrap().1).unwrap();
    assert_eq!((whole.duration_ns, whole.faults()), (10_000_000.0, 5));
}
