//! Tasks that wait for a device: which task runs meanwhile, and the exact total time in cycles.
//!
//! Walks and kernels do not use the caches here (`engine.kernel_refs`), and the programs share no line, so each costs
//! the same on a shared CPU as alone, apart from its waits: a run's cycles are a closed-form sum.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run_all};
use pagelab_engine::config::Config;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::quantity::Bytes;
use pagelab_trace::{EventKind, MapFlags, Protection, Source};

const READ: u64 = 1_000_000;
const SWITCH: u64 = 2000;
const STORAGE: &str = r#"kernel.storage={"read_cycles":1000000,"write_cycles":70000,"queue_depth":8}"#;
const SWAP: &str = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
const FILE: u64 = 0x7f00_0000_0000;
const MEMORY: u64 = 0x6f00_0000_0000;

/// A machine on which a program's cost does not depend on other programs.
fn quiet(set: &[&str]) -> Config {
    let switch = format!("kernel.context_switch_cycles={SWITCH}");
    let all = [
        "engine.kernel_refs=off",
        "kernel.flush_space_cycles=0",
        "kernel.page_cache=cold",
        // A task that neither waits nor is preempted runs to its end.
        "kernel.quantum_cycles=1000000000000",
        r#"kernel.scheduler={"kind":"recorded"}"#,
        STORAGE,
        "kernel.threads.kswapd=off",
        // No batches, which would serve both tasks.
        "kernel.charge_batch=1",
        r#"system.layers.native.frame_allocator={"kind":"buddy"}"#,
        &switch,
    ];
    config("radix", &[&all[..], set].concat())
}

/// Computes, reads a file page that is not in memory, and computes again.
fn reader() -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::PRIVATE));
    let file = Some("data".into());
    script.event(0, EventKind::Mmap { addr: FILE, len: 4096, prot, flags, file, file_offset: 0 });
    script.mmap(0, MEMORY, 4096);
    (0..100).for_each(|n| script.store(0, MEMORY + n % 8 * 8));
    script.load(0, FILE);
    (0..100).for_each(|n| script.store(0, MEMORY + n % 8 * 8));
    script.finish()
}

/// Computes for this many accesses; each waits for the L1 cache, because lines alternate.
fn worker(accesses: u64) -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    script.mmap(0, MEMORY + (1 << 30), 4096);
    (0..accesses).for_each(|n| script.store(0, MEMORY + (1 << 30) + 2048 + n % 2 * 64));
    script.finish()
}

fn elapsed(stats: &Statistics) -> u64 {
    stats.values["elapsed_cycles"]
}

/// Statistics of the reader, of the worker, and of both on one CPU, where the second source gets the first slice.
fn alone_and_together(set: &[&str], accesses: u64) -> [Statistics; 3] {
    let visible = ["machine.core.l1_hit_hidden=false"];
    let config = quiet(&[&visible[..], set].concat());
    let run = |sources: Vec<Box<dyn Source>>| {
        let sources = sources.into_iter().map(|source| (source, &[0][..])).collect();
        let (simulation, stats) = run_all(&config, sources);
        assert_conserved(&stats);
        let spaces: Vec<_> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
        assert_frames_conserved(&simulation, &spaces);
        stats
    };
    [run(vec![reader()]), run(vec![worker(accesses)]), run(vec![worker(accesses), reader()])]
}

#[test]
fn another_program_runs_while_one_waits_for_its_read() {
    // The worker takes longer than the read: it hides the wait, is preempted when the page arrives, and resumes at the
    // end. Three switches: to the worker, back to the reader, to the worker.
    let [reader, worker, both] = alone_and_together(&[], 400_000);
    assert!(elapsed(&worker) > READ);
    assert_eq!((reader.values["cycles.io"], both.values["cycles.io"]), (READ, 0));
    assert_eq!(elapsed(&both), elapsed(&reader) - READ + elapsed(&worker) + 3 * SWITCH);
    assert_eq!(both.values["context_switches"], 3);
    assert!(elapsed(&both) < elapsed(&reader) + elapsed(&worker), "less than one after the other");
}

#[test]
fn without_preemption_a_program_waits_for_its_turn_too() {
    let [reader, worker, both] = alone_and_together(&["kernel.wakeup_preemption=off"], 400_000);
    // To the worker, and back at its end.
    assert_eq!(elapsed(&both), elapsed(&reader) - READ + elapsed(&worker) + 2 * SWITCH);
    // With slices of 300,000 cycles the reader resumes before the worker's end; while it waits, no other task is
    // runnable.
    let set = ["kernel.wakeup_preemption=off", "kernel.quantum_cycles=300000"];
    let [_, _, sliced] = alone_and_together(&set, 400_000);
    assert_eq!(elapsed(&sliced), elapsed(&both) + SWITCH);
}

#[test]
fn the_rest_of_a_wait_without_other_work_is_waited_for() {
    let [reader, worker, both] = alone_and_together(&[], 1000);
    assert!(elapsed(&worker) + 2 * SWITCH < READ);
    // The worker ends within the wait; then the CPU is idle until the page arrives.
    assert_eq!(both.values["cycles.io"], READ - elapsed(&worker) - SWITCH);
    assert_eq!(elapsed(&both), elapsed(&reader) + SWITCH);
}

#[test]
fn another_program_runs_while_one_swaps() {
    let config = quiet(&[SWAP, "kernel.quantum_cycles=100000"]);
    let run = |with: &[bool]| {
        let source = |spec: &str| pagelab_trace::workload::parse(spec, 1).unwrap();
        let placed = |&swaps: &bool| PlacedSource {
            source: source(if swaps { "seq:size=2MiB,passes=2" } else { "random:size=1MiB,accesses=3M" }),
            cpus: vec![0],
            memory_limit: swaps.then_some(Bytes(1 << 20)),
        };
        let mut simulation = Simulation::new(&config, with.iter().map(placed).collect(), None).unwrap();
        simulation.run(&mut |_| true).unwrap();
        let stats = simulation.statistics();
        assert_conserved(&stats);
        (simulation, stats)
    };
    let ((_, swaps), (_, works), (simulation, both)) = (run(&[true]), run(&[false]), run(&[true, false]));
    let waits = swaps.values["cycles.io"];
    let major = swaps.values["fault.major.count"];
    assert!(major >= 512 && waits > 512 * 250_000, "{major} major faults, {waits} cycles");
    assert_eq!(both.values["source.0.fault.major.count"], major);
    // The two compete for cache lines, so the sum is not exact; waits are filled with all runnable work.
    let busy = |stats: &Statistics| stats.values["cycles"] - stats.values["cycles.io"];
    let filled = waits.saturating_sub(both.values["cycles.io"]);
    assert!(
        filled * 10 > busy(&works) * 9,
        "{filled} of the waits are filled, there are {} to fill them",
        busy(&works)
    );
    assert!(elapsed(&both) + filled / 2 < elapsed(&swaps) + elapsed(&works));
    let spaces: Vec<_> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
    assert_frames_conserved(&simulation, &spaces);
}

#[test]
fn a_programs_last_populate_call_reads_all_its_pages() {
    let populating = || {
        let mut script = ScriptWriter::new();
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::PRIVATE | MapFlags::POPULATE));
        let file = Some("data".into());
        script.event(0, EventKind::Mmap { addr: FILE, len: 16 * 4096, prot, flags, file, file_offset: 0 });
        script.finish()
    };
    let config = quiet(&["kernel.read_ahead_bytes=4096"]);
    let run = |sources: Vec<Box<dyn Source>>| {
        let (simulation, stats) = run_all(&config, sources.into_iter().map(|source| (source, &[0][..])).collect());
        assert_conserved(&stats);
        let spaces: Vec<_> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
        assert_frames_conserved(&simulation, &spaces);
        stats.values["layer.native.storage.requests"]
    };
    let (alone, beside) = (run(vec![populating()]), run(vec![worker(400_000), populating()]));
    assert_eq!((alone, beside), (16, 16));
}

#[test]
fn populating_for_loads_reads_every_page_of_a_file_that_is_not_in_memory() {
    // A window of one page; or of four around the page, where page 0 reads four, and page 4 the two that are missing,
    // and so on.
    for (read_ahead, reads) in [("4KiB", 16), ("16KiB", 7)] {
        let mut script = ScriptWriter::new();
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED | MapFlags::POPULATE));
        let prot = Protection { write: false, ..prot };
        let file = Some("data".into());
        script.event(0, EventKind::Mmap { addr: FILE, len: 16 * 4096, prot, flags, file, file_offset: 0 });
        (0..16).for_each(|page| script.load(0, FILE + page * 4096));
        let config = quiet(&[&format!("kernel.read_ahead_bytes={read_ahead}")]);
        let (_, stats) = run_all(&config, vec![(script.finish(), &[0][..])]);
        let value = |name: &str| stats.values[name];
        assert_eq!((value("populate.pages"), value("walk.aborted.count")), (16, 0), "no load faults");
        assert_eq!((value("fault.major.count"), value("fault.minor.count")), (reads, 0));
        assert_eq!(value("cycles.io"), reads * READ);
    }
}

#[test]
fn kernel_threads_of_their_own_kind_run_at_once() {
    let khugepaged =
        r#"kernel.threads.khugepaged={"scan_sleep_cycles":200000,"pages_to_scan":512,"max_ptes_none":511}"#;
    let config = config("radix-2m", &[SWAP, khugepaged, "machine.memory_bytes=32MiB", "machine.cores=3"]);
    let source = pagelab_trace::workload::parse("stride:size=48MiB,stride=4KiB,passes=2", 1).unwrap();
    let (simulation, stats) = run_all(&config, vec![(source, &[0][..])]);
    assert_eq!(
        (simulation.scheduler.cpus.len(), stats.values["cpus"]),
        (3, 1),
        "kswapd and khugepaged have a CPU each"
    );
    assert!(simulation.scheduler.cpus[1..].iter().all(|cpu| cpu.is_kernel_only && cpu.threads.len() == 1));
    assert!(stats.values["khugepaged.scanned"] > 0 && stats.values["swap.out.pages"] > 0);
    assert_conserved(&stats);
}
