//! Pages of more than 4 KiB: large pages in forks, folios, explicit sizes, and khugepaged.

use crate::common::{ScriptWriter, checked, frames_from};
use pagelab_engine::base::ids::SpaceIx;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const LARGE: u64 = 2 << 20;
/// One page after a multiple of 2 MiB.
const HEAP: u64 = 0x5555_0000_1000;
const ALIGNED: &str = "system.layers.native.brk_alignment_bytes=2MiB";

fn page(n: u64) -> u64 {
    BASE + n * 4096
}

fn map(script: &mut ScriptWriter, len: u64, flags: u32) {
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(flags | MapFlags::PRIVATE | MapFlags::ANONYMOUS));
    script.event(0, EventKind::Mmap { addr: BASE, len, prot, flags, file: None, file_offset: 0 });
}

#[test]
fn a_child_shares_large_pages_until_it_writes_and_then_splits_its_own() {
    for system in ["radix-2m", "hashed-open-2m", "hashed-compact-thp", "hashed-chained-thp", "elastic-cuckoo-thp"] {
        share_and_split(system);
    }
}

fn share_and_split(system: &str) {
    let mut script = ScriptWriter::new();
    map(&mut script, 4 * LARGE, 0);
    (0..3).for_each(|n| script.store(0, BASE + n * LARGE));
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    script.load(child, BASE + 8);
    // The child's page is split, one part copied; the parent's page stays whole, but is shared except for that part.
    script.store(child, BASE);
    script.store(0, page(1));
    // After the child's exit, the parent owns its second page alone.
    script.event(child, EventKind::Exit { code: 0 });
    script.store(0, BASE + LARGE);
    let (_, stats) = checked(system, &[], script);
    assert_eq!(stats.values["fork.pages"], 3, "{system}");
    assert_eq!(stats.values["fault.split.count"], 2, "the child's first page, then the parent's");
    assert_eq!(stats.values["fault.copy.count"], 2);
    assert_eq!(stats.values["fault.reuse.count"], 1);
    assert_eq!(stats.values["fault.minor.count"], 3 + 3);
    assert_eq!(stats.values["layer.native.pages.2M"], 3 + 1);
    assert_eq!(stats.values["layer.native.pages.4K"], 2);
}

/// A heap that grows by 132 KiB, as with glibc's malloc, and is touched as it grows.
fn growing_heap(bytes: u64) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    for end in (1..).map(|n| n * (132 << 10)).take_while(|&end| end <= bytes) {
        script.event(0, EventKind::Brk { start: HEAP, end: HEAP + end });
        (end - (132 << 10)..end).step_by(4096).for_each(|at| script.store(0, HEAP + at));
    }
    script
}

#[test]
fn a_heap_gets_large_pages_where_it_grows_by_whole_ones() {
    let sizes = |stats: &Statistics| ["2M", "4K"].map(|size| stats.values[&format!("layer.native.pages.{size}")]);
    let (_, stats) = checked("radix-thp", &[], growing_heap(8 << 20));
    assert_eq!(sizes(&stats), [0, 62 * 33], "62 steps of 33 pages");
    assert!(!stats.values.contains_key("layer.native.brk.aligned"));

    // It begins one page after a multiple of 2 MiB, so its first part gets no large page.
    let (simulation, stats) = checked("radix-thp", &[ALIGNED], growing_heap(8 << 20));
    assert_eq!(sizes(&stats), [3, 511]);
    assert_eq!(stats.values["layer.native.brk.aligned"], 61, "all but the step that ends at 4 MiB itself");
    assert_eq!(stats.values["layer.native.brk.refused"], 0);
    let space = simulation.programs.inputs[0].spaces().next().unwrap();
    let vmas = &simulation.kernels.os.layers[space.layer].spaces[space.index].vmas;
    assert_eq!(vmas.iter().last().unwrap().end.0, HEAP - 4096 + (8 << 20));

    // Whole pages of 2 MiB are freed, and none is split.
    let mut script = growing_heap(8 << 20);
    script.event(0, EventKind::Brk { start: HEAP, end: HEAP + LARGE });
    let (_, stats) = checked("radix-thp", &[ALIGNED], script);
    assert_eq!((stats.values["mapping.pages_unmapped"], stats.values["fault.split.count"]), (2, 0));
}

#[test]
fn a_heap_that_has_no_room_for_a_step_ends_where_the_trace_says() {
    let neighbour = HEAP - 4096 + 3 * LARGE;
    let mut script = ScriptWriter::new();
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::PRIVATE | MapFlags::ANONYMOUS));
    script.event(0, EventKind::Mmap { addr: neighbour, len: 4096, prot, flags, file: None, file_offset: 0 });
    script.event(0, EventKind::Brk { start: HEAP, end: HEAP + LARGE + (132 << 10) });
    script.event(0, EventKind::Brk { start: HEAP, end: HEAP + 2 * LARGE + (132 << 10) });
    // brk(2) keeps a free page below the next mapping, so the last step is refused.
    [HEAP + LARGE, HEAP + 2 * LARGE, neighbour].into_iter().for_each(|at| script.store(0, at));
    let (_, stats) = checked("radix-thp", &[ALIGNED], script);
    assert_eq!((stats.values["layer.native.brk.aligned"], stats.values["layer.native.brk.refused"]), (1, 1));
    assert_eq!((stats.values["layer.native.pages.2M"], stats.values["layer.native.pages.4K"]), (1, 2));
}

#[test]
fn explicit_pages_have_the_size_they_ask_for_and_are_copied_whole() {
    for (size_bits, size, pages) in [(21_u32, "2M", 2), (0, "2M", 2), (30, "1G", 1)] {
        let mut script = ScriptWriter::new();
        map(&mut script, 1 << 30, MapFlags::HUGETLB | size_bits << 26);
        script.store(0, BASE);
        script.store(0, BASE + 5 * LARGE);
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        script.store(child, BASE + 4096);
        let (_, stats) =
            checked("radix-1g", &["machine.memory_bytes=4GiB", "system.layers.native.page_size=4K", MAX_ORDER], script);
        assert_eq!(stats.values[&format!("layer.native.pages.{size}")], pages + 1, "{size_bits}");
        assert_eq!((stats.values["fault.copy.count"], stats.values["fault.split.count"]), (1, 0));
    }
}

const MAX_ORDER: &str = r#"system.layers.native.frame_allocator={"kind":"linux","max_order":18}"#;

#[test]
fn folios_are_as_large_as_their_place_allows() {
    let folios = r#"system.layers.native.folios=["16KiB","64KiB"]"#;
    let mut script = ScriptWriter::new();
    // 64 KiB, then 32 more: one folio of 64 and two of 16.
    map(&mut script, 96 << 10, 0);
    (0..24).for_each(|n| script.store(0, page(n)));
    let (_, stats) = checked("radix", &[folios], script);
    assert_eq!(stats.values["fault.minor.count"], 3);
    assert_eq!((stats.values["layer.native.folios.64K"], stats.values["layer.native.folios.16K"]), (1, 2));
    assert_eq!(stats.values["layer.native.pages.4K"], 24);

    // A mapped page leaves no room for a folio (here the zero page, which the store replaces).
    let mut script = ScriptWriter::new();
    map(&mut script, 64 << 10, 0);
    script.load(0, page(3));
    (0..16).for_each(|n| script.store(0, page(n)));
    let (_, stats) = checked("radix", &[folios], script);
    assert_eq!(stats.values["fault.minor.count"], 1 + 4 + 3, "the first four one by one, then three folios of 16 KiB");
    assert_eq!((stats.values["layer.native.folios.64K"], stats.values["layer.native.folios.16K"]), (0, 3));
}

#[test]
fn folios_follow_advice_and_give_way_to_large_pages() {
    let folios = r#"system.layers.native.folios=["64KiB"]"#;
    let only_advised = "system.layers.native.large_pages=madvise";
    for (advice, faults) in [(None, 32), (Some(14), 2)] {
        let mut script = ScriptWriter::new();
        map(&mut script, 128 << 10, 0);
        if let Some(advice) = advice {
            script.event(0, EventKind::Madvise { addr: BASE, len: 128 << 10, advice });
        }
        (0..32).for_each(|n| script.store(0, page(n)));
        let (_, stats) = checked("radix", &[folios, only_advised], script);
        assert_eq!(stats.values["fault.minor.count"], faults);
    }
    let mut script = ScriptWriter::new();
    map(&mut script, LARGE + (128 << 10), 0);
    (0..512 + 32).for_each(|n| script.store(0, page(n)));
    let (_, stats) = checked("radix-2m", &[folios], script);
    assert_eq!(stats.values["fault.minor.count"], 1 + 2);
}

#[test]
fn khugepaged_collapses_the_only_pages_below_their_upper_tables() {
    let khugepaged = r#"kernel.threads.khugepaged={"scan_sleep_cycles":2000,"pages_to_scan":4096,"max_ptes_none":511}"#;
    let mut script = ScriptWriter::new();
    map(&mut script, 4096, 0);
    script.store(0, page(0));
    let rest = EventKind::Mmap {
        addr: page(1),
        len: LARGE - 4096,
        prot: Protection::READ_WRITE,
        flags: MapFlags::anonymous_private(),
        file: None,
        file_offset: 0,
    };
    script.event(0, rest);
    // Time passes in another mapping, with its own tables.
    let other = 0x10_0000_0000;
    script.mmap(0, other, LARGE);
    (0..200_000).for_each(|n| script.load(0, other + n * 7 % 512 * 4096));
    let (_, stats) = checked("radix-2m", &[khugepaged], script);
    assert_eq!((stats.values["khugepaged.collapsed"], stats.values["fault.minor.count"]), (1, 2));
}

#[test]
fn khugepaged_collapses_small_pages_mapped_by_faults() {
    let often = |none: u32| {
        format!(
            r#"kernel.threads.khugepaged={{"scan_sleep_cycles":200000,"pages_to_scan":4096,"max_ptes_none":{none}}}"#
        )
    };
    for (none, collapsed) in [(511, 2), (300, 1)] {
        let mut script = ScriptWriter::new();
        // Four mappings that grow page by page: a fault never has room for a large page.
        for n in 0..512 + 100 {
            let (prot, flags) = (Protection::READ_WRITE, MapFlags::anonymous_private());
            script.event(0, EventKind::Mmap { addr: page(n), len: 4096, prot, flags, file: None, file_offset: 0 });
            script.store(0, page(n));
        }
        // The second range is complete, with a hundred of its 512 pages mapped.
        let (prot, flags) = (Protection::READ_WRITE, MapFlags::anonymous_private());
        let rest = EventKind::Mmap { addr: page(612), len: 412 * 4096, prot, flags, file: None, file_offset: 0 };
        script.event(0, rest);
        for n in 0..200_000 {
            script.load(0, page(n * 7 % 612));
        }
        let (simulation, stats) = checked("radix-2m", &[&often(none)], script);
        assert_eq!(stats.values["khugepaged.collapsed"], collapsed, "up to {none} missing");
        assert_eq!(stats.values["fault.minor.count"], 612);
        assert!(stats.values["kthread.cycles"] > 100_000);
        let pages = simulation.kernels.os.layers[0].mapped(
            SpaceIx(1),
            pagelab_engine::base::addr::VirtAddr(BASE),
            pagelab_engine::base::addr::VirtAddr(page(1024)),
        );
        assert_eq!(pages.len() as u64, if none == 511 { 2 } else { 1 + 100 });
    }
}

#[test]
fn pages_of_files_come_in_folios_where_they_fit() {
    let storage = r#"kernel.storage={"read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
    let folios = r#"system.layers.native.file_folios=["16KiB","64KiB"]"#;
    let system = |set: &[&'static str]| {
        let mut script = ScriptWriter::new();
        let file = Some("data".into());
        // 70 pages from page 2 of the file on: it has whole folios of 64 KiB from page 16 to 63.
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::PRIVATE));
        script.event(0, EventKind::Mmap { addr: BASE, len: 70 * 4096, prot, flags, file, file_offset: 2 * 4096 });
        (0..70).rev().for_each(|n| script.load(0, page(n)));
        checked("radix", set, script)
    };
    let (simulation, stats) = system(&[folios]);
    assert_eq!((stats.values["layer.native.file_folios.64K"], stats.values["layer.native.file_folios.16K"]), (3, 5));
    let frames_of = frames_from(&simulation, BASE, 70);
    for first in [14, 30, 46] {
        let head = frames_of[first].unwrap();
        assert_eq!(head % 16, 0, "the folio's place");
        assert_eq!(frames_of[first..first + 16], (head..head + 16).map(Some).collect::<Vec<_>>());
    }
    // Read from storage: as far as the windows around the pages leave room.
    let (_, stats) = system(&[folios, storage, "kernel.page_cache=cold"]);
    assert!(stats.values["layer.native.file_folios.16K"] > 0 && stats.values["fault.major.count"] > 0);
    let (_, plain) = system(&[storage, "kernel.page_cache=cold"]);
    assert_eq!(stats.values["fault.major.count"], plain.values["fault.major.count"], "the windows are the same");
    assert!(!plain.values.contains_key("layer.native.file_folios.64K"));
}

#[test]
fn an_explicit_page_without_a_free_huge_page_is_split_on_copy() {
    let mut script = ScriptWriter::new();
    map(&mut script, LARGE, MapFlags::HUGETLB);
    script.store(0, BASE);
    // 1100 more of 2048 frames are in use: no block of 512 is free.
    let other = BASE + (1 << 32);
    script.mmap(0, other, 1100 * 4096);
    (0..1100).for_each(|n| script.store(0, other + n * 4096));
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    script.store(child, page(7));
    script.load(child, page(8));
    let (_, stats) = checked("radix", &["machine.memory_bytes=8MiB"], script);
    assert_eq!((stats.values["fault.split.count"], stats.values["fault.copy.count"]), (1, 1));
    assert_eq!(stats.values["layer.native.pages.2M"], 1);
}

#[test]
fn khugepaged_survives_the_end_of_a_process_during_a_collapse() {
    let khugepaged = r#"kernel.threads.khugepaged={"scan_sleep_cycles":2000,"pages_to_scan":4096,"max_ptes_none":511}"#;
    let prot = Protection::READ_WRITE;
    let mut scanned = 0;
    // The exit comes at many different points of the collapse.
    for loads in (0..4000).step_by(80) {
        let mut script = ScriptWriter::new();
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        for n in 0..40 {
            let flags = MapFlags::anonymous_private();
            script.event(child, EventKind::Mmap { addr: page(n), len: 4096, prot, flags, file: None, file_offset: 0 });
            script.store(child, page(n));
        }
        let (flags, addr) = (MapFlags::anonymous_private(), page(40));
        let len = LARGE - 40 * 4096;
        script.event(child, EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 });
        (0..loads).for_each(|n| script.load(child, page(n % 40)));
        script.event(child, EventKind::Exit { code: 0 });
        (0..2000).for_each(|_| script.load(0, page(0)));
        let (_, stats) = checked("radix-2m", &[khugepaged], script);
        scanned += stats.values["khugepaged.scanned"];
    }
    assert!(scanned > 0, "it looks at places");
}

#[test]
fn khugepaged_sleeps_from_the_end_of_its_pass() {
    const SLEEP: u64 = 1000;
    // A pass reads entries in a hashed table, which takes longer than the sleep. It never finds enough of them.
    let khugepaged =
        format!(r#"kernel.threads.khugepaged={{"scan_sleep_cycles":{SLEEP},"pages_to_scan":4096,"max_ptes_none":0}}"#);
    // With two cores, it has one of its own.
    for cores in ["machine.cores=2", "machine.cores=1"] {
        let mut script = ScriptWriter::new();
        let map = |script: &mut ScriptWriter, addr, len| {
            let (prot, flags) = (Protection::READ_WRITE, MapFlags::anonymous_private());
            script.event(0, EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 });
        };
        for n in 0..500 {
            map(&mut script, page(n), 4096);
            script.store(0, page(n));
        }
        map(&mut script, page(500), 12 * 4096);
        (0..100_000).for_each(|n| script.load(0, page(n * 7 % 500)));
        let (_, stats) = checked("hashed-compact-thp", &[&khugepaged, cores, "machine.threads_per_core=1"], script);
        let [runs, work, cycles] = ["kthread.runs", "kthread.cycles", "cycles"].map(|name| stats.values[name]);
        assert!(stats.values["khugepaged.scanned"] > 10 && work > runs * SLEEP, "{cores}: {runs} passes of {work}");
        assert!(runs * SLEEP + work <= cycles + SLEEP, "{cores}: {runs} passes of {work} cycles in {cycles}");
    }
}
