//! Threads that share a CPU by a scheduler's slices: closed forms of switches, shares and wake-ups.
//!
//! Kernels do not use the caches here, and each thread has a page of its own, so an access costs the same whoever ran
//! before.

use crate::common::{ScriptWriter, assembled, assert_conserved, config, run, run_all, run_beside};
use pagelab_engine::config::Config;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::programs::load::{BackgroundLoad, CoRunner};
use pagelab_trace::{EventKind, MapFlags, Protection, Source};

const EEVDF: &str = r#"kernel.scheduler={"kind":"eevdf","tick_cycles":0}"#;
const EEVDF_TICKS: &str = r#"kernel.scheduler={"kind":"eevdf","tick_cycles":800}"#;
const CFS: &str =
    r#"kernel.scheduler={"kind":"cfs","tick_cycles":0,"latency_cycles":2400,"wakeup_granularity_cycles":400}"#;
const SLICE: u64 = 600;
const SWITCH: u64 = 60;
const MEMORY: u64 = 0x6f00_0000_0000;

fn shared(scheduler: &str, set: &[&str]) -> Config {
    let numbers = [format!("kernel.quantum_cycles={SLICE}"), format!("kernel.context_switch_cycles={SWITCH}")];
    let all = ["engine.kernel_refs=off", "kernel.flush_space_cycles=0", scheduler, &numbers[0], &numbers[1]];
    config("radix", &[&all[..], set].concat())
}

/// Threads of one process that alternate after each store in the recording.
fn alternating(threads: u32, stores: u64) -> ScriptWriter {
    alternating_after(1, threads, stores)
}

/// Threads of one process that alternate after a number of stores in the recording.
fn alternating_after(at_once: u64, threads: u32, stores: u64) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    let ids: Vec<u32> = (0..threads).map(|n| if n == 0 { 0 } else { script.thread(0) }).collect();
    script.mmap(0, MEMORY, u64::from(threads) * 4096);
    for first in (0..stores).step_by(at_once as usize) {
        for &id in &ids {
            (first..first + at_once).for_each(|n| script.store(id, MEMORY + u64::from(id) * 4096 + n % 2 * 64));
        }
    }
    script
}

fn replay(config: &Config, script: ScriptWriter) -> Statistics {
    let (_, in_pieces) = run(config, script.clone().in_pieces().finish(), &[0]);
    let (_, stats) = run(config, script.finish(), &[0]);
    assert_eq!(in_pieces.values, stats.values, "the length of batches does not matter");
    assert_conserved(&stats);
    stats
}

#[test]
fn threads_of_a_source_switch_once_per_slice() {
    // Turns in cycles: EEVDF's slice, with ticks up to the second tick (the switch takes time of the first), and CFS's
    // share of the period.
    for (scheduler, threads, turn) in
        [(EEVDF, 2, SLICE), (EEVDF, 5, SLICE), (EEVDF_TICKS, 3, 800), (CFS, 2, 1200), (CFS, 3, 800), (CFS, 5, SLICE)]
    {
        replay(&shared(scheduler, &[]), alternating(threads, 2_000));
        let (_, stats) = run(&shared(scheduler, &[]), alternating(threads, 60_000).finish(), &[0]);
        let value = |name: &str| stats.values[name];
        let turns = (value("elapsed_cycles") - value("cycles.fault")) / turn;
        let switches = value("context_switches");
        let name = format!("{scheduler}, {threads} threads: {switches} switches in {turns} turns");
        // First slices are shorter, and the last threads end in turn.
        assert!(switches.abs_diff(turns) <= 2 * u64::from(threads) + turns / 20, "{name}");
        assert!(value("preemptions") + u64::from(threads) >= switches, "{name}");
        assert_eq!(value("accesses"), u64::from(threads) * 60_000);
        assert_eq!(value("cut_slices"), 0);
    }
    let recorded = replay(&shared(r#"kernel.scheduler={"kind":"recorded"}"#, &[]), alternating(2, 1000));
    assert_eq!((recorded.values["context_switches"], recorded.values["preemptions"]), (1999, 0));
}

/// Whether a slice ends between two accesses or within one, the length of a source's batches does not matter; nor when
/// two sources share the CPU in the recorded order.
#[test]
fn a_slice_that_ends_with_an_access_ends_the_turn() {
    for scheduler in [EEVDF, CFS, r#"kernel.scheduler={"kind":"recorded"}"#] {
        for slice in 40..80 {
            let slice = format!("kernel.quantum_cycles={slice}");
            let config = shared(scheduler, &[&slice]);
            replay(&config, alternating_after(50, 2, 200));
            let both = |sources: [ScriptWriter; 2]| {
                let [one, two] = sources.map(ScriptWriter::finish);
                run_all(&config, vec![(one, &[0]), (two, &[0])]).1.values
            };
            let whole = || alternating(1, 50);
            let pieces = || whole().in_pieces();
            assert_eq!(both([whole(), whole()]), both([pieces(), pieces()]), "{slice}");
        }
    }
}

/// The thread of a source gets as much as each of the three of a co-runner.
#[test]
fn threads_have_equal_shares_whatever_their_source() {
    for scheduler in [EEVDF, CFS] {
        let (_, alone) = run(&shared(scheduler, &[]), alternating(1, 20_000).finish(), &[0]);
        let open = std::sync::Arc::new(|| Ok(alternating(3, 30_000).finish()));
        let co_runners = vec![CoRunner { open, cpus: vec![0], memory_limit: None }];
        let beside = BackgroundLoad { co_runners, arrivals: vec![] };
        let main = (alternating(1, 20_000).finish(), &[0][..]);
        let (_, stats) = run_beside(&shared(scheduler, &[]), vec![main], beside);
        assert_conserved(&stats);
        let (own, whole) = (alone.values["elapsed_cycles"], stats.values["main.elapsed_cycles"]);
        let share = own as f64 / whole as f64;
        assert!((0.2..0.27).contains(&share), "{scheduler}: {share}");
    }
}

/// Reads a page of a file that is not in memory, `reads` times, with a few stores after each.
fn reader(reads: u64) -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::PRIVATE));
    let (addr, file) = (0x7f00_0000_0000, Some("data".into()));
    script.event(0, EventKind::Mmap { addr, len: reads * 4096, prot, flags, file, file_offset: 0 });
    script.mmap(0, MEMORY, 4096);
    for n in 0..reads {
        script.load(0, addr + n * 4096);
        (0..10).for_each(|n| script.store(0, MEMORY + n % 2 * 64));
    }
    script.finish()
}

/// CFS lets a thread that has slept for a device preempt at once; with EEVDF it waits for the end of the slice.
#[test]
fn a_thread_that_has_slept_preempts_under_cfs_alone() {
    let device = r#"kernel.storage={"read_cycles":300000,"write_cycles":9000,"queue_depth":8}"#;
    let set = ["kernel.page_cache=cold", "kernel.read_ahead_bytes=4096", "kernel.fault_around_bytes=4KiB", device];
    let run = |scheduler: &str, more: &[&str]| {
        let config = shared(scheduler, &[&set[..], &["kernel.quantum_cycles=1000000"], more].concat());
        let (_, stats) = run_all(&config, vec![(reader(8), &[0]), (alternating(1, 8_000_000).finish(), &[0])]);
        assert_conserved(&stats);
        stats.values["preemptions"]
    };
    let cfs =
        r#"kernel.scheduler={"kind":"cfs","tick_cycles":0,"latency_cycles":3000000,"wakeup_granularity_cycles":20000}"#;
    // The first read is within the reader's first slice.
    assert!(run(cfs, &[]) >= 7, "{}", run(cfs, &[]));
    assert!(run(cfs, &["kernel.wakeup_preemption=off"]) < 7);
    assert!(run(EEVDF, &[]) < 7);
}

#[test]
fn a_full_window_cuts_slices_and_is_counted() {
    let config = shared(EEVDF, &["engine.input_window_accesses=1000"]);
    let (_, stats) = run(&config, alternating(2, 20_000).in_pieces().finish(), &[0]);
    assert!(stats.values["cut_slices"] > 10, "{}", stats.values["cut_slices"]);
}

#[test]
fn impossible_slices_are_named() {
    let error = |set: &[&str]| assembled("radix", set).unwrap_err().to_string();
    assert_eq!(
        error(&["kernel.quantum_cycles=0"]),
        "kernel.quantum_cycles: 0 is not possible: a time slice has at least 1 cycle"
    );
    let small =
        r#"kernel.scheduler={"kind":"cfs","tick_cycles":0,"latency_cycles":29999,"wakeup_granularity_cycles":1}"#;
    assert_eq!(
        error(&["kernel.quantum_cycles=30000", small]),
        "kernel.scheduler.latency_cycles: 29999 is less than the minimum granularity, kernel.quantum_cycles = 30000"
    );
    let huge = r#"kernel.scheduler={"kind":"eevdf","tick_cycles":2000000000000000}"#;
    assert!(error(&[huge]).starts_with("kernel.scheduler.tick_cycles: 2000000000000000 is not possible"));
}
