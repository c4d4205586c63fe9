//! Page tables other than radix tables in whole systems, most of them hashed: references per walk over any number of
//! layers, limits of a table, and exits.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, checked, config, run, run_workload};
use pagelab_engine::base::ids::DIRECT_MAP;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::page_table::{DESIGNS, PageTable};
use pagelab_trace::EventKind;

const BASE: u64 = 0x7f00_0000_0000;

const KINDS: [&str; 5] = ["hashed-chained", "hashed-open", "hashed-clustered", "hashed-compact", "hashed-power"];

fn refs_per_walk(stats: &Statistics) -> f64 {
    stats.values["walk.refs"] as f64 / stats.values["walk.count"] as f64
}

/// Share of a layer's slots in use, including those of processes that have ended.
fn load(stats: &Statistics, layer: &str) -> f64 {
    let slots = |what: &str| stats.values[&format!("layer.{layer}.page_table.slots{what}")] as f64;
    (slots(".used") + slots(".deleted")) / slots("")
}

/// References in one dimension with linear probing.
fn probes(load: f64) -> f64 {
    0.5 * (1.0 + 1.0 / (1.0 - load))
}

#[test]
fn every_design_is_listed() {
    KINDS.iter().for_each(|kind| assert!(DESIGNS.iter().any(|(name, _)| name == kind), "{kind}"));
}

/// One page per slot, so that the theory of random keys holds: (1 + r)^d - 1 references over d layers, with r of one
/// layer.
#[test]
fn references_of_a_walk_over_layers_are_those_of_one_to_the_power_of_their_number() {
    let table = |layer: &str, bytes: &str| {
        format!(
            r#"system.layers.{layer}.page_table={{"kind":"hashed-compact","table_bytes":"{bytes}","exits_per_scan":9}}"#
        )
    };
    let systems: [(&str, &[&str]); 3] = [
        ("hashed-compact", &["native"]),
        ("nested-hashed-compact", &["guest", "host"]),
        ("nested-3", &["inner", "outer", "machine"]),
    ];
    for (bytes, tolerance) in [("64MiB", 0.01), ("640KiB", 0.03)] {
        for (system, layers) in systems {
            let tables: Vec<String> = layers.iter().map(|layer| table(layer, bytes)).collect();
            let set: Vec<&str> = tables.iter().map(String::as_str).collect();
            // 4,096 pages, one in each group of eight.
            let stats = run_workload(&config(system, &set), "stride:size=128MiB,stride=32KiB,passes=3");
            let found = refs_per_walk(&stats);
            let loads = layers.iter().map(|layer| load(&stats, layer));
            let expected = loads.map(|load| 1.0 + probes(load)).product::<f64>() - 1.0;
            assert!((found / expected - 1.0).abs() < tolerance, "{system} {bytes}: {found} instead of {expected}");
            if bytes == "64MiB" {
                let collision_free = f64::from((1 << layers.len()) - 1);
                assert!((found / collision_free - 1.0).abs() < 0.05, "{system}: {found} of {collision_free}");
            }
        }
    }
}

/// Two ranges that a simple hash maps to the same slots: searches for one range read all lines of the other.
#[test]
fn searches_go_as_far_as_the_user_lets_them_and_count_every_line() {
    // A table of 4,096 lines of eight pages; the ranges are 300 lines each, a multiple of the table apart.
    const LINES: u64 = 300;
    let at = |range: u64, page: u64| BASE + (range * 4096 * 8 + page) * 4096;
    let run_with = |system: &str, layer: &str, lines: Option<u64>| {
        let key = format!("system.layers.{layer}.page_table");
        let table = ["table_bytes=256KiB", "hash=modulo", "cluster=8"];
        let mut set: Vec<_> = table.iter().map(|part| format!("{key}.{part}")).collect();
        set.extend(lines.map(|lines| format!("{key}.search_lines={lines}")));
        let mut script = ScriptWriter::new();
        for range in 0..2 {
            script.mmap(0, at(range, 0), LINES * 8 * 4096);
            (0..LINES * 8).for_each(|page| script.store(0, at(range, page)));
        }
        script.event(0, EventKind::Exit { code: 0 });
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let placed = PlacedSource { source: script.finish(), cpus: vec![0], memory_limit: None };
        let mut simulation = Simulation::new(&config(system, &set), vec![placed], None).unwrap();
        simulation.run(&mut |_| true).map(|()| simulation.statistics())
    };
    for (system, layer) in [("hashed-compact", "native"), ("nested-hashed-compact", "guest")] {
        let error = run_with(system, layer, None).unwrap_err().to_string();
        for words in ["within 63 lines", "hash=mix64", &format!("system.layers.{layer}.page_table.search_lines=N")] {
            assert!(error.contains(words), "{system}: {error}");
        }
        let error = run_with(system, layer, Some(LINES)).unwrap_err().to_string();
        assert!(error.contains(&format!("within {LINES} lines")), "{system}: {error}");
        run_with(system, layer, Some(LINES + 1)).unwrap();
    }
    let stats = run_with("hashed-compact", "native", Some(LINES + 1)).unwrap();
    let walks = stats.values["walk.count"];
    assert_eq!((walks, stats.values["walk.refs"]), (2 * LINES * 8, LINES * 8 + LINES * 8 * (LINES + 1)));
}

/// Two ranges of pages share the heads of their chains, and each pass over both finds every head with the other page.
#[test]
fn a_walker_that_looks_at_heads_leaves_each_collision_to_a_fault() {
    const PAGES: u64 = 2048;
    const PASSES: u64 = 3;
    let run = |collisions: &str| {
        let key = "system.layers.native.page_table";
        // 4,096 heads; more pages than the TLBs hold.
        let set = [
            format!("{key}.collisions={collisions}"),
            format!("{key}.table_bytes=128KiB"),
            format!("{key}.hash=modulo"),
            format!("{key}.exits_per_scan=9"),
        ];
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let at = |range: u64, page: u64| BASE + (range * 4096 + page) * 4096;
        let mut script = ScriptWriter::new();
        (0..2).for_each(|range| script.mmap(0, at(range, 0), PAGES * 4096));
        for _ in 0..PASSES {
            (0..2).for_each(|range| (0..PAGES).for_each(|page| script.store(0, at(range, page))));
        }
        checked("hashed-chained", &set, script).1
    };
    let [kernel, walker] = ["kernel", "walker"].map(run);
    let value = |stats: &Statistics, name: &str| stats.values[name];
    for stats in [&kernel, &walker] {
        assert_eq!((value(stats, "fault.minor.count"), value(stats, "walk.count")), (2 * PAGES, 2 * PASSES * PAGES));
    }
    // All but the first range's first pass, where the chains are empty.
    assert_eq!(value(&kernel, "fault.collision.count"), (2 * PASSES - 1) * PAGES);
    assert_eq!(value(&kernel, "walk.refs"), 2 * PASSES * PAGES, "one slot per walk");
    assert_eq!((value(&walker, "fault.collision.count"), value(&walker, "walk.refs")), (0, (1 + 2) * PASSES * PAGES));
    assert!(value(&kernel, "fault.cycles") > value(&walker, "fault.cycles"));
}

/// A walk ends in the first or second line of the primary or the secondary group: 1 to 4 references.
#[test]
fn a_walk_of_power_groups_reads_two_lines_a_group_at_most() {
    let run = |set: &[&str]| run_workload(&config("hashed-power", set), "stride:size=56MiB,stride=4096,passes=3");
    let stats = run(&[]);
    // 14,336 neighbouring pages are in one group each, and the code page in any.
    assert!((1.0..1.001).contains(&refs_per_walk(&stats)), "{}", refs_per_walk(&stats));
    assert_eq!(stats.values["layer.native.page_table.slots.used"], 14337);
    // Each of 2,048 groups gets exactly seven: four in the first line and three in the second.
    let full = run(&["system.layers.native.page_table.table_bytes=256KiB"]);
    assert!((refs_per_walk(&full) / (10.0 / 7.0) - 1.0).abs() < 0.01, "{}", refs_per_walk(&full));
    assert_eq!(load(&full, "native"), 14337.0 / 16384.0);
    // Without collisions (1 + 1)^2 - 1.
    let nested: Vec<String> = ["guest", "host"]
        .iter()
        .map(|layer| format!(r#"system.layers.{layer}.page_table={{"kind":"hashed-power","exits_per_scan":9}}"#))
        .collect();
    let nested: Vec<&str> = nested.iter().map(String::as_str).collect();
    let stats = run_workload(&config("nested-hashed-compact", &nested), "random:size=64MiB,accesses=60K");
    assert!((3.0..3.05).contains(&refs_per_walk(&stats)), "{}", refs_per_walk(&stats));
}

/// 24 pages in each of 64 pairs of groups that have 16 slots: the kernel keeps eight of each in its record, and a walk
/// for one of these is a fault that exchanges two.
#[test]
fn full_groups_of_power_overflow_into_the_kernels_record() {
    const GROUPS: u64 = 64;
    const PAGES: u64 = 24;
    const PASSES: u64 = 4;
    let key = "system.layers.native.page_table";
    let run = |full: &str| {
        // 512 groups. Neighbouring pages are in neighbouring groups, and more than the TLBs hold.
        let set =
            [format!("{key}.full_groups={full}"), format!("{key}.table_bytes=64KiB"), format!("{key}.hash=modulo")];
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let at = |group: u64, page: u64| BASE + (page * 512 + group) * 4096;
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, PAGES * 512 * 4096);
        for _ in 0..PASSES {
            (0..PAGES).for_each(|page| (0..GROUPS).for_each(|group| script.store(0, at(group, page))));
        }
        let placed = PlacedSource { source: script.finish(), cpus: vec![0], memory_limit: None };
        let mut simulation = Simulation::new(&config("hashed-power", &set), vec![placed], None).unwrap();
        simulation.run(&mut |_| true).map(|()| simulation.statistics())
    };
    let error = run("error").unwrap_err().to_string();
    assert!(error.contains("in either group") && error.contains(&format!("{key}.full_groups=evict")), "{error}");
    let stats = run("evict").unwrap();
    assert_conserved(&stats);
    let value = |what: &str| stats.values[&format!("layer.native.page_table.{what}")];
    let (faults, left) = (stats.values["fault.collision.count"], GROUPS * (PAGES - 16));
    assert_eq!((value("slots.used"), value("record.used")), (GROUPS * PAGES, left));
    // A page that comes to full groups evicts another: a third of the first touches, and each page that comes back.
    assert_eq!(value("evicted"), left + faults);
    assert_eq!(stats.values["fault.minor.count"], GROUPS * PAGES);
    // A page can be in the record once per pass at most, and eight of each pair are at any time.
    assert!((left..=(PASSES - 1) * GROUPS * PAGES).contains(&faults), "{faults}");
    assert_eq!(stats.values["walk.count"], PASSES * GROUPS * PAGES);
    assert!(stats.values["walk.refs"] <= 4 * stats.values["walk.count"], "walks do not read the record");
}

#[test]
fn a_page_touched_in_each_group_of_eight_fills_the_compact_table_eight_times_as_fast() {
    let slots = |system: &str, workload: &str| {
        let set = ["system.layers.native.page_table.exits_per_scan=9"];
        run_workload(&config(system, &set), workload).values["layer.native.page_table.slots.used"]
    };
    let (dense, sparse) = ("seq:size=32MiB,passes=1", "stride:size=256MiB,stride=32KiB,passes=1");
    // Both touch 8,192 pages; the code page has its own slot.
    assert_eq!((slots("hashed-compact", dense), slots("hashed-compact", sparse)), (1025, 8193));
    assert_eq!((slots("hashed-clustered", dense), slots("hashed-clustered", sparse)), (2049, 8193));
    assert_eq!((slots("hashed-open", dense), slots("hashed-open", sparse)), (8193, 8193));
}

#[test]
fn a_table_takes_64_bytes_of_memory_a_page_and_chains_half_of_that_more() {
    for (kind, per_page) in KINDS.into_iter().zip([96, 64, 64, 64, 64]) {
        let stats = run_workload(&config(kind, &[]), "seq:size=1MiB,passes=1");
        let pages = (8_u64 << 30) / 4096;
        let direct_map = 2;
        assert_eq!(stats.values["layer.native.page_table_frames"], pages * per_page / 4096 + 1 + direct_map, "{kind}");
    }
}

#[test]
fn lines_of_a_guests_super_slot_are_neighbours_in_the_hosts_table() {
    let stats = |cluster: u32| {
        let set = format!("system.layers.guest.page_table.cluster={cluster}");
        // A scan would read all of the guest's table.
        let set = [&set, "system.layers.guest.page_table.exits_per_scan=9"];
        run_workload(&config("nested-hashed-compact-cold", &set), "seq:size=128MiB,passes=1").values
    };
    let [lines, pages, blocks] = [8, 512, 4096].map(stats);
    // The guest's entries of 32,768 pages: 4,096 lines anywhere, or 64 pages anywhere, or 8 groups of 8 pages.
    let frames = |stats: &std::collections::BTreeMap<String, u64>| stats["fault.nested.count"];
    assert!(frames(&lines) > frames(&pages) + 3000, "{} {}", frames(&lines), frames(&pages));
    // The same number of table pages, but more of the metadata that contains their locks.
    assert!((1..64).contains(&(frames(&pages) - frames(&blocks))), "{} {}", frames(&pages), frames(&blocks));
    let slots = |stats: &std::collections::BTreeMap<String, u64>| stats["layer.host.page_table.slots.used"];
    let [lines, pages, blocks] = [slots(&lines), slots(&pages), slots(&blocks)];
    assert!(lines > pages + 2000 && pages > blocks + 40, "{lines} {pages} {blocks}");
}

/// Four processes of 100 pages each, in groups of eight from a group's first page on.
fn four_processes() -> Box<dyn pagelab_trace::Source> {
    let mut script = ScriptWriter::new();
    for process in 1..=4 {
        script.event(0, EventKind::Fork { child: pagelab_trace::ProcessIx(process) });
        let thread = script.thread(process);
        script.mmap(thread, BASE, 100 * 4096);
        (0..100).for_each(|page| script.store(thread, BASE + page * 4096));
        script.event(thread, EventKind::Exit { code: 0 });
    }
    script.load(0, BASE);
    script.finish()
}

#[test]
fn scans_delete_what_processes_left_and_charge_the_whole_table() {
    for (kind, slots) in KINDS.into_iter().zip([100, 100, 25, 13, 100]) {
        for (exits_per_scan, scans, stale) in [(1, 4, 0), (2, 2, 0), (3, 1, 1), (9, 0, 4)] {
            let set = [
                format!("system.layers.native.page_table.exits_per_scan={exits_per_scan}"),
                "system.layers.native.page_table.table_bytes=1MiB".to_owned(),
            ];
            let set: Vec<&str> = set.iter().map(String::as_str).collect();
            let (simulation, stats) = run(&config(kind, &set), four_processes(), &[0]);
            assert_conserved(&stats);
            assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
            let value = |what: &str| stats.values[&format!("layer.native.page_table.{what}")];
            let lines = (1 << 20) / 64 * if kind == "hashed-chained" { 3 } else { 2 } / 2;
            assert_eq!((value("scan.count"), value("scan.lines")), (scans, scans * lines), "{kind}");
            assert_eq!(value("slots.stale"), stale * slots, "{kind}");
            assert_eq!(value("scan.deleted"), (4 - stale) * slots, "{kind}");
            assert_eq!(value("slots.used"), stale * slots, "{kind}: the parent maps nothing");
            // The next process reuses some of them.
            let deleted = value("slots.deleted");
            match kind {
                "hashed-chained" | "hashed-power" => assert_eq!(deleted, 0),
                _ => assert!(deleted <= value("scan.deleted") && (deleted > 0) == (scans > 0), "{kind}: {deleted}"),
            }
            // Reading a line from memory takes more than one cycle.
            assert!(value("scan.cycles") > value("scan.lines") || scans == 0, "{kind}");
            assert!(value("scan.cycles") <= stats.values["cycles.kernel"], "{kind}");
        }
    }
}

/// Three places are read in parallel: (3 + 1)^d - 1 references over d layers, at any load.
#[test]
fn a_walk_of_elastic_cuckoo_tables_reads_three_places_in_one_step() {
    const CUCKOO: &str = r#""page_table":{"kind":"elastic-cuckoo"},"mmu_cache":"none","page_size":"4K""#;
    let three = ["inner", "outer", "machine"].map(|name| {
        let host = match name {
            "inner" => r#""outer""#,
            "outer" => r#""machine""#,
            _ => "null",
        };
        format!(r#"system.layers.{name}={{"name":"{name}","host":{host},{CUCKOO}}}"#)
    });
    let three: Vec<&str> = three.iter().map(String::as_str).collect();
    for (system, set, refs) in
        [("elastic-cuckoo", &[][..], 3), ("nested-elastic-cuckoo", &[], 15), ("nested-3", &three, 63)]
    {
        let stats = run_workload(&config(system, set), "random:size=64MiB,accesses=60K");
        assert_conserved(&stats);
        assert!(stats.values["walk.count"] > 10_000);
        assert_eq!(stats.values["walk.refs"], refs * stats.values["walk.count"], "{system}");
    }
    // A step costs its slowest reference, so without caches a walk takes as long as a single reference.
    let set = ["engine.kernel_refs=off"];
    let one = run_workload(&config("radix-perfect-mmu-cache", &set), "random:size=1GiB,accesses=60K");
    let three = run_workload(&config("elastic-cuckoo", &set), "random:size=1GiB,accesses=60K");
    let cycles = |stats: &Statistics| stats.values["walk.cycles"] as f64 / stats.values["walk.count"] as f64;
    assert!(cycles(&three) < 1.5 * cycles(&one), "{} {}", cycles(&three), cycles(&one));
}

#[test]
fn elastic_cuckoo_tables_grow_with_the_process_and_faults_pay_for_it() {
    let value = |stats: &Statistics, what: &str| stats.values[&format!("layer.native.page_table.{what}")];
    // 4,096 lines of 8 pages, and one of the code page.
    let stats = run_workload(&config("elastic-cuckoo", &[]), "stride:size=128MiB,stride=4KiB,passes=1");
    assert_eq!(value(&stats, "slots.used"), 4097);
    // 384 lines are too few, as are 768, 1536, 3072 and 6144 at a load of 0.6.
    assert_eq!(
        (value(&stats, "slots"), value(&stats, "rehash.count"), value(&stats, "rehash.smaller")),
        (384 << 5, 5, 0)
    );
    assert_eq!(value(&stats, "way_bytes"), (128 * 64) << 5);
    assert_eq!(value(&stats, "inserted"), 4097);
    // Three blocks per resize.
    assert_eq!(stats.values["layer.native.fault.tables"], 3 * 5);
    let large = r#"system.layers.native.page_table={"kind":"elastic-cuckoo","way_entries":4096}"#;
    let steady = run_workload(&config("elastic-cuckoo", &[large]), "stride:size=128MiB,stride=4KiB,passes=1");
    assert_eq!((value(&steady, "rehash.count"), value(&steady, "rehash.lines")), (0, 0));
    let install = |stats: &Statistics| stats.values["fault.stage.install.cycles"];
    assert!(install(&stats) > install(&steady), "what moves is paid for: {} {}", install(&stats), install(&steady));
}

#[test]
fn elastic_cuckoo_tables_are_their_processes_own() {
    let (simulation, stats) = run(&config("elastic-cuckoo", &[]), four_processes(), &[0]);
    assert_conserved(&stats);
    let layer = &simulation.kernels.os.layers[0];
    assert!(
        matches!(layer.spaces[DIRECT_MAP].table, PageTable::Radix(_)),
        "the kernel's direct map has a table of its own"
    );
    // Four exits have freed their tables; the parent has three ways of two frames, the direct map two tables.
    assert_eq!(layer.table_frames(), 3 * 2 + 2);
    // 100 pages each, in 13 lines; no table contains lines of another process.
    assert_eq!(stats.values["layer.native.page_table.slots.used"], 13);
    assert_eq!(stats.values["layer.native.page_table.inserted"], 4 * 13);
}

#[test]
fn fragmented_memory_has_no_room_for_the_ways_of_a_large_table() {
    let set = [
        r#"system.layers.native.age={"free_fraction":0.8,"huge_free_fraction":0.0,"unmovable_fraction":0.2,"seed":1}"#,
        "machine.memory_bytes=2GiB",
    ];
    // A page in each line of the table.
    let source = pagelab_trace::workload::parse("stride:size=8GiB,stride=32KiB,passes=1", 1).unwrap();
    let placed = pagelab_engine::machine::simulation::PlacedSource { source, cpus: vec![0], memory_limit: None };
    let mut simulation =
        pagelab_engine::machine::simulation::Simulation::new(&config("elastic-cuckoo", &set), vec![placed], None)
            .unwrap();
    let what = simulation.run(&mut |_| true).unwrap_err().to_string();
    for word in ["`native`", "contiguous memory", "elastic-cuckoo", "are free"] {
        assert!(what.contains(word), "{what}");
    }
}

#[test]
fn the_kernels_direct_map_has_a_radix_table_of_its_own() {
    let (simulation, _) = run(&config("hashed-compact", &[]), four_processes(), &[0]);
    let layer = &simulation.kernels.os.layers[0];
    assert!(matches!(layer.spaces[DIRECT_MAP].table, PageTable::Radix(_)));
    let program = simulation.programs.inputs[0].spaces().next().unwrap();
    assert!(matches!(layer.spaces[program.index].table, PageTable::HashedCompact(_)));
}
