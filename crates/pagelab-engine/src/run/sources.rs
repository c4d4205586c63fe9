//! Placement of a request's sources on CPUs: main sources, co-runners and arrivals.
//!
//! `SPEC@CPUS` places a source on these CPUs; otherwise it goes to the next ones: first one hardware thread of each
//! core, then the second ones. A suffix `,memory_limit=SIZE` puts it into its own memory cgroup. Threads stay on their
//! CPU; no scheduler moves them.

use std::sync::Arc;

use pagelab_trace::quantity::{Bytes, parse_bytes};
use pagelab_trace::{Batch, Ending, Opened, Source, SourceInfo, TraceError};
use serde::Serialize;

use crate::run::Request;
use pagelab_base::error::EngineError;
use pagelab_run::config::Config;
use pagelab_run::programs::arrivals::ArrivalRate;
use pagelab_run::programs::load::{ArrivalStream, BackgroundLoad, CoRunner, Open};
use pagelab_simulation::machine::simulation::PlacedSource;

/// A source of a run.
#[derive(Clone, Debug, Serialize)]
pub struct SourceResult {
    /// Name of the trace or the workload.
    pub name: String,
    /// Role: `main`, `co-runner` or `arrivals`.
    pub role: &'static str,
    /// Hash that identifies the trace's content; none for synthetic workloads.
    pub content_hash: Option<String>,
    /// True if the mappings were inferred from the accesses because the trace had no events.
    pub mappings_inferred: bool,
    /// Whether the accesses are only samples of those that the program made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sampled: bool,
    /// Whether accesses contain the load that their address depends on.
    #[serde(skip)]
    pub dependencies: bool,
    /// Whether it contains conditional branches.
    #[serde(skip)]
    pub branches: bool,
    /// False for a trace whose recording was cut off.
    pub complete: bool,
    /// Whether its recording or sampling was stopped before the program's end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// The program's exit status as a shell reports it: 128 plus the signal's number if a signal ended it. None if
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Maximum number of threads that run at once.
    #[serde(skip_serializing_if = "is_single")]
    pub threads: u32,
    /// CPUs over which its threads were spread.
    pub cpus: Vec<usize>,
    /// Layer on which its processes ran.
    pub layer: String,
    /// Whether it was recorded during the run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
}

/// Whether a source's threads have only one order.
fn is_single(threads: &u32) -> bool {
    *threads <= 1
}

/// The sources of a request on the CPUs of a machine.
#[derive(Default)]
pub(crate) struct Placement {
    pub mains: Vec<PlacedSource>,
    pub background: BackgroundLoad,
    /// In the order main sources, co-runners, arrivals.
    pub results: Vec<SourceResult>,
}

impl Placement {
    /// Opens each source of a request once, to check it, and places it; `live` becomes the first main source.
    pub fn new(request: &Request, config: &Config, live: Option<Box<dyn Source>>) -> Result<Self, EngineError> {
        let mut cpus = Cpus::new(config);
        let mut placement = Self::default();
        let seed = config.engine.seed;
        if let Some(source) = live {
            let result =
                SourceResult { live: true, ..cpus.place(source.info().clone(), Ending::UNKNOWN, "main", None) };
            placement.mains.push(PlacedSource { source, cpus: result.cpus.clone(), memory_limit: None });
            placement.results.push(result);
        }
        for text in &request.sources {
            let (text, memory_limit) = split_limit("sources", text)?;
            let (spec, requested) = cpus.split("sources", &text)?;
            let (source, result) = cpus.open("sources", "main", spec, requested, seed)?;
            placement.mains.push(PlacedSource { source, cpus: result.cpus.clone(), memory_limit });
            placement.results.push(result);
        }
        for text in &request.with {
            let (text, memory_limit) = split_limit("with", text)?;
            let (spec, requested) = cpus.split("with", &text)?;
            let (_, result) = cpus.open("with", "co-runner", spec, requested, seed)?;
            let (open, on) = (opener("with", spec, seed), result.cpus.clone());
            placement.background.co_runners.push(CoRunner { open, cpus: on, memory_limit });
            placement.results.push(result);
        }
        for text in &request.arrivals {
            let (text, memory_limit) = split_limit("arrivals", text)?;
            let (place, pace) = ArrivalRate::parse(&text)?;
            if request.sources.is_empty() && pace.count.is_none() {
                let what = format!("`{text}`: without a main source the run has no end; write {text},count=N");
                return Err(EngineError::config("arrivals", what));
            }
            let (spec, requested) = cpus.split("arrivals", place)?;
            let (_, result) = cpus.open("arrivals", "arrivals", spec, requested, seed)?;
            let (open, on) = (opener("arrivals", spec, seed), result.cpus.clone());
            placement.background.arrivals.push(ArrivalStream { open, cpus: on, memory_limit, pace });
            placement.results.push(result);
        }
        config.system.check_names(&placement.names())?;
        Ok(placement)
    }

    /// The sources' names in statistics, in order.
    fn names(&self) -> Vec<String> {
        let number = |kind: &'static str, count: usize| (0..count).map(move |number| format!("{kind}.{number}"));
        let background = &self.background;
        let co_runners = number("co_runner", background.co_runners.len());
        let all = number("source", self.mains.len()).chain(co_runners);
        all.chain(number("arrivals", background.arrivals.len())).collect()
    }
}

/// Splits `,memory_limit=SIZE` from a source's text.
fn split_limit(key: &str, text: &str) -> Result<(String, Option<Bytes>), EngineError> {
    const LIMIT: &str = "memory_limit=";
    let (limits, rest): (Vec<&str>, Vec<&str>) = text.split(',').partition(|part| part.trim_start().starts_with(LIMIT));
    let wrong = |what: String| EngineError::config(key, format!("`{text}`: {what}"));
    let limit = match limits[..] {
        [] => None,
        [limit] => {
            let size = &limit.trim_start()[LIMIT.len()..];
            Some(Bytes(parse_bytes(size).map_err(|e| wrong(format!("{LIMIT}{size}: {e}")))?))
        }
        _ => return Err(wrong("memory_limit is given twice".to_owned())),
    };
    Ok((rest.join(","), limit))
}

/// Assigns the CPUs of a machine to sources.
struct Cpus {
    preference: Vec<usize>,
    next: usize,
}

impl Cpus {
    fn new(config: &Config) -> Self {
        let (cores, threads) = (config.machine.cores as usize, config.machine.threads_per_core as usize);
        let preference = (0..threads).flat_map(|thread| (0..cores).map(move |core| core * threads + thread)).collect();
        Self { preference, next: 0 }
    }

    /// Splits `SPEC@CPUS`.
    fn split<'t>(&self, key: &str, text: &'t str) -> Result<(&'t str, Option<Vec<usize>>), EngineError> {
        let Some((spec, list)) = text.rsplit_once('@') else { return Ok((text, None)) };
        if list.is_empty() || !list.chars().all(|c| c.is_ascii_digit() || c == '-' || c == ',') {
            return Ok((text, None));
        }
        let last_cpu = self.preference.len() - 1;
        let wrong = || {
            let what = format!(
                "`@{list}` does not name CPUs of this machine: write numbers from 0 to {last_cpu} like @0, @1-3,5"
            );
            EngineError::config(key, what)
        };
        let mut chosen = Vec::new();
        for part in list.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) =
                (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
            if first > last || last > last_cpu {
                return Err(wrong());
            }
            chosen.extend((first..=last).filter(|cpu| !chosen.contains(cpu)).collect::<Vec<_>>());
        }
        Ok((spec, Some(chosen)))
    }

    /// Opens a source and places it on the next CPUs, or on the `requested` CPUs.
    fn open(
        &mut self,
        key: &str,
        role: &'static str,
        spec: &str,
        requested: Option<Vec<usize>>,
        seed: u64,
    ) -> Result<(Box<dyn Source>, SourceResult), EngineError> {
        let Opened { source, ending } = open(key, spec, seed)?;
        let result = self.place(source.info().clone(), ending, role, requested);
        Ok((source, result))
    }

    /// Places a source on the next CPUs, or on the `requested` CPUs.
    fn place(
        &mut self,
        info: SourceInfo,
        ending: Ending,
        role: &'static str,
        requested: Option<Vec<usize>>,
    ) -> SourceResult {
        let cpus = requested.unwrap_or_else(|| {
            let all = self.preference.len();
            let count = (info.threads.max(1) as usize).min(all);
            let chosen = (0..count).map(|n| self.preference[(self.next + n) % all]).collect();
            self.next += count;
            chosen
        });
        SourceResult {
            name: info.name,
            role,
            content_hash: info.content_hash,
            mappings_inferred: info.mappings_inferred,
            sampled: info.sampled,
            dependencies: info.dependencies,
            branches: info.branches,
            complete: ending.complete,
            stopped: ending.stopped,
            exit_status: ending.exit_status,
            threads: info.threads,
            cpus,
            layer: String::new(),
            live: false,
        }
    }
}

/// Placeholder for a source that can be read only once. It has only the source's description.
pub(crate) struct Announced(pub SourceInfo);

impl Source for Announced {
    fn info(&self) -> &SourceInfo {
        &self.0
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        Ok(false)
    }
}

/// Opens a source named by a key of the request.
fn open(key: &str, spec: &str, seed: u64) -> Result<Opened, EngineError> {
    pagelab_trace::names_trace(spec).map_err(|error| EngineError::config(key, error.to_string()))?;
    Ok(pagelab_trace::open(spec, seed)?)
}

/// Returns a function that opens a source repeatedly.
fn opener(key: &'static str, spec: &str, seed: u64) -> Open {
    let spec = spec.to_owned();
    Arc::new(move || Ok(open(key, &spec, seed)?.source))
}
