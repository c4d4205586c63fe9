//! Prefetch of translations of code, against what its rules say.

use crate::common::{ScriptWriter, assert_conserved, config, run};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, MapFlags, Protection};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x7f00_0000_0000;

/// Statistics of rounds over code in these pages, after as many as `before`. All loads are of one page.
fn rounds(pages: &[u64], set: &[&str], (before, count): (u64, u64)) -> Statistics {
    rounds_with(pages, set, (before, count), 1000)
}

/// The same with so many instructions before each load.
fn rounds_with(pages: &[u64], set: &[&str], (before, count): (u64, u64), gap: u32) -> Statistics {
    let small = [
        r#"machine.tlb.l1i=[{"pages":["4K"],"entries":4,"ways":4,"policy":"lru"}]"#,
        r#"machine.tlb.l2=[{"pages":["4K"],"entries":8,"ways":8,"policy":"lru"}]"#,
    ];
    let after = |rounds: u64| {
        let mut script = ScriptWriter::new();
        let (prot, flags) = (Protection { read: true, write: false, execute: true }, MapFlags(MapFlags::ANONYMOUS));
        script.event(0, EventKind::Mmap { addr: CODE, len: 1 << 24, prot, flags, file: None, file_offset: 0 });
        script.mmap(0, DATA, 4096);
        for page in (0..rounds).flat_map(|_| pages) {
            let access = Access::new(AccessKind::Load, DATA, 8);
            script.access_of(0, Access { pc: CODE + page * 4096 + 8, gap, ..access });
        }
        let (_, stats) = run(&config("radix", &[&small, set].concat()), script.finish(), &[0]);
        assert_conserved(&stats);
        stats
    };
    after(before + count).since(&after(before))
}

const ON: &str = "machine.prefetch.tlb.morrigan=on";

fn of_prefetcher(stats: &Statistics, name: &str) -> u64 {
    stats.values[&format!("prefetch.tlb.morrigan.{name}")]
}

/// In the second round each page is followed by the one that followed it in the first.
#[test]
fn a_cycle_of_code_needs_no_walks_after_two_rounds() {
    let pages: Vec<u64> = (0..40).map(|n| n * 37 % 1000).collect();
    let without = rounds(&pages, &[], (2, 5));
    assert_eq!(without.values["walk.count"], 200);
    let stats = rounds(&pages, &[ON], (2, 5));
    assert_eq!(stats.values["walk.count"], 0);
    assert_eq!(of_prefetcher(&stats, "useful") + of_prefetcher(&stats, "late"), 200);
    assert_eq!([of_prefetcher(&stats, "walks"), of_prefetcher(&stats, "unmapped")], [200, 0]);
}

/// Without instructions in between, a fetch waits for the rest of the walk that was begun for it, and no longer.
#[test]
fn fetches_wait_for_the_rest_of_a_walk() {
    let pages: Vec<u64> = (0..40).map(|n| n * 37 % 1000).collect();
    let set = [ON, "system.layers.native.mmu_cache=none", "machine.core.cycles_per_instruction=1"];
    let stats = rounds_with(&pages, &set, (2, 5), 0);
    let [useful, late, waited] = ["useful", "late", "late_cycles"].map(|name| of_prefetcher(&stats, name));
    assert_eq!((stats.values["walk.count"], useful + late), (0, 200));
    assert!(late > 0 && waited >= late && waited < of_prefetcher(&stats, "cycles"), "{late} {waited}");
}

/// A loop that fits into the TLBs asks for nothing, and misses of data teach nothing.
#[test]
fn a_loop_that_fits_does_nothing() {
    let stats = rounds(&[3, 900, 77], &[ON], (2, 5));
    assert_eq!([of_prefetcher(&stats, "walks"), stats.values["walk.count"]], [0, 0]);
    let none = rounds(
        &[3, 900, 77, 5, 6, 7, 8, 9, 10, 11, 12, 13],
        &[r#"machine.prefetch.tlb.morrigan={"entries":0}"#],
        (2, 5),
    );
    assert_eq!([of_prefetcher(&none, "walks"), none.values["walk.count"]], [0, 60]);
}
