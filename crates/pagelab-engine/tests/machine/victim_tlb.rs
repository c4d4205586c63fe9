//! Compares the victim TLB with closed forms: walks avoided when more pages than ways compete for a set.

use crate::common::{ScriptWriter, config, run};

const BASE: u64 = 0x7f00_0000_0000;
/// One page: every access to another page looks up the second level.
const FIRST: &str = r#"machine.tlb.l1d=[{"pages":["4K"],"entries":1,"ways":1}]"#;
const SETS: u64 = 16;
const SECOND: &str = r#"machine.tlb.l2=[{"pages":["4K"],"entries":16,"ways":1}]"#;

/// Number of compared passes. Earlier passes have faults, in which kernels use the TLBs.
const PASSES: u64 = 10;

/// Loads `pages` pages in turn that fall into one set of the last TLB; returns walks, TLB misses, look-ups and misses
/// of the unit, and cycles of translation.
fn conflict(system: &str, tlbs: &[&str], pages: u64, unit: &str) -> [u64; 5] {
    let after = |passes: u64| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, pages * SETS * 4096);
        for page in (0..passes).flat_map(|_| 0..pages) {
            script.load(0, BASE + page * SETS * 4096);
        }
        let unit = format!("machine.tlb.stages.victim={unit}");
        let (_, stats) = run(&config(system, &[tlbs, &[unit.as_str()]].concat()), script.finish(), &[0]);
        let unit = |name: &str| stats.values.get(&format!("tlb.stages.victim.{name}")).copied().unwrap_or(0);
        let value = |name: &str| stats.values[name];
        [value("walk.count"), value("dtlb.l2.misses"), unit("look_ups"), unit("misses"), value("cycles.translation")]
    };
    let (first, all) = (after(2), after(2 + PASSES));
    std::array::from_fn(|n| all[n] - first[n])
}

#[test]
fn a_victim_tlb_of_k_entries_spares_all_walks_of_k_and_one_conflicting_pages_and_none_of_more() {
    // Without a second level, victims come from the first, which has one set.
    for tlbs in [&[FIRST, SECOND][..], &[FIRST, "machine.tlb.l2=[]"]] {
        for system in ["radix", "hashed-open", "nested-radix-no-mmu-cache"] {
            for entries in [1, 2, 7] {
                for pages in 2..=entries + 2 {
                    let all = PASSES * pages;
                    let [walks, misses, ..] = conflict(system, tlbs, pages, "off");
                    assert_eq!((walks, misses), (all, all), "{system} {pages}: one entry for them all");
                    let unit = format!(r#"{{"entries":{entries}}}"#);
                    let [walks, misses, look_ups, in_vain, _] = conflict(system, tlbs, pages, &unit);
                    let expected = if pages <= entries + 1 { 0 } else { all };
                    assert_eq!(walks, expected, "{system}: {pages} pages and {entries} entries");
                    assert_eq!((misses, look_ups, in_vain), (all, all, expected), "the TLBs are the same");
                }
            }
        }
    }
}

#[test]
fn a_look_up_costs_its_latency_hit_or_not() {
    for pages in [2, 3] {
        let cycles = |latency: u32| {
            conflict("radix", &[FIRST, SECOND], pages, &format!(r#"{{"entries":1,"latency_cycles":{latency}}}"#))[4]
        };
        assert_eq!(cycles(5) - cycles(0), 5 * PASSES * pages, "{pages} pages");
    }
}
