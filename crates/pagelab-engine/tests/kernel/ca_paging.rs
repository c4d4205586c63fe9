//! Contiguity-aware paging: frames of pages compared with cases computed by hand, and the contiguity of each placement.

use crate::common::{ScriptWriter, checked, config, frames_from, run};
use pagelab_engine::base::addr::VirtAddr;
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, ProcessIx};

/// A multiple of 4 MiB.
const BASE: u64 = 0x7f00_0000_0000;
const OTHER: u64 = BASE + (1 << 30);
const CA_PAGING: &str = r#"system.layers.native.placement={"kind":"ca-paging"}"#;
const BUDDY: &str = r#"system.layers.native.frame_allocator={"kind":"buddy"}"#;
const MADV_DONTNEED: u32 = 4;
/// Frames of a block of 4 MiB.
const BLOCK: u64 = 1024;

/// Frames of the first process's mapped pages, from an address on.
fn frames(simulation: &Simulation, addr: u64, pages: u64) -> Vec<u64> {
    frames_from(simulation, addr, pages).into_iter().flatten().collect()
}

fn page(n: u64) -> u64 {
    BASE + n * 4096
}

fn counted(stats: &Statistics) -> [u64; 6] {
    ["placed", "placed_again", "no_run", "forgotten", "hits", "misses"]
        .map(|what| stats.values[&format!("layer.native.ca_paging.{what}")])
}

fn from(first: u64, count: u64) -> Vec<u64> {
    (first..first + count).collect()
}

#[test]
fn arrays_that_grow_in_turns_lie_contiguous() {
    let mut script = ScriptWriter::new();
    [BASE, OTHER].into_iter().for_each(|addr| script.mmap(0, addr, 64 * 4096));
    for n in 0..64 {
        script.store(0, page(63 - n));
        script.store(0, OTHER + n * 4096);
    }
    let (simulation, stats) = checked("radix", &[CA_PAGING], script);
    let first = frames(&simulation, BASE, 1)[0];
    assert_eq!(first % BLOCK, 0, "as the address");
    assert_eq!(frames(&simulation, BASE, 64), from(first, 64));
    assert_eq!(frames(&simulation, OTHER, 64), from(first + BLOCK, 64), "the next block");
    assert_eq!(counted(&stats), [2, 0, 0, 0, 128, 0]);
    assert_eq!(stats.values["fault.minor.count"], 128, "as many as without");
}

#[test]
fn a_place_matches_the_address_and_continues_with_the_mapping() {
    let mut script = ScriptWriter::new();
    script.event(0, EventKind::Brk { start: page(5), end: page(8) });
    script.store(0, page(6));
    script.event(0, EventKind::Brk { start: page(5), end: page(2 * BLOCK) });
    [5, 7, 8, 1023, 1024, 1025].into_iter().for_each(|n| script.store(0, page(n)));
    let (simulation, stats) = checked("radix", &[CA_PAGING], script);
    let first = frames(&simulation, page(5), 1)[0] - 5;
    assert_eq!(first % BLOCK, 0);
    let expected: Vec<u64> = [5, 6, 7, 8, 1023, 1024, 1025].iter().map(|n| first + n).collect();
    assert_eq!(frames(&simulation, BASE, 2 * BLOCK), expected);
    assert_eq!(counted(&stats), [1, 0, 0, 0, 7, 0]);
}

#[test]
fn after_a_taken_frame_the_rest_of_the_mapping_goes_elsewhere() {
    let script = || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 64 * 4096);
        (0..6).for_each(|n| script.store(0, page(n)));
        // Page 5 moves with its offset, and the pages after it take the frames intended for pages 6 and 7.
        script.event(0, EventKind::Mremap { old_addr: page(5), old_len: 4096, new_addr: OTHER, new_len: 4 * 4096 });
        (1..3).for_each(|n| script.store(0, OTHER + n * 4096));
        [7, 8, 6].into_iter().for_each(|n| script.store(0, page(n)));
        script
    };
    let (simulation, stats) = checked("radix", &[CA_PAGING], script());
    let first = frames(&simulation, BASE, 1)[0];
    assert_eq!(frames(&simulation, BASE, 6), from(first, 5));
    assert_eq!(frames(&simulation, OTHER, 4), from(first + 5, 3));
    assert_eq!(frames(&simulation, page(7), 8), from(first + BLOCK + 7, 2), "the next place");
    assert_eq!(frames(&simulation, page(6), 1), [first + 2 * BLOCK + 6], "and the next");
    assert_eq!(counted(&stats), [1, 2, 0, 0, 6 + 2 + 3, 2]);
    // With one offset per mapping, the offset of pages 7 and 8 serves page 6.
    let one = r#"system.layers.native.placement={"kind":"ca-paging","max_offsets":1}"#;
    let (simulation, stats) = checked("radix", &[one], script());
    assert_eq!(frames(&simulation, page(6), 8), from(first + BLOCK + 6, 3));
    assert_eq!(counted(&stats), [1, 1, 0, 1, 11, 1]);
}

#[test]
fn discarded_pages_keep_their_place_and_unmapped_ones_get_a_new_one() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 * 4096);
    (0..8).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Madvise { addr: page(2), len: 4 * 4096, advice: MADV_DONTNEED });
    (0..8).for_each(|n| script.store(0, page(7 - n)));
    script.mmap(0, OTHER, 4096);
    script.store(0, OTHER);
    script.event(0, EventKind::Munmap { addr: OTHER, len: 4096 });
    script.mmap(0, OTHER, 4096);
    script.store(0, OTHER);
    let (simulation, stats) = checked("radix", &[CA_PAGING, BUDDY], script);
    let first = frames(&simulation, BASE, 1)[0];
    assert_eq!(frames(&simulation, BASE, 8), from(first, 8));
    assert_eq!(frames(&simulation, OTHER, 1), [first + 2 * BLOCK], "next fit");
    assert_eq!(counted(&stats), [3, 0, 0, 0, 14, 0]);
}

#[test]
fn a_child_has_places_of_its_own() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 * 4096);
    (0..4).for_each(|n| script.store(0, page(n)));
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    (4..8).for_each(|n| script.store(child, page(n)));
    (4..8).for_each(|n| script.store(0, page(n)));
    let (simulation, stats) = checked("radix", &[CA_PAGING], script);
    let first = frames(&simulation, BASE, 1)[0];
    assert_eq!(frames(&simulation, BASE, 8), from(first, 8));
    assert_eq!(counted(&stats), [2, 0, 0, 0, 4 + 4 + 4, 0]);
}

#[test]
fn large_pages_are_contiguous_too() {
    let mut script = ScriptWriter::new();
    [BASE, OTHER].into_iter().for_each(|addr| script.mmap(0, addr, 16 << 20));
    for n in 0..8 {
        script.store(0, BASE + (n << 21));
        script.store(0, OTHER + (n << 21));
    }
    let (simulation, stats) = checked("radix-2m", &[CA_PAGING], script);
    for addr in [BASE, OTHER] {
        let frames = frames(&simulation, addr, 4096);
        assert_eq!(frames, (0..8).map(|n| frames[0] + 512 * n).collect::<Vec<_>>());
    }
    assert_eq!(counted(&stats), [2, 0, 0, 0, 16, 0]);
}

#[test]
fn a_guest_and_its_host_have_separate_places() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 * 4096);
    (0..64).for_each(|n| script.store(0, page(n)));
    let (simulation, stats) = checked("nested-radix-ca-paging", &[], script);
    let guest = frames(&simulation, BASE, 64);
    assert_eq!(guest, from(guest[0], 64));
    let (host, space) = (&simulation.kernels.os.layers[1], simulation.kernels.os.layers[0].host.unwrap());
    let (first, last) = (VirtAddr(guest[0] * 4096), VirtAddr((guest[0] + 64) * 4096));
    let backing: Vec<u64> = host.mapped(space.index, first, last).iter().map(|at| at.mapping.pfn.0).collect();
    assert_eq!(backing, from(backing[0], 64));
    assert_eq!(stats.values["layer.host.ca_paging.placed"], 1, "the guest's memory is one mapping");
}

#[test]
fn without_large_free_blocks_pages_are_placed_in_the_ordinary_way() {
    let age =
        r#"system.layers.native.age={"free_fraction":0.4,"huge_free_fraction":0.0,"unmovable_fraction":0.1,"seed":1}"#;
    let script = || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 64 * 4096);
        (0..64).for_each(|n| script.store(0, page(n)));
        script
    };
    let memory = "machine.memory_bytes=256MiB";
    let (aged, stats) = run(&config("radix", &[CA_PAGING, memory, age]), script().finish(), &[0]);
    assert_eq!(counted(&stats), [0, 0, 64, 0, 0, 0]);
    let (plain, _) = run(&config("radix", &[memory, age]), script().finish(), &[0]);
    assert_eq!(frames(&aged, BASE, 64), frames(&plain, BASE, 64));
}

#[test]
fn contiguity_ranks_the_placement_policies() {
    let contiguity = |placement: &str| {
        let mut script = ScriptWriter::new();
        [BASE, OTHER].into_iter().for_each(|addr| script.mmap(0, addr, 64 * 4096));
        // In steps of three pages, like hash tables and heaps.
        for n in 0..64 {
            script.store(0, page(3 * n % 64));
            script.store(0, OTHER + n % 32 * 4096);
        }
        let placement = format!(r#"system.layers.native.placement={{"kind":"{placement}"}}"#);
        let (_, stats) = checked("radix", &[&placement], script);
        ["groups", "pte_lines", "full_groups", "contiguous_groups"]
            .map(|what| stats.values[&format!("layer.native.contiguity.{what}")])
    };
    let [groups, lines, full, contiguous] = contiguity("order0");
    assert_eq!([groups, full, contiguous], [12, 12, 0]);
    assert!(lines >= 2 * groups, "{lines} lines");
    assert_eq!(contiguity("ptemagnet"), [12; 4]);
    assert_eq!(contiguity("ca-paging"), [12; 4]);
    assert_eq!(contiguity("eager"), [16; 4], "what is never touched too");
}
