//! Sampled replay: what it cannot go with, and what results say of it.

use pagelab_trace::SourceInfo;
use pagelab_trace::sample::{LONGER_EACH, LONGER_TIMES};
use serde::Serialize;

use crate::run::{Request, SourceResult};
use pagelab_base::error::EngineError;
use pagelab_simulation::config::{Config, SampleConfig};
use pagelab_simulation::machine::simulation::PlacedSource;

/// How the main source was sampled, in instructions of all its threads.
#[derive(Clone, Debug, Serialize)]
pub struct SampleReport {
    /// Of a period.
    pub every: u64,
    /// Of its window.
    pub length: u64,
    /// Before each window, to warm up.
    pub warm: u64,
    /// From the begin of a period to its window.
    pub offset: u64,
    /// Before windows that are warmed up for longer, at most.
    pub longer_warm: u64,
    /// Numbers of these, among the results' windows.
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

    /// What is to be known of the sample, a sentence each.
    pub(crate) fn warnings(&self, windows: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        if windows < FEW {
            warnings.push(format!(
                "the sample has {windows} windows, too few for its intervals to be trusted: take a shorter `every`, so that there are \
                 {FEW} or more"
            ));
        }
        if self.warm == 0 {
            warnings.push(format!(
                "the sample's windows begin with the TLBs and caches that first touches left, so they miss more, and nothing tells how \
                 much; warm= warms them up, one in {LONGER_EACH} for longer"
            ));
        }
        warnings
    }
}

/// Windows below which Student's distribution does not help against skew.
const FEW: usize = 30;

/// The same configuration, with the windows that `auto` comes to for its main source.
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

/// Says what a sample of a request's main source cannot go with.
pub(crate) fn check(request: &Request, config: &Config, sources: &[SourceResult]) -> Result<(), EngineError> {
    if config.engine.sample.is_off() {
        return Ok(());
    }
    let refuse = |what: &str| Err(EngineError::config("engine.sample", what));
    if sources.iter().any(|source| source.live) {
        return refuse(
            "a live run cannot leave out what the program has done: say --windows, which skips while it records",
        );
    }
    if sources.len() != 1 || sources[0].role != "main" {
        return refuse("other sources would run through the gaps between windows: replay one source alone");
    }
    if sources[0].sampled {
        return refuse(
            "its accesses are already samples, so the number of instructions between them is unknown: replay all of them",
        );
    }
    if request.warm_up.is_some() {
        return refuse("each window is warmed up by itself: leave the warm-up away, and write warm= in the sample");
    }
    if request.windows.is_some() {
        return refuse("its windows are the parts that are counted apart: leave other windows away");
    }
    if request.page_faults {
        return refuse("the times of page faults between windows are unknown: write a fault trace of the whole source");
    }
    Ok(())
}
