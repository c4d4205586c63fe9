//! Memory pressure: reclaim, swap and cgroup limits.
//!
//! Comparison of the two lists with exact LRU: for the workloads below, with twice as many pages as fit, they have 1.00
//! to 1.10 times as many major faults (printed with --nocapture).

use pagelab_engine::base::ids::SpaceIx;
use std::collections::{BTreeMap, HashMap};

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::base::error::EngineError;
use pagelab_engine::config::Config;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_trace::quantity::Bytes;
use pagelab_trace::{Batch, EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const SWAP: &str = r#"kernel.swap={"size_bytes":"256MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":32}"#;
const LIMIT: &str = "kernel.cgroup_limit_bytes=16MiB";
const LIMIT_PAGES: usize = 4096;

/// Major faults of exact LRU with this many pages: accesses to pages touched before and evicted.
fn exact_lru(spec: &str, pages: usize) -> u64 {
    let mut source = pagelab_trace::workload::parse(spec, 1).unwrap();
    let mut batch = Batch::default();
    let (mut by_time, mut times) = (BTreeMap::new(), HashMap::new());
    let (mut now, mut faults) = (0_u64, 0);
    while source.next_batch(&mut batch).unwrap() {
        for access in &batch.accesses {
            let page = access.vaddr >> 12;
            now += 1;
            match times.insert(page, now) {
                Some(time) if by_time.remove(&time).is_some() => {}
                Some(_) => faults += 1,
                None => {}
            }
            by_time.insert(now, page);
            if by_time.len() > pages {
                by_time.pop_first();
            }
        }
        batch.clear();
    }
    faults
}

/// Regions of 2 MiB need a page table each, and these come out of memory that pages of the program hold. A region gets
/// one to three pages, so any allocation may be the one that finds no memory.
#[test]
fn page_tables_wait_for_reclaim_too() {
    let mut script = ScriptWriter::new();
    let (regions, pages) = (198, 198 * 2);
    script.mmap(0, BASE, regions << 21);
    for region in 0..regions {
        (0..=region % 3).for_each(|page| script.store(0, BASE + (region << 21) + page * 4096));
    }
    let config = config("radix", &[SWAP, "system.layers.native.memory_bytes=2MiB", "kernel.threads.kswapd=off"]);
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    assert_eq!(stats.values["fault.minor.count"], pages);
    // Memory has 512 frames, and the tables stay.
    let out = stats.values["swap.out.pages"];
    assert!((pages + regions - 512..pages).contains(&out), "{out} of {pages} pages were swapped out");
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
}

#[test]
fn a_program_of_twice_the_memory_runs_to_its_end() {
    for (spec, least, most) in [
        ("zipf:size=32MiB,accesses=300K", 95, 115),
        ("random:size=32MiB,accesses=100K", 95, 115),
        ("seq:size=32MiB,passes=3", 95, 105),
    ] {
        for new_pages in ["active", "inactive"] {
            let config = config("radix", &[SWAP, LIMIT, &format!("kernel.new_pages={new_pages}")]);
            let source = pagelab_trace::workload::parse(spec, 1).unwrap();
            let (simulation, stats) = run(&config, source, &[0]);
            let (major, exact) = (stats.values["fault.major.count"], exact_lru(spec, LIMIT_PAGES));
            println!("{spec}, new pages {new_pages}: {major} major faults, exact LRU {exact}");
            assert!(exact > 1000 && (exact * least..=exact * most).contains(&(100 * major)), "{major} against {exact}");
            assert_eq!(stats.values["swap.in.pages"], major);
            assert!(stats.values["swap.out.pages"] >= major);
            assert!(stats.values["cycles.io"] >= major * 250_000, "each waits for the device");
            assert_conserved(&stats);
            assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
        }
    }
}

fn fails(config: &Config, spec: &str) -> EngineError {
    let source = pagelab_trace::workload::parse(spec, 1).unwrap();
    let mut simulation =
        Simulation::new(config, vec![PlacedSource { source, cpus: vec![0], memory_limit: None }], None).unwrap();
    simulation.run(&mut |_| true).unwrap_err()
}

#[test]
fn memory_without_swap_runs_out() {
    let error = fails(&config("radix", &["machine.memory_bytes=16MiB"]), "seq:size=32MiB").to_string();
    assert!(error.contains("layer `native` has no frame left of its 16MiB"), "{error}");
    assert!(error.contains("page metadata 256KiB") && error.contains("no swap device"), "{error}");
    let small = SWAP.replace("256MiB", "1MiB");
    let error = fails(&config("radix", &[&small, "machine.memory_bytes=16MiB"]), "seq:size=32MiB").to_string();
    assert!(error.contains("1MiB are swapped out and 0B of swap are left"), "{error}");
}

/// Later accesses wait for earlier reads: events are barriers for all threads.
fn one_by_one(script: &mut ScriptWriter) {
    script.mmap(0, BASE + (1 << 40), 4096);
}

#[test]
fn swapped_pages_follow_their_mappings() {
    let config = config("radix", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]);
    let mut script = ScriptWriter::new();
    let page = |n: u64| BASE + n * 4096;
    script.mmap(0, BASE, 0x1000_0000);
    (0..600).for_each(|n| script.store(0, page(n))); // 256 of them fit
    // The first pages are on the device: they are moved, inherited, and dropped.
    script.event(0, EventKind::Mremap { old_addr: page(0), old_len: 0x8000, new_addr: page(4096), new_len: 0x8000 });
    script.load(0, page(4096));
    script.event(0, EventKind::Munmap { addr: page(10), len: 0x8000 });
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    script.load(child, page(20));
    one_by_one(&mut script);
    script.load(0, page(20));
    script.event(child, EventKind::Exit { code: 0 });
    script.event(0, EventKind::Exit { code: 0 });
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    assert_eq!(stats.values["fault.major.count"], 2, "one in the new place, one of the child");
    assert_eq!(stats.values["fault.minor.count"], 601, "the parent finds what the child has read back");
    let swap = simulation.kernels.os.layers[0].memory.reclaim.as_ref().unwrap().swap.as_ref().unwrap();
    assert_eq!((swap.in_use().count(), swap.used_slots()), (0, 0));
    assert_conserved(&stats);
}

#[test]
fn shared_memory_is_not_reclaimed() {
    let config = config("radix", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]);
    let mut script = ScriptWriter::new();
    let page = |n: u64| BASE + n * 4096;
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS));
    script.event(0, EventKind::Mmap { addr: page(0), len: 0x6_4000, prot, flags, file: None, file_offset: 0 });
    script.mmap(0, page(1024), 0x100_0000);
    (0..100).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Mremap { old_addr: page(0), old_len: 0x6_4000, new_addr: page(512), new_len: 0x6_4000 });
    for _ in 0..2 {
        (0..600).for_each(|n| script.store(0, page(1024 + n)));
        (0..100).for_each(|n| script.load(0, page(512 + n)));
    }
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    assert_eq!(stats.values["fault.minor.count"], 700);
    assert!(stats.values["fault.major.count"] >= 400);
    assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
}

const STORAGE: &str = r#"kernel.storage={"read_cycles":300000,"write_cycles":70000,"queue_depth":8}"#;

fn map_file(script: &mut ScriptWriter, pages: u64, flags: u32) {
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(flags));
    let kind =
        EventKind::Mmap { addr: BASE, len: pages * 4096, prot, flags, file: Some("data".into()), file_offset: 0 };
    script.event(0, kind);
}

fn page(n: u64) -> u64 {
    BASE + n * 4096
}

#[test]
fn files_that_are_not_in_memory_are_read_in_windows() {
    let mut script = ScriptWriter::new();
    map_file(&mut script, 96, MapFlags::PRIVATE);
    (0..96).for_each(|n| script.load(0, page(n)));
    let config = config("radix", &[STORAGE, "kernel.page_cache=cold"]);
    let (_, stats) = run(&config, script.finish(), &[0]);
    // Page 0 reads 0 to 31; page 32 finds itself missing and reads 16 to 47, page 48 reads 32 to 63, and so on. Each
    // fault maps the 16 pages of its window.
    assert_eq!(stats.values["fault.major.count"], 5);
    assert_eq!(stats.values["fault.minor.count"], 1, "page 16 was read with page 0");
    assert_eq!(stats.values["cycles.io"], 5 * 300_000);
    assert_conserved(&stats);
}

#[test]
fn advice_changes_what_is_read() {
    for (advice, major) in [(1, 64), (2, 2)] {
        let mut script = ScriptWriter::new();
        map_file(&mut script, 64, MapFlags::PRIVATE);
        script.event(0, EventKind::Madvise { addr: BASE, len: 64 * 4096, advice });
        (0..64).for_each(|n| script.load(0, page(n)));
        let config = config("radix", &[STORAGE, "kernel.page_cache=cold"]);
        let (_, stats) = run(&config, script.finish(), &[0]);
        assert_eq!(stats.values["fault.major.count"], major, "advice {advice}");
    }
}

#[test]
fn only_dirty_pages_of_files_are_written_at_reclaim() {
    for (store, flags) in [(true, MapFlags::SHARED), (false, MapFlags::SHARED), (false, MapFlags::PRIVATE)] {
        let mut script = ScriptWriter::new();
        map_file(&mut script, 1024, flags);
        for n in (0..1024).chain(0..1024) {
            if store { script.store(0, page(n)) } else { script.load(0, page(n)) }
        }
        script.event(0, EventKind::Exit { code: 0 });
        let config = config("radix", &[STORAGE, "kernel.cgroup_limit_bytes=1MiB"]);
        let (simulation, stats) = run(&config, script.finish(), &[0]);
        let dropped = stats.values["reclaim.files.dropped"];
        assert!(dropped > 1024, "{dropped}");
        assert_eq!(stats.values["reclaim.files.written"], if store { dropped } else { 0 });
        assert!(stats.values["fault.major.count"] > 0);
        assert_frames_conserved(&simulation, &[]);
        assert_conserved(&stats);
    }
}

const DRIVE: &str = r#"kernel.storage={"model":"drive","queue_depth":32,"controller_ns":1000,"block_ns":500,"units":16,"read_ns":60000,"write_ns":10000,"program_ns":200000,"buffer_blocks":64}"#;

#[test]
fn pages_of_a_window_are_read_together_from_the_blocks_that_hold_them() {
    let mut script = ScriptWriter::new();
    map_file(&mut script, 96, MapFlags::PRIVATE);
    (0..96).for_each(|n| script.load(0, page(n)));
    let (_, stats) = run(&config("radix", &[DRIVE, "kernel.page_cache=cold"]), script.finish(), &[0]);
    // The blocks of the five windows that are not in memory: 0 to 31, 32 to 47, 48 to 63, 64 to 79, 80 to 95.
    let of_drive = |name: &str| stats.values[&format!("layer.native.storage.{name}")];
    assert_eq!((of_drive("reads"), of_drive("reads.blocks")), (5, 96));
}

#[test]
fn failed_device_requests_are_repeated() {
    let outcome = |errors: u32| {
        let mut script = ScriptWriter::new();
        map_file(&mut script, 1024, MapFlags::SHARED);
        (0..1024).chain(0..1024).for_each(|n| script.store(0, page(n)));
        let errors = format!("kernel.storage.errors_per_million={errors}");
        let set = [DRIVE, &errors, "kernel.cgroup_limit_bytes=1MiB", "kernel.threads.kswapd=off"];
        let (_, stats) = run(&config("radix", &set), script.finish(), &[0]);
        assert_conserved(&stats);
        let value = |name: &str| stats.values[name];
        let requests = value("layer.native.storage.requests");
        (value("fault.major.count"), value("reclaim.files.written"), requests, value("layer.native.storage.errors"))
    };
    let ((majors, written, requests, none), with) = (outcome(0), outcome(300_000));
    assert_eq!(none, 0);
    assert!(with.3 > 100, "{with:?}");
    assert_eq!(
        (with.0, with.1, with.2 - with.3),
        (majors, written, requests),
        "each request that failed was made again"
    );
}

#[test]
fn files_that_the_device_has_no_room_for_are_refused() {
    for (drives, each, held, allowed) in
        [(1, "2MiB", "2MiB", "at least 4MiB, or"), (2, "1536KiB", "3MiB", "at least 2MiB of each drive")]
    {
        let mut script = ScriptWriter::new();
        map_file(&mut script, 1024, MapFlags::SHARED);
        let drives = format!("kernel.storage.drives={drives}");
        let config = config("radix", &[DRIVE, &drives, &format!("kernel.storage.capacity_bytes={each}")]);
        let placed = PlacedSource { source: script.finish(), cpus: vec![0], memory_limit: None };
        let mut simulation = Simulation::new(&config, vec![placed], None).expect("it can begin");
        let error = simulation.run(&mut |_| true).unwrap_err().to_string();
        for part in ["kernel.storage.capacity_bytes", held, "take 4MiB", "`data`", allowed] {
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }
}

#[test]
fn a_page_that_was_inherited_is_swapped_once_and_read_back_once() {
    let config = config("radix", &[SWAP, "kernel.cgroup_limit_bytes=1MiB", r#"kernel.scheduler={"kind":"recorded"}"#]);
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x1000_0000);
    (0..10).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    (1000..1600).for_each(|n| script.store(0, page(n)));
    // All ten were evicted. The child reads one back, and the parent finds it in memory; a store copies it, and its
    // last user may write to it.
    one_by_one(&mut script);
    script.load(child, page(3));
    one_by_one(&mut script);
    script.load(0, page(3));
    script.store(child, page(3));
    script.store(0, page(3));
    // A store to a page on the device gets a copy of its own.
    script.store(0, page(4));
    one_by_one(&mut script);
    script.load(child, page(4));
    script.store(child, page(4));
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    assert_eq!(stats.values["fault.major.count"], 3, "page 3 once, page 4 for each");
    assert_eq!(stats.values["fault.minor.count"], 10 + 600 + 1 + 1 + 1);
    assert_eq!(stats.values["fault.copy.count"], 1);
    assert_eq!(stats.values["fault.reuse.count"], 1);
    let live: Vec<_> = simulation.programs.inputs[0].spaces().collect();
    assert_frames_conserved(&simulation, &live);
}

#[test]
fn pages_given_up_are_dropped_unless_they_are_written() {
    let config = config("radix", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]);
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x1000_0000);
    (0..100).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Madvise { addr: BASE, len: 100 * 4096, advice: 8 });
    (0..10).for_each(|n| script.store(0, page(n)));
    (1000..1200).for_each(|n| script.store(0, page(n)));
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    // 300 pages, of which 256 fit; the ninety lazily freed ones go before any other.
    assert_eq!(stats.values["swap.out.pages"], 0);
    assert!((44..=90).contains(&stats.values["reclaim.freed_lazily"]));
    assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
}

#[test]
fn large_pages_are_swapped_out_whole_and_read_back_in_parts() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 << 20);
    let large = |n: u64| BASE + (n << 21);
    (0..10).for_each(|n| script.store(0, large(n)));
    script.store(0, large(0) + 5 * 4096);
    script.event(0, EventKind::Exit { code: 0 });
    let config = config("radix-2m", &[SWAP, "kernel.cgroup_limit_bytes=10MiB"]);
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    assert_eq!(stats.values["swap.out.pages"] % 512, 0);
    assert!(stats.values["swap.out.pages"] >= 5 * 512);
    assert_eq!((stats.values["fault.major.count"], stats.values["swap.in.pages"]), (1, 1));
    assert_frames_conserved(&simulation, &[]);
}

#[test]
fn kswapd_reclaims_before_faults_must() {
    let set = [SWAP, "machine.memory_bytes=64MiB"];
    let major = |kswapd: &str| {
        let config = config("radix", &[&set[..], &[&format!("kernel.threads.kswapd={kswapd}")]].concat());
        let source = pagelab_trace::workload::parse("stride:size=96MiB,stride=4KiB,passes=3", 1).unwrap();
        let (simulation, stats) = run(&config, source, &[0]);
        assert_conserved(&stats);
        assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
        stats
    };
    let (with, without) = (major("on"), major("off"));
    assert_eq!((with.values["cpus"], without.values["cpus"]), (1, 1), "its own CPU does not count");
    assert!(with.values["kthread.runs"] > 0 && with.values["kthread.cycles"] > 0);
    assert_eq!((without.values["kthread.runs"], without.values["kthread.cycles"]), (0, 0));
    // Faults need not scan pages that it scans.
    let allocation =
        |stats: &pagelab_engine::observe::statistics::Statistics| stats.values["fault.stage.allocation.cycles"];
    assert!(allocation(&without) > allocation(&with) + with.values["kthread.cycles"] / 2);
    assert!(with.values["swap.out.pages"] > 5000);
}

#[test]
fn kswapd_interrupts_a_program_that_has_the_only_cpu() {
    let set = [SWAP, "machine.memory_bytes=64MiB", "machine.cores=1", "machine.threads_per_core=1"];
    let source = pagelab_trace::workload::parse("stride:size=96MiB,stride=4KiB,passes=3", 1).unwrap();
    let (_, stats) = run(&config("radix", &set), source, &[0]);
    assert_eq!(stats.values["cpus"], 1);
    assert!(stats.values["kthread.runs"] > 0 && stats.values["swap.out.pages"] > 5000);
    assert_conserved(&stats);
}

#[test]
fn a_source_with_its_own_limit_reclaims_its_own_pages() {
    let config = config("radix", &[SWAP]);
    let source = |spec| pagelab_trace::workload::parse(spec, 1).unwrap();
    let small = "seq:size=16MiB,passes=2";
    let placed = |limit: Option<u64>, cpu| PlacedSource {
        source: source(small),
        cpus: vec![cpu],
        memory_limit: limit.map(Bytes),
    };
    for cpus in [[0, 0], [0, 1]] {
        let sources = vec![placed(Some(4 << 20), cpus[0]), placed(None, cpus[1])];
        let mut simulation = Simulation::new(&config, sources, None).unwrap();
        simulation.run(&mut |_| true).unwrap();
        let stats = simulation.statistics();
        let pages = (16 << 20) / 4096;
        assert_eq!(stats.values["cgroup.source.0.peak_bytes"], 4 << 20);
        assert_eq!(stats.values["source.0.fault.major.count"], pages, "in sequence, none of its pages is there again");
        assert_eq!(stats.values["source.1.fault.major.count"], 0, "the other has all memory that there is");
        assert!(stats.values["cgroup.source.0.limit_scans"] >= (2 * pages - 1024) / 32);
        assert!(!stats.values.contains_key("cgroup.source.1.peak_bytes"));
        assert_conserved(&stats);
        let spaces: Vec<_> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
        assert_frames_conserved(&simulation, &spaces);
    }
}

#[test]
fn impossible_limits_are_errors() {
    let spec = |set: &[&str], limit: u64| {
        let source = pagelab_trace::workload::parse("seq:size=16MiB", 1).unwrap();
        let placed = PlacedSource { source, cpus: vec![0], memory_limit: Some(Bytes(limit)) };
        Simulation::new(&config("radix", set), vec![placed], None)
            .and_then(|mut simulation| simulation.run(&mut |_| true))
    };
    let error = spec(&[SWAP], 4096).unwrap_err().to_string();
    assert!(error.contains("memory_limit of source.0: 4096 bytes are too few"), "{error}");
    let error = spec(&[], 4 << 20).unwrap_err().to_string();
    assert!(error.contains("a limit needs a swap device"), "{error}");
    // There is memory, but pages beyond the limit have nowhere to go.
    let small = SWAP.replace("256MiB", "1MiB");
    let error = spec(&[&small], 4 << 20).unwrap_err().to_string();
    assert!(error.contains("use all of the 4MiB that their cgroup allows") && error.contains("0B of swap"), "{error}");
    assert!(error.contains("memory_limit of source.0"), "{error}");
    let error = fails(&config("radix", &[&small, LIMIT]), "seq:size=32MiB").to_string();
    assert!(error.contains("use all of the 16MiB") && error.contains("kernel.cgroup_limit_bytes"), "{error}");
}

/// The flags of a page: writable, dirty.
fn flags_of(simulation: &Simulation, space: SpaceIx, addr: u64) -> Option<(bool, bool)> {
    let mapped = simulation.kernels.os.layers[0].mapped(space, VirtAddr(addr), VirtAddr(addr + 4096));
    mapped.first().map(|at| (at.mapping.flags.writable, at.mapping.flags.dirty))
}

#[test]
fn a_page_that_is_read_back_for_several_is_clean_and_read_only() {
    let config = config("radix", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]);
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x1000_0000);
    (0..10).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    script.store(0, page(500));
    (1000..1600).for_each(|n| script.store(0, page(n)));
    one_by_one(&mut script);
    script.load(child, page(3));
    script.load(child, page(4));
    one_by_one(&mut script);
    script.load(0, page(4));
    script.load(0, page(500));
    let (simulation, _) = run(&config, script.finish(), &[0]);
    let spaces: Vec<SpaceIx> = simulation.programs.inputs[0].spaces().map(|space| space.index).collect();
    assert_eq!(flags_of(&simulation, spaces[1], page(3)), Some((false, false)), "the parent has it too");
    assert_eq!(flags_of(&simulation, spaces[0], page(3)), None, "the parent has not asked for it yet");
    assert_eq!(flags_of(&simulation, spaces[0], page(4)), Some((false, false)), "the child has it too");
    assert_eq!(flags_of(&simulation, spaces[0], page(500)), Some((true, true)), "a page of one's own");
}

#[test]
fn the_zero_page_is_mapped_clean_and_read_only() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 0x2000);
    script.load(0, page(0));
    script.store(0, page(1));
    let (simulation, stats) = run(&config("radix", &[]), script.finish(), &[0]);
    assert_eq!(stats.values["fault.zero_page.count"], 1);
    assert_eq!(flags_of(&simulation, SpaceIx(1), page(0)), Some((false, false)));
    assert_eq!(flags_of(&simulation, SpaceIx(1), page(1)), Some((true, true)));
}

#[test]
fn pages_around_a_fault_spare_those_that_were_swapped_out() {
    let config = config("radix", &[SWAP, "kernel.cgroup_limit_bytes=1MiB"]);
    let mut script = ScriptWriter::new();
    map_file(&mut script, 16, MapFlags::PRIVATE);
    script.mmap(0, page(1024), 0x100_0000);
    // A private copy of a file page is evicted. The neighbour's fault maps all resident pages of the file, but not this
    // one.
    script.store(0, page(3));
    (1024..1624).for_each(|n| script.store(0, page(n)));
    script.load(0, page(4));
    let around = 14;
    script.load(0, page(3));
    let (simulation, stats) = run(&config, script.finish(), &[0]);
    assert_eq!(stats.values["fault.around.pages"], around);
    assert_eq!((stats.values["fault.major.count"], stats.values["swap.in.pages"]), (1, 1), "the copy comes back");
    assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
}

/// Tiny TLBs: every use is a walk.
fn small_tlbs() -> [String; 2] {
    ["l1d", "l2"].map(|level| format!(r#"machine.tlb.{level}=[{{"pages":["4K"],"entries":4,"ways":4}}]"#))
}

#[test]
fn a_page_in_use_stays_with_any_kind_of_walk() {
    let [l1, l2] = small_tlbs();
    for system in ["radix", "nested-radix", "nested-radix-shadow"] {
        for used in [false, true] {
            let mut script = ScriptWriter::new();
            script.mmap(0, BASE, 0x1000_0000);
            // 256 pages fit. All were accessed when the first eviction happens: their bits are cleared, and the oldest
            // are evicted. When the scan reaches page 100, it has been used again, or not.
            for n in 0..600 {
                script.store(0, page(n));
                if used && n > 100 && n % 8 == 0 {
                    script.load(0, page(100));
                }
            }
            script.load(0, page(100));
            let set = [SWAP, "kernel.cgroup_limit_bytes=1MiB", "kernel.new_pages=inactive", &l1, &l2];
            let (_, stats) = run(&config(system, &set), script.finish(), &[0]);
            assert!(stats.values["swap.out.pages"] >= 600 - 256);
            let found = (stats.values["reclaim.activated"], stats.values["fault.major.count"]);
            assert_eq!(found, if used { (1, 0) } else { (0, 1) }, "{system}, used: {used}");
        }
    }
}

#[test]
fn a_page_of_a_file_that_two_scans_find_in_use_is_active() {
    let [l1, l2] = small_tlbs();
    // The number of uses of the first page while 2000 others are read once each; 256 fit.
    for (every, activated) in [(4000, 0), (32, 1)] {
        let mut script = ScriptWriter::new();
        map_file(&mut script, 4096, MapFlags::SHARED);
        script.store(0, page(0));
        for n in 1..=2000 {
            script.store(0, page(n));
            if n % every == 0 {
                script.load(0, page(0));
            }
        }
        let config = config("radix", &[STORAGE, "kernel.cgroup_limit_bytes=1MiB", &l1, &l2]);
        let (_, stats) = run(&config, script.finish(), &[0]);
        assert!(stats.values["reclaim.files.dropped"] >= 2000 - 256);
        assert_eq!(stats.values["reclaim.activated"], activated, "used every {every} pages");
    }
}

#[test]
fn a_load_of_a_page_that_is_given_up_leaves_it_clean_and_a_store_after_it_does_not() {
    const MADV_FREE: u32 = 8;
    for system in ["radix", "nested-radix-shadow"] {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 0x3000);
        (0..3).for_each(|n| script.store(0, page(n)));
        script.event(0, EventKind::Madvise { addr: BASE, len: 0x3000, advice: MADV_FREE });
        script.load(0, page(0));
        script.store(0, page(1));
        // The entry that the load put into the TLB, or into a shadow table, does not allow the store.
        script.load(0, page(2));
        script.store(0, page(2));
        let (simulation, _) = run(&config(system, &[SWAP]), script.finish(), &[0]);
        let pages = simulation.kernels.os.layers[0].mapped(SpaceIx(1), VirtAddr(BASE), VirtAddr(BASE + 0x3000));
        let flags = pages.iter().map(|page| (page.mapping.flags.accessed, page.mapping.flags.dirty));
        let expected = [(true, false), (true, true), (true, true)];
        assert_eq!(flags.collect::<Vec<_>>(), expected, "{system}: loaded, stored to, and both");
    }
}

const WARM: u64 = 50;
const COLD: u64 = 1950;

/// Major faults of a program that reuses the first pages of a file frequently while it reads the others once.
fn majors_beside_warm(advice: Option<u32>, set: &[&str]) -> u64 {
    let pages = WARM + COLD;
    let mut script = ScriptWriter::new();
    map_file(&mut script, pages, MapFlags::SHARED);
    if let Some(advice) = advice {
        script.event(0, EventKind::Madvise { addr: BASE, len: pages * 4096, advice });
    }
    for n in WARM..pages {
        script.load(0, page(n % WARM));
        script.load(0, page(n));
    }
    let common = [STORAGE, "kernel.page_cache=cold", "kernel.cgroup_limit_bytes=1MiB", "kernel.read_ahead_bytes=4KiB"];
    run(&config("radix", &[&common[..], set].concat()), script.finish(), &[0]).1.values["fault.major.count"]
}

/// Frequently used pages stay in memory, except those of a mapping with random-access advice in kernels that ignore
/// accesses to it.
#[test]
fn accesses_under_order_advice_count_as_configured() {
    // A TLB hit does not set the accessed bit.
    let majors = |advice, kernel| majors_beside_warm(advice, &["machine.tlb.l2=[]", kernel]);
    let heeds = "kernel.advised_recency=on";
    let does_not = "kernel.advised_recency=off";
    let once = WARM + COLD;
    for (advice, kernel) in [(None, heeds), (None, does_not), (Some(1), heeds)] {
        assert!(majors(advice, kernel) < once + 2 * WARM, "{advice:?} with {kernel}: {}", majors(advice, kernel));
    }
    // In order of arrival: each warm page is evicted once per 256 arriving pages.
    for (advice, kernel) in [(1, does_not), (2, does_not), (2, heeds)] {
        let more = majors(Some(advice), kernel) - once;
        assert!((300..500).contains(&more), "{advice}: {more} of {WARM} pages, 1950 / 256 times");
    }
}

/// A TLB that keeps translations after a scan has cleared their accessed bits hides that the pages are in use.
#[test]
fn a_scan_that_flushes_the_space_sees_what_is_in_use() {
    let once = WARM + COLD;
    let [pages, space] =
        ["pages", "space"].map(|flush| majors_beside_warm(None, &[&format!("kernel.reclaim_flush={flush}")]) - once);
    assert!(pages > 4 * WARM, "{pages}: they leave although they are in use");
    assert!(space < 2 * WARM, "{space}");
}

#[test]
fn a_reclaimed_file_page_is_read_even_if_the_cache_started_warm() {
    const MADV_RANDOM: u32 = 1;
    let pages = 200;
    let mut script = ScriptWriter::new();
    map_file(&mut script, pages, MapFlags::PRIVATE);
    script.event(0, EventKind::Madvise { addr: BASE, len: pages * 4096, advice: MADV_RANDOM });
    (0..pages).for_each(|n| script.load(0, page(n)));
    script.mmap(0, page(1024), 600 * 4096);
    (1024..1624).for_each(|n| script.store(0, page(n)));
    // There is room again, so a page that was not evicted would be present.
    script.event(0, EventKind::Munmap { addr: page(1024), len: 600 * 4096 });
    (0..pages).for_each(|n| script.load(0, page(n)));
    let set = [SWAP, STORAGE, "kernel.cgroup_limit_bytes=1MiB", "kernel.fault_around_bytes=4096"];
    let (_, stats) = run(&config("radix", &set), script.finish(), &[0]);
    let dropped = stats.values["reclaim.files.dropped"];
    assert!(dropped > 0);
    assert_eq!((stats.values["fault.minor.count"], stats.values["fault.major.count"]), (pages + 600, dropped));
    assert_eq!(stats.values["swap.in.pages"], 0);
}
