//! Shootdowns and switches between address spaces, compared with counts by hand.

use crate::common::{ScriptWriter, assert_conserved, config, opener, run};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::base::ids::{CpuId, SpaceId, SpaceIx};
use pagelab_engine::base::page_fault::Origin;
use pagelab_engine::kernel::invalidation::Invalidation;
use pagelab_engine::kernel::vma::VaRange;
use pagelab_engine::machine::pcids::Presence;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{Access, AccessKind, EventKind, ProcessIx};

const BASE: u64 = 0x7f00_0000_0000;

fn page(n: u64) -> u64 {
    BASE + n * 4096
}

/// Shootdowns, interrupted CPUs, spared idle CPUs, flushes for lack of a PCID, and flushes for an old generation.
fn counts(stats: &Statistics) -> [u64; 5] {
    ["count", "interrupts", "spared", "flush.pcid", "flush.generation"]
        .map(|name| stats.values[&format!("shootdown.{name}")])
}

fn on_two_cores(script: ScriptWriter, idle_tlb: &str) -> Statistics {
    let idle = format!("kernel.idle_tlb={idle_tlb}");
    let set = ["engine.sync_quantum_cycles=0", "kernel.pcids=6", &idle];
    let (_, stats) = run(&config("radix", &set), script.finish(), &[0, 2]);
    assert_conserved(&stats);
    stats
}

/// Lets the other thread continue when the first has come here: both wait at the event.
fn wait_for_each_other(script: &mut ScriptWriter) {
    script.mmap(0, page(200), 4096);
}

/// Keeps a thread busy for longer than anything else in these tests.
fn keep_busy(script: &mut ScriptWriter, thread: u32, page: u64) {
    (0..20_000).for_each(|n| script.load(thread, page + n % 64 * 64));
}

#[test]
fn a_cpu_that_runs_the_space_is_interrupted_and_loses_the_pages_only() {
    let mut script = ScriptWriter::new();
    let other = script.thread(0);
    script.mmap(0, BASE, 0x10_000);
    (0..4).for_each(|n| script.store(0, page(n)));
    wait_for_each_other(&mut script);
    (0..4).for_each(|n| script.load(other, page(n)));
    script.event(0, EventKind::Munmap { addr: page(3), len: 4096 });
    (0..3).for_each(|n| script.load(other, page(n)));
    // The interrupt updated its generation: it may wait and resume without a flush.
    keep_busy(&mut script, 0, page(0));
    script.mmap(0, page(100), 4096);
    script.load(other, page(0));
    let stats = on_two_cores(script, "lazy");
    assert_eq!(counts(&stats), [1, 1, 0, 2, 0]);
    assert!(stats.values["cycles.stolen"] > 0);
}

#[test]
fn a_cpu_that_interrupts_another_waits_for_it() {
    let run = |ipi_cycles: u64| {
        let mut script = ScriptWriter::new();
        let other = script.thread(0);
        script.mmap(0, BASE, 0x10_000);
        (0..4).for_each(|n| script.store(0, page(n)));
        wait_for_each_other(&mut script);
        keep_busy(&mut script, other, page(0));
        script.event(0, EventKind::Munmap { addr: page(3), len: 4096 });
        let set = [format!("kernel.shootdown_ipi_cycles={ipi_cycles}"), "engine.sync_quantum_cycles=0".to_owned()];
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let (_, stats) = run(&config("radix", &set), script.finish(), &[0, 2]);
        assert_eq!(counts(&stats)[..2], [1, 1]);
        stats.values["cycles.kernel"]
    };
    assert_eq!(run(5000) - run(0), 5000);
}

/// A thread of the first process and a thread of its child, both on the second of two CPUs.
fn on_the_second_cpu(script: &mut ScriptWriter) -> (u32, u32) {
    let other = script.thread(0);
    // It takes the first CPU, so that the child gets the second.
    let passing = script.thread(0);
    script.event(passing, EventKind::ThreadExit);
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    (other, script.thread(1))
}

/// Two threads on two CPUs; the second's CPU runs a child in between. With `unmap`, the first thread unmaps a page
/// meanwhile.
fn switched_away(unmap: bool) -> Statistics {
    let mut script = ScriptWriter::new();
    let (other, child) = on_the_second_cpu(&mut script);
    script.mmap(0, BASE, 0x10_000);
    (0..4).for_each(|n| script.store(0, page(n)));
    (0..4).for_each(|n| script.store(other, page(n)));
    script.mmap(child, page(100), 4096);
    script.store(child, page(100));
    if unmap {
        script.event(0, EventKind::Munmap { addr: page(3), len: 4096 });
    } else {
        script.mmap(0, page(200), 4096);
    }
    (0..3).for_each(|n| script.load(other, page(n)));
    on_two_cores(script, "lazy")
}

#[test]
fn a_cpu_that_has_switched_away_flushes_the_space_when_it_comes_back() {
    let (kept, flushed) = (switched_away(false), switched_away(true));
    assert_eq!(counts(&kept), [0, 0, 0, 3, 0]);
    assert_eq!(counts(&flushed), [1, 0, 0, 3, 1]);
    let walks = |stats: &Statistics| stats.values["dtlb.l2.misses"];
    assert_eq!(walks(&flushed) - walks(&kept), 3, "none of the three pages has changed, but all translations are gone");
}

/// One CPU waits for the other, which breaks `breaks` sharings of the zero page meanwhile.
fn idle(idle_tlb: &str, breaks: u64) -> Statistics {
    let mut script = ScriptWriter::new();
    let other = script.thread(0);
    script.mmap(0, BASE, 0x10_000);
    (0..3).for_each(|n| script.load(0, page(n)));
    script.load(other, page(0));
    keep_busy(&mut script, 0, page(0));
    (0..breaks).for_each(|n| script.store(0, page(n)));
    // Where the other thread waits.
    script.mmap(0, page(100), 4096);
    script.load(other, page(0));
    on_two_cores(script, idle_tlb)
}

#[test]
fn an_idle_cpu_is_skipped_or_flushed_and_catches_up_when_it_resumes() {
    for (idle_tlb, breaks, expected) in [
        ("lazy", 0, [0, 0, 0, 2, 0]),
        ("lazy", 2, [2, 0, 2, 2, 1]),
        ("leave", 0, [0, 0, 0, 2, 0]),
        ("leave", 2, [2, 0, 0, 2, 1]),
        ("interrupt", 0, [0, 0, 0, 2, 0]),
        // The first interrupt makes the CPU leave the space.
        ("interrupt", 2, [2, 1, 0, 2, 1]),
    ] {
        assert_eq!(counts(&idle(idle_tlb, breaks)), expected, "{idle_tlb} {breaks}");
    }
}

#[test]
fn a_lazy_cpu_is_interrupted_where_page_tables_are_freed() {
    for (pages, expected) in [(1, [1, 0, 1, 2, 0]), (2, [1, 1, 0, 2, 0])] {
        let mut script = ScriptWriter::new();
        let other = script.thread(0);
        script.mmap(0, BASE, 2 * 4096);
        (0..2).for_each(|n| script.store(0, page(n)));
        // As in `wait_for_each_other`, but with a leaf table of its own.
        script.mmap(0, page(1024), 4096);
        script.load(other, page(0));
        script.event(other, EventKind::ThreadExit);
        keep_busy(&mut script, 0, page(0));
        script.event(0, EventKind::Munmap { addr: page(0), len: pages * 4096 });
        assert_eq!(counts(&on_two_cores(script, "lazy")), expected, "{pages} of 2 pages are unmapped");
    }
}

/// Processes that alternate on one CPU, with one page each: switches with a flush, and second-level misses.
fn in_turn(processes: u32, pcids: u32, rounds: u64) -> (u64, u64) {
    let mut script = ScriptWriter::new();
    let mut threads = vec![0];
    for child in 1..processes {
        script.event(0, EventKind::Fork { child: ProcessIx(child) });
        threads.push(script.thread(child));
    }
    let own = |thread: u32| page(u64::from(thread) * 3);
    threads.iter().for_each(|&thread| script.mmap(thread, own(thread), 4096));
    for _ in 0..rounds {
        threads.iter().for_each(|&thread| script.store(thread, own(thread)));
    }
    let set = [&format!("kernel.pcids={pcids}"), r#"kernel.scheduler={"kind":"recorded"}"#];
    let (_, stats) = run(&config("radix", &set), script.finish(), &[0]);
    let switches = if processes == 1 { 0 } else { u64::from(processes) * rounds - 1 };
    assert_eq!(stats.values["context_switches"], switches);
    assert_eq!(counts(&stats)[..3], [0; 3]);
    assert_eq!(counts(&stats)[4], 0);
    (stats.values["shootdown.flush.pcid"], stats.values["dtlb.l2.misses"])
}

#[test]
fn pcids_are_taken_in_turn() {
    for (processes, pcids, flushes_of_three_rounds) in [
        // Each process has its own PCID.
        (6, 6, 6),
        // The PCID reused next is always that of the process that runs next.
        (7, 6, 21),
        (2, 1, 6),
        (2, 0, 6),
        (1, 0, 1),
    ] {
        let (_, once) = in_turn(processes, pcids, 1);
        let (flushes, misses) = in_turn(processes, pcids, 3);
        let case = format!("{processes} processes, {pcids} PCIDs");
        assert_eq!(flushes, flushes_of_three_rounds, "{case}");
        // After a flush the page is walked again.
        assert_eq!(misses - once, flushes - u64::from(processes), "{case}");
    }
}

#[test]
fn a_hardware_thread_does_not_use_what_its_sibling_left_behind() {
    let mut script = ScriptWriter::new();
    // The third CPU is another core; the child takes the first.
    let (sibling, third) = (script.thread(0), script.thread(0));
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    script.mmap(0, BASE, 0x10_000);
    (0..2).for_each(|n| script.store(0, page(n)));
    script.mmap(child, page(100), 4096);
    script.store(child, page(100));
    script.event(third, EventKind::Munmap { addr: page(1), len: 4096 });
    (0..2).for_each(|n| script.load(sibling, page(n)));
    let set = ["engine.sync_quantum_cycles=0", "kernel.pcids=6"];
    let (_, stats) = run(&config("radix", &set), script.finish(), &[0, 1, 2]);
    // `--check` would find the stale translation.
    assert_eq!(stats.values["accesses.refused"], 1);
    assert_eq!(counts(&stats), [1, 0, 0, 3, 0]);
}

#[test]
fn a_space_that_ends_leaves_the_cpus_that_have_switched_away() {
    let mut script = ScriptWriter::new();
    let (other, child) = on_the_second_cpu(&mut script);
    script.mmap(0, BASE, 4096);
    script.store(other, BASE);
    script.mmap(child, page(100), 4096);
    script.store(child, page(100));
    script.event(0, EventKind::Exit { code: 0 });
    let (mut simulation, _) = run(&config("radix", &[]), script.finish(), &[0, 2]);
    let mut held = |space: SpaceIx, va| {
        let asid = simulation.kernels.os.layers[0].spaces[space].asid;
        simulation.hw.units[1].l2.look_up(asid, VirtAddr(va), Origin::Program).is_some()
    };
    assert_eq!((held(SpaceIx(1), BASE), held(SpaceIx(2), page(100))), (false, true));
}

#[test]
fn a_space_that_returns_as_another_after_its_end_is_flushed() {
    let mut script = ScriptWriter::new();
    for child in 1..4 {
        script.event(0, EventKind::Fork { child: ProcessIx(child) });
        let thread = script.thread(child);
        script.mmap(thread, BASE, 4096);
        script.store(thread, BASE);
        script.event(thread, EventKind::Exit { code: 0 });
    }
    let (simulation, stats) = run(&config("radix", &["kernel.pcids=6"]), script.finish(), &[0]);
    assert_eq!(simulation.kernels.os.layers[0].spaces.len(), 3, "the children's tag is one and the same");
    // The exits are shootdowns of the children's pages.
    assert_eq!(counts(&stats), [3, 0, 0, 3, 0]);
}

/// The hypervisor takes the first GiB of its guest's memory away, while CPU 0 runs the guest and CPU 1 the hypervisor.
fn take_from_guest(system: &str, depth: usize) {
    let nested_tlb = r#"machine.tlb.nested={"entries":64,"ways":4,"latency_cycles":1}"#;
    let placed = |cpu| {
        let source = opener("seq:size=64KiB,passes=1")().unwrap();
        PlacedSource { source, cpus: vec![cpu], memory_limit: None }
    };
    // It stops at the last access, before the programs end.
    let mut simulation =
        Simulation::new(&config(system, &[nested_tlb]), vec![placed(0), placed(2)], Some(8192)).unwrap();
    simulation.run(&mut |_| true).unwrap();
    let host = simulation.kernels.os.layers.iter().position(|layer| layer.host.is_none()).unwrap();
    let memory = SpaceId { layer: host.into(), index: SpaceIx(1) };
    assert_eq!(simulation.kernels.guests_in(memory).len(), depth);
    let program = simulation.programs.inputs[0].spaces().next().unwrap();
    let address_space = &simulation.kernels.os.layers[program.layer].spaces[program.index];
    let (asid, last_page) = (address_space.asid, address_space.vmas.iter().last().unwrap().end - 4096);
    let held = |simulation: &mut Simulation| simulation.hw.units[0].l2.look_up(asid, last_page, Origin::Program);
    let translation = held(&mut simulation).expect("the last page has just been used");
    simulation.scheduler.cpus[0].presence = Presence::Running;
    // The CPU's last access was to this page: the filter would answer the next one without the TLB.
    let again = Access::new(AccessKind::Load, last_page.0, 8);
    simulation.scheduler.cpus[0].filter.code_page = 0;
    simulation.scheduler.cpus[0].filter.learn(last_page, translation, 0b1111);
    assert!(simulation.scheduler.cpus[0].filter.answers(&again));

    let range = VaRange { start: VirtAddr(0), end: VirtAddr(1 << 30) };
    let gone = Invalidation { ranges: vec![range], pages: 1, ..Invalidation::default() };
    simulation.invalidate(CpuId(1), memory, &gone, false);
    assert!(held(&mut simulation).is_none());
    simulation.scheduler.cpus[0].filter.code_page = 0;
    assert!(!simulation.scheduler.cpus[0].filter.answers(&again));
    assert_eq!(simulation.kernels.shootdowns.interrupts, 1, "the CPU that runs a guest");
    let nested = simulation.hw.units[0].nested.as_ref().unwrap();
    let host_asid = simulation.kernels.os.asid(memory);
    let held = (0..1 << 18).any(|frame| nested.holds(host_asid, VirtAddr(frame << 12)));
    assert!(!held, "the first GiB is all that there is");
}

#[test]
fn a_hypervisors_shootdown_reaches_its_guests_translations() {
    take_from_guest("nested-radix", 1);
    take_from_guest("nested-3", 2);
}
