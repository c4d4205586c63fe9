//! How much results change when CPUs synchronise less often than at every step.
//!
//! The reference is `engine.sync_quantum_cycles = 0`: the smallest clock always goes next. A quantum lets each CPU run
//! ahead by that many cycles, which reorders what CPUs do to shared caches and pages. Measured with the workloads
//! below, at most:
//!
//! | quantum | cycles, elapsed cycles | cycles of walks | references and misses |
//! |---|---|---|---|
//! | 1000 | 0.9 % | 0.9 % | 1.2 % |
//! | 10,000 | 2.2 % | 2.3 % | 0.8 % |
//!
//! The test takes the plain buddy allocator. With Linux's lists of free pages a CPU, the order in which CPUs refill
//! them decides which frames the threads get, and so which lines compete for a set: the L3 misses of `bfs`, a few
//! hundred cold ones, then differ by 22 %. That is what page placement does, in a real machine too.
//!
//! Walks of `bfs` are few, so that a single one that waits for memory shows. The test allows about twice as much.

use crate::common::{assert_conserved, config, run};
use pagelab_engine::observe::statistics::Statistics;

/// For the bottom layer, whose name the systems do not share.
const BUDDY: &str = r#"system.layers.0.frame_allocator={"kind":"buddy"}"#;
const CPUS: &[usize] = &[0, 2, 4, 6];

fn run_with(system: &str, spec: &str, quantum: u64) -> Statistics {
    let set = format!("engine.sync_quantum_cycles={quantum}");
    let source = pagelab_trace::workload::parse(spec, 1).unwrap_or_else(|e| panic!("{e}"));
    let (_, stats) = run(&config(system, &[&set, BUDDY]), source, CPUS);
    assert_conserved(&stats);
    stats
}

/// |a - b| in thousandths of a.
fn apart(a: &Statistics, b: &Statistics, name: &str) -> u64 {
    let (a, b) = (a.values[name], b.values[name]);
    a.abs_diff(b) * 1000 / a.max(1)
}

const WORKLOADS: [(&str, &str); 3] = [
    ("radix", "bfs:vertices=20K,degree=8,threads=4"),
    ("radix", "random:size=32MiB,accesses=200K,threads=4,regions=shared"),
    ("nested-radix", "random:size=16MiB,accesses=100K,threads=4,regions=shared"),
];

/// Statistics and how many thousandths they may be off with a quantum of 1000 and of 10,000 cycles.
const BOUNDS: [(&str, u64, u64); 6] = [
    ("cycles", 18, 40),
    ("elapsed_cycles", 18, 40),
    ("walk.cycles", 30, 40),
    ("walk.refs", 5, 15),
    ("l3.misses", 25, 25),
    ("dtlb.l2.misses", 5, 15),
];

#[test]
fn a_coarser_synchronisation_changes_cycles_by_little_and_accesses_by_nothing() {
    for (system, spec) in WORKLOADS {
        let reference = run_with(system, spec, 0);
        let coarse = [run_with(system, spec, 1000), run_with(system, spec, 10_000)];
        for (name, of_1000, of_10000) in BOUNDS {
            for (stats, bound) in coarse.iter().zip([of_1000, of_10000]) {
                let apart = apart(&reference, stats, name);
                assert!(apart <= bound, "{system} {spec}: {name} is {apart} thousandths off, allowed are {bound}");
            }
        }
        for stats in &coarse {
            for name in ["accesses", "accesses.refused", "instructions", "fault.minor.count"] {
                assert_eq!(stats.values[name], reference.values[name], "{system} {spec}: {name}");
            }
        }
        assert_ne!(coarse[1].values, reference.values, "the quantum reaches the engine");
        assert_eq!(coarse[0].values, run_with(system, spec, 1000).values, "{system} {spec}: repeated");
    }
}
