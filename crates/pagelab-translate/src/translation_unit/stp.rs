//! The stride prefetcher of translations, called STP: the two pages before and after each miss.
//!
//! Models: after a miss of page M, the pages M - 2, M - 1, M + 1 and M + 2, in this order; see
//! [`prefetcher`](super::prefetcher).
//! Source: Vavouliotis et al., "Exploiting Page Table Locality for Agile TLB Prefetching", ISCA 2021 (notes on it): one
//! of the three prefetchers that ATP chooses from, with a buffer of 64 entries.
//! Parameters: `machine.prefetch.tlb.stp`: `entries` (64), `free` (off).
//! Stats: `prefetch.tlb.stp.*`.
//! Deviations: the pages have the size of the one that missed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::free_ptes::FreeConfig;
use super::prefetcher::{BufferConfig, DataMiss, Prefetching, Proposals, TlbPrefetcher};
use pagelab_base::error::EngineError;
use pagelab_base::switched::Switched;

/// Parameters of the stride prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StpConfig {
    /// Translations in the buffer of a core, 0 to 65536; with 0 there are no prefetches.
    pub entries: u32,
    /// Whether translations beside those of walks are taken, too (SBFP).
    #[serde(skip_serializing_if = "Switched::is_off")]
    pub free: Switched<FreeConfig>,
}

impl Default for StpConfig {
    fn default() -> Self {
        Self { entries: 64, free: Switched::Off }
    }
}

/// The unit.
pub type Stp = Prefetching<Strides>;

/// The prefetcher, which has no state.
#[derive(Clone, Debug)]
pub struct Strides;

impl TlbPrefetcher for Strides {
    type Parameters = StpConfig;

    const STATISTICS: &'static str = "prefetch.tlb.stp";

    fn new(parameters: &StpConfig, _: &str) -> Result<(Self, BufferConfig), EngineError> {
        let &StpConfig { entries, free } = parameters;
        Ok((Self, BufferConfig { entries, free }))
    }

    fn samples() -> Vec<StpConfig> {
        let free = FreeConfig { threshold: 1, sampler: 4, initial: 0 };
        vec![StpConfig { entries: 16, free: Switched::On(free) }]
    }

    fn on_miss(&mut self, miss: &DataMiss, proposals: &mut Proposals) {
        for pages in [-2, -1, 1, 2] {
            proposals.propose(pages * miss.size as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::prefetcher::proposed;
    use super::*;

    #[test]
    fn two_pages_on_each_side_are_proposed() {
        let pages = proposed::<Strides>(&StpConfig::default(), &[(1, 100), (1, 1)]);
        assert_eq!(pages, [vec![98, 99, 101, 102], vec![0, 2, 3]], "there is no page before the first");
    }
}
