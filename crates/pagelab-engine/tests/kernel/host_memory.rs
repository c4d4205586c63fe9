//! Hosts that take memory of their guests back.

use crate::common::{assembled, assert_conserved, config, run_all};
use pagelab_engine::config::Config;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;

const SWAP: &str = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":32}"#;

/// Runs a workload in each of two guests, each on a CPU of its own.
fn run_both(config: &Config, spec: &str) -> Statistics {
    let source = |seed| pagelab_trace::workload::parse(spec, seed).unwrap();
    let (_, stats) = run_all(config, vec![(source(1), &[0]), (source(2), &[2])]);
    assert_conserved(&stats);
    stats
}

fn fails(config: &Config, spec: &str) -> String {
    let source = || pagelab_trace::workload::parse(spec, 1).unwrap();
    let placed = |cpu| PlacedSource { source: source(), cpus: vec![cpu], memory_limit: None };
    let mut simulation = Simulation::new(config, vec![placed(0), placed(2)], None).unwrap();
    simulation.run(&mut |_| true).unwrap_err().to_string()
}

/// Each guest has 7 MiB, their host 8 MiB.
#[test]
fn guests_that_use_more_than_their_host_has_are_swapped_out() {
    let (short, roomy) = (&[SWAP][..], &["system.layers.host.memory_bytes=64MiB"][..]);
    let (short, roomy) = (config("small-guests", short), config("small-guests", roomy));
    let (pages, passes) = (5 * 256, 3);
    let spec = "stride:size=5MiB,stride=4KiB,passes=3,write=1";
    let stats = run_both(&short, spec);
    let stat = |name: &str| stats.values[name];
    // In a circle through more pages than fit, the oldest page is always the next one: each page of the later passes is
    // read back. Beyond those, the guests' tables and metadata may leave and come back.
    let (major, least) = (stat("layer.host.fault.major.count"), 2 * pages * (passes - 1));
    assert!((least..=least * 101 / 100).contains(&major), "{major} major faults, {least} by the working sets");
    assert_eq!((stat("layer.host.reclaim.swapped_in"), stat("swap.in.pages")), (major, major));
    // What has left, has come back or is on the device.
    assert!(stat("layer.host.reclaim.swapped_out") >= major);
    let roomy = run_both(&roomy, spec);
    for name in ["fault.major.count", "fault.minor.count", "layer.left.free_bytes"] {
        assert_eq!(stat(name), roomy.values[name], "the guests have memory: {name}");
    }
    assert!(stat("fault.nested.latency.cycles") >= major * 250_000, "each waits for the device");
    assert!(stat("layer.host.reclaim.scanned") >= stat("layer.host.reclaim.swapped_out"));
    assert!(stat("shootdown.count") > 0, "translations through these pages are flushed");
}

#[test]
fn guests_that_fit_are_never_swapped_out() {
    let stats = run_both(&config("small-guests", &[SWAP]), "stride:size=2MiB,stride=4KiB,passes=3,write=1");
    for name in ["scanned", "activated", "deactivated", "swapped_out"].map(|what| format!("layer.host.reclaim.{what}"))
    {
        assert_eq!(stats.values[&*name], 0, "{name}");
    }
    // The same run without a swap area counts the same.
    let without = run_both(&config("small-guests", &[]), "stride:size=2MiB,stride=4KiB,passes=3,write=1");
    for (name, value) in &without.values {
        assert_eq!(stats.values.get(name), Some(value), "{name}");
    }
}

#[test]
fn hosts_without_a_swap_area_run_out_of_memory() {
    let all_off = &[SWAP, "system.layers.host.swap=off"][..];
    for set in [&[][..], all_off] {
        let error = fails(&config("small-guests", set), "stride:size=5MiB,stride=4KiB,write=1");
        assert!(error.contains("layer `host` has no frame left of its 8MiB"), "{error}");
        assert!(error.contains("no swap device (kernel.swap, for layers with system.layers.host.swap=on)"), "{error}");
        assert!(error.contains("its guests may use 14MiB together"), "{error}");
    }
    let small = SWAP.replace("64MiB", "1MiB");
    let error = fails(&config("small-guests", &[&small]), "stride:size=5MiB,stride=4KiB,write=1");
    assert!(error.contains("1MiB are swapped out and 0B of swap are left"), "{error}");
}

#[test]
fn a_guest_may_have_what_its_host_can_hold() {
    let large = "system.layers.left.memory_bytes=72MiB";
    assembled("small-guests", &[SWAP, large]).unwrap();
    let boot = |set: &[&str]| {
        let source = pagelab_trace::workload::parse("seq:size=1MiB", 1).unwrap();
        let placed = PlacedSource { source, cpus: vec![0], memory_limit: None };
        Simulation::new(&config("small-guests", set), vec![placed], None).map(|_| ()).map_err(|e| e.to_string())
    };
    boot(&[SWAP, large]).unwrap();
    let error = boot(&[SWAP, "system.layers.left.memory_bytes=74MiB"]).unwrap_err();
    assert!(error.contains("system.layers.left.memory_bytes") && error.contains("64MiB of its swap area"), "{error}");
    let error = boot(&[large]).unwrap_err();
    assert!(error.contains("may give its guests more than it has"), "{error}");
    let limited = [SWAP, "kernel.cgroup_limit_bytes=2MiB", "system.layers.right.swap=off"];
    let error = assembled("small-guests", &limited).unwrap_err().to_string();
    assert!(error.contains("system.layers.right.swap=off"), "{error}");
}
