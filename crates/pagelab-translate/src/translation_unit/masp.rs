//! The modified arbitrary stride prefetcher of translations, called MASP: each instruction's last two strides between
//! misses, unconfirmed.
//!
//! Models: the table of [`asp`](super::asp) without confirmations. After a miss of page M, the pages at the
//! instruction's old stride and at its new one from M, in this order; then the new stride replaces the old one. See
//! [`prefetcher`](super::prefetcher).
//! Source: Vavouliotis et al., "Exploiting Page Table Locality for Agile TLB Prefetching", ISCA 2021 (notes on it): one
//! of the three prefetchers that ATP chooses from, with 64 rows in sets of 4 and a buffer of 64 entries.
//! Parameters: `machine.prefetch.tlb.masp`: `entries` (64), `rows` (64), `ways` (4), `free` (off).
//! Stats: `prefetch.tlb.masp.*`.
//! Choices: those of [`asp`](super::asp).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::free_ptes::FreeConfig;
use super::instruction_table::InstructionTable;
use super::prefetcher::{BufferConfig, DataMiss, Prefetching, Proposals, TlbPrefetcher};
use pagelab_base::error::EngineError;
use pagelab_base::switched::Switched;
use pagelab_tables::mmu_cache::Asid;

/// Parameters of the modified arbitrary stride prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MaspConfig {
    /// Translations in the buffer of a core, 0 to 65536; with 0 there are no prefetches.
    pub entries: u32,
    /// Instructions that the table tracks, 0 to 65536.
    pub rows: u32,
    /// Rows per set.
    pub ways: u32,
    /// Whether translations beside those of walks are taken, too (SBFP).
    #[serde(skip_serializing_if = "Switched::is_off")]
    pub free: Switched<FreeConfig>,
}

impl Default for MaspConfig {
    fn default() -> Self {
        Self { entries: 64, rows: 64, ways: 4, free: Switched::Off }
    }
}

/// The unit.
pub type Masp = Prefetching<LastStrides>;

/// The prefetcher.
#[derive(Clone, Debug)]
pub struct LastStrides {
    table: InstructionTable,
}

impl TlbPrefetcher for LastStrides {
    type Parameters = MaspConfig;

    const STATISTICS: &'static str = "prefetch.tlb.masp";
    const NEEDS_PC: bool = true;

    fn new(parameters: &MaspConfig, key: &str) -> Result<(Self, BufferConfig), EngineError> {
        let &MaspConfig { entries, rows, ways, free } = parameters;
        Ok((Self { table: InstructionTable::new(key, rows, ways)? }, BufferConfig { entries, free }))
    }

    fn samples() -> Vec<MaspConfig> {
        vec![MaspConfig { entries: 2, rows: 4, ways: 2, free: Switched::Off }]
    }

    fn storage_bits(&self) -> u64 {
        self.table.storage_bits(0)
    }

    fn on_miss(&mut self, miss: &DataMiss, proposals: &mut Proposals) {
        let Some(row) = self.table.row(miss) else { return };
        let new = miss.page.wrapping_sub(row.page) as i64;
        if let Some(old) = row.stride {
            proposals.propose(old);
        }
        proposals.propose(new);
        (row.page, row.stride) = (miss.page, Some(new));
    }

    fn flush(&mut self, asid: Asid) {
        self.table.flush(asid);
    }
}

#[cfg(test)]
mod tests {
    use super::super::prefetcher::proposed_by;
    use super::*;

    #[test]
    fn the_old_and_the_new_stride_are_proposed() {
        let pages = |misses: &[(u64, u16, u64)]| proposed_by::<LastStrides>(&MaspConfig::default(), misses);
        assert_eq!(pages(&[(8, 1, 100), (8, 1, 105), (8, 1, 108)]), [vec![], vec![110], vec![113, 111]]);
        let even = [(8, 1, 100), (8, 1, 105), (8, 1, 110)];
        assert_eq!(pages(&even)[2], [115], "once if they are equal");
        let mixed = [(8, 1, 100), (9, 1, 500), (8, 1, 105), (9, 1, 501), (8, 2, 7), (9, 1, 503), (8, 1, 110)];
        assert_eq!(pages(&mixed)[2..], [vec![110], vec![502], vec![], vec![504, 505], vec![115]]);
    }
}
