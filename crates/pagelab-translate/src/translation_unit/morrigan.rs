//! Prefetch of translations of code (Morrigan).
//!
//! Models: tables of the pages that followed a page in the sequence of misses of fetches, as distances. The tables have
//! 1, 2, 4 and 8 distances per row; a page begins in the first one, and moves to the next one when it needs room. After
//! a miss all distances in the row of its page are proposed, those that came true most often first (IRIP). If the page
//! has no row, the next page is proposed (SDP). Then the distance from the miss before enters the row of that one. A
//! full table replaces one of its rows that are asked for least often, by chance (RLFU); how often is counted per row,
//! and halved after a number of misses, so that another phase of the program gets room. See
//! [`prefetcher`](super::prefetcher).
//! Source: Vavouliotis, Alvarez, Grot, Jiménez, Casas, "Morrigan: A Composite Instruction TLB Prefetcher", MICRO 2021,
//! of which only notes were at hand.
//! Parameters: `machine.prefetch.tlb.morrigan`: `entries` (64), `rows` (128, 128, 128 and 64), `decay_misses` (4096),
//! `free` (off).
//! Stats: `prefetch.tlb.morrigan.*`.
//! Choices: tables are fully associative. Their rows are such that, with tags of 16 bits, distances of 15 and a
//! confidence of 2, they take the 3.8 KB of the paper; the rows, the widths and the decay are estimates. A distance
//! that does not fit 15 bits is not kept. A row with eight distances replaces the one with the lowest confidence.
//! Spaces do not mix, as tags say the space; of tags this model compares all bits. The free translations of the paper
//! are those of `free`.

use arrayvec::ArrayVec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::free_ptes::FreeConfig;
use super::prefetcher::{BufferConfig, DataMiss, Prefetching, Proposals, TlbPrefetcher};
use pagelab_base::addr::{FRAME_SHIFT, VirtAddr};
use pagelab_base::error::{EngineError, between};
use pagelab_base::rng::Rng;
use pagelab_base::switched::Switched;
use pagelab_tables::mmu_cache::Asid;

/// Distances per row of each table.
const SLOTS: [usize; 4] = [1, 2, 4, 8];
/// Pages to which a distance may lead, in either direction: 15 bits with a sign.
const FARTHEST: i64 = (1 << 14) - 1;
/// End of the counter of a distance: 2 bits.
const MOST_CONFIDENCE: u8 = 3;

/// Parameters of prefetch for code.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MorriganConfig {
    /// Translations in the buffer of a core, 0 to 65536; with 0 there are no prefetches.
    pub entries: u32,
    /// Rows of the tables with 1, 2, 4 and 8 distances, 0 to 65536 each.
    pub rows: [u32; 4],
    /// Misses of fetches after which the counters of rows are halved, at least 1.
    pub decay_misses: u32,
    /// Whether translations beside those of walks are taken, too (SBFP).
    #[serde(skip_serializing_if = "Switched::is_off")]
    pub free: Switched<FreeConfig>,
}

impl Default for MorriganConfig {
    fn default() -> Self {
        Self { entries: 64, rows: [128, 128, 128, 64], decay_misses: 4096, free: Switched::Off }
    }
}

/// A page that followed another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Follower {
    /// In pages.
    distance: i64,
    confidence: u8,
}

/// What followed a page.
#[derive(Clone, Debug)]
struct Row {
    asid: Asid,
    page: u64,
    /// How often it was asked for, in 8 bits.
    asked: u8,
    followers: ArrayVec<Follower, 8>,
}

/// The unit.
pub type Morrigan = Prefetching<CodeFollowers>;

/// The prefetcher.
#[derive(Clone, Debug)]
pub struct CodeFollowers {
    tables: [Vec<Row>; 4],
    rows: [usize; 4],
    decay_misses: u32,
    /// Until the next decay.
    left: u32,
    last: Option<(Asid, u64)>,
    rng: Rng,
}

impl CodeFollowers {
    fn find(&self, asid: Asid, page: u64) -> Option<(usize, usize)> {
        self.tables
            .iter()
            .enumerate()
            .find_map(|(table, rows)| Some((table, rows.iter().position(|row| (row.asid, row.page) == (asid, page))?)))
    }

    /// Puts a row into a table; one of its rows that are asked for least often makes room.
    fn put(&mut self, table: usize, row: Row) {
        let rows = &mut self.tables[table];
        if rows.len() < self.rows[table] {
            return rows.push(row);
        }
        let Some(least) = rows.iter().map(|row| row.asked).min() else { return };
        let candidates = rows.iter().filter(|row| row.asked == least).count() as u64;
        let chosen = self.rng.below(candidates) as usize;
        let (at, _) =
            rows.iter().enumerate().filter(|(_, row)| row.asked == least).nth(chosen).expect("it was counted");
        rows[at] = row;
    }

    /// Notes that a page followed another one.
    fn learn(&mut self, asid: Asid, page: u64, distance: i64) {
        if distance.abs() > FARTHEST {
            return;
        }
        let new = Follower { distance, confidence: 0 };
        let Some((table, at)) = self.find(asid, page) else {
            return self.put(0, Row { asid, page, asked: 1, followers: [new].into_iter().collect() });
        };
        let row = &mut self.tables[table][at];
        if let Some(known) = row.followers.iter_mut().find(|follower| follower.distance == distance) {
            known.confidence = (known.confidence + 1).min(MOST_CONFIDENCE);
        } else if row.followers.len() < SLOTS[table] {
            row.followers.push(new);
        } else if let Some(wider) = (table + 1..SLOTS.len()).find(|&wider| self.rows[wider] > 0) {
            let mut row = self.tables[table].swap_remove(at);
            row.followers.push(new);
            self.put(wider, row);
        } else if let Some(least) = row.followers.iter_mut().min_by_key(|follower| follower.confidence) {
            *least = new;
        }
    }

    fn decay(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.left = self.decay_misses;
            self.tables.iter_mut().flatten().for_each(|row| row.asked /= 2);
        }
    }
}

impl TlbPrefetcher for CodeFollowers {
    type Parameters = MorriganConfig;

    const STATISTICS: &'static str = "prefetch.tlb.morrigan";
    const IS_FOR_CODE: bool = true;

    fn new(parameters: &MorriganConfig, key: &str) -> Result<(Self, BufferConfig), EngineError> {
        let &MorriganConfig { entries, rows, decay_misses, free } = parameters;
        for each in rows {
            between(&format!("{key}.rows"), each, 0, 1 << 16)?;
        }
        between(&format!("{key}.decay_misses"), decay_misses, 1, u32::MAX)?;
        let rows = rows.map(|rows| rows as usize);
        let tables = rows.map(Vec::with_capacity);
        let rng = Rng::new(0, key);
        Ok((Self { tables, rows, decay_misses, left: decay_misses, last: None, rng }, BufferConfig { entries, free }))
    }

    fn seed(&mut self, rng: &Rng) {
        self.rng = rng.clone();
    }

    fn samples() -> Vec<MorriganConfig> {
        let default = MorriganConfig::default();
        vec![
            MorriganConfig { entries: 1, rows: [1, 0, 1, 0], decay_misses: 8, ..default },
            MorriganConfig { entries: 16, rows: [4, 4, 4, 4], ..default },
        ]
    }

    /// Per row a tag of 16 bits and the counter, and per distance 15 bits and 2 of confidence; beside them the number
    /// of the last page and the tag of its space. The counters are those of the paper's frequency stack.
    fn storage_bits(&self) -> u64 {
        let bits = |(rows, slots): (&usize, usize)| (rows * (16 + 8 + slots * (15 + 2))) as u64;
        self.rows.iter().zip(SLOTS).map(bits).sum::<u64>() + 45 + 12
    }

    fn on_miss(&mut self, miss: &DataMiss, proposals: &mut Proposals) {
        let page = miss.page >> FRAME_SHIFT;
        match self.find(miss.asid, page) {
            Some((table, at)) => {
                let row = &mut self.tables[table][at];
                row.asked = row.asked.saturating_add(1);
                let mut followers = row.followers.clone();
                followers.sort_by_key(|follower| MOST_CONFIDENCE - follower.confidence);
                followers.iter().for_each(|follower| proposals.propose(follower.distance << FRAME_SHIFT));
            }
            None => proposals.propose(miss.size as i64),
        }
        if let Some((_, last)) = self.last.filter(|(asid, last)| *asid == miss.asid && *last != page) {
            self.learn(miss.asid, last, page.wrapping_sub(last) as i64);
        }
        self.last = Some((miss.asid, page));
        self.decay();
    }

    fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        let pages = start.0 >> FRAME_SHIFT..=end.0.wrapping_sub(1) >> FRAME_SHIFT;
        self.last = self.last.filter(|(space, page)| *space != asid || !pages.contains(page));
    }

    fn flush(&mut self, asid: Asid) {
        self.last = self.last.filter(|(space, _)| *space != asid);
        self.tables.iter_mut().for_each(|rows| rows.retain(|row| row.asid != asid));
    }
}

#[cfg(test)]
mod tests {
    use super::super::free_ptes::AcceptedDistances;
    use super::super::prefetcher::proposed;
    use super::*;

    fn proposals(config: &MorriganConfig, misses: &[u64]) -> Vec<Vec<u64>> {
        let misses: Vec<_> = misses.iter().map(|&page| (1, page)).collect();
        proposed::<CodeFollowers>(config, &misses)
    }

    #[test]
    fn a_page_without_a_row_proposes_the_next_one_and_then_what_followed_it() {
        let found = proposals(&MorriganConfig::default(), &[100, 50, 200, 100, 50, 200]);
        assert_eq!(found, [vec![101], vec![51], vec![201], vec![50], vec![200], vec![100]]);
    }

    #[test]
    fn distances_that_came_true_most_often_are_first() {
        // 10 is followed by 20, 30 and 30.
        let found = proposals(&MorriganConfig::default(), &[10, 20, 10, 30, 10, 30, 10]);
        assert_eq!(found[2], [20]);
        assert_eq!(found[4], [20, 30]);
        assert_eq!(found[6], [30, 20]);
    }

    #[test]
    fn rows_move_to_wider_tables_until_eight_distances_are_known() {
        let followers: Vec<u64> = (1..=10).map(|n| 1000 + 10 * n).collect();
        let misses: Vec<u64> = followers.iter().flat_map(|&page| [1000, page]).chain([1000]).collect();
        let found = proposals(&MorriganConfig::default(), &misses);
        let counts: Vec<usize> = found.iter().step_by(2).map(Vec::len).collect();
        assert_eq!(counts, [1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8], "the first one is the next page");
        assert!(found.last().unwrap().contains(&1100), "the newest distance has replaced one");
        let narrow = MorriganConfig { rows: [4, 0, 0, 0], ..MorriganConfig::default() };
        let found = proposals(&narrow, &misses);
        assert_eq!(found.last(), Some(&vec![1100]), "no table has more than one distance");
    }

    #[test]
    fn a_distance_beyond_15_bits_is_not_kept() {
        let found = proposals(&MorriganConfig::default(), &[1 << 20, (1 << 20) + 16383, 1 << 20, (1 << 20) + 16384]);
        assert_eq!(found[2], [(1 << 20) + 16383]);
        let found = proposals(&MorriganConfig::default(), &[1 << 20, (1 << 20) + 16384, 1 << 20]);
        assert_eq!(found[2], [(1 << 20) + 1]);
    }

    #[test]
    fn rows_that_are_asked_for_seldom_make_room() {
        let config = MorriganConfig { rows: [2, 0, 0, 0], decay_misses: 1000, ..MorriganConfig::default() };
        // Two pages follow each other often. The rows of others replace one of them, and then each other.
        let misses: Vec<u64> = [10, 20].repeat(20).into_iter().chain([500, 700, 900, 1100, 10, 20]).collect();
        let found = proposals(&config, &misses);
        let last = &found[found.len() - 2..];
        assert!(last == [vec![20], vec![21]] || last == [vec![11], vec![500]], "one of the two is left: {last:?}");
    }

    #[test]
    fn counters_of_rows_are_halved() {
        for (decay_misses, asked) in [(1000, [2, 2]), (4, [1, 1])] {
            let config = MorriganConfig { decay_misses, ..MorriganConfig::default() };
            let (mut prefetcher, _) = CodeFollowers::new(&config, "morrigan").unwrap();
            for page in [10, 20, 10, 20] {
                let miss = DataMiss { asid: Asid(1), page: page << FRAME_SHIFT, size: 4096, pc: 0 };
                prefetcher.on_miss(&miss, &mut Proposals::new(miss, AcceptedDistances::default()));
            }
            assert_eq!([0, 1].map(|row| prefetcher.tables[0][row].asked), asked, "{decay_misses}");
        }
    }

    #[test]
    fn storage_is_that_of_the_paper() {
        let (prefetcher, _) = CodeFollowers::new(&MorriganConfig::default(), "morrigan").unwrap();
        // Without the counters of rows and the last page.
        let bits = prefetcher.storage_bits() - 448 * 8 - 45 - 12;
        assert_eq!(bits, 31_104, "3.8 KB");
    }

    #[test]
    fn spaces_do_not_mix() {
        let found =
            proposed::<CodeFollowers>(&MorriganConfig::default(), &[(1, 10), (1, 20), (2, 10), (2, 30), (1, 10)]);
        assert_eq!(found, [vec![11], vec![21], vec![11], vec![31], vec![20]]);
    }
}
