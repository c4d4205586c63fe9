//! Edges between threads on several CPUs: which thread waits, for how long, and that no thread waits forever.

use crate::common::{ScriptWriter, assert_conserved, config, run};
use pagelab_engine::config::Config;
use pagelab_engine::observe::statistics::Statistics;
use pagelab_trace::EventKind;
use proptest::prelude::*;

const MEMORY: u64 = 0x6f00_0000_0000;
const PAGE: u64 = 4096;

/// A machine on which a thread's cost does not depend on other threads, with a synchronisation quantum of 0.
fn quiet(set: &[&str]) -> Config {
    let all = [
        "engine.kernel_refs=off",
        "engine.sync_quantum_cycles=0",
        "machine.core.l1_hit_hidden=false",
        "kernel.flush_space_cycles=0",
        "kernel.threads.kswapd=off",
    ];
    config("radix", &[&all[..], set].concat())
}

/// A program with this many threads, each with its own mapped page.
fn program(threads: u32) -> (ScriptWriter, Vec<u32>) {
    let mut script = ScriptWriter::new();
    script.mmap(0, MEMORY, u64::from(threads) * PAGE);
    let all: Vec<u32> = std::iter::once(0).chain((1..threads).map(|_| script.thread(0))).collect();
    all.iter().for_each(|&thread| compute(&mut script, thread, 4));
    // All begin at the same time.
    script.mmap(0, MEMORY - PAGE, PAGE);
    (script, all)
}

/// Accesses of a thread to its own memory; each waits for the L1 cache, because lines alternate.
fn compute(script: &mut ScriptWriter, thread: u32, accesses: u64) {
    (0..accesses).for_each(|n| script.store(thread, MEMORY + u64::from(thread) * PAGE + n % 2 * 64));
}

fn wake(script: &mut ScriptWriter, thread: u32, edge: u64) {
    script.event(thread, EventKind::Wake { edge });
}

fn woken(script: &mut ScriptWriter, thread: u32, edge: u64) {
    script.event(thread, EventKind::Woken { edge });
}

fn replay(cpus: &[usize], script: ScriptWriter) -> Statistics {
    let (_, in_pieces) = run(&quiet(&[]), script.clone().in_pieces().finish(), cpus);
    let (_, stats) = run(&quiet(&[]), script.finish(), cpus);
    for (name, value) in &stats.values {
        assert_eq!(in_pieces.values[name], *value, "{name} in small batches");
    }
    assert_conserved(&stats);
    stats
}

/// Elapsed cycles, and cycles in which a CPU waited for another CPU's thread.
fn times(stats: &Statistics) -> (u64, u64) {
    (stats.values["elapsed_cycles"], stats.values["cycles.blocked"])
}

/// Cycles of this many accesses.
fn cost(accesses: u64) -> u64 {
    let alone = |accesses| {
        let (mut script, _) = program(1);
        compute(&mut script, 0, accesses);
        times(&replay(&[0], script)).0
    };
    alone(accesses) - alone(0)
}

#[test]
fn only_the_woken_thread_waits_for_its_wake() {
    // Two wait from the start; the third, which is never woken, computes.
    let script = |edges: &[(u64, u32)]| {
        let (mut script, threads) = program(3);
        compute(&mut script, threads[0], 5000);
        edges.iter().for_each(|(edge, _)| wake(&mut script, threads[0], *edge));
        compute(&mut script, threads[0], 1000);
        edges.iter().for_each(|(edge, thread)| woken(&mut script, *thread, *edge));
        compute(&mut script, threads[1], 3000);
        compute(&mut script, threads[2], 4000);
        script
    };
    let (free, at_start) = times(&replay(&[0, 1, 2], script(&[])));
    let (elapsed, blocked) = times(&replay(&[0, 1, 2], script(&[(7, 1)])));
    assert_eq!(elapsed - free, cost(2000), "5000 and 3000 after one another instead of 6000");
    assert_eq!(blocked - at_start, cost(5000), "the one that is woken has waited for the accesses before the wake");
    let (elapsed, blocked) = times(&replay(&[0, 1, 2], script(&[(7, 1), (8, 2)])));
    assert_eq!(elapsed - free, cost(3000));
    assert_eq!(blocked - at_start, 2 * cost(5000));
}

#[test]
fn one_wake_lets_several_go() {
    let (mut script, threads) = program(3);
    let (_, at_start) = times(&replay(&[0, 1, 2], script.clone()));
    compute(&mut script, threads[0], 700);
    wake(&mut script, threads[0], 1);
    woken(&mut script, threads[1], 1);
    woken(&mut script, threads[2], 1);
    compute(&mut script, threads[1], 10);
    compute(&mut script, threads[2], 10);
    let (_, blocked) = times(&replay(&[0, 1, 2], script));
    assert_eq!(blocked - at_start, 2 * cost(700));
}

#[test]
fn turns_that_threads_take_come_one_after_the_other() {
    const TURNS: u64 = 20;
    let script = |edges: bool| {
        let (mut script, threads) = program(2);
        for turn in 0..TURNS {
            let (own, other) = (threads[turn as usize % 2], threads[(turn as usize + 1) % 2]);
            compute(&mut script, own, 500);
            if edges && turn + 1 < TURNS {
                wake(&mut script, own, turn);
                woken(&mut script, other, turn);
            }
        }
        script
    };
    let [together, in_turn] = [false, true].map(|edges| times(&replay(&[0, 1], script(edges))).0);
    assert_eq!(in_turn - together, cost(TURNS / 2 * 500));
}

#[test]
fn a_woken_without_an_earlier_wake_does_not_wait() {
    let (mut script, threads) = program(2);
    let base = times(&replay(&[0, 1], script.clone())).1;
    woken(&mut script, threads[1], 3);
    compute(&mut script, threads[1], 10);
    // The number is reused: the woken event belongs to the earlier wake.
    wake(&mut script, threads[0], 3);
    woken(&mut script, threads[1], 3);
    compute(&mut script, threads[0], 400);
    wake(&mut script, threads[0], 3);
    compute(&mut script, threads[1], 10);
    assert_eq!(times(&replay(&[0, 1], script)).1, base);
}

#[test]
fn a_parent_that_waits_goes_on_when_its_childs_memory_has_gone() {
    const PAGES: u64 = 50;
    let other = MEMORY + (1 << 30);
    let script = |edge: bool, pages: u64| {
        let (mut script, _) = program(1);
        script.mmap(0, MEMORY + PAGE, PAGE);
        script.mmap(0, other, PAGES * PAGE);
        script.event(0, EventKind::Fork { child: pagelab_trace::ProcessIx(1) });
        let child = script.thread(1);
        (0..pages).for_each(|page| script.store(child, other + page * PAGE));
        compute(&mut script, child, 3000);
        script.event(child, EventKind::Exit { code: 0 });
        if edge {
            wake(&mut script, child, 1 << 32);
            woken(&mut script, 0, 1 << 32);
        }
        compute(&mut script, 0, 5000);
        script
    };
    let elapsed = |edge, pages| times(&replay(&[0, 1], script(edge, pages))).0;
    let (beside, after) = (elapsed(false, 0), elapsed(true, 0));
    assert!(after >= beside + cost(3000), "{beside}, {after}: one after the other");
    // The child's first touches are before its end, and the pages are freed there.
    assert!(elapsed(true, PAGES) > after + PAGES * 200);
}

/// A child of thread 0's vfork that uses `memory` before it executes a program, and this one's memory after it.
/// `early`: what the parent does next is recorded before the exec.
fn vfork(
    script: &mut ScriptWriter,
    memory: u64,
    before: u64,
    after: u64,
    early: bool,
    then: &dyn Fn(&mut ScriptWriter),
) {
    let work = |script: &mut ScriptWriter, thread, at: u64, accesses| {
        (0..accesses).for_each(|n| script.store(thread, at + n % 2 * 64));
    };
    script.event(0, EventKind::Vfork { child: pagelab_trace::ProcessIx(1) });
    let child = script.thread(1);
    work(script, child, memory, before);
    if early {
        then(script);
    }
    script.event(child, EventKind::Exec { path: "/bin/true".into() });
    script.mmap(child, MEMORY, PAGE);
    work(script, child, MEMORY, after);
    if !early {
        then(script);
    }
    script.event(child, EventKind::Exit { code: 0 });
}

#[test]
fn a_vforking_thread_waits_until_its_child_executes_a_program() {
    let elapsed = |early, before| {
        let (mut script, _) = program(1);
        vfork(&mut script, MEMORY, before, 1000, early, &|script| compute(script, 0, 3000));
        times(&replay(&[0, 1], script))
    };
    for early in [false, true] {
        let ((short, free), (long, blocked)) = (elapsed(early, 4), elapsed(early, 5004));
        // 5000 before 3000, and 1000 beside these.
        assert_eq!((long - short, blocked - free), (cost(5000), cost(5000)), "early: {early}");
    }
}

#[test]
fn memory_that_a_vforked_child_has_borrowed_stays_until_it_executes_a_program() {
    let stack = MEMORY + (1 << 30);
    let refused = |script: &ScriptWriter, cpus: &[usize], set: &[&str]| {
        run(&quiet(set), script.clone().finish(), cpus).1.values["accesses.refused"]
    };
    for early in [false, true] {
        // As posix_spawn(3) does it, and by another thread of the parent.
        for unmaps in [0, 1] {
            let (mut script, _) = program(2);
            script.mmap(0, stack, PAGE);
            let unmap = |script: &mut ScriptWriter| {
                script.event(unmaps, EventKind::Munmap { addr: stack, len: PAGE });
                compute(script, 0, 100);
            };
            vfork(&mut script, stack, 3000, 1000, early, &unmap);
            for cpus in [&[0, 1][..], &[0, 1, 2, 3]] {
                for set in [&[][..], &["engine.interleaving=1"], &["engine.interleaving=2"]] {
                    assert_eq!(refused(&script, cpus, set), 0, "{early} {unmaps} {cpus:?} {set:?}");
                }
            }
        }
    }
}

/// An act of a hostile source, by one of its threads.
#[derive(Clone, Copy, Debug)]
enum Act {
    Compute(u64),
    Wake(u64),
    Woken(u64),
    Map,
    Start,
    Exit,
    Fork,
    Vfork,
    /// The last process executes a program.
    Exec,
    /// The last process ends.
    End,
}

fn act() -> impl Strategy<Value = (usize, Act, bool)> {
    let edge = || 0_u64..4;
    let act = prop_oneof![
        6 => (1_u64..40).prop_map(Act::Compute),
        4 => edge().prop_map(Act::Wake),
        4 => edge().prop_map(Act::Woken),
        1 => Just(Act::Map),
        1 => Just(Act::Start),
        1 => Just(Act::Exit),
        1 => Just(Act::Fork),
        1 => Just(Act::Vfork),
        1 => Just(Act::Exec),
        1 => Just(Act::End),
    ];
    (0_usize..6, act, any::<bool>())
}

/// A source of these acts, with or without edges.
fn hostile(acts: &[(usize, Act, bool)], edges: bool) -> ScriptWriter {
    let (mut script, mut threads) = program(3);
    let mut processes = 1;
    for &(who, act, cut) in acts {
        let thread = threads[who % threads.len()];
        match act {
            Act::Compute(accesses) => compute(&mut script, thread % 3, accesses),
            Act::Wake(edge) if edges => wake(&mut script, thread, edge),
            Act::Woken(edge) if edges => woken(&mut script, thread, edge),
            Act::Wake(_) | Act::Woken(_) => {}
            Act::Map => script.mmap(thread, MEMORY + (1 << 30) + u64::from(thread) * PAGE, PAGE),
            Act::Start => threads.push(script.thread(0)),
            Act::Exit => script.event(thread, EventKind::ThreadExit),
            Act::Fork | Act::Vfork if processes < 4 => {
                let child = pagelab_trace::ProcessIx(processes);
                let vforks = matches!(act, Act::Vfork);
                script.event(thread, if vforks { EventKind::Vfork { child } } else { EventKind::Fork { child } });
                threads.push(script.thread(processes));
                processes += 1;
            }
            // Its threads may still wake others.
            Act::End if processes > 1 => {
                let last = threads.len() - 1;
                script.event(threads[last], EventKind::Exit { code: 0 });
            }
            Act::Exec if processes > 1 => {
                script.event(threads[threads.len() - 1], EventKind::Exec { path: "/bin/true".into() });
            }
            Act::Fork | Act::Vfork | Act::Exec | Act::End => {}
        }
        if cut {
            script.cut();
        }
    }
    script
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever the edges, the window and the CPUs, the run ends, and all accesses are replayed.
    #[test]
    fn no_edge_makes_cpus_wait_for_ever(
        acts in prop::collection::vec(act(), 1..120),
        cpus in 1_usize..5,
        window in prop_oneof![Just(1_u64), Just(16), Just(1 << 20)],
        quantum in prop_oneof![Just(0_u64), Just(1000)],
        scheduler in prop_oneof![Just(r#"{"kind":"recorded"}"#), Just(r#"{"kind":"eevdf","tick_cycles":0}"#)],
    ) {
        let set = [
            format!("engine.input_window_accesses={window}"),
            format!("engine.sync_quantum_cycles={quantum}"),
            format!("kernel.scheduler={scheduler}"),
        ];
        let config = quiet(&set.each_ref().map(String::as_str));
        let all: Vec<usize> = (0..cpus).collect();
        let (_, stats) = run(&config, hostile(&acts, true).finish(), &all);
        let (_, without) = run(&config, hostile(&acts, false).finish(), &all);
        assert_conserved(&stats);
        prop_assert_eq!(stats.values["accesses"], without.values["accesses"]);
        if cpus == 1 && scheduler.contains("recorded") {
            prop_assert_eq!(&stats.values, &without.values, "one CPU replays the recorded order anyway");
        }
    }
}
