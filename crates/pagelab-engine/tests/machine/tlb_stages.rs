//! Compares TLB stages with closed forms. The victim TLB has a file of its own.

use crate::common::{ScriptWriter, assert_conserved, config, run};
use pagelab_engine::observe::statistics::Statistics;

const BASE: u64 = 0x7f00_0000_0000;
/// TLBs of one page: every access to another page looks up the stages.
const ONE_PAGE: [&str; 2] = [
    r#"machine.tlb.l1d=[{"pages":["4K","2M"],"entries":1,"ways":1}]"#,
    r#"machine.tlb.l2=[{"pages":["4K","2M"],"entries":1,"ways":1}]"#,
];
const SYSTEMS: [&str; 4] = ["radix", "hashed-open", "nested-radix-cold", "nested-radix-no-mmu-cache"];

/// Statistics of loads of these pages, after others that touch them all and during which kernels use the TLBs.
fn loads(system: &str, set: &[&str], warm: &[u64], pages: &[u64]) -> Statistics {
    let after = |pages: &[u64]| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 1 << 22);
        warm.iter().chain(pages).for_each(|page| script.load(0, BASE + page * 4096 + page % 64 * 64));
        let (_, stats) = run(&config(system, &[&ONE_PAGE, set].concat()), script.finish(), &[0]);
        assert_conserved(&stats);
        stats
    };
    after(pages).since(&after(&[]))
}

fn rounds(pages: u64, count: u64) -> Vec<u64> {
    (0..count).flat_map(|_| 0..pages).collect()
}

fn hits(stats: &Statistics, stage: &str) -> u64 {
    let value = |name: &str| stats.values[&format!("tlb.stages.{stage}.{name}")];
    value("look_ups") - value("misses")
}

#[test]
fn a_large_tlb_without_limit_walks_once_per_page() {
    let large = [r#"machine.tlb.stages.large={"entries":"unlimited"}"#];
    for system in SYSTEMS {
        let warm = rounds(100, 1);
        let stats = loads(system, &large, &warm, &rounds(100, 10));
        assert_eq!((stats.values["walk.count"], stats.values["dtlb.l2.misses"]), (0, 1000), "{system}");
        assert_eq!(hits(&stats, "large"), 1000, "{system}");
        // Pages that were never touched take a fault and one whole walk.
        let stats = loads(system, &large, &warm, &(100..300).collect::<Vec<_>>());
        assert_eq!((stats.values["walk.count"], stats.values["fault.minor.count"]), (200, 200), "{system}");
    }
}

#[test]
fn a_large_tlb_of_k_entries_spares_all_walks_of_k_pages_in_turn_and_none_of_one_more() {
    for system in SYSTEMS {
        for entries in [1, 8, 16] {
            let large = format!(r#"machine.tlb.stages.large={{"entries":{entries},"ways":{entries}}}"#);
            for pages in [entries, entries + 1] {
                // One page alone stays in the TLBs.
                let accesses = if pages == 1 { 0 } else { 10 * pages };
                let stats = loads(system, &[&large], &rounds(pages, 2), &rounds(pages, 10));
                let walks = if pages == entries { 0 } else { accesses };
                assert_eq!((stats.values["dtlb.l2.misses"], stats.values["walk.count"]), (accesses, walks), "{pages}");
            }
        }
    }
}

#[test]
fn a_look_up_in_a_large_tlb_costs_its_latency_hit_or_not() {
    for pages in [4, 5] {
        let cycles = |latency: u32| {
            let large = format!(r#"machine.tlb.stages.large={{"entries":4,"ways":4,"latency_cycles":{latency}}}"#);
            loads("radix", &[&large], &rounds(pages, 2), &rounds(pages, 10)).values["cycles.translation"]
        };
        assert_eq!(cycles(7) - cycles(0), 7 * 10 * pages, "{pages} pages");
    }
}

#[test]
fn a_hit_of_a_later_stage_fills_the_stages_before() {
    let stages = [r#"machine.tlb.stages={"large":{"entries":2,"ways":2},"victim":{"entries":8}}"#];
    // The third page replaces the first in the large TLB, and the victim TLB holds it.
    let stats = loads("radix", &stages, &[0, 1, 2], &[0, 1, 0, 1, 0, 1]);
    assert_eq!((hits(&stats, "victim"), hits(&stats, "large")), (2, 4));
    assert_eq!(stats.values["walk.count"], 0);
}

#[test]
fn stages_say_their_bits_of_storage() {
    let bits = |stage: &str, parameters: &str| {
        let set = format!("machine.tlb.stages.{stage}={parameters}");
        // The difference of two runs is that of the first: how things are at the end.
        loads("radix", &[&set], &[], &rounds(50, 2)).values[&format!("tlb.stages.{stage}.storage_bits")]
    };
    assert_eq!(bits("victim", r#"{"entries":8}"#), 8 * 102);
    assert_eq!(bits("large", r#"{"entries":64,"ways":4}"#), 64 * 102);
    // It has held the data's pages, that of the code, and those that the kernel uses in faults.
    let unlimited = bits("large", r#"{"entries":"unlimited"}"#);
    assert!(unlimited.is_multiple_of(102) && unlimited / 102 > 50, "{unlimited}");
}
