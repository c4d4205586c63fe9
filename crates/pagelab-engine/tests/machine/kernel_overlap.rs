//! Kernel code in the window: the same references, in less time.

use std::collections::BTreeMap;

use crate::common::{assert_clocks_conserved, assert_conserved, config, run};

const WINDOW: &str = r#"machine.core={"model":"window","cycles_per_instruction":0.25"#;

fn statistics(system: &str, core: &str, workload: &str) -> BTreeMap<String, u64> {
    let source = pagelab_trace::workload::parse(workload, 1).unwrap();
    let (simulation, stats) = run(&config(system, &[core, "engine.check=on"]), source, &[0]);
    assert_clocks_conserved(&simulation);
    assert_conserved(&stats);
    stats.values
}

fn with(more: &str) -> String {
    format!("{WINDOW}{more}}}")
}

#[test]
fn kernel_references_are_the_same_and_take_less_time() {
    for system in ["radix", "radix-2m", "mfoe", "nested-radix", "hashed-chained-thp"] {
        let workload = "random:size=2MiB,write=1,accesses=3K";
        let [off, on] = [with(""), with(r#","kernel_overlap":"on""#)].map(|core| statistics(system, &core, workload));
        let counts = |stats: &BTreeMap<String, u64>| -> BTreeMap<String, u64> {
            let is_time = |name: &str| name.contains("cycles") || name.contains("latency");
            stats.iter().filter(|(name, _)| !is_time(name)).map(|(name, &value)| (name.clone(), value)).collect()
        };
        // MFOE's background thread runs by the clock.
        if system != "mfoe" {
            assert_eq!(counts(&off), counts(&on), "{system}");
        }
        let spent = |stats: &BTreeMap<String, u64>| stats["cycles.fault"];
        assert!(spent(&on) < spent(&off), "{system}: {} {}", spent(&on), spent(&off));
        assert!(spent(&on) > of_instructions(&on), "{system}");
    }
}

/// Cycles of the handlers' instructions, which no window hides.
fn of_instructions(stats: &BTreeMap<String, u64>) -> u64 {
    stats["fault.preset.cycles"] + stats["fault.timed.cycles"]
}

#[test]
fn a_window_of_one_instruction_overlaps_next_to_nothing() {
    let least = r#","window":1,"load_queue":1,"store_queue":0,"fill_buffers":1"#;
    let [off, on] = ["off", "on"].map(|overlap| {
        let core = with(&format!(r#"{least},"kernel_overlap":"{overlap}""#));
        statistics("radix", &core, "seq:size=1MiB,step=4096,write=1")["cycles.fault"]
    });
    assert!(on <= off && off - on < off / 10, "{off} {on}");
}
