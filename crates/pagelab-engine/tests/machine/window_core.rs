//! The window core: closed forms of the limits of overlap, and the in-order core as its limit.

use std::collections::BTreeMap;

use crate::common::steps::{
    L1_LATENCY, LATENCY, Step, after, core, cycles, cycles_with_branches, load, repeated, store, walking,
};
use crate::common::{assert_conserved, config, run_workload};
use pagelab_engine::base::addr::{MachineAddr, PageSize};
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::base::rng::Rng;
use pagelab_engine::base::translation::Translation;
use pagelab_engine::core_model::{CoreTime, Data, IncomingAccess, Stall, Timing};
use pagelab_trace::{Access, AccessKind, Branches};

#[test]
fn a_chain_of_dependent_misses_takes_its_length_times_the_latency() {
    assert_eq!(cycles(core("{}"), repeated(after(1, load()), 100))[0], 100 * LATENCY);
    // Two chains run in parallel.
    assert_eq!(cycles(core("{}"), repeated(after(2, load()), 100))[0], 50 * LATENCY);
    // Independent accesses overlap completely.
    assert_eq!(cycles(core("{}"), repeated(load(), 64))[0], LATENCY);
    // A hit that depends on a miss passes on the wait.
    let pairs = (0..100).map(|n| after(1, if n % 2 == 0 { load() } else { Step { latency: L1_LATENCY, ..load() } }));
    assert_eq!(cycles(core("{}"), pairs)[0], 50 * (LATENCY + L1_LATENCY));
}

#[test]
fn independent_misses_are_bound_by_fill_buffers() {
    for buffers in [1, 2, 5, 10] {
        let found = cycles(core(&format!(r#"{{"fill_buffers":{buffers}}}"#)), repeated(load(), 100))[0];
        assert_eq!(found, 100_u64.div_ceil(buffers) * LATENCY, "{buffers}");
    }
    let stores = cycles(core(r#"{"fill_buffers":5}"#), repeated(store(), 100));
    assert!(stores[0] < LATENCY, "stores leave the window and wait in their queue: {stores:?}");
}

#[test]
fn walks_are_bound_by_page_walkers_and_stalls_are_of_translation() {
    for walkers in [1, 2, 3] {
        let step = Step { walk: 50, latency: L1_LATENCY, ..load() };
        let found = cycles(core(&format!(r#"{{"page_walkers":{walkers}}}"#)), repeated(step, 90));
        let rounds = 90 / walkers;
        assert_eq!(found, [rounds * 50 + L1_LATENCY, rounds * 50, L1_LATENCY], "{walkers}");
        // The same if the data come from memory: walks hide all data latencies but the last.
        let found = cycles(core(&format!(r#"{{"page_walkers":{walkers}}}"#)), repeated(walking(), 60));
        assert_eq!(found, [60 / walkers * 50 + LATENCY, 60 / walkers * 50, LATENCY], "{walkers}");
    }
    // If buffers are scarce, earlier translations do not help.
    let found = cycles(core(r#"{"fill_buffers":1}"#), repeated(walking(), 20));
    assert_eq!(found, [50 + 20 * LATENCY, 50, 20 * LATENCY]);
    // A walk and the miss after it are sequential.
    assert_eq!(cycles(core("{}"), [walking()]), [50 + LATENCY, 50, LATENCY]);
}

#[test]
fn waiting_accesses_occupy_neither_walkers_nor_buffers() {
    // Independent loads, each followed by a dependent one. Only the chain of the last pair adds to the time of the
    // scarce resource.
    let pairs: Vec<Step> = (0..100).flat_map(|_| [walking(), after(1, walking())]).collect();
    let chain = 2 * (50 + LATENCY);
    for (walkers, buffers) in [(1, 64), (2, 64), (3, 64), (64, 1), (64, 2), (64, 5), (1, 5), (4, 10), (6, 16)] {
        let found =
            cycles(core(&format!(r#"{{"page_walkers":{walkers},"fill_buffers":{buffers}}}"#)), pairs.clone())[0];
        let least = (200 * 50_u64).div_ceil(walkers).max((200 * LATENCY).div_ceil(buffers));
        assert!((least..=least + chain).contains(&found), "{walkers} {buffers}: {found}, at least {least}");
    }
}

/// A page of the machine, and an access to one of its lines.
fn page(number: u64, size: PageSize) -> Translation {
    Translation::new(MachineAddr(number * size.bytes()), size, true, true)
}

fn within(page: Translation, line: u64, step: Step) -> Step {
    Step { line: Some(page.page().line().0 + line), ..step }
}

#[test]
fn all_accesses_to_a_page_wait_for_its_walk() {
    for size in PageSize::ALL {
        let node = |number: u64, distances: [u64; 2]| {
            let page = page(number, size);
            let walks = within(page, 0, Step { page: Some(page), ..walking() });
            [after(distances[0], walks), after(distances[1], within(page, 63, load()))]
        };
        // Nodes of two lines. The pointer to the next node is read after the key, or before it.
        let key_first = (1..=50).flat_map(|number| node(number, [1, 2]));
        let next_first = (1..=50).flat_map(|number| node(number, [2, 3]));
        let (key_first, next_first) = (cycles(core("{}"), key_first), cycles(core("{}"), next_first));
        assert_eq!(key_first, [50 * (50 + LATENCY), 50 * 50, 50 * LATENCY], "{size:?}");
        assert_eq!(next_first, key_first, "{size:?}");
    }
    // Accesses to the next page do not, whether their line is cached or not.
    let walks = |page: Translation| within(page, 0, Step { page: Some(page), latency: L1_LATENCY, ..walking() });
    let [first, second] = [1, 2].map(|number| page(number, PageSize::Size4K));
    for (other, expected) in [(first, 50 + LATENCY), (second, LATENCY)] {
        assert_eq!(cycles(core("{}"), [walks(first), within(other, 5, load())])[0], expected);
    }
    for (other, expected) in [(first, 50 + L1_LATENCY + LATENCY), (second, L1_LATENCY + LATENCY)] {
        let hit = within(other, 5, Step { latency: L1_LATENCY, ..load() });
        assert_eq!(cycles(core("{}"), [walks(first), hit, after(1, load())])[0], expected);
    }
}

#[test]
fn the_window_bounds_how_many_misses_overlap() {
    // Loads 16 instructions apart: four of them fit into 64 entries, five into 65.
    let loads = repeated(Step { access: Access { gap: 16, ..load().access }, ..load() }, 100);
    for (window, together) in [(1, 1), (16, 1), (17, 2), (63, 4), (64, 4), (65, 5), (80, 5), (81, 6)] {
        let found = cycles(core(&format!(r#"{{"window":{window}}}"#)), loads.clone())[0];
        let rounds = 100_u64.div_ceil(together);
        // Instructions take 6 cycles in total.
        assert!((rounds * LATENCY..=rounds * LATENCY + 6).contains(&found), "{window}: {found}");
    }
}

#[test]
fn a_miss_alone_is_hidden_by_what_the_window_holds_behind_it() {
    // 400 instructions of one cycle each after a miss: the window contains 99 of them.
    let tail = Step { access: Access { gap: 400, ..load().access }, latency: L1_LATENCY, ..load() };
    let slow = r#"{"cycles_per_instruction":1,"window":100}"#;
    let [all, translation, data] = cycles(core(slow), [load(), tail]);
    assert_eq!((translation, data), (0, LATENCY - 99 + L1_LATENCY));
    assert_eq!(all, 401 + data);
}

#[test]
fn queues_bound_loads_and_stores() {
    for entries in [1, 2, 10] {
        let found = cycles(core(&format!(r#"{{"load_queue":{entries}}}"#)), repeated(load(), 100))[0];
        assert_eq!(found, 100_u64.div_ceil(entries) * LATENCY, "{entries} loads");
        // The last stores may be outstanding when the program continues.
        let found = cycles(core(&format!(r#"{{"store_queue":{entries}}}"#)), repeated(store(), 100))[0];
        let rounds = 100_u64.div_ceil(entries) - 1;
        let least = rounds * LATENCY;
        assert!((least..=least + rounds * entries).contains(&found), "{entries} stores: {found}, at least {least}");
    }
    assert_eq!(cycles(core(r#"{"store_queue":0}"#), repeated(store(), 64))[0], LATENCY, "waited for as loads are");
}

#[test]
fn an_access_waits_for_the_later_of_window_and_queue() {
    // The second store's instructions need the load's window entry, and the first store's queue entry.
    let last = Step { access: Access { gap: 2, ..store().access }, ..store() };
    let steps = |first: u64| [Step { latency: first, ..store() }, Step { latency: 100, ..load() }, last];
    let core = || core(r#"{"window":2,"store_queue":1}"#);
    assert_eq!([50, 150, 300].map(|first| cycles(core(), steps(first))[0]), [100, 150, 300]);
}

#[test]
fn loads_keep_their_entry_until_all_that_is_older_has_left() {
    let hit = Step { latency: L1_LATENCY, ..load() };
    let steps = [Step { latency: 300, ..store() }, hit, hit];
    // The program waits for the store as for a load, but the store has no load queue entry.
    let all = cycles(core(r#"{"load_queue":1,"store_queue":0}"#), steps)[0];
    assert_eq!(all, 300 + L1_LATENCY);
}

#[test]
fn a_hit_of_a_line_under_way_waits_for_the_line() {
    let hit = Step { latency: L1_LATENCY, line: Some(7), ..load() };
    let there = [Step { line: Some(7), ..load() }, hit, after(1, load())];
    assert_eq!(cycles(core("{}"), there)[0], 2 * LATENCY);
    let elsewhere = [Step { line: Some(8), ..load() }, hit, after(1, load())];
    assert_eq!(cycles(core("{}"), elsewhere)[0], L1_LATENCY + LATENCY);
}

/// The statistics of a run, with or without those that involve time.
fn values(source: &str, system: &str, core: &str) -> BTreeMap<String, u64> {
    let stats = run_workload(&config(system, &[&format!("machine.core={core}")]), source);
    assert_conserved(&stats);
    stats.values.iter().map(|(name, value)| (name.to_string(), *value)).collect()
}

#[test]
fn a_window_of_one_instruction_is_the_in_order_core() {
    let in_order = r#"{"model":"in-order","cycles_per_instruction":0.7,"l1_hit_hidden":false}"#;
    let one =
        r#"{"model":"window","cycles_per_instruction":0.7,"window":1,"load_queue":1,"store_queue":0,"page_walkers":1}"#;
    for source in [
        "random:size=8MiB,accesses=20K,write=0.3",
        "chase:size=4MiB,accesses=20K",
        "gups:size=8MiB,updates=10K,gap=3",
        "seq:size=2MiB,accesses=20K,step=24",
        "bfs:vertices=2K,degree=8,accesses=20K",
        "gups:size=4MiB,updates=10K,threads=2",
    ] {
        for system in ["radix", "radix-2m", "nested-radix", "hashed-open", "mfoe"] {
            let (window, in_order) = (values(source, system, one), values(source, system, in_order));
            let differ: Vec<_> = in_order.iter().filter(|(name, value)| window.get(*name) != Some(value)).collect();
            assert!(differ.is_empty(), "{source} {system}: {differ:?}");
        }
    }
}

#[test]
fn dependent_accesses_wait_and_independent_ones_overlap() {
    let skylake = r#"{"model":"window","cycles_per_instruction":0.25}"#;
    let in_order = r#"{"model":"in-order","cycles_per_instruction":0.25,"l1_hit_hidden":false}"#;
    let stalls = |source: &str, core: &str| {
        let values = values(source, "radix", core);
        values["cycles.data_stall"] + values["cycles.translation"]
    };
    let (random, chase) = ("random:size=256MiB,accesses=200K,init=pages", "chase:size=256MiB,accesses=200K,init=pages");
    let share = |source| stalls(source, skylake) as f64 / stalls(source, in_order) as f64;
    let (random, chase) = (share(random), share(chase));
    assert!(random < 0.4 && chase > 0.9, "{random} {chase}");
}

#[test]
fn sources_that_tell_nothing_get_what_the_configuration_says() {
    let with = |dependencies: &str| {
        let text = format!(
            r#"machine.core={{"model":"window","cycles_per_instruction":0.25,"unknown_dependencies":"{dependencies}"}}"#
        );
        let stats = run_workload(&config("radix", &[&text]), "btree:records=100K,accesses=100K");
        stats.values["cycles.data_stall"] + stats.values["cycles.translation"]
    };
    let (independent, serial) = (with("independent"), with("serial"));
    assert!(serial > independent + independent / 10, "{serial} {independent}");
}

/// A branch before a step, and the distance to the load that it depends on.
fn behind(taken: bool, distance: u64, step: Step) -> Step {
    let mut branches = Branches::NONE;
    branches.push(taken);
    branches.wait_for(distance);
    Step { branches, ..step }
}

#[test]
fn a_mispredicted_branch_waits_for_its_load_and_the_penalty() {
    let with = |taken| [load(), behind(taken, 1, load()), load()];
    // The counters start as taken.
    let tage = || core(r#"{"branch_predictor":"tage","mispredict_penalty":20}"#);
    assert_eq!(cycles_with_branches(tage(), with(true)), [LATENCY, 0, LATENCY, 0]);
    // Instructions after a mispredicted branch do not overlap those before it.
    assert_eq!(cycles_with_branches(tage(), with(false)), [2 * LATENCY + 20, 0, 2 * LATENCY, 20]);
    // An independent one costs the penalty, of which the load before it hides nothing.
    let early = [load(), behind(false, 0, load())];
    assert_eq!(cycles_with_branches(tage(), early), [LATENCY + 20, 0, LATENCY, 20]);
    // Without a predictor it costs nothing.
    assert_eq!(cycles(core("{}"), with(false))[0], LATENCY);
    // The wait for the load's translation counts as translation.
    let walks = [walking(), behind(false, 1, load())];
    assert_eq!(cycles_with_branches(tage(), walks), [2 * LATENCY + 70, 50, 2 * LATENCY, 20]);
    // A load that waited for another load's data was not translating meanwhile.
    let chain = [walking(), after(1, walking()), after(1, load()), behind(false, 1, load())];
    assert_eq!(cycles_with_branches(tage(), chain), [4 * LATENCY + 120, 100, 4 * LATENCY, 20]);
}

#[test]
fn no_more_stalls_are_of_translation_than_translations_take() {
    let mut draw = Rng::new(11, "translations");
    for keys in [r#""window":40"#, r#""load_queue":9"#, r#""store_queue":3"#, r#""store_queue":0,"fill_buffers":3"#] {
        let core = core(&format!(r#"{{"branch_predictor":"tage",{keys}}}"#));
        let steps: Vec<Step> = (0..20_000)
            .map(|_| {
                let kind =
                    [AccessKind::Load, AccessKind::Load, AccessKind::Store, AccessKind::Modify][draw.below(4) as usize];
                let step = Step {
                    access: Access { gap: draw.below(6) as u32, ..Access::new(kind, 0, 8) },
                    walk: if draw.below(3) == 0 { draw.below(100) } else { 0 },
                    latency: if draw.below(2) == 0 { L1_LATENCY } else { LATENCY },
                    ..load()
                };
                let step = after(draw.below(8), step);
                if draw.below(6) == 0 { behind(draw.below(2) == 0, draw.below(8), step) } else { step }
            })
            .collect();
        let walks: u64 = steps.iter().map(|step| step.walk).sum();
        let translation = cycles_with_branches(core, steps)[1];
        assert!(translation > walks / 20 && translation <= walks, "{keys}: {translation} of {walks}");
    }
}

#[test]
fn a_line_is_under_way_until_it_is_there_whatever_its_buffer_does_next() {
    let line = |number| Step { line: Some(number), ..load() };
    let hit = Step { latency: L1_LATENCY, ..line(7) };
    let steps = [line(7), line(8), hit, behind(false, 1, Step { latency: L1_LATENCY, ..load() })];
    let core = core(r#"{"fill_buffers":1,"branch_predictor":"tage","mispredict_penalty":300}"#);
    assert_eq!(cycles_with_branches(core, steps)[0], LATENCY + 300 + L1_LATENCY);
}

#[test]
fn every_misprediction_of_a_row_costs_its_penalty_and_is_counted() {
    let mut core = core(r#"{"branch_predictor":"tage","mispredict_penalty":20}"#);
    let (mut branches, at) = (Branches::NONE, CoreTime { instructions: 0, now: Cycles::ZERO });
    // Of three branches the first and the last are not taken; different addresses keep their counters separate.
    [false, true, false].into_iter().for_each(|taken| branches.push(taken));
    let stall = core
        .begin_access(IncomingAccess { access: &load().access, again: false, has_dependencies: true, branches }, at);
    assert_eq!(stall.branch, Cycles(40));
    let counts = core.branches().unwrap();
    assert_eq!((counts.met, counts.mispredicted), (3, 2));
    // An access repeated after a fault has already had its branches.
    let stall =
        core.begin_access(IncomingAccess { access: &load().access, again: true, has_dependencies: true, branches }, at);
    assert_eq!((stall, core.branches().unwrap()), (Stall::default(), counts));
}

#[test]
fn an_access_without_data_takes_a_window_entry() {
    // Like the kernel's reads if its references are off.
    let (mut core, at) = (core(r#"{"store_queue":2}"#), CoreTime { instructions: 0, now: Cycles::ZERO });
    let mut at = at;
    let stalls = [Some(LATENCY), None, Some(L1_LATENCY), Some(L1_LATENCY)].map(|latency| {
        let met =
            IncomingAccess { access: &store().access, again: false, has_dependencies: true, branches: Branches::NONE };
        let stall = core.begin_access(met, at);
        at.now += stall.sum();
        if let Some(latency) = latency {
            let stall = core.data_stall(Data { latency: Cycles(latency), line: latency, traffic: None }, at);
            assert_eq!(stall, Stall::default());
        }
        stall.sum().0
    });
    assert_eq!(stalls, [0, 0, LATENCY, 0]);
}
