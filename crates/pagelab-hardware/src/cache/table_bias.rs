//! LRU replacement that keeps lines of page tables while walks are many.
//!
//! Models: a level that knows which of its lines hold page-table entries. Data of programs with many TLB misses often
//! misses the caches as well, while their page tables are 512 times smaller. So in phases of many walks the victim is
//! the least recently used line among those of data, if the set has one.
//! Source: Park, Vougioukas, Sandberg, Black-Schaffer, "Every Walk's a Hit: Making Page Walks Single-Access Cache
//! Hits", ASPLOS 2022 (arXiv 2012.05079). Only the abstract and notes were at hand: 6.8 % on average, 9.2 % together
//! with flattened tables, 14.0 % in virtual machines.
//! Parameters: `machine.cache.l2.policy` and `machine.cache.l3.policy`, as `{ keep-tables = { … } }`. All defaults are
//! estimates, since the abstract gives none.
//! Stats: `cache.tables_kept`.
//! Deviations: the authors look for phases in the miss rate of the TLB. A cache sees the look-ups of the walker
//! instead, whose share of all its look-ups is that rate as far as the level is concerned.
//! Choices: a line is of a page table from the first look-up of a walker until it leaves; so it needs a bit per line.
//! The core's own stores to entries, as of the kernel, change nothing. Phases are of one level of one core.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pagelab_base::rng::Rng;

/// Parameters of replacement that keeps lines of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TableBias {
    /// How many of 100 victims in a phase of many walks are lines of data if the set has one, 1 to 100. The others are
    /// the least recently used lines, as outside of such phases.
    pub share_percent: u32,
    /// Look-ups by page walks in 1,000 look-ups of this level from which on a phase has many walks, 0 to 1000; 0 makes
    /// it last for ever.
    pub walks_per_1000: u32,
    /// Look-ups of this level after which it is decided whether the next phase has many walks, at least 1.
    pub window: u32,
}

impl Default for TableBias {
    fn default() -> Self {
        Self { share_percent: 100, walks_per_1000: 50, window: 4096 }
    }
}

impl TableBias {
    /// What is wrong, if anything: the parameter, its value and what is allowed.
    pub(super) fn error(&self) -> Option<(&'static str, String)> {
        let Self { share_percent, walks_per_1000, window } = *self;
        if !(1..=100).contains(&share_percent) {
            return Some(("share_percent", format!("{share_percent} is not possible; allowed are 1 to 100")));
        }
        if walks_per_1000 > 1000 {
            return Some(("walks_per_1000", format!("{walks_per_1000} is not possible; allowed are 0 to 1000")));
        }
        (window == 0).then(|| ("window", "must be at least 1".into()))
    }
}

/// Which lines are of page tables, and the phase. The ways of a set are in recency order.
#[derive(Clone, Debug)]
pub(super) struct KeptTables {
    bias: TableBias,
    rng: Rng,
    /// By set, a bit per way.
    of_tables: Vec<u64>,
    look_ups: u32,
    walks: u32,
    has_many_walks: bool,
    kept: u64,
}

impl KeptTables {
    pub fn new(bias: TableBias, sets: usize, rng: Rng) -> Self {
        let has_many_walks = bias.walks_per_1000 == 0;
        Self { bias, rng, of_tables: vec![0; sets], look_ups: 0, walks: 0, has_many_walks, kept: 0 }
    }

    /// Counts a look-up of the level.
    #[inline]
    pub fn look_up(&mut self, by_walk: bool) {
        self.look_ups += 1;
        self.walks += u32::from(by_walk);
        if self.look_ups == self.bias.window {
            let per_1000 = u64::from(self.walks) * 1000 / u64::from(self.look_ups);
            self.has_many_walks = per_1000 >= u64::from(self.bias.walks_per_1000);
            (self.look_ups, self.walks) = (0, 0);
        }
    }

    /// The line in the first way is of a page table.
    #[inline]
    pub fn mark_first(&mut self, set: usize) {
        self.of_tables[set] |= 1;
    }

    /// The line at `way` was moved to the first way.
    #[inline]
    pub fn promote(&mut self, set: usize, way: usize) {
        let (bits, before) = (self.of_tables[set], (1 << way) - 1);
        self.of_tables[set] = bits & !(before << 1 | 1) | (bits & before) << 1 | bits >> way & 1;
    }

    /// The line at `way` was taken out, and those behind it moved forward by one.
    #[inline]
    pub fn remove(&mut self, set: usize, way: usize) {
        let (bits, before) = (self.of_tables[set], (1 << way) - 1);
        self.of_tables[set] = bits & before | bits >> 1 & !before;
    }

    /// The way of a full set whose line makes room for one that comes to the first way.
    #[inline]
    pub fn take_victim(&mut self, set: usize, ways: usize) -> usize {
        let (last, of_data) = (ways - 1, !self.of_tables[set] & (u64::MAX >> (64 - ways)));
        if of_data >> last & 1 == 1 || of_data == 0 || !self.has_many_walks || !self.prefers_data() {
            return last;
        }
        self.kept += 1;
        of_data.ilog2() as usize
    }

    fn prefers_data(&mut self) -> bool {
        self.bias.share_percent == 100 || self.rng.below(100) < self.bias.share_percent.into()
    }

    /// A line that is not of a page table came to the first way, and those before `way` moved back by one.
    #[inline]
    pub fn insert(&mut self, set: usize, way: usize) {
        self.promote(set, way);
        self.of_tables[set] &= !1;
    }

    /// How often a line of data left although one of a page table was least recently used.
    pub fn kept(&self) -> u64 {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits in way order.
    fn bits(lines: &[bool]) -> u64 {
        lines.iter().rev().fold(0, |bits, &of_table| bits << 1 | u64::from(of_table))
    }

    #[test]
    fn bits_move_as_lines_do() {
        let mut rng = Rng::new(1, "steps");
        for ways in [1, 2, 3, 8, 16, 63, 64] {
            let bias = TableBias { walks_per_1000: 0, ..TableBias::default() };
            let mut kept = KeptTables::new(bias, 2, Rng::new(1, "victims"));
            let mut lines: Vec<bool> = Vec::new();
            for _ in 0..400 * ways {
                let way = rng.below(lines.len().max(1) as u64) as usize;
                match rng.below(16) {
                    0..4 if !lines.is_empty() => {
                        kept.promote(1, way);
                        let line = lines.remove(way);
                        lines.insert(0, line);
                    }
                    4 if !lines.is_empty() => {
                        kept.remove(1, way);
                        lines.remove(way);
                    }
                    5..8 if !lines.is_empty() => {
                        kept.mark_first(1);
                        lines[0] = true;
                    }
                    _ if lines.len() == ways => {
                        let victim = lines.iter().rposition(|of_table| !of_table).unwrap_or(ways - 1);
                        let before = kept.kept();
                        assert_eq!(kept.take_victim(1, ways), victim);
                        assert_eq!(kept.kept() - before, u64::from(victim < ways - 1));
                        kept.insert(1, victim);
                        lines.remove(victim);
                        lines.insert(0, false);
                    }
                    _ => {
                        kept.insert(1, lines.len());
                        lines.insert(0, false);
                    }
                }
                assert_eq!(kept.of_tables, [0, bits(&lines)], "{ways} ways");
            }
            assert!(ways == 1 || kept.kept() > 0, "{ways} ways");
        }
    }

    #[test]
    fn a_phase_has_many_walks_from_their_share_in_the_one_before() {
        let bias = TableBias { walks_per_1000: 250, window: 8, share_percent: 100 };
        let mut kept = KeptTables::new(bias, 1, Rng::new(1, "t"));
        // Ways 1 and 2 of 3 are of tables.
        let set = |kept: &mut KeptTables| kept.of_tables[0] = 0b110;
        for (walks, victim) in [(0, 2), (1, 2), (2, 0), (8, 0), (1, 2)] {
            (0..8).for_each(|n| kept.look_up(n < walks));
            set(&mut kept);
            assert_eq!(kept.take_victim(0, 3), victim, "{walks}");
        }
        assert_eq!(kept.kept(), 2);
    }

    #[test]
    fn a_share_of_victims_is_of_data() {
        let bias = TableBias { walks_per_1000: 0, window: 8, share_percent: 70 };
        let mut kept = KeptTables::new(bias, 1, Rng::new(7, "t"));
        kept.of_tables[0] = 0b10;
        let of_data = (0..10_000).filter(|_| kept.take_victim(0, 2) == 0).count();
        // Five standard deviations of a binomial distribution are 229.
        assert!((6771..7229).contains(&of_data), "{of_data}");
    }
}
