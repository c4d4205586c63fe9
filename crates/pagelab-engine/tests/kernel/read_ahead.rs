//! Read-ahead around a page of a file that a mapping misses.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::base::ids::SpaceId;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;
/// Pages read around a missing one.
const AROUND: u64 = 32;
/// After this many more misses than hits, read-around stops (`MMAP_LOTSAMISS`).
const LOTS: u64 = 100;
const MADV_NORMAL: u32 = 0;
const MADV_RANDOM: u32 = 1;
const FILE_PAGES: u64 = 1 << 16;

/// A page whose surroundings contain no other numbered page.
fn page(n: u64) -> u64 {
    BASE + (n + 1) * 2 * AROUND * PAGE
}

fn script() -> ScriptWriter {
    let mut script = ScriptWriter::new();
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
    let file = Some("data".into());
    script.event(0, EventKind::Mmap { addr: BASE, len: FILE_PAGES * PAGE, prot, flags, file, file_offset: 0 });
    script
}

/// Pages in memory at the end, and those of them that were missed.
fn read_and_missed(script: ScriptWriter, set: &[&str]) -> (u64, u64) {
    let common = ["machine.memory_bytes=1GiB", "kernel.read_ahead_bytes=128KiB"];
    let (simulation, stats) = run(&config("osdp", &[&common[..], set].concat()), script.finish(), &[0]);
    assert_conserved(&stats);
    let spaces: Vec<SpaceId> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
    assert_frames_conserved(&simulation, &spaces);
    (simulation.kernels.os.layers[0].memory.page_use.cached_frames(), stats.values["fault.major.count"])
}

const ONE_BY_ONE: &[&str] = &["kernel.fault_around_bytes=4KiB"];

#[test]
fn a_file_that_is_missed_much_more_often_than_hit_is_read_page_by_page() {
    for store in [false, true] {
        let mut script = script();
        let access = if store { ScriptWriter::store } else { ScriptWriter::load };
        (0..LOTS + 50).for_each(|n| access(&mut script, 0, page(n)));
        let set: &[&str] = if store { &[] } else { ONE_BY_ONE };
        assert_eq!(read_and_missed(script, set), (LOTS * AROUND + 50, LOTS + 50), "stores: {store}");
    }
}

#[test]
fn hits_make_up_for_misses() {
    let mut script = script();
    (0..LOTS + 50).for_each(|n| script.load(0, page(n)));
    // 51 hits against 150 misses; accesses to pages already in the page table do not count.
    (0..51).for_each(|n| script.load(0, page(n) + PAGE));
    (0..LOTS).for_each(|n| script.load(0, page(n)));
    script.load(0, page(LOTS + 50));
    script.load(0, page(LOTS + 51));
    let read = LOTS * AROUND + 50 + AROUND + 1;
    assert_eq!(read_and_missed(script, ONE_BY_ONE), (read, LOTS + 52));
}

#[test]
fn pages_around_a_read_fault_count_as_hits() {
    let mut script = script();
    (0..2 * LOTS).for_each(|n| script.load(0, page(n)));
    assert_eq!(read_and_missed(script, &[]), (2 * LOTS * AROUND, 2 * LOTS));
}

#[test]
fn pages_around_a_missing_page_count_as_hits_too() {
    let mut script = script();
    // Stores map no pages around them.
    (0..=LOTS).for_each(|n| script.store(0, page(n)));
    let near = page(LOTS + 1);
    (0..12).for_each(|n| script.store(0, near + n * PAGE));
    // 113 misses. A load finds those 12, misses, and once its page is there finds 13.
    script.load(0, near + 12 * PAGE);
    script.store(0, page(LOTS + 2));
    assert_eq!(read_and_missed(script, &[]).0, LOTS * AROUND + 1 + 12 + 1 + AROUND);
}

#[test]
fn mappings_that_are_read_at_random_count_no_misses() {
    let mut script = script();
    script.event(0, madvise(MADV_RANDOM));
    (0..2 * LOTS).for_each(|n| script.load(0, page(n)));
    script.event(0, madvise(MADV_NORMAL));
    script.load(0, page(2 * LOTS));
    assert_eq!(read_and_missed(script, ONE_BY_ONE), (2 * LOTS + AROUND, 2 * LOTS + 1));
}

#[test]
fn each_process_and_each_program_has_a_count_of_its_own() {
    let exec = EventKind::Exec { path: "program".into() };
    for next_event in [EventKind::Fork { child: ProcessIx(1) }, exec] {
        let mut script = script();
        (0..LOTS + 1).for_each(|n| script.load(0, page(n)));
        let forks = matches!(next_event, EventKind::Fork { .. });
        script.event(0, next_event);
        let thread = if forks { script.thread(1) } else { 0 };
        if !forks {
            let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
            let file = Some("data".into());
            script.event(0, EventKind::Mmap { addr: BASE, len: FILE_PAGES * PAGE, prot, flags, file, file_offset: 0 });
        }
        script.load(thread, page(LOTS + 1));
        assert_eq!(read_and_missed(script, ONE_BY_ONE).0, LOTS * AROUND + 1 + AROUND, "fork: {forks}");
    }
}

fn madvise(advice: u32) -> EventKind {
    EventKind::Madvise { addr: BASE, len: FILE_PAGES * PAGE, advice }
}
