//! Direct segments that are made of running programs: what compaction moves, what the segment spares, and what ends it.

use crate::common::programs::live_spaces;
use crate::common::{ScriptWriter, assembled, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const SMALL: u64 = 0x6000_0000_0000;
const MIB: u64 = 1 << 20;
const PAGES: u64 = 8 * MIB / 4096;
const MACHINE: &str = "machine.memory_bytes=64MiB";
/// Faults take as little time as the times of the threads assume.
const FAST: &str = "machine.bulk.cost=latency";
/// The program is done with its first pages, and goes on, when it begins.
const LATE: &str = r#"kernel.threads.late_segments={"bytes":"16MiB","least_bytes":"2MiB","sleep_cycles":4000000}"#;

/// A program with a large mapping, half of which it touches.
fn half() -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 2 * PAGES * 4096);
    (0..PAGES).for_each(|page| script.store(0, BASE + page * 4096));
    script
}

/// It goes on with the touched half, page after page in an order that misses the TLBs.
fn loads(script: &mut ScriptWriter, passes: u64) {
    for n in 0..passes * PAGES {
        script.load(0, BASE + n * 97 % PAGES * 4096);
    }
}

fn finish(script: ScriptWriter, system: &str, set: &[&str]) -> Statistics {
    let (simulation, stats) =
        run(&config(system, &[&[MACHINE, FAST, "engine.check=on"], set].concat()), script.finish(), &[0]);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &live_spaces(&simulation));
    stats
}

fn count(stats: &Statistics, name: &str) -> u64 {
    stats.values[&format!("late_segments.{name}")]
}

#[test]
fn a_running_programs_mapping_becomes_a_segment() {
    let program = |passes| {
        let mut script = half();
        loads(&mut script, passes);
        // The other half is touched for the first time.
        (PAGES..2 * PAGES).for_each(|page| script.store(0, BASE + page * 4096));
        script
    };
    let sooner = r#"kernel.threads.late_segments={"bytes":"16MiB","least_bytes":"2MiB","sleep_cycles":1000000}"#;
    for (system, late, passes) in [("radix", LATE, 25), ("radix-2m", sooner, 70), ("hashed-compact", LATE, 25)] {
        let [stats, without] =
            [&[late][..], &[]].map(|set| finish(program(passes), system, &[&["engine.check=off"], set].concat()));
        assert_eq!((count(&stats, "made"), count(&stats, "bytes")), (1, 16 * MIB), "{system}");
        assert_eq!(count(&stats, "copied"), PAGES, "{system}");
        // The pages that the segment has when they are touched take no fault.
        let faults = |stats: &Statistics| stats.values["fault.minor.count"];
        let per_page = if system == "radix-2m" { 512 } else { 1 };
        assert_eq!(faults(&without), 2 * PAGES / per_page, "{system}");
        assert_eq!(faults(&stats), PAGES / per_page, "{system}");
        // From some pass on, no access has a walk.
        assert!(stats.values["segment.translations"] > 6 * PAGES, "{system}");
        assert!(system == "radix-2m" || stats.values["walk.count"] + 6 * PAGES < without.values["walk.count"]);
        // Copies and moves take time of the thread.
        assert!(stats.values["kthread.cycles"] > 0, "{system}");
    }
}

/// Small mappings fill the memory between the free regions, so that their pages must be moved.
#[test]
fn pages_in_the_way_are_moved_with_their_contents() {
    let mut script = ScriptWriter::new();
    // 20 MiB in pieces that do not qualify. Every other page is given back.
    for piece in 0..20 {
        script.mmap(0, SMALL + piece * 2 * MIB, MIB);
        (0..256).for_each(|page| script.store(0, SMALL + piece * 2 * MIB + page * 4096));
    }
    for piece in 0..20 {
        for page in (0..256).step_by(2) {
            let addr = SMALL + piece * 2 * MIB + page * 4096;
            script.event(0, EventKind::Munmap { addr, len: 4096 });
        }
    }
    script.mmap(0, BASE, 2 * PAGES * 4096);
    // Another CPU's TLBs hold pages that are moved meanwhile.
    let other = script.thread(0);
    for n in 0..80 * PAGES {
        script.store(0, BASE + n * 97 % PAGES * 4096);
        let held = Access::new(AccessKind::Load, SMALL + n % 20 * 2 * MIB + (n / 20 % 32 * 8 + 1) * 4096, 8);
        script.access_of(other, Access { gap: 100, ..held });
    }
    // The moved pages are still there.
    for piece in 0..20 {
        (1..256).step_by(2).for_each(|page| script.store(0, SMALL + piece * 2 * MIB + page * 4096));
    }
    let set = ["machine.memory_bytes=48MiB", "engine.check=on", LATE];
    let (simulation, stats) = run(&config("radix", &set), script.finish(), &[0, 2]);
    assert_frames_conserved(&simulation, &live_spaces(&simulation));
    assert_eq!(count(&stats, "made"), 1);
    let moved = count(&stats, "moved");
    assert!(moved > 500, "{moved}");
    // The other CPU is interrupted after each step, which moves up to 32 pages.
    let interrupts = stats.values["shootdown.interrupts"];
    assert!(interrupts >= moved / 32, "{interrupts} for {moved} pages");
    // A page has one fault, wherever it lies, unless it was touched in the segment.
    let copied = count(&stats, "copied");
    assert!(copied > 100, "{copied}");
    assert_eq!(stats.values["fault.minor.count"], 20 * 256 + copied);
    assert!(count(&stats, "isolated") + moved >= 16 * MIB / 4096);
}

#[test]
fn without_contiguous_memory_there_is_no_segment() {
    let mut script = half();
    loads(&mut script, 20);
    let late = r#"kernel.threads.late_segments={"bytes":"16MiB","least_bytes":"2MiB","sleep_cycles":1000000}"#;
    let stats = finish(script.clone(), "radix", &["machine.memory_bytes=20MiB", late]);
    let made = ["made", "copied", "bytes"].map(|name| count(&stats, name));
    assert_eq!(made, [0, 0, 0]);
    assert!(count(&stats, "refused") > 1, "it tries again");
    assert_eq!(stats.values["fault.minor.count"], PAGES);
    // Nor for mappings that are too small.
    let stats = finish(
        script,
        "radix",
        &[r#"kernel.threads.late_segments={"bytes":"1GiB","least_bytes":"2MiB","sleep_cycles":1000000}"#],
    );
    assert_eq!(count(&stats, "made"), 1, "the whole mapping, which is smaller");
    let mut small = ScriptWriter::new();
    small.mmap(0, BASE, MIB);
    (0..20_000).for_each(|n| small.store(0, BASE + n % 256 * 4096));
    let stats = finish(small, "radix", &[late]);
    assert_eq!((count(&stats, "made"), count(&stats, "refused")), (0, 0));
}

/// MADV_POPULATE_WRITE over a segment and the pages behind it ends, and maps only the latter.
#[test]
fn memory_of_a_late_segment_counts_as_populated() {
    let mut script = half();
    loads(&mut script, 20);
    script.mmap(0, BASE + 2 * PAGES * 4096, 4096);
    script.event(0, EventKind::Madvise { addr: BASE, len: (2 * PAGES + 1) * 4096, advice: 23 });
    script.store(0, BASE + 2 * PAGES * 4096);
    let stats = finish(script, "radix", &[LATE]);
    assert_eq!((count(&stats, "made"), stats.values["fault.minor.count"]), (1, PAGES + 1));
    assert_eq!(stats.values["populate.pages"], 1);
}

/// What cuts or ends a segment does so to a late one; the next program gets its memory at once.
#[test]
fn calls_cut_a_late_segment_and_its_memory_is_used_again() {
    for pages in [0, PAGES / 2] {
        let mut script = half();
        loads(&mut script, 20);
        if pages > 0 {
            script.event(0, EventKind::Munmap { addr: BASE, len: pages * 4096 });
        } else {
            script.event(0, EventKind::Fork { child: ProcessIx(1) });
        }
        loads(&mut script, 1);
        (PAGES..2 * PAGES).for_each(|page| script.store(0, BASE + page * 4096));
        let stats = finish(script, "radix", &[LATE]);
        assert_eq!(count(&stats, "made"), 1);
        let faults = stats.values["fault.minor.count"] + stats.values["fault.outside.count"];
        // After the fork, everything is paged again: both halves. Else the rest stays a segment.
        assert_eq!(faults, if pages == 0 { 3 * PAGES } else { PAGES + pages }, "{pages}");
    }
}

#[test]
fn what_does_not_go_with_late_segments_is_refused() {
    for (system, set, wrong) in [
        ("nested-radix-shadow", LATE, "kernel.threads.late_segments: `guest` has shadow page tables"),
        ("radix-ptemagnet", LATE, "a placement policy, which keeps track of frames"),
        (
            "radix",
            r#"kernel.threads.late_segments={"bytes":"5000B","least_bytes":"1B","sleep_cycles":1}"#,
            "multiples of 4096",
        ),
        (
            "radix",
            r#"kernel.threads.late_segments={"bytes":"4KiB","least_bytes":"8KiB","sleep_cycles":1}"#,
            "late_segments.least_bytes: 8KiB is more than bytes",
        ),
        (
            "radix",
            r#"kernel.threads.late_segments={"bytes":"4KiB","least_bytes":"4KiB","sleep_cycles":0}"#,
            "late_segments.sleep_cycles: 0",
        ),
        ("radix", &early("later"), "late_segments.dissolve: `later` is not known; allowed are low-watermark"),
    ] {
        let error = assembled(system, &[set]).unwrap_err().to_string();
        assert!(error.contains(wrong), "{system}: {error}");
    }
    let error = assembled("radix", &[&early("low-watermark"), "kernel.threads.kswapd=off"]).unwrap_err().to_string();
    assert!(error.contains("late_segments.dissolve: low-watermark is for kswapd, which is off"), "{error}");
}

const SWAP: &str = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":32}"#;
const OTHER: u64 = 0x5000_0000_0000;
/// The segment is made as soon as its mapping exists.
const EARLY: &str = r#""bytes":"16MiB","least_bytes":"2MiB","sleep_cycles":20000"#;

fn early(dissolve: &str) -> String {
    format!(r#"kernel.threads.late_segments={{{EARLY},"dissolve":"{dissolve}"}}"#)
}

/// A program with a segment of 16 MiB, of which it touches the first 8, which then needs other memory: shared memory,
/// which cannot be reclaimed, or ordinary memory. At last it reads the first 8 MiB again.
fn short_of_memory(shared: bool, pages: u64, others_pass: bool) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 16 * MIB);
    (0..60_000).for_each(|n| script.store(0, BASE + n * 97 % PAGES * 4096));
    let flags = if shared { MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS) } else { MapFlags::anonymous_private() };
    let (prot, len) = (Protection::READ_WRITE, pages * 4096);
    script.event(0, EventKind::Mmap { addr: OTHER, len, prot, flags, file: None, file_offset: 0 });
    let other = others_pass.then(|| script.thread(0));
    for n in 0..pages {
        script.store(0, OTHER + n * 4096);
        if let Some(thread) = other {
            script.access_of(thread, Access { gap: 100, ..Access::new(AccessKind::Load, BASE + n % PAGES * 4096, 8) });
        }
    }
    loads(&mut script, 1);
    script
}

/// The statistics of a run, or the error with which it ends.
fn outcome(script: ScriptWriter, cpus: &[usize], set: &[&str]) -> Result<Statistics, String> {
    let config = config("radix", &[&["engine.check=on", FAST], set].concat());
    let placed = PlacedSource { source: script.finish(), cpus: cpus.to_vec(), memory_limit: None };
    let mut simulation = Simulation::new(&config, vec![placed], None).unwrap();
    simulation.run(&mut |_| true).map_err(|error| error.to_string())?;
    let stats = simulation.statistics();
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &live_spaces(&simulation));
    Ok(stats)
}

/// 16 MiB are a segment, and 14 MiB of shared memory remain in memory. The rest of 32 MiB is too little for all.
#[test]
fn a_segment_is_dissolved_when_nothing_else_can_be_reclaimed() {
    let memory = "machine.memory_bytes=32MiB";
    let run = |dissolve: &str, set: &[&str]| {
        outcome(short_of_memory(true, 18 * 256, false), &[0], &[&[memory, &early(dissolve)], set].concat())
    };
    let error = run("never", &[SWAP]).expect_err("memory runs out");
    assert!(error.contains("no frame left of its 32MiB"), "{error}");
    // Pages that cannot be swapped out are left where they are.
    let error = run("last-resort", &[]).expect_err("memory runs out");
    assert!(error.contains("no frame left of its 32MiB"), "{error}");
    for threads in ["on", "off"] {
        let stats = run("last-resort", &[SWAP, &format!("kernel.threads.kswapd={threads}")]).unwrap();
        assert_eq!((count(&stats, "made"), count(&stats, "kept")), (1, 0), "{threads}");
        // Whole parts from the end, which the program has not touched, and not all of the segment.
        let dissolved = count(&stats, "dissolved");
        assert!(dissolved > 0 && dissolved.is_multiple_of(512) && dissolved <= PAGES, "{threads}: {dissolved}");
        let out = stats.values["swap.out.pages"];
        assert!(out > 0 && out <= dissolved, "{threads}: {out} pages of {dissolved}");
        assert_eq!(stats.values["fault.major.count"], 0, "{threads}: no page in use was dissolved");
        assert_eq!(stats.values["fault.minor.count"], count(&stats, "copied") + 18 * 256, "{threads}");
    }
}

/// kswapd takes 2 MiB of the segment each time it is woken, though other pages could be reclaimed.
#[test]
fn kswapd_dissolves_segments_early_if_it_may() {
    let memory = "machine.memory_bytes=32MiB";
    let run =
        |dissolve| outcome(short_of_memory(false, 20 * 256, true), &[0, 2], &[memory, SWAP, &early(dissolve)]).unwrap();
    let [first, last] = ["low-watermark", "last-resort"].map(run);
    assert_eq!([&first, &last].map(|stats| count(stats, "made")), [1, 1]);
    assert_eq!(count(&last, "dissolved"), 0, "the other memory can be swapped out");
    let dissolved = count(&first, "dissolved");
    assert!(dissolved >= 1024 && dissolved.is_multiple_of(512), "{dissolved}");
    // The CPU that runs the other thread loads the registers anew after each part.
    let interrupts = |stats: &Statistics| stats.values["shootdown.interrupts"];
    assert!(interrupts(&first) >= dissolved / 512, "{} interrupts", interrupts(&first));
    assert!(first.values["segment.translations"] > 0);
}

/// Memory of a segment that has ended is freed, without a swap area, too.
#[test]
fn unused_memory_of_segments_is_freed() {
    let program = |kept: u64| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 16 * MIB);
        (0..60_000).for_each(|n| script.store(0, BASE + n * 97 % PAGES * 4096));
        // The segment keeps the larger part.
        script.event(0, EventKind::Munmap { addr: BASE, len: 16 * MIB - kept });
        // Pieces that do not qualify for the unused memory.
        for piece in 0..48 {
            script.mmap(0, OTHER + piece * MIB, MIB / 2);
            (0..128).for_each(|page| script.store(0, OTHER + piece * MIB + page * 4096));
        }
        script
    };
    let memory = "machine.memory_bytes=32MiB";
    let never = [early("never"), early("last-resort")].map(|late| outcome(program(0), &[0], &[memory, &late]));
    let [error, stats] = never;
    assert!(error.expect_err("memory runs out").contains("no frame left"));
    let freed = count(&stats.unwrap(), "freed");
    assert!(freed >= 2048 && freed.is_multiple_of(512), "{freed}");
    // With a swap area, all of the unused part is freed before anything of the used part.
    let cut = outcome(program(10 * MIB), &[0], &[memory, SWAP, &early("last-resort")]).unwrap();
    assert_eq!((count(&cut, "freed"), count(&cut, "dissolved")), (0, 0), "other pages can be swapped out");
    let cut = outcome(program(10 * MIB), &[0], &[memory, SWAP, &early("low-watermark")]).unwrap();
    assert_eq!(count(&cut, "freed"), 6 * 256);
    assert!(count(&cut, "dissolved") > 0);
}

/// Two programs: the first one's two threads use a segment of 16 MiB, the other one fills memory with pages of a file
/// that nobody maps any more.
fn beside_a_reader_of_files(dissolve: &str) -> Statistics {
    let mut user = ScriptWriter::new();
    user.mmap(0, BASE, 16 * MIB);
    let other = user.thread(0);
    for n in 0..300_000 {
        for thread in [0, other] {
            let kind = AccessKind::Store;
            user.access_of(thread, Access { gap: 100, ..Access::new(kind, BASE + n * 97 % PAGES * 4096, 8) });
        }
    }
    let mut reader = ScriptWriter::new();
    // The segment is made first.
    reader.mmap(0, SMALL, 4096);
    (0..20_000).for_each(|_| reader.access_of(0, Access { gap: 1000, ..Access::new(AccessKind::Store, SMALL, 8) }));
    for file_offset in (0..20 * MIB).step_by(MIB as usize) {
        let (prot, flags) = (Protection { read: true, write: false, execute: false }, MapFlags(MapFlags::SHARED));
        let file = Some("data".into());
        reader.event(0, EventKind::Mmap { addr: OTHER, len: MIB, prot, flags, file, file_offset });
        (0..256).for_each(|page| reader.load(0, OTHER + page * 4096));
        reader.event(0, EventKind::Munmap { addr: OTHER, len: MIB });
    }
    let storage = r#"kernel.storage={"read_cycles":3000,"write_cycles":700,"queue_depth":8}"#;
    let cold = "kernel.page_cache=cold";
    let set = ["machine.memory_bytes=32MiB", SWAP, "kernel.swappiness=0", storage, cold, FAST, "engine.check=on"];
    let config = config("radix", &[&set[..], &[&early(dissolve)]].concat());
    let placed = |script: ScriptWriter, cpus| PlacedSource { source: script.finish(), cpus, memory_limit: None };
    let sources = vec![placed(user, vec![0, 2]), placed(reader, vec![4])];
    let mut simulation = Simulation::new(&config, sources, None).unwrap();
    simulation.run(&mut |_| true).unwrap();
    let stats = simulation.statistics();
    assert_conserved(&stats);
    stats
}

/// Each part ends with an interrupt of each CPU that runs the program. Nothing else in this run interrupts one: the
/// pages that are reclaimed are mapped by nobody.
#[test]
fn each_part_interrupts_the_cpus_that_run_the_program() {
    let [stats, never] = ["low-watermark", "never"].map(beside_a_reader_of_files);
    for stats in [&stats, &never] {
        assert_eq!((count(stats, "made"), stats.values["swap.out.pages"]), (1, 0));
    }
    let parts = count(&stats, "dissolved") / 512;
    assert!(parts > 1, "{parts}");
    let interrupts = |stats: &Statistics| stats.values["shootdown.interrupts"];
    // Both runs have the interrupts that making the segment takes.
    assert_eq!(interrupts(&stats) - interrupts(&never), 2 * parts);
}

/// Where the page table has no room for an entry, the segment stays, and others' pages are reclaimed instead.
#[test]
fn a_segment_stays_if_its_table_has_no_room() {
    let others = 3072;
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 16 * MIB);
    (0..60_000).for_each(|n| script.store(0, BASE + n * 97 % PAGES * 4096));
    script.mmap(0, OTHER, others * 4096);
    // A page of each cluster first, so that the table is full while there is memory.
    for page in 0..8 {
        (0..others / 8).for_each(|cluster| script.store(0, OTHER + (8 * cluster + page) * 4096));
    }
    loads(&mut script, 1);
    let table = format!(
        r#"system.layers.native.page_table={{"kind":"hashed-compact","table_bytes":"{}B","search_lines":{}}}"#,
        others / 8 * 64,
        others / 8
    );
    let run = |table: &str| {
        let set = ["machine.memory_bytes=28MiB", SWAP, FAST, "engine.check=on", &early("low-watermark"), table];
        let (simulation, stats) = run(&config("hashed-compact", &set), script.clone().finish(), &[0]);
        assert_frames_conserved(&simulation, &live_spaces(&simulation));
        stats
    };
    let [full, roomy] = [table.as_str(), "engine.seed=1"].map(run);
    assert!(count(&full, "kept") > 0 && count(&full, "dissolved") == 0);
    assert!(count(&roomy, "kept") == 0 && count(&roomy, "dissolved") > 0);
    assert!(full.values["swap.out.pages"] > 0);
    assert_eq!(full.values["fault.major.count"], 0);
}
