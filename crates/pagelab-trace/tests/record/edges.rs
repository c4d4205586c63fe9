//! Edges from wakes to woken threads.

use std::collections::BTreeMap;

use pagelab_trace::{Access, AccessKind, Event, EventKind, ThreadIx};

use super::{Recorded, compiled, hexadecimal, program_output, record};

const ROUNDS: usize = 20;

/// An edge: its wake and its woken.
type Edge<'a> = (&'a Event, &'a Event);

/// All edges. Checks that each woken event follows the wake with its number, by another thread of its process.
fn edges(recorded: &Recorded) -> Vec<Edge<'_>> {
    let mut wakes = BTreeMap::new();
    let mut edges = Vec::new();
    for event in &recorded.events {
        match event.kind {
            EventKind::Wake { edge } => assert!(wakes.insert(edge, event).is_none(), "edge {edge} has two wakes"),
            EventKind::Woken { edge } => {
                let wake: &Event =
                    wakes.get(&edge).unwrap_or_else(|| panic!("edge {edge} has no wake before {event:?}"));
                assert!(wake.thread != event.thread && wake.process == event.process, "{wake:?} {event:?}");
                edges.push((wake, event));
            }
            _ => {}
        }
    }
    edges
}

fn starts(recorded: &Recorded) -> Vec<ThreadIx> {
    let starts = recorded.events.iter().filter(|event| matches!(event.kind, EventKind::ThreadStart { .. }));
    starts.map(|event| event.thread).collect()
}

/// Thread and access number of each store of the program itself to an address.
fn stores(recorded: &Recorded, vaddr: u64) -> Vec<(ThreadIx, u64)> {
    let is_store = |a: &Access| a.vaddr == vaddr && !a.maker.is_kernel() && a.kind != AccessKind::Load;
    let numbered = recorded.accesses.iter().zip(0..).filter(|((_, access), _)| is_store(access));
    numbered.map(|((thread, _), number)| (*thread, number)).collect()
}

#[test]
fn waits_of_threads_for_each_other_are_edges() {
    let (output, recorded) = record(&[compiled("meeting").to_str().unwrap(), &ROUNDS.to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let said = program_output(&output);
    let said: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(said[1..], [(2 * ROUNDS).to_string(), "7".to_owned()]);
    let shared = hexadecimal(said[0]);
    let all = edges(&recorded);
    let between = |from: ThreadIx, to: ThreadIx, after: u64, before: u64| {
        let lies = |edge: &&Edge<'_>| {
            (edge.0.thread, edge.1.thread) == (from, to) && edge.0.position >= after && edge.1.position <= before
        };
        all.iter().filter(lies).count()
    };
    let threads = starts(&recorded);
    let [main, other, locked, alone] = threads[..] else { panic!("{threads:?}") };

    // The creation of a thread precedes its first access.
    for &made in &[other, locked, alone] {
        let first = recorded.accesses.iter().position(|(thread, _)| *thread == made).unwrap() as u64;
        assert_eq!(between(main, made, 0, first), 1, "{made:?} is made once, before its first access");
    }
    // If a thread waited for a hand-over, the edge lies between the store before it and the one after it. Whether it
    // waits depends on the machine.
    let sums = stores(&recorded, shared + 8);
    assert_eq!(sums.len(), 2 * ROUNDS);
    let mut waited = 0;
    for pair in sums.windows(2) {
        let ((from, after), (to, before)) = (pair[0], pair[1]);
        assert_ne!(from, to, "they take turns");
        waited += usize::from(between(from, to, after, before) > 0);
    }
    assert!(waited >= 1, "{waited} of {} hand-overs are edges", 2 * ROUNDS - 1);
    // The lock that the first thread kept while it slept.
    let (before, after) = (stores(&recorded, shared + 3 * 8)[0], stores(&recorded, shared + 4 * 8)[0]);
    assert_eq!((before.0, after.0), (main, locked));
    assert_eq!(between(main, locked, before.1, after.1), 1);
    // Each joined thread: after its last access, and before main's next thread begins or the program ends.
    for &joined in &[other, locked] {
        let last = recorded.accesses.iter().rposition(|(thread, _)| *thread == joined).unwrap() as u64;
        let joins =
            all.iter().filter(|(wake, woken)| (wake.thread, woken.thread) == (joined, main) && wake.position > last);
        assert!(joins.count() <= 1, "{joined:?} is joined once");
    }
    assert_eq!(
        between(locked, main, after.1, u64::MAX),
        1,
        "the first thread waited for the end of the one with the lock"
    );
    // Main waits for the detached thread with the condition variable.
    let stored = stores(&recorded, shared + 2 * 8)[0];
    assert_eq!(stored.0, alone);
    assert!(between(alone, main, stored.1, u64::MAX) >= 1);
    assert!(recorded.complete && recorded.notes.is_empty(), "{:?}", recorded.notes);
}

#[test]
fn a_program_of_one_thread_has_no_edges() {
    let (_, recorded) = record(&[compiled("known").to_str().unwrap()]);
    let is_edge = |event: &&Event| matches!(event.kind, EventKind::Wake { .. } | EventKind::Woken { .. });
    assert_eq!(recorded.events.iter().find(is_edge), None);
}

#[test]
fn one_wake_releases_all_threads_of_a_barrier() {
    const THREADS: usize = 6;
    let (_, recorded) = record(&[compiled("threads").to_str().unwrap(), &THREADS.to_string()]);
    let all = edges(&recorded);
    let mut of_wakes: BTreeMap<*const Event, usize> = BTreeMap::new();
    all.iter().for_each(|(wake, _)| *of_wakes.entry(*wake).or_default() += 1);
    let most = of_wakes.values().max().copied();
    assert!(most >= Some(2), "all but the last one to come have waited, if they were not too slow: {most:?}");
}

/// A wait is matched with the wake that ended it, and not with a similar earlier one (`tests/programs/futexes.c`).
#[test]
fn each_wait_is_ended_by_its_own_wake() {
    let (output, recorded) = record(&[compiled("futexes").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let marks = hexadecimal(program_output(&output).trim());
    let mark = |number: u64| stores(&recorded, marks + 8 * number)[0].1;
    let (all, threads) = (edges(&recorded), starts(&recorded));
    let [main, ref waiters @ ..] = threads[..] else { panic!("{threads:?}") };
    assert_eq!(waiters.len(), 8);
    // Main's wakes of each thread, after the one that created it.
    let wakes: Vec<Vec<u64>> = waiters
        .iter()
        .map(|waiter| {
            let wakes = all.iter().filter(|(wake, woken)| (wake.thread, woken.thread) == (main, *waiter));
            wakes.skip(1).map(|(wake, _)| wake.position).collect()
        })
        .collect();
    let [
        ref at_alias,
        ref by_itself,
        ref by_other_bits,
        ref behind_0,
        ref before_1,
        ref behind_1,
        ref before_2,
        ref behind_2,
    ] = wakes[..]
    else {
        panic!("{wakes:?}")
    };
    for none in [at_alias, by_itself, by_other_bits] {
        assert!(none.is_empty(), "{wakes:?}");
    }
    for (wake, number, is_behind) in
        [(behind_0, 0, true), (before_1, 1, false), (behind_1, 1, true), (before_2, 2, false), (behind_2, 2, true)]
    {
        let [wake] = wake[..] else { panic!("{wakes:?}") };
        assert_eq!(wake > mark(number), is_behind, "{wakes:?}, mark {number} at {}", mark(number));
    }
}
