//! Direct segments: costs of walks with a segment, and what excludes part of an address space from it.

use crate::common::{ScriptWriter, assert_conserved, config, mmap, run};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, ProcessIx, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;

/// Overrides: a machine with room for the presets' segments, and tiny TLBs.
const ROOM: &str = "machine.memory_bytes=16GiB";
const TINY_TLBS: [&str; 3] =
    [ROOM, r#"machine.tlb.l1d=[{"pages":["4K","2M","1G"],"entries":1,"ways":1}]"#, "machine.tlb.l2=[]"];

/// 768 pages in 24 regions of 2 MiB, each loaded `passes` times.
fn sweep(system: &str, set: &[&str], passes: u64) -> Statistics {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 24 << 21);
    for _ in 0..passes {
        for page in 0..768 {
            script.load(0, BASE + page % 24 * (2 << 20) + page / 24 * 4096 + page % 64 * 64);
        }
    }
    let (_, stats) = run(&config(system, &[&TINY_TLBS, set].concat()), script.finish(), &[0]);
    assert_conserved(&stats);
    stats
}

#[test]
fn a_segment_in_every_layer_spares_the_walk_and_one_in_a_layer_that_layers_references() {
    let (guest, host) = ("system.layers.guest.mmu_cache=none", "system.layers.host.mmu_cache=none");
    for (system, set, walks, references, in_walks) in [
        ("direct-segment", &["system.layers.native.mmu_cache=none"][..], 0, 0, 0),
        // The host's segment translates four entries and the data.
        ("nested-vmm-direct-cold", &[guest, host], 768, 4, 5),
        // The guest's segment translates the data, and the host walks for it.
        ("nested-guest-direct-cold", &[guest, host], 768, 4, 1),
        ("nested-dual-direct-cold", &[guest, host], 0, 0, 0),
        // A host with a hashed table reads one slot.
        (
            "nested-guest-direct-cold",
            &[guest, host, r#"system.layers.host.page_table={"kind":"hashed-compact"}"#],
            768,
            1,
            1,
        ),
    ] {
        let (two, three) = (sweep(system, set, 2), sweep(system, set, 3));
        let more = |name: &str| three.values[name] - two.values[name];
        assert_eq!(more("walk.count"), walks, "{system}");
        assert_eq!(more("walk.refs"), walks * references, "{system}");
        assert_eq!(more("segment.walk_translations"), walks * in_walks, "{system}");
        let direct = walks == 0;
        assert_eq!(more("segment.translations"), if direct { 768 } else { 0 }, "{system}");
        assert_eq!(more("dtlb.l1.misses"), if direct { 0 } else { 768 }, "{system}");
        assert_eq!(more("cycles.translation") == 0, direct, "{system}");
        let faults = if system == "nested-vmm-direct-cold" { 768 } else { 0 };
        assert_eq!(three.values["fault.minor.count"], faults, "{system}: no page of a program's segment faults");
    }
}

#[test]
fn a_hosts_segment_takes_no_nested_faults() {
    let stats = sweep("nested-vmm-direct-cold", &[], 1);
    assert_eq!((stats.values["fault.nested.count"], stats.values["fault.minor.count"]), (0, 768));
    let stats = sweep("nested-guest-direct-cold", &[], 1);
    assert!(stats.values["fault.nested.count"] >= 768);
}

#[test]
fn a_translation_is_as_large_as_segment_and_page_allow() {
    // One TLB entry of 2 MiB per region, for 24 regions.
    let roomy = r#"machine.tlb.l1d=[{"pages":["4K","2M","1G"],"entries":64,"ways":64}]"#;
    let misses = |system, set: &[&str]| sweep(system, &[&[roomy], set].concat(), 3).values["dtlb.l1.misses"];
    let small = misses("nested-guest-direct-cold", &[]);
    let large = misses("nested-guest-direct-cold", &["system.layers.host.page_size=2M"]);
    assert!(small >= 3 * 768 && (24..60).contains(&large), "{small} {large}");
    let vmm = misses("nested-vmm-direct-cold", &["system.layers.guest.page_size=2M"]);
    assert!((24..60).contains(&vmm), "{vmm}");
}

/// Stores to the pages of BASE given by their numbers.
fn touch(script: &mut ScriptWriter, thread: u32, pages: impl IntoIterator<Item = u64>) {
    pages.into_iter().for_each(|page| script.store(thread, BASE + page * 4096));
}

fn run_with(script: ScriptWriter, bytes: &str) -> Statistics {
    let bytes = format!("system.layers.native.direct_segment_bytes={bytes}");
    run(&config("direct-segment", &[ROOM, &bytes]), script.finish(), &[0]).1
}

#[test]
fn mappings_that_do_not_fit_are_paged() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 4 * MIB);
    touch(&mut script, 0, 0..1024);
    let stats = run_with(script, "3MiB");
    assert_eq!((stats.values["fault.minor.count"], stats.values["segment.translations"]), (256, 768));
}

#[test]
fn one_mapping_has_the_segment_until_it_ends() {
    let mut script = ScriptWriter::new();
    // Too small, read-only, shared: the fourth gets the segment, the fifth comes too late, the sixth comes when the
    // segment is free again.
    script.mmap(0, BASE, 4096);
    let at = |n: u64| BASE + n * 64 * MIB;
    script.event(0, mmap(at(1), 4 * MIB, Protection { read: true, ..Protection::default() }));
    let shared = MapFlags(MapFlags::SHARED | MapFlags::ANONYMOUS);
    let prot = Protection::READ_WRITE;
    script.event(0, EventKind::Mmap { addr: at(2), len: 4 * MIB, prot, flags: shared, file: None, file_offset: 0 });
    script.mmap(0, at(3), 4 * MIB);
    script.mmap(0, at(4), 4 * MIB);
    (2..5).for_each(|n| script.store(0, at(n)));
    script.event(0, EventKind::Munmap { addr: at(3), len: 4 * MIB });
    script.mmap(0, at(5), 4 * MIB);
    script.store(0, at(3));
    script.store(0, at(5));
    let stats = run_with(script, "4MiB");
    assert_eq!(stats.values["segment.translations"], 2);
    assert_eq!((stats.values["fault.minor.count"], stats.values["accesses.refused"]), (2, 1));
}

/// Faults of 1024 pages in their segment after a call, and rejected accesses.
fn after(call: EventKind) -> (u64, u64) {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 4 * MIB);
    touch(&mut script, 0, 0..1024);
    script.event(0, call);
    touch(&mut script, 0, 0..1024);
    let stats = run_with(script, "4MiB");
    let (faults, refused) = (stats.values["fault.minor.count"], stats.values["accesses.refused"]);
    assert_eq!(stats.values["segment.translations"], 2 * 1024 - faults - refused);
    (faults, refused)
}

#[test]
fn calls_take_their_range_out_of_the_segment_with_the_shorter_side() {
    let read_only = Protection { read: true, ..Protection::default() };
    let range = |page: u64, pages: u64| (BASE + page * 4096, pages * 4096);
    let (addr, len) = range(1000, 100);
    assert_eq!(after(EventKind::Munmap { addr, len }), (0, 24));
    let (addr, len) = range(100, 10);
    assert_eq!(after(EventKind::Munmap { addr, len }), (100, 10));
    assert_eq!(after(EventKind::Madvise { addr, len, advice: 4 }), (110, 0));
    assert_eq!(after(EventKind::Mprotect { addr, len, prot: read_only }), (100, 10));
    let new_addr = BASE + 64 * MIB;
    assert_eq!(after(EventKind::Mremap { old_addr: addr, old_len: len, new_addr, new_len: len }), (100, 10));
    // Advice on memory usage does not change the segment.
    assert_eq!(after(EventKind::Madvise { addr, len, advice: 15 }), (0, 0));
    assert_eq!(after(EventKind::Exec { path: "program".into() }), (0, 1024));
}

#[test]
fn a_call_reaches_the_tlbs_that_hold_what_a_segment_gave() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 4 * MIB);
    touch(&mut script, 0, 0..1024);
    script.event(0, EventKind::Madvise { addr: BASE + 1000 * 4096, len: 24 * 4096, advice: 4 });
    // The TLBs contain the pages at their old frames: `--check` would find them.
    touch(&mut script, 0, 0..1024);
    let (_, stats) = run(&config("nested-guest-direct-cold", &[ROOM]), script.finish(), &[0]);
    assert_eq!(stats.values["fault.minor.count"], 24);
    assert_eq!(stats.values["shootdown.count"], 1);
}

#[test]
fn a_fork_ends_the_segment_of_what_the_child_inherits() {
    let forked = |advice: u32| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 4 * MIB);
        script.event(0, EventKind::Madvise { addr: BASE, len: 4 * MIB, advice });
        touch(&mut script, 0, 0..100);
        script.event(0, EventKind::Fork { child: ProcessIx(1) });
        let child = script.thread(1);
        touch(&mut script, 0, 0..100);
        touch(&mut script, child, 0..100);
        let stats = run_with(script, "4MiB");
        (stats.values["fault.minor.count"], stats.values["accesses.refused"])
    };
    assert_eq!(forked(0), (200, 0));
    // MADV_DONTFORK, MADV_WIPEONFORK.
    assert_eq!(forked(10), (0, 100));
    assert_eq!(forked(18), (100, 0));
}

#[test]
fn populating_does_not_affect_the_segment() {
    let mut script = ScriptWriter::new();
    let flags = MapFlags(MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::POPULATE);
    let prot = Protection::READ_WRITE;
    script.event(0, EventKind::Mmap { addr: BASE, len: 4 * MIB, prot, flags, file: None, file_offset: 0 });
    touch(&mut script, 0, 0..1024);
    let stats = run_with(script, "3MiB");
    assert_eq!(stats.values["populate.pages"], 256);
    assert_eq!(stats.values["segment.translations"], 768);
}

#[test]
fn a_mapping_that_grows_is_paged_where_it_is_new() {
    let mut script = ScriptWriter::new();
    script.mmap(0, BASE, 4 * MIB);
    script.event(0, EventKind::Mremap { old_addr: BASE, old_len: 4 * MIB, new_addr: BASE, new_len: 8 * MIB });
    touch(&mut script, 0, 0..2048);
    let set = [ROOM, "system.layers.native.direct_segment_bytes=8MiB", "system.layers.native.page_size=2M"];
    let (_, stats) = run(&config("direct-segment", &set), script.finish(), &[0]);
    assert_eq!((stats.values["fault.minor.count"], stats.values["segment.translations"]), (2, 1024));
}
