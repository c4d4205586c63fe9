//! Memory: closed forms of bandwidth and nodes.

use crate::common::{ScriptWriter, assert_clocks_conserved, assert_conserved, config, run, run_all};
use pagelab_engine::config::Config;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, Maker, Source};

const BASE: u64 = 0x7f00_0000_0000;
const PAGES: u64 = 64;
const LINES: u64 = PAGES * 64;
const L1: u64 = 4;
const LATENCY: u64 = 100;
const IN_ORDER: &str = r#"{"cycles_per_instruction":1.0,"l1_hit_hidden":false}"#;
/// Large resources, and no time for instructions.
const WINDOW: &str =
    r#"{"model":"window","cycles_per_instruction":0.01,"window":4096,"load_queue":4096,"fill_buffers":64}"#;

/// A machine with an L1 of 4 KiB before memory.
fn small(core: &str, memory: &str, more: &[&str]) -> Config {
    let core = format!("machine.core={core}");
    let l1 = format!(r#"machine.cache.l1={{"size_bytes":"4KiB","ways":8,"latency_cycles":{L1}}}"#);
    let mut set = vec![&core[..], &l1, "machine.cache.l2=null", "machine.cache.l3=null"];
    let latency = format!("machine.cache.dram_latency_cycles={LATENCY}");
    let memory = format!("machine.memory={memory}");
    set.extend([&latency[..], &memory]);
    set.extend(more);
    config("radix", &set)
}

/// Maps pages, and loads each of their lines `passes` times; each load depends on the one `after` loads before.
fn program(base: u64, passes: u64, after: Option<u64>) -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    script.mmap(0, base, PAGES * 4096);
    (0..PAGES).for_each(|page| script.store(0, base + page * 4096));
    for line in (0..passes).flat_map(|_| 0..LINES) {
        let maker = after.map_or(Maker::PROGRAM, Maker::after);
        script.access_of(0, Access { maker, ..Access::new(AccessKind::Load, base + line * 64, 8) });
    }
    script.finish()
}

/// Cost of a pass over the lines on a CPU, once their pages are mapped.
fn pass(config: &Config, cpu: usize, after: Option<u64>) -> Statistics {
    let run_passes = |passes| {
        let (simulation, stats) = run(config, program(BASE, passes, after), &[cpu]);
        assert_clocks_conserved(&simulation);
        assert_conserved(&stats);
        stats
    };
    run_passes(2).since(&run_passes(1))
}

fn sum(stats: &Statistics, what: &str) -> u64 {
    let is_summed = |name: &&String| name.starts_with("memory.node.") && name.ends_with(what);
    stats.values.keys().filter(is_summed).map(|name| stats.values[name]).sum()
}

#[test]
fn independent_misses_take_bytes_by_bandwidth() {
    for (bytes_per_cycle, line) in [(1.0, 64), (2.0, 32), (0.25, 256), (64.0, 1)] {
        let config = small(WINDOW, &format!(r#"{{"bytes_per_cycle":{bytes_per_cycle}}}"#), &[]);
        let stats = pass(&config, 0, None);
        assert_eq!([sum(&stats, ".reads"), sum(&stats, ".writes")], [LINES, 0]);
        // 64 fill buffers get a line every 100/64 cycles, if the bandwidth allows it.
        let cycles = stats.values["cycles"];
        let bound = (LINES * line).max(LINES * LATENCY / 64);
        assert!((bound..bound + bound / 50 + 2 * LATENCY).contains(&cycles), "{bytes_per_cycle}: {cycles} of {bound}");
        assert_eq!(sum(&stats, ".queued") > LINES / 2, line > 1, "{bytes_per_cycle}");
    }
}

#[test]
fn chains_are_bound_by_latency_until_a_line_takes_longer() {
    for core in [IN_ORDER, WINDOW] {
        for (bytes_per_cycle, line) in [(1.0, 64), (0.25, 256)] {
            let config = small(core, &format!(r#"{{"bytes_per_cycle":{bytes_per_cycle}}}"#), &[]);
            let stats = pass(&config, 0, Some(1));
            // The in-order core also takes one cycle for each instruction.
            let own = if core == IN_ORDER { LATENCY + 1 } else { LATENCY };
            let (cycles, bound) = (stats.values["cycles"], LINES * own.max(line));
            assert!(cycles.abs_diff(bound) <= LATENCY + LINES / 50, "{core} {bytes_per_cycle}: {cycles} of {bound}");
            assert_eq!(sum(&stats, ".queue_cycles") == 0, line < LATENCY, "{core} {bytes_per_cycle}");
        }
    }
}

#[test]
fn cpus_share_a_channel() {
    let elapsed = |memory: &str| {
        let config = small(IN_ORDER, memory, &["engine.sync_quantum_cycles=0"]);
        let cpus = [[0_usize], [2], [4], [6]];
        let sources = cpus.iter().zip(0..).map(|(cpu, n)| (program(BASE + (n << 32), 4, None), &cpu[..]));
        let (simulation, stats) = run_all(&config, sources.collect());
        assert_clocks_conserved(&simulation);
        (stats.values["elapsed_cycles"], stats)
    };
    let (alone, _) = elapsed("{}");
    let (shared, stats) = elapsed(r#"{"bytes_per_cycle":1.0}"#);
    let lines = sum(&stats, ".reads") + sum(&stats, ".writes");
    assert!(lines >= 4 * 4 * LINES);
    assert!(shared >= lines * 64 - 64 * 256, "{lines} lines in {shared} cycles");
    assert!(alone < lines * 64 / 2 && shared < lines * 64 + alone, "{alone} {shared}");
}

#[test]
fn prefetches_and_write_backs_take_bandwidth() {
    let config = small(IN_ORDER, r#"{"bytes_per_cycle":1.0}"#, &["machine.prefetch.l1.next_line=on"]);
    let stats = pass(&config, 0, None);
    assert_eq!([sum(&stats, ".reads"), sum(&stats, ".prefetches")], [PAGES, LINES - PAGES]);
    // Each line occupies the channel for 64 cycles, less than its latency of 100.
    assert!(stats.values["cycles"] >= LINES * 64, "{}", stats.values["cycles"]);
    // Stores to all lines cause a write-back of each, in the pass or after it.
    let stores = |passes: u64| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, PAGES * 4096);
        (0..passes).for_each(|_| (0..LINES).for_each(|line| script.store(0, BASE + line * 64)));
        run(&small(IN_ORDER, r#"{"bytes_per_cycle":1.0}"#, &[]), script.finish(), &[0]).1
    };
    let stats = stores(3).since(&stores(2));
    assert_eq!([sum(&stats, ".reads"), sum(&stats, ".writes")], [LINES, LINES]);
    assert!(stats.values["cycles"] >= 2 * LINES * 64, "{}", stats.values["cycles"]);
}

/// Two nodes of 4 GiB.
fn two_nodes(placement: &str) -> Config {
    let node = r#"{"size_bytes":"4GiB","remote_latency_cycles":160}"#;
    small(IN_ORDER, &format!(r#"{{"nodes":[{node},{node}],"placement":"{placement}"}}"#), &[])
}

#[test]
fn first_touch_is_local_and_remote_lines_take_longer() {
    // Cores 0 to 2 belong to node 0, cores 3 to 5 to node 1.
    for (cpu, own) in [(0, 0), (4, 0), (6, 1), (10, 1)] {
        let stats = pass(&two_nodes("first-touch"), cpu, None);
        assert_eq!(stats.values[&format!("memory.node.{own}.reads")], LINES, "CPU {cpu}");
        assert_eq!(sum(&stats, ".remote"), 0, "CPU {cpu}");
        assert_eq!(stats.values["cycles.data_stall"], LINES * LATENCY, "CPU {cpu}");
    }
    let stats = pass(&two_nodes("interleaved"), 0, None);
    let remote = sum(&stats, ".remote");
    assert_eq!(sum(&stats, ".reads"), LINES);
    assert!((LINES / 3..2 * LINES / 3).contains(&remote), "{remote}");
    assert_eq!(stats.values["memory.node.1.reads"], remote);
    assert_eq!(stats.values["cycles.data_stall"], LINES * LATENCY + remote * 60);
}

#[test]
fn a_plain_memory_leaves_no_trace() {
    let bulk = ["machine.bulk.cost=latency"];
    let plain = pass(&small(IN_ORDER, "{}", &bulk), 0, None);
    assert!(!plain.values.keys().any(|name| name.starts_with("memory.")));
    let mut wide = pass(&small(IN_ORDER, r#"{"bytes_per_cycle":4096}"#, &bulk), 0, None).values;
    wide.retain(|name, _| !name.starts_with("memory."));
    assert_eq!(wide, plain.values);
}
