//! Sampled replay: conflicting options, and the report in results.

use pagelab_trace::SourceInfo;
use pagelab_trace::sample::{LONGER_EACH, LONGER_TIMES};
use serde::Serialize;

use crate::run::{Request, SourceResult};
use pagelab_base::error::EngineError;
use pagelab_run::config::{Config, SampleConfig};
use pagelab_simulation::machine::simulation::PlacedSource;

/// How the main source was sampled; lengths are in instructions of all its threads.
#[derive(Clone, Debug, Serialize)]
pub struct SampleReport {
    /// Length of a period.
    pub every: u64,
    /// Length of each period's window.
    pub length: u64,
    /// Length of the warm-up before each window.
    pub warm: u64,
    /// From the start of a period to its window.
    pub offset: u64,
    /// Maximum length of the longer warm-up before some windows.
    pub longer_warm: u64,
    /// Indices of these windows among the results' windows.
    pub longer: Vec<usize>,
}

impl SampleReport {
    /// For a sampled source with this many windows; none for other sources.
    pub(crate) fn new(source: &SourceInfo, seed: u64, windows: usize) -> Option<Self> {
        let sampling = source.sampling?;
        Some(Self {
            every: sampling.every,
            length: sampling.length,
            warm: sampling.warm,
            offset: sampling.start(seed),
            longer_warm: sampling.warm.saturating_mul(LONGER_TIMES),
            longer: (0..windows).filter(|&window| sampling.is_longer(window as u64)).collect(),
        })
    }

    /// Warnings about the sample, one sentence each.
    pub(crate) fn warnings(&self, windows: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        if windows < FEW {
            warnings.push(format!(
                "the sample has {windows} windows, too few for reliable intervals: use a shorter `every`, for at least {FEW} \
                 windows"
            ));
        }
        if self.warm == 0 {
            warnings.push(format!(
                "the sample's windows begin with TLBs and caches filled only by first touches, so they miss more, by an \
                 unknown amount; warm= warms them up, one in {LONGER_EACH} for longer"
            ));
        }
        warnings
    }
}

/// With fewer windows, Student's distribution does not correct for skew.
const FEW: usize = 30;

/// The same configuration, with the windows that `auto` chooses for its main source.
pub(crate) fn resolve(
    config: &Config,
    mains: &[PlacedSource],
    max_accesses: Option<u64>,
) -> Result<Config, EngineError> {
    let mut resolved = config.clone();
    if let Some(main) = mains.first()
        && let Some(sampling) = config.engine.sample.sampling_for(main.source.info(), max_accesses)?
    {
        resolved.engine.sample = SampleConfig::Windows(sampling);
    }
    Ok(resolved)
}

/// Rejects options that conflict with a sample of the request's main source.
pub(crate) fn check(request: &Request, config: &Config, sources: &[SourceResult]) -> Result<(), EngineError> {
    if config.engine.sample.is_off() {
        return Ok(());
    }
    let refuse = |what: &str| Err(EngineError::config("engine.sample", what));
    if sources.iter().any(|source| source.live) {
        return refuse("a live run cannot skip accesses already recorded: use --windows, which skips while it records");
    }
    if sources.len() != 1 || sources[0].role != "main" {
        return refuse("other sources would also run in the gaps between windows: replay only one source");
    }
    if sources[0].sampled {
        return refuse(
            "its accesses are already samples, so the number of instructions between them is unknown: replay all of them",
        );
    }
    if request.warm_up.is_some() {
        return refuse("each window has its own warm-up: omit the warm-up of the run, and set warm= in the sample");
    }
    if request.windows.is_some() {
        return refuse("its windows are already counted separately: omit other windows");
    }
    if request.page_faults {
        return refuse("the times of page faults between windows are unknown: write a fault trace of the whole source");
    }
    Ok(())
}
