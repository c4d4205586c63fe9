//! Locks of page-table pages that mapping calls hold: who waits for them, and for how long.

use crate::common::{ScriptWriter, assert_conserved, run};
use pagelab_engine::config::{Assembly, assemble};
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::{EventKind, Protection};

const BASE: u64 = 0x7f00_0000_0000;
const FAR: u64 = 0x7f40_0000_0000;
const PAGE: u64 = 0x1000;
/// Pages that are touched before a call.
const TOUCHED: u64 = 16;
/// Cycles per page of a call.
const EACH: u64 = 1_000_000;
/// Cycles of a fault's first stage.
const ENTRY: u64 = 1_000_000;
const HELD: &str = r#"kernel.held_locks={"zone_page":{"instructions":1},"lru_page":{"instructions":1}}"#;

fn simulate(threads: usize, each: u64, extra: &[&str], script: ScriptWriter) -> Statistics {
    let costs = format!(
        r#"kernel.mapping_calls={{"call":{{"instructions":1,"cycles":100}},"unmap_page":{{"instructions":1,"cycles":{each}}},"change_page":{{"instructions":1,"cycles":{each}}},"downgrade":"on"}}"#
    );
    let fixed = ["machine.cores=8", "machine.threads_per_core=1", "engine.check=on", "engine.sync_quantum_cycles=0"];
    let set: Vec<String> = fixed.iter().chain(extra).chain(&[costs.as_str()]).map(|&set| set.to_owned()).collect();
    let machine = Some("xeon-silver-4114");
    let config = assemble(&Assembly { machine, system: Some("radix"), kernel: Some("linux-6.12"), set: &set }).unwrap();
    let (_, stats) = run(&config, script.finish(), &(0..threads).collect::<Vec<_>>());
    assert_conserved(&stats);
    stats
}

fn lock(stats: &Statistics, what: &str) -> u64 {
    stats.values[&format!("layer.native.lock.{what}")]
}

fn unmap(addr: u64, pages: u64) -> EventKind {
    EventKind::Munmap { addr, len: pages * PAGE }
}

fn discard(addr: u64, pages: u64) -> EventKind {
    EventKind::Madvise { addr, len: pages * PAGE, advice: 4 }
}

fn protect(addr: u64, pages: u64) -> EventKind {
    EventKind::Mprotect { addr, len: pages * PAGE, prot: Protection { read: true, ..Protection::default() } }
}

/// One thread touches pages from `BASE` on and makes a call; `others` then touch a page each, from `at` on. There are
/// mappings of the first 32 pages, and of all from the 40th on.
fn touch_beside(call: &EventKind, at: u64, others: u32, extra: &[&str]) -> Statistics {
    let mut script = ScriptWriter::new();
    let others: Vec<u32> = (0..others).map(|_| script.thread(0)).collect();
    script.mmap(0, BASE, 32 * PAGE);
    script.mmap(0, BASE + 40 * PAGE, 2048 * PAGE);
    // The tables of both places are there.
    for page in (0..TOUCHED).chain([100, 1000]) {
        script.store(0, BASE + page * PAGE);
    }
    script.event(0, call.clone());
    for (&thread, page) in others.iter().zip(0..) {
        script.store(thread, at + page * PAGE);
    }
    let entry = format!("kernel.fault.entry.cycles={ENTRY}");
    let queued = "kernel.spin_locks=queued";
    simulate(others.len() + 1, EACH, &[&[entry.as_str(), queued, "engine.kernel_refs=off"], extra].concat(), script)
}

#[test]
fn a_fault_waits_for_a_call_that_changes_its_page_table_page() {
    let (same, next) = (BASE + 60 * PAGE, BASE + 600 * PAGE);
    for (call, at, waits) in [
        // A reader of the mappings: faults in the range go on, too.
        (discard(BASE, 32), same, true),
        (discard(BASE, 32), BASE + 20 * PAGE, true),
        (discard(BASE, 32), next, false),
        // Writers whose mappings are others.
        (protect(BASE, 32), same, true),
        (protect(BASE, 32), next, false),
        (unmap(BASE, 32), same, true),
        (unmap(BASE, 32), next, false),
    ] {
        let [held, referred] = [&[HELD][..], &[]].map(|set| touch_beside(&call, at, 1, set));
        let waited = lock(&held, "page_table.wait_cycles");
        // The lock is held for all pages. The fault comes to it after its first stage.
        let expected = if waits { TOUCHED * EACH - ENTRY } else { 0 };
        let apart = waited.abs_diff(expected);
        assert!(apart <= if waits { EACH / 5 } else { 0 }, "{call:?}, {at:x}: waited {waited}, not {expected}");
        assert_eq!(lock(&held, "page_table.contended"), u64::from(waits), "{call:?}, {at:x}");
        assert_eq!(lock(&referred, "page_table.contended"), 0, "{call:?}, {at:x}: without the key");
        // Nothing else is waited for longer than without the lock.
        let other = held.values["cycles.lock_wait"] - waited;
        assert!(other.abs_diff(referred.values["cycles.lock_wait"]) < EACH, "{call:?}, {at:x}: {other}");
    }
}

#[test]
fn faults_wait_in_the_queue_that_a_call_has_made() {
    // They come while the call holds the lock, and get it one after the other when it has released it.
    let stats = touch_beside(&discard(BASE, 32), BASE + 60 * PAGE, 6, &[HELD]);
    let (waited, each) = (lock(&stats, "page_table.wait_cycles"), TOUCHED * EACH - ENTRY);
    assert_eq!(lock(&stats, "page_table.contended"), 6);
    assert!(waited.abs_diff(6 * each) < EACH, "{waited} cycles, not {}", 6 * each);
}

#[test]
fn a_call_waits_for_faults_of_its_next_table() {
    const INSTALL: u64 = 20_000_000;
    // While the call works in the first table, two faults come to the second one.
    let mut script = ScriptWriter::new();
    let others = [script.thread(0), script.thread(0)];
    script.mmap(0, BASE, 2048 * PAGE);
    (0..TOUCHED).chain([600]).for_each(|page| script.store(0, BASE + page * PAGE));
    script.event(0, discard(BASE, 650));
    others.iter().zip(700..).for_each(|(&thread, page)| script.store(thread, BASE + page * PAGE));
    let stages = [("entry", ENTRY), ("install", INSTALL)].map(|(stage, n)| format!("kernel.fault.{stage}.cycles={n}"));
    let set = [HELD, &stages[0], &stages[1], "engine.kernel_refs=off", "kernel.spin_locks=queued"];
    let stats = simulate(3, EACH, &set, script);
    // One fault waits for the other, and the call, which comes last, for both.
    let expected = INSTALL + (ENTRY + 2 * INSTALL - TOUCHED * EACH);
    let waited = lock(&stats, "page_table.wait_cycles");
    assert_eq!(lock(&stats, "page_table.contended"), 2);
    assert!(waited.abs_diff(expected) < EACH, "{waited} cycles, not {expected}");
}

#[test]
fn a_call_takes_the_lock_of_each_table_once() {
    let references = |call: Option<EventKind>| {
        let mut script = ScriptWriter::new();
        script.mmap(0, BASE, 1024 * PAGE);
        (0..1024).for_each(|page| script.store(0, BASE + page * PAGE));
        call.into_iter().for_each(|call| script.event(0, call));
        simulate(1, 1, &[HELD], script).values["cache.refs.kernel"]
    };
    let idle = references(None);
    let moved = EventKind::Mremap { old_addr: BASE, old_len: 1024 * PAGE, new_addr: FAR, new_len: 1024 * PAGE };
    let aside =
        EventKind::Mremap { old_addr: BASE, old_len: 512 * PAGE, new_addr: FAR + 256 * PAGE, new_len: 512 * PAGE };
    // The lock of the mappings and the VMA, and its release; for each page its entry, twice.
    let changed = |pages: u64| 3 + 2 * pages;
    assert_eq!(references(Some(protect(BASE, 1024))) - idle, changed(1024) + 2 * 2);
    // Two locks for each pair of tables, an old one and a new one.
    for (call, pages, pairs) in [(moved, 1024, 2), (aside, 512, 2)] {
        assert_eq!(references(Some(call.clone())) - idle, changed(pages) + pairs * 2 * 2, "{call:?}");
    }
}
