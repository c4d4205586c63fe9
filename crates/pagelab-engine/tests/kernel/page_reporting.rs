//! Guests that report free memory to their hosts.

use crate::common::programs::live_spaces;
use crate::common::{ScriptWriter, assembled, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use std::collections::BTreeMap;

use pagelab_trace::{Access, AccessKind, EventKind, Source};

const BASE: u64 = 0x7f00_0000_0000;
/// Pages that the program frees.
const PAGES: u64 = 2048;
const BYTES: u64 = PAGES * 4096;

/// Touches `BYTES`, unmaps them, and does nothing for a while; again in each of the rounds.
fn frees_and_takes_again(rounds: u64) -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    let other = BASE + (1 << 30);
    script.mmap(0, other, 4096);
    script.store(0, other);
    for _ in 0..rounds {
        script.mmap(0, BASE, BYTES);
        (0..PAGES).for_each(|page| script.store(0, BASE + page * 4096));
        script.event(0, EventKind::Munmap { addr: BASE, len: BYTES });
        let nothing = Access { gap: 250_000, ..Access::new(AccessKind::Load, other, 8) };
        (0..40).for_each(|_| script.access_of(0, nothing));
    }
    script.finish()
}

/// Reports after `delay_cycles`, in requests of 4 blocks.
fn reporting(delay_cycles: u64, block_cycles: u32, page_cycles: u32) -> String {
    format!(
        r#"kernel.threads.page_reporting={{"delay_cycles":{delay_cycles},"capacity":4,"block_cycles":{block_cycles},"page_cycles":{page_cycles}}}"#
    )
}

const MEMORY: &str = "system.layers.guest.memory_bytes=64MiB";

fn run_it(system: &str, set: &[&str]) -> (Simulation, Statistics) {
    let (simulation, stats) = run(&config(system, set), frees_and_takes_again(2), &[0]);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &live_spaces(&simulation));
    (simulation, stats)
}

/// A time at which the program has freed its memory, and has not begun to take it again.
fn pause(system: &str, set: &[&str]) -> u64 {
    let (_, stats) = run(&config(system, &[&[MEMORY], set].concat()), frees_and_takes_again(1), &[0]);
    stats.values["elapsed_cycles"] - stats.values["cycles.base"] / 2
}

#[test]
fn a_host_gets_back_what_a_guest_has_freed() {
    let delay = pause("nested-radix-cold", &[]);
    let (_, never) = run_it("nested-radix-cold", &[MEMORY]);
    let (simulation, stats) = run_it("nested-radix-cold", &[MEMORY, &reporting(delay, 0, 0)]);
    let stat = |name: &str| stats.values[name];
    // A pass for each time that the program frees its memory. In each, the zone's blocks share requests of four.
    let (blocks, pages) = (stat("page_reporting.blocks"), stat("page_reporting.pages"));
    assert_eq!((stat("page_reporting.passes"), stat("page_reporting.short"), stat("page_reporting.kept")), (2, 0, 0));
    assert!((blocks.div_ceil(4)..=blocks.div_ceil(4) + 1).contains(&stat("page_reporting.exits")), "{blocks} blocks");
    assert!((blocks * 512..=blocks * 1024).contains(&pages), "{blocks} blocks of {pages} pages");
    // What the host maps is what it has mapped, less what was reported.
    let os = &simulation.kernels.os;
    let host = os.layers[os.tops()[0]].host.unwrap();
    let mapped = os.layers[host.layer].spaces[host.index].resident;
    assert_eq!(mapped, stat("fault.nested.count") - stat("page_reporting.freed"));
    // What is used again faults in the host a second time. Smaller free blocks are used first.
    let again = stat("fault.nested.count") - never.values["fault.nested.count"];
    assert!(again <= stat("page_reporting.freed") && again > PAGES / 4, "{again} faults");
    assert_eq!(stat("fault.minor.count"), never.values["fault.minor.count"]);
    assert!(stat("shootdown.count") > never.values["shootdown.count"], "the guest's translations are flushed");
}

/// Memory that the hypervisor provided before the run costs a fault, too, once the host has taken it back.
#[test]
fn memory_that_was_reported_is_no_longer_backed() {
    let delay = pause("nested-radix", &[]);
    let (_, never) = run_it("nested-radix", &[MEMORY]);
    assert_eq!(never.values["fault.nested.count"], 0);
    let (_, stats) = run_it("nested-radix", &[MEMORY, &reporting(delay, 0, 0)]);
    let again = stats.values["fault.nested.count"];
    assert!(again > PAGES / 4 && again <= stats.values["page_reporting.freed"], "{again} faults");
}

#[test]
fn a_host_keeps_reported_memory_of_its_segment() {
    let segment = "system.layers.host.direct_segment_bytes=64MiB";
    let reports = reporting(1000, 0, 0);
    let (_, stats) = run_it("nested-vmm-direct-cold", &[MEMORY, segment, &reports]);
    let stat = |name: &str| stats.values[name];
    assert!(stat("page_reporting.blocks") > 0);
    assert_eq!((stat("page_reporting.kept"), stat("page_reporting.freed")), (stat("page_reporting.blocks"), 0));
}

#[test]
fn reports_cost_exits_and_the_hosts_work() {
    // Lists of a fixed size, so that costs do not change what is reported.
    let lists = "kernel.per_cpu_lists=linux-4.19";
    let delay = pause("nested-radix-cold", &[lists]);
    let cycles = |set: &[&str], block, page| {
        let reports = reporting(delay, block, page);
        let mut all = vec![MEMORY, "engine.kernel_refs=off", lists, &reports];
        all.extend(set);
        run_it("nested-radix-cold", &all).1.values
    };
    let none = cycles(&["kernel.vm_exit_cycles=0"], 0, 0);
    let spent = |values: &BTreeMap<String, u64>| values["kthread.cycles"] - none["kthread.cycles"];
    assert_eq!(spent(&cycles(&["kernel.vm_exit_cycles=0"], 1000, 0)), 1000 * none["page_reporting.blocks"]);
    assert_eq!(spent(&cycles(&["kernel.vm_exit_cycles=0"], 0, 10)), 10 * none["page_reporting.freed"]);
    assert_eq!(spent(&cycles(&["kernel.vm_exit_cycles=500"], 0, 0)), 500 * none["page_reporting.exits"]);
    // Each reference takes the latency of the first level. The host walks to a block, and writes the entry and the
    // metadata of each page. The guest goes through its lists.
    let (freed, blocks) = (none["page_reporting.freed"], none["page_reporting.blocks"]);
    let latency = config("nested-radix-cold", &[]).machine.cache.l1.latency_cycles;
    let references = none["kthread.cycles"] / u64::from(latency);
    assert!((2 * freed + 4 * blocks..2 * freed + 16 * blocks).contains(&references), "{references}");
}

#[test]
fn impossible_reports_are_refused() {
    let refusal = |system: &str, parameters: &str| {
        let set = format!("kernel.threads.page_reporting={parameters}");
        let config = match assembled(system, &[&set]) {
            Ok(config) => config,
            Err(error) => return error.to_string(),
        };
        let placed = PlacedSource { source: frees_and_takes_again(1), cpus: vec![0], memory_limit: None };
        Simulation::new(&config, vec![placed], None).map(|_| ()).unwrap_err().to_string()
    };
    let key = "kernel.threads.page_reporting";
    for (system, parameters, what) in [
        ("radix", "on", "layer `native` is not a guest"),
        ("nested-radix-cold", r#"{"order":11}"#, "order: 11 is not possible; allowed are 0 to 10"),
        ("nested-radix-cold", r#"{"capacity":0}"#, "capacity: 0 is out of range; allowed are 1 to 1024"),
        ("nested-radix-cold", r#"{"delay_cycles":0}"#, "delay_cycles: 0 is not possible; allowed is 1 and more"),
    ] {
        let error = refusal(system, parameters);
        assert!(error.contains(key) && error.contains(what), "{error}");
    }
    // With Linux's parameters, a guest of 64 MiB is short of memory for a request of 32 blocks of 2 MiB.
    let (_, stats) = run_it("nested-radix-cold", &[MEMORY, r#"kernel.threads.page_reporting={"delay_cycles":1000}"#]);
    assert!(stats.values["page_reporting.short"] > 0 && stats.values["page_reporting.exits"] == 0);
}
