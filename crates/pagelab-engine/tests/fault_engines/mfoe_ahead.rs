//! MFOE's software form as a system call ahead of each access that would fault, against closed forms.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run, run_workload};
use pagelab_engine::base::ids::SpaceId;
use pagelab_engine::config::Config;
use pagelab_engine::kernel::config::{FaultLock, VmaIndex};
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind};

const BASE: u64 = 0x7f00_0000_0000;
const OWN: u64 = 0x6f00_0000_0000;
const PAGE: u64 = 4096;
const CALL_CYCLES: u64 = 300;
/// Latency of a reference without caches.
const REFERENCE: u64 = 4;

fn system(set: &[&str]) -> Config {
    let keys = ["system.layers.native.fault_engine.period_cycles=1000000000000", "machine.cores=2"];
    config("mfoe-call", &keys.iter().chain(set).copied().collect::<Vec<_>>())
}

fn stat(stats: &Statistics, name: &str) -> u64 {
    stats.values[&format!("layer.native.fault_engine.{name}")]
}

fn pause(script: &mut ScriptWriter) {
    for _ in 0..600 {
        script.access_of(0, Access { gap: 10_000, ..Access::new(AccessKind::Load, OWN, 8) });
    }
}

/// A process with armed pages from `BASE` on, and full tables.
fn armed_script(pages: u64) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, OWN, PAGE);
    script.store(0, OWN);
    pause(&mut script);
    script.mmap(0, BASE, pages * PAGE);
    pause(&mut script);
    script
}

fn spaces(simulation: &Simulation) -> Vec<SpaceId> {
    simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect()
}

/// References of the search for one of two VMAs.
fn search(config: &Config) -> u64 {
    let lock = u64::from(config.kernel.fault_lock == FaultLock::Mm);
    let nodes = match config.kernel.vma_index {
        VmaIndex::RbTree => 2,
        VmaIndex::MapleTree => 2,
    };
    lock + nodes + 1
}

/// Section 4.8: the call makes its references, and the access that follows misses the TLB and is walked.
#[test]
fn a_call_costs_its_references_and_a_walk_follows() {
    let mut script = armed_script(64);
    (0..64).for_each(|page| script.store(0, BASE + page * PAGE));
    let config = system(&["engine.kernel_refs=off"]);
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &spaces(&simulation));
    let counts = ["hits", "misses", "ahead.mapped.count"].map(|name| stat(&stats, name));
    assert_eq!(counts, [64, 0, 64]);
    // Search, walk, lock and entry, header and tail, both again, the page's entry and the lock, the mm's lock.
    let costs = &config.kernel.fault;
    let stages = [costs.lookup, costs.walk, costs.install].map(|stage| stage.cost().cycles.0).iter().sum::<u64>();
    let latency = stages + REFERENCE * (search(&config) + 4 + 2 + 4 + 2 + 1);
    assert_eq!(stat(&stats, "ahead.mapped.cycles"), 64 * latency);
    assert_eq!((stat(&stats, "ahead.mapped.p50"), stat(&stats, "ahead.mapped.deviation")), (latency, 0));
    let refused = stat(&stats, "ahead.refused.cycles") + stat(&stats, "ahead.refused.count") * CALL_CYCLES;
    assert_eq!(stat(&stats, "ahead.cycles"), 64 * (latency + CALL_CYCLES) + refused);
    // The first page's entry was not armed in time, so that the call fails and its access faults.
    assert_eq!((stats.values["fault.minor.count"], stat(&stats, "ahead.refused.count")), (1, 1));
    assert_eq!((stats.values["walk.aborted.count"], stats.values["walk.count"]), (1, 64 + 1));
}

#[test]
fn without_a_frame_the_call_fails_once_and_the_access_faults() {
    let mut script = armed_script(64);
    (0..64).for_each(|page| script.store(0, BASE + page * PAGE));
    // An access to two pages: a call for each.
    let (simulation, stats) = run(&system(&["system.layers.native.fault_engine.entries=16"]), script.finish(), &[0]);
    assert_frames_conserved(&simulation, &spaces(&simulation));
    assert_eq!((stat(&stats, "hits"), stat(&stats, "misses")), (16, 48));
    assert_eq!((stat(&stats, "ahead.refused.count"), stats.values["fault.minor.count"]), (1 + 48, 1 + 48));
}

#[test]
fn an_access_to_two_pages_is_preceded_by_two_calls() {
    let mut script = armed_script(8);
    script.access_of(0, Access::new(AccessKind::Store, BASE + PAGE - 8, 16));
    script.access_of(0, Access::new(AccessKind::Load, BASE + 3 * PAGE - 8, 16));
    script.access_of(0, Access::new(AccessKind::Store, BASE + 3 * PAGE - 8, 16));
    let (simulation, stats) = run(&system(&[]), script.finish(), &[0]);
    assert_frames_conserved(&simulation, &spaces(&simulation));
    assert_eq!((stat(&stats, "ahead.mapped.count"), stats.values["fault.minor.count"]), (4, 1));
}

/// The program knows its own mappings: it makes no call for a file, and none after it has disabled the engine.
#[test]
fn calls_are_made_only_for_mappings_that_the_engine_serves() {
    let mut script = armed_script(8);
    script.event(0, EventKind::EngineCall { enable: false });
    (0..8).for_each(|page| script.store(0, BASE + page * PAGE));
    let (_, stats) = run(&system(&[]), script.finish(), &[0]);
    let calls = stat(&stats, "ahead.mapped.count") + stat(&stats, "ahead.refused.count");
    assert_eq!((calls, stats.values["fault.minor.count"]), (1, 1 + 8));
}

/// Section 5.2.2: faster than the kernel's handler, and slower than the walker.
#[test]
fn the_call_lies_between_the_kernel_and_the_walker() {
    let program = "stride:size=4MiB,stride=4KiB,write=1,gap=60000";
    let mean = |stats: &Statistics, cycles: &str, count: &str| stats.values[cycles] / stats.values[count];
    let call = run_workload(&config("mfoe-call", &["machine.cores=2"]), program);
    let engine = "layer.native.fault_engine";
    let call = mean(&call, &format!("{engine}.ahead.mapped.cycles"), &format!("{engine}.ahead.mapped.count"));
    let kernel = run_workload(&config("radix", &[]), program);
    let kernel = mean(&kernel, "fault.handling.cycles", "fault.minor.count");
    let walker = run_workload(&config("mfoe", &["machine.cores=2"]), program);
    let walker = mean(&walker, &format!("{engine}.mapped.cycles"), &format!("{engine}.hits"));
    assert!(walker < call && call < kernel, "{walker} {call} {kernel}");
}
