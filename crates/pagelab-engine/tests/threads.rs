//! Threads of one program that share a CPU: who goes on while one waits for a device, to the cycle.
//!
//! Set up as in `tasks.rs`: walks and kernels leave the caches alone and threads share no line, so a run's cycles are a sum.

mod common;

use common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::config::Config;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, Protection};

const READ: u64 = 1_000_000;
const SWITCH: u64 = 2000;
const FILE: u64 = 0x7f00_0000_0000;
const MEMORY: u64 = 0x6f00_0000_0000;

/// A machine on which what a thread costs does not depend on the others.
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
        r#"system.layers.native.frame_allocator={"kind":"buddy"}"#,
        &switch,
        &storage,
    ];
    config("radix", &[&all[..], set].concat())
}

/// A program of so many threads with a file of as many pages, none in memory, and a page of memory for each thread, in use.
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

/// Accesses of a thread to its own memory, each of which waits for the L1 cache, as lines alternate.
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
    let (simulation, stats) = run(config, script.finish(), &[0]);
    assert_conserved(&stats);
    let spaces: Vec<_> = simulation.inputs.iter().flat_map(|input| input.spaces()).collect();
    assert_frames_conserved(&simulation, &spaces);
    stats
}

/// Elapsed cycles, cycles in which nobody could run, and switches.
fn times(stats: &Statistics) -> [u64; 3] {
    ["elapsed_cycles", "cycles.io", "context_switches"].map(|name| stats.values[name])
}

/// What two threads take: the first reads a page, then the second computes; or computes only.
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

/// What the fault of a read costs but for the wait, and the access after it.
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
fn another_thread_goes_on_while_one_waits_for_its_read() {
    let [plain, _, switches] = reader_and_worker(&[], false, 400_000);
    let [elapsed, io, switched] = reader_and_worker(&[], true, 400_000);
    // To the worker at the read, back when the page is there, and to the worker: two more than one after the other.
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
fn what_no_thread_can_fill_of_a_wait_is_waited_for() {
    let [plain, _, switches] = reader_and_worker(&[], false, 1000);
    let [elapsed, io, switched] = reader_and_worker(&[], true, 1000);
    assert!(io > 0 && io < READ, "{io}");
    // The worker is done before the page is there: there and back is one switch more.
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
                // All threads of the process come to a mapping call before the next goes on.
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
    let of = |name: &str| stats.values[name];
    assert_eq!((of("fault.major.count"), of("fault.raced.count")), (1, 1));
    assert_eq!((of("cycles.io"), of("cycles.lock_wait")), (0, 0), "the third thread fills both waits");
    assert_eq!(of("accesses"), 3 * 2 + 2 + 400_200);
}
