//! Hashed page tables with several page sizes in whole systems: references per walk by size, order and layers, and what
//! splits and exits leave in the tables.

use crate::common::{ScriptWriter, assert_conserved, checked, config, run_workload};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, ProcessIx};

const BASE: u64 = 0x7f00_0000_0000;
const LARGE: u64 = 2 << 20;

fn refs_per_walk(stats: &Statistics) -> f64 {
    assert!(stats.values["walk.count"] > 10_000);
    stats.values["walk.refs"] as f64 / stats.values["walk.count"] as f64
}

/// `--set` for the sizes of a layer's table.
fn sizes(layer: &str, order: &str, tables: &str, probes: &str) -> String {
    let order = order.split(',').map(|size| format!("\"{size}\"")).collect::<Vec<_>>().join(",");
    format!(r#"system.layers.{layer}.page_table.sizes={{"order":[{order}],"tables":"{tables}","probes":"{probes}"}}"#)
}

/// 128 pages of 2 MiB do not fit into the TLBs; the code page is in their first level.
const MANY: &str = "random:size=256MiB,accesses=20K";

#[test]
fn a_walk_for_a_large_page_reads_a_line_per_size_that_is_probed_up_to_its_own() {
    // Collisions among 128 pages and one: below 0.1 %, for lines of eight pages below 3 %.
    for (system, refs, more) in
        [("hashed-open-2m", 1.0, 0.2), ("hashed-compact-thp", 1.0, 0.1), ("hashed-chained-thp", 1.0, 0.2)]
    {
        for tables in ["separate", "shared"] {
            for (order, probes, searches) in [
                ("2M,4K", "serial", 1.0),
                ("4K,2M", "serial", 2.0),
                ("2M,4K", "parallel", 2.0),
                ("4K,2M", "parallel", 2.0),
            ] {
                let stats = run_workload(&config(system, &[&sizes("native", order, tables, probes)]), MANY);
                assert_conserved(&stats);
                let found = refs_per_walk(&stats);
                let (least, most) = (searches * refs - 0.001, searches * (refs + more));
                assert!((least..most).contains(&found), "{system} {tables} {order} {probes}: {found}");
            }
        }
    }
}

/// Three places per size: exact numbers, as a cuckoo search never goes on.
#[test]
fn cuckoo_walks_read_three_places_per_size_and_layer() {
    for (order, probes, refs) in [("4K,2M", "parallel", 6), ("4K,2M", "serial", 6), ("4K,2M,1G", "parallel", 9)] {
        for tables in ["separate", "shared"] {
            let stats = run_workload(&config("elastic-cuckoo-thp", &[&sizes("native", order, tables, probes)]), MANY);
            assert_conserved(&stats);
            let (walks, made) = (stats.values["walk.count"], stats.values["walk.refs"]);
            // The code page's few walks hit at the first size of serial probes.
            let few = if probes == "serial" { walks / 1000 } else { 0 };
            assert!(walks > 10_000 && (refs * walks - few..=refs * walks).contains(&made), "{order} {probes}: {made}");
        }
    }
    let first = run_workload(&config("elastic-cuckoo-thp", &[&sizes("native", "2M,4K", "separate", "serial")]), MANY);
    assert!((3.0..3.01).contains(&refs_per_walk(&first)), "{}", refs_per_walk(&first));
    // (6 + 1)^2 - 1 references in a virtual machine.
    let nested = run_workload(&config("nested-elastic-cuckoo-thp", &[]), MANY);
    assert_eq!(nested.values["walk.refs"], 48 * nested.values["walk.count"]);
    // Without collisions (2 + 1)^2 - 1.
    let nested = run_workload(&config("nested-hashed-compact-thp", &[]), MANY);
    assert!((8.0..8.8).contains(&refs_per_walk(&nested)), "{}", refs_per_walk(&nested));
}

/// A step of parallel probes takes as long as its slowest reference: the same number of references, in less time.
#[test]
fn parallel_probes_make_more_references_and_take_less_time() {
    let stats = ["serial", "parallel"].map(|probes| {
        let set = [&*sizes("native", "4K,2M", "separate", probes), "engine.kernel_refs=off"];
        run_workload(&config("hashed-open-2m", &set), MANY)
    });
    let [serial, parallel] = stats.map(|stats| (refs_per_walk(&stats), stats.values["walk.cycles"]));
    assert!(serial.0 <= parallel.0, "{serial:?} {parallel:?}");
    assert!(parallel.1 < serial.1, "{serial:?} {parallel:?}");
}

/// A parent's page of 2 MiB is split when its child writes to it: 512 entries one by one, which the fault pays for.
#[test]
fn a_split_moves_a_page_to_the_table_of_small_ones_and_is_paid_for() {
    let script = |write: bool| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 2 * LARGE);
        (0..2).for_each(|n| script.store(0, BASE + n * LARGE));
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        script.load(child, BASE);
        if write {
            script.store(child, BASE);
        }
        script
    };
    let set = ["system.layers.native.page_table.exits_per_scan=9"];
    for (system, lines) in [("hashed-open-2m", 512), ("hashed-compact-thp", 64), ("hashed-chained-thp", 512)] {
        let run = |write: bool| checked(system, &set, script(write)).1;
        let [whole, split] = [false, true].map(run);
        let used = |stats: &Statistics, what: &str| stats.values[&format!("layer.native.page_table.slots{what}.used")];
        if system == "hashed-chained-thp" {
            assert_eq!(used(&split, "") - used(&whole, ""), 512 - 1, "{system}");
        } else {
            assert_eq!(used(&split, ".4K") - used(&whole, ".4K"), lines, "{system}");
            let large = if system == "hashed-open-2m" { 1 } else { 0 };
            assert_eq!(used(&whole, ".2M") - used(&split, ".2M"), large, "{system}: a slot has 1 page, or 8");
        }
        let refs = |stats: &Statistics| stats.values["fault.stage.walk.cycles"];
        assert!(refs(&split) > refs(&whole) + 4 * lines, "{system}: {} {}", refs(&split), refs(&whole));
    }
}

#[test]
fn scans_delete_the_large_pages_of_ended_processes_from_every_table() {
    for system in ["hashed-open-2m", "hashed-compact-thp", "hashed-chained-thp"] {
        let mut script = ScriptWriter::new();
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        script.mmap(child, BASE, 8 * LARGE);
        (0..8).for_each(|n| script.store(child, BASE + n * LARGE));
        script.mmap(child, BASE + (1 << 30), 4096);
        script.store(child, BASE + (1 << 30));
        script.event(child, EventKind::Exit { code: 0 });
        script.load(0, BASE);
        let set =
            ["system.layers.native.page_table.exits_per_scan=1", "system.layers.native.page_table.table_bytes=1MiB"];
        let (_, stats) = checked(system, &set, script);
        let value = |what: &str| stats.values[&format!("layer.native.page_table.{what}")];
        let slots = if system == "hashed-compact-thp" { 1 + 1 } else { 8 + 1 };
        assert_eq!((value("scan.count"), value("scan.deleted"), value("slots.used")), (1, slots, 0), "{system}");
    }
}
