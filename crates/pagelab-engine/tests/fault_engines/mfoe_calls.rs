//! System calls that enable and disable MFOE in the middle of a run, against closed forms.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run, run_all, run_workload};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::base::ids::SpaceId;
use pagelab_engine::config::Config;
use pagelab_engine::kernel::vma::VaRange;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, ProcessIx};

const BASE: u64 = 0x7f00_0000_0000;
const LATER: u64 = 0x7e00_0000_0000;
const OWN: u64 = 0x6f00_0000_0000;
const PAGE: u64 = 4096;
/// Tables: two cores of two hardware threads.
const TABLES: u64 = 4;
const ENTRIES: u64 = 64;

fn stat(stats: &Statistics, name: &str) -> u64 {
    stats.values[&format!("layer.native.fault_engine.{name}")]
}

/// Tables that are filled once, at the start or when the engine is enabled.
fn mfoe(parameters: &[&str]) -> Config {
    let keys = ["entries=64", "period_cycles=1000000000000"];
    let keys = keys.iter().chain(parameters).map(|key| format!("system.layers.native.fault_engine.{key}"));
    let set: Vec<String> = keys.chain(["machine.cores=2", "engine.kernel_refs=off"].map(str::to_owned)).collect();
    config("mfoe", &set.iter().map(String::as_str).collect::<Vec<_>>())
}

fn by_call() -> Config {
    mfoe(&["enabled=by-call"])
}

fn call(script: &mut ScriptWriter, thread: u32, enable: bool) {
    script.event(thread, EventKind::EngineCall { enable });
    pause(script, thread);
}

/// Gives threads of the kernel time: accesses to a page of the process, with many instructions between them.
fn pause(script: &mut ScriptWriter, thread: u32) {
    for _ in 0..600 {
        script.access_of(thread, Access { gap: 10_000, ..Access::new(AccessKind::Load, OWN, 8) });
    }
}

fn map(script: &mut ScriptWriter, thread: u32, start: u64, pages: u64) {
    script.mmap(thread, start, pages * PAGE);
    pause(script, thread);
}

fn store(script: &mut ScriptWriter, thread: u32, start: u64, pages: std::ops::Range<u64>) {
    pages.for_each(|page| script.store(thread, start + page * PAGE));
}

/// A process that waits until the tables are full.
fn script() -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, OWN, PAGE);
    script.store(0, OWN);
    pause(&mut script, 0);
    script
}

fn words(simulation: &Simulation, space: SpaceId, start: u64) -> usize {
    let range = VaRange { start: VirtAddr(start), end: VirtAddr(start + (1 << 20)) };
    simulation.kernels.os.layers[0].words(space.index, range).len()
}

fn spaces(simulation: &Simulation) -> Vec<SpaceId> {
    simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect()
}

/// Section 4.1: armed entries stay and their faults go to the kernel, and later mappings are not armed. Section 4.7:
/// the last call frees the frames, and a second one returns at once.
#[test]
fn a_process_that_disables_the_engine_leaves_its_pages_to_the_kernel() {
    let mut script = script();
    map(&mut script, 0, BASE, 32);
    store(&mut script, 0, BASE, 0..8);
    call(&mut script, 0, false);
    map(&mut script, 0, LATER, 16);
    store(&mut script, 0, BASE, 8..20);
    store(&mut script, 0, LATER, 0..16);
    call(&mut script, 0, false);
    let (simulation, stats) = run(&mfoe(&[]), script.finish(), &[0]);
    assert_conserved(&stats);
    let space = spaces(&simulation)[0];
    assert_frames_conserved(&simulation, &[space]);
    let freed = TABLES * ENTRIES - 8;
    let counts = ["hits", "misses", "armed", "freed", "ready_frames"].map(|name| stat(&stats, name));
    assert_eq!(counts, [8, 0, 32, freed, 0]);
    assert_eq!(stats.values["fault.minor.count"], 1 + 12 + 16);
    assert_eq!([words(&simulation, space, BASE), words(&simulation, space, LATER)], [12, 0]);
    let calls = ["calls.enabled", "calls.disabled", "calls.repeated"].map(|name| stat(&stats, name));
    assert_eq!(calls, [0, 1, 1]);
    // References of 4 cycles: the mm's lock; the lock of each table; the entry, the header and the CPU's free list.
    let flag = 300 + 4;
    assert_eq!(stat(&stats, "calls.cycles"), 2 * flag + TABLES * 8 + freed * 12);
}

#[test]
fn an_engine_that_is_enabled_again_serves_the_mappings_of_before_and_of_then() {
    let mut script = script();
    map(&mut script, 0, BASE, 32);
    call(&mut script, 0, false);
    map(&mut script, 0, LATER, 16);
    call(&mut script, 0, true);
    store(&mut script, 0, BASE, 0..8);
    store(&mut script, 0, LATER, 0..16);
    map(&mut script, 0, LATER + (1 << 30), 16);
    store(&mut script, 0, LATER + (1 << 30), 0..16);
    let (simulation, stats) = run(&mfoe(&[]), script.finish(), &[0]);
    assert_frames_conserved(&simulation, &spaces(&simulation));
    assert_eq!((stat(&stats, "hits"), stat(&stats, "armed")), (8 + 16, 32 + 16));
    assert_eq!(stats.values["fault.minor.count"], 1 + 16);
    assert_eq!((stat(&stats, "freed"), stat(&stats, "first_filled")), (TABLES * ENTRIES, 2 * TABLES * ENTRIES));
    assert_eq!(stat(&stats, "ready_frames"), TABLES * ENTRIES - 24);
}

/// A child has the engine as its parent does: a flag of the process, which a fork copies.
#[test]
fn a_child_has_the_engine_if_its_parent_has_enabled_it() {
    for (enable, hits) in [(true, 16), (false, 0)] {
        let mut script = script();
        if enable {
            call(&mut script, 0, true);
        }
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let thread = script.thread(1);
        map(&mut script, thread, LATER, 16);
        store(&mut script, thread, LATER, 0..16);
        let (simulation, stats) = run(&by_call(), script.finish(), &[0]);
        assert_frames_conserved(&simulation, &spaces(&simulation));
        assert_eq!((stat(&stats, "hits"), stat(&stats, "armed")), (hits, hits), "enabled: {enable}");
    }
}

/// Section 4.1.1: nothing is prepared before the first call, and only mappings made after it are served.
#[test]
fn without_a_call_nothing_is_ready_and_nothing_is_armed() {
    let mut script = script();
    map(&mut script, 0, BASE, 16);
    store(&mut script, 0, BASE, 0..4);
    let (_, stats) = run(&by_call(), script.finish(), &[0]);
    for name in ["hits", "armed", "ready_frames", "first_filled", "passes.cycles", "calls.cycles"] {
        assert_eq!(stat(&stats, name), 0, "{name}");
    }
    assert_eq!(stats.values["fault.minor.count"], 1 + 4);

    let mut script = self::script();
    map(&mut script, 0, BASE, 16);
    call(&mut script, 0, true);
    map(&mut script, 0, LATER, 16);
    store(&mut script, 0, BASE, 0..4);
    store(&mut script, 0, LATER, 0..8);
    // The heap grows at a time when the process has the engine.
    script.event(0, EventKind::Brk { start: 0x5555_0000_0000, end: 0x5555_0000_0000 + 4 * PAGE });
    pause(&mut script, 0);
    store(&mut script, 0, 0x5555_0000_0000, 0..4);
    let (simulation, stats) = run(&by_call(), script.finish(), &[0]);
    assert_frames_conserved(&simulation, &spaces(&simulation));
    assert_eq!((stat(&stats, "hits"), stat(&stats, "armed"), stat(&stats, "calls.enabled")), (12, 20, 1));
    assert_eq!(stats.values["fault.minor.count"], 1 + 4);
    assert_eq!(stat(&stats, "first_filled"), TABLES * ENTRIES);
}

/// The enable bit belongs to the context of a thread, and the frames to all processes.
#[test]
fn other_processes_keep_the_engine() {
    let program = |disables: bool| {
        let mut script = script();
        map(&mut script, 0, BASE, 16);
        if disables {
            call(&mut script, 0, false);
        } else {
            pause(&mut script, 0);
        }
        store(&mut script, 0, BASE, 0..16);
        script.finish()
    };
    let (simulation, stats) = run_all(&mfoe(&[]), vec![(program(true), &[0]), (program(false), &[1])]);
    assert_frames_conserved(&simulation, &spaces(&simulation));
    assert_eq!((stat(&stats, "hits"), stat(&stats, "armed"), stat(&stats, "freed")), (16, 32, 0));
    assert_eq!((stats.values["fault.minor.count"], stat(&stats, "calls.disabled")), (2 + 16, 1));
}

#[test]
fn a_child_inherits_the_engine_and_a_new_program_begins_anew() {
    let mut script = script();
    call(&mut script, 0, true);
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    map(&mut script, child, BASE, 8);
    store(&mut script, child, BASE, 0..8);
    // The parent does not have it any more, but its child still does.
    call(&mut script, 0, false);
    map(&mut script, child, LATER, 8);
    store(&mut script, child, LATER, 0..8);
    script.event(child, EventKind::Exec { path: "program".into() });
    script.mmap(child, OWN, PAGE);
    map(&mut script, child, BASE, 8);
    store(&mut script, child, BASE, 0..8);
    let (simulation, stats) = run(&by_call(), script.finish(), &[0]);
    assert_frames_conserved(&simulation, &spaces(&simulation));
    assert_eq!((stat(&stats, "hits"), stat(&stats, "armed"), stat(&stats, "freed")), (16, 16, 0));
}

#[test]
fn the_software_forms_obey_the_calls() {
    for form in ["mfoe-software", "mfoe-software-traced"] {
        let mut script = script();
        map(&mut script, 0, BASE, 32);
        store(&mut script, 0, BASE, 0..8);
        call(&mut script, 0, false);
        store(&mut script, 0, BASE, 8..16);
        call(&mut script, 0, true);
        store(&mut script, 0, BASE, 16..20);
        let period = "system.layers.native.fault_engine.period_cycles=1000000000000";
        let (simulation, stats) = run(&config(form, &[period, "machine.cores=2"]), script.finish(), &[0]);
        assert_frames_conserved(&simulation, &spaces(&simulation));
        // In the kernel's own form, the page for pauses takes a frame if one is ready.
        let hits = stat(&stats, "hits");
        assert!((12..=13).contains(&hits), "{form}: {hits}");
        assert_eq!(stats.values["fault.minor.count"], 1 + 20, "{form}");
    }
}

/// Calls that the configuration adds are those of a trace.
#[test]
fn a_run_can_add_calls_to_any_source() {
    let program = "stride:size=1MiB,stride=4KiB,write=1,gap=60000";
    let of_calls = |calls: &str, system: &str| {
        let calls = format!("engine.fault_engine_calls={calls}");
        let entries = "system.layers.native.fault_engine.entries=256";
        let enabled = format!("system.layers.native.fault_engine.enabled={system}");
        run_workload(&config("mfoe", &[&calls, entries, &enabled, "machine.cores=2"]), program)
    };
    let (all, some) = (of_calls("[]", "always"), of_calls(r#"["disable@100"]"#, "always"));
    let lost = stat(&all, "hits") - stat(&some, "hits");
    assert_eq!((lost, stat(&some, "calls.disabled")), (256 - 100, 1));
    let never = of_calls(r#"["disable@0","enable@256"]"#, "always");
    assert_eq!((stat(&never, "hits"), stat(&never, "armed"), stat(&never, "calls.enabled")), (0, 0, 1));
    let from_start = of_calls(r#"["enable@0"]"#, "by-call");
    assert_eq!(stat(&from_start, "armed"), 256);
    assert!(stat(&from_start, "hits") > 200, "{}", stat(&from_start, "hits"));
}
