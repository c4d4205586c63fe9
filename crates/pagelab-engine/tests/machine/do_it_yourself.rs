//! Do-it-yourself translation: costs of walks in regions, tags of frames, and where regions begin and end.

use crate::common::{ScriptWriter, assert_conserved, config, run};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;
const PAGES: u64 = 768;

/// Tiny TLBs, so that every access to another page walks.
const TINY_TLBS: [&str; 3] = [
    "machine.memory_bytes=16GiB",
    r#"machine.tlb.l1d=[{"pages":["4K","2M","1G"],"entries":1,"ways":1}]"#,
    "machine.tlb.l2=[]",
];
/// An array for the guest of a system that has no tags.
const GUEST_TABLE: &str = r#"system.layers.guest.page_table={"kind":"do-it-yourself","levels":4,"regions":4,"least_bytes":"2MiB","region_bytes":"1GiB"}"#;

fn run_with(system: &str, set: &[&str], script: ScriptWriter) -> Statistics {
    let (_, stats) = run(&config(system, &[&TINY_TLBS, set].concat()), script.finish(), &[0]);
    assert_conserved(&stats);
    stats
}

/// 768 pages in 24 parts of 2 MiB of one mapping, each loaded `passes` times after a store.
fn sweep(system: &str, set: &[&str], passes: u64) -> Statistics {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 24 << 21);
    let address = |page: u64| BASE + page % 24 * (2 << 20) + page / 24 * 4096 + page % 64 * 64;
    (0..PAGES).for_each(|page| script.store(0, address(page)));
    for _ in 0..passes {
        (0..PAGES).for_each(|page| script.load(0, address(page)));
    }
    run_with(system, set, script)
}

/// What a pass more adds to a statistic.
fn per_pass(system: &str, set: &[&str]) -> impl Fn(&str) -> u64 + use<> {
    let (two, three) = (sweep(system, set, 2), sweep(system, set, 3));
    move |name: &str| three.values[name] - two.values[name]
}

#[test]
fn a_walk_in_a_region_makes_one_reference_natively_and_in_a_guest() {
    for system in ["do-it-yourself", "nested-do-it-yourself", "nested-do-it-yourself-cold"] {
        let more = per_pass(system, &[]);
        assert_eq!((more("walk.count"), more("walk.refs")), (PAGES, PAGES), "{system}");
        assert_eq!((more("frame_tags.walks"), more("frame_tags.look_ups")), (PAGES, PAGES), "{system}");
        assert_eq!((more("frame_tags.writes"), more("frame_tags.grants")), (0, 0), "{system}");
    }
    // Without tags, the host is walked for the entry and for the data.
    let more = per_pass("nested-radix-no-mmu-cache", &[GUEST_TABLE]);
    assert_eq!(more("walk.refs"), 9 * PAGES);
    let more = per_pass("nested-radix-no-mmu-cache", &[]);
    assert_eq!(more("walk.refs"), 24 * PAGES);
}

#[test]
fn a_line_of_tags_covers_sixteen_frames() {
    // Frames were given in the order of the first touches, which is that of each pass.
    let small = "system.layers.native.frame_tags.cache_entries=4";
    let more = per_pass("do-it-yourself", &[small]);
    assert!((PAGES / 16..PAGES / 16 + 8).contains(&more("frame_tags.refs")), "{}", more("frame_tags.refs"));
    assert_eq!(per_pass("do-it-yourself", &[])("frame_tags.refs"), 0, "64 lines hold them all");
    let once = sweep("do-it-yourself", &[], 0);
    assert_eq!(once.values["frame_tags.writes"], PAGES, "each frame is given once");
}

#[test]
fn a_check_that_is_waited_for_lengthens_walks_by_its_latency() {
    let tags = |check: &str| {
        let check = format!("system.layers.native.frame_tags.check={check}");
        let set = [check.as_str(), "system.layers.native.frame_tags.cache_entries=1024", "engine.kernel_refs=off"];
        per_pass("do-it-yourself", &set)("walk.cycles")
    };
    assert_eq!(tags("waited") - tags("overlapped"), PAGES);
}

#[test]
fn a_guest_is_given_its_frames_in_blocks_by_one_exit_each() {
    let system = "nested-do-it-yourself";
    let stats = sweep(system, &["system.layers.host.frame_tags.grant_bytes=4KiB"], 1);
    assert_eq!((stats.values["frame_tags.grants"], stats.values["frame_tags.granted_frames"]), (PAGES, PAGES));
    let exits = stats.values["frame_tags.grant_cycles"];
    let stats = sweep(system, &[], 1);
    let grants = stats.values["frame_tags.grants"];
    assert!((2..6).contains(&grants), "{grants} blocks of 512 frames for {PAGES} pages");
    assert_eq!(stats.values["frame_tags.granted_frames"], 512 * grants);
    assert!(stats.values["frame_tags.grant_cycles"] < exits / 10);
    // A host that backs memory on demand has less to give.
    let stats = sweep("nested-do-it-yourself-cold", &[], 1);
    assert_eq!(stats.values["frame_tags.granted_frames"], PAGES);
}

#[test]
fn regions_go_to_large_private_mappings_while_registers_last() {
    let mut script = ScriptWriter::new();
    let at = |n: u64| BASE + n * 64 * MIB;
    // Too small, shared; then one region, one too many, and one after the first has ended.
    script.mmap(0, at(0), MIB);
    let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS));
    script.event(0, EventKind::Mmap { addr: at(1), len: 4 * MIB, prot, flags, file: None, file_offset: 0 });
    script.mmap(0, at(2), 4 * MIB);
    script.mmap(0, at(3), 4 * MIB);
    (0..4).for_each(|n| script.store(0, at(n)));
    script.event(0, EventKind::Munmap { addr: at(2), len: 4 * MIB });
    script.mmap(0, at(4), 4 * MIB);
    script.store(0, at(4));
    let stats = run_with("do-it-yourself", &["system.layers.native.page_table.regions=1"], script);
    let count = |name: &str| stats.values[&format!("layer.native.page_table.{name}")];
    assert_eq!((count("regions"), count("regions.refused"), count("regions.arrays")), (2, 1, 2));
    assert_eq!(stats.values["frame_tags.walks"], 2);
}

#[test]
fn a_region_stays_as_long_as_a_part_of_its_mapping() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 4 * MIB);
    (0..1024).for_each(|page| script.store(0, BASE + page * 4096));
    script.event(0, EventKind::Munmap { addr: BASE, len: 3 * MIB });
    (768..1024).for_each(|page| script.load(0, BASE + page * 4096));
    let stats = run_with("do-it-yourself", &[], script);
    assert_eq!((stats.values["frame_tags.walks"], stats.values["fault.minor.count"]), (1024 + 256, 1024));
}

#[test]
fn a_region_without_a_block_for_its_array_is_given_up() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 32 << 30);
    (0..100).for_each(|page| script.store(0, BASE + page * 4096));
    let set = ["machine.memory_bytes=48MiB", "system.layers.native.page_table.region_bytes=32GiB"];
    let stats = run_with("do-it-yourself", &set, script);
    let count = |name: &str| stats.values[&format!("layer.native.page_table.{name}")];
    assert_eq!((count("regions"), count("regions.given_up"), count("regions.arrays")), (1, 1, 0));
    assert_eq!((stats.values["frame_tags.walks"], stats.values["fault.minor.count"]), (0, 100));
}

#[test]
fn a_child_has_its_copy_in_its_tree() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 4 * MIB);
    (0..100).for_each(|page| script.store(0, BASE + page * 4096));
    script.event(0, EventKind::Fork { child: ProcessIx(1) });
    let child = script.thread(1);
    (0..100).for_each(|page| script.load(child, BASE + page * 4096));
    (0..100).for_each(|page| script.store(0, BASE + page * 4096));
    (0..100).for_each(|page| script.store(child, BASE + page * 4096));
    let stats = run_with("do-it-yourself", &[], script);
    assert_eq!(stats.values["frame_tags.walks"], 200, "the parent alone has a region");
    assert_eq!(stats.values["fault.minor.count"], 300);
}
