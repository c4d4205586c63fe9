//! Counts that follow from the geometry alone.

use crate::common::{ScriptWriter, assert_conserved, config, run, run_workload};
use pagelab_engine::mmu_cache::MmuCacheKind;
use pagelab_trace::{Access, AccessKind, EventKind, MapFlags, Protection};

const BASE: u64 = 0x7f00_0000_0000;

/// Loads `pages` pages in order, `passes` times, one load per page.
fn sweep(pages: u64, passes: u64) -> Box<dyn pagelab_trace::Source> {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, pages * 4096);
    for _ in 0..passes {
        for page in 0..pages {
            // A different line of each page, so that no cache set fills up.
            script.load(0, BASE + page * 4096 + page % 64 * 64);
        }
    }
    script.finish()
}

#[test]
fn a_cold_walk_reads_one_entry_a_level_and_a_warm_one_its_leaf() {
    for (system, levels) in [("radix", 4), ("radix-5level", 5)] {
        // The guest's tables of the page exist already: only their leaf was missing when the first page faulted.
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 0x2000);
        script.load(0, BASE);
        let (_, one) = run(&config(system, &[]), script.finish(), &[0]);
        // The first walk ends at the empty root; the second, after the fault, is complete. Nothing was cached before.
        assert_eq!(one.values["walk.aborted.refs"], 1, "{system}");
        assert_eq!((one.values["walk.count"], one.values["walk.refs"]), (1, levels), "{system}");
        let (_, two) = run(&config(system, &[]), sweep(2, 1), &[0]);
        // The second page's walks begin below the cached level-2 entry: one reference each.
        assert_eq!(two.values["walk.aborted.refs"], 2, "{system}");
        assert_eq!((two.values["walk.count"], two.values["walk.refs"]), (2, levels + 1), "{system}");
    }
}

#[test]
fn strides_within_the_tlbs_reach_miss_once_and_beyond_it_always() {
    // sandybridge-e5-2420: 64 entries of 4 ways, then 512 of 4 ways; LRU.
    let set = ["machine.tlb.l1d.0.policy=lru", "machine.tlb.l2.0.policy=lru"];
    let misses = |pages, passes| {
        let (_, stats) = run(&config("radix", &set), sweep(pages, passes), &[0]);
        assert_conserved(&stats);
        (stats.values["dtlb.l1.misses"], stats.values["dtlb.l2.misses"], stats.values["fault.minor.count"])
    };
    assert_eq!(misses(64, 5), (64, 64, 64));
    assert_eq!(misses(512, 5), (5 * 512, 512, 512));
    // One page more than a set has ways: LRU evicts every page before its next use.
    assert_eq!(misses(1024, 5), (5 * 1024, 5 * 1024, 1024));
}

/// Counts of `steps` on a new mapping: misses, stores to read-only entries and retries, for both levels of a TLB.
fn look_ups(tlb: &str, cpus: &[usize], steps: impl FnOnce(&mut ScriptWriter)) -> [[u64; 2]; 3] {
    let mut script = ScriptWriter::new();
    script.event(0, crate::common::mmap(BASE, 0x40_0000, Protection::from_bits(7)));
    steps(&mut script);
    let (_, stats) = run(&config("radix", &["engine.sync_quantum_cycles=0"]), script.finish(), cpus);
    assert_conserved(&stats);
    let value = |name: String| stats.values.get(&name).copied().unwrap_or(0);
    ["misses", "unwritable", "retries"].map(|what| ["l1", "l2"].map(|level| value(format!("{tlb}.{level}.{what}"))))
}

#[test]
fn an_access_misses_once_however_often_it_is_made() {
    let page = |n: u64| BASE + n * 4096;
    for n in [1, 50] {
        // A first touch looks up before and after its fault.
        let touch = |kind| look_ups("dtlb", &[0], |script| (0..n).for_each(|at| script.access(0, kind, page(at))));
        assert_eq!(touch(AccessKind::Store), [[n; 2], [0; 2], [n; 2]]);
        assert_eq!(touch(AccessKind::Load), [[n; 2], [0; 2], [n; 2]]);
        assert_eq!(touch(AccessKind::Modify), [[n; 2], [0; 2], [n; 2]]);
        let fetched = look_ups("itlb", &[0], |script| {
            (0..n).for_each(|at| script.access(0, AccessKind::Fetch, page(at)));
        });
        assert_eq!(fetched, [[n; 2], [0; 2], [n; 2]]);
        // A load maps the zero page, read-only; a store finds the entry and cannot use it, and its fault removes the
        // entry.
        let written = look_ups("dtlb", &[0], |script| {
            (0..n).for_each(|at| script.load(0, page(at)));
            (0..n).for_each(|at| script.store(0, page(at)));
        });
        assert_eq!(written, [[n; 2], [n; 2], [2 * n; 2]]);
        // If a turn ends between a fault and the repeated access, the counts are the same.
        let turns = look_ups("dtlb", &[0, 2], |script| {
            let other = script.thread(0);
            for at in 0..n {
                script.store(0, page(at));
                script.store(other, page(500 + at));
            }
        });
        assert_eq!(turns, [[2 * n; 2], [0; 2], [2 * n; 2]]);
    }
    // No fault, no retry: a rejected access is not repeated.
    let refused = look_ups("dtlb", &[0], |script| script.load(0, BASE + (1 << 30)));
    assert_eq!(refused, [[1; 2], [0; 2], [0; 2]]);
    // An access across two pages counts twice, and both pages are new.
    let split = look_ups("dtlb", &[0], |script| script.access_of(0, Access::new(AccessKind::Store, page(1) - 4, 8)));
    assert_eq!(split, [[2; 2], [0; 2], [2; 2]]);
}

#[test]
fn data_caches_miss_once_a_line() {
    let set = ["engine.kernel_refs=off"];
    let stats = run_workload(&config("radix", &set), "seq:size=4MiB");
    assert_eq!(stats.values["l1d.misses"], (4 << 20) / 64);
    assert_eq!(stats.values["l3.misses"], (4 << 20) / 64);
    assert_eq!(stats.values["cache.refs.data"], (4 << 20) / 8);
    assert_eq!(stats.values["cache.refs.walk"] + stats.values["cache.refs.kernel"], 0);
    assert_eq!(stats.values["walk.refs.uncached"], stats.values["walk.refs"]);
}

#[test]
fn an_access_across_a_line_and_a_page_is_two() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x2000);
    script.access_of(0, Access { size_bytes: 16, ..Access::new(AccessKind::Store, BASE + 0xff8, 16) });
    let (_, stats) = run(&config("radix", &[]), script.finish(), &[0]);
    assert_eq!(stats.values["accesses"], 1);
    assert_eq!(stats.values["instructions"], 1);
    assert_eq!(stats.values["fault.minor.count"], 2);
    assert_eq!(stats.values["cache.refs.data"], 2);
    // The handlers zeroed its two lines just before; the next such access misses both.
    assert_eq!(stats.values["l1d.misses.data"], 0);
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x2000);
    script.access_of(0, Access::new(AccessKind::Store, BASE + 0xff8, 16));
    let (_, cold) = run(&config("radix", &["engine.kernel_refs=off"]), script.finish(), &[0]);
    assert_eq!((cold.values["l1d.misses"], cold.values["l3.misses"]), (1, 1), "one access, one miss");
}

#[test]
fn accesses_without_a_mapping_are_skipped_and_counted() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x1000);
    script.store(0, BASE);
    script.load(0, BASE + 0x10_0000);
    script.event(
        0,
        EventKind::Mprotect { addr: BASE, len: 0x1000, prot: Protection { read: true, ..Protection::default() } },
    );
    script.store(0, BASE);
    script.load(0, BASE);
    let (simulation, stats) = run(&config("radix", &[]), script.finish(), &[0]);
    assert_eq!(stats.values["accesses"], 4);
    assert_eq!(stats.values["accesses.refused"], 2);
    assert_eq!(stats.values["fault.outside.count"], 1);
    assert_eq!(stats.values["fault.forbidden.count"], 1);
    assert_eq!(simulation.observers.refused[0].vaddr, BASE + 0x10_0000);
    assert_eq!(stats.values["fault.minor.count"], 1);
    assert_conserved(&stats);
}

#[test]
fn a_first_store_to_a_clean_page_walks_again_to_set_its_dirty_bit() {
    let mut script = ScriptWriter::new();
    // A private page, but clean.
    let (prot, private) = (Protection { read: true, ..Protection::default() }, MapFlags::anonymous_private());
    let flags = MapFlags(private.0 | MapFlags::WRITTEN_BEFORE);
    script.event(0, EventKind::Mmap { addr: BASE, len: 0x1000, prot, flags, file: None, file_offset: 0 });
    script.load(0, BASE);
    script.event(0, EventKind::Mprotect { addr: BASE, len: 0x1000, prot: Protection::READ_WRITE });
    script.load(0, BASE);
    script.store(0, BASE);
    script.store(0, BASE);
    let (_, stats) = run(&config("radix", &[]), script.finish(), &[0]);
    assert_eq!(stats.values["walk.dirty.count"], 1);
    assert_eq!(stats.values["walk.accessed_dirty_updates"], 1);
    // After the fault, after mprotect's shootdown, and for the dirty bit.
    assert_eq!(stats.values["walk.count"], 3);
    for level in ["l1", "l2"] {
        let look_ups = ["misses", "unwritable", "retries"].map(|what| stats.values[&format!("dtlb.{level}.{what}")]);
        assert_eq!(look_ups, [2, 1, 1], "{level}");
    }
}

#[test]
fn large_pages_take_one_fault_for_all_their_bytes_and_a_shorter_walk() {
    let stats = run_workload(&config("radix-2m", &["system.layers.0.mmu_cache=none"]), "seq:size=64MiB");
    assert_eq!(stats.values["layer.native.pages.2M"], 32);
    assert_eq!(stats.values["fault.minor.count"], 33, "and one of the code page");
    // The program's code is one 4 KiB page, whose walk has one level more.
    assert_eq!(stats.values["walk.refs"], 3 * stats.values["walk.count"] + 1);
    let giant = run_workload(
        &config("radix-1g", &["system.layers.0.mmu_cache=none"]),
        "stride:size=1GiB,stride=4096,align=1GiB",
    );
    assert_eq!(giant.values["layer.native.pages.1G"], 1);
    assert_eq!(giant.values["walk.refs"], 2 * giant.values["walk.count"] + 2);
}

#[test]
fn a_walk_of_flattened_tables_makes_a_reference_for_each_pair_of_levels() {
    let none = "system.layers.0.mmu_cache=none";
    let merge = |levels: &str| format!("system.layers.0.page_table.merge={levels}");
    for (levels, refs) in [("l4l3+l2l1", 2), ("l4l3", 3), ("l3l2", 3), ("l2l1", 3)] {
        let stats = run_workload(&config("flattened", &[none, &merge(levels)]), "random:size=64MiB,accesses=60K");
        assert_conserved(&stats);
        assert!(stats.values["walk.count"] > 10_000);
        assert_eq!(stats.values["walk.refs"], refs * stats.values["walk.count"], "{levels}");
    }
    let guest = ["system.layers.guest.mmu_cache=none", "system.layers.host.mmu_cache=none"];
    let stats = run_workload(&config("nested-flattened", &guest), "random:size=64MiB,accesses=60K");
    assert_eq!(stats.values["walk.refs"], 8 * stats.values["walk.count"]);
    // A cache holds the few entries of upper levels, so only the leaf is read.
    for system in ["flattened", "nested-flattened"] {
        for cache in ["paging-structure", "page-walk-cache", "unified", "perfect"] {
            let both = ["0", "1"].map(|layer| format!("system.layers.{layer}.mmu_cache={cache}"));
            let layers = if system == "flattened" { 1 } else { 2 };
            let set: Vec<&str> = both[..layers].iter().map(String::as_str).collect();
            let stats = run_workload(&config(system, &set), "random:size=64MiB,accesses=60K");
            let (count, refs) = (stats.values["walk.count"], stats.values["walk.refs"]);
            let warm = if layers == 1 { 1 } else { 3 };
            assert!(refs >= warm * count && refs < warm * count + 100, "{system} {cache}: {refs} of {count} walks");
        }
    }
}

#[test]
fn compact_radix_tables_need_fewer_lines_and_frames_and_divide_before_each_walk() {
    let none = "system.layers.0.mmu_cache=none";
    let run = |system: &str, set: &[&str]| run_workload(&config(system, set), "random:size=64MiB,accesses=60K");
    let entries = |count: u32, cycles: u32| {
        format!(
            r#"system.layers.0.page_table={{"kind":"radix-compact","line_entries":{count},"levels":4,"division_cycles":{cycles}}}"#
        )
    };
    let radix = run("radix", &[none]);
    // With 8 entries per line and divisions that take no time, all is as in the tree of x86-64.
    let eight = run("radix-compact", &[none, &entries(8, 0)]);
    for name in ["cycles", "walk.count", "walk.refs", "walk.cycles", "layer.native.fault.tables"] {
        assert_eq!(eight.values[name], radix.values[name], "{name}");
    }
    let slow = run("radix-compact", &[none, &entries(8, 7)]);
    let programs = slow.values["walk.count"] + slow.values["walk.aborted.count"];
    let more = |name: &str| slow.values[name] - eight.values[name];
    assert_eq!(more("walk.cycles") + more("walk.aborted.cycles"), 3 * 7 * programs, "three divisions per walk");
    // 16384 pages in tables of 640 entries: 26 or 27 leaf tables, not 32 or 33.
    let ten = run("radix-compact", &[none]);
    assert_eq!(ten.values["walk.refs"], 4 * ten.values["walk.count"]);
    let saved = radix.values["layer.native.fault.tables"] - ten.values["layer.native.fault.tables"];
    assert!((5..=7).contains(&saved), "{saved} tables");
    let stats = run("nested-radix-compact", &["system.layers.0.mmu_cache=none", "system.layers.1.mmu_cache=none"]);
    assert_eq!(stats.values["walk.refs"], 24 * stats.values["walk.count"]);
    // MMU caches tag entries by the region that they map, whatever its size, and by address of the first byte.
    let others = ["none", "coalesced", "segment-lookaside-buffer"];
    for cache in MmuCacheKind::ALL.iter().map(|kind| kind.name()).filter(|name| !others.contains(name)) {
        let set = format!("system.layers.0.mmu_cache={cache}");
        // 14 leaf tables, whose entries fit every kind.
        let stats = run_workload(&config("radix-compact", &[&set]), "random:size=32MiB,accesses=60K");
        let (count, refs) = (stats.values["walk.count"], stats.values["walk.refs"]);
        assert!(refs >= count && refs < count + 100, "{cache}: {refs} of {count} walks");
    }
}

#[test]
fn flattened_tables_take_two_mebibytes_each_or_what_there_is() {
    let none = "system.layers.0.mmu_cache=none";
    let aged =
        r#"system.layers.0.age={"free_fraction":0.8,"huge_free_fraction":0.0,"unmovable_fraction":0.2,"seed":1}"#;
    let run = |set: &[&str]| run_workload(&config("flattened", set), "random:size=64MiB,accesses=60K");
    let stats = run(&[none]);
    // Zeroed by the faults that need them: for the program's code, its arrays and data in other gigabytes.
    let tables = stats.values["layer.native.fault.tables"];
    assert!((1..=3).contains(&tables), "{tables}");
    assert!(stats.values["fault.stage.walk.cycles"] > tables * (2 << 20) / 64, "a cycle a line at least");
    let scattered = run(&[none, aged]);
    assert_eq!(scattered.values["walk.refs"], 4 * scattered.values["walk.count"], "ordinary tables of 4 KiB");
}

#[test]
fn the_same_run_gives_the_same_statistics() {
    for system in ["radix", "nested-radix"] {
        let set = ["machine.cache.l1.policy=random", "machine.tlb.l1d.0.policy=random"];
        let one = run_workload(&config(system, &set), "zipf:size=64MiB,accesses=100K");
        let two = run_workload(&config(system, &set), "zipf:size=64MiB,accesses=100K");
        assert_eq!(one.values, two.values);
        let other =
            run_workload(&config(system, &[&set[..], &["engine.seed=2"]].concat()), "zipf:size=64MiB,accesses=100K");
        assert_ne!(one.values, other.values, "the seed reaches the random policies");
    }
}

#[test]
fn look_ahead_changes_no_statistic() {
    let with = run_workload(&config("nested-radix", &[]), "random:size=64MiB,accesses=100K");
    let without = run_workload(&config("nested-radix", &["engine.lookahead=off"]), "random:size=64MiB,accesses=100K");
    assert_eq!(with.values, without.values);
}
