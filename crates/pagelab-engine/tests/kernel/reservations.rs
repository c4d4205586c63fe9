//! PTEMagnet: reserved, used and released frames, compared with cases computed by hand.

use crate::common::{ScriptWriter, checked, frames_from};
use pagelab_engine::base::step::{RefKind, Step};
use pagelab_engine::config::{Assembly, assemble};
use pagelab_engine::kernel::context::KernelContext;
use pagelab_engine::machine::simulation::{PlacedSource, Simulation};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_engine::programs::load::BackgroundLoad;
use pagelab_engine::run::{Request, run};
use pagelab_trace::{EventKind, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const PTEMAGNET: &str = r#"system.layers.native.placement={"kind":"ptemagnet"}"#;
const MADV_DONTNEED: u32 = 4;

fn page(n: u64) -> u64 {
    BASE + n * 4096
}

fn reservations(stats: &Statistics, what: &str) -> u64 {
    stats.values[&format!("layer.native.reservations.{what}")]
}

#[test]
fn pages_of_a_group_stay_together_in_whatever_order_they_are_touched() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 * 4096);
    let other = BASE + (1 << 30);
    script.mmap(0, other, 64 * 4096);
    // Two arrays grow alternately, one of them backwards.
    for n in 0..32 {
        script.store(0, page(31 - n));
        script.store(0, other + n * 4096);
    }
    script.store(0, page(40));
    let (simulation, stats) = checked("radix", &[PTEMAGNET], script);
    let frames = frames_from(&simulation, BASE, 64);
    for group in frames[..32].chunks(8) {
        let first = group[0].unwrap();
        assert_eq!(first % 8, 0);
        assert_eq!(group, (first..first + 8).map(Some).collect::<Vec<_>>());
    }
    assert_eq!(frames[40].unwrap() % 8, 0, "its place in the block is that in the group");
    assert_eq!((reservations(&stats, "made"), reservations(&stats, "given")), (4 + 4 + 1, 65));
    assert_eq!(reservations(&stats, "ended.full"), 8);
    assert_eq!(reservations(&stats, "unused_bytes"), 7 * 4096);
    assert_eq!(reservations(&stats, "peak_unused_bytes"), 14 * 4096, "both groups' begin at once");
    assert_eq!(stats.values["fault.minor.count"], 65, "as many as without");
    assert_eq!(stats.values["layer.native.fault.zeroed_bytes"], 65 * 4096, "a page is zeroed when it is given out");
    let mut plain = ScriptWriter::new();
    plain.mmap(0, BASE, 64 * 4096);
    plain.store(0, page(40));
    let (_, stats) = checked("radix", &[], plain);
    assert!(!stats.values.contains_key("layer.native.reservations.made"));
}

#[test]
fn a_look_up_and_a_group_take_what_a_real_kernel_executes() {
    let run_with = |placement: &str| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 64 * 4096);
        // Three pages of a group, and one of another.
        [3, 5, 0, 8].into_iter().for_each(|n| script.store(0, page(n)));
        // Half as many cycles as instructions.
        let allocation = ["kernel.fault.allocation.instructions=600", "kernel.fault.allocation.cycles=300"];
        let placement = format!("system.layers.native.placement={placement}");
        let (_, stats) = checked("radix", &[&placement, allocation[0], allocation[1]], script);
        let value = |name: &str| stats.values[&format!("fault.stage.allocation.{name}")];
        let lines: u64 = ["l1", "l2", "l3", "remote", "dram"].iter().map(|at| value(&format!("lines.{at}"))).sum();
        (value("instructions"), stats.values["fault.preset.cycles"], lines)
    };
    let traced = |look_up: &str, group: &str| {
        let path = |numbers: &str| format!(r#"{{"instructions":{numbers}}}"#);
        run_with(&format!(
            r#"{{"kind":"ptemagnet","as_traced":{{"look_up":{},"group":{}}}}}"#,
            path(look_up),
            path(group)
        ))
    };
    let nothing = r#"0,"cpu":0,"space":0,"kernel":0"#;
    let (none, cycles, lines) = traced(nothing, nothing);
    assert_eq!(none, 0);
    let counted = traced(r#"257,"cpu":0,"space":0,"kernel":0"#, r#"890,"cpu":0,"space":0,"kernel":0"#);
    assert_eq!(counted, (4 * 257 + 2 * 890, cycles + 4 * 129 + 2 * 445, lines));
    // The first fault allocates the memory of the lines after its look-up: cpu and kernel lines count for three
    // look-ups and two groups, space lines for four and two.
    let touched = traced(r#"0,"cpu":3,"space":2,"kernel":1"#, r#"0,"cpu":5,"space":0,"kernel":7"#);
    assert_eq!(touched, (0, cycles, lines + 3 * (3 + 1) + 4 * 2 + 2 * (5 + 7)));
    // Without locks, the four nodes are half as large, and the three look-ups that find a leaf write one line less.
    let published = run_with(r#"{"kind":"ptemagnet"}"#);
    assert_eq!((published.0, published.2), (4 * 60 + 2 * 600, lines + 4 * 64 + 3));
}

#[test]
fn reservations_are_for_the_sources_that_are_named() {
    let script = || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 64 * 4096);
        (0..16).for_each(|n| script.store(0, page(n)));
        script
    };
    let made = |settings: &[&str]| {
        let config = crate::common::config("radix", &[&[PTEMAGNET][..], settings].concat());
        let sources = vec![(script().finish(), &[0][..]), (script().finish(), &[2][..])];
        let (_, stats) = crate::common::run_beside(&config, sources, BackgroundLoad::default());
        assert_eq!(stats.values["fault.minor.count"], 32);
        reservations(&stats, "made")
    };
    let named = "system.layers.native.placement_for";
    assert_eq!(made(&[]), 4);
    assert_eq!(made(&[&format!(r#"{named}=["source.1"]"#)]), 2);
    assert_eq!(made(&[&format!(r#"{named}=["source.0","source.1"]"#)]), 4);
    assert_eq!(made(&[&format!("{named}=[]")]), 0);
}

#[test]
fn a_source_that_does_not_exist_has_no_policy() {
    let error = |system: &str, setting: &str| {
        let request = Request {
            sources: vec!["seq:size=64KiB".to_owned()],
            with: vec!["seq:size=64KiB".to_owned(); 2],
            systems: vec!["radix".to_owned(), system.to_owned()],
            set: vec![setting.to_owned()],
            ..Request::default()
        };
        run(&request, &|_| panic!("it runs")).unwrap_err().to_string()
    };
    let text = error("radix-ptemagnet", r#"system.layers.native.placement_for=["co_runner.0","co_runner.2"]"#);
    let there = "no source on this layer is `co_runner.2`; the sources here: source.0, co_runner.0, co_runner.1";
    assert!(text.contains("system.layers.native.placement_for") && text.contains(there), "{text}");
}

#[test]
fn contiguity_distinguishes_scattered_from_adjacent_frames() {
    let contiguity = |set: &[&str], ends: bool| {
        let mut script = ScriptWriter::new();
        let other = BASE + (1 << 30);
        [BASE, other].into_iter().for_each(|addr| script.mmap(0, addr, 64 * 4096));
        for n in 0..32 {
            script.store(0, page(n));
            script.store(0, other + n * 4096);
        }
        script.store(0, page(40));
        script.load(0, page(50));
        if ends {
            script.event(0, EventKind::Exit { code: 0 });
        }
        let (_, stats) = checked("radix", set, script);
        ["groups", "pte_lines", "full_groups", "contiguous_groups"]
            .map(|what| stats.values[&format!("layer.native.contiguity.{what}")])
    };
    for ends in [false, true] {
        assert_eq!(contiguity(&[PTEMAGNET], ends), [9, 9, 8, 8], "the page that is only read is the zero page");
        // Adjacent frames belong to the two arrays alternately: eight pages are in sixteen frames.
        let buddy = r#"system.layers.native.frame_allocator={"kind":"buddy"}"#;
        let [groups, lines, full, contiguous] = contiguity(&[buddy], ends);
        assert_eq!([groups, full, contiguous], [9, 8, 0]);
        assert!((17..=25).contains(&lines), "{lines}: two or three lines a group");
    }
    assert_eq!(contiguity(&[r#"system.layers.native.folios=["32KiB"]"#], false), [9, 9, 9, 9], "whole folios at once");
}

#[test]
fn pages_without_a_whole_group_are_placed_in_the_ordinary_way() {
    let mut script = ScriptWriter::new();
    // Pages 3 to 20: only the group of pages 8 to 15 is whole.
    script.mmap(0, page(3), 18 * 4096);
    (3..21).for_each(|n| script.store(0, page(n)));
    let (_, stats) = checked("radix", &[PTEMAGNET], script);
    assert_eq!((reservations(&stats, "made"), reservations(&stats, "given")), (1, 8));
    assert_eq!(stats.values["layer.native.pages.4K"], 18);
}

#[test]
fn unmapping_and_copying_end_a_reservation() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 * 4096);
    // Groups 0 to 3 with two pages each.
    (0..4).for_each(|group| (0..2).for_each(|n| script.store(0, page(8 * group + n))));
    // Unmapping a page ends the reservation of group 0, discarding one that of group 1. Page 2 is then allocated
    // singly, since its group is no longer wholly mapped; page 10 gets a new reservation.
    script.event(0, EventKind::Munmap { addr: page(1), len: 4096 });
    script.event(0, EventKind::Madvise { addr: page(8), len: 4096, advice: MADV_DONTNEED });
    script.store(0, page(2));
    script.store(0, page(10));
    // After a fork the parent's store to group 2 copies the page and ends its reservation; the child has reservations
    // only for new pages.
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    script.store(0, page(16));
    script.store(child, page(25));
    script.store(child, page(40));
    script.event(child, EventKind::Exit { code: 0 });
    let (_, stats) = checked("radix", &[PTEMAGNET], script);
    assert_eq!(reservations(&stats, "made"), 4 + 1 + 1, "four, group 1 anew, the child's page 40");
    assert_eq!(reservations(&stats, "ended.unmapped"), 2 + 1, "groups 0 and 1, the child's");
    assert_eq!(reservations(&stats, "ended.copied"), 1, "the child's copy of page 25 has no reservation to end");
    // Remaining: group 1's new reservation with one page, group 3's with two.
    assert_eq!(reservations(&stats, "unused_bytes"), (7 + 6) * 4096);
}

#[test]
fn a_call_ends_the_reservations_of_the_groups_that_it_reaches_and_no_other() {
    for (first, pages, ended) in [(8, 8, 1), (7, 9, 2), (8, 9, 2), (15, 2, 2), (0, 24, 3), (9, 6, 1), (10, 1, 1)] {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 64 * 4096);
        // The first and the last page of each of the groups 0 to 2.
        (0..3).for_each(|group| [0, 7].into_iter().for_each(|n| script.store(0, page(8 * group + n))));
        script.event(0, EventKind::Munmap { addr: page(first), len: pages * 4096 });
        let (_, stats) = checked("radix", &[PTEMAGNET], script);
        assert_eq!(reservations(&stats, "ended.unmapped"), ended, "{pages} pages from {first} on");
        assert_eq!(reservations(&stats, "unused_bytes"), (3 - ended) * 6 * 4096);
    }
}

#[test]
fn reclaim_ends_the_reservation_of_the_page_that_it_takes() {
    let swap = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 4096 * 4096);
    // Two pages of each group; 256 fit.
    (0..300).for_each(|group| (0..2).for_each(|n| script.store(0, page(8 * group + n))));
    let (_, stats) = checked("radix", &[PTEMAGNET, swap, "kernel.cgroup_limit_bytes=1MiB"], script);
    let ended = reservations(&stats, "ended.unmapped");
    assert!(stats.values["swap.out.pages"] >= 600 - 256);
    assert!(ended >= (600 - 256) / 2 && ended <= stats.values["swap.out.pages"], "{ended}");
    assert_eq!(reservations(&stats, "ended.pressure"), 0, "the machine has memory, the cgroup has not");
}

#[test]
fn a_page_that_was_read_first_comes_from_the_block_and_protection_changes_nothing() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 * 4096);
    (0..8).for_each(|n| script.load(0, page(n)));
    (0..4).for_each(|n| script.store(0, page(n)));
    let read_only = Protection { read: true, ..Protection::default() };
    script.event(0, EventKind::Mprotect { addr: BASE, len: 64 * 4096, prot: read_only });
    script.event(0, EventKind::Mprotect { addr: BASE, len: 64 * 4096, prot: Protection::READ_WRITE });
    (4..8).for_each(|n| script.store(0, page(n)));
    let (simulation, stats) = checked("radix", &[PTEMAGNET], script);
    let frames = frames_from(&simulation, BASE, 8);
    let first = frames[0].unwrap();
    assert_eq!(frames, (first..first + 8).map(Some).collect::<Vec<_>>());
    assert_eq!((reservations(&stats, "made"), reservations(&stats, "ended.full")), (1, 1));
}

#[test]
fn reservations_are_returned_before_swapping_or_running_out_of_memory() {
    let swap = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
    let touch = |pages: u64| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 1 << 30);
        // One page of each group, then the same number in other groups.
        (0..pages / 2).for_each(|n| script.store(0, page(8 * n)));
        (0..pages / 2).for_each(|n| script.store(0, page(100_000 + n)));
        script
    };
    // 16 MiB are 4096 frames; 3000 pages fit, but not their reservations.
    let never = r#"system.layers.native.placement={"kind":"ptemagnet","release_above_percent":100}"#;
    for (placement, with_swap) in [(PTEMAGNET, true), (never, true), (PTEMAGNET, false), (never, false)] {
        let mut set = vec![placement, "machine.memory_bytes=16MiB"];
        set.extend(with_swap.then_some(swap));
        let (_, stats) = checked("radix", &set, touch(3000));
        assert!(reservations(&stats, "ended.pressure") > 0, "{placement}");
        assert_eq!(stats.values["swap.out.pages"], 0, "{placement}");
        assert_eq!(stats.values["fault.minor.count"], 3000);
    }
    // Above the threshold no reservations are made.
    let at_once = r#"system.layers.native.placement={"kind":"ptemagnet","release_above_percent":0}"#;
    let (_, stats) = checked("radix", &[at_once], touch(100));
    assert_eq!(reservations(&stats, "made"), 0);
}

#[test]
fn returning_a_reservation_drops_references_only_to_unused_frames() {
    for pages in [2, 4, 8, 16, 32, 64] {
        let placement = format!(r#"system.layers.native.placement={{"kind":"ptemagnet","group_pages":{pages}}}"#);
        let config = assemble(&Assembly { system: Some("radix"), set: &[placement], ..Assembly::default() }).unwrap();
        // One page in each of 16 groups.
        let spec = format!("stride:size={}KiB,stride={}KiB,accesses=1000", 64 * pages, 4 * pages);
        let source = pagelab_trace::workload::parse(&spec, 1).unwrap();
        let placed = PlacedSource { source, cpus: vec![0], memory_limit: None };
        let mut simulation = Simulation::new(&config, vec![placed], Some(16)).unwrap();
        simulation.run(&mut |_| true).unwrap();
        let layer = &simulation.kernels.os.layers[0];
        assert_eq!(layer.mechanisms.placement.held_frames(), 16 * (pages - 1));
        let mut step = Step::default();
        let give_back = layer.mechanisms.placement.give_back().unwrap();
        layer.mechanisms.placement.plan(None, &give_back, &layer.memory.view(KernelContext::BOOT), &mut step);
        let locked = step.refs.iter().filter(|reference| reference.kind == RefKind::Locked).count();
        assert_eq!(locked as u64, 16 + 16 * (pages - 1), "each group's leaf, and each frame");
    }
}
