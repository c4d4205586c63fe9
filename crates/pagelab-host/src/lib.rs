//! Measures what page faults and related operations cost on this machine.
//!
//! Models: nothing; it measures. [`measure`] runs micro-benchmarks on the host's kernel, and [`write_traces`] writes
//! those that fault as traces, so that the same accesses can be simulated. The comparison is made elsewhere
//! (`python/pagelab/host/calibrate.py`).
//! Source: the benchmarks are named after what Linux does (mm/memory.c); see [`FAULTS`]. The walk of a fault handler is
//! too short to be measured from outside: a replica of it is timed (`walk.rs`). [`yardsticks`] measures what replay
//! rates are compared to (`benches/throughput.py`).
//! Parameters: none. Every benchmark is repeated; median and quartiles are reported.
//! Deviations: time is converted to cycles with the core's frequency after each benchmark (`clock.rs`). A change of the
//! frequency within a benchmark is not noticed.
//!
//! This crate reads clocks, so the engine must not depend on it.

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod clock;
mod fault;
mod footprint;
mod major;
mod native;
mod operation;
mod replica;
mod stamp;
mod sys;
mod trace;
mod walk;
mod yardstick;

use std::{collections::BTreeMap, io};

use pagelab_trace::format::HostFacts;
use serde::Serialize;

pub use clock::{Clock, ClockError, StatedRate, agree as agree_on_clock, stated as stated_rates};
pub use fault::{FAULTS, FaultBenchmark};
pub use footprint::{Displaced, Displacing, WorkingSet, displace};
pub use major::{Touches, Touching, touch};
pub use trace::{Traces, write_call_traces, write_traces};
pub use walk::{Share, WalkCost};
pub use yardstick::{Misses, Yardsticks, yardsticks};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("pagelab-host measures by the time-stamp counter of x86-64 processors");

/// Measurements on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub host: HostFacts,
    /// The core's clock, before the benchmarks.
    pub clock: Clock,
    /// Frequencies that the processor and the kernel report.
    pub stated_rates: Vec<StatedRate>,
    /// CPUs that this thread may run on.
    pub cpus: usize,
    /// Costs by the benchmark's name.
    pub costs: BTreeMap<&'static str, Cost>,
    /// Walks of page faults with and without translation caches, by pattern and by the amount of other data accessed in
    /// between.
    pub walks: Vec<WalkCost>,
    /// Benchmarks that could not run on this machine, and why.
    pub missing: BTreeMap<&'static str, String>,
}

/// Cycles of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The median of the samples, in cycles of the core's clock.
    pub median_cycles: f64,
    /// Their lower quartile.
    pub lower_quartile_cycles: f64,
    /// Their upper quartile.
    pub upper_quartile_cycles: f64,
    /// Number of samples; each is the mean of many operations.
    pub repeats: usize,
}

impl Cost {
    /// Statistics of at least one sample, in any order.
    fn from_samples(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |quarter: usize| samples[(samples.len() - 1) * quarter / 4];
        Self {
            median_cycles: at(2),
            lower_quartile_cycles: at(1),
            upper_quartile_cycles: at(3),
            repeats: samples.len(),
        }
    }
}

/// Runs all benchmarks on a thread of its own that stays on one CPU; takes a few seconds.
///
/// `going` is asked between benchmarks; once it returns false, the remaining ones are omitted and reported as missing.
///
/// # Errors
/// If the core's frequency cannot be measured, without which no cost can be given in cycles.
pub fn measure(going: &(dyn Fn() -> bool + Sync)) -> io::Result<Report> {
    std::thread::scope(|scope| {
        scope.spawn(|| native::run(going)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// One cost measured on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct FaultCost {
    /// The machine.
    pub host: HostFacts,
    /// The core's clock.
    pub clock: Clock,
    /// Cost of the benchmark's fault.
    pub cost: Cost,
}

/// Runs the benchmark `name` of [`FAULTS`] like [`measure`]; takes a fraction of a second.
///
/// # Errors
/// If there is no such benchmark, or if it cannot run on this machine.
pub fn measure_fault(name: &str) -> io::Result<FaultCost> {
    let known = FAULTS.iter().find(|fault| fault.name == name);
    let fault = known.ok_or_else(|| io::Error::other(format!("there is no benchmark {name}")))?;
    std::thread::scope(|scope| {
        scope.spawn(|| native::one_fault(fault)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_cost_is_the_median_and_the_quartiles() {
        let cost = Cost::from_samples(vec![50.0, 10.0, 30.0, 20.0, 40.0]);
        let expected =
            Cost { median_cycles: 30.0, lower_quartile_cycles: 20.0, upper_quartile_cycles: 40.0, repeats: 5 };
        assert_eq!(cost, expected);
    }

    /// Measured values on a loaded machine vary; the set of measurements does not.
    #[test]
    fn every_benchmark_is_reported_with_its_quartiles_in_order() {
        let report = measure(&|| true).unwrap();
        let faults = FAULTS.iter().map(|fault| fault.name);
        let operations = operation::OPERATIONS.iter().map(|operation| operation.name);
        let names: BTreeSet<_> = faults.chain(operations).chain(walk::PARTS).collect();
        // Some benchmarks need two CPUs, or a kernel that permits them.
        let covered: BTreeSet<_> = report.costs.keys().chain(report.missing.keys()).copied().collect();
        assert_eq!(covered, names);
        assert!(FAULTS.iter().all(|fault| report.costs.contains_key(fault.name)), "{:?}", report.missing);
        let in_order = |cost: &Cost| {
            cost.repeats > 0
                && cost.lower_quartile_cycles <= cost.median_cycles
                && cost.median_cycles <= cost.upper_quartile_cycles
        };
        assert!(report.costs.values().all(in_order), "{:?}", report.costs);
        assert!(clock::PLAUSIBLE.contains(&report.clock.cycles_per_nanosecond), "{:?}", report.clock);
        let expected = ["string", "stores"].into_iter().flat_map(|zeroing| {
            let patterns = ["sequential", "semi-random", "random"].into_iter();
            patterns.flat_map(move |pattern| walk::BETWEEN.map(|between| (zeroing, pattern, between)))
        });
        let walks = report.walks.iter().map(|walk| (walk.zeroing, walk.pattern, walk.between_bytes));
        assert_eq!(walks.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        for walk in &report.walks {
            let costs = [&walk.plain, &walk.full_prefix, &walk.published];
            assert!(costs.iter().all(|cost| in_order(cost) && cost.repeats == walk.plain.repeats), "{walk:?}");
        }
    }

    #[test]
    fn a_single_fault_is_measured_as_all_are() {
        let measured = measure_fault("first-write").unwrap();
        assert!(measured.cost.median_cycles > 50.0 && measured.cost.repeats > 50);
        assert!(clock::PLAUSIBLE.contains(&measured.clock.cycles_per_nanosecond), "{:?}", measured.clock);
        assert!(measure_fault("last-write").unwrap_err().to_string().contains("no benchmark last-write"));
    }

    #[test]
    fn what_is_left_out_is_named() {
        let report = measure(&|| false).unwrap();
        assert!(report.costs.is_empty());
        assert!(report.missing.contains_key("first-write") && report.missing.contains_key("context-switch"));
        assert!(report.missing.contains_key("walk") && report.missing.contains_key("walk-patterns"));
    }
}
