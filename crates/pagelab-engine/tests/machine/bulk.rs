//! Zeroing and copying of pages at the bandwidth of caches and memory: closed forms.

use crate::common::{ScriptWriter, assert_clocks_conserved, assert_conserved, checked, config, run, run_all};
use pagelab_engine::config::{Assembly, PresetKind, assemble, presets};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const PAGES: u64 = 64;
const NON_TEMPORAL: &str = r#"machine.bulk={"non_temporal_bytes":"4KiB"}"#;
const ZEROING: &str = "fault.stage.zeroing.cycles";

fn touches(base: u64, pages: u64) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, base, pages * 4096);
    (0..pages).for_each(|page| script.store(0, base + page * 4096));
    script
}

/// A run of first touches, with memory of a bandwidth.
fn touched(system: &str, bytes_per_cycle: f64, set: &[&str], script: ScriptWriter) -> Statistics {
    let memory = format!("machine.memory.bytes_per_cycle={bytes_per_cycle}");
    let set: Vec<&str> = [&memory[..]].into_iter().chain(set.iter().copied()).collect();
    checked(system, &set, script).1
}

#[test]
fn zeroing_takes_its_bytes_by_the_bandwidth_and_nothing_else_changes() {
    let value = |bytes_per_cycle, set: &[&str], name: &str| {
        touched("radix", bytes_per_cycle, set, touches(BASE, PAGES)).values[name]
    };
    for rate in [0.5, 1.0, 2.0] {
        let (zeroing, expected) = (value(rate, &[NON_TEMPORAL], ZEROING) as f64, (PAGES * 4096) as f64 / rate);
        // What the stage takes besides the bytes.
        let rest = value(rate, &["machine.bulk.cost=latency"], ZEROING) as f64;
        assert!((expected * 0.99..expected * 1.01 + rest).contains(&zeroing), "{rate}: {zeroing}, {rest}");
        assert!(rest < expected / 10.0 * rate, "{rate}: {rest}");
    }
    let program = |rate| {
        let values = touched("radix", rate, &[NON_TEMPORAL], touches(BASE, PAGES)).values;
        ["cycles.base", "cycles.translation"].map(|name| values[name])
    };
    assert_eq!(program(2.0), program(1.0));
    let by_latency = |rate| value(rate, &[NON_TEMPORAL, "machine.bulk.cost=latency"], ZEROING);
    assert_eq!(by_latency(2.0), by_latency(1.0), "zeroing by latency knows no bandwidth");
}

#[test]
fn cached_stores_wait_for_the_lines_that_they_evict() {
    // Caches of 4 and 32 KiB are full of modified lines after a few pages.
    let level = |bytes: &str, latency| format!(r#"{{"size_bytes":"{bytes}","ways":8,"latency_cycles":{latency}}}"#);
    let (l1, l3) = (level("4KiB", 4), level("32KiB", 30));
    let set = [format!("machine.cache.l1={l1}"), "machine.cache.l2=null".into(), format!("machine.cache.l3={l3}")];
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let zeroing = |rate, pages| touched("radix", rate, &set, touches(BASE, pages)).values[ZEROING];
    let of_last = |rate| zeroing(rate, 2 * PAGES) - zeroing(rate, PAGES);
    let (fast, slow, expected) = (of_last(1.0), of_last(0.5), PAGES * 4096);
    assert!((slow - fast).abs_diff(expected) < expected / 20, "{fast} {slow}");
    assert!(fast.abs_diff(expected) < expected / 10, "{fast} of {expected}");
}

#[test]
fn cpus_that_zero_share_the_channel() {
    let set = ["machine.memory.bytes_per_cycle=1", NON_TEMPORAL, "engine.sync_quantum_cycles=0"];
    let elapsed = |cpus: &[usize]| {
        let sources = cpus.iter().zip(0..).map(|(cpu, n)| {
            (touches(BASE + (n << 32), PAGES).finish() as Box<dyn pagelab_trace::Source>, std::slice::from_ref(cpu))
        });
        let (simulation, stats) = run_all(&config("radix", &set), sources.collect());
        assert_clocks_conserved(&simulation);
        assert_conserved(&stats);
        (stats.values["elapsed_cycles"], stats.values[ZEROING])
    };
    let (alone, zeroing) = elapsed(&[0]);
    let (both, of_both) = elapsed(&[0, 2]);
    assert!(both >= 2 * PAGES * 4096 && both < 2 * alone, "{alone} {both}");
    assert!(2 * of_both > 5 * zeroing, "each waits for the other: {zeroing} {of_both}");
}

#[test]
fn non_temporal_stores_leave_no_lines_and_cached_stores_all() {
    let misses = |set: &[&str]| {
        let mut script = touches(BASE, 4);
        (0..4 * 64).for_each(|line| script.load(0, BASE + line * 64));
        touched("radix", 16.0, set, script).values["l3.misses.data"]
    };
    assert_eq!([misses(&[]), misses(&[NON_TEMPORAL])], [0, 4 * 64]);
    assert_eq!(misses(&[r#"machine.bulk={"non_temporal_bytes":"8KiB"}"#]), 0, "4 KiB are too few");
}

#[test]
fn levels_have_rates_of_their_own() {
    // The child's copy reads a page that was just written, from the L1, and writes one that no cache holds.
    let copied = |rates: &str| {
        let mut script = touches(BASE, 1);
        (0..64).for_each(|line| script.store(0, BASE + line * 64));
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        script.store(child, BASE);
        let memory = "machine.bulk.store_bytes_per_cycle.memory=10";
        checked("radix", &["machine.bulk.cost=bandwidth", memory, rates], script).1.values[ZEROING]
    };
    let base = copied("machine.bulk.load_bytes_per_cycle.l1=64");
    // The kernel's own lines have displaced one of the page's.
    assert_eq!(copied("machine.bulk.load_bytes_per_cycle.l1=1") - base, 63 * 63 + 64 - 4);
    assert_eq!(copied("machine.bulk.load_bytes_per_cycle.l2=1") - base, 64 - 1);
    assert!(copied("machine.bulk.store_bytes_per_cycle.memory=1") - base > 2 * 60 * 50, "two pages");
}

#[test]
fn non_temporal_stores_have_a_rate_of_their_own() {
    let zeroing = |set: &[&str]| touched("radix", 4096.0, set, touches(BASE, PAGES)).values[ZEROING];
    let with = |rates: &str| zeroing(&[&format!(r#"machine.bulk={{"non_temporal_bytes":"4KiB",{rates}}}"#)]);
    let by_memory = with(r#""store_bytes_per_cycle":{"memory":1.0}"#);
    let own = with(r#""store_bytes_per_cycle":{"memory":1.0,"non_temporal":4.0}"#);
    let saved = PAGES * (4096 - 1024);
    assert!((by_memory - own).abs_diff(saved) < saved / 100, "{by_memory} {own}");
}

/// No cache holds fresh memory.
#[test]
fn machine_presets_zero_fresh_pages_at_their_rate_of_memory() {
    let machines: Vec<&str> = presets(PresetKind::Machine).map(|preset| preset.name).collect();
    assert!(machines.contains(&"gem5-timing") && machines.len() >= 6, "{machines:?}");
    for machine in machines {
        let assembly = Assembly { machine: Some(machine), system: Some("radix"), kernel: None, set: &[] };
        let config = assemble(&assembly).unwrap();
        let (bulk, fault) = (&config.machine.bulk, &config.kernel.fault);
        let bytes = (PAGES * 4096) as f64 / bulk.store_bytes_per_cycle.memory;
        let stats = run(&config, touches(BASE, PAGES).finish(), &[0]).1;
        let zeroing = stats.values[ZEROING] as f64 - (PAGES * fault.zeroing.cost().cycles.0) as f64;
        // The page's descriptor, and the last line's latency.
        let rest = (PAGES * u64::from(config.machine.cache.dram_latency_cycles)) as f64;
        assert!((bytes..bytes + rest).contains(&zeroing), "{machine}: {zeroing} of {bytes}");
    }
}

#[test]
fn large_pages_are_cleared_towards_the_fault() {
    let stats = |order: &str, at: u64| {
        let mut script = ScriptWriter::new();
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::PRIVATE | MapFlags::ANONYMOUS));
        script.event(0, EventKind::Mmap { addr: BASE, len: 2 << 20, prot, flags, file: None, file_offset: 0 });
        script.store(0, BASE + at * 4096);
        (0..64).for_each(|line| script.load(0, BASE + at * 4096 + line * 64));
        let order = format!("kernel.clearing_order={order}");
        checked("radix-2m", &[&order], script).1.values
    };
    let misses = |order, at| stats(order, at)["l1d.misses.data"];
    // The page of the fault is in the L1 if it was cleared last: with either order only the last page.
    assert!(misses("towards-fault", 100) < 4 && misses("ascending", 100) > 60);
    assert!(misses("towards-fault", 511) < 4 && misses("ascending", 511) < 4);
    let [by_address, towards] = ["ascending", "towards-fault"].map(|order| stats(order, 100)["cache.bulk_lines"]);
    assert_eq!(by_address, towards);
}
