//! Eager paging: time, block sizes and cost of mapping, compared with cases computed by hand.

use crate::common::{ScriptWriter, checked, frames_from};
use pagelab_engine::machine::simulation::Simulation;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, Protection};

/// A multiple of 2 MiB.
const BASE: u64 = 0x7f00_0000_0000;
const HEAP: u64 = 0x5555_0000_0000;
const EAGER: &str = r#"system.layers.native.placement={"kind":"eager"}"#;
const MADV_DONTNEED: u32 = 4;
const MAP_NORESERVE: u32 = 0x4000;

/// Frames of the first process's mapped pages, from an address on.
fn frames(simulation: &Simulation, addr: u64, pages: u64) -> Vec<u64> {
    frames_from(simulation, addr, pages).into_iter().flatten().collect()
}

fn page(n: u64) -> u64 {
    BASE + n * 4096
}

/// Numbers of blocks of 2, 4, 8, …, 512 pages.
fn blocks(stats: &Statistics) -> [u64; 9] {
    std::array::from_fn(|n| stats.values[&format!("layer.native.folios.{}K", 8 << n)])
}

fn assert_block(frames: &[u64]) {
    assert_eq!(frames[0] % frames.len() as u64, 0);
    assert!(frames.iter().zip(frames[0]..).all(|(&frame, expected)| frame == expected), "{frames:?}");
}

#[test]
fn a_mapping_is_made_of_the_largest_blocks_that_fit() {
    let mut script = ScriptWriter::new();
    script.mmap(0, page(3), 1021 * 4096);
    (3..1024).for_each(|n| script.store(0, page(n)));
    let (simulation, stats) = checked("radix", &[EAGER], script);
    assert_eq!(blocks(&stats), [0, 1, 1, 1, 1, 1, 1, 1, 1]);
    let frames = frames(&simulation, page(3), 1021);
    for block in (2..10).map(|order| 1 << order) {
        assert_block(&frames[block - 3..2 * block - 3]);
    }
    assert_eq!((stats.values["populate.pages"], stats.values["fault.minor.count"]), (1021, 0));
    assert_eq!(stats.values["layer.native.fault.zeroed_bytes"], 1021 * 4096);

    let mut script = ScriptWriter::new();
    script.mmap(0, page(3), 1021 * 4096);
    let small = r#"system.layers.native.placement={"kind":"eager","largest_block":"16KiB"}"#;
    let (_, stats) = checked("radix", &[small], script);
    assert_eq!(stats.values["layer.native.folios.16K"], 255);
    assert_eq!(stats.values["populate.pages"], 1021, "whether or not anything is touched");
}

#[test]
fn a_heap_is_mapped_as_it_grows_and_freed_as_it_shrinks() {
    let brk = |pages: u64| EventKind::Brk { start: HEAP, end: HEAP + pages * 4096 };
    let mut script = ScriptWriter::new();
    // Four pages and one; one, two and four; then part of a block is unmapped.
    [5, 12, 10].into_iter().for_each(|pages| script.event(0, brk(pages)));
    (0..10).for_each(|n| script.store(0, HEAP + n * 4096));
    let (simulation, stats) = checked("radix", &[EAGER], script);
    assert_eq!(blocks(&stats), [1, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((stats.values["populate.pages"], stats.values["fault.minor.count"]), (12, 0));
    assert_eq!(stats.values["layer.native.pages.4K"], 12);
    let frames = frames(&simulation, HEAP, 10);
    assert_block(&frames[..4]);
    assert_block(&frames[6..8]);
    assert_block(&frames[8..10]);
}

#[test]
fn mappings_that_grow_in_turns_do_not_mix() {
    let mut script = ScriptWriter::new();
    for n in 0..8 {
        script.event(0, EventKind::Brk { start: HEAP, end: HEAP + (n + 1) * 8 * 4096 });
        script.mmap(0, page(8 * n), 8 * 4096);
    }
    let (simulation, stats) = checked("radix", &[EAGER], script);
    for addr in [HEAP, BASE] {
        frames(&simulation, addr, 64).chunks(8).for_each(assert_block);
    }
    let contiguity = |what: &str| stats.values[&format!("layer.native.contiguity.{what}")];
    assert_eq!((contiguity("groups"), contiguity("pte_lines")), (16, 16));
}

#[test]
fn unreserved_and_discarded_memory_is_paged_on_demand() {
    let mut script = ScriptWriter::new();
    let private = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
    let mut n = 0;
    let mut map = |script: &mut ScriptWriter, flags: u32, prot: Protection| {
        n += 1;
        let (addr, flags) = (page(1024 * n), MapFlags(flags));
        script.event(0, EventKind::Mmap { addr, len: 16 * 4096, prot, flags, file: None, file_offset: 0 });
        addr
    };
    let read_only = Protection { read: true, ..Protection::default() };
    map(&mut script, private, read_only);
    map(&mut script, private | MAP_NORESERVE, Protection::READ_WRITE);
    map(&mut script, MapFlags::SHARED | MapFlags::ANONYMOUS, Protection::READ_WRITE);
    let stack = map(&mut script, private | MapFlags::GROWSDOWN, Protection::READ_WRITE);
    script.store(0, stack);
    script.store(0, stack - 4096);
    let eager = map(&mut script, private, Protection::READ_WRITE);
    script.event(0, EventKind::Madvise { addr: eager, len: 8 * 4096, advice: MADV_DONTNEED });
    script.store(0, eager);
    script.store(0, eager + 4096);
    let (_, stats) = checked("radix", &[EAGER], script);
    assert_eq!(stats.values["populate.pages"], 16, "the last mapping");
    assert_eq!(stats.values["fault.minor.count"], 4, "two pages of the stack, two that were given back");
    assert_eq!(blocks(&stats), [0, 0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn memory_beyond_the_limit_is_paged_on_demand() {
    let swap = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
    for (set, most) in [(&["machine.memory_bytes=64MiB"][..], 90), (&["machine.memory_bytes=64MiB", swap], 90)] {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 1 << 30);
        script.store(0, BASE);
        script.store(0, BASE + (1 << 29));
        let (simulation, stats) = checked("radix", &[set, &[EAGER]].concat(), script);
        assert_eq!(stats.values["fault.minor.count"], 1, "the second store");
        let used = (64 << 8) - simulation.kernels.os.layers[0].memory.free_frames();
        // At most one block and one page-table page below the bound.
        assert!((most * 64 * 256 / 100 - 520..=most * 64 * 256 / 100).contains(&used), "{used} frames in use");
    }
    // A limit of the programs also counts: nothing is swapped out for untouched pages.
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 64 << 20);
    let (_, stats) = checked("radix", &[EAGER, swap, "kernel.cgroup_limit_bytes=8MiB"], script);
    assert_eq!((stats.values["populate.pages"], stats.values["swap.out.pages"]), (2048, 0));
}
