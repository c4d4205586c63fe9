//! Programs with a recorded kernel: both access a machine's memory at their own addresses, with pages of 4 KiB and 2
//! MiB, and the simulator's kernel adds nothing to the recorded one.

use crate::common::{ScriptWriter, checked, config, frames_from, mmap, run};
use pagelab_engine::base::addr::PageSize;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, Maker, MapFlags, ProcessIx, Protection};

const PAGE: u64 = 4096;
const LARGE: u64 = 2 << 20;
/// Where the kernel maps the machine's memory, and the program its pages.
const DIRECT_MAP: u64 = 0x8880_0000_0000;
const USER: u64 = 0x7f00_0000_0000;
const OWN: u32 = MapFlags::SHARED | MapFlags::RECORDED;
/// Without the cost of a CPU's first switch to a program.
const QUIET: &[&str] = &["kernel.flush_space_cycles=0"];
const KERNELS: u32 = OWN | MapFlags::HUGETLB;
const NOTHING: Protection = Protection { read: false, write: false, execute: false };
const READ: Protection = Protection { read: true, write: false, execute: false };

fn map(addr: u64, len: u64, prot: Protection, flags: u32, physical: u64) -> EventKind {
    EventKind::Mmap { addr, len, prot, flags: MapFlags(flags), file: Some("memory".into()), file_offset: physical }
}

/// Maps the program's page `number` after `USER` to this physical address.
fn user(number: u64, prot: Protection, physical: u64) -> EventKind {
    map(USER + number * PAGE, PAGE, prot, OWN, physical)
}

fn fault(number: u64, write: bool) -> EventKind {
    EventKind::Fault { addr: USER + number * PAGE, write }
}

fn by_kernel(script: &mut ScriptWriter, kind: AccessKind, physical: u64) {
    script.access_of(0, Access { maker: Maker::KERNEL, ..Access::new(kind, DIRECT_MAP + physical, 8) });
}

/// A machine of 4 MiB, all of which the kernel maps.
fn machine() -> ScriptWriter {
    let mut script = ScriptWriter::new();
    script.event(0, map(DIRECT_MAP, 2 * LARGE, Protection::READ_WRITE, KERNELS, 0));
    script
}

fn stat(stats: &Statistics, name: &str) -> u64 {
    stats.values[name]
}

/// The simulator's kernel does nothing for the program.
fn assert_no_kernel(stats: &Statistics) {
    for name in ["cycles.fault", "cycles.kernel", "fault.minor.count", "cache.refs.kernel", "mapping.calls"] {
        assert_eq!(stat(stats, name), 0, "{name}");
    }
    assert_eq!(stat(stats, "accesses.refused"), 0);
}

fn size_at(simulation: &Simulation, addr: u64) -> PageSize {
    let space = simulation.programs.inputs[0].spaces().next().unwrap();
    use pagelab_engine::base::addr::VirtAddr;
    simulation.kernels.os.layers[space.layer].mapped(space.index, VirtAddr(addr), VirtAddr(addr + 1))[0].mapping.size
}

#[test]
fn kernel_and_program_reach_the_same_line() {
    let mut script = machine();
    script.event(0, user(0, Protection::READ_WRITE, LARGE + 5 * PAGE));
    by_kernel(&mut script, AccessKind::Store, LARGE + 5 * PAGE + 0x40);
    script.load(0, USER + 0x48);
    script.load(0, USER + 0x80);
    let (simulation, stats) = checked("radix", QUIET, script);
    assert_no_kernel(&stats);
    assert_eq!(stat(&stats, "l1d.misses.data"), 2, "the program finds what the kernel has stored in the L1");
    assert_eq!(stat(&stats, "accesses.by_kernel.refs.dram"), 1);
    assert_eq!(stat(&stats, "dtlb.l2.misses"), 2, "each by its own translation");
    assert_eq!(stat(&stats, "accesses.by_kernel.dtlb.l2.misses"), 1);
    assert_eq!(stat(&stats, "recorded.pages"), 3);
    assert_eq!([DIRECT_MAP, USER].map(|addr| size_at(&simulation, addr)), [PageSize::Size2M, PageSize::Size4K]);
    let (large, small) = (frames_from(&simulation, DIRECT_MAP + LARGE, 1), frames_from(&simulation, USER, 1));
    assert_eq!(small[0].unwrap(), large[0].unwrap() + 5);
}

#[test]
fn walks_end_where_the_pages_of_each_are_mapped() {
    let mut script = machine();
    script.event(0, user(0, Protection::READ_WRITE, 0));
    by_kernel(&mut script, AccessKind::Load, 0);
    script.load(0, USER);
    let (_, stats) = checked("radix-no-mmu-cache", &[], script);
    assert_eq!((stat(&stats, "walk.count"), stat(&stats, "walk.refs")), (2, 3 + 4));
    assert_eq!((stat(&stats, "accesses.by_kernel.walk.count"), stat(&stats, "accesses.by_kernel.walk.refs")), (1, 3));
}

/// A first touch of each of these pages.
fn first_touches(pages: u64) -> ScriptWriter {
    let mut script = machine();
    for number in 0..pages {
        script.event(0, fault(number, true));
        (0..64).for_each(|line| by_kernel(&mut script, AccessKind::Store, number * PAGE + line * 64));
        script.event(0, user(number, Protection::READ_WRITE, number * PAGE));
        script.store(0, USER + number * PAGE);
        script.load(0, USER + number * PAGE + 8);
    }
    script
}

#[test]
fn a_recorded_fault_is_only_a_failed_walk() {
    const PAGES: u64 = 300;
    let (_, stats) = checked("radix", QUIET, first_touches(PAGES));
    assert_no_kernel(&stats);
    assert_eq!((stat(&stats, "recorded.faults"), stat(&stats, "recorded.faults.amiss")), (PAGES, 0));
    assert_eq!(stat(&stats, "walk.aborted.count"), PAGES);
    let kernels =
        ["base", "data_stall", "translation"].map(|class| stat(&stats, &format!("accesses.by_kernel.cycles.{class}")));
    assert_eq!(stat(&stats, "accesses.by_kernel.cycles"), kernels.iter().sum::<u64>());
    assert!(stat(&stats, "accesses.by_kernel.cycles") < stat(&stats, "cycles"), "the rest is the program's");
    // The same program under the simulator's own kernel misses and walks as often.
    let mut alone = ScriptWriter::new();
    alone.mmap(0, USER, PAGES * PAGE);
    for number in 0..PAGES {
        alone.store(0, USER + number * PAGE);
        alone.load(0, USER + number * PAGE + 8);
    }
    let (_, modelled) = checked("radix", QUIET, alone);
    assert!(stat(&modelled, "cycles.fault") > 0);
    for name in ["dtlb.l1.misses", "dtlb.l2.misses", "walk.count"] {
        let kernels = stats.values.get(&format!("accesses.by_kernel.{name}")).copied().unwrap_or(0);
        assert_eq!(stat(&stats, name) - kernels, stat(&modelled, name), "{name}");
    }
    assert_eq!(stat(&stats, "dtlb.l2.retries"), stat(&modelled, "dtlb.l2.retries"));
    assert_eq!(stat(&stats, "walk.aborted.count"), stat(&modelled, "walk.aborted.count"));
}

#[test]
fn a_page_that_gets_another_frame_leaves_the_tlb() {
    let mut script = machine();
    script.event(0, user(0, READ, 0));
    script.load(0, USER);
    script.event(0, fault(0, true));
    by_kernel(&mut script, AccessKind::Store, PAGE + 64);
    script.event(0, user(0, Protection::READ_WRITE, PAGE));
    script.store(0, USER + 64);
    let (simulation, stats) = checked("radix", QUIET, script);
    assert_no_kernel(&stats);
    assert_eq!((stat(&stats, "recorded.faults"), stat(&stats, "recorded.faults.amiss")), (1, 0));
    assert_eq!(stat(&stats, "l1d.misses.data"), 2, "the old page and the new one, which the kernel has written");
    assert_eq!(stat(&stats, "shootdown.count"), 1);
    let [new, old] = [USER, DIRECT_MAP].map(|addr| frames_from(&simulation, addr, 1)[0].unwrap());
    assert_eq!(new, old + 1);
}

#[test]
fn missing_pages_fault_and_present_ones_are_reported() {
    let mut script = machine();
    script.event(0, user(0, Protection::READ_WRITE, 0));
    script.store(0, USER);
    script.event(0, fault(0, true));
    script.event(0, user(0, NOTHING, 0));
    script.event(0, fault(0, false));
    script.event(0, user(0, READ, PAGE));
    script.load(0, USER);
    let (_, stats) = checked("radix", QUIET, script);
    assert_no_kernel(&stats);
    assert_eq!((stat(&stats, "recorded.faults"), stat(&stats, "recorded.faults.amiss")), (2, 1));
    assert_eq!(stat(&stats, "walk.aborted.count"), 1);
}

#[test]
fn forked_children_and_cut_mappings_keep_the_frames() {
    let mut script = machine();
    script.event(0, user(0, Protection::READ_WRITE, LARGE + PAGE));
    script.store(0, USER);
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    script.load(child, USER);
    script.load(child, DIRECT_MAP + LARGE + PAGE);
    script.event(0, EventKind::Munmap { addr: DIRECT_MAP + LARGE, len: PAGE });
    by_kernel(&mut script, AccessKind::Store, LARGE + PAGE);
    let (simulation, stats) = checked("radix", QUIET, script);
    assert_eq!(stat(&stats, "l1d.misses.data"), 1, "all of it is one line");
    let layer = &simulation.kernels.os.layers[simulation.programs.inputs[0].spaces().next().unwrap().layer];
    assert_eq!(layer.memory.page_use.cached_frames(), 2 * LARGE / PAGE);
    assert_eq!(frames_from(&simulation, DIRECT_MAP + LARGE, 2)[0], None, "what was cut off is gone");
}

#[test]
fn pages_recorded_one_by_one_are_mapped_one_by_one() {
    let mut script = ScriptWriter::new();
    script.event(0, user(0, Protection::READ_WRITE, 5 * PAGE));
    script.event(0, map(DIRECT_MAP, LARGE, Protection::READ_WRITE, KERNELS, 0));
    by_kernel(&mut script, AccessKind::Store, 5 * PAGE);
    script.load(0, USER);
    let (simulation, stats) = checked("radix", QUIET, script);
    assert_no_kernel(&stats);
    assert_eq!(stat(&stats, "l1d.misses.data"), 1);
    assert_eq!(size_at(&simulation, DIRECT_MAP), PageSize::Size4K);
}

#[test]
fn systems_without_large_pages_and_guests_reach_the_same_line_too() {
    for system in
        ["hashed-open", "flattened", "elastic-cuckoo", "radix-eager", "nested-radix-cold", "nested-radix-shadow-cold"]
    {
        let mut script = first_touches(20);
        script.load(0, USER + 19 * PAGE + 64);
        let (_, stats) = checked(system, &[], script);
        assert_eq!(stat(&stats, "fault.minor.count"), 0, "{system}");
        assert_eq!(stat(&stats, "accesses.refused"), 0, "{system}");
        // Pages that a host zeroes for its guest are in the L1, too.
        let missed = if system.starts_with("nested") { 0 } else { 20 * 64 };
        assert_eq!(stat(&stats, "l1d.misses.data"), missed, "{system}: the program finds what the kernel has zeroed");
    }
}

#[test]
fn a_recorded_mapping_of_no_file_is_none() {
    let mut script = ScriptWriter::new();
    for flags in [OWN | MapFlags::ANONYMOUS, MapFlags::PRIVATE | MapFlags::RECORDED] {
        let EventKind::Mmap { addr, len, prot, .. } = mmap(USER, PAGE, READ) else { unreachable!("it is one") };
        let file = Some("memory".into()).filter(|_| flags & MapFlags::ANONYMOUS == 0);
        script.event(0, EventKind::Mmap { addr, len, prot, flags: MapFlags(flags), file, file_offset: 0 });
    }
    script.load(0, USER);
    let (_, stats) = run(&config("radix", &[]), script.finish(), &[0]);
    assert_eq!((stat(&stats, "mapping.impossible"), stat(&stats, "accesses.refused")), (2, 1));
}

#[test]
fn all_accesses_of_the_kernel_are_counted() {
    let mut script = machine();
    script.event(0, user(0, Protection::READ_WRITE, 0));
    let all_by_kernel = |script: &mut ScriptWriter, kind, times| (0..times).for_each(|_| by_kernel(script, kind, 8));
    // Repeated accesses to one line, which need no look-up in TLBs or caches.
    all_by_kernel(&mut script, AccessKind::Load, 100);
    (0..50).for_each(|_| script.load(0, USER));
    all_by_kernel(&mut script, AccessKind::Store, 7);
    // Kernel and program at the same address.
    (0..10).for_each(|_| script.load(0, DIRECT_MAP + 8));
    all_by_kernel(&mut script, AccessKind::Load, 3);
    let (_, stats) = checked("radix", &["machine.core.l1_hit_hidden=false"], script);
    assert_eq!((stat(&stats, "accesses"), stat(&stats, "accesses.by_kernel")), (170, 110));
    assert_eq!(stat(&stats, "accesses.by_kernel.instructions"), 110);
    assert_eq!((stat(&stats, "accesses.by_kernel.refs"), stat(&stats, "accesses.by_kernel.refs.l1")), (110, 109));
    let mut only = machine();
    all_by_kernel(&mut only, AccessKind::Load, 110);
    let set = [QUIET, &["machine.core.l1_hit_hidden=false"]].concat();
    let (_, stats) = checked("radix", &set, only);
    assert_eq!(stat(&stats, "accesses.by_kernel.cycles"), stat(&stats, "cycles"), "nothing else took any");
}
