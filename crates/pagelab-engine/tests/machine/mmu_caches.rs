//! MMU caches at their limits: costs of walks if everything fits, and if nothing does.

use crate::common::{ScriptWriter, config, run};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, Protection};

const BASE: u64 = 0x7f00_0000_0000;

/// Pages further apart than any TLB covers, each loaded `passes` times: each load after a page's first one walks.
fn sweep(system: &str, set: &[&str], passes: u64) -> Statistics {
    // 768 pages in 24 regions of 2 MiB: more than the TLBs hold, in few tables.
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 24 << 21);
    for _ in 0..passes {
        for page in 0..768 {
            script.load(0, BASE + page % 24 * (2 << 20) + page / 24 * 4096 + page % 64 * 64);
        }
    }
    let tiny_tlbs = [r#"machine.tlb.l1d=[{"pages":["4K","2M","1G"],"entries":1,"ways":1}]"#, "machine.tlb.l2=[]"];
    let (_, stats) = run(&config(system, &[&tiny_tlbs[..], set].concat()), script.finish(), &[0]);
    stats
}

/// References of a walk in the third pass, from the difference of two runs.
fn warm_references(system: &str, set: &[&str]) -> f64 {
    let (two, three) = (sweep(system, set, 2), sweep(system, set, 3));
    let more = |name: &str| (three.values[name] - two.values[name]) as f64;
    assert_eq!(more("walk.count"), 768.0, "{system}: every load walks");
    more("walk.refs") / more("walk.count")
}

const ROOMY: [&str; 6] = [
    "machine.mmu_cache.translation_path.entries=4096",
    "machine.mmu_cache.unified.entries=4096",
    "machine.mmu_cache.unified.ways=4096",
    "machine.mmu_cache.page_walk_cache.entries=4096",
    "machine.mmu_cache.page_walk_cache.ways=4096",
    "machine.mmu_cache.unified.level2_insertion=2000",
];

#[test]
fn a_cache_of_all_upper_entries_leaves_the_leaves() {
    for (system, references) in [
        ("radix-unified-translation-cache", 1.0),
        ("radix-page-walk-cache", 1.0),
        ("radix-split-page-table-cache", 1.0),
        ("radix-translation-path-cache", 1.0),
        // A leaf of the guest, and a leaf of the host for it and for the data.
        ("nested-radix-unified-translation-cache", 3.0),
        ("nested-radix-split-page-table-cache", 3.0),
        ("nested-radix-translation-path-cache", 3.0),
        ("nested-radix-perfect-mmu-cache", 3.0),
        // A leaf of the host for each of the guest's four entries and for the data, and the guest's leaf.
        ("nested-radix-shared-page-walk-cache", 6.0),
        ("nested-radix-no-mmu-cache", 24.0),
    ] {
        assert_eq!(warm_references(system, &ROOMY), references, "{system}");
    }
}

#[test]
fn a_linear_host_table_costs_one_reference_for_each_of_the_guests_and_one_for_the_data() {
    assert_eq!(warm_references("nested-radix-linear-host", &["system.layers.guest.mmu_cache=none"]), 9.0);
    assert_eq!(warm_references("nested-radix-linear-host", &["system.layers.guest.mmu_cache=perfect"]), 3.0);
    let five = [r#"system.layers.guest.page_table={"kind":"radix","levels":5}"#, "system.layers.guest.mmu_cache=none"];
    assert_eq!(warm_references("nested-radix-linear-host", &five), 11.0);
}

#[test]
fn a_shadow_table_is_walked_like_a_native_one_and_its_exits_are_paid_for() {
    let statistics = |exit: &str, passes| {
        let exit = format!("kernel.vm_exit_cycles={exit}");
        sweep("nested-radix-shadow", &["system.layers.guest.mmu_cache=none", &exit], passes)
    };
    let (two, three) = (statistics("1000", 2), statistics("1000", 3));
    let more = |name: &str| three.values[name] - two.values[name];
    assert_eq!((more("walk.count"), more("walk.refs")), (768, 4 * 768));
    assert_eq!(more("walk.layer.host.level1.refs"), 768, "the tables are the host's");
    assert_eq!(more("shadow.exits"), 0, "nothing changes any more");
    let free = statistics("0", 2);
    let exits = two.values["shadow.exits"];
    assert_eq!(two.values["shadow.exit_cycles"] - free.values["shadow.exit_cycles"], 1000 * exits);
    // Each page misses before and after its fault, and its entry in the guest's table is written once.
    let faults = two.values["fault.minor.count"];
    assert!(two.values["shadow.exits.misses"] >= 2 * faults, "{exits}");
    let writes = two.values["shadow.exits.table_writes"];
    assert!((faults..faults + 40).contains(&writes), "{writes} writes of {faults} faults");
}

#[test]
fn an_inverted_shadow_table_is_one_reference_and_its_exits_are_counted() {
    let statistics = |set: &[&str], passes| sweep("nested-radix-inverted-shadow", set, passes);
    let (two, three) = (statistics(&[], 2), statistics(&[], 3));
    let more = |name: &str| three.values[name] - two.values[name];
    assert_eq!((more("walk.count"), more("walk.refs"), more("walk.layer.host.level1.refs")), (768, 768, 768));
    assert_eq!((more("shadow.exits"), more("shadow.replaced")), (0, 0), "nothing changes any more");
    // Each page misses before its fault and after it, and its entry in the guest's table is written once.
    let faults = two.values["fault.minor.count"];
    assert!(two.values["shadow.exits.misses"] >= 2 * faults);
    let writes = two.values["shadow.exits.table_writes"];
    assert!((faults..faults + 40).contains(&writes), "{writes} writes of {faults} faults");
    let exits = two.values["shadow.exits"];
    let free = statistics(&["kernel.vm_exit_cycles=0"], 2);
    let dear = statistics(&["kernel.vm_exit_cycles=1000"], 2);
    assert_eq!(dear.values["shadow.exit_cycles"] - free.values["shadow.exit_cycles"], 1000 * exits);
}

#[test]
fn a_small_inverted_shadow_table_loses_pages_to_others() {
    // Four of 256 slots are a line, so 768 pages in runs of single ones never all fit.
    let small =
        |passes| sweep("nested-radix-inverted-shadow", &["system.layers.host.inverted_shadow_bytes=4KiB"], passes);
    let (two, three) = (small(2), small(3));
    let more = |name: &str| three.values[name] - two.values[name];
    let exits = more("shadow.exits.misses");
    assert!(exits > 500, "{exits}");
    assert_eq!(more("shadow.replaced"), exits, "every slot is in use");
    assert_eq!((more("walk.refs"), more("walk.aborted.refs")), (768, exits), "the retry finds the page");
}

#[test]
fn a_speculative_table_hides_the_walk_that_verifies_it() {
    let statistics = |set: &[&str], passes| {
        let none = ["system.layers.guest.mmu_cache=none", "system.layers.host.mmu_cache=none"];
        sweep("nested-radix-speculative", &[&none[..], set].concat(), passes)
    };
    let (two, three) = (statistics(&[], 2), statistics(&[], 3));
    let more = |name: &str| three.values[name] - two.values[name];
    assert_eq!((more("walk.count"), more("walk.refs")), (768, 24 * 768));
    assert_eq!((more("speculation.right"), more("speculation.wrong"), more("speculation.missed")), (768, 0, 0));
    assert_eq!((more("speculation.refs.critical"), more("speculation.refs.all")), (768, 25 * 768));
    assert!(more("walk.cycles") * 10 < more("speculation.hidden_cycles"));
    // The first touch of a page misses; after its fault the TLBs are filled.
    assert_eq!(two.values["speculation.missed"], 768);
    assert_eq!(two.values["speculation.updates"], 768);
    // A table of 16 lines holds almost none of 768 pages, so accesses wait for the walk.
    let small = [r#"system.layers.host.speculative_table={"table_bytes":"4KiB","flush_cycles":20}"#];
    let (two, three) = (statistics(&small, 2), statistics(&small, 3));
    let more = |name: &str| three.values[name] - two.values[name];
    let missed = more("speculation.missed");
    assert!(missed > 500, "{missed}");
    assert_eq!(more("speculation.refs.critical"), 24 * missed + more("speculation.right"));
    assert_eq!(missed, more("speculation.updates"));
}

#[test]
fn a_stale_slot_costs_the_walk_and_a_flush() {
    let statistics = |flush: &str| {
        let flush = format!("system.layers.host.speculative_table.flush_cycles={flush}");
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 0x2000);
        script.store(0, BASE);
        // The page gets another frame, because the page touched in between takes its old one.
        script.event(0, EventKind::Madvise { addr: BASE, len: 0x1000, advice: 4 });
        script.store(0, BASE + 0x1000);
        script.store(0, BASE);
        let (_, stats) = run(&config("nested-radix-speculative", &[&flush]), script.finish(), &[0]);
        stats
    };
    let (free, dear) = (statistics("0"), statistics("1000"));
    // The page's slot is still there when the page is not mapped (a fault), and contains the old frame afterwards.
    assert_eq!(dear.values["speculation.wrong"], 2);
    assert_eq!((dear.values["speculation.right"], dear.values["speculation.missed"]), (0, 2));
    assert_eq!(dear.values["cycles.translation"] - free.values["cycles.translation"], 2000);
}

#[test]
fn a_slot_that_was_wrong_is_right_the_next_time() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x2000);
    script.store(0, BASE);
    script.event(0, EventKind::Madvise { addr: BASE, len: 0x1000, advice: 4 });
    script.store(0, BASE + 0x1000);
    script.store(0, BASE);
    // Both pages miss the TLB when loaded.
    script.load(0, BASE + 0x1000);
    script.load(0, BASE);
    let tiny_tlbs = [r#"machine.tlb.l1d=[{"pages":["4K","2M","1G"],"entries":1,"ways":1}]"#, "machine.tlb.l2=[]"];
    let (_, stats) = run(&config("nested-radix-speculative", &tiny_tlbs), script.finish(), &[0]);
    let value = |name: &str| stats.values[&format!("speculation.{name}")];
    // The page's slot is wrong in its fault and after it, when it is rewritten; two slots were empty before.
    assert_eq!((value("missed"), value("wrong"), value("updates")), (2, 2, 3));
    assert_eq!(value("right"), 2);
}

#[test]
fn shadows_follow_what_the_guest_changes() {
    ["nested-radix-shadow", "nested-radix-inverted-shadow"].into_iter().for_each(follows_what_the_guest_changes);
}

fn follows_what_the_guest_changes(system: &str) {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x4000);
    script.store(0, BASE);
    script.store(0, BASE + 0x1000);
    script.event(
        0,
        EventKind::Mprotect { addr: BASE, len: 0x1000, prot: Protection { read: true, ..Protection::default() } },
    );
    script.store(0, BASE);
    script.store(0, BASE + 0x1000);
    script.event(0, EventKind::Munmap { addr: BASE, len: 0x4000 });
    script.load(0, BASE + 0x1000);
    let (_, stats) = run(&config(system, &[]), script.finish(), &[0]);
    assert_eq!(stats.values["accesses.refused"], 2, "the store to the read-only page, the load of the unmapped one");
    assert_eq!(stats.values["shadow.exits.invalidations"], 1 + 2);
}

#[test]
fn a_shared_cache_that_holds_one_entry_spares_next_to_nothing() {
    let tiny = ["machine.mmu_cache.page_walk_cache.entries=1", "machine.mmu_cache.page_walk_cache.ways=1"];
    assert_eq!(warm_references("nested-radix-shared-page-walk-cache", &tiny), 24.0);
}

#[test]
fn guest_and_host_compete_for_what_they_share() {
    let references = |entries: &str| {
        let entries = format!("machine.mmu_cache.page_walk_cache.entries={entries}");
        let set = [entries.as_str(), "machine.mmu_cache.page_walk_cache.ways=1"];
        warm_references("nested-radix-shared-page-walk-cache", &set)
    };
    let (few, more) = (references("4"), references("64"));
    assert!(6.0 < more && more < few && few < 24.0, "{few} {more}");
}

#[test]
fn every_walk_pays_for_its_look_ups() {
    // Without references only look-ups remain: 24, minus those for leaves if each entry is looked up.
    let quiet = |system, latency: &str| {
        let set = ["unified", "page_walk_cache", "paging_structure", "translation_path"]
            .map(|part| format!("machine.mmu_cache.{part}.latency_cycles={latency}"));
        let set: Vec<&str> = ROOMY.iter().copied().chain(set.iter().map(String::as_str)).collect();
        let (two, three) = (sweep(system, &set, 2), sweep(system, &set, 3));
        three.values["walk.cycles"] - two.values["walk.cycles"]
    };
    for (system, look_ups) in [
        ("radix-unified-translation-cache", 1),
        ("nested-radix-unified-translation-cache", 3),
        ("radix-translation-path-cache", 1),
        ("nested-radix-translation-path-cache", 3),
        ("radix-split-page-table-cache", 3),
        ("nested-radix-split-page-table-cache", 3 * 3),
        ("nested-radix-shared-page-walk-cache", 3 + 5 * 3),
    ] {
        assert_eq!(quiet(system, "7") - quiet(system, "2"), 768 * 5 * look_ups, "{system}");
    }
}

#[test]
fn paths_keep_the_levels_above_what_they_have_no_room_for() {
    // 24 regions of one gigabyte in turn never hit few paths below level 3; a unified cache keeps nothing at all.
    let few = |entries: u32| {
        let unified = format!(
            r#"machine.mmu_cache.unified={{"entries":{entries},"ways":{entries},"latency_cycles":2,"level2_insertion":0}}"#
        );
        let paths = format!("machine.mmu_cache.translation_path.entries={entries}");
        let (paths, unified) = (
            warm_references("radix-translation-path-cache", &[&paths]),
            warm_references("radix-unified-translation-cache", &[&unified]),
        );
        (paths, unified)
    };
    assert_eq!(few(1), (2.0, 4.0));
    assert_eq!(few(23).0, 2.0, "of 24 paths in turn the least recently used is always the next");
    assert_eq!(few(24).0, 1.0);
    // Arrays per level: those of level 2 are too small for 24 entries, and evict none of level 3.
    let arrays = r#"machine.mmu_cache.paging_structure.arrays=[{"level":2,"entries":4,"ways":4},{"level":3,"entries":1,"ways":1},{"level":4,"entries":1,"ways":1}]"#;
    assert_eq!(warm_references("radix-split-page-table-cache", &[arrays]), 2.0);
    let nested = [arrays, "system.layers.host.mmu_cache=none"];
    // The guest's leaf and its entry of level 2, each at the end of a walk of the host's four levels; the data's walk.
    assert_eq!(warm_references("nested-radix-split-page-table-cache", &nested), 2.0 * 5.0 + 4.0);
}

#[test]
fn coalescing_makes_a_small_cache_reach_further() {
    // Leaf tables of regions touched in order are adjacent in memory, as they come from one block.
    let one = r#"machine.mmu_cache.paging_structure.arrays=[{"level":2,"entries":4,"ways":4}]"#;
    let (plain, coalesced) = (warm_references("radix", &[one]), warm_references("radix-coalesced-mmu-cache", &[one]));
    // 24 regions in turn never hit 4 plain entries; 3 coalesced ones cover them all.
    assert_eq!(plain, 4.0);
    assert_eq!(coalesced, 1.0);
}

/// Loads one page in each of 64 regions of 2 MiB, from the last to the first, `passes` times.
fn descending(set: &[&str], passes: u64) -> Statistics {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 << 21);
    for region in (0..passes).flat_map(|_| (0..64).rev()) {
        script.load(0, BASE + (region << 21) + (region << 12));
    }
    let small = [
        r#"machine.tlb.l1d=[{"pages":["4K","2M","1G"],"entries":1,"ways":1}]"#,
        "machine.tlb.l2=[]",
        r#"machine.mmu_cache.paging_structure.arrays=[{"level":2,"entries":1,"ways":1}]"#,
        "machine.memory_bytes=64MiB",
    ];
    run(&config("radix-coalesced-mmu-cache", &[&small[..], set].concat()), script.finish(), &[0]).1
}

#[test]
fn tables_that_the_kernel_places_side_by_side_coalesce_in_any_order() {
    const PLACED: &str = "system.layers.native.contiguous_tables=64";
    const GROUP: &str = "machine.mmu_cache.coalesced.group_entries=64";
    let last = |set: &[&str]| descending(set, 3).values["walk.refs"] - descending(set, 2).values["walk.refs"];
    // Tables in the order of the touches: no two are in the right order.
    assert_eq!(last(&[GROUP]), 4 * 64);
    // Every walk hits the only entry, or the first one to each line of 8 misses.
    assert_eq!(last(&[GROUP, PLACED]), 64);
    assert_eq!(last(&[PLACED]), 4 * 8 + 56);
    let stats = descending(&[PLACED], 1);
    let value = |name: &str| stats.values[&format!("layer.native.table_blocks.{name}")];
    assert_eq!((value("blocks"), value("tables"), value("fallbacks")), (1, 64, 0));
    assert_eq!(stats.values["layer.native.fault.tables"], 64 + 2);
    let stats = descending(&["system.layers.native.contiguous_tables=16"], 1);
    assert_eq!(stats.values["layer.native.table_blocks.blocks"], 4);
}

/// Stores to a page in each of `groups` groups of 64 regions of 2 MiB, then to `pages` pages of another one.
fn touch_groups(groups: u64, pages: u64, set: &[&str]) -> Statistics {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 << 30);
    (0..groups).for_each(|group| script.store(0, BASE + (group << 27)));
    (0..pages).for_each(|page| script.store(0, BASE + (32 << 30) + (page << 12)));
    let placed = ["system.layers.native.contiguous_tables=64"];
    run(&config("radix", &[&placed[..], set].concat()), script.finish(), &[0]).1
}

#[test]
fn without_a_block_tables_are_single_frames_and_counted() {
    // Of 64 MiB a quarter is free, in scattered pieces: too few hold 64 frames side by side.
    let aged =
        r#"system.layers.native.age={"free_fraction":0.25,"huge_free_fraction":0.0,"unmovable_fraction":0.2,"seed":1}"#;
    let stats = touch_groups(60, 0, &["machine.memory_bytes=64MiB", aged]);
    let value = |name: &str| stats.values[&format!("layer.native.table_blocks.{name}")];
    assert_eq!((value("tables") + value("fallbacks"), value("tables")), (60, value("blocks")));
    assert!(value("blocks") > 0 && value("fallbacks") > 0, "{} blocks", value("blocks"));
    assert_eq!(stats.values["fault.minor.count"], 60);
}

#[test]
fn reserved_frames_are_given_back_when_memory_runs_out() {
    // 20 groups reserve 1280 of 4096 frames, and the data need 3600.
    let stats = touch_groups(20, 3600, &["machine.memory_bytes=16MiB"]);
    let value = |name: &str| stats.values[&format!("layer.native.table_blocks.{name}")];
    assert_eq!(stats.values["fault.minor.count"], 20 + 3600);
    assert_eq!(value("tables") + value("fallbacks"), 20 + 3600_u64.div_ceil(512));
    assert!((20 * 63..21 * 64).contains(&value("given_back")), "{}", value("given_back"));
}

#[test]
fn cores_that_share_a_cache_find_what_the_others_have_read() {
    let walk = |set: &[&str]| {
        let mut script = ScriptWriter::new();
        let other = script.thread(0);
        script.mmap(0, BASE, 24 << 21);
        // In sequence: first thread 0 touches all regions, then the other thread does.
        for thread in [0, other] {
            (0..24).for_each(|region| script.load(thread, BASE + (region << 21)));
            script.cut();
            script.mmap(thread, BASE + (1 << 40), 0x1000);
        }
        // CPUs 0 and 2 are on different cores.
        let (_, stats) = run(&config("radix", set), script.finish(), &[0, 2]);
        (stats.values["walk.count"], stats.values["walk.refs"], stats.values["walk.aborted.refs"])
    };
    let own = walk(&[]);
    let shared = walk(&[r#"machine.mmu_cache.shared_by_cores={"extra_latency_cycles":0}"#]);
    assert_eq!(own.0, shared.0);
    assert_eq!(own.2, shared.2, "the first thread does not gain");
    // The second thread starts with empty caches: it reads the upper levels once, and every entry of level 2.
    assert_eq!(own.1 - shared.1, 3 + 23);
}
