//! Memory that runs short: reclaim, swap and cgroup limits.
//!
//! How well the two lists do what exact LRU would: with the workloads below, which have twice as many pages as fit, they
//! take 1.00 to 1.10 times as many major faults (printed with --nocapture).

mod common;

use std::collections::{BTreeMap, HashMap};

use common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::config::Config;
use pagelab_engine::error::EngineError;
use pagelab_engine::simulation::{Placed, Simulation};
use pagelab_trace::{Batch, EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const SWAP: &str = r#"kernel.swap={"size_bytes":"256MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":32}"#;
const LIMIT: &str = "kernel.cgroup_limit_bytes=16MiB";
const LIMIT_PAGES: usize = 4096;

/// Major faults of exact LRU with so many pages: accesses to pages that were touched before and are not there.
fn exact_lru(spec: &str, pages: usize) -> u64 {
    let mut source = pagelab_trace::workload::parse(spec, 1).unwrap();
    let mut batch = Batch::default();
    let (mut by_time, mut times) = (BTreeMap::new(), HashMap::new());
    let (mut now, mut faults) = (0_u64, 0);
    while source.next_batch(&mut batch).unwrap() {
        for access in &batch.accesses {
            let page = access.vaddr >> 12;
            now += 1;
            match times.insert(page, now) {
                Some(time) if by_time.remove(&time).is_some() => {}
                Some(_) => faults += 1,
                None => {}
            }
            by_time.insert(now, page);
            if by_time.len() > pages {
                by_time.pop_first();
            }
        }
        batch.clear();
    }
    faults
}

#[test]
fn a_program_of_twice_the_memory_runs_to_its_end() {
    for (spec, least, most) in [
        ("zipf:size=32MiB,accesses=300K", 95, 115),
        ("random:size=32MiB,accesses=100K", 95, 115),
        ("seq:size=32MiB,passes=3", 95, 105),
    ] {
        for new_pages in ["active", "inactive"] {
            let config = config("radix", &[SWAP, LIMIT, &format!("kernel.new_pages={new_pages}")]);
            let source = pagelab_trace::workload::parse(spec, 1).unwrap();
            let (simulation, stats) = run(&config, source, &[0]);
            let (major, exact) = (stats.values["fault.major.count"], exact_lru(spec, LIMIT_PAGES));
            println!("{spec}, new pages {new_pages}: {major} major faults, exact LRU {exact}");
            assert!(exact > 1000 && (exact * least..=exact * most).contains(&(100 * major)), "{major} against {exact}");
            assert_eq!(stats.values["swap.in.pages"], major);
            assert!(stats.values["swap.out.pages"] >= major);
            assert!(stats.values["cycles.blocked"] >= major * 250_000, "each waits for the device");
            assert_conserved(&stats);
            assert_frames_conserved(&simulation, &simulation.inputs[0].spaces().collect::<Vec<_>>());
        }
    }
}

fn fails(config: &Config, spec: &str) -> EngineError {
    let source = pagelab_trace::workload::parse(spec, 1).unwrap();
    let mut simulation = Simulation::new(config, vec![Placed { source, cpus: vec![0] }], None).unwrap();
    simulation.run(&mut |_| true).unwrap_err()
}

#[test]
fn memory_without_a_device_behind_it_ends() {
    let error = fails(&config("radix", &["machine.memory_bytes=16MiB"]), "seq:size=32MiB").to_string();
    assert!(error.contains("layer `native` has no frame left of its 16MiB"), "{error}");
    let small = SWAP.replace("256MiB", "1MiB");
    let error = fails(&config("radix", &[&small, "machine.memory_bytes=16MiB"]), "seq:size=32MiB").to_string();
    assert!(error.contains("has no frame left"), "{error}");
}

#[test]
fn swapped_pages_follow_their_mappings() {
    let config = config("radix", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]);
    let mut script = ScriptWriter::new();
    let page = |n: u64| BASE + n * 4096;
    script.mmap(0, BASE, 0x1000_0000);
    (0..600).for_each(|n| script.store(0, page(n))); // 256 of them fit
    // The first ones are on the device: they move, are inherited, and go.
    script.event(0, EventKind::Mremap { old_addr: page(0), old_len: 0x8000, new_addr: page(4096), new_len: 0x8000 });
    script.load(0, page(4096));
    script.event(0, EventKind::Munmap { addr: page(10), len: 0x8000 });
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    script.load(child, page(20));
    script.load(0, page(20));
    script.event(child, EventKind::Exit { code: 0 });
    script.event(0, EventKind::Exit { code: 0 });
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    assert_eq!(stats.values["fault.major.count"], 3, "one in the new place, one in each process");
    assert_eq!(stats.values["fault.minor.count"], 600);
    let swap = &simulation.os.layers[0].reclaim.as_ref().unwrap().swap;
    assert_eq!((swap.pages(), swap.used_slots()), (0, 0));
    assert_conserved(&stats);
}

#[test]
fn shared_memory_stays() {
    let config = config("radix", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]);
    let mut script = ScriptWriter::new();
    let page = |n: u64| BASE + n * 4096;
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS));
    script.event(0, EventKind::Mmap { addr: page(0), len: 0x6_4000, prot, flags, file: None, file_offset: 0 });
    script.mmap(0, page(1024), 0x100_0000);
    (0..100).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Mremap { old_addr: page(0), old_len: 0x6_4000, new_addr: page(512), new_len: 0x6_4000 });
    for _ in 0..2 {
        (0..600).for_each(|n| script.store(0, page(1024 + n)));
        (0..100).for_each(|n| script.load(0, page(512 + n)));
    }
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    assert_eq!(stats.values["fault.minor.count"], 700);
    assert!(stats.values["fault.major.count"] >= 400);
    assert_frames_conserved(&simulation, &simulation.inputs[0].spaces().collect::<Vec<_>>());
}
