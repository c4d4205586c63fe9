//! Compares blocks of translations in the second-level cache with closed forms.

use crate::common::{ScriptWriter, assembled, assert_conserved, config, run};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::EventKind;

const BASE: u64 = 0x7f00_0000_0000;
/// TLBs of one page: every access to another page looks up the blocks.
const ONE_PAGE: [&str; 2] = [
    r#"machine.tlb.l1d=[{"pages":["4K","2M"],"entries":1,"ways":1}]"#,
    r#"machine.tlb.l2=[{"pages":["4K","2M"],"entries":1,"ways":1}]"#,
];
/// Every page gets a block.
const ALL: &str = r#"machine.tlb.stages.victima={"cache_misses_per_1000":0,"counters":"free"}"#;
const EVICTED: &str = r#"machine.tlb.stages.victima={"cache_misses_per_1000":0,"counters":"free","insert":"eviction"}"#;
const SYSTEMS: [&str; 4] = ["radix", "hashed-open", "nested-radix-cold", "nested-radix-no-mmu-cache"];

/// Statistics of this many rounds over pages, after `before` rounds.
fn rounds(system: &str, set: &[&str], pages: u64, (before, count): (u64, u64)) -> Statistics {
    let after = |rounds: u64| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 1 << 22);
        for page in (0..rounds).flat_map(|_| 0..pages) {
            script.load(0, BASE + page * 4096 + page % 64 * 64);
        }
        let (_, stats) = run(&config(system, &[&ONE_PAGE, set].concat()), script.finish(), &[0]);
        assert_conserved(&stats);
        stats
    };
    after(before + count).since(&after(before))
}

fn victima<const N: usize>(stats: &Statistics, names: [&str; N]) -> [u64; N] {
    names.map(|name| stats.values[&format!("tlb.stages.victima.{name}")])
}

#[test]
fn pages_with_blocks_need_no_walks_and_wait_for_the_cache() {
    for system in SYSTEMS {
        for blocks in [ALL, EVICTED] {
            let stats = rounds(system, &[blocks], 100, (2, 10));
            let counts = ["look_ups", "misses", "inserted", "inserted_evicted", "walks", "counter_stores"];
            assert_eq!(victima(&stats, counts), [1000, 0, 0, 0, 0, 0], "{system} {blocks}");
            assert_eq!((stats.values["walk.count"], stats.values["dtlb.l2.misses"]), (0, 1000), "{system}");
            // 7 cycles of the second-level TLB, and 12 of the cache.
            assert_eq!(stats.values["cycles.translation"], 1000 * (7 + 12), "{system}");
        }
    }
}

/// The counters decide: walks of pages whose entries stay in the caches make no blocks.
#[test]
fn pages_that_are_cheap_to_walk_for_get_no_blocks() {
    let stats = rounds("radix", &["machine.tlb.stages.victima=on"], 100, (2, 10));
    // Each page is refused after its walk, and again when the next page evicts it.
    assert_eq!(victima(&stats, ["look_ups", "misses", "inserted", "cheap"]), [1000, 1000, 0, 2000]);
    assert_eq!(stats.values["walk.count"], 1000);
    // A page's counter of walks has reached its end after 15 of them; the first two rounds made two or three.
    let stores = victima(&stats, ["counter_stores"])[0];
    assert_eq!(stores, 1000, "the counters of 100 pages rise ten times");
    let later = rounds("radix", &["machine.tlb.stages.victima=on"], 100, (20, 10));
    assert_eq!(victima(&later, ["counter_stores"]), [0]);
}

/// Blocks that do not fit into the second-level cache leave it by its own policy.
#[test]
fn a_cache_that_is_too_small_for_the_blocks_keeps_none() {
    // 64 sets of one way. The data are a line of the zero page, which the L1 holds.
    let l2 = r#"machine.cache.l2={"size_bytes":"4KiB","ways":1,"latency_cycles":12}"#;
    let hits = |pages: std::ops::Range<u64>| {
        let after = |rounds: u64| {
            let mut script = ScriptWriter::new();
            script.mmap(0, BASE, 1 << 24);
            for page in (0..rounds).flat_map(|_| pages.clone()) {
                script.load(0, BASE + page * 8 * 4096);
            }
            let set = [&ONE_PAGE[..], &[l2, ALL, "machine.cache.walker_entry=l1"]].concat();
            run(&config("radix", &set), script.finish(), &[0]).1
        };
        let stats = after(12).since(&after(2));
        let [look_ups, misses] = victima(&stats, ["look_ups", "misses"]);
        (look_ups, look_ups - misses)
    };
    assert_eq!(hits(1..61), (600, 600), "a block per set");
    // Of two blocks of a set each takes the other's way; those of sets 57 to 63 and 0 are alone.
    assert_eq!(hits(1..121), (1200, 10 * 8));
}

#[test]
fn a_page_that_is_mapped_anew_is_walked_for() {
    for system in SYSTEMS {
        let walks = |lives: u64| {
            let mut script = ScriptWriter::new();
            for _ in 0..lives {
                script.mmap(0, BASE, 1 << 22);
                for page in (0..3).flat_map(|_| 0..100) {
                    script.load(0, BASE + page * 4096);
                }
                script.event(0, EventKind::Munmap { addr: BASE, len: 1 << 22 });
            }
            run(&config(system, &[&ONE_PAGE[..], &[ALL]].concat()), script.finish(), &[0]).1
        };
        let [first, second, third] = [1, 2, 3].map(walks);
        let more = |a: &Statistics, b: &Statistics| a.values["walk.count"] - b.values["walk.count"];
        assert_eq!((more(&second, &first), more(&third, &second)), (100, 100), "{system}");
    }
}

/// Few pages are shot down one by one, more of them with their whole space.
#[test]
fn a_shootdown_drops_the_blocks_of_its_pages() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 * 4096);
    (0..2).flat_map(|_| 0..64).for_each(|page| script.load(0, BASE + page * 4096));
    script.event(0, EventKind::Munmap { addr: BASE + 8 * 4096, len: 16 * 4096 });
    (24..64).chain(0..8).for_each(|page| script.load(0, BASE + page * 4096));
    let (_, stats) = run(&config("radix", &[&ONE_PAGE[..], &[ALL]].concat()), script.finish(), &[0]);
    assert_eq!(victima(&stats, ["shot"]), [2]);
    // No walk but the first one for each page, and those in which the kernel's own accesses had a part.
    assert_eq!(stats.values["walk.count"], 64);
}

#[test]
fn a_machine_without_a_second_level_cache_is_refused() {
    let error = assembled("radix", &["machine.cache.l2=null", ALL]).and_then(|config| config.validate()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("machine.tlb.stages.victima") && error.contains("machine.cache.l2"), "{error}");
}
