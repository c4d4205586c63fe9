//! Prefetchers: closed forms of coverage, borders and waits for outstanding lines.

use crate::common::{ScriptWriter, assert_conserved, config, mmap, run, run_all, run_workload, try_beside};
use pagelab_engine::base::error::EngineError;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::programs::load::BackgroundLoad;
use pagelab_trace::{Access, AccessKind, Maker, Protection, Source};

const BASE: u64 = 0x7f00_0000_0000;
const LINE: u64 = 64;
/// Number of 4 KiB pages that fill the first-level TLB.
const PAGES: u64 = 64;
const BYTES: u64 = PAGES * 4096;
const L1: u64 = 4;
const MEMORY: u64 = 100;
/// An instruction whose page is not mapped, so that it takes no entry of a TLB.
const PC: u64 = 0x40_1000;

/// A machine with an L1 of 4 KiB before memory, whose hits stall, and instructions of one cycle.
fn small(system: &str, core: &str, prefetch: &str) -> pagelab_engine::config::Config {
    let core = format!("machine.core={core}");
    let l1 = format!(r#"machine.cache.l1={{"size_bytes":"4KiB","ways":8,"latency_cycles":{L1}}}"#);
    let mut set = vec![&core[..], &l1, "machine.cache.l2=null", "machine.cache.l3=null"];
    let memory = format!("machine.cache.dram_latency_cycles={MEMORY}");
    let prefetch = format!("machine.prefetch={prefetch}");
    set.extend([&memory[..], &prefetch]);
    config(system, &set)
}

const IN_ORDER: &str = r#"{"cycles_per_instruction":1.0,"l1_hit_hidden":false}"#;

/// Statistics of loading `offsets` of a region, one load per `gap` instructions, after its pages were mapped and its
/// lines evicted from the cache.
fn loads(config: &pagelab_engine::config::Config, gap: u32, offsets: &[u64]) -> Statistics {
    let script = |offsets: &[u64]| {
        let mut script = ScriptWriter::new();
        script.event(0, mmap(BASE, 2 << 20, Protection::from_bits(7)));
        // Stores, so that each page gets its own frame. The last of them evict all lines of the others.
        (0..PAGES).for_each(|page| script.store(0, BASE + page * 4096));
        let code = BASE + (PAGES - 1) * 4096;
        for offset in (0..PAGES).map(|page| page * 4096).chain(offsets.iter().copied()) {
            script.access_of(0, Access { gap, pc: code, ..Access::new(AccessKind::Load, BASE + offset, 8) });
        }
        script.finish()
    };
    let (_, before) = run(config, script(&[]), &[0]);
    let (simulation, after) = run(config, script(offsets), &[0]);
    assert_conserved(&after);
    for counts in simulation.hw.caches.prefetched().into_iter().flatten() {
        assert_eq!(counts.issued, counts.useful + counts.late + counts.useless + counts.unused, "{counts:?}");
    }
    after.since(&before)
}

fn sequence(stride: u64) -> Vec<u64> {
    (0..BYTES).step_by(stride as usize).collect()
}

/// The values of statistics of the first level.
fn of_l1<const N: usize>(stats: &Statistics, names: [&str; N]) -> [u64; N] {
    names.map(|name| stats.values[&format!("prefetch.l1.{name}")])
}

#[test]
fn next_lines_cover_all_of_a_page_but_its_first() {
    let config = small("radix", IN_ORDER, r#"{"l1":{"next_line":"on"}}"#);
    // So slow that no prefetch is late.
    let stats = loads(&config, 200, &sequence(LINE));
    let covered = PAGES * 63;
    assert_eq!(of_l1(&stats, ["issued", "useful", "late"]), [covered, covered, 0]);
    assert_eq!(of_l1(&stats, ["from_memory", "dropped.border", "dropped.busy"]), [covered, PAGES, 0]);
    assert_eq!(stats.values["l1d.misses.data"], PAGES);
    assert_eq!(stats.values["cycles.data_stall"], PAGES * MEMORY + covered * L1);
    // Triggered only by misses, every second line is covered, and a prefetched line's use triggers nothing.
    let config = small("radix", IN_ORDER, r#"{"l1":{"next_line":{"trigger":"miss"}}}"#);
    let stats = loads(&config, 200, &sequence(LINE));
    assert_eq!(of_l1(&stats, ["issued", "useful", "dropped.border"]), [PAGES * 32, PAGES * 32, 0]);
}

#[test]
fn late_lines_cost_exactly_the_rest() {
    let config = small("radix", IN_ORDER, r#"{"l1":{"next_line":"on"}}"#);
    for gap in [1, 20, 91, 92, 93, 96] {
        let stats = loads(&config, gap, &sequence(LINE));
        // Each line is fetched when the access to the previous one issues.
        let (mut stall, mut late, mut rest) = (MEMORY, 0, 0);
        let mut page = stall;
        for _ in 1..64 {
            stall = L1.max(MEMORY.saturating_sub(stall + u64::from(gap)));
            (late, rest) = (late + u64::from(stall > L1), rest + stall - L1);
            page += stall;
        }
        assert_eq!(stats.values["cycles.data_stall"], PAGES * page, "every {gap} cycles");
        assert_eq!(of_l1(&stats, ["late", "late_cycles"]), [PAGES * late, PAGES * rest], "every {gap} cycles");
        assert_eq!(late > 0, gap < 92, "every {gap} cycles");
    }
}

#[test]
fn the_page_that_maps_a_line_is_the_border() {
    let stride = 256;
    let prefetch = r#"{"l1":{"ip_stride":{"border":"mapping"}}}"#;
    let count = BYTES / stride;
    let stats = loads(&small("radix", IN_ORDER, prefetch), 200, &sequence(stride));
    // A stride is detected with the third access. After that, the first access to each page misses, and the last
    // prefetch is dropped at the border.
    assert_eq!(stats.values["l1d.misses.data"], PAGES + 2);
    assert_eq!(of_l1(&stats, ["useful", "late", "dropped.border"]), [count - PAGES - 2, 0, PAGES]);
    // In a page of 2 MiB only the first three miss, and one prefetch is useless.
    let stats = loads(&small("radix-2m", IN_ORDER, prefetch), 200, &sequence(stride));
    assert_eq!(stats.values["l1d.misses.data"], 3);
    assert_eq!(of_l1(&stats, ["issued", "useful", "dropped.border"]), [count - 2, count - 3, 0]);
    // Prefetchers that do not know the page size stop at 4 KiB.
    let stats = loads(&small("radix-2m", IN_ORDER, r#"{"l1":{"ip_stride":"on"}}"#), 200, &sequence(stride));
    assert_eq!(of_l1(&stats, ["useful", "late", "dropped.border"]), [count - PAGES - 2, 0, PAGES]);
}

#[test]
fn streams_run_ahead_until_nothing_is_late() {
    // Four lines ahead, 30 cycles apart.
    let stats = |depth: u32| {
        let prefetch = format!(r#"{{"l1":{{"stream":{{"depth":{depth},"degree":4,"border":"mapping"}}}}}}"#);
        loads(&small("radix-2m", IN_ORDER, &prefetch), 30, &sequence(LINE))
    };
    let lines = BYTES / LINE;
    let found = stats(4);
    // The first two train it.
    assert_eq!(found.values["l1d.misses.data"], 2);
    assert_eq!(of_l1(&found, ["issued", "useful", "late"]), [lines - 2 + 4, lines - 2, 0]);
    let found = stats(1);
    assert_eq!(found.values["l1d.misses.data"], 2);
    // A prefetch one line ahead is issued with the previous access: 100 cycles, of which 34 pass.
    let late = of_l1(&found, ["late", "late_cycles"]);
    assert!(late[0] > 0 && late[1] == late[0] * (MEMORY - 30 - 2 * L1), "{late:?}");
}

#[test]
fn random_accesses_use_nothing() {
    // Even lines in an order without strides: odd lines are never used.
    let offsets: Vec<u64> = (0..2048_u64).map(|n| n * n * 2 % 4096 * LINE).collect();
    for prefetch in ["next_line", "ip_stride", "stream"] {
        let config = small("radix-2m", IN_ORDER, &format!(r#"{{"l1":{{"{prefetch}":"on"}}}}"#));
        let [issued, useful, late] = of_l1(&loads(&config, 200, &offsets), ["issued", "useful", "late"]);
        assert_eq!([useful, late], [0, 0], "{prefetch}");
        assert_eq!(issued > 1000, prefetch == "next_line", "{prefetch}: {issued}");
    }
}

#[test]
fn buffers_bound_what_is_fetched_at_a_time() {
    let prefetch = r#"{"l1":{"next_line":{"degree":8},"buffers":3}}"#;
    let config = small("radix", IN_ORDER, prefetch);
    // All but the page zeroed last, some of whose lines are still in the cache.
    let pages = PAGES - 1;
    let first_lines: Vec<u64> = (0..pages).map(|page| page * 4096).collect();
    let stats = loads(&config, 200, &first_lines);
    assert_eq!(of_l1(&stats, ["issued", "dropped.busy", "dropped.border"]), [3 * pages, 5 * pages, 0]);
}

#[test]
fn a_window_waits_for_lines_under_way_too() {
    // A window of one instruction overlaps nothing, like an in-order core.
    let one = r#"{"model":"window","cycles_per_instruction":1.0,"window":1,"store_queue":0}"#;
    let prefetch = r#"{"l1":{"next_line":{"trigger":"always"}}}"#;
    for (spec, late) in [("seq:size=256KiB,passes=2", 1000), ("gups:size=256KiB,updates=20K", 0)] {
        let [in_order, window] = [IN_ORDER, one].map(|core| run_workload(&small("radix-2m", core, prefetch), spec));
        assert!(of_l1(&window, ["late"]) >= [late], "{spec}");
        for name in ["prefetch.l1.issued", "prefetch.l1.late", "prefetch.l1.late_cycles", "cycles"] {
            assert_eq!(window.values[name], in_order.values[name], "{spec}: {name}");
        }
    }
    // A large window also overlaps the rest of the wait.
    let many = r#"{"model":"window","cycles_per_instruction":1.0}"#;
    let [one, many] =
        [one, many].map(|core| run_workload(&small("radix-2m", core, prefetch), "seq:size=256KiB,passes=2"));
    assert!(many.values["cycles"] < one.values["cycles"], "{} {}", many.values["cycles"], one.values["cycles"]);
}

/// Statistics of a second pass over `pages` pages, `stride` pages apart.
fn second_pass(system: &str, pages: u64, stride: usize, gap: u32) -> Statistics {
    second_pass_with(("next_page=on", "prefetch.tlb"), system, pages, stride, gap)
}

/// The same with a TLB prefetcher, given with its value and the prefix of its statistics.
fn second_pass_with((name, prefix): (&str, &str), system: &str, pages: u64, stride: usize, gap: u32) -> Statistics {
    let on = format!("machine.prefetch.tlb.{name}");
    let mut set: Vec<&str> = on.lines().collect();
    set.extend([
        "machine.core.cycles_per_instruction=1",
        "machine.tlb.l1d.0.policy=lru",
        "machine.tlb.l2.0.policy=lru",
    ]);
    let config = config(system, &set);
    let pass = |passes: u64| {
        let mut script = ScriptWriter::new();
        script.event(0, mmap(BASE, pages * 4096, Protection::READ_WRITE));
        for pass in 0..=passes {
            for page in (0..pages).step_by(if pass == 0 { 1 } else { stride }) {
                let kind = if pass == 0 { AccessKind::Store } else { AccessKind::Load };
                let access = Access::new(kind, BASE + page * 4096 + page % 64 * 64, 8);
                script.access_of(0, Access { pc: PC, gap, ..access });
            }
        }
        script.finish()
    };
    let (_, before) = run(&config, pass(0), &[0]);
    let (_, after) = run(&config, pass(1), &[0]);
    assert_conserved(&after);
    let value = |name: &str| after.values[&format!("{prefix}.{name}")];
    assert_eq!(value("entered"), value("useful") + value("late") + value("useless") + value("unused"));
    assert_eq!(value("walks"), value("entered") + value("unmapped"));
    after.since(&before)
}

#[test]
fn the_page_behind_needs_no_walk() {
    const MANY: u64 = 2048;
    for (system, gap) in [("radix", 1000), ("nested-radix-no-mmu-cache", 1), ("nested-radix", 1000)] {
        let stats = second_pass(system, MANY, 1, gap);
        let value = |name: &str| stats.values[&format!("prefetch.tlb.{name}")];
        assert_eq!(stats.values["dtlb.l2.misses"], MANY, "{system}");
        assert_eq!(stats.values["walk.count"], 1, "{system}: that of the first page");
        // After the last page there is none.
        assert_eq!(
            [value("walks"), value("unmapped"), value("useful") + value("late")],
            [MANY, 1, MANY - 1],
            "{system}"
        );
        assert_eq!(value("late") > 0, gap == 1, "{system}");
        // Accesses do not wait for prefetch walks, except for the rest of late ones.
        let waited = MANY * 7 + stats.values["walk.cycles"] + value("late_cycles");
        assert_eq!(stats.values["cycles.translation"], waited, "{system}");
    }
    // Every second page: prefetched translations are never used.
    let stats = second_pass("radix", MANY, 2, 1000);
    let value = |name: &str| stats.values[&format!("prefetch.tlb.{name}")];
    // The last 512 pages of the first pass are in the TLB, and the unused ones of them stay there.
    assert_eq!([value("useful"), value("late"), value("walks")], [0, 0, (MANY - 512) / 2]);
    assert_eq!(stats.values["walk.count"], MANY / 2);
}

/// Demand walks, prefetch walks and unmapped ones of the second of two passes. From its last page to the first, the
/// distance is 1 - MANY pages, which leads out of the mapping from any page but the last.
#[test]
fn prefetchers_make_the_walks_that_their_rules_say() {
    // More than the TLB holds; 1 - MANY and 1 have different rows in the table of distances.
    const MANY: u64 = 2000;
    for (name, demanded, walks, unmapped) in [
        // From page 0: -2, -1, 1 and 2; from page 1: -1 and 3; then the page two ahead, and at the end the next, too.
        ("stp", 1, 4 + 2 + (MANY - 2) + 1, 3 + 3),
        // From page 0: the distance before, and the last one. Page 1 has the same two. Then both are 1.
        ("h2p", 1, 2 + 2 + MANY - 2, 2 + 1),
        // A stride is seen from page 1 on and confirmed twice at page 3.
        ("asp", 4, MANY - 3, 1),
        // From page 0: the stride before, and the last one, as with h2p.
        ("masp", 1, 2 + 2 + MANY - 2, 2 + 1),
        // Nothing from page 0, whose distance is new. Then what followed 1 before: 1, and 1 - MANY.
        ("distance", 2, 2 * (MANY - 1), (MANY - 2) + 1),
        // Above each page in the stack is the next one, and above the last one the first, which has left the TLB again.
        // Pages leave a set after the other: so that they leave in their order, all sets have equally many.
        ("recency", 1, 2048, 0),
    ] {
        let many = if name == "recency" { walks } else { MANY };
        let prefix = format!("prefetch.tlb.{name}");
        let stats = second_pass_with((&format!("{name}=on"), &prefix), "radix", many, 1, 1000);
        let value = |name: &str| stats.values[&format!("{prefix}.{name}")];
        assert_eq!(stats.values["dtlb.l2.misses"], many, "{name}");
        assert_eq!(stats.values["walk.count"], demanded, "{name}");
        assert_eq!([value("walks"), value("unmapped")], [walks, unmapped], "{name}");
        assert_eq!(value("useful") + value("late"), many - demanded, "{name}");
    }
}

/// A miss changes the pointers of the page above and of the one below: a page of the kernel, since those between were
/// taken out before. An eviction changes those of the page and of the one before, which share a line three times of
/// four.
#[test]
fn pointers_of_recency_are_lines_of_memory() {
    const MANY: u64 = 2048;
    let stats = |set| second_pass_with((set, "prefetch.tlb.recency"), "radix", MANY, 1, 1000).values;
    let found = stats("recency=on");
    let of_memory = |name: &str| found[&format!("prefetch.tlb.recency.memory.{name}")];
    assert_eq!([of_memory("refs"), of_memory("writes")], [0, 2 * MANY + MANY + MANY / 4]);
    let levels = ["l1", "l2", "l3", "dram", "remote"].map(|level| of_memory(&format!("refs.{level}")));
    assert_eq!(levels.iter().sum::<u64>(), of_memory("writes"));
    assert!(of_memory("write_cycles") > 0 && levels[1] > 0, "{levels:?}");
    assert_eq!(stats(r#"recency={"entries":0}"#)["walk.count"], MANY);
}

/// Units that keep what they know in memory take none of each other's, nor of the kernels'.
#[test]
fn units_have_memory_of_their_own() {
    let set = ["machine.cores=2", "machine.prefetch.tlb.recency=on", "machine.tlb.stages.pom=on"];
    let program = || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 4096);
        script.load(0, BASE);
        script.finish()
    };
    let (simulation, _) = run_all(&config("radix", &set), vec![(program(), &[0]), (program(), &[2])]);
    let hardware = &simulation.hw;
    let stages = hardware.shared_stages.iter().chain(hardware.units.iter().flat_map(|unit| &unit.stages));
    let mut memory: Vec<_> = stages.map(|stage| stage.memory().expect("it was put there")).collect();
    memory.sort_by_key(|lines| lines.start);
    // The table of all cores, and the pointers of each.
    let bytes: Vec<u64> = memory.iter().map(|lines| (lines.end.0 - lines.start.0) * 64).collect();
    assert_eq!(bytes, [16 << 20, 16 << 20, 16 << 20]);
    assert_eq!(memory[0].start.0 * 64, 8 << 30, "the kernels have 8 GiB");
    assert!(memory.windows(2).all(|pair| pair[0].end <= pair[1].start), "{memory:?}");
}

/// The fourth page that a miss proposes arrives after four walks, not after one.
#[test]
fn walks_for_a_miss_are_made_one_after_the_other() {
    const MANY: u64 = 2000;
    let set = ["machine.prefetch.tlb.stp=on", "machine.core.cycles_per_instruction=1"];
    let config = config("nested-radix-no-mmu-cache", &set);
    let mut script = ScriptWriter::new();
    script.event(0, mmap(BASE, MANY * 4096, Protection::READ_WRITE));
    let access = |kind, page: u64| Access { gap: 1, ..Access::new(kind, BASE + page * 4096, 8) };
    (0..MANY).for_each(|page| script.access_of(0, access(AccessKind::Store, page)));
    let before = script.clone();
    for page in [100, 102] {
        script.access_of(0, access(AccessKind::Load, page));
    }
    let [before, after] = [before, script].map(|script| run(&config, script.finish(), &[0]).1);
    let stats = after.since(&before);
    let value = |name: &str| stats.values[&format!("prefetch.tlb.stp.{name}")];
    // From page 100: 98, 99, 101 and 102; from page 102: 103 and 104.
    assert_eq!([value("walks"), value("late")], [6, 1]);
    assert!(value("late_cycles") > value("cycles") / 3, "{} of {}", value("late_cycles"), value("cycles"));
}

#[test]
fn each_instruction_has_its_own_stride() {
    // Three instructions take turns; each goes through pages of its own. Two of them share no stride.
    const EACH: u64 = 600;
    let stats = |prefetcher: &str| {
        let on = format!("machine.prefetch.tlb.{prefetcher}=on");
        let config = config("radix", &[&on, "machine.tlb.l1d.0.policy=lru", "machine.tlb.l2.0.policy=lru"]);
        let mut script = ScriptWriter::new();
        script.event(0, mmap(BASE, 16 * EACH * 4096, Protection::READ_WRITE));
        // The last of these pages are in the TLB afterwards.
        for page in 0..16 * EACH {
            script.access_of(0, Access { pc: PC + 3, ..Access::new(AccessKind::Store, BASE + page * 4096, 8) });
        }
        let before = script.clone();
        for n in 0..EACH {
            for (number, stride) in [(0, 1), (1, 3), (2, 2)] {
                let page = [0, EACH, 4 * EACH][number as usize] + n * stride;
                let access = Access::new(AccessKind::Load, BASE + page * 4096, 8);
                script.access_of(0, Access { pc: PC + number, gap: 1000, ..access });
            }
        }
        let [before, after] = [before, script].map(|script| try_run(&config, script.finish()).unwrap());
        let stats = after.since(&before);
        let value = |name: &str| stats.values[&format!("prefetch.tlb.{prefetcher}.{name}")];
        [stats.values["walk.count"], value("useful") + value("late"), value("unmapped")]
    };
    // Four walks each until a stride is confirmed; two with unconfirmed strides.
    assert_eq!(stats("asp"), [3 * 4, 3 * (EACH - 4), 0]);
    assert_eq!(stats("masp"), [3 * 2, 3 * (EACH - 2), 0]);
}

#[test]
fn a_source_without_addresses_of_instructions_is_refused_by_those_who_need_them() {
    let error = |name: &str, access: Access| {
        let mut script = ScriptWriter::new();
        script.event(0, mmap(BASE, 4096, Protection::READ_WRITE));
        script.access_of(0, access);
        try_run(&config("radix", &[&format!("machine.prefetch.tlb.{name}=on")]), script.finish()).err()
    };
    let access = Access { gap: 3, ..Access::new(AccessKind::Store, BASE, 8) };
    for name in ["asp", "masp", "atp"] {
        let refused = error(name, access).expect("it has no instruction").to_string();
        for part in [&format!("machine.prefetch.tlb.{name}"), "the source `script`", "a recording"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(error(name, Access { pc: PC, ..access }).is_none());
        // What no instruction does has no address in any source.
        assert!(error(name, Access { gap: 0, ..access }).is_none());
        assert!(error(name, Access { maker: Maker::KERNEL, ..access }).is_none());
    }
    assert!(error("h2p", access).is_none());
}

/// The statistics of a run, or why it is refused.
fn try_run(config: &pagelab_engine::config::Config, source: Box<dyn Source>) -> Result<Statistics, EngineError> {
    try_beside(config, vec![(source, &[0])], BackgroundLoad::default()).map(|(_, stats)| stats)
}

/// Every distance is let in from the start.
const ALL_FREE: &str = r#"sbfp={"free":{"threshold":0,"initial":1}}"#;

#[test]
fn a_scan_with_free_translations_walks_once_per_line_of_entries() {
    const MANY: u64 = 2000;
    for system in ["radix", "radix-no-mmu-cache"] {
        let stats = second_pass_with((ALL_FREE, "prefetch.tlb.sbfp"), system, MANY, 1, 1000);
        let value = |name: &str| stats.values[&format!("prefetch.tlb.sbfp.{name}")];
        assert_eq!(stats.values["dtlb.l2.misses"], MANY, "{system}");
        assert_eq!(stats.values["walk.count"], MANY / 8, "{system}");
        assert_eq!([value("walks"), value("refs"), value("entered")], [0, 0, 0], "{system}");
        let free = ["entered", "useful", "late", "useless", "unused"].map(|name| value(&format!("free.{name}")));
        assert_eq!(free, [MANY / 8 * 7, MANY / 8 * 7, 0, 0, 0], "{system}");
        // A walk reads what it reads without them.
        if system == "radix-no-mmu-cache" {
            assert_eq!(stats.values["walk.refs"], MANY / 8 * 4);
        }
    }
    // Every second page: half of them is not used, and replaced.
    let stats = second_pass_with((ALL_FREE, "prefetch.tlb.sbfp"), "radix", MANY, 2, 1000);
    assert!(stats.values["prefetch.tlb.sbfp.free.useless"] > 0);
}

#[test]
fn what_is_free_depends_on_the_lines_of_the_page_table() {
    const MANY: u64 = 2000;
    let walks = |system| {
        let stats = second_pass_with((ALL_FREE, "prefetch.tlb.sbfp"), system, MANY, 1, 1000);
        let useful = stats.values["prefetch.tlb.sbfp.free.useful"];
        assert_eq!(stats.values["walk.count"] + useful, MANY, "{system}");
        stats.values["walk.count"]
    };
    // A line with the entries of eight pages, and slots that a hash places.
    assert_eq!(walks("hashed-compact"), MANY / 8);
    assert!(walks("hashed-open") > MANY * 9 / 10);
}

#[test]
fn distances_are_let_in_once_they_were_seen_more_often_than_the_threshold() {
    const MANY: u64 = 2000;
    let stats = second_pass_with(("sbfp=on", "prefetch.tlb.sbfp"), "radix", MANY, 1, 1000);
    let value = |name: &str| stats.values[&format!("prefetch.tlb.sbfp.free.{name}")];
    // The first page of each line samples the other seven, which are hit one after the other. In line 101 the counter
    // of distance 1 passes the threshold, then that of 3: pages 2, 4 and 6 are found in the buffer, and stay in the
    // sampler. Distances 2 and 6 pass it in line 102, where page 4 is found in the buffer, and 4 in line 103.
    let (lines, learning) = (MANY / 8, 101);
    assert_eq!([value("sampled"), value("sampler_hits"), value("halvings")], [7 * learning + 3 + 1, 7 * learning, 0]);
    assert_eq!(stats.values["walk.count"], 8 * learning + (lines - learning));
    assert_eq!(value("useful"), 7 * (lines - learning));
}

#[test]
fn entries_of_guests_are_free_where_the_nested_tlb_has_their_frames() {
    const MANY: u64 = 2000;
    let walks = |nested: &str| {
        let set = format!("{ALL_FREE}\nmachine.tlb.nested={nested}");
        let stats = second_pass_with((&set, "prefetch.tlb.sbfp"), "nested-radix", MANY, 1, 1000);
        let useful = stats.values["prefetch.tlb.sbfp.free.useful"];
        assert_eq!(stats.values["walk.count"] + useful, MANY, "{nested}");
        stats.values["walk.count"]
    };
    // It holds all frames of the first pass, or none.
    assert_eq!(walks(r#"{"entries":65536,"ways":16,"latency_cycles":1,"policy":"lru"}"#), MANY / 8);
    assert_eq!(walks("null"), MANY);
}

#[test]
fn the_agile_prefetcher_chooses_after_each_miss() {
    const MANY: u64 = 2000;
    for free in ["on", "off"] {
        let set = format!(r#"atp={{"free":"{free}"}}"#);
        let stats = second_pass_with((&set, "prefetch.tlb.atp"), "radix", MANY, 1, 1000);
        let value = |name: &str| stats.values.get(&format!("prefetch.tlb.atp.{name}")).copied().unwrap_or(0);
        let chosen: u64 = ["none", "h2p", "masp", "stp"].iter().map(|name| value(&format!("chosen.{name}"))).sum();
        assert_eq!(chosen, MANY, "{free}");
        let used = ["useful", "late", "free.useful", "free.late"].map(value).iter().sum::<u64>();
        assert_eq!(stats.values["walk.count"], MANY - used, "{free}");
        assert!(used > MANY * 99 / 100, "{free}: {used}");
    }
}

#[test]
fn a_prefetcher_without_room_changes_nothing() {
    let spec = "gups:size=8MiB,updates=20K";
    for system in ["radix", "nested-radix"] {
        let plain = run_workload(&config(system, &[]), spec).values;
        for (name, none) in [
            ("next_page", r#"{"entries":0}"#),
            ("stp", r#"{"entries":0}"#),
            ("distance", r#"{"entries":0}"#),
            ("h2p", r#"{"entries":0}"#),
            ("asp", r#"{"entries":0}"#),
            ("masp", r#"{"entries":0}"#),
            ("sbfp", r#"{"entries":0}"#),
            ("sbfp", r#"{"free":{"threshold":1023}}"#),
            ("atp", r#"{"entries":0}"#),
            ("recency", r#"{"entries":0}"#),
            ("asp", r#"{"rows":0,"ways":1}"#),
            ("masp", r#"{"rows":0,"ways":1}"#),
        ] {
            let set = format!("machine.prefetch.tlb.{name}={none}");
            let mut found = run_workload(&config(system, &[&set]), spec).values;
            found.retain(|name, _| !name.starts_with("prefetch."));
            assert_eq!(found, plain, "{system} {set}");
        }
    }
}

#[test]
fn results_depend_only_on_the_configuration() {
    let all = r#"{"l1":{"next_line":"on","ip_stride":"on"},"l2":{"stream":"on"},"l3":{"next_line":"on"},"tlb":{"next_page":"on"}}"#;
    let prefetch = format!("machine.prefetch={all}");
    for core in [IN_ORDER, r#"{"model":"window","cycles_per_instruction":0.25}"#] {
        let core = format!("machine.core={core}");
        let config = config("nested-radix", &[&prefetch, &core]);
        let bfs = || {
            let source = pagelab_trace::workload::parse("bfs:vertices=20K,threads=4", 1).unwrap();
            let (simulation, stats) = run(&config, source, &[0, 2, 4, 6]);
            crate::common::assert_clocks_conserved(&simulation);
            assert_conserved(&stats);
            stats.values
        };
        let found = bfs();
        assert_eq!(found, bfs());
        for level in ["l1", "l2"] {
            assert!(found[&format!("prefetch.{level}.useful")] > 0, "{level}");
        }
    }
}

#[test]
fn disabled_prefetchers_have_no_effect() {
    let stats = run_workload(&config("radix", &[]), "gups:size=1MiB,updates=2K");
    assert!(!stats.values.keys().any(|name| name.starts_with("prefetch.")), "{:?}", stats.values);
    // A prefetcher without input changes no other statistic.
    let silent = ["machine.prefetch.l1.ip_stride=on"];
    let mut silenced = run_workload(&config("radix", &silent), "gups:size=1MiB,updates=2K").values;
    silenced.retain(|name, _| !name.starts_with("prefetch."));
    assert_eq!(silenced, stats.values);
}

/// Loads of a program after a page walk that ended in memory: their lines are under way by then.
#[test]
fn a_line_is_fetched_while_its_page_table_entry_travels() {
    const L3: u64 = 40;
    let l3 = format!(r#"machine.cache.l3={{"size_bytes":"64KiB","ways":16,"latency_cycles":{L3}}}"#);
    let workload = "random:size=256MiB,accesses=20K";
    for system in ["radix", "nested-radix"] {
        let simulate = |prefetch: &str| {
            let core = format!("machine.core={IN_ORDER}");
            let l1 = format!(r#"machine.cache.l1={{"size_bytes":"4KiB","ways":8,"latency_cycles":{L1}}}"#);
            let memory = format!("machine.cache.dram_latency_cycles={MEMORY}");
            let set = [&core[..], &l1, "machine.cache.l2=null", &l3, &memory, prefetch];
            run_workload(&config(system, &set), workload)
        };
        let (plain, stats) = (simulate("machine.prefetch.l3.buffers=32"), simulate("machine.prefetch.l3.replay=on"));
        let of_l3 = |what: &str| stats.values[&format!("prefetch.l3.{what}")];
        let (issued, late) = (of_l3("issued"), of_l3("late"));
        assert!(issued > 1_000 && of_l3("from_memory") == issued && of_l3("dropped.busy") == 0, "{issued}");
        assert_eq!((late, of_l3("useful"), of_l3("useless"), of_l3("unused")), (issued, 0, 0, 0));
        // A line comes an L3 latency earlier than without, and that is still later than a hit in the L3.
        assert_eq!(of_l3("late_cycles"), issued * (MEMORY - 2 * L3));
        let saved = |name: &str| plain.values[name] - stats.values[name];
        assert_eq!([saved("cycles"), saved("cycles.data_stall")], [issued * L3; 2], "{system}");
        for name in ["walk.count", "walk.refs", "walk.cycles", "cycles.translation"] {
            assert_eq!(saved(name), 0, "{name}");
        }
    }
}
