//! Pages of 2 MiB mapped by MFOE, and effects of mapping calls on armed entries of that level.

use crate::common::{ScriptWriter, assert_conserved, assert_frames_conserved, config, run};
use pagelab_engine::base::addr::{PageSize, VirtAddr};
use pagelab_engine::base::ids::{LayerId, SpaceId};
use pagelab_engine::config::Config;
use pagelab_engine::kernel::reclaim::LruPageKind;
use pagelab_engine::kernel::vma::VaRange;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const MADV_NOHUGEPAGE: u32 = 15;

/// Zeroing ahead that takes little of a period.
const FAST: &str = "machine.bulk.cost=latency";

/// The system with some parameters changed.
fn mfoe(parameters: &[(&str, &str)], set: &[&str]) -> Config {
    let key = |&(name, value): &(&str, &str)| format!("system.layers.native.fault_engine.{name}={value}");
    let keys: Vec<String> = parameters.iter().map(key).collect();
    config("mfoe-thp", &keys.iter().map(String::as_str).chain(set.iter().copied()).collect::<Vec<_>>())
}

fn stat(stats: &Statistics, name: &str) -> u64 {
    stats.values[&format!("layer.native.fault_engine.{name}")]
}

/// Gives the threads time to finish their work: accesses to a mapped page, with many instructions between them.
fn pause(script: &mut ScriptWriter, cycles: u64) {
    for _ in 0..cycles / 5000 {
        let mut access = pagelab_trace::Access::new(pagelab_trace::AccessKind::Load, BASE - PAGE, 8);
        access.gap = 10_000;
        script.access_of(0, access);
    }
}

/// A script with a page of its own below `BASE`, full tables, and this many armed pages of 2 MiB from `BASE` on.
fn armed_script(pages: u64) -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE - PAGE, PAGE);
    script.load(0, BASE - PAGE);
    pause(&mut script, 40_000_000);
    script.mmap(0, BASE, pages * HUGE);
    pause(&mut script, 1_000_000);
    script
}

/// Runs a script, and then the threads until they finish the resulting work. Checks the conservation laws.
fn ran(config: &Config, mut script: ScriptWriter) -> (Simulation, Statistics) {
    pause(&mut script, 1_000_000);
    let (simulation, stats) = run(config, script.finish(), &[0]);
    assert_conserved(&stats);
    assert_frames_conserved(&simulation, &simulation.programs.inputs[0].spaces().collect::<Vec<_>>());
    (simulation, stats)
}

fn space(simulation: &Simulation) -> SpaceId {
    simulation.programs.inputs[0].spaces().next().expect("the process has not ended")
}

/// Numbers of armed entries from an address on: of 2 MiB and of 4 KiB.
fn armed(simulation: &Simulation, space: SpaceId, start: u64, bytes: u64) -> (usize, usize) {
    let range = VaRange { start: VirtAddr(start), end: VirtAddr(start + bytes) };
    let words = simulation.kernels.os.layers[LayerId(0)].words(space.index, range);
    let of_size = |size| words.iter().filter(|entry| entry.size == size).count();
    (of_size(PageSize::Size2M), of_size(PageSize::Size4K))
}

/// Numbers of mapped pages of the mapping: of 2 MiB and of 4 KiB.
fn mapped(simulation: &Simulation, space: SpaceId, pages: u64) -> (usize, usize) {
    let layer = &simulation.kernels.os.layers[LayerId(0)];
    let there = layer.mapped(space.index, VirtAddr(BASE), VirtAddr(BASE + pages * HUGE));
    let of_size = |size| there.iter().filter(|page| page.mapping.size == size).count();
    (of_size(PageSize::Size2M), of_size(PageSize::Size4K))
}

#[test]
fn a_huge_page_costs_its_references_and_no_walk_follows() {
    let mut script = armed_script(4);
    (0..4).for_each(|page| script.store(0, BASE + page * HUGE + 17 * PAGE));
    let (simulation, stats) = ran(&mfoe(&[], &["engine.kernel_refs=off"]), script);
    assert_eq!(
        ["huge.hits", "huge.misses", "huge.armed", "hits", "armed"].map(|name| stat(&stats, name)),
        [4, 0, 4, 0, 0]
    );
    // Five steps of a cycle each; header, entry, PMD; entry, header; PMD: six references of 4 cycles.
    assert_eq!(stat(&stats, "mapped.cycles"), 4 * (5 + 6 * 4));
    assert_eq!(stats.values["walk.aborted.count"], 4 + 1);
    assert!(stats.values["walk.count"] <= 1, "{} walks", stats.values["walk.count"]);
    assert_eq!(stats.values["fault.minor.count"], 1, "the page before the tables were full");
    let space = space(&simulation);
    assert_eq!((mapped(&simulation, space, 4), armed(&simulation, space, BASE, 4 * HUGE)), ((4, 0), (0, 0)));
}

#[test]
fn mappings_have_entries_of_both_sizes_armed_and_frames_of_both() {
    let mut script = armed_script(2);
    // One page of 2 MiB fits between pages of 4 KiB at both ends.
    let start = BASE + 16 * HUGE - 3 * PAGE;
    script.mmap(0, start, HUGE + 5 * PAGE);
    pause(&mut script, 1_000_000);
    script.store(0, start);
    script.store(0, start + 3 * PAGE);
    let (simulation, stats) = ran(&mfoe(&[], &[]), script);
    let space = space(&simulation);
    assert_eq!(armed(&simulation, space, start, HUGE + 5 * PAGE), (0, 4));
    assert_eq!(["huge.hits", "hits", "huge.armed", "armed"].map(|name| stat(&stats, name)), [1, 1, 3, 5]);
}

#[test]
fn without_a_ready_frame_the_kernel_maps_a_huge_page() {
    let mut script = armed_script(4);
    (0..4).for_each(|page| script.store(0, BASE + page * HUGE));
    let (simulation, stats) = ran(&mfoe(&[("huge_entries", "1"), ("period_cycles", "100000000000")], &[]), script);
    assert_eq!((stat(&stats, "huge.hits"), stat(&stats, "huge.misses")), (1, 3));
    assert_eq!((stats.values["fault.minor.count"], mapped(&simulation, space(&simulation), 4)), (3 + 1, (4, 0)));
}

#[test]
fn the_software_form_zeroes_no_huge_page_in_the_fault() {
    let mut script = armed_script(4);
    (0..4).for_each(|page| script.store(0, BASE + page * HUGE));
    let (simulation, stats) = ran(&mfoe(&[("form", "software")], &[]), script);
    assert_eq!((stat(&stats, "huge.hits"), stats.values["fault.minor.count"]), (4, 4 + 1));
    assert!(stats.values["fault.stage.zeroing.cycles"] < 10_000, "a page of 2 MiB takes more than 100,000");
    assert_eq!(mapped(&simulation, space(&simulation), 4), (4, 0));
}

#[test]
fn after_a_pass_lists_and_charges_equal_the_kernels() {
    let swap = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
    let program = || {
        let mut script = armed_script(4);
        (0..4).for_each(|page| script.store(0, BASE + page * HUGE));
        pause(&mut script, 20_000_000);
        script
    };
    let kept = |simulation: &Simulation| {
        let reclaim = simulation.kernels.os.layers[0].memory.reclaim.as_ref().expect("there is a swap area");
        let pages = simulation.kernels.os.layers[0].spaces[space(simulation).index].resident;
        (reclaim.listed(LruPageKind::Anonymous), reclaim.used_frames(), pages)
    };
    let config = mfoe(&[], &[swap, "kernel.zero_page=off", FAST]);
    let (simulation, stats) = ran(&config, program());
    assert_eq!(
        (stat(&stats, "huge.accounted"), stat(&stats, "huge.accounted_by_calls"), stat(&stats, "huge.replaced")),
        (4, 0, 4)
    );
    let (kernels, _) = ran(&crate::common::config("radix-thp", &[swap, "kernel.zero_page=off"]), program());
    assert_eq!(kept(&simulation), kept(&kernels));
}

/// Effects of a call on four armed pages of 2 MiB, and the entries armed in their range afterwards.
#[test]
fn calls_that_cut_a_huge_page_leave_its_parts_armed() {
    let whole = 512;
    let protect = |addr, len, prot| EventKind::Mprotect { addr, len, prot };
    let read = Protection { read: true, ..Protection::default() };
    let madvise = |advice, addr, len| EventKind::Madvise { addr, len, advice };
    for (call, expected) in [
        (EventKind::Munmap { addr: BASE + HUGE, len: HUGE }, (3, 0)),
        (EventKind::Munmap { addr: BASE + HUGE + 8 * PAGE, len: 16 * PAGE }, (3, whole - 16)),
        (EventKind::Munmap { addr: BASE + HUGE + 8 * PAGE, len: HUGE }, (2, whole)),
        (protect(BASE, 4 * HUGE, read), (4, 0)),
        (protect(BASE, 4 * HUGE, Protection::default()), (0, 0)),
        (protect(BASE + HUGE - PAGE, 2 * PAGE, read), (2, 2 * whole)),
        (protect(BASE + HUGE - PAGE, 2 * PAGE, Protection::default()), (2, 2 * (whole - 1))),
        (madvise(MADV_NOHUGEPAGE, BASE + HUGE, HUGE), (3, whole)),
        (madvise(MADV_NOHUGEPAGE, BASE + HUGE + PAGE, PAGE), (3, whole)),
        // MADV_DONTNEED clears the words in its range, as for 4 KiB pages; a partly cleared page is armed again.
        (madvise(4, BASE + HUGE, HUGE), (3, 0)),
        (madvise(4, BASE + HUGE, PAGE), (4, 0)),
    ] {
        let mut script = armed_script(4);
        script.event(0, call.clone());
        let (simulation, stats) = ran(&mfoe(&[], &[]), script);
        assert_eq!(armed(&simulation, space(&simulation), BASE, 4 * HUGE), expected, "{call:?}");
        assert_eq!(stat(&stats, "huge.hits"), 0);
    }
}

#[test]
fn mapped_pages_are_accounted_for_before_a_call_cuts_them() {
    let mut script = armed_script(4);
    (0..2).for_each(|page| script.store(0, BASE + page * HUGE));
    script.event(0, EventKind::Munmap { addr: BASE + 8 * PAGE, len: 16 * PAGE });
    let (simulation, stats) = ran(&mfoe(&[("period_cycles", "100000000000")], &[]), script);
    let space = space(&simulation);
    assert_eq!((stat(&stats, "huge.hits"), stat(&stats, "huge.accounted_by_calls")), (2, 2));
    assert_eq!((mapped(&simulation, space, 4), armed(&simulation, space, BASE, 4 * HUGE)), ((1, 512 - 16), (2, 0)));
}

/// Advice changes no mapping, but may split one.
#[test]
fn advice_that_splits_a_mapped_page_waits_for_its_accounting() {
    // MADV_NOHUGEPAGE, MADV_SEQUENTIAL, MADV_DONTFORK.
    for advice in [15, 2, 10] {
        let mut script = armed_script(2);
        script.store(0, BASE);
        script.event(0, EventKind::Madvise { addr: BASE + PAGE, len: PAGE, advice });
        pause(&mut script, 20_000_000);
        let (simulation, stats) = ran(&mfoe(&[], &[]), script);
        assert_eq!((stat(&stats, "huge.hits"), stat(&stats, "huge.accounted_by_calls")), (1, 1), "{advice}");
        assert_eq!(mapped(&simulation, space(&simulation), 2), (0, 512), "{advice}");
    }
}

/// Without a free block of 2 MiB, mapped pages are still accounted for, and 4 KiB parts of a page that the kernel had
/// to split are served by the engine.
#[test]
fn without_contiguous_memory_pages_are_accounted_for_and_parts_are_armed() {
    let mut script = armed_script(16);
    for page in 0..16 {
        script.store(0, BASE + page * HUGE + 17 * PAGE);
        pause(&mut script, 1_000_000);
    }
    (0..16).for_each(|page| script.store(0, BASE + page * HUGE + 99 * PAGE));
    let parameters = [("huge_entries", "12"), ("entries", "64"), ("period_cycles", "100000")];
    let machine = ["machine.cores=1", "machine.threads_per_core=1", "machine.memory_bytes=36MiB"];
    let (simulation, stats) = ran(&mfoe(&parameters, &machine), script);
    let (whole, parts) = mapped(&simulation, space(&simulation), 16);
    assert!(stat(&stats, "huge.no_frame") > 0 && parts > 0, "{whole} pages of 2 MiB, {parts} of 4 KiB");
    assert_eq!((stat(&stats, "huge.accounted"), stat(&stats, "huge.hits")), (whole as u64, whole as u64));
    assert_eq!(parts, 2 * (16 - whole));
    assert_eq!(stat(&stats, "hits"), 16 - whole as u64, "the second touch of each");
}

#[test]
fn entries_of_a_process_beyond_its_share_are_disarmed_in_several_steps() {
    let mut script = armed_script(64);
    (0..8).for_each(|page| script.store(0, BASE + page * HUGE));
    pause(&mut script, 20_000_000);
    let config = mfoe(&[("limit_percent", "1")], &["machine.memory_bytes=1GiB", "machine.cores=2"]);
    let (simulation, stats) = ran(&config, script);
    assert_eq!((stat(&stats, "stopped"), armed(&simulation, space(&simulation), BASE, 64 * HUGE)), (1, (0, 0)));
    let taken = stat(&stats, "huge.disarmed");
    assert!(taken > 40, "{taken}");
    let without =
        stat(&ran(&mfoe(&[], &["machine.memory_bytes=1GiB", "machine.cores=2"]), armed_script(64)).1, "arming.cycles");
    let cycles = stat(&stats, "arming.cycles") - without;
    assert!(cycles < without + 12 * taken + 100_000, "{cycles} for {taken} words in a table");
}

#[test]
fn entries_move_whole_if_possible_and_otherwise_in_parts() {
    let to = |addr| EventKind::Mremap { old_addr: BASE, old_len: 2 * HUGE, new_addr: addr, new_len: 2 * HUGE };
    for (place, expected) in [(BASE + 32 * HUGE, (2, 0)), (BASE + 32 * HUGE + 4 * PAGE, (1, 512))] {
        let mut script = armed_script(2);
        script.event(0, to(place));
        let (simulation, _) = ran(&mfoe(&[], &[]), script);
        let space = space(&simulation);
        assert_eq!(
            (armed(&simulation, space, place, 2 * HUGE), armed(&simulation, space, BASE, 2 * HUGE)),
            (expected, (0, 0))
        );
    }
}

#[test]
fn a_child_is_not_armed_and_copies_what_it_writes() {
    let mut script = armed_script(4);
    script.store(0, BASE);
    script.event(0, EventKind::Fork { child: pagelab_trace::ProcessIx(1) });
    let child = script.thread(1);
    (0..2).for_each(|page| script.store(child, BASE + page * HUGE));
    script.store(0, BASE + 2 * HUGE);
    let (simulation, stats) = ran(&mfoe(&[], &[]), script);
    assert_eq!((stat(&stats, "huge.hits"), stats.values["fault.copy.count"]), (2, 1));
    let spaces: Vec<SpaceId> = simulation.programs.inputs[0].spaces().collect();
    assert_eq!(spaces.iter().map(|&space| armed(&simulation, space, BASE, 4 * HUGE).0).collect::<Vec<_>>(), [2, 0]);
}

/// With `madvise`, only advice makes large pages; where a heap has grown, a table exists already.
#[test]
fn large_entries_are_armed_only_in_mappings_that_may_have_them() {
    let madvise = |advice| EventKind::Madvise { addr: BASE, len: 2 * HUGE, advice };
    // The thread runs before or after the advice.
    for (advice, waits, expected) in [(None, false, (0, 1024)), (Some(14), false, (2, 0)), (Some(14), true, (2, 0))] {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE - PAGE, PAGE);
        script.load(0, BASE - PAGE);
        script.mmap(0, BASE, 2 * HUGE);
        if waits {
            pause(&mut script, 1_000_000);
        }
        advice.into_iter().for_each(|advice| script.event(0, madvise(advice)));
        pause(&mut script, 1_000_000);
        let (simulation, _) = ran(&mfoe(&[], &["system.layers.native.large_pages=madvise"]), script);
        assert_eq!(armed(&simulation, space(&simulation), BASE, 2 * HUGE), expected, "{advice:?}");
    }
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE - PAGE, PAGE);
    script.load(0, BASE - PAGE);
    for part in 0..4 {
        script.mmap(0, BASE + part * HUGE / 2, HUGE / 2);
        pause(&mut script, 500_000);
    }
    let (simulation, _) = ran(&mfoe(&[], &[]), script);
    assert_eq!(armed(&simulation, space(&simulation), BASE, 2 * HUGE), (0, 1024), "each half found none or a table");
}

#[test]
fn khugepaged_puts_a_large_page_over_armed_entries() {
    let khugepaged =
        r#"kernel.threads.khugepaged={"scan_sleep_cycles":200000,"pages_to_scan":4096,"max_ptes_none":511}"#;
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE - PAGE, PAGE);
    script.load(0, BASE - PAGE);
    pause(&mut script, 30_000_000);
    for part in 0..2 {
        script.mmap(0, BASE + part * HUGE / 2, HUGE / 2);
        pause(&mut script, 50_000);
    }
    (0..8).for_each(|page| script.store(0, BASE + page * 2 * PAGE));
    pause(&mut script, 3_000_000);
    pause(&mut script, 8_000_000);
    // khugepaged runs before the thread that accounts for pages.
    let (simulation, stats) = ran(&mfoe(&[("period_cycles", "4000000")], &[khugepaged]), script);
    let space = space(&simulation);
    assert!(stat(&stats, "accounted_by_calls") >= 8, "by khugepaged");
    assert!(stat(&stats, "hits") >= 8, "the tables were full");
    assert_eq!(stats.values["khugepaged.collapsed"], 1);
    assert_eq!((mapped(&simulation, space, 1), armed(&simulation, space, BASE, HUGE)), ((1, 0), (0, 0)));
}

/// Section 4.9 with 4.5: tables of pages of 2 MiB adapt, and passes start early for them.
#[test]
fn tables_of_large_pages_adapt_and_pass_early() {
    let ran = |parameters: &[(&str, &str)]| {
        let all = [&[("huge_entries", "8")], parameters].concat();
        let mut script = armed_script(64);
        for page in 0..64 {
            script.store(0, BASE + page * HUGE);
            pause(&mut script, 500_000);
        }
        let (_, stats) = run(&mfoe(&all, &["machine.cores=2", FAST]), script.finish(), &[0]);
        let wanted = stats.values.get("layer.native.fault_engine.huge.wanted_frames").copied();
        (stat(&stats, "huge.hits"), stat(&stats, "huge.misses"), wanted)
    };
    const ONCE: (&str, &str) = ("period_cycles", "1000000000000");
    assert_eq!(ran(&[ONCE]), (8, 56, None), "the first filling");
    assert_eq!(ran(&[ONCE, ("huge_least_entries", "2")]), (2, 62, Some(4 * 2)));
    let (hits, misses, _) = ran(&[ONCE, ("huge_wake_below", "4")]);
    assert_eq!((hits, misses), (64, 0), "each pass begins early enough");
    // A table that was found empty gets twice as many frames, up to all; the others keep the least.
    let (hits, misses, wanted) = ran(&[("period_cycles", "6000000"), ("huge_least_entries", "1")]);
    assert_eq!((hits + misses, wanted), (64, Some(8 + 3)));
    assert!(hits > 30, "{hits} hits");
}
