//! Free prefetch of translations alone, called SBFP: no prefetch walks, only what else is in the lines that demand
//! walks read.
//!
//! Models: the buffer of TLB prefetchers with free translations, and nothing that proposes pages; see
//! [`free_ptes`](super::free_ptes). Any other prefetcher takes them, too, if its own `free` is on.
//! Source: Vavouliotis et al., "Exploiting Page Table Locality for Agile TLB Prefetching", ISCA 2021 (notes on it): a
//! buffer of 64 entries.
//! Parameters: `machine.prefetch.tlb.sbfp`: `entries` (64), and those of `free`: `threshold` (100), `sampler` (64),
//! `initial` (0).
//! Stats: `prefetch.tlb.sbfp.*`.
//! Deviations and choices: those of [`free_ptes`](super::free_ptes).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::free_ptes::FreeConfig;
use super::prefetcher::{BufferConfig, DataMiss, Prefetching, Proposals, TlbPrefetcher};
use pagelab_base::error::EngineError;
use pagelab_base::switched::Switched;

/// Parameters of free prefetch alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SbfpConfig {
    /// Translations in the buffer of a core, 0 to 65536; with 0 there are no prefetches.
    pub entries: u32,
    /// Which neighbours of walked pages are taken.
    pub free: FreeConfig,
}

impl Default for SbfpConfig {
    fn default() -> Self {
        Self { entries: 64, free: FreeConfig::default() }
    }
}

/// The unit.
pub type Sbfp = Prefetching<NoProposals>;

/// The prefetcher, which proposes nothing.
#[derive(Clone, Debug)]
pub struct NoProposals;

impl TlbPrefetcher for NoProposals {
    type Parameters = SbfpConfig;

    const STATISTICS: &'static str = "prefetch.tlb.sbfp";

    fn new(parameters: &SbfpConfig, _: &str) -> Result<(Self, BufferConfig), EngineError> {
        let &SbfpConfig { entries, free } = parameters;
        Ok((Self, BufferConfig { entries, free: Switched::On(free) }))
    }

    fn samples() -> Vec<SbfpConfig> {
        vec![SbfpConfig { entries: 8, free: FreeConfig { threshold: 1, sampler: 8, initial: 1 } }]
    }

    fn on_miss(&mut self, _: &DataMiss, _: &mut Proposals) {}
}
