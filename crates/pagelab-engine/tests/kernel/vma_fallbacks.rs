//! Faults that fall back from the lock of their VMA to that of the address space: how many, and what that costs.

use crate::common::{ScriptWriter, assert_conserved, run};
use pagelab_engine::config::{Assembly, assemble};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, MapFlags, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const FILE: u64 = 0x7e00_0000_0000;
const FAR: u64 = 0x20_0000;
const PAGE: u64 = 0x1000;
/// Cycles of a look-up beyond its references.
const LOOKUP: u64 = 1_000_000;
/// Of the machine, for each reference of the kernel without caches.
const L1_LATENCY: u64 = 4;
const STORAGE: &str = r#"kernel.storage={"read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;

/// A run on two CPUs; the second one's thread does nothing unless the script says so.
fn simulate(rules: &str, extra: &[&str], script: ScriptWriter) -> Statistics {
    let (rules, lookup) = (format!("kernel.vma_fallbacks={rules}"), format!("kernel.fault.lookup.cycles={LOOKUP}"));
    let fixed = ["machine.cores=2", "machine.threads_per_core=1", "engine.check=on", "engine.kernel_refs=off", &lookup];
    let rules = (!rules.ends_with("none")).then_some(rules.as_str());
    let set: Vec<String> = fixed.iter().chain(extra).copied().chain(rules).map(str::to_owned).collect();
    let (machine, kernel) = (Some("xeon-silver-4114"), Some("linux-6.12"));
    let config = assemble(&Assembly { machine, system: Some("radix"), kernel, set: &set }).unwrap();
    let (_, stats) = run(&config, script.finish(), &[0, 1]);
    assert_conserved(&stats);
    stats
}

fn lock(stats: &Statistics, what: &str) -> u64 {
    stats.values[&format!("layer.native.lock.vma.{what}")]
}

/// A map of one file, private or shared.
fn map_file(script: &mut ScriptWriter, addr: u64, pages: u64, flags: u32) {
    let (prot, file) = (Protection::READ_WRITE, Some("data".into()));
    script.event(0, EventKind::Mmap { addr, len: pages * PAGE, prot, flags: MapFlags(flags), file, file_offset: 0 });
}

#[test]
fn the_first_faults_of_a_mapping_fall_back_until_it_has_an_anonymous_page() {
    const MAPPINGS: u64 = 5;
    const READS: u64 = 3;
    const STORES: u64 = 4;
    let program = || {
        let mut script = ScriptWriter::new();
        for mapping in 0..MAPPINGS {
            let at = BASE + 2 * FAR * mapping;
            script.mmap(0, at, 64 * PAGE);
            // Pages of zeros need no anon_vma, and make none.
            (0..READS).for_each(|page| script.load(0, at + page * PAGE));
            (READS..READS + STORES).for_each(|page| script.store(0, at + page * PAGE));
        }
        script
    };
    let plain = simulate("none", &[], program());
    let cycles =
        |stats: &Statistics| [stats.values["fault.stage.lookup.cycles"], stats.values["fault.stage.rmap.cycles"]];
    let [lookups, rmap] = cycles(&plain);
    for (rules, falls) in [("linux-6.4", true), ("linux-6.6", true), ("linux-6.7", true), ("linux-6.10", false)] {
        let stats = simulate(rules, &[], program());
        let [lookups_now, rmap_now] = cycles(&stats);
        let fell_back = if falls { MAPPINGS * (READS + 1) } else { 0 };
        assert_eq!((lock(&stats, "fallbacks.anon_vma"), lock(&stats, "anon_vmas")), (fell_back, MAPPINGS), "{rules}");
        assert_eq!(stats.values["fault.minor.count"], plain.values["fault.minor.count"], "{rules}");
        // Each searches again: it releases the VMA's lock, takes that of the space, and reads a node of the tree, which
        // has two lines, and the VMA.
        assert_eq!(lookups_now - lookups, fell_back * (LOOKUP + 5 * L1_LATENCY), "{rules}");
        // An anon_vma and the VMA that refers to it; mappings next to it are read. Since 6.10, the lock of the space
        // is taken and released here.
        let made = MAPPINGS * if falls { 2 } else { 4 };
        assert_eq!(rmap_now - rmap, made * L1_LATENCY, "{rules}");
    }
}

#[test]
fn faults_of_files_fall_back_by_the_rules_of_the_kernel() {
    // Of a shared mapping: reads of two windows, a store. Of a private one: a store, which copies.
    let around = 16 * PAGE;
    let program = || {
        let mut script = ScriptWriter::new();
        map_file(&mut script, FILE, 64, MapFlags::SHARED);
        map_file(&mut script, FILE + FAR, 64, MapFlags::PRIVATE);
        script.load(0, FILE);
        script.load(0, FILE + around);
        script.store(0, FILE + 3 * around);
        script.store(0, FILE + FAR);
        script.store(0, FILE + FAR + PAGE);
        script
    };
    let set = ["kernel.fault_around_bytes=64KiB"];
    for (rules, files, anon_vmas) in [
        ("linux-6.4", 5, 0),
        // The store, and the copies.
        ("linux-6.6", 3, 0),
        // The first copy.
        ("linux-6.7", 0, 1),
        ("linux-6.10", 0, 0),
    ] {
        let stats = simulate(rules, &set, program());
        assert_eq!(lock(&stats, "fallbacks.file"), files, "{rules}");
        assert_eq!(lock(&stats, "fallbacks.anon_vma"), anon_vmas, "{rules}");
        assert_eq!((lock(&stats, "anon_vmas"), stats.values["fault.minor.count"]), (1, 5), "{rules}");
    }
}

#[test]
fn a_fault_that_reads_a_page_gives_up_its_lock_and_searches_again() {
    let program = |call: bool| {
        let mut script = ScriptWriter::new();
        let other = script.thread(0);
        map_file(&mut script, FILE, 64, MapFlags::SHARED);
        script.mmap(0, BASE, 64 * PAGE);
        script.store(other, BASE);
        (0..8).for_each(|page| script.load(0, FILE + page * PAGE));
        if call {
            script.event(other, EventKind::Mprotect { addr: FILE + 32 * PAGE, len: PAGE, prot: Protection::default() });
        }
        script
    };
    let set = [STORAGE, "kernel.page_cache=cold", "kernel.read_ahead_bytes=4096"];
    let plain = simulate("none", &set, program(false));
    let major = plain.values["fault.major.count"];
    assert!(major >= 8, "{major}");
    let stats = simulate("linux-6.10", &set, program(false));
    assert_eq!((lock(&stats, "fallbacks.device"), stats.values["fault.major.count"]), (major, major));
    let lookups = |stats: &Statistics| stats.values["fault.stage.lookup.cycles"] / LOOKUP;
    assert_eq!(lookups(&stats), lookups(&plain) + major);
    assert_eq!(stats.values["fault.walk.count"], plain.values["fault.walk.count"]);
    assert!(simulate("linux-6.4", &set, program(true)).values["accesses"] > 8);
}

#[test]
fn a_stack_that_grows_falls_back() {
    let mut script = ScriptWriter::new();
    let flags = MapFlags(MapFlags::anonymous_private().0 | MapFlags::GROWSDOWN);
    let (prot, len) = (Protection::READ_WRITE, 4 * PAGE);
    script.event(0, EventKind::Mmap { addr: BASE, len, prot, flags, file: None, file_offset: 0 });
    script.store(0, BASE);
    (1..4).for_each(|page| script.store(0, BASE - page * PAGE));
    let stats = simulate("linux-6.10", &[], script);
    assert_eq!((lock(&stats, "fallbacks.no_vma"), lock(&stats, "anon_vmas")), (3, 1));
}

#[test]
fn faults_of_the_swap_area_fall_back_before_6_6() {
    let swap = r#"kernel.swap={"size_bytes":"64MiB","read_cycles":250000,"write_cycles":60000,"queue_depth":4}"#;
    let program = || {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 1024 * PAGE);
        (0..2).for_each(|_| (0..512).for_each(|page| script.store(0, BASE + page * PAGE)));
        script
    };
    for (rules, falls) in [("linux-6.4", true), ("linux-6.6", false)] {
        let stats = simulate(rules, &[swap, "kernel.cgroup_limit_bytes=1MiB"], program());
        let major = stats.values["fault.major.count"];
        assert!(major > 200, "{major}");
        assert_eq!(lock(&stats, "fallbacks.swap"), if falls { major } else { 0 }, "{rules}");
    }
}

#[test]
fn the_line_of_the_spaces_lock_moves_between_faults_in_new_mappings_alone() {
    const FAULTS: u64 = 32;
    // Two threads touch many mappings once, or one mapping often.
    let transfers = |rules: &str, mappings: u64| {
        let mut script = ScriptWriter::new();
        let threads = [0, script.thread(0)];
        let at = |thread: u64, mapping: u64| BASE + (mapping * 2 + thread) * 2 * FAR;
        (0..mappings).for_each(|n| (0..2).for_each(|thread| script.mmap(0, at(thread, n), 64 * PAGE)));
        for n in 0..FAULTS {
            let (mapping, page) = (n % mappings, n / mappings);
            threads
                .iter()
                .zip(0..)
                .for_each(|(&thread, number)| script.store(thread, at(number, mapping) + page * PAGE));
        }
        let set = ["engine.kernel_refs=on", "kernel.fault.lookup.cycles=100", "engine.sync_quantum_cycles=0"];
        simulate(rules, &set, script).values["coherence.remote"]
    };
    let [many, few] = [FAULTS, 1].map(|mappings| transfers("none", mappings));
    for rules in ["linux-6.4", "linux-6.10"] {
        let [many_now, few_now] = [FAULTS, 1].map(|mappings| transfers(rules, mappings));
        assert!(many_now >= many + FAULTS, "{rules}: {many_now} with many mappings, {many} before");
        assert!(few_now <= few + 8, "{rules}: {few_now} with one mapping each, {few} before");
    }
}

#[test]
fn fallbacks_need_locks_of_vmas() {
    let set = ["kernel.vma_fallbacks=linux-6.4".to_owned(), "kernel.fault_lock=mm".to_owned()];
    let error = assemble(&Assembly { machine: None, system: None, kernel: None, set: &set }).and_then(|config| {
        config.validate()?;
        Ok(())
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("kernel.vma_fallbacks") && text.contains("kernel.fault_lock=vma"), "{text}");
}
