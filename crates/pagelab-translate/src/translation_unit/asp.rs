//! The arbitrary stride prefetcher of translations, called ASP: each instruction's stride between misses, once it is
//! confirmed.
//!
//! Models: a set-associative table with a row per instruction, tagged with its address and its space: the page of its
//! last miss, the stride from the one before, and how many times in a row the stride was seen again. Once that number
//! reaches `confirmations`, the page one stride ahead is proposed; see [`prefetcher`](super::prefetcher).
//! Source: Kandiraju and Sivasubramaniam, "Going the Distance for TLB Prefetching", ISCA 2002; its table as in
//! Vavouliotis et al., "Exploiting Page Table Locality for Agile TLB Prefetching", ISCA 2021 (notes on both): 64 rows
//! in sets of 4, two confirmations, a buffer of 64 entries.
//! Parameters: `machine.prefetch.tlb.asp`: `entries` (64), `rows` (64), `ways` (4), `confirmations` (2), `free` (off).
//! Stats: `prefetch.tlb.asp.*`.
//! Choices: rows are tagged with the instruction's whole address and replaced in LRU order. A repeated miss of one page
//! is a stride of 0, which proposes nothing. An access that a kernel makes for the program has no instruction, and
//! trains nothing. A program whose source has no addresses of instructions is refused.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::free_ptes::FreeConfig;
use super::instruction_table::InstructionTable;
use super::prefetcher::{BufferConfig, DataMiss, Prefetching, Proposals, TlbPrefetcher};
use pagelab_base::error::{EngineError, between};
use pagelab_base::switched::Switched;
use pagelab_tables::mmu_cache::Asid;

/// Parameters of the arbitrary stride prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AspConfig {
    /// Translations in the buffer of a core, 0 to 65536; with 0 there are no prefetches.
    pub entries: u32,
    /// Instructions that the table tracks, 0 to 65536.
    pub rows: u32,
    /// Rows per set.
    pub ways: u32,
    /// How many times in a row a stride must be seen again before it prefetches, 1 to 255.
    pub confirmations: u32,
    /// Whether translations beside those of walks are taken, too (SBFP).
    #[serde(skip_serializing_if = "Switched::is_off")]
    pub free: Switched<FreeConfig>,
}

impl Default for AspConfig {
    fn default() -> Self {
        Self { entries: 64, rows: 64, ways: 4, confirmations: 2, free: Switched::Off }
    }
}

/// The unit.
pub type Asp = Prefetching<ConfirmedStrides>;

/// The prefetcher.
#[derive(Clone, Debug)]
pub struct ConfirmedStrides {
    table: InstructionTable,
    confirmations: u32,
}

impl TlbPrefetcher for ConfirmedStrides {
    type Parameters = AspConfig;

    const STATISTICS: &'static str = "prefetch.tlb.asp";
    const NEEDS_PC: bool = true;

    fn new(parameters: &AspConfig, key: &str) -> Result<(Self, BufferConfig), EngineError> {
        let &AspConfig { entries, rows, ways, confirmations, free } = parameters;
        between(&format!("{key}.confirmations"), confirmations, 1, u8::MAX.into())?;
        Ok((Self { table: InstructionTable::new(key, rows, ways)?, confirmations }, BufferConfig { entries, free }))
    }

    fn samples() -> Vec<AspConfig> {
        vec![AspConfig { entries: 4, rows: 2, ways: 2, confirmations: 1, free: Switched::Off }]
    }

    /// Beside the table's bits, each row counts confirmations.
    fn storage_bits(&self) -> u64 {
        self.table.storage_bits((self.confirmations.ilog2() + 1).into())
    }

    fn on_miss(&mut self, miss: &DataMiss, proposals: &mut Proposals) {
        let Some(row) = self.table.row(miss) else { return };
        let stride = miss.page.wrapping_sub(row.page) as i64;
        let is_confirmed = row.stride == Some(stride);
        row.confirmed = if is_confirmed { (row.confirmed + 1).min(self.confirmations) } else { 0 };
        (row.page, row.stride) = (miss.page, Some(stride));
        if row.confirmed == self.confirmations {
            proposals.propose(stride);
        }
    }

    fn flush(&mut self, asid: Asid) {
        self.table.flush(asid);
    }
}

#[cfg(test)]
mod tests {
    use super::super::free_ptes::AcceptedDistances;
    use super::super::prefetcher::proposed_by;
    use super::*;

    /// What is proposed after misses: instruction, space and page.
    fn pages_for(config: AspConfig, misses: &[(u64, u16, u64)]) -> Vec<Vec<u64>> {
        proposed_by::<ConfirmedStrides>(&config, misses)
    }

    #[test]
    fn a_stride_is_proposed_once_it_was_confirmed_twice() {
        let misses = |pages: &[u64]| -> Vec<_> { pages.iter().map(|&page| (0x40_1000, 1, page)).collect() };
        let pages = pages_for(AspConfig::default(), &misses(&[100, 104, 108, 112]));
        assert_eq!(pages, [vec![], vec![], vec![], vec![116]]);
        // Another stride begins anew; backwards is a stride, too.
        let pages = pages_for(AspConfig::default(), &misses(&[100, 104, 108, 112, 111, 110, 109, 108]));
        assert_eq!(pages[3..], [vec![116], vec![], vec![], vec![108], vec![107]]);
        let once = AspConfig { confirmations: 1, ..AspConfig::default() };
        assert_eq!(pages_for(once, &misses(&[100, 104, 108, 108, 108])), [vec![], vec![], vec![112], vec![], vec![]]);
    }

    #[test]
    fn instructions_and_spaces_do_not_mix_their_strides() {
        let (one, other) = (0x40_1000, 0x40_1004);
        let misses: Vec<_> =
            (0..4).flat_map(|n| [(one, 1, 100 + 4 * n), (other, 1, 500 + n), (one, 2, n * n)]).collect();
        let pages = pages_for(AspConfig::default(), &misses);
        assert_eq!(pages[..9], vec![Vec::<u64>::new(); 9]);
        assert_eq!(pages[9..], [vec![116], vec![504], vec![]]);
        let unknown: Vec<_> = (0..8).map(|n| (0, 1, n)).collect();
        assert_eq!(pages_for(AspConfig::default(), &unknown), vec![Vec::<u64>::new(); 8], "no instruction");
    }

    #[test]
    fn the_least_recent_instruction_leaves_its_set() {
        // Three instructions of one set of two ways: none is found again. With four ways all are.
        let misses: Vec<_> = (0..4).flat_map(|n| [(8, 1, 100 + n), (16, 1, 200 + n), (24, 1, 300 + n)]).collect();
        let with = |ways| pages_for(AspConfig { rows: 8, ways, ..AspConfig::default() }, &misses);
        assert_eq!(with(2), vec![Vec::<u64>::new(); 12]);
        assert_eq!(with(4)[9..], [vec![104], vec![204], vec![304]]);
        let none = AspConfig { rows: 0, ways: 1, ..AspConfig::default() };
        assert_eq!(pages_for(none, &misses), vec![Vec::<u64>::new(); 12]);
        assert!(ConfirmedStrides::new(&AspConfig { rows: 6, ..AspConfig::default() }, "asp").is_err());
    }

    #[test]
    fn a_flush_empties_the_rows_of_its_space() {
        let (mut prefetcher, _) = ConfirmedStrides::new(&AspConfig::default(), "asp").unwrap();
        let mut learn = |asid, page: u64| {
            let miss = DataMiss { asid: Asid(asid), page: page << 12, size: 4096, pc: 8 };
            let mut proposals = Proposals::new(miss, AcceptedDistances::default());
            prefetcher.on_miss(&miss, &mut proposals);
            if page == 2 {
                prefetcher.flush(Asid(1));
            }
            proposals.pages().next().is_some()
        };
        assert_eq!([0, 1, 2, 3].map(|page| learn(1, page)), [false; 4]);
        assert_eq!([4, 5, 6, 7, 8].map(|page| learn(2, page)), [false, false, false, true, true]);
        assert_eq!([4, 5].map(|page| learn(1, page)), [false; 2], "3, 4, 5: confirmed once");
        assert!(learn(1, 6));
    }
}
