//! MADV_COLD and MADV_PAGEOUT: which pages leave, which only lose their entries, and which stay.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::base::ids::SpaceId;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const OTHER: u64 = 0x7e00_0000_0000;
const PAGE: u64 = 4096;
const PAGES: u64 = 64;
const MADV_COLD: u32 = 20;
const MADV_PAGEOUT: u32 = 21;
const SWAP: &str = r#"kernel.swap={"size_bytes":"256MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":32}"#;
const STORAGE: &str = r#"kernel.storage={"read_cycles":300000,"write_cycles":70000,"queue_depth":8}"#;
const ANONYMOUS: u32 = MapFlags::PRIVATE | MapFlags::ANONYMOUS;

fn map(script: &mut ScriptWriter, addr: u64, flags: u32) {
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(flags));
    let file = (!flags.contains(MapFlags::ANONYMOUS)).then(|| "data".into());
    script.event(0, EventKind::Mmap { addr, len: PAGES * PAGE, prot, flags, file, file_offset: 0 });
}

fn load_all(script: &mut ScriptWriter, addr: u64) {
    (0..PAGES).for_each(|n| script.load(0, addr + n * PAGE));
}

fn store_all(script: &mut ScriptWriter, addr: u64) {
    (0..PAGES).for_each(|n| script.store(0, addr + n * PAGE));
}

fn advise(script: &mut ScriptWriter, addr: u64, advice: u32) {
    script.event(0, EventKind::Madvise { addr, len: PAGES * PAGE, advice });
}

fn finished(set: &[&str], write: impl FnOnce(&mut ScriptWriter)) -> Statistics {
    let mut script = ScriptWriter::new();
    write(&mut script);
    let (simulation, stats) = run(&config("radix", set), script.finish(), &[0]);
    assert_conserved(&stats);
    let spaces: Vec<SpaceId> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
    assert_frames_conserved(&simulation, &spaces);
    stats
}

/// Minor and major faults, and pages that the call unmapped, of a program that pages out what it has touched.
fn paged_out(set: &[&str], flags: u32, stores: bool) -> [u64; 3] {
    let stats = finished(set, |script| {
        map(script, BASE, flags);
        if stores {
            store_all(script, BASE)
        } else {
            load_all(script, BASE)
        }
        advise(script, BASE, MADV_PAGEOUT);
        load_all(script, BASE);
    });
    ["fault.minor.count", "fault.major.count", "pageout.pages"].map(|name| stats.values[name])
}

#[test]
fn anonymous_pages_leave_if_there_is_swap() {
    assert_eq!(paged_out(&[], ANONYMOUS, true), [PAGES, 0, 0]);
    assert_eq!(paged_out(&[STORAGE], ANONYMOUS, true), [PAGES, 0, 0], "storage is for files");
    assert_eq!(paged_out(&[SWAP], ANONYMOUS, true), [PAGES, PAGES, PAGES]);
    assert_eq!(paged_out(&[SWAP], ANONYMOUS, false), [PAGES, 0, 0], "the zero page is nobody's");
    let stats = finished(&[SWAP], |script| {
        map(script, BASE, ANONYMOUS);
        store_all(script, BASE);
        advise(script, BASE, MADV_PAGEOUT);
    });
    assert_eq!(stats.values["swap.out.pages"], PAGES);
    assert!(stats.values["cycles.io"] >= 60_000, "the program waits for the writes");
    let tiny = r#"kernel.swap={"size_bytes":"64KiB","read_cycles":1,"write_cycles":1,"queue_depth":1}"#;
    assert_eq!(paged_out(&[tiny], ANONYMOUS, true)[2], 16, "as many as fit");
}

#[test]
fn clean_pages_of_files_leave_and_dirty_ones_lose_their_entries() {
    let (shared, windows) = (MapFlags::SHARED, PAGES / 16);
    assert_eq!(paged_out(&[], shared, false), [2 * windows, 0, PAGES]);
    let storage = [STORAGE, "kernel.read_ahead_bytes=4KiB", "kernel.fault_around_bytes=4KiB"];
    assert_eq!(paged_out(&storage, shared, false), [PAGES, PAGES, PAGES]);
    for set in [&[][..], &[STORAGE]] {
        // Windows leave such pages out, so each faults again.
        assert_eq!(paged_out(set, shared, true), [2 * PAGES, 0, PAGES]);
    }
    let memory = MapFlags::SHARED | MapFlags::MEMORY_FILE;
    for set in [&[][..], &[SWAP], &[STORAGE]] {
        assert_eq!(paged_out(set, memory, true), [PAGES + windows, 0, PAGES], "pages of files in memory stay");
    }
}

#[test]
fn pages_that_others_map_stay() {
    for set in [&[][..], &[SWAP], &[STORAGE]] {
        let stats = finished(set, |script| {
            for addr in [BASE, OTHER] {
                map(script, addr, MapFlags::SHARED);
                load_all(script, addr);
            }
            advise(script, BASE, MADV_PAGEOUT);
        });
        assert_eq!(stats.values["pageout.pages"], 0);
        let stats = finished(set, |script| {
            map(script, BASE, ANONYMOUS);
            store_all(script, BASE);
            script.event(0, EventKind::Fork { child: ProcessIx(1) });
            script.thread(1);
            advise(script, BASE, MADV_PAGEOUT);
        });
        assert_eq!(stats.values["pageout.pages"], 0);
    }
}

#[test]
fn cold_pages_leave_the_active_list_once() {
    let deactivated = |new_pages: &str, times: usize| {
        let stats = finished(&[SWAP, new_pages], |script| {
            map(script, BASE, ANONYMOUS);
            store_all(script, BASE);
            (0..times).for_each(|_| advise(script, BASE, MADV_COLD));
        });
        stats.values["reclaim.deactivated"]
    };
    // Before Linux 5.9, anonymous pages started on the active list.
    assert_eq!([0, 1, 2].map(|times| deactivated("kernel.new_pages=active", times)), [0, PAGES, PAGES]);
    assert_eq!(deactivated("kernel.new_pages=inactive", 2), 0);
}

#[test]
fn cold_pages_leave_first() {
    let with_advice = |advice: Option<u32>| {
        finished(&[SWAP, "kernel.cgroup_limit_bytes=1MiB"], |script| {
            map(script, BASE, ANONYMOUS);
            map(script, OTHER, ANONYMOUS);
            // All are in use, and on the active list.
            for _ in 0..3 {
                store_all(script, BASE);
                store_all(script, OTHER);
            }
            if let Some(advice) = advice {
                advise(script, OTHER, advice);
            }
            let filler = OTHER - 0x1000_0000;
            for n in 0..3 {
                map(script, filler + n * PAGES * PAGE, ANONYMOUS);
                store_all(script, filler + n * PAGES * PAGE);
            }
            load_all(script, BASE);
        })
    };
    let [cold, kept] = [Some(MADV_COLD), None].map(with_advice);
    assert!(cold.values["swap.in.pages"] < kept.values["swap.in.pages"], "the others were kept instead");
    let cold = finished(&[], |script| {
        map(script, BASE, ANONYMOUS);
        store_all(script, BASE);
        advise(script, BASE, MADV_COLD);
        store_all(script, BASE);
    });
    assert_eq!(cold.values["fault.minor.count"], PAGES);
}
