//! What a run is asked for, and what it gives: requests, progress and results.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::sample::SampleReport;
use crate::run::sources::SourceResult;
use pagelab_base::error::EngineError;
use pagelab_base::measure::Meaning;
use pagelab_kernel::frames::contiguity::ContiguousRun;
use pagelab_run::config::Config;
use pagelab_run::observe::page_faults::SeenFault;
use pagelab_run::observe::profile::ProfileReport;

/// Options of a run. Tests compare every other list of options with these names (`python/pagelab/run_options.py`).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Traces (folders) and workload specs, each optionally followed by `@CPUS` (`@0`, `@1-3,5`) and
    /// `,memory_limit=SIZE`.
    pub sources: Vec<String>,
    /// Co-runners: sources of the same form that run at the same time and restart whenever they end.
    #[serde(default)]
    pub with: Vec<String>,
    /// Short-lived processes that arrive during the run:
    /// `SPEC[@CPUS],per_second=RATE[,count=N][,spacing=uniform|poisson] [,memory_limit=SIZE]`.
    #[serde(default)]
    pub arrivals: Vec<String>,
    /// System presets or TOML files, each optionally followed by `@KERNEL`, which replaces `kernel`, and by overrides
    /// for that system alone, `{key=value,…}`. All are run.
    pub systems: Vec<String>,
    /// Machine preset or TOML file; none for the default preset.
    #[serde(default)]
    pub machine: Option<String>,
    /// Kernel preset or TOML file for systems without `@KERNEL`; none for the default preset.
    #[serde(default)]
    pub kernel: Option<String>,
    /// `key=value` overrides of all systems.
    #[serde(default)]
    pub set: Vec<String>,
    /// Overrides `engine.seed`.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Maximum number of accesses replayed per source.
    #[serde(default)]
    pub max_accesses: Option<u64>,
    /// Total accesses of the main sources before counting begins.
    #[serde(default)]
    pub warm_up: Option<u64>,
    /// Also report statistics for this many equal parts of the run; for at least half as many if a source's number of
    /// accesses is unknown.
    #[serde(default)]
    pub windows: Option<u32>,
    /// Whether results contain the physical location of the main sources' pages at their end.
    #[serde(default)]
    pub contiguity_map: bool,
    /// Whether results contain each page fault of programs, from the beginning of the run; for one system only.
    #[serde(default)]
    pub page_faults: bool,
    /// Whether results attribute paging costs to the programs' memory and code.
    #[serde(default)]
    pub profile: bool,
    /// Number of legal orders of the main sources' threads to replay, including the recorded one.
    #[serde(default)]
    pub interleavings: Option<u32>,
    /// Overrides `engine.sample`.
    #[serde(default)]
    pub sample: Option<String>,
    /// Overrides `engine.check`.
    #[serde(default)]
    pub check: bool,
    /// Maximum number of systems simulated in parallel. Results do not depend on it.
    #[serde(default)]
    pub threads: Option<usize>,
}

/// Progress of one system's simulation.
#[derive(Clone, Debug)]
pub struct RunProgress {
    /// Label of the system.
    pub system: String,
    /// Accesses replayed so far.
    pub accesses_done: u64,
    /// None if a source's number of accesses is unknown.
    pub accesses_total: Option<u64>,
}

/// One system's result.
#[derive(Clone, Debug, Serialize)]
pub struct SystemResult {
    /// Its name, with `@KERNEL` if given.
    pub system: String,
    /// Its name, plus what distinguishes it from the other systems of the run.
    pub label: String,
    /// The overrides for this system alone.
    pub settings: Vec<String>,
    /// Name of the machine.
    pub machine: String,
    /// Main sources, then co-runners, then arrivals.
    pub sources: Vec<SourceResult>,
    /// The seed of all random choices.
    pub seed: u64,
    /// Maximum number of accesses replayed per source; none for all.
    pub max_accesses: Option<u64>,
    /// Accesses of the main sources before counting began; none without a warm-up.
    pub warm_up: Option<u64>,
    /// The effective configuration.
    pub config: Config,
    /// Accesses handled by the simulator's fast path (`engine.fast_path`). It is not a property of the simulated
    /// system.
    #[serde(skip)]
    pub fast_path_accesses: u64,
    /// Statistics by name; [`Results::statistics`] explains the names.
    pub stats: BTreeMap<String, u64>,
    /// The statistics of each part, in order.
    pub windows: Vec<BTreeMap<String, u64>>,
    /// The statistics of each order of threads, the recorded one first, if several were requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<BTreeMap<String, u64>>,
    /// By layer: runs of adjacent pages in adjacent frames, as first page, first frame and length.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub contiguity_map: BTreeMap<String, Vec<ContiguousRun>>,
    /// The profile, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileReport>,
    /// How the source was sampled, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<SampleReport>,
    /// Warnings about anything that affects the run's results, such as rejected accesses.
    pub warnings: Vec<String>,
    /// Page faults, if requested.
    #[serde(skip)]
    pub page_faults: Vec<SeenFault>,
    #[serde(skip)]
    pub(crate) meanings: BTreeMap<String, Meaning>,
}

/// Results of a request, in the order of its systems.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Version of pagelab that produced them.
    pub version: &'static str,
    /// One per system, in the order of the request.
    pub results: Vec<SystemResult>,
    /// Meaning of every statistic in the results.
    pub statistics: BTreeMap<String, Meaning>,
}

/// Called from several threads in parallel; returning false interrupts the run.
pub type OnProgress<'a> = &'a (dyn Fn(&RunProgress) -> bool + Sync);

impl Request {
    /// Reads it from JSON.
    pub fn parse(json: &str) -> Result<Self, EngineError> {
        serde_json::from_str(json).map_err(|e| EngineError::config("request", e.to_string()))
    }
}
