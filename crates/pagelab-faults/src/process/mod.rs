//! Synthetic fault processes: faults at given rates, computed from a spec.
//!
//! A spec is `name` or `name:key=value,key=value`, such as `poisson:rate=365K,cores=12,seconds=2`. [`parse`] makes a
//! [`FaultProcess`] from it, [`list`] documents all processes. Each core raises its share of the faults one after the
//! other: a fault begins after the end of the previous one. Each is the first write to another page. The times of a
//! core depend only on spec, seed and the core's number.
//!
//! A new process is one file with a `pub(super) static PROCESS` and one line in `PROCESSES`.

mod bursts;
mod even;
mod latency;
mod parameters;
mod phases;
mod poisson;

use std::{cmp::Reverse, collections::BinaryHeap, num::NonZeroU32};

use pagelab_trace::{
    TraceError,
    rng::Rng,
    spec::{Parameter, ParameterDoc, Values},
    suggestion::nearest,
};
use serde::Serialize;

use crate::{Fault, FaultKind, FaultTraceInfo, LatencyOrigin};
use latency::Latency;

/// The processes, in the order of lists.
static PROCESSES: &[&Process] = &[&even::PROCESS, &poisson::PROCESS, &bursts::PROCESS, &phases::PROCESS];

/// Maximum number of faults of a process.
const MAX_FAULTS: f64 = 2e8;
const PAGE_BYTES: u64 = 4096;

/// A kind of process: its documentation, and the function that creates the pattern of one core.
struct Process {
    name: &'static str,
    summary: &'static str,
    origin: &'static str,
    parameters: &'static [Parameter],
    pattern: fn(&Values, &PerCore) -> PatternResult,
}

type PatternResult = Result<Box<dyn Pattern>, TraceError>;

/// The times of one core's faults.
trait Pattern: Send {
    /// Start of the next fault if the previous one ended at `now_ns`; 0 at the beginning.
    fn next_ns(&mut self, now_ns: f64, rng: &mut Rng) -> f64;
}

/// Input for the pattern of one core.
struct PerCore {
    core: u64,
    cores: u64,
    /// Mean latency.
    latency_ns: f64,
}

/// Documentation of a process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessDoc {
    /// Its name in a spec.
    pub name: &'static str,
    /// Its description, one line.
    pub summary: &'static str,
    /// Origin of its numbers.
    pub origin: &'static str,
    /// Parameters that a spec can set.
    pub parameters: Vec<ParameterDoc>,
}

/// All processes with their parameters.
pub fn list() -> Vec<ProcessDoc> {
    let document = |process: &&Process| ProcessDoc {
        name: process.name,
        summary: process.summary,
        origin: process.origin,
        parameters: process.parameters.iter().map(Parameter::document).collect(),
    };
    PROCESSES.iter().map(document).collect()
}

/// Parses `spec`. `seed` is the default of its parameter `seed`.
///
/// # Errors
/// [`TraceError::Usage`] with the unknown process or parameter or the wrong value, and what is allowed.
pub fn parse(spec: &str, seed: u64) -> Result<FaultProcess, TraceError> {
    let spec = spec.trim();
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    let name = name.trim();
    let process = PROCESSES.iter().find(|p| p.name == name).ok_or_else(|| {
        let known: Vec<_> = PROCESSES.iter().map(|p| p.name).collect();
        let meant = nearest(name, known.iter().copied()).map_or(String::new(), |near| format!("did you mean {near}? "));
        TraceError::usage(format!("unknown fault process '{name}'; {meant}known are {}", known.join(", ")))
    })?;
    let values = Values::parse(process.name, process.parameters, settings, seed)?;
    FaultProcess::new(spec, process, &values)
}

/// The faults of a process, sorted by time and, at the same time, by core.
pub struct FaultProcess {
    spec: String,
    cores: Vec<Core>,
    latency: Latency,
    end_ns: u64,
    /// Next fault of each core: time and core.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

struct Core {
    pattern: Box<dyn Pattern>,
    times: Rng,
    latencies: Rng,
    faults: u64,
}

impl FaultProcess {
    fn new(spec: &str, process: &Process, values: &Values) -> Result<Self, TraceError> {
        let latency = Latency::new(values)?;
        let (count, seconds) = (values.number(parameters::CORES.name), values.real(parameters::SECONDS.name));
        let rate = values.number(parameters::RATE.name) as f64;
        if rate * seconds > MAX_FAULTS {
            let what =
                format!("{:.0} faults; at most {MAX_FAULTS:.0} are allowed: lower rate or seconds", rate * seconds);
            return Err(values.conflict(&what));
        }
        let mut all = Vec::new();
        for core in 0..count {
            let pattern = (process.pattern)(values, &PerCore { core, cores: count, latency_ns: latency.mean_ns() })?;
            let stream = |purpose| Rng::for_thread(values.seed(), purpose, core);
            all.push(Core { pattern, times: stream("fault.times"), latencies: stream("fault.latencies"), faults: 0 });
        }
        let end_ns = (seconds * 1e9) as u64;
        let mut made = Self { spec: spec.to_owned(), cores: all, latency, end_ns, next: BinaryHeap::new() };
        (0..made.cores.len()).for_each(|core| made.schedule(core, 0));
        Ok(made)
    }

    /// Information about a trace of the process, without the number of faults.
    pub fn info(&self) -> FaultTraceInfo {
        let mut info = FaultTraceInfo::new(vec![self.spec.clone()], self.cores.len() as u32);
        info.duration_ns = self.end_ns;
        info.duration_origin = "as the spec says".to_owned();
        info.latency = LatencyOrigin::PerFault { how: self.latency.to_string() };
        info.notes.push("a synthetic process, no recording".to_owned());
        info
    }

    /// Computes the next fault of a core whose last fault ended at `now_ns`.
    fn schedule(&mut self, core: usize, now_ns: u64) {
        let state = &mut self.cores[core];
        let begin = state.pattern.next_ns(now_ns as f64, &mut state.times);
        // A core without further faults returns infinity, which the conversion turns into the largest number.
        let begin = (begin as u64).max(now_ns);
        if begin < self.end_ns {
            self.next.push(Reverse((begin, core)));
        }
    }
}

impl Iterator for FaultProcess {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        let Reverse((time_ns, core)) = self.next.pop()?;
        let state = &mut self.cores[core];
        let latency_ns = self.latency.draw(&mut state.latencies);
        let address = ((core as u64 + 1) << 40) + state.faults * PAGE_BYTES;
        state.faults += 1;
        self.schedule(core, time_ns + u64::from(latency_ns.get()));
        let number = core as u32;
        Some(Fault {
            time_ns,
            core: u16::try_from(core).expect("limited by its kind"),
            address,
            kind: FaultKind::FIRST_WRITE,
            process: 1,
            thread: number + 1,
            latency_ns: Some(latency_ns),
        })
    }
}

/// A latency in the trace's unit.
fn whole_ns(latency_ns: f64) -> NonZeroU32 {
    NonZeroU32::new(latency_ns.round() as u32).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(spec: &str) -> String {
        parse(spec, 0).err().unwrap_or_else(|| panic!("'{spec}' must be refused")).to_string()
    }

    #[test]
    fn every_process_is_documented_and_runs_with_its_defaults() {
        for doc in list() {
            let faults = parse(doc.name, 1).unwrap().count();
            assert!(faults > 1000, "{}: {faults}", doc.name);
            assert!(!doc.summary.is_empty() && !doc.origin.is_empty());
            for common in ["rate", "cores", "seconds", "latency_ns", "latency_p95_ns", "seed"] {
                assert!(doc.parameters.iter().any(|p| p.name == common), "{} lacks {common}", doc.name);
            }
        }
    }

    #[test]
    fn mistakes_name_what_is_allowed() {
        assert_eq!(
            error("poison:rate=1K"),
            "unknown fault process 'poison'; did you mean poisson? known are even, poisson, bursts, phases"
        );
        assert!(
            error("poisson:rats=1")
                .starts_with("poisson: unknown parameter 'rats'; did you mean rate? known are rate, cores, ")
        );
        assert!(error("poisson:seconds=0").contains("seconds=0: must be more than 0"));
        assert!(error("poisson:rate=0").contains("rate=0: must be 1 to"));
        assert!(error("poisson:rate=1G,seconds=9,cores=9999").contains("at most 200000000 are allowed"));
        assert!(error("poisson:rate=1M,cores=1").contains("leave a core no time between its faults"));
        assert!(error("even:rate=1M,cores=1").contains("leave a core no time between its faults"));
        assert!(error("poisson:latency_p95_ns=1000").contains("must be at least the mean"));
        assert!(error("poisson:latency_p95_ns=9000").contains("3.868 times the mean"));
        assert!(error("bursts:rate=1M,burst=10,cores=1").contains("leave a core no time between its bursts"));
    }

    /// Rates are as requested, times are sorted, faults of a core do not overlap, and equal seeds give equal faults.
    #[test]
    fn faults_are_sorted_apart_and_as_many_as_asked() {
        for process in ["even", "poisson", "bursts", "phases"] {
            let spec = format!("{process}:rate=200K,cores=3,seconds=2,latency_p95_ns=3200");
            let faults: Vec<_> = parse(&spec, 1).unwrap().collect();
            let mut end = [0; 3];
            for fault in &faults {
                assert!(fault.time_ns >= end[fault.core as usize], "{spec}");
                end[fault.core as usize] = fault.time_ns + u64::from(fault.latency_ns.unwrap().get());
            }
            assert!(faults.is_sorted_by_key(|f| f.time_ns) && end.iter().all(|&end| end > 1_900_000_000));
            let mean = if process == "phases" { (200e3 + 50e3) / 2.0 } else { 200e3 };
            let rate = faults.len() as f64 / 2.0;
            assert!((rate / mean - 1.0).abs() < 0.03, "{spec}: {rate}");
            assert_eq!(faults, parse(&spec, 1).unwrap().collect::<Vec<_>>());
            assert!(process == "even" || faults != parse(&spec, 2).unwrap().collect::<Vec<_>>());
            let pages: std::collections::HashSet<_> = faults.iter().map(|f| f.address).collect();
            assert_eq!(pages.len(), faults.len());
        }
    }
}
