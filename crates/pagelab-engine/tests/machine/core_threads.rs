//! Hardware threads of a core with a window: divided resources, and shared resources.

use crate::common::steps::{L1_LATENCY, LATENCY, Step, after, core, cycles, load, repeated, store};
use crate::common::{assert_clocks_conserved, assert_conserved, config, run};
use pagelab_engine::base::cycles::Cycles;
use pagelab_engine::core_model::{
    CoreModel, CoreTime, Data, DataLocation, IncomingAccess, L1TlbMiss, Row, Siblings, Stall, Timing,
};
use pagelab_trace::{Access, AccessKind};

/// Hardware threads of one core: their clocks and steps. The thread with the smallest time runs until it is `quantum`
/// cycles ahead. A thread that has ended stays present until its end time.
struct Threads {
    cores: Vec<CoreModel>,
    steps: Vec<std::vec::IntoIter<Step>>,
    at: Vec<CoreTime>,
    /// Stalls of each thread.
    stalls: Vec<Stall>,
}

impl Threads {
    fn new(keys: &str, steps: Vec<Vec<Step>>) -> Self {
        let cores = steps.iter().map(|_| core(keys)).collect();
        let at = vec![CoreTime { instructions: 0, now: Cycles::ZERO }; steps.len()];
        let stalls = vec![Stall::default(); steps.len()];
        Self { cores, steps: steps.into_iter().map(Vec::into_iter).collect(), at, stalls }
    }

    /// Cycles that each thread takes.
    fn run(mut self, quantum: u64) -> (Vec<u64>, Vec<Stall>) {
        let mut common = self.cores[0].common();
        let mut ends = vec![None; self.cores.len()];
        while let Some(thread) =
            (0..self.at.len()).filter(|&n| ends[n].is_none()).min_by_key(|&thread| self.at[thread].now)
        {
            let now = self.at[thread].now;
            let others: Vec<Cycles> = (0..self.at.len())
                .filter(|&n| n != thread && (ends[n].is_none() || self.at[n].now > now))
                .map(|n| self.at[n].now)
                .collect();
            let first = others.iter().min().copied().unwrap_or(Cycles::MAX);
            let siblings = Siblings { active: others.len() as u32, now: first };
            let limit = first.saturating_add(Cycles(quantum));
            self.cores[thread].resume(common.take().unwrap(), siblings);
            while self.at[thread].now <= limit && ends[thread].is_none() {
                let number = (thread << 32) as u64 + self.steps[thread].len() as u64;
                match self.steps[thread].next() {
                    Some(step) => self.make(thread, step, number),
                    None => {
                        let stall = self.cores[thread].drain(self.at[thread]);
                        self.spend(thread, stall);
                        ends[thread] = Some(self.at[thread].now.0);
                    }
                }
            }
            common = self.cores[thread].pause();
        }
        (ends.into_iter().flatten().collect(), self.stalls)
    }

    fn spend(&mut self, thread: usize, stall: Stall) {
        self.at[thread].now += stall.sum();
        self.stalls[thread] += stall;
    }

    fn make(&mut self, thread: usize, step: Step, number: u64) {
        let met =
            IncomingAccess { access: &step.access, again: false, has_dependencies: true, branches: step.branches };
        let stall = self.cores[thread].begin_access(met, self.at[thread]);
        self.spend(thread, stall);
        if step.walk > 0 {
            let miss = L1TlbMiss { look_up: Cycles::ZERO, walk: Cycles(step.walk), page: step.page, fetches: false };
            let stall = self.cores[thread].translation_stall(miss, self.at[thread]);
            self.spend(thread, stall);
        }
        let data = Data { latency: Cycles(step.latency), line: step.line.unwrap_or(number), traffic: None };
        let stall = self.cores[thread].data_stall(data, self.at[thread]);
        self.spend(thread, stall);
        let at = &mut self.at[thread];
        let instructions = at.instructions + u64::from(step.access.gap);
        at.now += self.cores[thread].base_cycles(instructions) - self.cores[thread].base_cycles(at.instructions);
        at.instructions = instructions;
    }
}

/// Cycles of two threads with equal steps in parallel, and of one of them alone.
fn both_and_alone(keys: &str, steps: &[Step], quantum: u64) -> (Vec<u64>, u64) {
    let alone = cycles(core(keys), steps.to_vec())[0];
    (Threads::new(keys, vec![steps.to_vec(), steps.to_vec()]).run(quantum).0, alone)
}

const QUANTA: [u64; 3] = [0, 100, 1000];

#[test]
fn hardware_threads_compete_for_fill_buffers() {
    // Instructions take one cycle each, so that the threads alternate.
    let step = load();
    for buffers in [1, 2, 3, 5, 12] {
        for quantum in QUANTA {
            let keys = format!(r#"{{"fill_buffers":{buffers},"cycles_per_instruction":1}}"#);
            let (both, alone) = both_and_alone(&keys, &repeated(step, 1200), quantum);
            let last = *both.iter().max().unwrap();
            // The first thread is ahead by one turn, which is not compensated at the end.
            let most = 2 * alone + 2 * LATENCY + quantum;
            let least = 2 * alone - 2 * LATENCY - quantum;
            assert!((least..=most).contains(&last), "{buffers} {quantum}: {both:?}, alone {alone}");
        }
    }
}

#[test]
fn hardware_threads_compete_for_page_walkers() {
    let step = Step { walk: 50, latency: L1_LATENCY, ..load() };
    for walkers in [1, 2, 3] {
        for quantum in QUANTA {
            let keys = format!(r#"{{"page_walkers":{walkers},"cycles_per_instruction":1}}"#);
            let (both, alone) = both_and_alone(&keys, &repeated(step, 1200), quantum);
            let last = *both.iter().max().unwrap();
            assert!(last.abs_diff(2 * alone) <= 100 + quantum, "{walkers} {quantum}: {both:?}, alone {alone}");
        }
    }
}

#[test]
fn chains_of_hardware_threads_overlap() {
    // Also if one is far ahead: its window contains its whole chain, which takes one buffer at a time.
    for buffers in [2, 12] {
        for quantum in QUANTA {
            let keys = format!(r#"{{"fill_buffers":{buffers}}}"#);
            let (both, alone) = both_and_alone(&keys, &repeated(after(1, load()), 300), quantum);
            assert_eq!((both, alone), (vec![300 * LATENCY; 2], 300 * LATENCY), "{buffers} {quantum}");
        }
    }
    // Only one of the chains uses the single buffer.
    let (both, alone) = both_and_alone(r#"{"fill_buffers":1}"#, &repeated(after(1, load()), 300), 0);
    assert!(both[1].abs_diff(2 * alone) <= 2 * LATENCY, "{both:?}");
}

#[test]
fn a_chain_has_its_share_next_to_a_thread_that_uses_all_buffers() {
    for quantum in QUANTA {
        let greedy = repeated(load(), 12 * 400);
        let chain = repeated(after(1, load()), 300);
        let keys = r#"{"fill_buffers":12,"cycles_per_instruction":1}"#;
        let (ends, _) = Threads::new(keys, vec![greedy, chain]).run(quantum);
        assert!((300 * LATENCY..301 * LATENCY).contains(&ends[1]), "{ends:?}");
        // The chain used one of twelve buffers for the whole time: 25 more of 400 rounds.
        assert!((424 * LATENCY..428 * LATENCY + quantum).contains(&ends[0]), "{quantum}: {ends:?}");
    }
}

#[test]
fn hardware_threads_divide_the_window_and_the_queues() {
    // Loads 16 instructions apart: four of them fit into 64 entries, two into half of it.
    let loads = repeated(Step { access: Access { gap: 16, ..load().access }, ..load() }, 200);
    let stores = repeated(store(), 200);
    for (keys, steps, together, divided) in [
        (r#"{"window":64}"#, &loads, 4, 2),
        (r#"{"window":65}"#, &loads, 5, 2),
        (r#"{"window":66}"#, &loads, 5, 3),
        (r#"{"load_queue":10}"#, &repeated(load(), 200), 10, 5),
        (r#"{"load_queue":1}"#, &repeated(load(), 200), 1, 1),
        (r#"{"store_queue":10}"#, &stores, 10, 5),
    ] {
        let (both, alone) = both_and_alone(keys, steps, 0);
        // The last stores may be outstanding at the end, and are written one by one.
        let rounds = |at_a_time: u64| {
            let rounds = 200_u64.div_ceil(at_a_time);
            (rounds - u64::from(steps[0].access.kind.writes())) * LATENCY..=rounds * LATENCY + 200
        };
        assert!(rounds(together).contains(&alone), "{keys}: {alone}");
        for end in both {
            assert!(rounds(divided).contains(&end), "{keys}: {end}");
        }
    }
}

#[test]
fn a_hardware_thread_alone_has_all_resources() {
    // One ends immediately: from then on the other has all resources.
    let loads = repeated(Step { access: Access { gap: 16, ..load().access }, ..load() }, 200);
    let keys = r#"{"window":64,"load_queue":8,"fill_buffers":4}"#;
    let alone = cycles(core(keys), loads.clone())[0];
    assert_eq!(Threads::new(keys, vec![loads.clone()]).run(0).0, [alone]);
    let (ends, _) = Threads::new(keys, vec![loads.clone(), vec![]]).run(0);
    assert!((alone..=alone + LATENCY).contains(&ends[0]), "{ends:?} {alone}");
    // The active time of a sleeping sibling does not matter.
    let (ends, _) = Threads::new(keys, vec![repeated(load(), 1), loads]).run(0);
    assert!((alone..=alone + 2 * LATENCY).contains(&ends[1]), "{ends:?} {alone}");
}

#[test]
fn windows_and_queues_are_divided_as_soon_as_another_thread_wakes() {
    use AccessKind::{Load, Store};
    for (keys, kind) in [
        (r#"{"window":64}"#, Load),
        (r#"{"load_queue":4}"#, Load),
        (r#"{"load_queue":5}"#, AccessKind::Modify),
        (r#"{"store_queue":4}"#, Store),
        (r#"{"store_queue":5}"#, AccessKind::Modify),
    ] {
        let mut core = core(keys);
        let (mut common, mut at) = (core.common(), CoreTime { instructions: 0, now: Cycles::ZERO });
        let access = Access { gap: 16, kind, ..load().access };
        let stalls = [0, 0, 1].map(|active| {
            core.resume(common.take().unwrap(), Siblings { active, now: Cycles::ZERO });
            let found = DataLocation { latency: Cycles(LATENCY), line: at.instructions };
            let row = Row { accesses: &[access], branches: &[], found: &[found], has_dependencies: true };
            let stall = core.make_all(&row, at);
            common = core.pause();
            at = CoreTime { instructions: at.instructions + 16, now: at.now + stall.sum() };
            stall.data.0
        });
        // The third is within 64 entries of the first, but not within 32; two queue entries are left.
        assert_eq!(stalls, [0, 0, LATENCY], "{keys} {kind:?}");
    }
}

#[test]
fn hardware_threads_share_the_width_when_both_use_it() {
    let hits = |count| repeated(Step { latency: 0, ..load() }, count);
    let keys = r#"{"cycles_per_instruction":1}"#;
    for quantum in QUANTA {
        let (ends, stalls) = Threads::new(keys, vec![hits(10_000), hits(10_000)]).run(quantum);
        for end in &ends {
            assert!((20_000 - 1 - 2 * quantum..=20_000).contains(end), "{quantum}: {ends:?}");
        }
        assert!(stalls.iter().all(|stall| stall.sum() == stall.sibling), "{stalls:?}");
        // A chain of misses uses almost no width.
        let (ends, _) = Threads::new(keys, vec![hits(60_000), repeated(after(1, load()), 300)]).run(quantum);
        assert!((300 * LATENCY..=300 * LATENCY + 600).contains(&ends[1]), "{quantum}: {ends:?}");
        assert!((60_300..=60_300 + quantum).contains(&ends[0]), "{quantum}: {ends:?}");
    }
    // Each of three threads gets a third.
    let (ends, _) = Threads::new(keys, vec![hits(3000), hits(3000), hits(3000)]).run(0);
    assert!(ends.iter().all(|end| (8998..=9000).contains(end)), "{ends:?}");
}

#[test]
fn a_hardware_thread_waits_for_lines_that_another_has_asked_for() {
    let line = |latency| Step { line: Some(7), latency, ..load() };
    // The second finds the line outstanding in the cache; its dependent access comes later.
    let second = vec![line(L1_LATENCY), after(1, load())];
    let (ends, _) = Threads::new("{}", vec![vec![line(LATENCY)], second.clone()]).run(0);
    assert_eq!(ends, [LATENCY, 2 * LATENCY]);
    let (ends, _) = Threads::new("{}", vec![vec![load()], second]).run(0);
    assert_eq!(ends, [LATENCY, L1_LATENCY + LATENCY]);
}

/// Cycles of a workload on these CPUs, and of the classes about sibling threads.
fn on_cpus(spec: &str, cpus: &[usize], set: &[&str]) -> (u64, Option<u64>) {
    let skylake = r#"machine.core={"model":"window","cycles_per_instruction":0.25}"#;
    // The kernel's zeroing is no subject here.
    let set: Vec<&str> = [skylake, "machine.bulk.cost=latency"].iter().chain(set).copied().collect();
    let source = pagelab_trace::workload::parse(spec, 1).unwrap();
    let (simulation, stats) = run(&config("radix-2m", &set), source, cpus);
    assert_conserved(&stats);
    assert_clocks_conserved(&simulation);
    (stats.values["elapsed_cycles"], stats.values.get("cycles.sibling").copied())
}

#[test]
fn two_programs_threads_on_a_core_take_as_long_as_what_they_compete_for_says() {
    // The preset's cores have two hardware threads: CPUs 0 and 1 share a core, 0 and 2 do not.
    for (spec, least, most) in [
        ("chase:size=64MiB,accesses=100K,threads=2,regions=apart", 1.0, 1.15),
        // Enough accesses that the faults of 32 pages are a small part.
        ("random:size=32MiB,accesses=1M,threads=2,regions=apart", 1.5, 2.0),
    ] {
        let ((together, sibling), (apart, none)) = (on_cpus(spec, &[0, 1], &[]), on_cpus(spec, &[0, 2], &[]));
        assert!(sibling.is_some() && none.is_none(), "{sibling:?} {none:?}");
        let slower = together as f64 / apart as f64;
        assert!((least..most).contains(&slower), "{spec}: {slower}");
    }
    // Instructions only: two threads together take twice as long.
    let spec = "seq:size=4KiB,accesses=400K,threads=2,regions=apart,gap=8";
    let slower = on_cpus(spec, &[0, 1], &[]).0 as f64 / on_cpus(spec, &[0, 2], &[]).0 as f64;
    assert!((1.8..2.02).contains(&slower), "{slower}");
    // A source on one CPU of the core has the core to itself.
    let spec = "random:size=16MiB,accesses=50K";
    assert_eq!(on_cpus(spec, &[0], &[]), (on_cpus(spec, &[1], &[]).0, None));
}
