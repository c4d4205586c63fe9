//! Files that exist in memory only: holes fault page by page, data is mapped by windows, and frames go with the last
//! mapping.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::base::ids::{SpaceId, SpaceIx};
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const OTHER: u64 = 0x7e00_0000_0000;
const PAGE: u64 = 4096;
const PAGES: u64 = 64;
const MADV_DONTNEED: u32 = 4;
const MADV_REMOVE: u32 = 9;
const SHARED: u32 = MapFlags::SHARED | MapFlags::MEMORY_FILE;
const PRIVATE: u32 = MapFlags::PRIVATE | MapFlags::MEMORY_FILE;
const ANONYMOUS: u32 = MapFlags::SHARED | MapFlags::ANONYMOUS;

fn map_file(script: &mut ScriptWriter, file: &str, addr: u64, flags: u32) {
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(flags));
    let file = (!flags.contains(MapFlags::ANONYMOUS)).then(|| file.into());
    script.event(0, EventKind::Mmap { addr, len: PAGES * PAGE, prot, flags, file, file_offset: 0 });
}

fn map(script: &mut ScriptWriter, addr: u64, flags: u32) {
    map_file(script, "buffer", addr, flags);
}

fn data(first: u64, pages: u64) -> EventKind {
    EventKind::FileData { file: "buffer".into(), offset: first * PAGE, len: pages * PAGE }
}

fn load_all(script: &mut ScriptWriter, thread: u32, addr: u64) {
    (0..PAGES).for_each(|n| script.load(thread, addr + n * PAGE));
}

fn store_all(script: &mut ScriptWriter, thread: u32, addr: u64) {
    (0..PAGES).for_each(|n| script.store(thread, addr + n * PAGE));
}

fn finished(script: ScriptWriter) -> (Simulation, Statistics) {
    let (simulation, stats) = run(&config("radix", &[]), script.finish(), &[0]);
    assert_conserved(&stats);
    let spaces: Vec<SpaceId> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
    assert_frames_conserved(&simulation, &spaces);
    (simulation, stats)
}

/// Minor faults, and pages that they mapped.
fn faults(write: impl FnOnce(&mut ScriptWriter)) -> (u64, u64) {
    let mut script = ScriptWriter::new();
    write(&mut script);
    let (_, stats) = finished(script);
    assert_eq!(stats.values["fault.major.count"], 0);
    (stats.values["fault.minor.count"], stats.values["layer.native.pages.4K"])
}

#[test]
fn holes_fault_page_by_page_and_data_by_windows() {
    for flags in [SHARED, PRIVATE, ANONYMOUS] {
        let read = faults(|script| {
            map(script, BASE, flags);
            load_all(script, 0, BASE);
        });
        assert_eq!(read, (PAGES, PAGES), "{flags:#x}");
    }
    let filled = faults(|script| {
        script.event(0, data(0, PAGES));
        map(script, BASE, SHARED);
        load_all(script, 0, BASE);
    });
    assert_eq!(filled, (PAGES / 16, PAGES));
    let later = faults(|script| {
        map(script, BASE, SHARED);
        script.event(0, data(16, 16));
        load_all(script, 0, BASE);
    });
    assert_eq!(later, (PAGES - 15, PAGES));
    // Reading a hole maps the data around it.
    let alternating = faults(|script| {
        (0..PAGES).step_by(2).for_each(|n| script.event(0, data(n, 1)));
        map(script, BASE, SHARED);
        (0..PAGES).rev().for_each(|n| script.load(0, BASE + n * PAGE));
    });
    assert_eq!(alternating, (PAGES / 2, PAGES));
}

#[test]
fn shared_pages_are_writable_at_once_and_private_ones_are_copied() {
    let both = |flags| {
        faults(|script| {
            map(script, BASE, flags);
            load_all(script, 0, BASE);
            store_all(script, 0, BASE);
        })
    };
    assert_eq!([both(SHARED).0, both(ANONYMOUS).0, both(PRIVATE).0], [PAGES, PAGES, 2 * PAGES]);
    let again = faults(|script| {
        map(script, BASE, SHARED);
        load_all(script, 0, BASE);
        for prot in [Protection::from_bits(1), Protection::READ_WRITE] {
            script.event(0, EventKind::Mprotect { addr: BASE, len: PAGES * PAGE, prot });
        }
        store_all(script, 0, BASE);
    });
    assert_eq!(again, (PAGES, PAGES), "mprotect makes them writable again");
    // A private store to a hole fills the file, too: its other mapping finds the page.
    let private = faults(|script| {
        map(script, BASE, PRIVATE);
        map(script, OTHER, SHARED);
        store_all(script, 0, BASE);
        load_all(script, 0, OTHER);
    });
    assert_eq!(private, (PAGES + PAGES / 16, 2 * PAGES));
}

#[test]
fn pages_stay_when_their_entries_go_and_all_mappings_find_them() {
    for flags in [SHARED, ANONYMOUS] {
        let dropped = faults(|script| {
            map(script, BASE, flags);
            store_all(script, 0, BASE);
            script.event(0, EventKind::Madvise { addr: BASE, len: PAGES * PAGE, advice: MADV_DONTNEED });
            load_all(script, 0, BASE);
        });
        assert_eq!(dropped, (PAGES + PAGES / 16, 2 * PAGES), "{flags:#x}");
        let inherited = faults(|script| {
            map(script, BASE, flags);
            store_all(script, 0, BASE);
            script.event(0, EventKind::Fork { child: ProcessIx(1) });
            let child = script.thread(1);
            load_all(script, child, BASE);
        });
        assert_eq!(inherited, (PAGES + PAGES / 16, 2 * PAGES), "{flags:#x}");
    }
    let segment = faults(|script| {
        for addr in [BASE, OTHER] {
            map_file(script, "/SYSV00000000 (deleted)", addr, SHARED);
            load_all(script, 0, addr);
        }
    });
    assert_eq!(segment, (2 * PAGES, 2 * PAGES), "System V segments have no windows");
}

#[test]
fn what_is_cut_out_is_a_hole_for_all() {
    let half = PAGES / 2 * PAGE;
    let hole = EventKind::FileHole { file: "buffer".into(), offset: 1, len: half };
    let end = EventKind::Truncate { file: "buffer".into(), old_len: PAGES * PAGE, new_len: half };
    let remove = EventKind::Madvise { addr: OTHER, len: half, advice: MADV_REMOVE };
    for (cut, flags, gone) in [
        (hole, SHARED, PAGES / 2 - 1),
        (end, SHARED, PAGES / 2),
        (remove.clone(), SHARED, PAGES / 2),
        (EventKind::Madvise { addr: BASE, len: half, advice: MADV_REMOVE }, ANONYMOUS, PAGES / 2),
    ] {
        let (faults, _) = faults(|script| {
            map(script, BASE, flags);
            if flags == SHARED {
                map(script, OTHER, SHARED);
            }
            store_all(script, 0, BASE);
            script.event(0, cut.clone());
            load_all(script, 0, BASE);
        });
        assert_eq!(faults, PAGES + gone, "{cut:?}");
    }
    let copied = faults(|script| {
        map(script, BASE, PRIVATE);
        map(script, OTHER, SHARED);
        store_all(script, 0, BASE);
        script.event(0, remove);
        load_all(script, 0, BASE);
    });
    assert_eq!(copied, (PAGES, PAGES), "private copies stay");
    let inherited = faults(|script| {
        map(script, BASE, ANONYMOUS);
        store_all(script, 0, BASE);
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        load_all(script, child, BASE);
        script.event(child, EventKind::Madvise { addr: BASE, len: PAGES * PAGE, advice: MADV_REMOVE });
        load_all(script, 0, BASE);
    });
    assert_eq!(inherited.0, PAGES + PAGES / 16 + PAGES, "the parent's entries go, too");
}

#[test]
fn frames_are_free_when_no_mapping_shows_them_and_the_data_is_still_known() {
    let mut script = ScriptWriter::new();
    map(&mut script, BASE, SHARED);
    map(&mut script, OTHER, SHARED);
    store_all(&mut script, 0, BASE);
    script.event(0, EventKind::Munmap { addr: BASE, len: PAGES * PAGE });
    script.event(0, EventKind::Munmap { addr: OTHER, len: PAGES / 2 * PAGE });
    let (simulation, _) = finished(script);
    let layer = &simulation.kernels.os.layers[0];
    assert_eq!(layer.memory.page_use.memory_files().frames(), PAGES / 2, "those of the second half");
    assert!(layer.mapped(SpaceIx(1), VirtAddr(BASE), VirtAddr(BASE + PAGES * PAGE)).is_empty());
    // One call takes away two mappings of the same pages.
    let mut script = ScriptWriter::new();
    map(&mut script, BASE, SHARED);
    map(&mut script, BASE + PAGES * PAGE, SHARED);
    store_all(&mut script, 0, BASE);
    load_all(&mut script, 0, BASE + PAGES * PAGE);
    script.event(0, EventKind::Munmap { addr: BASE, len: 2 * PAGES * PAGE });
    let (simulation, _) = finished(script);
    assert_eq!(simulation.kernels.os.layers[0].memory.page_use.memory_files().frames(), 0);
    let (again, _) = faults(|script| {
        map(script, BASE, SHARED);
        store_all(script, 0, BASE);
        script.event(0, EventKind::Munmap { addr: BASE, len: PAGES * PAGE });
        map(script, BASE, SHARED);
        load_all(script, 0, BASE);
    });
    assert_eq!(again, PAGES + PAGES / 16);
}
