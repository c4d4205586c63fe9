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

const ROOMY: [&str; 5] = [
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
        // A leaf of the guest, and a leaf of the host for it and for the data.
        ("nested-radix-unified-translation-cache", 3.0),
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
fn a_shadow_follows_what_the_guest_changes() {
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
    let (_, stats) = run(&config("nested-radix-shadow", &[]), script.finish(), &[0]);
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
        let set = ["machine.mmu_cache.unified.latency_cycles=", "machine.mmu_cache.page_walk_cache.latency_cycles="]
            .map(|key| format!("{key}{latency}"));
        let set: Vec<&str> = ROOMY.iter().copied().chain(set.iter().map(String::as_str)).collect();
        let (two, three) = (sweep(system, &set, 2), sweep(system, &set, 3));
        three.values["walk.cycles"] - two.values["walk.cycles"]
    };
    for (system, look_ups) in [
        ("radix-unified-translation-cache", 1),
        ("nested-radix-unified-translation-cache", 3),
        ("nested-radix-shared-page-walk-cache", 3 + 5 * 3),
    ] {
        assert_eq!(quiet(system, "7") - quiet(system, "2"), 768 * 5 * look_ups, "{system}");
    }
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
