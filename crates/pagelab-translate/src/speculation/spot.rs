//! SpOT, speculative offset-based translation: each instruction's accesses keep one distance between pages and frames.
//!
//! Models: a set-associative table with a row per instruction, tagged with its address and its space: the distance from
//! page to frame, whether stores are allowed, and a counter of 0 to 3. After a miss, an instruction whose counter is at
//! least `confidence` guesses the page at that distance. The walk judges every row of its instruction, guess or not:
//! the same distance raises the counter, another one lowers it. A row whose counter is 0 already takes the new
//! distance. An instruction without a row gets one with a counter of `initial`, in an empty way or that of a row whose
//! counter is 0. Only distances of pages in runs of at least `run_pages` pages are taken, in every layer: pages that
//! the kernel has marked as contiguous in its page table.
//! Source: Alverti, Psomadakis, Karakostas, Gandhi, Nikas, Goumas, Koziris, "Enhancing and Exploiting Contiguity for
//! Fast Memory Virtualization", ISCA 2020, as notes and a reimplementation (CMU-SAFARI, Virtuoso, 2026) describe it: 32
//! rows of 4 ways, guesses from a counter above 1, new rows at 1, runs of 32 pages, 20 cycles for a flush.
//! Parameters: `machine.tlb.speculation` of model `spot`: `entries` (32), `ways` (4), `confidence` (2), `initial` (1),
//! `run_pages` (32), `latency_cycles` (2), `flush_cycles` (20).
//! Stats: `tlb.speculation.*`.
//! Deviations and choices: the kernel's marks are taken to be right at each walk: they are computed from the page
//! tables and cost nothing. Of several rows with a counter of 0, the least recently used one is replaced; if there is
//! none, the new instruction gets no row. A store is not guessed if the row's last page was read-only. A distance is no
//! translation: invalidations of pages leave the rows, which end with their space. The latency of a look-up is an
//! estimate. A program whose source has no addresses of instructions is refused.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FoundPage, Guess, GuessTiming, MissedAccess, Speculation};
use pagelab_base::addr::VirtAddr;
use pagelab_base::error::{EngineError, between};
use pagelab_base::page_fault::Intent;
use pagelab_base::rng::Rng;
use pagelab_tables::mmu_cache::Asid;

/// Largest value of a counter, which has two bits.
const MOST: u32 = 3;

/// Parameters of SpOT.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SpotConfig {
    /// Rows of a core's table, a multiple of `ways`, 1 to 65536.
    pub entries: u32,
    /// Ways per set; equal to `entries` for a fully associative table.
    pub ways: u32,
    /// Least counter with which a row guesses, 1 to 3.
    pub confidence: u32,
    /// Counter of a new row, 0 to 3.
    pub initial: u32,
    /// Least pages of a run whose distance a row takes, 1 to 512.
    pub run_pages: u32,
    /// Cycles of a look-up, which begins with the walk.
    pub latency_cycles: u32,
    /// Cycles that a core with a window takes to begin again after a wrong guess.
    pub flush_cycles: u32,
}

impl Default for SpotConfig {
    fn default() -> Self {
        Self { entries: 32, ways: 4, confidence: 2, initial: 1, run_pages: 32, latency_cycles: 2, flush_cycles: 20 }
    }
}

/// What an instruction's walks have found.
#[derive(Clone, Copy, Debug)]
struct Row {
    asid: Asid,
    /// The instruction's address; 0 for an empty row.
    pc: u64,
    /// From the number of a page to that of its frame.
    distance: u64,
    writable: bool,
    counter: u32,
}

/// The table of a core.
#[derive(Clone, Debug)]
pub struct Spot {
    /// Set by set, each in recency order.
    rows: Vec<Row>,
    ways: usize,
    confidence: u32,
    initial: u32,
    run_pages: u64,
    timing: GuessTiming,
}

impl Spot {
    fn set(&self, pc: u64) -> std::ops::Range<usize> {
        let set = (pc % (self.rows.len() / self.ways) as u64) as usize;
        set * self.ways..(set + 1) * self.ways
    }

    fn row(&self, missed: &MissedAccess) -> Option<&Row> {
        let is_own = |row: &&Row| (row.asid, row.pc) == (missed.asid, missed.pc);
        self.rows[self.set(missed.pc)].iter().find(is_own).filter(|_| missed.pc != 0)
    }

    /// The number of the frame that it guesses, if it does.
    fn frame_of(&self, missed: &MissedAccess) -> Option<u64> {
        let row = self.row(missed).filter(|row| row.counter >= self.confidence)?;
        let is_allowed = row.writable || missed.intent != Intent::Store;
        is_allowed.then(|| missed.page().wrapping_add(row.distance))
    }
}

impl Speculation for Spot {
    type Parameters = SpotConfig;

    const NEEDS_PC: bool = true;
    const KEEPS_PAGES: bool = false;

    fn samples() -> Vec<SpotConfig> {
        let usual = SpotConfig::default();
        vec![
            usual,
            SpotConfig { entries: 1, ways: 1, run_pages: 1, ..usual },
            SpotConfig { entries: 1 << 12, run_pages: 2, confidence: 1, latency_cycles: 0, ..usual },
            SpotConfig { entries: 6, ways: 3, run_pages: 4, initial: 0, ..usual },
        ]
    }

    fn new(parameters: &SpotConfig, key: &str, _: &Rng) -> Result<Self, EngineError> {
        let &SpotConfig { entries, ways, confidence, initial, run_pages, latency_cycles, flush_cycles } = parameters;
        between(&format!("{key}.entries"), entries, 1, 1 << 16)?;
        between(&format!("{key}.ways"), ways, 1, entries)?;
        if !entries.is_multiple_of(ways) {
            let what = format!("{entries} entries are not a whole number of sets of {ways}; allowed are divisors");
            return Err(EngineError::config(format!("{key}.ways"), what));
        }
        between(&format!("{key}.confidence"), confidence, 1, MOST)?;
        between(&format!("{key}.initial"), initial, 0, MOST)?;
        between(&format!("{key}.run_pages"), run_pages, 1, 512)?;
        let empty = Row { asid: Asid(0), pc: 0, distance: 0, writable: false, counter: 0 };
        Ok(Self {
            rows: vec![empty; entries as usize],
            ways: ways as usize,
            confidence,
            initial,
            run_pages: run_pages.into(),
            timing: GuessTiming { latency: latency_cycles.into(), flush: flush_cycles.into() },
        })
    }

    fn timing(&self) -> GuessTiming {
        self.timing
    }

    fn run_pages(&self) -> Option<u64> {
        Some(self.run_pages)
    }

    fn guess(&self, missed: &MissedAccess) -> Guess {
        self.frame_of(missed).into()
    }

    fn learn(&mut self, missed: &MissedAccess, found: &FoundPage) {
        if missed.pc == 0 {
            return;
        }
        let distance = found.frame(missed).wrapping_sub(missed.page());
        let &MissedAccess { asid, pc, .. } = missed;
        let new = Row { asid, pc, distance, writable: found.translation.writable(), counter: self.initial };
        let range = self.set(pc);
        let set = &mut self.rows[range];
        let Some(way) = set.iter().position(|row| (row.asid, row.pc) == (asid, pc)) else {
            let free = set.iter().rposition(|row| row.pc == 0);
            let Some(way) = free.or_else(|| set.iter().rposition(|row| row.counter == 0)) else { return };
            if found.is_in_run {
                set[way] = new;
                set[..=way].rotate_right(1);
            }
            return;
        };
        let row = &mut set[way];
        if row.distance == distance {
            (row.counter, row.writable) = ((row.counter + 1).min(MOST), new.writable);
        } else if row.counter > 0 {
            row.counter -= 1;
        } else if found.is_in_run {
            *row = new;
        }
        set[..=way].rotate_right(1);
    }

    fn invalidate(&mut self, _: Asid, _: VirtAddr, _: VirtAddr) {}

    fn flush(&mut self, asid: Asid) {
        self.rows.iter_mut().filter(|row| row.asid == asid).for_each(|row| row.pc = 0);
    }

    /// Of a row: the instruction's address, the tag of its space, the distance with its sign, whether stores are
    /// allowed, the counter, and the order within the set.
    fn storage_bits(&self) -> u64 {
        let order = u64::from(self.ways.next_power_of_two().ilog2());
        self.rows.len() as u64 * (57 + 12 + 46 + 1 + 2 + order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::addr::{FRAME_SHIFT, MachineAddr, PageSize};
    use pagelab_base::hash_tiers::HashDomain;
    use pagelab_base::translation::Translation;

    fn unit(config: &str) -> Spot {
        Spot::new(&serde_json::from_str(config).unwrap(), "key", &Rng::new(1, "unit")).unwrap()
    }

    fn missed(asid: u16, pc: u64, page: u64, intent: Intent) -> MissedAccess {
        MissedAccess {
            asid: Asid(asid),
            va: VirtAddr(page << FRAME_SHIFT | 8),
            pc,
            intent,
            domain: HashDomain::default(),
        }
    }

    fn found(frame: u64, writable: bool, is_in_run: bool) -> FoundPage {
        let page = MachineAddr(frame << FRAME_SHIFT);
        FoundPage { translation: Translation::new(page, PageSize::Size4K, writable, false), is_in_run }
    }

    /// Loads of an instruction whose pages are at these distances; the guess of the distance before each.
    fn guesses(unit: &mut Spot, pc: u64, distances: &[u64]) -> Vec<Option<u64>> {
        let one = |(n, distance): (usize, &u64)| {
            let (page, miss) = (100 * n as u64, missed(1, pc, 100 * n as u64, Intent::Load));
            let guess = unit.frame_of(&miss).map(|frame| frame - page);
            unit.learn(&miss, &found(page + distance, true, true));
            guess
        };
        distances.iter().enumerate().map(one).collect()
    }

    #[test]
    fn the_counter_follows_its_table() {
        let some = |distances: &[u64]| distances.iter().map(|&distance| (distance > 0).then_some(distance)).collect();
        let table: [(&[u64], Vec<Option<u64>>); 5] = [
            // From 1 to 2, where it guesses, and to 3.
            (&[7, 7, 7, 7], some(&[0, 0, 7, 7])),
            // From 3 one wrong distance leaves 2, two leave 1.
            (&[7, 7, 7, 7, 9, 7, 9, 9, 7, 7], some(&[0, 0, 7, 7, 7, 7, 7, 7, 0, 7])),
            // From 1 to 0 with the old distance; the next other one replaces it, at 1.
            (&[7, 9, 9, 9, 9], some(&[0, 0, 0, 0, 9])),
            // At 0 the old distance may come back.
            (&[7, 9, 7, 7, 7], some(&[0, 0, 0, 0, 7])),
            (&[7, 9, 7, 9, 7, 9, 7, 9], some(&[0; 8])),
        ];
        for (distances, wanted) in table {
            assert_eq!(guesses(&mut unit("{}"), 0x400, distances), wanted, "{distances:?}");
        }
        let sure = guesses(&mut unit(r#"{"confidence":3}"#), 0x400, &[7, 7, 7, 7]);
        assert_eq!(sure, some(&[0, 0, 0, 7]));
        let quick = guesses(&mut unit(r#"{"confidence":1}"#), 0x400, &[7, 7, 9, 7]);
        assert_eq!(quick, some(&[0, 7, 7, 7]));
    }

    #[test]
    fn a_row_is_replaced_only_at_zero() {
        let mut unit = unit(r#"{"entries":1,"ways":1}"#);
        guesses(&mut unit, 0x400, &[7, 7, 7]);
        assert_eq!(guesses(&mut unit, 0x404, &[9, 9, 9]), [None; 3], "there is no way for it");
        guesses(&mut unit, 0x400, &[8, 8, 8]);
        assert_eq!(guesses(&mut unit, 0x404, &[9, 9, 9]), [None, None, Some(9)]);
        assert_eq!(unit.frame_of(&missed(1, 0x400, 5, Intent::Load)), None);
    }

    #[test]
    fn only_runs_enter_and_only_stores_that_are_allowed_are_guessed() {
        let mut unit = unit("{}");
        let miss = missed(1, 0x400, 5, Intent::Load);
        (0..4).for_each(|_| unit.learn(&miss, &found(12, true, false)));
        assert_eq!(unit.frame_of(&miss), None);
        unit.learn(&miss, &found(12, true, true));
        // A known distance is right outside of runs, too.
        unit.learn(&miss, &found(12, false, false));
        let guess = |asid, intent| unit.frame_of(&missed(asid, 0x400, 6, intent));
        assert_eq!([guess(1, Intent::Load), guess(1, Intent::Store), guess(2, Intent::Load)], [Some(13), None, None]);
        unit.flush(Asid(2));
        assert_eq!(unit.frame_of(&miss), Some(12));
        unit.flush(Asid(1));
        assert_eq!(unit.frame_of(&miss), None);
    }
}
