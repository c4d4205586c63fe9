//! POWER's segments in whole systems: misses of the segment look-aside buffer, references per walk by page size, and
//! slots of pages that are larger than the base page size of their segment.

use crate::common::{ScriptWriter, assert_conserved, checked, config, run_workload};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, ProcessIx};

const BASE: u64 = 0x7f00_0000_0000;
const SEGMENT: u64 = 256 << 20;
const LARGE: u64 = 2 << 20;

const TINY_TLBS: [&str; 2] =
    [r#"machine.tlb.l1d=[{"pages":["4K","2M","1G"],"entries":1,"ways":1}]"#, "machine.tlb.l2=[]"];

fn segments(stats: &Statistics, what: &str) -> u64 {
    stats.values[&format!("layer.native.mmu_cache.segments.{what}")]
}

fn slots(stats: &Statistics) -> u64 {
    stats.values["layer.native.page_table.slots.used"]
}

fn refs_per_walk(stats: &Statistics) -> f64 {
    assert!(stats.values["walk.count"] > 10_000);
    stats.values["walk.refs"] as f64 / stats.values["walk.count"] as f64
}

/// A page in each of several segments, in turn: as long as the segments fit, only first touches miss, twice each. One
/// more, and each walk misses, as the oldest entry is replaced.
#[test]
fn a_stride_over_more_segments_than_there_are_entries_misses_at_each_walk() {
    const PASSES: u64 = 5;
    for (set, shift) in [("segments.bytes=256MiB", 28), ("segments.bytes=1TiB", 40)] {
        for (count, fits) in [(6, true), (7, false), (12, false)] {
            let mut script = ScriptWriter::new();
            let at = |segment: u64| (segment + 1) << shift;
            (0..count).for_each(|segment| script.mmap(0, at(segment), 4096));
            for _ in 0..PASSES {
                (0..count).for_each(|segment| script.store(0, at(segment)));
            }
            let set = format!("system.layers.native.page_table.{set}");
            let buffer = r#"machine.mmu_cache.segment_lookaside={"entries":8,"fixed":2,"handler_cycles":100}"#;
            let (_, stats) = checked("hashed-power-segments", &[&set, buffer, TINY_TLBS[0], TINY_TLBS[1]], script);
            let later = if fits { 0 } else { (PASSES - 1) * count };
            let walks = PASSES * count;
            assert_eq!(stats.values["walk.count"], walks);
            assert_eq!(
                (segments(&stats, "misses"), segments(&stats, "hits")),
                (2 * count + later, walks - count - later)
            );
            assert_eq!(segments(&stats, "handler_cycles"), 100 * (2 * count + later));
            // A line of the segment table after each miss, and one of the page's group.
            assert_eq!(stats.values["walk.refs"], walks + count + later, "{count}");
            assert_eq!(stats.values["walk.layer.native.level2.refs"], count + later, "{count}");
        }
    }
}

#[test]
fn hardware_that_fills_the_buffer_takes_no_time_of_a_handler() {
    let run = |fill: &str| {
        let fill = format!("machine.mmu_cache.segment_lookaside.fill={fill}");
        run_workload(&config("hashed-power-segments", &[&fill]), "stride:size=16GiB,stride=256MiB,passes=20")
    };
    let [software, hardware] = ["software", "hardware"].map(run);
    for what in ["hits", "misses"] {
        assert_eq!(segments(&software, what), segments(&hardware, what));
    }
    assert!(segments(&software, "misses") > 64 * 19);
    assert_eq!(
        (segments(&software, "handler_cycles"), segments(&hardware, "handler_cycles")),
        (150 * segments(&software, "misses"), 0)
    );
    let cycles = |stats: &Statistics| stats.values["walk.cycles"] + stats.values["walk.aborted.cycles"];
    assert_eq!(cycles(&software) - cycles(&hardware), segments(&software, "handler_cycles"));
}

#[test]
fn a_switch_to_another_process_drops_its_segments() {
    let script = || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 4096);
        script.store(0, BASE);
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        for _ in 0..10 {
            script.load(0, BASE);
            script.load(child, BASE);
        }
        script
    };
    let run = |flush: &str| {
        let flush = format!("machine.mmu_cache.segment_lookaside.flush_on_switch={flush}");
        checked("hashed-power-segments", &[&flush, TINY_TLBS[0], TINY_TLBS[1]], script()).1
    };
    let [dropped, kept] = ["true", "false"].map(run);
    assert_eq!(segments(&kept, "switches"), 0);
    let switches = segments(&dropped, "switches");
    assert!(switches > 0);
    assert!(segments(&dropped, "misses") <= segments(&kept, "misses") + switches);
}

/// The segment tells the page size, so a walk for any size makes one search: one reference without collisions.
#[test]
fn a_walk_for_a_page_of_any_size_makes_one_search() {
    for (system, workload) in [
        ("hashed-power-segments", "random:size=64MiB,accesses=60K"),
        ("hashed-power-2m", "random:size=128MiB,accesses=20K"),
        ("hashed-power-thp", "random:size=128MiB,accesses=20K"),
    ] {
        for (cache, refs) in [("segment-lookaside-buffer", 1.0), ("none", 2.0)] {
            let cache = format!("system.layers.native.mmu_cache={cache}");
            let stats = run_workload(&config(system, &[&cache, TINY_TLBS[0], TINY_TLBS[1]]), workload);
            assert_conserved(&stats);
            let found = refs_per_walk(&stats);
            assert!((refs..refs + 0.02).contains(&found), "{system} {cache}: {found}");
        }
    }
    // 64 pages of 2 MiB and the code page.
    assert_eq!(slots(&run_workload(&config("hashed-power-2m", &[]), "seq:size=128MiB,passes=1")), 65);
}

/// A large page takes one slot in a segment of its own size. A small page in its segment makes that 512 slots.
#[test]
fn a_small_page_in_a_segment_of_large_ones_replaces_their_slots() {
    let run = |small: Option<u64>, first: bool| {
        let mut script = ScriptWriter::new();
        let touch = |script: &mut ScriptWriter| {
            let Some(small) = small else { return };
            script.mmap(0, small, 4096);
            script.store(0, small);
        };
        if first {
            touch(&mut script);
        }
        script.mmap(0, BASE, 2 * LARGE);
        (0..2).for_each(|n| script.store(0, BASE + n * LARGE));
        if !first {
            touch(&mut script);
        }
        (0..1024).for_each(|n| script.load(0, BASE + n * 4096));
        let (_, stats) = checked("hashed-power-thp", &TINY_TLBS, script);
        assert_eq!(stats.values["fault.minor.count"], 2 + u64::from(small.is_some()));
        let demoted = stats.values["layer.native.page_table.segments.demoted"];
        (slots(&stats), demoted, stats.values["fault.cycles"])
    };
    let (alone, _, cycles) = run(None, false);
    assert_eq!(alone, 2);
    let (apart, demoted, cycles_apart) = run(Some(BASE + SEGMENT), false);
    assert_eq!((apart, demoted), (3, 0));
    let (mixed, demoted, cycles_mixed) = run(Some(BASE + 8 * LARGE), false);
    assert_eq!((mixed, demoted), (2 * 512 + 1, 1));
    // The fault of the small page pays for the lines of the others.
    assert!(cycles_mixed - cycles > 2 * (cycles_apart - cycles), "{cycles} {cycles_apart} {cycles_mixed}");
    let (mixed, demoted, _) = run(Some(BASE + 8 * LARGE), true);
    assert_eq!((mixed, demoted), (2 * 512 + 1, 0));
}

/// However small the table is, the kernel's record has room for all pages.
#[test]
fn a_tiny_table_that_evicts_entries_holds_all_pages() {
    let set = [
        "system.layers.native.page_table.table_bytes=256B",
        "system.layers.native.page_table.full_groups=evict",
        "machine.memory_bytes=1GiB",
    ];
    let stats = run_workload(&config("hashed-power", &set), "stride:size=64MiB,stride=4KiB,passes=2");
    assert_conserved(&stats);
    assert_eq!(slots(&stats), (64 << 8) + 1);
    assert_eq!(stats.values["layer.native.page_table.record.used"], (64 << 8) + 1 - 16);
}

#[test]
fn a_full_segment_table_says_what_helps() {
    use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
    let run = |bytes: &str| {
        let mut script = ScriptWriter::new();
        // Two groups have room for 16 segments whose numbers have the same low bits.
        for number in 1..=17 {
            script.mmap(0, number * 32 * SEGMENT, 4096);
            script.store(0, number * 32 * SEGMENT);
        }
        let set = format!("system.layers.native.page_table.segments.table_bytes={bytes}");
        let placed = PlacedSource { source: script.finish(), cpus: vec![0], memory_limit: None };
        let mut simulation = Simulation::new(&config("hashed-power-segments", &[&set]), vec![placed], None).unwrap();
        simulation.run(&mut |_| true)
    };
    let error = run("4KiB").unwrap_err().to_string();
    assert!(error.contains("page_table.segments.table_bytes"), "{error}");
    run("4MiB").unwrap();
}
