//! Segments of POWER's hashed table that processes share: slots and faults by the number of processes, who leaves a
//! shared segment and when, and random programs that do all of it.

use crate::common::{
    ScriptWriter, assert_clocks_conserved, assert_conserved, assert_frames_conserved, checked, config, run, run_all,
};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::base::ids::SpaceIx;
use pagelab_engine::base::rng::Rng;
use pagelab_engine::base::step::{RefKind, Step};
use pagelab_engine::kernel::reclaim::{Pressure, plan_scan};
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::page_table::WalkList;
use pagelab_trace::workload::parse;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection, Source, case_seed, cases};

const SEGMENT: u64 = 256 << 20;
const PAGE: u64 = 4096;
const PAGES: u64 = 100;
const SYSTEM: &str = "hashed-power-segments";
const SHARED: &str = "system.layers.native.page_table.segments.shared=true";
const READ_ONLY: Protection = Protection { read: true, write: false, execute: false };

/// The address of the nth segment from some address on.
fn segment(n: u64) -> u64 {
    (n + 3) * SEGMENT
}

fn map_with(addr: u64, pages: u64, prot: Protection, file_offset: u64) -> EventKind {
    let (len, flags) = (pages * PAGE, MapFlags(MapFlags::SHARED));
    EventKind::Mmap { addr, len, prot, flags, file: Some("data".into()), file_offset }
}

fn map(addr: u64) -> EventKind {
    map_with(addr, PAGES, Protection::READ_WRITE, 0)
}

fn store_all(script: &mut ScriptWriter, thread: u32, addr: u64) {
    (0..PAGES).for_each(|n| script.store(thread, addr + n * PAGE));
}

/// Forks until the program has `count` processes. Returns their threads.
fn processes(script: &mut ScriptWriter, count: u32) -> Vec<u32> {
    let children = (1..count).map(|n| {
        script.event(0, EventKind::Fork { child: ProcessIx(n) });
        script.thread(n)
    });
    let children: Vec<u32> = children.collect();
    std::iter::once(0).chain(children).collect()
}

/// Each process maps the file in a segment of another number, and stores to all pages.
fn sharers(count: u32) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    for (n, thread) in processes(&mut script, count).into_iter().enumerate() {
        script.event(thread, map(segment(n as u64)));
        store_all(&mut script, thread, segment(n as u64));
    }
    script
}

fn slots(stats: &Statistics) -> u64 {
    stats.values["layer.native.page_table.slots.used"]
}

/// Segments that joined and left, and pages without a fault.
fn shared(stats: &Statistics) -> (u64, u64, u64) {
    let count = |what: &str| stats.values[&format!("layer.native.page_table.segments.shared.{what}")];
    (count("joined"), count("left"), count("pages"))
}

#[test]
fn any_number_of_processes_have_one_set_of_slots_and_faults() {
    for count in [1, 2, 5] {
        let n = u64::from(count);
        let (_, apart) = checked(SYSTEM, &[], sharers(count));
        assert_eq!((slots(&apart), apart.values["fault.minor.count"]), (n * PAGES, n * PAGES));
        let (_, stats) = checked(SYSTEM, &[SHARED], sharers(count));
        assert_eq!((slots(&stats), stats.values["fault.minor.count"]), (PAGES, PAGES), "{count} processes");
        assert_eq!(shared(&stats), (n, 0, (n - 1) * PAGES));
        assert_eq!(stats.values["layer.native.pages.4K"], PAGES, "pages that faults mapped");
    }
}

#[test]
fn a_page_that_one_process_maps_later_is_mapped_in_all() {
    let mut script = ScriptWriter::new();
    let threads = processes(&mut script, 3);
    for &thread in &threads {
        script.event(thread, map(segment(0)));
    }
    // In turn, each maps a third of the pages; then all use all of them.
    (0..PAGES).for_each(|n| script.store(threads[n as usize % 3], segment(0) + n * PAGE));
    threads.iter().for_each(|&thread| store_all(&mut script, thread, segment(0)));
    let (_, stats) = checked(SYSTEM, &[SHARED], script);
    assert_eq!((slots(&stats), stats.values["fault.minor.count"]), (PAGES, PAGES));
    assert_eq!(shared(&stats), (3, 0, 2 * PAGES));
}

#[test]
fn shared_memory_without_a_file_is_shared_after_a_fork() {
    let mut script = ScriptWriter::new();
    let flags = MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS);
    let (addr, len, prot) = (segment(0), PAGES * PAGE, Protection::READ_WRITE);
    script.event(0, EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 });
    store_all(&mut script, 0, segment(0));
    let threads = processes(&mut script, 3);
    threads.iter().for_each(|&thread| store_all(&mut script, thread, segment(0)));
    let (_, stats) = checked(SYSTEM, &[SHARED], script);
    assert_eq!((slots(&stats), stats.values["fault.minor.count"]), (PAGES, PAGES));
}

/// Two processes on two CPUs fault on the same holes at the same time. The second one finds the page of the first.
#[test]
fn faults_of_two_processes_on_one_page_map_one_frame() {
    let mut script = ScriptWriter::new();
    let flags = MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS);
    let (addr, len, prot) = (segment(0), PAGES * PAGE, Protection::READ_WRITE);
    script.event(0, EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 });
    let threads = processes(&mut script, 2);
    for n in 0..PAGES {
        threads.iter().for_each(|&thread| script.store(thread, addr + n * PAGE));
    }
    let set = [SHARED, "engine.sync_quantum_cycles=0"];
    let (simulation, stats) = run(&config(SYSTEM, &set), script.finish(), &[0, 2]);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
    assert_eq!((slots(&stats), shared(&stats)), (PAGES, (2, 0, PAGES)));
    let faults = stats.values["fault.minor.count"];
    assert!((PAGES + 1..=2 * PAGES).contains(&faults), "{faults}");
}

/// Slots, segments that left, and faults of the second of two processes after a call of it, when it stores to all pages
/// that it still maps.
fn after(calls: &[EventKind], still: u64) -> (u64, u64, u64) {
    let mut script = sharers(2);
    calls.iter().for_each(|call| script.event(1, call.clone()));
    (0..still).for_each(|n| script.store(1, segment(1) + n * PAGE));
    let (_, stats) = checked(SYSTEM, &[SHARED], script);
    (slots(&stats), shared(&stats).1, stats.values["fault.minor.count"] - PAGES)
}

#[test]
fn a_process_that_changes_a_part_gets_slots_of_its_own() {
    let addr = segment(1);
    // All of it: the slots of the first process stay.
    assert_eq!(after(&[EventKind::Munmap { addr, len: PAGES * PAGE }], 0), (PAGES, 0, 0));
    assert_eq!(after(&[EventKind::Exit { code: 0 }], 0), (PAGES, 0, 0));
    assert_eq!(after(&[EventKind::Exec { path: "program".into() }], 0), (PAGES, 0, 0));
    // A part: the others keep their translations, in other slots.
    let last = addr + (PAGES - 1) * PAGE;
    assert_eq!(after(&[EventKind::Munmap { addr: last, len: PAGE }], PAGES - 1), (2 * PAGES - 1, 1, 0));
    let discarded = EventKind::Madvise { addr: last, len: PAGE, advice: 4 };
    assert_eq!(after(&[discarded], PAGES), (2 * PAGES, 1, 1));
    assert_eq!(after(&[EventKind::Mprotect { addr, len: PAGE, prot: READ_ONLY }], 0), (2 * PAGES, 1, 0));
    // Another mapping in the segment, as soon as it has a page.
    let beside = map_with(addr + 2 * PAGES * PAGE, 1, Protection::READ_WRITE, 1 << 30);
    assert_eq!(after(std::slice::from_ref(&beside), PAGES), (PAGES, 0, 0));
    let mut script = sharers(2);
    script.event(1, beside);
    script.store(1, addr + 2 * PAGES * PAGE);
    let (_, stats) = checked(SYSTEM, &[SHARED], script);
    assert_eq!((slots(&stats), shared(&stats).1), (2 * PAGES + 1, 1));
}

/// Separate programs that take turns on a CPU.
#[test]
fn programs_that_read_the_same_file_share_its_segment() {
    let run = |set: &[&str], count: usize| {
        let open = || parse("mapped-read:size=8MiB,accesses=4K", 1).unwrap();
        let sources: Vec<(Box<dyn Source>, &[usize])> = (0..count).map(|_| (open(), &[0][..])).collect();
        let turns = ["kernel.quantum_cycles=100000", r#"kernel.scheduler={"kind":"recorded"}"#];
        let (_, stats) = run_all(&config(SYSTEM, &[set, &turns].concat()), sources);
        assert_conserved(&stats);
        stats
    };
    let (apart, stats) = (run(&[], 2), run(&[SHARED], 2));
    let [fewer, more] = [&stats, &apart].map(|stats| stats.values["fault.minor.count"]);
    // A half of the first program's faults at least are for both.
    assert!(fewer < more * 3 / 4, "{fewer} {more}");
    assert!(shared(&stats).2 > 500, "{:?}", shared(&stats));
}

#[test]
fn the_last_process_takes_the_slots_with_it() {
    let end = |call: fn(u64) -> EventKind| {
        let mut script = sharers(3);
        (0..3).for_each(|n| script.event(n, call(segment(n.into()))));
        slots(&checked(SYSTEM, &[SHARED], script).1)
    };
    assert_eq!(end(|addr| EventKind::Munmap { addr, len: PAGES * PAGE }), 0);
    assert_eq!(end(|_| EventKind::Exit { code: 0 }), 0);
}

/// Entries of the segment table of a space.
fn segment_entries(simulation: &Simulation, space: SpaceIx) -> usize {
    let layer = &simulation.kernels.os.layers[0];
    let (mem, mut list) = (&layer.memory.contents, WalkList::new());
    layer.spaces[space].table.walk(mem, VirtAddr(0), &mut list);
    let table = list.refs()[0].addr.align_down(PAGE);
    (0..PAGE).step_by(16).filter(|&at| mem.read(table + at) != 0).count()
}

/// A mapping of 80 GiB has 320 segments, a table has 256 entries.
#[test]
fn a_segment_takes_an_entry_with_its_first_page() {
    let large = || EventKind::Mmap {
        addr: segment(0),
        len: 80 << 30,
        prot: Protection::READ_WRITE,
        flags: MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS),
        file: None,
        file_offset: 0,
    };
    // Two pages of the first segment and one of the last: two entries.
    for (touched, count) in [(&[][..], 0), (&[0], 1), (&[0, 1], 1), (&[0, 1, (80 << 30) / PAGE - 1], 2)] {
        let mut script = ScriptWriter::new();
        script.event(0, large());
        touched.iter().for_each(|page| script.store(0, segment(0) + page * PAGE));
        let (simulation, stats) = checked(SYSTEM, &[SHARED], script);
        let space = simulation.programs.inputs[0].spaces().next().expect("it has a process");
        assert_eq!(segment_entries(&simulation, space.index), count, "{touched:?}");
        assert_eq!(stats.values["fault.minor.count"], touched.len() as u64);
        assert_eq!(shared(&stats), (320, 0, 0));
    }
    // What one process touches takes an entry of each.
    let mut script = ScriptWriter::new();
    script.event(0, large());
    let threads = processes(&mut script, 3);
    (0..3).for_each(|n| script.store(threads[1], segment(n)));
    let (simulation, _) = checked(SYSTEM, &[SHARED], script);
    let spaces: Vec<_> = simulation.programs.inputs[0].spaces().collect();
    let counts: Vec<_> = spaces.iter().map(|space| segment_entries(&simulation, space.index)).collect();
    assert_eq!(counts, [3, 3, 3]);
}

/// A slot's tag has room for the numbers of 256 segments of 1 TiB. So those that have ended are used again.
#[test]
fn numbers_of_segments_are_used_again() {
    let mut script = ScriptWriter::new();
    let addr = 1 << 40;
    for n in 0..300 {
        script.event(0, map_with(addr, 1, Protection::READ_WRITE, n * PAGE));
        script.store(0, addr);
        script.event(0, EventKind::Munmap { addr, len: PAGE });
    }
    let set = [SHARED, "system.layers.native.page_table.segments.bytes=1TiB"];
    let (_, stats) = checked(SYSTEM, &set, script);
    assert_eq!(shared(&stats), (300, 0, 0));
}

/// A process whose segment table is full leaves a segment when another one maps a page there.
#[test]
fn a_process_without_room_for_a_segment_leaves_it() {
    let mut script = ScriptWriter::new();
    let flags = MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS);
    let (addr, len, prot) = (segment(1000), PAGES * PAGE, Protection::READ_WRITE);
    script.event(0, EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 });
    let threads = processes(&mut script, 2);
    // Two groups of eight entries: those of the segment and of its complement.
    let other = |n: u64| segment(1000) + n * 32 * SEGMENT;
    (1..=16).for_each(|n| {
        script.mmap(threads[1], other(n), PAGE);
        script.store(threads[1], other(n));
    });
    store_all(&mut script, threads[0], addr);
    let (_, stats) = checked(SYSTEM, &[SHARED], script);
    assert_eq!(shared(&stats), (2, 1, 0));
    assert_eq!(slots(&stats), PAGES + 16);
}

/// Counts of look-aside buffers: hits, misses, and entries that were dropped.
fn looked_up(stats: &Statistics) -> (u64, u64, u64) {
    let count = |what: &str| stats.values[&format!("layer.native.mmu_cache.segments.{what}")];
    (count("hits"), count("misses"), count("invalidated"))
}

/// A segment of a process whose page a thread on each of several CPUs touches, then a call, then another touch by each.
fn look_ups(cpus: &[usize], call: fn(&mut ScriptWriter)) -> (u64, u64, u64) {
    let run = |with: bool| {
        let mut script = ScriptWriter::new();
        let others: Vec<u32> = (1..cpus.len()).map(|_| script.thread(0)).collect();
        let threads: Vec<u32> = std::iter::once(0).chain(others).collect();
        script.mmap(0, segment(0), 2 * PAGE);
        threads.iter().for_each(|&thread| script.store(thread, segment(0)));
        if with {
            call(&mut script);
            threads.iter().for_each(|&thread| script.store(thread, segment(0)));
        }
        let (_, stats) = run(&config(SYSTEM, &[SHARED, "engine.sync_quantum_cycles=0"]), script.finish(), cpus);
        assert_conserved(&stats);
        looked_up(&stats)
    };
    let (without, with) = (run(false), run(true));
    (with.0 - without.0, with.1 - without.1, with.2 - without.2)
}

#[test]
fn a_look_aside_buffer_drops_a_segment_that_becomes_shared_or_ceases_to_be() {
    fn join(script: &mut ScriptWriter) {
        script.event(0, EventKind::Munmap { addr: segment(0), len: 2 * PAGE });
        script.event(0, map_with(segment(0), 2, Protection::READ_WRITE, 0));
    }
    fn leave(script: &mut ScriptWriter) {
        join(script);
        script.store(0, segment(0));
        script.event(0, EventKind::Mprotect { addr: segment(0) + PAGE, len: PAGE, prot: READ_ONLY });
    }
    // The first walk finds the new entry and no page; the one after the fault hits.
    assert_eq!(look_ups(&[0], join), (1, 1, 1));
    // Its entry is dropped again, so the walk after it misses once more.
    assert_eq!(look_ups(&[0], leave), (1, 2, 2));
    // Both CPUs drop theirs, and both have a fault on the page, at the same time.
    assert_eq!(look_ups(&[0, 2], join), (2, 2, 2));
}

/// A scan reads the slot of a page once, however many processes share it.
#[test]
fn a_scan_reads_a_shared_slot_once() {
    let set = [SHARED, STORAGE, "kernel.page_cache=cold", "kernel.cgroup_limit_bytes=1GiB"];
    for (set, per_page) in [(&set[..], 1), (&set[1..], 3)] {
        let (simulation, _) = checked(SYSTEM, set, sharers(3));
        let layer = &simulation.kernels.os.layers[0];
        let mut step = Step::default();
        plan_scan(layer, Pressure::Memory, &mut step);
        let count = |wanted: RefKind| step.refs.iter().filter(|r| r.kind == wanted).count();
        let pages = count(RefKind::Write);
        assert!(pages >= 32, "{pages}");
        assert_eq!(count(RefKind::Locked), 1 + per_page * pages);
    }
}

#[test]
fn what_differs_is_not_shared() {
    for other in [
        map_with(segment(1), PAGES, READ_ONLY, 0),
        map_with(segment(1), PAGES, Protection::READ_WRITE, PAGES * PAGE),
        map_with(segment(1) + PAGE, PAGES, Protection::READ_WRITE, 0),
        map_with(segment(1), PAGES + 1, Protection::READ_WRITE, 0),
    ] {
        let mut script = ScriptWriter::new();
        let threads = processes(&mut script, 2);
        script.event(threads[0], map(segment(0)));
        script.event(threads[1], other.clone());
        (1..PAGES).for_each(|n| script.load(threads[0], segment(0) + n * PAGE));
        (1..PAGES).for_each(|n| script.load(threads[1], segment(1) + n * PAGE));
        let (_, stats) = checked(SYSTEM, &[SHARED], script);
        assert_eq!(shared(&stats), (2, 0, 0), "{other:?}");
    }
}

const SWAP: &str = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
const STORAGE: &str = r#"kernel.storage={"read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;

/// An operation of a random program on one of three segments.
fn random_call(rng: &mut Rng) -> EventKind {
    let addr = segment(rng.below(3)) + rng.below(2) * 8 * PAGE;
    let (page, len) = (addr + rng.below(100) * PAGE, (1 + rng.below(20)) * PAGE);
    let prot = if rng.below(4) == 0 { READ_ONLY } else { Protection::READ_WRITE };
    match rng.below(12) {
        0..4 => {
            let (file, kind, pages) = match rng.below(4) {
                0 => (Some("other".into()), 0, 120),
                1 => (None, MapFlags::ANONYMOUS, 30),
                _ => (Some("data".into()), 0, 120),
            };
            let populate = if rng.below(3) == 0 { MapFlags::POPULATE } else { 0 };
            let flags = MapFlags(MapFlags::SHARED | kind | populate);
            EventKind::Mmap { addr, len: pages * PAGE, prot, flags, file, file_offset: 0 }
        }
        4 => EventKind::Munmap { addr, len: 120 * PAGE },
        5 => EventKind::Munmap { addr: page, len },
        6 => EventKind::Mprotect { addr: page, len, prot },
        7 => EventKind::Madvise { addr: page, len, advice: [4, 9, 20, 21][rng.below(4) as usize] },
        8 => EventKind::Msync { addr, len: 120 * PAGE, flags: 4 },
        9 => EventKind::Truncate { file: "data".into(), old_len: u64::MAX, new_len: rng.below(120) * PAGE },
        10 => EventKind::FileHole { file: "data".into(), offset: rng.below(100) * PAGE, len },
        _ => {
            let (old_addr, new_addr) = (page, segment(rng.below(3)) + 200 * PAGE);
            EventKind::Mremap { old_addr, old_len: len, new_addr, new_len: len }
        }
    }
}

/// A program of up to four processes, which may all exit at the end.
fn random_program(rng: &mut Rng) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    let (mut live, mut count) = (vec![0_u32], 1);
    script.event(0, map_with(segment(0), 120, Protection::READ_WRITE, 0));
    for _ in 0..150 {
        let thread = live[rng.below(live.len() as u64) as usize];
        match rng.below(20) {
            0 if count < 4 => {
                script.event(thread, EventKind::Fork { child: ProcessIx(count) });
                live.push(script.thread(count));
                count += 1;
            }
            1 if live.len() > 1 => {
                live.retain(|&other| other != thread);
                script.event(thread, EventKind::Exit { code: 0 });
            }
            2..7 => script.event(thread, random_call(rng)),
            what => {
                let addr = segment(rng.below(3)) + rng.below(130) * PAGE;
                if what % 2 == 0 { script.load(thread, addr) } else { script.store(thread, addr) }
            }
        }
    }
    if rng.below(2) == 0 {
        live.into_iter().for_each(|thread| script.event(thread, EventKind::Exit { code: 0 }));
    }
    script
}

#[test]
fn random_programs_that_share_segments_translate_right() {
    let small = "system.layers.native.page_table.table_bytes=8KiB";
    let systems: [&[&str]; 4] = [
        &[SHARED],
        &[SHARED, SWAP, STORAGE, "kernel.page_cache=cold", "kernel.cgroup_limit_bytes=1MiB"],
        &[SHARED, small, "system.layers.native.page_table.full_groups=evict"],
        &[SHARED, STORAGE, "kernel.page_cache=cold", "kernel.pcids=1"],
    ];
    let (mut rng, mut pages, mut left) = (Rng::new(case_seed(1), "shared segments"), 0, 0);
    for case in 0..cases(120_u32) as usize {
        let set = [systems[case % 4], &["machine.memory_bytes=1GiB", "engine.sync_quantum_cycles=0"]].concat();
        let cpus: &[usize] = [&[0][..], &[0, 2], &[0, 2, 4]][case % 3];
        let (simulation, stats) = run(&config(SYSTEM, &set), random_program(&mut rng).finish(), cpus);
        assert_conserved(&stats);
        assert_clocks_conserved(&simulation);
        let spaces: Vec<_> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
        assert_frames_conserved(&simulation, &spaces);
        let counts = shared(&stats);
        (pages, left) = (pages + counts.2, left + counts.1);
    }
    assert!(pages > 1000 && left > 100, "{pages} {left}");
}
