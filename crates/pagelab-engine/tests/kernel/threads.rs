//! Threads of one program on one CPU: which one runs while another waits for a device, exact in cycles.
//!
//! As in `tasks.rs`, walks and kernels do not use the caches and threads share no line, so a run's cycles are a sum.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::config::Config;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, Protection};

const READ: u64 = 1_000_000;
const SWITCH: u64 = 2000;
const FILE: u64 = 0x7f00_0000_0000;
const MEMORY: u64 = 0x6f00_0000_0000;

/// A machine on which a thread's cost does not depend on other threads.
fn quiet(set: &[&str]) -> Config {
    let switch = format!("kernel.context_switch_cycles={SWITCH}");
    let storage = format!(r#"kernel.storage={{"read_cycles":{READ},"write_cycles":70000,"queue_depth":8}}"#);
    let all = [
        "engine.kernel_refs=off",
        "machine.core.l1_hit_hidden=false",
        "kernel.flush_space_cycles=0",
        "kernel.page_cache=cold",
        "kernel.read_ahead_bytes=4096",
        "kernel.threads.kswapd=off",
        "kernel.charge_batch=1",
        r#"kernel.scheduler={"kind":"recorded"}"#,
        r#"system.layers.native.frame_allocator={"kind":"buddy"}"#,
        &switch,
        &storage,
    ];
    config("radix", &[&all[..], set].concat())
}

/// A program with this many threads, a file of as many pages, none of them in memory, and a mapped page of memory per
/// thread.
fn program(threads: u32) -> (ScriptWriter, Vec<u32>) {
    let mut script = ScriptWriter::new();
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::PRIVATE));
    let file = Some("data".into());
    let len = u64::from(threads) * 4096;
    script.event(0, EventKind::Mmap { addr: FILE, len, prot, flags, file, file_offset: 0 });
    script.mmap(0, MEMORY, len);
    let all: Vec<u32> = std::iter::once(0).chain((1..threads).map(|_| script.thread(0))).collect();
    all.iter().for_each(|&thread| compute(&mut script, thread, 2));
    (script, all)
}

/// Accesses of a thread to its own memory; each waits for the L1 cache, because lines alternate.
fn compute(script: &mut ScriptWriter, thread: u32, accesses: u64) {
    (0..accesses).for_each(|n| script.store(thread, own(thread) + n % 2 * 64));
}

fn own(thread: u32) -> u64 {
    MEMORY + u64::from(thread) * 4096
}

fn page(n: u64) -> u64 {
    FILE + n * 4096
}

fn replay(config: &Config, script: ScriptWriter) -> Statistics {
    replay_on(&[0], config, script)
}

/// Batch boundaries of a source make no difference.
fn replay_on(cpus: &[usize], config: &Config, script: ScriptWriter) -> Statistics {
    let (_, in_pieces) = run(config, script.clone().in_pieces().finish(), cpus);
    let (simulation, stats) = run(config, script.finish(), cpus);
    for (name, value) in &stats.values {
        assert_eq!(in_pieces.values[name], *value, "{name} in small batches");
    }
    assert_conserved(&stats);
    let spaces: Vec<_> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
    assert_frames_conserved(&simulation, &spaces);
    stats
}

/// Elapsed cycles, cycles without a runnable thread, and switches.
fn times(stats: &Statistics) -> [u64; 3] {
    ["elapsed_cycles", "cycles.io", "context_switches"].map(|name| stats.values[name])
}

/// Times of two threads: the first reads a page, then the second computes; or only computes.
fn reader_and_worker(set: &[&str], reads: bool, accesses: u64) -> [u64; 3] {
    let (mut script, threads) = program(2);
    compute(&mut script, threads[0], 100);
    if reads {
        script.load(threads[0], page(0));
    }
    compute(&mut script, threads[0], 100);
    compute(&mut script, threads[1], accesses);
    times(&replay(&quiet(set), script))
}

/// Cost of a read's fault without the wait, plus the access after it.
fn cost_of_read() -> u64 {
    let alone = |reads: bool| {
        let (mut script, _) = program(1);
        compute(&mut script, 0, 100);
        if reads {
            script.load(0, page(0));
        }
        compute(&mut script, 0, 100);
        times(&replay(&quiet(&[]), script))
    };
    let (with, without) = (alone(true), alone(false));
    assert_eq!(with[1], READ);
    with[0] - without[0] - READ
}

#[test]
fn another_thread_runs_while_one_waits_for_its_read() {
    let [plain, _, switches] = reader_and_worker(&[], false, 400_000);
    let [elapsed, io, switched] = reader_and_worker(&[], true, 400_000);
    // Switches to the worker at the read, back when the page arrives, and to the worker again: two more than in
    // sequence.
    assert_eq!((io, switched), (0, switches + 2));
    assert_eq!(elapsed, plain + cost_of_read() + 2 * SWITCH);
}

#[test]
fn without_preemption_a_thread_is_back_when_the_other_run_ends() {
    let set = ["kernel.wakeup_preemption=off"];
    let [plain, _, switches] = reader_and_worker(&set, false, 400_000);
    let [elapsed, io, switched] = reader_and_worker(&set, true, 400_000);
    assert_eq!((io, switched), (0, switches + 1));
    assert_eq!(elapsed, plain + cost_of_read() + SWITCH);
}

#[test]
fn the_rest_of_a_wait_without_ready_threads_is_waited_for() {
    let [plain, _, switches] = reader_and_worker(&[], false, 1000);
    let [elapsed, io, switched] = reader_and_worker(&[], true, 1000);
    assert!(io > 0 && io < READ, "{io}");
    // The worker ends before the page arrives: one switch more.
    assert_eq!(switched, switches + 1);
    assert_eq!(elapsed, plain + cost_of_read() + SWITCH + io);
}

#[test]
fn reads_of_several_threads_overlap() {
    let readers = |overlap: bool| {
        let (mut script, threads) = program(3);
        for &thread in &threads {
            script.load(thread, page(thread.into()));
            compute(&mut script, thread, 100);
            if !overlap {
                // All threads of the process reach a mapping call before any of them continues.
                script.mmap(thread, MEMORY + (1 << 30) + u64::from(thread) * 4096, 4096);
            }
        }
        times(&replay(&quiet(&[]), script))
    };
    let ([one_by_one, all_io, _], [together, io, _]) = (readers(false), readers(true));
    assert_eq!(all_io, 3 * READ, "nobody overtakes at a mapping call");
    assert!(io < READ && together < one_by_one - 3 * READ / 2, "{io} {together} {one_by_one}");
}

#[test]
fn a_thread_that_wants_the_same_page_waits_with_the_first() {
    let (mut script, threads) = program(3);
    script.load(threads[0], page(0));
    script.load(threads[1], page(0) + 64);
    compute(&mut script, threads[2], 400_000);
    compute(&mut script, threads[0], 100);
    compute(&mut script, threads[1], 100);
    let stats = replay(&quiet(&[]), script);
    let value = |name: &str| stats.values[name];
    assert_eq!((value("fault.major.count"), value("fault.raced.count")), (1, 1));
    assert_eq!((value("cycles.io"), value("cycles.lock_wait")), (0, 0), "the third thread fills both waits");
    assert_eq!(value("accesses"), 3 * 2 + 2 + 400_200);
    // Each thread walks once for its own page, the reader before and after its read, the other one before and after its
    // wait.
    assert_eq!(value("fault.walk.count"), 3 + 2 + 2);
}

#[test]
fn a_task_that_waits_for_a_reader_on_its_cpu_waits_for_the_device() {
    let (mut script, threads) = program(2);
    script.load(threads[0], page(0));
    script.load(threads[1], page(0) + 64);
    let stats = replay(&quiet(&[]), script);
    let (io, lock_wait) = (stats.values["cycles.io"], stats.values["cycles.lock_wait"]);
    let meanwhile = SWITCH..2 * SWITCH;
    assert!(meanwhile.contains(&(READ - io)), "{io}: the other one comes to the page, and nobody can do more");
    assert_eq!(lock_wait, 0);
}

const STACK: u64 = 0x7fff_0000_0000;

/// A mapping that grows downwards, which waits for all faults in the space with `kernel.fault_lock=mm`.
fn map_stack(script: &mut ScriptWriter) {
    let flags = MapFlags(MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::GROWSDOWN);
    let kind =
        EventKind::Mmap { addr: STACK, len: 4096, prot: Protection::READ_WRITE, flags, file: None, file_offset: 0 };
    script.event(0, kind);
}

#[test]
fn a_chain_of_threads_that_wait_for_each_other_leaves_the_cpu_to_others() {
    let (mut script, threads) = program(4);
    map_stack(&mut script);
    // The third waits for the faults of the first two, the second for the fault of the first, which waits for the
    // device.
    script.load(threads[0], page(0));
    script.load(threads[1], page(0) + 64);
    script.store(threads[2], STACK - 8);
    compute(&mut script, threads[3], 400_000);
    let stats = replay(&quiet(&["kernel.fault_lock=mm"]), script);
    let value = |name: &str| stats.values[name];
    assert_eq!((value("cycles.io"), value("cycles.lock_wait")), (0, 0), "the fourth thread fills all waits");
    assert_eq!((value("fault.major.count"), value("fault.raced.count")), (1, 1));
    assert_eq!(value("fault.minor.count"), 4 + 1);
}

/// Cycles that waiting CPUs spin for locks if a reader's allocation takes this long between its lock and its request.
/// Each CPU has a second thread, which computes. The other threads request the lock `delay` accesses later.
fn spun(cpus: &[usize], allocation: u64, delay: u64) -> u64 {
    let others = cpus.len() as u32;
    let (mut script, threads) = program(2 * others);
    map_stack(&mut script);
    (1..others).for_each(|n| compute(&mut script, threads[n as usize], delay));
    script.load(threads[0], page(0));
    script.load(threads[1], page(0) + 64);
    if others > 2 {
        script.store(threads[2], STACK - 8);
    }
    (1..others).for_each(|n| compute(&mut script, threads[(others + n) as usize], 400_000));
    let allocation = format!("kernel.fault.allocation.cycles={allocation}");
    let stats = replay_on(cpus, &quiet(&["kernel.fault_lock=mm", &allocation]), script);
    let value = |name: &str| stats.values[name];
    assert_eq!(value("cycles.io"), READ, "the reader's CPU has nobody else");
    assert_eq!((value("fault.major.count"), value("fault.raced.count")), (1, 1));
    value("cycles.lock_wait")
}

#[test]
fn a_cpu_spins_only_while_the_holder_runs() {
    // The second CPU spins until the reader sends its request, and then runs its other thread.
    let (short, long) = (spun(&[0, 2], 100_000, 1000), spun(&[0, 2], 150_000, 1000));
    assert!(short < 100_000, "{short}");
    assert_eq!(long - short, 50_000);
    // A thread that arrives after the reader began to wait does not spin.
    assert_eq!(spun(&[0, 2], 1000, 10_000), 0);
}

#[test]
fn a_cpu_spins_for_a_spinning_holder_only_while_the_last_holder_runs() {
    let (short, long) = (spun(&[0, 2, 4], 100_000, 1000), spun(&[0, 2, 4], 150_000, 1000));
    assert!(short < 2 * 100_000, "{short}");
    assert_eq!(long - short, 2 * 50_000);
}
