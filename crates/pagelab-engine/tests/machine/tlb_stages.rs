//! Compares TLB stages with closed forms. The victim TLB has a file of its own.

use crate::common::{ScriptWriter, assert_conserved, config, run};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, ProcessIx, Protection};

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

/// A POM-TLB with room for every page of these tests.
const POM: &str = r#"machine.tlb.stages.pom={"small_bytes":"1MiB","large_bytes":"64KiB"}"#;

fn pom(stats: &Statistics) -> [u64; 4] {
    ["look_ups", "misses", "refs", "writes"].map(|name| stats.values[&format!("tlb.stages.pom.{name}")])
}

#[test]
fn a_pom_tlb_with_room_for_all_walks_once_per_page_and_reads_one_line_per_miss_of_the_tlbs() {
    for system in SYSTEMS {
        let stats = loads(system, &[POM], &rounds(100, 1), &rounds(100, 10));
        assert_eq!((stats.values["walk.count"], stats.values["dtlb.l2.misses"]), (0, 1000), "{system}");
        assert_eq!(pom(&stats), [1000, 0, 1000, 0], "{system}");
        // 100 pages of 4 KiB are in 25 lines, which the caches hold after the first of each.
        let served = |level: &str| stats.values[&format!("tlb.stages.pom.refs.{level}")];
        assert_eq!(["l1", "l2", "l3", "dram", "remote"].map(served).iter().sum::<u64>(), 1000);
        assert_eq!(served("dram"), 0, "walks have just written these lines");
        assert_eq!(stats.values["cache.refs.walk"], 0, "they are no references of walks");
        // Pages that were never touched: one whole walk, whose result is written, as are those of kernels.
        let stats = loads(system, &[POM], &[], &(0..200).collect::<Vec<_>>());
        let [walks, of_kernels] = ["walk.count", "walk.kernel.count"].map(|name| stats.values[name]);
        assert_eq!((walks, stats.values["tlb.stages.pom.writes"]), (200, 200 + of_kernels), "{system}");
    }
}

#[test]
fn a_page_that_is_unmapped_begins_a_new_life() {
    for (system, stage) in SYSTEMS.into_iter().zip([POM, r#"machine.tlb.stages.large={"entries":"unlimited"}"#]) {
        let walks = |lives: u64| {
            let mut script = ScriptWriter::new();
            for _ in 0..lives {
                script.mmap(0, BASE, 1 << 22);
                rounds(100, 3).iter().for_each(|page| script.load(0, BASE + page * 4096));
                script.event(0, EventKind::Munmap { addr: BASE, len: 1 << 22 });
            }
            run(&config(system, &[&ONE_PAGE[..], &[stage]].concat()), script.finish(), &[0]).1.values["walk.count"]
        };
        assert_eq!((walks(2) - walks(1), walks(3) - walks(2)), (100, 100), "{system} {stage}");
    }
}

#[test]
fn a_page_of_2_mib_takes_one_line_once_its_size_is_known() {
    let after = |rounds: u64| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 16 << 21);
        (0..rounds).flat_map(|_| 0..8).for_each(|page| script.load(0, BASE + page * (2 << 21)));
        run(&config("radix-2m", &[&ONE_PAGE[..], &[POM]].concat()), script.finish(), &[0]).1
    };
    let stats = after(11).since(&after(1));
    assert_eq!((stats.values["walk.count"], pom(&stats)), (0, [80, 0, 80, 0]));
    assert_eq!(stats.values["tlb.stages.pom.wrong_size"], 0);
}

#[test]
fn a_pom_tlb_that_is_too_small_walks_for_the_pages_that_its_sets_cannot_hold() {
    // Two sets of four entries: eight pages in turn fit, and of ten each set has five.
    let small = r#"machine.tlb.stages.pom={"small_bytes":128,"large_bytes":64}"#;
    for (pages, walks) in [(8, 0), (10, 100)] {
        let stats = loads("radix", &[small], &rounds(pages, 2), &rounds(pages, 10));
        assert_eq!((stats.values["walk.count"], stats.values["tlb.stages.pom.writes"]), (walks, walks), "{pages}");
        // A page that is in neither partition takes two references before its walk.
        assert_eq!(stats.values["tlb.stages.pom.refs"], 10 * pages + walks, "{pages}");
    }
}

#[test]
fn a_set_of_a_pom_tlb_gives_up_the_entry_that_was_used_least_recently() {
    let one_set = r#"machine.tlb.stages.pom={"small_bytes":64,"large_bytes":64}"#;
    // Its four entries are for pages 0 to 3. Page 0 is used again, so page 4 replaces page 1.
    let walks = |pages: &[u64]| loads("radix", &[one_set], &[4, 0, 1, 2, 3], pages).values["walk.count"];
    assert_eq!((walks(&[0, 4]), walks(&[0, 4, 0, 2, 3])), (1, 1));
    assert_eq!(walks(&[0, 4, 0, 2, 3, 1]), 2);
}

/// Parent and child take turns as in the script.
const IN_ORDER: &str = r#"kernel.scheduler={"kind":"recorded"}"#;

#[test]
fn a_shared_stage_outlives_a_flush_of_a_core_but_no_shootdown() {
    // A parent loads pages and then its child one, on the same core. In the last of three rounds, a page of the parent
    // changes before it is loaded.
    let walks = |stage: &str, pcids: &str| {
        let after = |rounds: u64| {
            let mut script = ScriptWriter::new();
            script.mmap(0, BASE, 1 << 22);
            script.event(0, EventKind::Fork { child: ProcessIx(1) });
            let child = script.thread(1);
            for round in 0..rounds {
                for page in 0..100 {
                    if (round, page) == (2, 1) {
                        let prot = Protection { read: true, ..Protection::default() };
                        script.event(0, EventKind::Mprotect { addr: BASE + 7 * 4096, len: 4096, prot });
                    }
                    script.load(0, BASE + page * 4096);
                }
                script.load(child, BASE + 200 * 4096);
            }
            run(&config("radix", &[&ONE_PAGE[..], &[stage, pcids, IN_ORDER]].concat()), script.finish(), &[0]).1
        };
        [1, 2].map(|rounds| after(rounds + 1).since(&after(rounds)).values["walk.count"])
    };
    let large = r#"machine.tlb.stages.large={"entries":"unlimited"}"#;
    // With one PCID, the core drops what it holds of a process when it switches to another.
    assert_eq!(walks(large, "kernel.pcids=1"), [101, 101]);
    assert_eq!(walks(large, "kernel.pcids=6"), [0, 1]);
    assert_eq!(walks(POM, "kernel.pcids=1"), [0, 1]);
}

/// A program on two cores: one thread loads pages, and then the other.
fn on_two_cores(stage: &str) -> Statistics {
    let after = |second: u64| {
        let mut script = ScriptWriter::new();
        let other = script.thread(0);
        script.mmap(0, BASE, 1 << 22);
        (0..100).for_each(|page| script.load(0, BASE + page * 4096));
        // Events order the two threads.
        script.mmap(0, BASE + (1 << 30), 4096);
        script.load(other, BASE + 200 * 4096);
        (0..second).for_each(|page| script.load(other, BASE + page * 4096));
        run(&config("radix", &[&ONE_PAGE[..], &[stage]].concat()), script.finish(), &[0, 2]).1
    };
    after(100).since(&after(0))
}

#[test]
fn all_cores_share_a_pom_tlb_and_none_a_large_one() {
    assert_eq!(on_two_cores(POM).values["walk.count"], 0, "the first thread has walked for them");
    assert_eq!(on_two_cores(r#"machine.tlb.stages.large={"entries":"unlimited"}"#).values["walk.count"], 100);
}

#[test]
fn a_shootdown_writes_each_line_of_the_pom_tlb_that_loses_entries_and_the_cpu_waits() {
    let after = |set: &str, pages: u64| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 1 << 22);
        (0..100).for_each(|page| script.load(0, BASE + page * 4096));
        if pages > 0 {
            let prot = Protection { read: true, ..Protection::default() };
            script.event(0, EventKind::Mprotect { addr: BASE, len: pages * 4096, prot });
        }
        run(&config("radix", &[&ONE_PAGE[..], &[set]].concat()), script.finish(), &[0]).1
    };
    let difference = |set: &str, pages: u64| after(set, pages).since(&after(set, 0));
    // Neighbouring pages are in neighbouring lines.
    for pages in [1, 8, 32] {
        let stats = difference(POM, pages);
        let [writes, dropped, cycles] =
            ["writes", "dropped", "write_cycles"].map(|name| stats.values[&format!("tlb.stages.pom.{name}")]);
        assert_eq!((writes, dropped), (pages, pages));
        let more = stats.values["cycles.kernel"] - difference("machine.tlb.stages={}", pages).values["cycles.kernel"];
        assert_eq!(more, cycles, "{pages} pages");
        assert!(cycles > 0);
    }
    // A whole space gets a new tag.
    let stats = difference(POM, 100);
    assert_eq!(["writes", "dropped"].map(|name| stats.values[&format!("tlb.stages.pom.{name}")]), [0, 0]);
}

#[test]
fn references_of_a_pom_tlb_cost_what_the_machine_or_its_own_memory_says() {
    // Without caches that hold the table's lines: each access reads a line that conflicts with all others of the table.
    let cycles = |parameters: &str| {
        let set = format!(r#"machine.tlb.stages.pom={{"small_bytes":"1MiB","large_bytes":64{parameters}}}"#);
        let tiny = r#"machine.cache.l1={"size_bytes":64,"ways":1,"latency_cycles":4}"#;
        let caches = [tiny, "machine.cache.l2=null", "machine.cache.l3=null", "machine.cache.dram_latency_cycles=100"];
        let stats = loads("radix", &[&caches[..], &[&set]].concat(), &rounds(10, 3), &rounds(10, 10));
        assert_eq!((stats.values["walk.count"], stats.values["tlb.stages.pom.refs.dram"]), (0, 100));
        stats.values["cycles.translation"] - 100 * u64::from(config("radix", &[]).machine.tlb.l2_latency_cycles)
    };
    assert_eq!(cycles(r#","cache_predictor":0"#), 100 * 100);
    assert_eq!(cycles(""), 100 * 96, "no cache is asked");
    assert_eq!(cycles(r#","cache_predictor":0,"memory_latency_cycles":60"#), 100 * 60);
    assert_eq!(cycles(r#","memory_latency_cycles":60"#), 100 * 56);
}

#[test]
fn references_of_a_pom_tlb_that_bypass_the_caches_cost_a_hit_of_the_first() {
    let stats = loads("radix", &[POM, "engine.kernel_refs=off"], &rounds(100, 1), &rounds(100, 10));
    assert_eq!(pom(&stats), [1000, 0, 1000, 0]);
    let served = |level: &str| stats.values[&format!("tlb.stages.pom.refs.{level}")];
    assert_eq!(["l1", "l2", "l3", "dram", "remote"].map(served), [0; 5]);
    let machine = config("radix", &[]).machine;
    let of_each = machine.tlb.l2_latency_cycles + machine.cache.l1.latency_cycles;
    assert_eq!(stats.values["cycles.translation"], 1000 * u64::from(of_each));
}
