//! Hashed page tables in the kernel's virtual memory: what the translation of a walk's own references costs.

use crate::common::{ScriptWriter, assert_conserved, checked, config, run_workload};
use pagelab_engine::observe::statistics::Statistics;

const BASE: u64 = 0x7f00_0000_0000;
const PAGES: u64 = 64;
const PASSES: u64 = 4;
/// The direct map of 8 GiB has pages of 1 GiB: a walk reads entries of levels 4 and 3.
const DIRECT_MAP_REFS: u64 = 2;

/// Loads of pages in turn with first-level TLBs of one entry, which the walk's line and the page take in turn.
fn sweep(system: &str, pinned: &str) -> Statistics {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, PAGES * 4096);
    for _ in 0..PASSES {
        (0..PAGES).for_each(|page| script.load(0, BASE + page * 4096));
    }
    let pinned = format!("system.layers.native.page_table.pinned={pinned}");
    let tiny_tlbs = [r#"machine.tlb.l1d=[{"pages":["4K","2M","1G"],"entries":1,"ways":1}]"#, "machine.tlb.l2=[]"];
    checked(system, &[&pinned, tiny_tlbs[0], tiny_tlbs[1]], script).1
}

fn table(stats: &Statistics, what: &str) -> u64 {
    stats.values[&format!("pinned_table.{what}")]
}

#[test]
fn a_walk_whose_table_no_tlb_holds_walks_the_direct_map_first() {
    for system in ["hashed-open", "hashed-chained"] {
        let stats = sweep(system, "{}");
        let walks = PASSES * PAGES;
        assert_eq!(stats.values["walk.count"], walks);
        assert_eq!(stats.values["walk.refs"], (1 + DIRECT_MAP_REFS) * walks, "{system}");
        // Also the walks that end in a fault of a first touch.
        let all = walks + stats.values["walk.aborted.count"];
        assert_eq!((table(&stats, "translations"), table(&stats, "misses")), (all, all), "{system}");
        // A handler takes its time at each of these misses.
        let slow = sweep(system, r#"{"miss_cycles":100}"#);
        let cycles = |stats: &Statistics| stats.values["walk.cycles"] + stats.values["walk.aborted.cycles"];
        assert_eq!(cycles(&slow) - cycles(&stats), 100 * all, "{system}");
    }
}

#[test]
fn fixed_entries_translate_the_part_of_the_table_that_they_reach() {
    let whole = sweep("hashed-open", r#"{"entries":2,"entry_bytes":"1GiB"}"#);
    assert_eq!((whole.values["walk.refs"], table(&whole, "translations")), (PASSES * PAGES, 0));
    // A table of 128 MiB, of which a half is reached.
    let half = sweep("hashed-open", r#"{"entries":4,"entry_bytes":"16MiB"}"#);
    let share = table(&half, "translations") as f64 / (5 * PAGES) as f64;
    assert!((0.3..0.7).contains(&share), "{share}");
}

/// Pages of 2 MiB, whose walks read the slot of a small page first. The table of 2 MiB pages has 256 KiB, which the
/// fixed entries reach, and that of small ones 128 MiB.
#[test]
fn each_page_sizes_own_table_has_fixed_entries() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, PAGES << 21);
    for _ in 0..PASSES {
        (0..PAGES).for_each(|page| script.load(0, BASE + (page << 21)));
    }
    let pinned = r#"system.layers.native.page_table.pinned={"entries":128,"entry_bytes":"4KiB"}"#;
    let order = r#"system.layers.native.page_table.sizes.order=["4K","2M"]"#;
    let no_tlbs = [r#"machine.tlb.l1d=[{"pages":["4K","2M","1G"],"entries":1,"ways":1}]"#, "machine.tlb.l2=[]"];
    let (_, stats) = checked("hashed-open-2m", &[pinned, order, no_tlbs[0], no_tlbs[1]], script);
    let walks = PASSES * PAGES;
    assert_eq!(stats.values["walk.count"], walks);
    // A small page's slot needs a walk of the direct map, and that of the large page nothing.
    assert_eq!(stats.values["walk.refs"], (2 + DIRECT_MAP_REFS) * walks);
    let all = walks + stats.values["walk.aborted.count"];
    assert_eq!((table(&stats, "translations"), table(&stats, "misses")), (all, all));
}

#[test]
fn tlbs_hold_the_large_pages_of_the_table_beside_those_of_programs() {
    let set = ["system.layers.native.page_table.pinned={}"];
    let stats = run_workload(&config("hashed-open", &set), "random:size=64MiB,accesses=60K");
    assert_conserved(&stats);
    let walks = stats.values["walk.count"] + stats.values["walk.aborted.count"];
    assert!(stats.values["walk.count"] > 10_000);
    assert!((walks..walks + walks / 10).contains(&table(&stats, "translations")));
    assert!(table(&stats, "misses") < walks / 100, "{}", table(&stats, "misses"));
}
