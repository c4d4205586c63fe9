//! The history prefetcher of translations, called H2P: it repeats the last two distances between misses.
//!
//! Models: after the misses of pages A, B and E, the pages E + (E - B) and E + (B - A), one if they are equal; see
//! [`prefetcher`](super::prefetcher).
//! Source: Vavouliotis et al., "Exploiting Page Table Locality for Agile TLB Prefetching", ISCA 2021 (notes on it): one
//! of the three prefetchers that ATP chooses from, with a buffer of 64 entries.
//! Parameters: `machine.prefetch.tlb.h2p`: `entries` (64), `free` (off).
//! Stats: `prefetch.tlb.h2p.*`.
//! Choices: after a miss of another address space, the history begins anew. Distances are in bytes, so they also mean
//! something between pages of different sizes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::free_ptes::FreeConfig;
use super::prefetcher::{BufferConfig, DataMiss, Prefetching, Proposals, TlbPrefetcher};
use pagelab_base::error::EngineError;
use pagelab_base::switched::Switched;
use pagelab_tables::mmu_cache::Asid;

/// Parameters of the history prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct H2pConfig {
    /// Translations in the buffer of a core, 0 to 65536; with 0 there are no prefetches.
    pub entries: u32,
    /// Whether translations beside those of walks are taken, too (SBFP).
    #[serde(skip_serializing_if = "Switched::is_off")]
    pub free: Switched<FreeConfig>,
}

impl Default for H2pConfig {
    fn default() -> Self {
        Self { entries: 64, free: Switched::Off }
    }
}

/// The unit.
pub type H2p = Prefetching<LastDistances>;

/// The prefetcher.
#[derive(Clone, Debug)]
pub struct LastDistances {
    asid: Asid,
    /// The last miss of this space.
    last: Option<u64>,
    /// Bytes from the miss before to the last one.
    distance: Option<i64>,
}

impl TlbPrefetcher for LastDistances {
    type Parameters = H2pConfig;

    const STATISTICS: &'static str = "prefetch.tlb.h2p";

    fn new(parameters: &H2pConfig, _: &str) -> Result<(Self, BufferConfig), EngineError> {
        let &H2pConfig { entries, free } = parameters;
        Ok((Self { asid: Asid(0), last: None, distance: None }, BufferConfig { entries, free }))
    }

    fn samples() -> Vec<H2pConfig> {
        vec![H2pConfig { entries: 1, free: Switched::Off }]
    }

    /// The number of the last page, the distance in pages with its sign, and the tag of the space.
    fn storage_bits(&self) -> u64 {
        45 + 46 + 12
    }

    fn on_miss(&mut self, miss: &DataMiss, proposals: &mut Proposals) {
        if self.asid != miss.asid {
            *self = Self { asid: miss.asid, last: None, distance: None };
        }
        let distance = self.last.map(|last| miss.page.wrapping_sub(last) as i64);
        if let (Some(newer), Some(older)) = (distance, self.distance) {
            proposals.propose(newer);
            proposals.propose(older);
        }
        self.last = Some(miss.page);
        self.distance = distance;
    }
}

#[cfg(test)]
mod tests {
    use super::super::prefetcher::proposed;
    use super::*;

    fn pages_for(misses: &[(u16, u64)]) -> Vec<Vec<u64>> {
        proposed::<LastDistances>(&H2pConfig::default(), misses)
    }

    #[test]
    fn the_last_two_distances_are_repeated() {
        assert_eq!(pages_for(&[(1, 100), (1, 104), (1, 105)]), [vec![], vec![], vec![106, 109]]);
        assert_eq!(pages_for(&[(1, 100), (1, 104), (1, 108)])[2], [112], "once if they are equal");
        assert_eq!(
            pages_for(&[(1, 9), (1, 5), (1, 3), (1, 3)])[2..],
            [vec![1], vec![1]],
            "also backwards, from page 0 on"
        );
    }

    #[test]
    fn another_space_has_no_history() {
        assert_eq!(pages_for(&[(1, 100), (1, 104), (2, 105), (1, 106)]), vec![Vec::<u64>::new(); 4]);
    }
}
