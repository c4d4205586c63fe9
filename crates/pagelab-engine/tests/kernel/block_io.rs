//! Kernel costs of device requests: the stages of a major fault add up to its latency, and other tasks run while one
//! waits.

use crate::common::{ScriptWriter, assert_conserved, config, run, run_all};
use pagelab_engine::base::code_cost::CodeCycles;
use pagelab_engine::config::Config;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, Protection, Source};

const BASE: u64 = 0x7f00_0000_0000;
const OWN: u64 = 0x6f00_0000_0000;
const PAGE: u64 = 4096;
const PAGES: u64 = 64;
const READ: u64 = 30_000;
const SUBMIT: u64 = 1000;
const SWITCH: u64 = 500;
const INTERRUPT: u64 = 700;
const COMPLETION: u64 = 300;
const WAKEUP: u64 = 900;
/// Cycles of a reference when kernels do not use the caches.
const L1: u64 = 4;

fn with(completion_by: &str) -> Config {
    let stage = |cycles: u64| format!(r#"{{"instructions":10,"cycles":{cycles}}}"#);
    let block_io = format!(
        r#"kernel.block_io={{"completion_by":"{completion_by}","submit":{},"switch":{},"interrupt":{},"completion":{},"wakeup":{}}}"#,
        stage(SUBMIT),
        stage(SWITCH),
        stage(INTERRUPT),
        stage(COMPLETION),
        stage(WAKEUP)
    );
    let device = format!(r#"kernel.storage={{"read_cycles":{READ},"write_cycles":9000,"queue_depth":64}}"#);
    let set = [&block_io, &device, "engine.kernel_refs=off", r#"kernel.scheduler={"kind":"recorded"}"#];
    config("osdp", &set)
}

/// Reads pages of a file, each of which is a read of the device.
fn reader() -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
    let file = Some("data".into());
    script.event(0, EventKind::Mmap { addr: BASE, len: PAGES * PAGE, prot, flags, file, file_offset: 0 });
    script.event(0, EventKind::Madvise { addr: BASE, len: PAGES * PAGE, advice: 1 });
    (0..PAGES).for_each(|n| script.load(0, BASE + n * PAGE));
    script.finish()
}

/// Computes for this many cycles.
fn worker(cycles: u64) -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    script.mmap(0, OWN, PAGE);
    script.store(0, OWN);
    for _ in 0..cycles / 5000 {
        let mut access = pagelab_trace::Access::new(pagelab_trace::AccessKind::Load, OWN, 8);
        access.gap = 10_000;
        script.access_of(0, access);
    }
    script.finish()
}

fn stat(stats: &Statistics, name: &str) -> u64 {
    stats.values[name]
}

fn stages(stats: &Statistics) -> u64 {
    let is_stage = |name: &str| name.starts_with("fault.stage.") && name.ends_with(".cycles");
    stats.values.iter().filter(|(name, _)| is_stage(name)).map(|(_, &cycles)| cycles).sum()
}

#[test]
fn stages_and_the_device_add_up_to_the_latency() {
    for (completion_by, submit, completion, wakeup, switch) in
        [("interrupt", SUBMIT, INTERRUPT + COMPLETION, WAKEUP, SWITCH), ("polling", SUBMIT, COMPLETION, 0, 0)]
    {
        let (_, stats) = run(&with(completion_by), reader(), &[0]);
        assert_conserved(&stats);
        assert_eq!((stat(&stats, "fault.major.count"), stat(&stats, "fault.minor.count")), (PAGES, 0));
        let stage = |name: &str| stat(&stats, &format!("fault.stage.{name}.cycles")) / PAGES;
        let refs = if wakeup > 0 { L1 } else { 0 };
        assert_eq!(
            ["submit", "completion", "wakeup"].map(stage),
            [submit + 2 * L1, completion + 2 * L1, wakeup + refs],
            "{completion_by}: the request and its entry of the queue"
        );
        assert_eq!(stage("switch"), switch, "it is spent while the device is at work");
        assert_eq!(stat(&stats, "fault.switch.cycles"), PAGES * switch);
        assert_eq!(stat(&stats, "fault.stage.switch.instructions"), if switch > 0 { 10 * PAGES } else { 0 });
        assert_eq!(stat(&stats, "fault.stage.zeroing.instructions"), 0, "nothing is zeroed");
        assert_eq!(stat(&stats, "cycles.io"), PAGES * (READ - switch));
        let latency = stat(&stats, "fault.major.latency.cycles");
        assert_eq!(latency, stages(&stats) + stat(&stats, "cycles.io"), "{completion_by}");
        let mean = latency / PAGES;
        for percentile in ["p50", "p99", "p999"] {
            let cycles = stat(&stats, &format!("fault.major.latency.{percentile}"));
            assert!(cycles.abs_diff(mean) < mean / 50, "{percentile}: {cycles} of {mean}");
        }
    }
}

#[test]
fn a_switch_ends_with_the_devices_answer() {
    let mut config = with("interrupt");
    let block_io = config.kernel.block_io.as_mut().unwrap();
    block_io.switch.cycles = CodeCycles::Stated(2 * READ as u32);
    let (_, stats) = run(&config, reader(), &[0]);
    assert_conserved(&stats);
    let switch = ["fault.stage.switch.cycles", "fault.switch.cycles", "cycles.io"].map(|name| stat(&stats, name));
    assert_eq!(switch, [PAGES * READ, PAGES * READ, 0]);
}

#[test]
fn pages_that_are_read_are_charged() {
    const BATCH: u64 = 16;
    for pages_at_once in [1, 8] {
        let mut script = ScriptWriter::new();
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
        let file = Some("data".into());
        script.event(0, EventKind::Mmap { addr: BASE, len: PAGES * PAGE, prot, flags, file, file_offset: 0 });
        (0..PAGES).for_each(|n| script.load(0, BASE + n * PAGE));
        let read_ahead = format!("kernel.read_ahead_bytes={}KiB", 4 * pages_at_once);
        let set = [&read_ahead, "kernel.fault_around_bytes=4KiB", "kernel.charge_batch=16"];
        let config = config("osdp", &set);
        let (_, stats) = run(&config, script.finish(), &[0]);
        assert_conserved(&stats);
        let (reads, at_a_time) = (stat(&stats, "fault.major.count"), PAGES / pages_at_once);
        assert!((at_a_time..=2 * at_a_time).contains(&reads), "{reads}");
        let instructions = u64::from(config.kernel.fault.charge.instructions);
        assert_eq!(stat(&stats, "fault.stage.charge.instructions"), reads * instructions);
        // The CPU's stock, and the cgroup each time that the stock is empty.
        let lines = |place: &&str| stat(&stats, &format!("fault.stage.charge.lines.{place}"));
        let lines = ["l1", "l2", "l3", "remote", "dram"].iter().map(lines).sum::<u64>();
        let batches = lines - reads;
        assert!((PAGES / BATCH..=PAGES / BATCH + 1).contains(&batches), "{pages_at_once}: {batches}");
    }
}

#[test]
fn without_block_costs_a_request_costs_only_the_device() {
    let mut config = with("interrupt");
    config.kernel.block_io = None;
    let (_, stats) = run(&config, reader(), &[0]);
    assert_eq!(stat(&stats, "cycles.io"), PAGES * READ);
    assert!(!stats.values.contains_key("fault.stage.submit.cycles"), "there are no such stages");
}

#[test]
fn sleeping_lets_others_run_and_polling_does_not() {
    let waits = |completion_by: &str| {
        // The second source gets the first slice.
        let (_, stats) = run_all(&with(completion_by), vec![(worker(8_000_000), &[0]), (reader(), &[0])]);
        assert_conserved(&stats);
        stat(&stats, "cycles.io")
    };
    assert_eq!(waits("polling"), PAGES * READ);
    let waits = waits("interrupt");
    assert!(waits < PAGES * READ / 10, "{waits} cycles: the other one runs meanwhile");
}

/// The kernel's own lines evict the program's lines; stages take no additional time.
#[test]
fn the_kernels_lines_evict_the_programs_lines() {
    const LINES: u64 = 64;
    let stats = |lines: u32| {
        let mut script = ScriptWriter::new();
        script.mmap(0, OWN, PAGE);
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
        let file = Some("data".into());
        script.event(0, EventKind::Mmap { addr: BASE, len: PAGES * PAGE, prot, flags, file, file_offset: 0 });
        // Each read of a page of the file is followed by the program's own lines.
        for n in 0..8 {
            script.load(0, BASE + n * PAGE);
            (0..LINES).for_each(|line| script.store(0, OWN + line * 64));
        }
        let lines = format!("kernel.block_io.lines={lines}");
        let set = ["kernel.read_ahead_bytes=4KiB", "kernel.fault_around_bytes=4KiB", "machine.cache.l2=null", &lines];
        run(&config("osdp", &set), script.finish(), &[0]).1
    };
    let (without, with) = (stats(0), stats(1024));
    let misses = |stats: &Statistics| stats.values["l1d.misses.data"];
    // L1 has 1024 lines.
    assert_eq!(misses(&with) - misses(&without), 7 * LINES, "but for the first time");
    for name in ["submit", "completion", "wakeup"] {
        let stage = format!("fault.stage.{name}.cycles");
        let more = with.values[&stage] as i64 - without.values[&stage] as i64;
        // Modelled kernel lines are evicted, too.
        assert!((0..8 * 3 * 200).contains(&more), "{name}: {more} cycles");
    }
}

/// Data written by a device are not in caches, so each completion is read from memory; a submission stays where the
/// kernel wrote it.
#[test]
fn completions_come_from_memory() {
    let kernel_misses = |completion_by: &str| {
        let mut config = with(completion_by);
        config.engine.kernel_refs.0 = true;
        let (_, stats) = run(&config, reader(), &[0]);
        (stat(&stats, "cache.dma_invalidations"), stat(&stats, "fault.major.count"))
    };
    for completion_by in ["interrupt", "polling"] {
        let (invalidated, faults) = kernel_misses(completion_by);
        // The first of four completions in a line misses all caches; the frames are fresh.
        assert_eq!(invalidated, faults - faults / 4, "{completion_by}");
    }
}
