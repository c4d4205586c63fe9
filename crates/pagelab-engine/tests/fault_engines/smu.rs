//! Costs and savings of the storage management unit, its fallbacks to the kernel, and effects of mapping calls on its
//! entries.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run, run_all};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::base::ids::{LayerId, SpaceId};
use pagelab_engine::config::Config;
use pagelab_engine::fault_engine::smu::engine_access::smu;
use pagelab_engine::kernel::entry_word::EntryWord;
use pagelab_engine::kernel::reclaim::SCAN_PAGES;
use pagelab_engine::kernel::vma::VaRange;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::run::Request;
use pagelab_trace::{Access, AccessKind, EventKind, MapFlags, ProcessIx, Protection, Source};
use std::collections::BTreeSet;

const BASE: u64 = 0x7f00_0000_0000;
const OWN: u64 = 0x6f00_0000_0000;
const PAGE: u64 = 4096;
const READ: u64 = 30_000;
const READ_ONLY: Protection = Protection { read: true, write: false, execute: false };

/// The system with some parameters changed, and a device with a constant read latency.
fn smu_with(parameters: &[(&str, u64)], set: &[&str]) -> Config {
    let key = |&(name, value): &(&str, u64)| format!("system.layers.native.fault_engine.{name}={value}");
    let mut keys: Vec<String> = parameters.iter().map(key).collect();
    keys.push(format!(r#"kernel.storage={{"read_cycles":{READ},"write_cycles":9000,"queue_depth":64}}"#));
    config("hwdp", &keys.iter().map(String::as_str).chain(set.iter().copied()).collect::<Vec<_>>())
}

fn stat(stats: &Statistics, name: &str) -> u64 {
    stats.values[&format!("layer.native.fault_engine.{name}")]
}

fn page(n: u64) -> u64 {
    BASE + n * PAGE
}

fn map_file(script: &mut ScriptWriter, thread: u32, addr: u64, pages: u64, flags: u32) {
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(flags));
    let file = Some("data".into());
    script.event(thread, EventKind::Mmap { addr, len: pages * PAGE, prot, flags, file, file_offset: 0 });
}

/// Gives the threads time to finish their work: accesses to a mapped page, with many instructions between them.
fn pause(script: &mut ScriptWriter, thread: u32, cycles: u64) {
    for _ in 0..cycles / 5000 {
        let mut access = pagelab_trace::Access::new(pagelab_trace::AccessKind::Load, OWN, 8);
        access.gap = 10_000;
        script.access_of(thread, access);
    }
}

/// A script with a page of its own, a file mapped at `BASE`, and a full queue of free pages.
fn script(pages: u64, flags: u32) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, OWN, PAGE);
    script.store(0, OWN);
    map_file(&mut script, 0, BASE, pages, flags);
    pause(&mut script, 0, 6_000_000);
    script
}

fn spaces(simulation: &Simulation) -> Vec<SpaceId> {
    simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect()
}

/// Number of pages in a range whose entries contain their storage block.
fn stored(simulation: &Simulation, space: SpaceId, start: u64, pages: u64) -> usize {
    let range = VaRange { start: VirtAddr(start), end: VirtAddr(start + pages * PAGE) };
    let words = simulation.kernels.os.layers[space.layer].words(space.index, range);
    words.iter().filter(|entry| matches!(entry.word, EntryWord::Stored(_))).count()
}

/// Checks that marks of leaves agree with the engine's records.
fn assert_marks_agree(simulation: &Simulation) {
    let layer = &simulation.kernels.os.layers[LayerId(0)];
    for space in spaces(simulation) {
        let table = &layer.spaces[space.index].table;
        let pages = layer.mapped(space.index, VirtAddr(0), VirtAddr(1 << 47));
        let is_marked = |va: VirtAddr| table.mark(&layer.memory.contents, va, 1).is_some_and(|(_, on)| on);
        let marked: Vec<VirtAddr> = pages.iter().map(|page| page.va).filter(|&va| is_marked(va)).collect();
        let known = smu(layer).pending.keys().filter(|(index, _)| *index == space.index);
        assert_eq!(marked, known.map(|&(_, va)| va).collect::<Vec<_>>(), "marks of {space:?}");
    }
}

fn checked(simulation: &Simulation, stats: &Statistics) {
    assert_conserved(stats);
    assert_marks_agree(simulation);
    assert_frames_conserved(simulation, &spaces(simulation));
}

#[test]
fn a_page_of_a_file_is_read_without_a_page_fault() {
    let mut script = script(64, MapFlags::SHARED);
    (0..64).for_each(|n| script.load(0, page(n * 7 % 64)));
    (0..64).for_each(|n| script.store(0, page(n)));
    let config = smu_with(&[("kpted_cycles", 1 << 40)], &["engine.kernel_refs=off"]);
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    checked(&simulation, &stats);
    assert_eq!((stat(&stats, "mapped"), stat(&stats, "empty"), stat(&stats, "pending")), (64, 0, 64));
    assert_eq!((stats.values["fault.major.count"], stats.values["fault.minor.count"]), (0, 1), "the script's own page");
    assert_eq!(stats.values["layer.native.storage.requests"], 64);
    assert_eq!(stats.values["cycles.io"], 64 * READ);
    // Look-up; a free page; command and doorbell; completion and doorbell; entry; two marks. Each reference takes 4
    // cycles. A free page takes one for each line of the queue, and marks take one per upper entry.
    let (fetched, doorbell) = (64 / 4 - 1, 200);
    let free_page = 64 + (1 + fetched - fetched) * 4;
    let steps = ["lookup", "free_page", "submit", "complete", "map", "marks"];
    let expected = [64, free_page, 64 * (1 + 4 + doorbell), 64 * (1 + doorbell), 64 * (1 + 4), 64 * (1 + 2 * 4)];
    assert_eq!(steps.map(|step| stat(&stats, &format!("step.{step}.cycles"))), expected);
    assert_eq!(stat(&stats, "latency.cycles"), expected.iter().sum::<u64>() + 64 * READ);
    assert_eq!(stat(&stats, "latency.p50"), stat(&stats, "latency.p999"), "they are all alike");
}

#[test]
fn a_run_reports_an_unused_unit() {
    let warnings = |set: &[&str]| {
        let request = Request {
            sources: vec!["mapped-read:size=1MiB,lines=1,operations=100".to_owned()],
            systems: vec!["hwdp".to_owned()],
            set: set.iter().map(|&key| key.to_owned()).collect(),
            ..Request::default()
        };
        pagelab_engine::run::run(&request, &|_| true).unwrap().results.swap_remove(0).warnings
    };
    assert!(warnings(&[]).is_empty());
    for (key, why) in [
        ("kernel.page_cache=warm", "not in memory"),
        (r#"system.layers.native.fault_engine.files=["other"]"#, "`fault_engine.files`"),
    ] {
        let given = warnings(&[key]);
        assert!(given.len() == 1 && given[0].contains("nothing to do") && given[0].contains(why), "{given:?}");
    }
}

#[test]
fn without_a_free_page_the_kernel_reads_and_fills_the_queue() {
    for (sync_refill, empty, by_faults) in [(0, 64, 0), (1, 32, 32), (8, 8, 64), (64, 1, 64)] {
        let mut script = script(64, MapFlags::SHARED);
        (0..64).for_each(|n| script.load(0, page(n)));
        let config = smu_with(&[("kpoold_cycles", 0), ("sync_refill", sync_refill), ("free_pages", 64)], &[]);
        let (simulation, stats) = run(&config, script.finish(), &[0]);
        checked(&simulation, &stats);
        assert_eq!(
            (stat(&stats, "empty"), stats.values["fault.major.count"]),
            (empty, empty),
            "refills of {sync_refill}"
        );
        assert_eq!(stat(&stats, "mapped"), 64 - empty);
        assert_eq!(stat(&stats, "free_pages.by_faults"), by_faults, "refills of {sync_refill}");
    }
    // kpoold has filled the queue once, and does not run again.
    let mut script = script(64, MapFlags::SHARED);
    (0..64).for_each(|n| script.load(0, page(n)));
    let config = smu_with(&[("kpoold_cycles", 1 << 40), ("sync_refill", 0), ("free_pages", 40)], &[]);
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    checked(&simulation, &stats);
    assert_eq!((stat(&stats, "mapped"), stat(&stats, "empty"), stat(&stats, "free_pages")), (40, 24, 0));
}

/// One thread per load, on CPUs of their own, all at the same time.
fn together(config: &Config, loads: &[u64]) -> (Simulation, Statistics) {
    let mut script = script(64, MapFlags::SHARED);
    let others: Vec<u32> = loads.iter().skip(1).map(|_| script.thread(0)).collect();
    let threads: Vec<u32> = std::iter::once(0).chain(others).collect();
    threads.iter().zip(loads).for_each(|(&thread, &n)| script.load(thread, page(n)));
    let cpus: Vec<usize> = (0..loads.len()).collect();
    let (simulation, stats) = run(config, script.finish(), &cpus);
    checked(&simulation, &stats);
    (simulation, stats)
}

#[test]
fn misses_on_a_page_join_and_those_beyond_the_registers_wait() {
    const MACHINE: &[&str] = &["machine.cores=4", "machine.threads_per_core=1"];
    let (_, stats) = together(&smu_with(&[], MACHINE), &[5, 5, 5, 5]);
    assert_eq!((stat(&stats, "mapped"), stat(&stats, "joined"), stat(&stats, "full")), (1, 3, 0));
    assert_eq!(stats.values["layer.native.storage.requests"], 1, "one read for all");
    for (registers, full) in [(4, 0), (3, 1), (2, 2), (1, 3)] {
        let (_, stats) = together(&smu_with(&[("pmshr", registers)], MACHINE), &[5, 6, 7, 8]);
        assert_eq!((stat(&stats, "mapped"), stat(&stats, "joined")), (4, 0));
        assert_eq!(stat(&stats, "full"), full, "{registers} registers");
        let rounds = 4_u64.div_ceil(registers);
        let longest = stat(&stats, "latency.p999");
        assert!(longest >= rounds * READ && longest < rounds * (READ + 1500), "{longest} in {rounds} rounds");
    }
}

/// Eight threads miss all the time, and there is one register: each miss waits for the seven before it.
#[test]
fn misses_that_wait_for_a_register_are_served_in_their_order() {
    let mut script = script(512, MapFlags::SHARED);
    let threads: Vec<u32> = (0..8).map(|n| if n == 0 { 0 } else { script.thread(0) }).collect();
    for n in 0..64 {
        threads.iter().for_each(|&thread| script.load(thread, page(n * 8 + u64::from(thread))));
    }
    let machine = ["machine.cores=8", "machine.threads_per_core=1"];
    let (simulation, stats) = run(&smu_with(&[("pmshr", 1)], &machine), script.finish(), &[0, 1, 2, 3, 4, 5, 6, 7]);
    checked(&simulation, &stats);
    assert_eq!(stat(&stats, "mapped"), 512);
    let (median, tail) = (stat(&stats, "latency.p50"), stat(&stats, "latency.p99"));
    assert!(median >= 8 * READ && tail < 8 * (READ + 1500), "{median} and {tail} cycles for a read of {READ}");
}

#[test]
fn failed_requests_go_to_the_kernel() {
    let drive = r#"kernel.storage={"model":"drive","queue_depth":32,"controller_ns":100,"block_ns":50,"units":16,"read_ns":9000,"write_ns":900,"program_ns":9000,"buffer_blocks":64,"errors_per_million":300000}"#;
    let mut script = script(256, MapFlags::SHARED);
    (0..256).for_each(|n| script.load(0, page(n)));
    let (simulation, stats) = run(&smu_with(&[("kpoold_cycles", 1 << 40)], &[drive]), script.finish(), &[0]);
    checked(&simulation, &stats);
    let failed = stat(&stats, "failed");
    assert!((50..110).contains(&failed), "{failed} of 256");
    assert_eq!((stat(&stats, "mapped"), stats.values["fault.major.count"]), (256 - failed, failed));
    assert_eq!(stat(&stats, "free_pages") + 256 - failed, 4096, "frames of those that failed are in the queue again");
}

#[test]
fn kpted_accounts_for_pages_and_clears_marks() {
    let mut script = script(2048, MapFlags::SHARED);
    (0..2048).step_by(3).for_each(|n| script.load(0, page(n)));
    pause(&mut script, 0, 30_000_000);
    let (simulation, stats) = run(&smu_with(&[("kpted_cycles", 1_000_000)], &[]), script.finish(), &[0]);
    checked(&simulation, &stats);
    assert_eq!((stat(&stats, "mapped"), stat(&stats, "kpted.pages"), stat(&stats, "pending")), (683, 683, 0));
    let layer = &simulation.kernels.os.layers[LayerId(0)];
    assert_eq!(layer.memory.page_use.cached_frames(), 683);
    let table = &layer.spaces[spaces(&simulation)[0].index].table;
    for level in 1..=3 {
        let marked = |n| table.mark(&layer.memory.contents, VirtAddr(page(n)), level).is_some_and(|(_, on)| on);
        assert!(!(0..2048).any(marked), "marks of level {level}");
    }
    assert!(stat(&stats, "kpted.passes") > 5 && stat(&stats, "kpted.cycles") > 0);
}

/// kpted may be working on a process that ends, whose page table is then freed.
#[test]
fn kpted_stops_when_its_process_ends() {
    for pages in (1..400).step_by(7) {
        let mut script = script(2048, MapFlags::SHARED);
        (0..pages).for_each(|n| script.load(0, page(n * 5 % 2048)));
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        script.event(0, EventKind::Exit { code: 0 });
        let child = script.thread(1);
        pause(&mut script, child, 300_000);
        let (simulation, stats) = run(&smu_with(&[("kpted_cycles", 1000)], &[]), script.finish(), &[0, 1]);
        checked(&simulation, &stats);
    }
}

/// A thread's period may be unlimited.
#[test]
fn threads_may_sleep_for_ever() {
    let mut script = script(64, MapFlags::SHARED);
    (0..64).for_each(|n| script.load(0, page(n)));
    let config = smu_with(&[("kpted_cycles", u64::MAX), ("kpoold_cycles", u64::MAX)], &[]);
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    checked(&simulation, &stats);
    assert_eq!((stat(&stats, "mapped"), stat(&stats, "pending")), (64, 64));
}

/// An evicted page can be served by the unit again; a dirty one after it was written.
#[test]
fn reclaimed_pages_get_their_blocks_back() {
    for store in [false, true] {
        let mut script = script(2048, MapFlags::SHARED);
        for n in (0..2048).chain(0..2048) {
            if store { script.store(0, page(n)) } else { script.load(0, page(n)) }
        }
        let set = ["machine.memory_bytes=8MiB"];
        let config = smu_with(&[("free_pages", 64), ("kpted_cycles", 400_000), ("kpoold_cycles", 100_000)], &set);
        let (simulation, stats) = run(&config, script.finish(), &[0]);
        checked(&simulation, &stats);
        let (dropped, written) = (stats.values["reclaim.files.dropped"], stats.values["reclaim.files.written"]);
        assert!(dropped > 800, "{dropped}");
        assert_eq!(written, if store { dropped } else { 0 });
        let space = spaces(&simulation)[0];
        let mapped =
            simulation.kernels.os.layers[space.layer].mapped(space.index, VirtAddr(BASE), VirtAddr(page(2048))).len();
        let known = stored(&simulation, space, BASE, 2048) + mapped;
        // Pages that kswapd is writing at the end are in neither state.
        let least = if store { 2048 - SCAN_PAGES } else { 2048 };
        assert!((least..=2048).contains(&known), "each page is here or there: {known}");
        let by_kernel = stats.values["fault.major.count"];
        assert!(
            stat(&stats, "mapped") > 4 * by_kernel,
            "{} by the unit, {by_kernel} by the kernel",
            stat(&stats, "mapped")
        );
    }
}

#[test]
fn a_file_mapped_twice_goes_to_the_kernel() {
    let mut script = script(64, MapFlags::SHARED);
    (0..16).for_each(|n| script.load(0, page(n)));
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    (8..24).for_each(|n| script.load(child, page(n)));
    (16..64).for_each(|n| script.load(0, page(n)));
    let (simulation, stats) = run(&smu_with(&[], &[]), script.finish(), &[0, 1]);
    checked(&simulation, &stats);
    assert_eq!(stat(&stats, "mapped"), 16, "before the fork");
    for space in spaces(&simulation) {
        assert_eq!(stored(&simulation, space, BASE, 64), 0);
    }
    assert_eq!(stat(&stats, "accounted_by_calls"), 16);
    // Another mapping of the same pages in the same process.
    let mut script = ScriptWriter::new();
    map_file(&mut script, 0, BASE, 64, MapFlags::SHARED);
    script.load(0, page(3));
    map_file(&mut script, 0, OWN, 64, MapFlags::SHARED);
    (0..64).for_each(|n| script.load(0, OWN + n * PAGE));
    (0..64).for_each(|n| script.load(0, page(n)));
    let (simulation, stats) = run(&smu_with(&[], &[]), script.finish(), &[0]);
    checked(&simulation, &stats);
    assert_eq!(
        simulation.kernels.os.layers[LayerId(0)].memory.page_use.cached_frames(),
        64,
        "each page is in memory once"
    );
}

#[test]
fn a_file_that_is_to_be_served_may_not_be_shared() {
    let named = |name: &str| format!("system.layers.native.fault_engine.files=[\"{name}\"]");
    let outcome = |files: &str| {
        let mut script = script(64, MapFlags::SHARED);
        script.load(0, page(1));
        map_file(&mut script, 0, BASE + (1 << 30), 64, MapFlags::SHARED);
        let placed = PlacedSource { source: script.finish(), cpus: vec![0], memory_limit: None };
        let mut simulation =
            Simulation::new(&smu_with(&[], &[&named(files)]), vec![placed], None).expect("it can begin");
        simulation.run(&mut |_| true).map(|()| simulation.statistics())
    };
    for name in ["data", "da*"] {
        let error = outcome(name).unwrap_err().to_string();
        for part in ["system.layers.native.fault_engine.files", "`data`", "mapped more than once"] {
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }
    let stats = outcome("other").unwrap();
    assert_eq!((stat(&stats, "mapped"), stats.values["fault.major.count"]), (0, 1), "it is for other files");
}

#[test]
fn private_mappings_are_read_by_the_unit_and_copied_by_the_kernel() {
    let mut script = script(64, MapFlags::PRIVATE);
    (0..32).for_each(|n| script.load(0, page(n)));
    (16..48).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Munmap { addr: page(8), len: 4 * PAGE });
    script.event(0, EventKind::Mprotect { addr: page(40), len: 24 * PAGE, prot: READ_ONLY });
    (48..64).for_each(|n| script.load(0, page(n)));
    let (simulation, stats) = run(&smu_with(&[], &[]), script.finish(), &[0]);
    checked(&simulation, &stats);
    assert_eq!(stat(&stats, "mapped"), 32 + 16);
    assert_eq!(stats.values["fault.copy.count"], 32);
}

#[test]
fn calls_move_and_unmap_served_mappings() {
    let mut script = script(64, MapFlags::SHARED);
    (0..8).for_each(|n| script.store(0, page(n)));
    let to = 0x7e00_0000_0000;
    script.event(0, EventKind::Mremap { old_addr: BASE, old_len: 64 * PAGE, new_addr: to, new_len: 96 * PAGE });
    (0..96).for_each(|n| script.load(0, to + n * PAGE));
    let (simulation, stats) = run(&smu_with(&[], &[]), script.finish(), &[0]);
    checked(&simulation, &stats);
    assert_eq!(stat(&stats, "mapped"), 96);
    assert_eq!(stored(&simulation, spaces(&simulation)[0], BASE, 64), 0);
    let mut script = self::script(64, MapFlags::SHARED);
    (0..8).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Exit { code: 0 });
    let (simulation, stats) = run(&smu_with(&[], &[]), script.finish(), &[0]);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &[]);
    assert_eq!((stat(&stats, "pending"), stat(&stats, "accounted_by_calls")), (0, 8));
}

/// A core that waits for the unit stays idle; if a task waits for the kernel's request, others run.
#[test]
fn the_thread_that_missed_stalls() {
    let reader = |file: &str| -> Box<dyn Source> {
        let mut script = ScriptWriter::new();
        let (prot, flags) = (READ_ONLY, MapFlags(MapFlags::SHARED));
        let file = Some(file.into());
        script.event(0, EventKind::Mmap { addr: BASE, len: 64 * PAGE, prot, flags, file, file_offset: 0 });
        script.event(0, EventKind::Madvise { addr: BASE, len: 64 * PAGE, advice: 1 });
        (0..64).for_each(|n| script.load(0, page(n * 32 % 63)));
        script.finish()
    };
    let busy = || -> Box<dyn Source> {
        let mut script = ScriptWriter::new();
        script.mmap(0, OWN, PAGE);
        script.store(0, OWN);
        pause(&mut script, 0, 3_000_000);
        script.finish()
    };
    let elapsed = |files: &str, reader: Box<dyn Source>| {
        let files = format!("system.layers.native.fault_engine.files=[\"{files}\"]");
        let set = [files.as_str(), r#"kernel.scheduler={"kind":"recorded"}"#];
        let (_, stats) = run_all(&smu_with(&[], &set), vec![(busy(), &[0]), (reader, &[0])]);
        assert_conserved(&stats);
        (stats.values["cycles.io"], stat(&stats, "mapped"))
    };
    let (stalled, mapped) = elapsed("data", reader("data"));
    assert!(mapped > 50 && stalled == mapped * READ, "{stalled} cycles of {mapped} pages");
    let (stalled, mapped) = elapsed("none", reader("data"));
    assert!(mapped == 0 && stalled < 63 * READ / 10, "{stalled} cycles: the other one runs meanwhile");
}

/// The slides' fast mmap is an option of the call: other mappings are the kernel's.
#[test]
fn a_mapping_is_served_if_its_call_asks_for_it() {
    let flag = "system.layers.native.fault_engine.fast_mmap=by-call";
    let ran = |flags: u32, set: &[&str]| {
        let mut script = script(16, MapFlags::SHARED | flags);
        (0..16).for_each(|n| script.load(0, page(n)));
        let (simulation, stats) = run(&smu_with(&[], set), script.finish(), &[0]);
        checked(&simulation, &stats);
        (stat(&stats, "mapped"), stats.values["fault.minor.count"] + stats.values["fault.major.count"] > 1)
    };
    assert_eq!(ran(MapFlags::FAST, &[flag]), (16, false));
    assert_eq!(ran(0, &[flag]), (0, true));
    assert_eq!((ran(0, &[]), ran(MapFlags::FAST, &[])), ((16, false), (16, false)));
}

/// A fast mapping's call descends to each table of level 1, zeroes the tables that are missing, and writes the lines.
#[test]
fn a_call_that_fills_a_table_makes_its_references() {
    const TABLES: u64 = 3;
    let pages = TABLES * 512;
    let config = |fill: &str| {
        let fill = format!("system.layers.native.fault_engine.fill={fill}");
        smu_with(&[], &["engine.kernel_refs=off", &fill])
    };
    let (_, plain) = run(&config("cycles"), script(pages, MapFlags::SHARED).finish(), &[0]);
    let (simulation, stats) = run(&config("references"), script(pages, MapFlags::SHARED).finish(), &[0]);
    checked(&simulation, &stats);
    assert_eq!(stored(&simulation, spaces(&simulation)[0], BASE, pages), pages as usize);
    // The first table's upper levels are missing, too: BASE is the first page of its 512 GiB.
    let built = TABLES + 2;
    assert_eq!((stat(&stats, "fill.entries"), stat(&stats, "fill.tables")), (pages, built));
    // References of 4 cycles: the upper entries that are there, the metadata and the entry of each new table, and the
    // lines of the entries. Zeroing a table writes its 64 lines.
    let upper = 3 * TABLES - built;
    let zeroing = stat(&stats, "fill.cycles") - pages * 12 - 4 * (upper + 2 * built + pages / 8);
    assert!(zeroing > 0 && zeroing.is_multiple_of(built), "{zeroing} cycles of zeroing {built} tables");
    assert_eq!(stat(&plain, "fill.cycles"), 0);
    let kernel = |stats: &Statistics| stats.values["cycles.kernel"];
    assert_eq!(kernel(&stats) - kernel(&plain), stat(&stats, "fill.cycles") - pages * 12);
}

/// When the child of a fork is gone, the unit serves the parent again, and its entries are filled anew. Meanwhile the
/// parent ends.
#[test]
fn a_fill_outlives_the_process_that_it_is_for() {
    const PAGES: u64 = 64 * 512;
    let set = ["fill=references", "after_fork=resume"].map(|key| format!("system.layers.native.fault_engine.{key}"));
    let config = smu_with(&[], &set.each_ref().map(String::as_str));
    for late in (0..10).map(|n| n * 100_000) {
        let mut script = script(PAGES, MapFlags::SHARED);
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        pause(&mut script, child, 6_000_000);
        script.event(child, EventKind::Exit { code: 0 });
        pause(&mut script, 0, 6_000_000 + late);
        script.event(0, EventKind::Exit { code: 0 });
        let (_, stats) = run(&config, script.finish(), &[0, 1]);
        assert!([PAGES, 2 * PAGES].contains(&stat(&stats, "fill.entries")), "{late}");
    }
}

/// A fork gives a file a second mapping: the kernel serves it to both. With `resume` the unit serves the parent again
/// when the child is gone.
#[test]
fn the_child_of_a_fork_works_and_its_parent_is_served_again() {
    let ran = |after: &str, exec: bool| {
        let mut script = script(32, MapFlags::SHARED);
        (0..4).for_each(|n| script.load(0, page(n)));
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        (4..8).for_each(|n| script.store(child, page(n)));
        pause(&mut script, 0, 2_000_000);
        (2..6).for_each(|n| script.store(0, page(n)));
        (8..12).for_each(|n| script.load(0, page(n)));
        let end = EventKind::Exec { path: "other".into() };
        // The child ends when its parent has read these pages, and before it reads others.
        pause(&mut script, child, 6_000_000);
        script.event(child, if exec { end } else { EventKind::Exit { code: 0 } });
        pause(&mut script, 0, 12_000_000);
        (12..20).for_each(|n| script.load(0, page(n)));
        (0..20).for_each(|n| script.store(0, page(n)));
        let after = format!("system.layers.native.fault_engine.after_fork={after}");
        // A file that is named may be forked as well.
        let named = r#"system.layers.native.fault_engine.files=["data"]"#;
        let set = ["kernel.read_ahead_bytes=4KiB", "kernel.fault_around_bytes=4KiB", &after, named];
        let (simulation, stats) = run(&smu_with(&[], &set), script.finish(), &[0, 1]);
        checked(&simulation, &stats);
        let parent = spaces(&simulation)[0];
        let left = stored(&simulation, parent, BASE, 32);
        (["mapped", "resumed"].map(|name| stat(&stats, name)), stats.values["fault.major.count"], left)
    };
    for exec in [false, true] {
        assert_eq!(ran("kernel", exec), ([4, 0], 8 + 8, 0));
        assert_eq!(ran("resume", exec), ([4 + 8, 1], 8, 12));
    }
}

/// A forked child exits while its parent reads pages of their file, so the parent's entries are filled anew. The unit
/// does not read such a page into a second frame.
#[test]
fn the_unit_does_not_read_what_a_fault_is_reading() {
    let set = ["system.layers.native.fault_engine.after_fork=resume"];
    let mut mapped = BTreeSet::new();
    for late in (0..4 * READ).step_by(2_000) {
        let mut script = script(16, MapFlags::SHARED);
        let [parent, child] = [0, 1].map(|process| {
            if process == 1 {
                script.event(0, EventKind::Fork { child: ProcessIx(1) });
            }
            script.thread(process)
        });
        [0, parent, child].into_iter().for_each(|thread| pause(&mut script, thread, 400_000));
        script.store(0, page(3));
        let wait = |cycles| Access { gap: 2 * cycles as u32, ..Access::new(AccessKind::Load, OWN, 8) };
        script.access_of(child, wait(late));
        script.event(child, EventKind::Exit { code: 0 });
        script.access_of(parent, wait(late + 3_000));
        script.load(parent, page(4));
        pause(&mut script, parent, 6_000_000);
        let (simulation, stats) = run(&smu_with(&[], &set), script.finish(), &[0, 1, 2]);
        checked(&simulation, &stats);
        assert_eq!(stat(&stats, "resumed"), 1);
        mapped.insert(stat(&stats, "mapped"));
    }
    assert_eq!(mapped, BTreeSet::from([0, 1]), "the child exits once the pages are chosen, and before");
}
