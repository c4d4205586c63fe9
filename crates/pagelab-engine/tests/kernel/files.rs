//! Calls on mapped files: msync writes dirty pages, truncation empties pages, and moved blocks are found again.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::base::ids::SpaceId;
use pagelab_engine::config::Config;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const OTHER: u64 = 0x7e00_0000_0000;
const OWN: u64 = 0x6f00_0000_0000;
const PAGE: u64 = 4096;
const PAGES: u64 = 64;
const MS_ASYNC: u32 = 1;
const MS_SYNC: u32 = 4;
const READ: u64 = 30_000;
const WRITE: u64 = 9000;

fn storage() -> String {
    format!(r#"kernel.storage={{"read_cycles":{READ},"write_cycles":{WRITE},"queue_depth":64}}"#)
}

fn system(name: &str, set: &[&str]) -> Config {
    let storage = storage();
    config(name, &[&[&*storage, "kernel.read_ahead_bytes=4KiB"], set].concat())
}

fn map(script: &mut ScriptWriter, thread: u32, addr: u64, flags: u32) {
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(flags));
    let file = Some("data".into());
    script.event(thread, EventKind::Mmap { addr, len: PAGES * PAGE, prot, flags, file, file_offset: 0 });
}

/// A program that mapped a file; with `hwdp`, the queue of free pages is full.
fn script(flags: u32) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, OWN, PAGE);
    script.store(0, OWN);
    map(&mut script, 0, BASE, flags);
    for _ in 0..1200 {
        let mut access = pagelab_trace::Access::new(pagelab_trace::AccessKind::Load, OWN, 8);
        access.gap = 10_000;
        script.access_of(0, access);
    }
    script
}

fn page(n: u64) -> u64 {
    BASE + n * PAGE
}

fn msync(first: u64, pages: u64, flags: u32) -> EventKind {
    EventKind::Msync { addr: page(first), len: pages * PAGE, flags }
}

fn truncate(old: u64, new: u64) -> EventKind {
    EventKind::Truncate { file: "data".into(), old_len: old, new_len: new }
}

fn relocate(first: u64, pages: u64) -> EventKind {
    EventKind::Relocate { file: "data".into(), offset: first * PAGE, len: pages * PAGE }
}

fn finished(script: ScriptWriter, config: &Config) -> (Simulation, Statistics) {
    let (simulation, stats) = run(config, script.finish(), &[0]);
    assert_conserved(&stats);
    let spaces: Vec<SpaceId> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
    assert_frames_conserved(&simulation, &spaces);
    (simulation, stats)
}

const SYSTEMS: [&str; 2] = ["osdp", "hwdp"];

/// Pages read from storage, by the kernel or the unit.
fn read(stats: &Statistics) -> u64 {
    let of_unit = stats.values.get("layer.native.fault_engine.mapped").copied().unwrap_or(0);
    stats.values["fault.major.count"] + of_unit
}

/// Write requests: each read request is for one page.
fn written(stats: &Statistics) -> u64 {
    stats.values["layer.native.storage.requests"] - read(stats)
}

#[test]
fn msync_writes_what_is_dirty_and_waits_for_it() {
    for name in SYSTEMS {
        let mut script = script(MapFlags::SHARED);
        (0..8).for_each(|n| script.load(0, page(n)));
        (10..14).for_each(|n| script.store(0, page(n)));
        script.store(0, page(20));
        script.event(0, msync(0, 12, MS_SYNC));
        script.event(0, msync(0, PAGES, MS_SYNC));
        script.event(0, msync(0, PAGES, MS_SYNC));
        // Stores to clean pages: the kernel notices, and the page is dirty again.
        script.store(0, page(11));
        script.event(0, msync(0, PAGES, MS_ASYNC));
        script.event(0, msync(0, PAGES, MS_SYNC));
        let (_, stats) = finished(script, &system(name, &["kernel.block_io=null"]));
        assert_eq!(stats.values["msync.pages"], 6, "{name}: 10 and 11; 12, 13 and 20; 11 again");
        // One request for consecutive blocks.
        assert_eq!(written(&stats), 1 + 2 + 1, "{name}");
        let io = stats.values["cycles.io"];
        assert_eq!(io, 13 * READ + 3 * WRITE, "{name}: each call waits for its writes, which go out together");
        assert_eq!(
            stats.values["fault.minor.count"],
            1 + 1,
            "{name}: the program's own page, and the store to a clean one"
        );
        assert!(stats.values["msync.cycles"] > 0);
    }
}

#[test]
fn msync_costs_its_requests_in_addition_to_the_device() {
    let with = |set: &[&str]| {
        let mut script = script(MapFlags::SHARED);
        (0..4).for_each(|n| script.store(0, page(n * 2)));
        script.event(0, msync(0, PAGES, MS_SYNC));
        finished(script, &system("osdp", &[&["engine.kernel_refs=off"], set].concat())).1.values["msync.cycles"]
    };
    let stage = |name: &str, cycles: u64| format!(r#"kernel.block_io.{name}={{"instructions":1,"cycles":{cycles}}}"#);
    let zeros: Vec<String> =
        ["submit", "switch", "interrupt", "completion", "wakeup"].map(|name| stage(name, 0)).into();
    let zeros: Vec<&str> = zeros.iter().map(String::as_str).collect();
    let free = with(&zeros);
    for (name, times) in [("submit", 4), ("switch", 1), ("interrupt", 1), ("completion", 4)] {
        let costly = stage(name, 1000);
        assert_eq!(with(&[&zeros[..], &[&costly]].concat()) - free, times * 1000, "{name}, of four requests");
    }
}

#[test]
fn an_invalid_msync_is_counted_and_does_nothing() {
    const MS_INVALIDATE: u32 = 2;
    let end = 0_u64.wrapping_sub(PAGE);
    let calls = [
        (page(0) + 8, PAGE, MS_SYNC, 1),
        (end, 2 * PAGE, MS_SYNC, 1),
        (page(0), PAGE, MS_SYNC | MS_ASYNC, 1),
        (page(0), PAGE, MS_SYNC | 8, 1),
        (page(0), PAGE, MS_ASYNC | MS_INVALIDATE, 0),
        (page(0), 0, MS_SYNC, 0),
    ];
    for (addr, len, flags, impossible) in calls {
        let mut script = script(MapFlags::SHARED);
        script.store(0, page(0));
        script.event(0, EventKind::Msync { addr, len, flags });
        let (_, stats) = finished(script, &system("osdp", &[]));
        assert_eq!(stats.values["mapping.impossible"], impossible, "{len} bytes at {addr:#x}, flags {flags}");
        assert_eq!((stats.values["msync.pages"], written(&stats)), (0, 0), "{len} bytes at {addr:#x}, flags {flags}");
    }
}

#[test]
fn private_mappings_and_anonymous_memory_have_nothing_to_write() {
    let mut script = script(MapFlags::PRIVATE);
    (0..8).for_each(|n| script.store(0, page(n)));
    script.event(0, msync(0, PAGES, MS_SYNC));
    script.event(0, EventKind::Msync { addr: OWN, len: PAGE, flags: MS_SYNC });
    let (_, stats) = finished(script, &system("osdp", &[]));
    assert_eq!((stats.values["msync.pages"], written(&stats)), (0, 0));
}

#[test]
fn pages_unmapped_while_dirty_are_written_too() {
    let mut script = script(MapFlags::SHARED);
    (0..8).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Munmap { addr: BASE, len: PAGES * PAGE });
    map(&mut script, 0, BASE, MapFlags::SHARED);
    script.load(0, page(5));
    script.event(0, msync(0, PAGES, MS_SYNC));
    script.event(0, msync(0, PAGES, MS_SYNC));
    let (_, stats) = finished(script, &system("osdp", &["kernel.fault_around_bytes=4KiB"]));
    assert_eq!((stats.values["msync.pages"], written(&stats)), (8, 1));
}

#[test]
fn a_truncated_file_loses_the_pages_behind_its_end() {
    for name in SYSTEMS {
        let mut script = script(MapFlags::SHARED);
        (0..32).for_each(|n| script.store(0, page(n)));
        script.event(0, truncate(PAGES * PAGE, 10 * PAGE + 100));
        // Pages after the end exist again, empty, and are not read from storage; page 10 has its old contents.
        (0..PAGES).for_each(|n| script.load(0, page(n)));
        script.event(0, msync(0, PAGES, MS_SYNC));
        let (simulation, stats) = finished(script, &system(name, &[]));
        assert_eq!(stats.values["files.cut.pages"], 32 - 11, "{name}");
        assert_eq!(stats.values["mapping.pages_unmapped"], 32 - 11, "{name}");
        assert_eq!(read(&stats), 32, "{name}");
        assert_eq!(stats.values["msync.pages"], 11, "{name}: what was cut is not written");
        assert_eq!(simulation.kernels.os.layers[0].memory.page_use.cached_frames(), PAGES, "{name}");
    }
}

#[test]
fn read_ahead_skips_truncated_pages() {
    let mut script = script(MapFlags::SHARED);
    script.event(0, truncate(PAGES * PAGE, 10 * PAGE));
    script.load(0, page(8));
    let storage = storage();
    let (_, stats) = finished(script, &config("osdp", &[&storage, "kernel.read_ahead_bytes=128KiB"]));
    assert_eq!(stats.values["fault.major.count"], 1);
    assert_eq!(stats.values["layer.native.storage.requests"], 1, "the ten pages of the file");
    assert_eq!(stats.values["cycles.io"] + stats.values["fault.switch.cycles"], READ);
}

#[test]
fn msync_of_many_unmapped_pages_goes_a_batch_at_a_time() {
    let pages = 700;
    let mut script = ScriptWriter::new();
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
    let map = |script: &mut ScriptWriter| {
        let file = Some("data".into());
        script.event(0, EventKind::Mmap { addr: BASE, len: pages * PAGE, prot, flags, file, file_offset: 0 });
    };
    map(&mut script);
    (0..pages).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Munmap { addr: BASE, len: pages * PAGE });
    map(&mut script);
    script.event(0, msync(0, pages, MS_SYNC));
    let (_, stats) = finished(script, &system("osdp", &[]));
    assert_eq!((stats.values["msync.pages"], written(&stats)), (pages, 3), "256 pages at most per request");
}

/// All evictable pages are being written: an allocation waits for the writes.
#[test]
fn reclaim_that_finds_only_pages_under_writeback_waits_for_them() {
    let pages = 200;
    let mut script = ScriptWriter::new();
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
    let file = Some("data".into());
    script.event(0, EventKind::Mmap { addr: BASE, len: pages * PAGE, prot, flags, file, file_offset: 0 });
    script.mmap(0, OWN, 100 * PAGE);
    let other = script.thread(0);
    (0..pages).for_each(|n| script.store(0, page(n)));
    script.event(0, msync(0, pages, MS_SYNC));
    (0..100).for_each(|n| script.store(other, OWN + n * PAGE));
    let slow = r#"kernel.storage={"read_cycles":1000,"write_cycles":100000000,"queue_depth":64}"#;
    let set = [slow, "kernel.read_ahead_bytes=4KiB", "kernel.cgroup_limit_bytes=1MiB", "kernel.threads.kswapd=off"];
    let (simulation, stats) = run(&config("osdp", &set), script.finish(), &[0, 1]);
    assert_conserved(&stats);
    let spaces: Vec<SpaceId> = simulation.programs.inputs.iter().flat_map(|input| input.spaces()).collect();
    assert_frames_conserved(&simulation, &spaces);
    assert_eq!(stats.values["msync.pages"], pages);
    assert!(stats.values["reclaim.files.dropped"] >= 44, "1 MiB holds 256 of 300 pages");
    assert!(stats.values["reclaim.scanned"] < 1000, "{} pages looked at", stats.values["reclaim.scanned"]);
}

#[test]
fn written_pages_behind_a_truncation_are_read_back_after_reclaim() {
    for name in SYSTEMS {
        let mut script = script(MapFlags::SHARED);
        script.event(0, truncate(0, PAGES * PAGE));
        (0..8).for_each(|n| script.store(0, page(n)));
        (8..16).for_each(|n| script.load(0, page(n)));
        // Reading a file larger than memory evicts them.
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED));
        let len = 4096 * PAGE;
        let file = Some("large".into());
        script.event(0, EventKind::Mmap { addr: OTHER, len, prot, flags, file, file_offset: 0 });
        (0..4096).for_each(|n| script.load(0, OTHER + n * PAGE));
        (0..16).for_each(|n| script.load(0, page(n)));
        let mut set = vec!["machine.memory_bytes=8MiB"];
        if name == "hwdp" {
            set.push("system.layers.native.fault_engine.free_pages=64");
        }
        let (_, stats) = finished(script, &system(name, &set));
        assert_eq!(written(&stats), 8, "{name}");
        assert_eq!(read(&stats), 4096 + 8, "{name}: those that hold nothing are not read");
    }
}

#[test]
fn truncation_unmaps_pages_from_all_processes() {
    let mut script = script(MapFlags::PRIVATE);
    map(&mut script, 0, OTHER, MapFlags::SHARED);
    // Private copies, shared pages, and a child's pages.
    (0..4).for_each(|n| script.store(0, page(n)));
    (0..8).for_each(|n| script.load(0, OTHER + n * PAGE));
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    (0..8).for_each(|n| script.load(child, page(n)));
    script.event(0, truncate(PAGES * PAGE, 2 * PAGE));
    (0..8).for_each(|n| script.load(child, page(n)));
    (0..8).for_each(|n| script.load(0, OTHER + n * PAGE));
    let (_, stats) = finished(script, &system("osdp", &["kernel.fault_around_bytes=4KiB"]));
    // The parent's two copies and six others, and the child's six.
    assert_eq!(stats.values["mapping.pages_unmapped"], 2 + 6 + 6);
    assert_eq!(stats.values["files.cut.pages"], 6);
}

#[test]
fn blocks_that_move_are_read_from_where_they_are() {
    for name in SYSTEMS {
        let mut script = script(MapFlags::SHARED);
        (0..8).for_each(|n| script.store(0, page(n)));
        script.event(0, msync(0, 4, MS_SYNC));
        // With --check, a read of a moved block's old place is an error.
        script.event(0, relocate(2, 30));
        script.event(0, relocate(10, 4));
        (0..PAGES).for_each(|n| script.load(0, page(n)));
        script.event(0, msync(0, PAGES, MS_SYNC));
        let (_, stats) = finished(script, &system(name, &[]));
        assert_eq!(stats.values["files.relocated.pages"], 34, "{name}");
        assert_eq!((read(&stats), stats.values["msync.pages"]), (PAGES, 8), "{name}");
        if name == "hwdp" {
            assert_eq!(
                stats.values["layer.native.fault_engine.mapped"], PAGES,
                "the entries that moved are the unit's"
            );
        }
    }
}

#[test]
fn a_device_without_room_moves_nothing() {
    let mut script = script(MapFlags::SHARED);
    script.event(0, relocate(0, 40));
    (0..PAGES).for_each(|n| script.load(0, page(n)));
    let (_, stats) = finished(script, &config("osdp", &["kernel.storage.capacity_bytes=400KiB"]));
    assert_eq!((stats.values["files.relocated.pages"], stats.values["files.relocations_refused"]), (0, 1));
}

#[test]
fn device_writes_evict_lines_from_the_caches() {
    const LINES: u64 = 5;
    let storage = storage();
    for name in ["radix", "nested-radix"] {
        let set = [
            &*storage,
            "kernel.page_cache=cold",
            "kernel.read_ahead_bytes=4KiB",
            "engine.kernel_refs=off",
            "machine.memory_bytes=64MiB",
        ];
        let mut script = ScriptWriter::new();
        script.mmap(0, OWN, PAGE);
        (0..LINES).for_each(|n| script.store(0, OWN + n * 64));
        script.event(0, EventKind::Munmap { addr: OWN, len: PAGE });
        map(&mut script, 0, BASE, MapFlags::SHARED);
        // Its frame is the one freed last.
        (0..LINES).for_each(|n| script.load(0, page(0) + n * 64));
        let (_, stats) = run(&config(name, &set), script.finish(), &[0]);
        assert_eq!(stats.values["cache.dma_invalidations"], LINES, "{name}");
        assert_eq!(stats.values["l3.misses.data"], 2 * LINES, "{name}: the file's lines are not in the caches");
    }
}

#[test]
fn pages_around_a_fault_have_their_entries_in_one_page_table_page() {
    for (name, entries) in [("radix", 512), ("radix-compact", 640)] {
        let border = BASE / PAGE / entries * entries * PAGE;
        let mut script = ScriptWriter::new();
        map(&mut script, 0, border - 5 * PAGE, MapFlags::PRIVATE);
        // The window of 16 pages would begin with the mapping, and end behind the border.
        script.load(0, border - 3 * PAGE);
        script.load(0, border + 2 * PAGE);
        let (_, stats) = finished(script, &config(name, &[]));
        assert_eq!(stats.values["fault.around.pages"], 4 + 15, "{name}");
    }
}
