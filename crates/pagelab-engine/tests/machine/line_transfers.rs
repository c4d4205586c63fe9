//! Lines that several cores want: their transfers queue, whatever the quantum.

use crate::common::{ScriptWriter, assert_conserved, run};
use pagelab_engine::config::{Assembly, assemble};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind};

const BASE: u64 = 0x7f00_0000_0000;
/// Cycles of a transfer.
const TRANSFER: u64 = 500;

/// Every fourth hardware thread: different cores, whether a core has one or two.
fn cpus(threads: usize) -> Vec<usize> {
    (0..threads).map(|n| 2 * n).collect()
}

fn machine(extra: &[&str]) -> Vec<String> {
    let transfer = format!("machine.cache.cache_to_cache_latency_cycles={TRANSFER}");
    let fixed = ["machine.cores=8", "machine.threads_per_core=2", &transfer];
    fixed.iter().chain(extra).map(|&set| set.to_owned()).collect()
}

fn run_with(extra: &[&str], source: Box<dyn pagelab_trace::Source>, threads: usize) -> Statistics {
    run_on("linux-6.12", extra, source, threads)
}

fn run_on(kernel: &str, extra: &[&str], source: Box<dyn pagelab_trace::Source>, threads: usize) -> Statistics {
    let mut set = machine(extra);
    set.push("engine.check=on".to_owned());
    let config = assemble(&Assembly {
        machine: Some("sandybridge-e5-2420"),
        system: Some("radix"),
        kernel: Some(kernel),
        set: &set,
    })
    .unwrap();
    let (_, stats) = run(&config, source, &cpus(threads));
    assert_conserved(&stats);
    stats
}

/// Threads that each store to the same line, with this many instructions before each store.
fn writers(threads: u32, stores: u64, think: u32) -> Box<dyn pagelab_trace::Source> {
    let mut script = ScriptWriter::new();
    let all: Vec<u32> = std::iter::once(0).chain((1..threads).map(|_| script.thread(0))).collect();
    script.mmap(0, BASE, 0x1000);
    for _ in 0..stores {
        for &thread in &all {
            script.access_of(thread, Access { gap: think, ..Access::new(AccessKind::Store, BASE, 8) });
        }
    }
    script.finish()
}

/// Elapsed cycles and transfers of this many further stores of all threads together. (At the start, the first thread
/// has the line for itself.)
fn further(extra: &[&str], threads: u32, stores: u64, think: u32) -> (u64, u64) {
    let [few, many] = [1, 2].map(|times| {
        let each = (times * stores + 2000) / u64::from(threads);
        let stats = run_with(extra, writers(threads, each, think), threads as usize);
        (stats.values["elapsed_cycles"], stats.values["coherence.remote"])
    });
    (many.0 - few.0, many.1 - few.1)
}

#[test]
fn writers_of_a_line_share_its_transfers() {
    // A closed queue: n writers, each of which works z cycles and then needs the line for s, make
    // min(n / (z + s), 1 / s) stores per cycle.
    let one_per_cycle = r#"machine.core={"model":"in-order","cycles_per_instruction":1.0,"l1_hit_hidden":false}"#;
    let stores = 2000;
    for (threads, think) in [(2, 200), (2, 3000), (8, 200), (8, 3000), (8, 6000)] {
        for quantum in [0, 1000] {
            let quantum_set = format!("engine.sync_quantum_cycles={quantum}");
            let (elapsed, moved) = further(&[one_per_cycle, &quantum_set], threads, stores, think);
            let (n, z) = (u64::from(threads), u64::from(think));
            let expected = TRANSFER.max((z + TRANSFER) / n) * stores;
            let apart = elapsed.abs_diff(expected) * 100 / expected;
            assert!(apart <= 5, "{n} writers, think time {z}, quantum {quantum}: {elapsed} cycles, not {expected}");
            assert!(moved * 100 >= stores * 95, "{n} writers, think time {z}, quantum {quantum}: {moved} transfers");
        }
    }
}

#[test]
fn transfers_overlap_if_they_do_not_queue() {
    let set = ["machine.cache.queue_transfers=off", "engine.sync_quantum_cycles=0"];
    let stats = run_with(&set, writers(8, 250, 10), 8);
    assert_eq!(stats.values["coherence.queued"], 0);
    assert!(stats.values["elapsed_cycles"] < TRANSFER * 2000 / 4, "eight transfers of one line at a time");
}

#[test]
fn the_fast_path_keeps_the_order_of_contended_lines() {
    for core in [
        r#"{"model":"in-order","cycles_per_instruction":0.5,"l1_hit_hidden":true}"#,
        r#"{"model":"window","cycles_per_instruction":0.25}"#,
    ] {
        let core = format!("machine.core={core}");
        let [fast, general] = ["on", "off"].map(|fast| {
            let fast = format!("engine.fast_path={fast}");
            let spec = "random:size=256,granularity=8,write=0.5,threads=4,regions=shared,accesses=40K";
            let source = pagelab_trace::workload::parse(spec, 1).unwrap();
            run_with(&[&core, &fast], source, 4)
        });
        assert_eq!(fast.values, general.values, "{core}");
        assert!(fast.values["coherence.queued"] > 1000, "{core}: {}", fast.values["coherence.queued"]);
        let [all, program] = ["", ".program"].map(|by| fast.values[&format!("coherence.queue_cycles{by}")]);
        assert!(program <= all && program * 10 > all * 9, "{core}: {program} of {all}");
    }
}

/// Cycles per fault of eight threads that touch memory, by the kernel's version and whether each has its own mapping.
fn cycles_per_fault(kernel: &str, regions: &str) -> u64 {
    let spec = format!("stride:size=2MiB,stride=4KiB,write=1,threads=8,regions={regions}");
    let source = pagelab_trace::workload::parse(&spec, 1).unwrap();
    let transfer = "machine.cache.cache_to_cache_latency_cycles=5000";
    let stats = run_on(kernel, &[transfer], source, 8);
    stats.values["elapsed_cycles"] / stats.values["fault.minor.count"]
}

#[test]
fn faults_scale_with_a_lock_per_mapping_and_a_mapping_per_thread() {
    // Taking the lock and releasing it moves its line twice.
    let both = 2 * 5000;
    for (kernel, regions) in [("linux-4.9", "own"), ("linux-4.9", "apart"), ("linux-6.12", "own")] {
        let cycles = cycles_per_fault(kernel, regions);
        assert!((both * 9 / 10..both * 13 / 10).contains(&cycles), "{kernel}, {regions}: {cycles} cycles per fault");
    }
    let apart = cycles_per_fault("linux-6.12", "apart");
    assert!(apart < both / 4, "a lock of its own stays in the core: {apart} cycles per fault");
}

#[test]
fn distant_cores_exchange_lines_more_slowly() {
    let (near, _) = further(&[], 2, 1000, 50);
    let (far, _) = further(&[r#"machine.cache.far_cores=[{"cores":1,"latency_cycles":1500}]"#], 2, 1000, 50);
    assert!((far * 100 / near).abs_diff(300) < 15, "{near} cycles near, {far} far");
    // Distance does not depend on the queue.
    let set = ["machine.cache.queue_transfers=off", "engine.sync_quantum_cycles=0"];
    let (near, _) = further(&set, 2, 1000, 50);
    let (far, _) =
        further(&[set[0], set[1], r#"machine.cache.far_cores=[{"cores":1,"latency_cycles":1500}]"#], 2, 1000, 50);
    assert!(far > 2 * near, "{near} cycles near, {far} far");
}
