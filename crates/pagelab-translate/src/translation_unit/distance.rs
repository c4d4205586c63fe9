//! Distance prefetch of translations, called DP: it learns which distance between misses follows which.
//!
//! Models: a table with a row per distance between two misses, direct-mapped, with the two distances that followed it
//! last. After a miss at the distance d from the one before, the pages at the distances in the row of d from the miss
//! are proposed, the last one first. Then d enters the row of the distance before; see
//! [`prefetcher`](super::prefetcher).
//! Source: Kandiraju and Sivasubramaniam, "Going the Distance for TLB Prefetching", ISCA 2002 (notes on it): 256 rows,
//! two distances per row, a buffer of 16 entries.
//! Parameters: `machine.prefetch.tlb.distance`: `entries` (16), `rows` (256), `free` (off).
//! Stats: `prefetch.tlb.distance.*`.
//! Choices: after a miss of another address space, the history begins anew; the table stays, as distances belong to no
//! space. Distances are in bytes, so they also mean something between pages of different sizes.

use arrayvec::ArrayVec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::free_ptes::FreeConfig;
use super::prefetcher::{BufferConfig, DataMiss, Prefetching, Proposals, TlbPrefetcher};
use pagelab_base::addr::FRAME_SHIFT;
use pagelab_base::error::{EngineError, between};
use pagelab_base::switched::Switched;
use pagelab_tables::mmu_cache::Asid;

/// Distances per row.
const SLOTS: usize = 2;

/// Parameters of distance prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DistanceConfig {
    /// Translations in the buffer of a core, 0 to 65536; with 0 there are no prefetches.
    pub entries: u32,
    /// Rows of the table, 1 to 65536.
    pub rows: u32,
    /// Whether translations beside those of walks are taken, too (SBFP).
    #[serde(skip_serializing_if = "Switched::is_off")]
    pub free: Switched<FreeConfig>,
}

impl Default for DistanceConfig {
    fn default() -> Self {
        Self { entries: 16, rows: 256, free: Switched::Off }
    }
}

/// What followed a distance.
#[derive(Clone, Debug, Default)]
struct Row {
    distance: i64,
    /// The last one first.
    followers: ArrayVec<i64, SLOTS>,
}

impl Row {
    /// Notes a follower of a distance; a row of another distance is replaced.
    fn learn(&mut self, distance: i64, follower: i64) {
        if self.distance != distance {
            *self = Self { distance, followers: ArrayVec::new() };
        }
        self.followers.retain(|held| *held != follower);
        self.followers.truncate(SLOTS - 1);
        self.followers.insert(0, follower);
    }
}

/// The unit.
pub type Distance = Prefetching<Distances>;

/// The prefetcher.
#[derive(Clone, Debug)]
pub struct Distances {
    rows: Vec<Row>,
    asid: Asid,
    /// The last miss of this space.
    last: Option<u64>,
    /// Bytes from the miss before to the last one.
    distance: Option<i64>,
}

impl Distances {
    fn row(&mut self, distance: i64) -> &mut Row {
        let rows = self.rows.len() as i64;
        &mut self.rows[(distance >> FRAME_SHIFT).rem_euclid(rows) as usize]
    }
}

impl TlbPrefetcher for Distances {
    type Parameters = DistanceConfig;

    const STATISTICS: &'static str = "prefetch.tlb.distance";

    fn new(parameters: &DistanceConfig, key: &str) -> Result<(Self, BufferConfig), EngineError> {
        let &DistanceConfig { entries, rows, free } = parameters;
        between(&format!("{key}.rows"), rows, 1, 1 << 16)?;
        let rows = vec![Row::default(); rows as usize];
        Ok((Self { rows, asid: Asid(0), last: None, distance: None }, BufferConfig { entries, free }))
    }

    fn samples() -> Vec<DistanceConfig> {
        vec![DistanceConfig { entries: 4, rows: 4, free: Switched::Off }]
    }

    /// A row has its distance and its followers, each in pages with a sign; beside them are the number of the last
    /// page, the last distance, and the tag of the space.
    fn storage_bits(&self) -> u64 {
        self.rows.len() as u64 * (1 + SLOTS as u64) * 46 + 45 + 46 + 12
    }

    fn on_miss(&mut self, miss: &DataMiss, proposals: &mut Proposals) {
        if self.asid != miss.asid {
            (self.asid, self.last, self.distance) = (miss.asid, None, None);
        }
        let distance = self.last.map(|last| miss.page.wrapping_sub(last) as i64);
        if let Some(distance) = distance {
            let row = self.row(distance);
            if row.distance == distance {
                row.followers.iter().for_each(|&follower| proposals.propose(follower));
            }
            if let Some(before) = self.distance {
                self.row(before).learn(before, distance);
            }
        }
        self.last = Some(miss.page);
        self.distance = distance;
    }
}

#[cfg(test)]
mod tests {
    use super::super::prefetcher::proposed;
    use super::*;

    fn pages_for(rows: u32, misses: &[u64]) -> Vec<Vec<u64>> {
        let misses: Vec<_> = misses.iter().map(|&page| (1, page)).collect();
        proposed::<Distances>(&DistanceConfig { rows, ..DistanceConfig::default() }, &misses)
    }

    #[test]
    fn what_followed_a_distance_is_proposed_after_it() {
        assert_eq!(pages_for(256, &[100, 104, 105, 109, 110]), [vec![], vec![], vec![], vec![110], vec![114]]);
        // After 4 came 1, then 2, then 3: the last two are held, the last one first.
        let pages = pages_for(256, &[0, 4, 5, 9, 11, 15, 18, 22]);
        assert_eq!(pages[7], [25, 24]);
    }

    #[test]
    fn distances_that_share_a_row_replace_each_other() {
        // 4 and 8 share the only row: 8 was learnt last.
        assert_eq!(pages_for(1, &[0, 4, 5, 13, 14, 18])[5], Vec::<u64>::new());
        assert_eq!(pages_for(256, &[0, 4, 5, 13, 14, 18])[5], [19]);
    }

    #[test]
    fn another_space_has_no_history_but_the_same_table() {
        let misses = [(1, 100), (1, 104), (1, 105), (2, 500), (2, 504)];
        let pages = proposed::<Distances>(&DistanceConfig::default(), &misses);
        assert_eq!(pages, [vec![], vec![], vec![], vec![], vec![505]]);
    }
}
