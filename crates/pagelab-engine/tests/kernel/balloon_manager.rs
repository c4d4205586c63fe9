//! Managers that change the sizes of guests' balloons: the rules' fixed points and numbers of steps.

use crate::common::programs::live_spaces;
use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::Source;

const BASE: u64 = 0x7f00_0000_0000;
/// Frames of the left guest, 7 MiB.
const GUEST: f64 = 1792.0;
const ROOMY_HOST: &str = "system.layers.host.memory_bytes=64MiB";
/// The right guest has 1 MiB.
const SMALL: &str = "system.layers.right.memory_bytes=1MiB";

/// A program of this many pages, which then only uses them, so often.
fn steady(pages: u64, uses: u64) -> Box<dyn Source> {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, pages * 4096);
    (0..pages).for_each(|page| script.store(0, BASE + page * 4096));
    (0..uses).for_each(|n| script.load(0, BASE + n * 37 % pages * 4096));
    script.finish()
}

fn managed(bytes: &str, start: u64, manager: &str) -> String {
    format!(
        r#"kernel.threads.balloon={{"bytes":"{bytes}","start_cycles":{start},"retry_cycles":20000,"page_cycles":10,"manager":{{{manager}}}}}"#
    )
}

fn simulate(set: &[&str], pages: u64) -> Statistics {
    let config = config("small-guests", &[&[ROOMY_HOST], set].concat());
    let (simulation, stats) = run(&config, steady(pages, 300_000), &[0]);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &live_spaces(&simulation));
    let os = &simulation.kernels.os;
    let hosts = os.tops().iter().map(|&guest| os.layers[guest].host.unwrap());
    let mapped: u64 = hosts.map(|host| os.layers[host.layer].spaces[host.index].resident).sum();
    assert_eq!(mapped, stats.values["fault.nested.count"] - stats.values["balloon.freed"]);
    stats
}

#[test]
fn a_guest_grows_while_its_host_has_memory() {
    // Both guests begin with balloons of 1,024 frames; nothing is under pressure.
    for (share, all_steps) in [(0.05, 18), (1.0, 2)] {
        let manager = format!(r#""interval_cycles":40000,"most_change_fraction":{share}"#);
        let stats = simulate(&[&managed("4MiB", 1, &manager)], 256);
        let stat = |name: &str| stats.values[name];
        // They have more than a fifth free, and grow by this share at a time. An exit is for 256 pages.
        let (mut size, mut steps, mut exits) = (GUEST - 1024.0, 0, 4);
        while size < GUEST {
            let next = (size * (1.0 + share)).round().min(GUEST);
            exits += ((next - size) / 256.0).ceil() as u64;
            (size, steps) = (next, steps + 1);
        }
        assert_eq!((stat("balloon.pages"), stat("balloon.shrunk"), steps), (0, 0, all_steps));
        assert_eq!((stat("balloon.grown"), stat("balloon.returned")), (2 * steps, 2 * 1024));
        assert_eq!(stat("balloon.exits"), 2 * exits);
    }
    // The run ends before the first decision.
    let stats = simulate(&[&managed("4MiB", 1, r#""interval_cycles":2000000000000"#)], 256);
    assert_eq!((stats.values["balloon.pages"], stats.values["balloon.grown"]), (2 * 1024, 0));
}

#[test]
fn a_guest_under_pressure_keeps_what_it_uses_and_a_share() {
    // The host is always under pressure, but never short: a guest is to have a fifth of the host's free share free.
    let manager = r#""interval_cycles":40000,"pressure_fraction":1.0,"critical_fraction":0.0,"least_bytes":"1MiB""#;
    // The left guest's program has all its pages before the first decision; the right guest has no more than its least.
    let (_, touched) = run(&config("small-guests", &[ROOMY_HOST, SMALL]), steady(1024, 0), &[0]);
    let balloon = managed("0", touched.values["elapsed_cycles"], manager);
    let stats = simulate(&[SMALL, &balloon], 1024);
    let stat = |name: &str| stats.values[name] as f64;
    let free_of_host = stat("layer.host.free_bytes") / f64::from(64 << 20);
    let guest = GUEST - stat("balloon.pages");
    let used = guest - stat("layer.left.free_bytes") / 4096.0;
    let floor = |guest: f64| used + 0.2 * free_of_host * guest;
    assert!((guest - floor(guest)).abs() <= 0.0025 * guest + 1.0, "{guest} frames, not {}", floor(guest));
    let (mut size, mut steps) = (GUEST, 0.0);
    loop {
        let next = (0.95 * size).max(floor(size)).round();
        if size - next <= 0.0025 * size {
            break;
        }
        (size, steps) = (next, steps + 1.0);
    }
    let shrunk = stat("balloon.shrunk");
    assert!((shrunk - steps).abs() <= 1.0 && steps > 5.0, "{shrunk} steps, not {steps}");
    assert_eq!((stat("balloon.grown"), stat("balloon.returned")), (0.0, 0.0));
}

#[test]
fn a_guest_keeps_its_least_memory() {
    let boot = |least: &str| {
        let balloon = managed("0", 1, &format!(r#""interval_cycles":40000,"least_bytes":"{least}""#));
        let placed = PlacedSource { source: steady(1, 0), cpus: vec![0], memory_limit: None };
        Simulation::new(&config("small-guests", &[SMALL, &balloon]), vec![placed], None).map(|_| ())
    };
    boot("1MiB").unwrap();
    let error = boot("8MiB").unwrap_err().to_string();
    let expected = "kernel.threads.balloon.manager.least_bytes: 8MiB are more than the 7MiB of the guest `left`";
    assert!(error.contains(expected), "{error}");
    // Critical pressure, at which guests are to swap: the guest gets down to what it must keep.
    let manager = r#""interval_cycles":40000,"pressure_fraction":1.0,"critical_fraction":1.0,"least_bytes":"6MiB""#;
    let stats = simulate(&[&managed("0", 1, manager)], 64);
    assert_eq!(stats.values["balloon.pages"], 2 * 256);
}
