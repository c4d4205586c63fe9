//! Mapping calls that take time: their costs as closed forms, and who waits for them.

use crate::common::{ScriptWriter, assert_conserved, run};
use pagelab_engine::config::{Assembly, assemble};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const FAR: u64 = 0x7f40_0000_0000;
const PAGE: u64 = 0x1000;
/// Cycles of a call, of a page that is unmapped, and of one that is changed.
const CALL: u64 = 1_000_000;
const UNMAP: u64 = 20_000;
const CHANGE: u64 = 300;
/// Pages that are touched before a call.
const TOUCHED: u64 = 16;
/// Of the machine, for each reference of the kernel without caches.
const L1_LATENCY: u64 = 4;
const READ: Protection = Protection { read: true, write: false, execute: false };

fn simulate(kernel: &str, downgrade: &str, threads: usize, extra: &[&str], script: ScriptWriter) -> Statistics {
    let costs = format!(
        r#"kernel.mapping_calls={{"call":{{"instructions":1,"cycles":{CALL}}},"unmap_page":{{"instructions":1,"cycles":{UNMAP}}},"change_page":{{"instructions":1,"cycles":{CHANGE}}},"downgrade":"{downgrade}"}}"#
    );
    let fixed = ["machine.cores=4", "machine.threads_per_core=1", "engine.check=on", "engine.kernel_refs=off", &costs];
    let set: Vec<String> = fixed.iter().chain(extra).map(|&set| set.to_owned()).collect();
    let machine = Some("xeon-silver-4114");
    let config = assemble(&Assembly { machine, system: Some("radix"), kernel: Some(kernel), set: &set }).unwrap();
    let (_, stats) = run(&config, script.finish(), &(0..threads).collect::<Vec<_>>());
    assert_conserved(&stats);
    stats
}

fn lock(stats: &Statistics, what: &str) -> u64 {
    stats.values[&format!("layer.native.lock.{what}")]
}

fn protect(addr: u64, pages: u64) -> EventKind {
    EventKind::Mprotect { addr, len: pages * PAGE, prot: READ }
}

fn advise(addr: u64, pages: u64) -> EventKind {
    EventKind::Madvise { addr, len: pages * PAGE, advice: 4 }
}

#[test]
fn a_call_costs_its_own_cycles_and_those_of_its_pages() {
    let unmap = EventKind::Munmap { addr: BASE, len: 1024 * PAGE };
    // References to the lock and the VMA, to the lock of the table, per page, to the lock of the LRU lists for the
    // first eight pages and for the others, and at the end to counters.
    let (map, per_unmapped, per_changed) = (3, 3 * TOUCHED + 4, 2 * TOUCHED);
    for (call, pages, references) in [
        (unmap, UNMAP, 3 + 1 + per_unmapped),
        (protect(BASE, 1024), CHANGE, 3 + 1 + per_changed),
        (advise(BASE, 1024), UNMAP, 2 + 1 + per_unmapped),
    ] {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 1024 * PAGE);
        (0..TOUCHED).for_each(|page| script.store(0, BASE + page * PAGE));
        script.event(0, call.clone());
        let stats = simulate("linux-6.12", "on", 1, &[], script);
        let expected = 2 * CALL + TOUCHED * pages + L1_LATENCY * (map + references);
        assert_eq!(stats.values["mapping.call_cycles"], expected, "{call:?}");
    }
}

#[test]
fn a_call_refers_to_the_entry_of_each_page_twice() {
    let references = |call: Option<EventKind>| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 1024 * PAGE);
        (0..512).for_each(|page| script.store(0, BASE + page * PAGE));
        call.into_iter().for_each(|call| script.event(0, call));
        let stats = simulate("linux-6.12", "on", 1, &["engine.kernel_refs=on"], script);
        stats.values["cache.refs.kernel"]
    };
    let idle = references(None);
    // Lock and unlock; per step of 64 pages the lock of the table; per page its entry, twice.
    assert_eq!(references(Some(protect(BASE, 512))) - idle, 3 + 512 / 64 + 2 * 512);
}

/// Cycles that a thread waits for others' calls, if one makes a call after both have touched pages, and the other then
/// touches a page at `at`.
fn touch_beside(kernel: &str, downgrade: &str, call: Option<EventKind>, at: u64) -> u64 {
    let mut script = ScriptWriter::new();
    let other = script.thread(0);
    script.mmap(0, BASE, 64 * PAGE);
    script.mmap(0, FAR, 64 * PAGE);
    (0..TOUCHED).for_each(|page| script.store(0, BASE + page * PAGE));
    // The other thread's clock reaches the calls of the first.
    (0..64).for_each(|page| script.store(other, FAR + page % 32 * PAGE));
    call.into_iter().for_each(|call| script.event(0, call));
    script.store(other, at);
    let stats = simulate(kernel, downgrade, 2, &["kernel.fault.entry.cycles=100000"], script);
    lock(&stats, "mmap_read.wait_cycles")
}

#[test]
fn a_fault_waits_for_a_writer_of_its_mappings() {
    let near = BASE + 40 * PAGE;
    let unmap = EventKind::Munmap { addr: BASE, len: 32 * PAGE };
    for (kernel, downgrade, call, at, held) in [
        // The lock of the address space keeps all faults out, locks of VMAs those in the range.
        ("linux-4.9", "off", protect(BASE, 32), FAR + 40 * PAGE, CALL),
        ("linux-6.12", "on", protect(BASE, 32), FAR + 40 * PAGE, 0),
        ("linux-6.12", "on", protect(BASE, 32), near, CALL),
        ("linux-4.9", "off", unmap.clone(), near, CALL + TOUCHED * UNMAP),
        ("linux-4.9", "on", unmap, near, CALL),
        ("linux-4.9", "off", advise(BASE, 32), near, 0),
    ] {
        // The calls that make the mappings are waited for, too.
        let before = touch_beside(kernel, downgrade, None, at);
        let waited = touch_beside(kernel, downgrade, Some(call.clone()), at) - before;
        // The call's shootdown and the fault's exception take 100,000 cycles each until the fault needs the mappings.
        let expected = held.saturating_sub(200_000);
        assert!(waited.abs_diff(expected) < 20_000, "{kernel}, downgrade {downgrade}, {call:?}, {at:x}: {waited}");
    }
}
