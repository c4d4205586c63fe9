//! Copies of a simulation in the middle of its run: each ends like the original.

use crate::common::{ScriptWriter, assembled, assert_conserved, config};
use pagelab_engine::base::error::EngineError;
use pagelab_engine::config::{Config, PresetKind, presets};
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, ProcessIx, Source};

const BASE: u64 = 0x7f00_0000_0000;
const SWAP: &str = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":20000,"write_cycles":9000,"queue_depth":2}"#;

/// Two threads that touch memory alternately, with mapping calls in between and a child that starts before the middle.
fn program() -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 32 << 20);
    let second = script.thread(0);
    let mut threads = vec![0, second];
    let mut place = 7_u64;
    for round in 0..120 {
        for &thread in &threads {
            for _ in 0..25 {
                place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let va = BASE + (place >> 33) % (4 << 20) / 8 * 8;
                let kind = if place >> 32 & 1 == 0 { AccessKind::Store } else { AccessKind::Load };
                // Some presets predict by instructions.
                let pc = 0x40_1000 + (place >> 40) % 4 * 4;
                script.access_of(thread, Access { pc, ..Access::new(kind, va, 8) });
            }
        }
        let addr = BASE + (round << 16);
        match round % 8 {
            2 => script.event(0, EventKind::Munmap { addr, len: 0x8000 }),
            3 => script.mmap(0, addr - 0x1_0000, 0x8000),
            6 => script.event(second, EventKind::Madvise { addr, len: 0x4000, advice: 4 }),
            _ => {}
        }
        if round == 40 {
            script.event(0, EventKind::Fork { child: ProcessIx(1) });
            threads.push(script.thread(1));
        }
        script.cut();
    }
    script.finish()
}

fn created(config: &Config, cpus: &[&[usize]]) -> Result<Simulation, EngineError> {
    let placed = cpus.iter().map(|cpus| PlacedSource { source: program(), cpus: cpus.to_vec(), memory_limit: None });
    Simulation::new(config, placed.collect(), None)
}

fn begin(config: &Config, cpus: &[&[usize]]) -> Simulation {
    created(config, cpus).unwrap_or_else(|e| panic!("{e}"))
}

fn end(simulation: &mut Simulation) -> Statistics {
    simulation.run(&mut |_| true).unwrap_or_else(|e| panic!("{e}"));
    simulation.statistics()
}

/// Copies a run at some of its accesses, and copies the copies; all must end equally.
fn assert_copies_agree(name: &str, config: &Config, cpus: &[&[usize]], at: &[u64]) {
    let whole = end(&mut begin(config, cpus));
    assert_conserved(&whole);
    assert!(whole.values["fault.minor.count"] > 100, "{name}");
    let mut copied = begin(config, cpus);
    let mut copies = Vec::new();
    for &at in at {
        let stopped = copied.run(&mut |done| done < at).unwrap_err();
        assert!(matches!(stopped, EngineError::Interrupted), "{name}: {stopped}");
        copies.push(copied.clone());
    }
    for copy in copies.iter_mut().chain([&mut copied]) {
        let stats = end(copy);
        let pairs = whole.values.iter().map(|(name, value)| (name, value, stats.values[name]));
        let differ: Vec<_> = pairs.filter(|&(_, value, copied)| *value != copied).collect();
        assert!(differ.is_empty(), "{name}: {differ:?}");
        assert_eq!(stats.values.len(), whole.values.len(), "{name}");
    }
}

#[test]
fn copies_of_every_preset_end_alike() {
    for preset in presets(PresetKind::System) {
        // The hosts of the largest direct segments need the last.
        let sizes = ["machine.memory_bytes=1GiB", "machine.memory_bytes=16GiB"];
        let fits = |config: &Config| created(config, &[&[0]]).is_ok();
        let config = sizes.iter().find_map(|size| assembled(preset.name, &[size]).ok().filter(fits)).expect("room");
        assert_copies_agree(preset.name, &config, &[&[0]], &[3000]);
        assert_copies_agree(preset.name, &config, &[&[0, 2]], &[3000]);
    }
}

#[test]
fn copies_are_made_while_programs_wait_and_kernel_threads_run() {
    let khugepaged =
        r#"kernel.threads.khugepaged={"scan_sleep_cycles":100000,"pages_to_scan":512,"max_ptes_none":511}"#;
    for system in ["radix", "radix-2m", "nested-radix"] {
        for cores in ["machine.cores=1", "machine.cores=4"] {
            let set = [SWAP, khugepaged, "kernel.cgroup_limit_bytes=6MiB", cores, "machine.threads_per_core=1"];
            let config = config(system, &set);
            let on: &[&[usize]] = if cores.ends_with('1') { &[&[0], &[0]] } else { &[&[0, 1], &[1, 2]] };
            assert_copies_agree(system, &config, on, &[2000, 7000, 9000]);
        }
    }
}

#[test]
fn a_run_can_be_interrupted_although_no_part_of_its_sources_ends() {
    let config = config("radix", &["engine.sync_quantum_cycles=0"]);
    let long = || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 2 << 12);
        let second = script.thread(0);
        for thread in [0, second] {
            (0..100_000).for_each(|n| script.store(thread, BASE + u64::from(thread) * 4096 + n % 64 * 64));
        }
        let placed = PlacedSource { source: script.finish(), cpus: vec![0, 2], memory_limit: None };
        Simulation::new(&config, vec![placed], None).unwrap_or_else(|e| panic!("{e}"))
    };
    let whole = end(&mut long());
    let mut simulation = long();
    let stopped = simulation.run(&mut |_| false).unwrap_err();
    assert!(matches!(stopped, EngineError::Interrupted), "{stopped}");
    let made = simulation.statistics().values["accesses"];
    assert!((1..100_000).contains(&made), "{made}");
    assert_eq!(end(&mut simulation).values, whole.values);
}
