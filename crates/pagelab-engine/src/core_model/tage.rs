//! A branch predictor: TAGE.
//!
//! Models: a table of two-bit counters, and four tables of tagged entries for histories of 5 to 127 outcomes, in a geometric series. The longest
//! history whose entry has the branch's tag predicts. A misprediction takes an entry of a longer history that has not been useful.
//! Source: Seznec and Michaud, "A case for (partially) TAgged GEometric history length branch prediction" (JILP 2006), the predictor of
//! five components; 8,192 counters and four times 1,024 entries with tags of 9 bits, 3-bit counters and 2-bit useful counters.
//! Deviations: recordings hold outcomes and no addresses of branches, so a branch is known by the access before it and the outcomes
//! since, which no other branch has, but one that is reached on several ways has several names. New entries are always believed, and the
//! first table with room is taken, where the paper draws. Useful counters are halved now and then, where the paper clears their two bits
//! by turns. Indirect branches and returns are always predicted.

use super::BranchCounts;

/// Of the histories, in outcomes.
const LENGTHS: [u32; 4] = [5, 15, 44, 127];
const BASE_BITS: u32 = 13;
const TABLE_BITS: u32 = 10;
const TAG_BITS: u32 = 9;
/// Branches after which all entries become less useful.
const AGEING: u64 = 1 << 18;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    tag: u16,
    /// -4 to 3: taken from 0 on.
    counter: i8,
    useful: u8,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Tage {
    /// -2 to 1: taken from 0 on.
    base: Box<[i8; 1 << BASE_BITS]>,
    tables: Box<[[Entry; 1 << TABLE_BITS]; LENGTHS.len()]>,
    /// The last outcomes, the youngest lowest.
    history: u128,
    /// Of the histories, by table.
    hashes: [u64; LENGTHS.len()],
    counts: BranchCounts,
}

/// Where a branch is looked for.
#[derive(Clone, Copy, Default)]
struct Place {
    index: usize,
    tag: u16,
}

const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ value >> 29
}

#[inline]
fn place(hash: u64) -> Place {
    // 0 is the tag of entries that were never taken.
    let tag = ((hash >> 32) & ((1 << TAG_BITS) - 1)) as u16 + 1;
    Place { index: (hash & ((1 << TABLE_BITS) - 1)) as usize, tag }
}

/// Hashes of as much of a history as each table looks at.
#[inline]
fn hashes(history: u128) -> [u64; LENGTHS.len()] {
    std::array::from_fn(|table| {
        let history = history & ((1 << LENGTHS[table]) - 1);
        mix(history as u64 ^ mix((history >> 64) as u64 + table as u64))
    })
}

impl Default for Tage {
    fn default() -> Self {
        Self {
            base: Box::new([0; 1 << BASE_BITS]),
            tables: Box::new([[Entry::default(); 1 << TABLE_BITS]; LENGTHS.len()]),
            history: 0,
            hashes: hashes(0),
            counts: BranchCounts::default(),
        }
    }
}

impl Tage {
    /// Predicts a branch and learns its outcome; whether it was mispredicted. `name` tells it from others.
    pub fn meet(&mut self, name: u64, taken: bool) -> bool {
        self.counts.met += 1;
        let places = self.hashes.map(|hash| place(mix(name ^ hash)));
        let base = (mix(name) & ((1 << BASE_BITS) - 1)) as usize;
        // A bit for the counters, and one above for each table: whether they have the branch, and whether they say that it is taken. No
        // branch of this code's own is on them, which the host could not predict.
        let (mut has, mut says) = (1_u32, u32::from(self.base[base] >= 0));
        for (table, place) in places.iter().enumerate() {
            let entry = &self.tables[table][place.index];
            has |= u32::from(entry.tag == place.tag) << (table + 1);
            says |= u32::from(entry.counter >= 0) << (table + 1);
        }
        let provider = has.ilog2();
        let predicted = says >> provider & 1 != 0;
        if provider > 0 {
            let table = provider as usize - 1;
            let otherwise = says >> (has ^ 1 << provider).ilog2() & 1 != 0;
            let entry = &mut self.tables[table][places[table].index];
            entry.counter = towards(entry.counter, taken, -4, 3);
            let useful = if predicted == taken { (entry.useful + 1).min(3) } else { entry.useful.saturating_sub(1) };
            entry.useful = if predicted == otherwise { entry.useful } else { useful };
        } else {
            self.base[base] = towards(self.base[base], taken, -2, 1);
        }
        if predicted != taken {
            self.counts.mispredicted += 1;
            self.allocate(provider as usize, &places, taken);
        }
        self.history = self.history << 1 | u128::from(taken);
        self.hashes = hashes(self.history);
        if self.counts.met.is_multiple_of(AGEING) {
            self.tables.as_flattened_mut().iter_mut().for_each(|entry| entry.useful >>= 1);
        }
        predicted != taken
    }

    /// What it has met so far.
    pub fn counts(&self) -> BranchCounts {
        self.counts
    }

    /// Takes an entry for the branch in a table from `first` on.
    fn allocate(&mut self, first: usize, places: &[Place; LENGTHS.len()], taken: bool) {
        let free = (first..LENGTHS.len()).find(|&table| self.tables[table][places[table].index].useful == 0);
        if let Some(table) = free {
            let counter = if taken { 0 } else { -1 };
            self.tables[table][places[table].index] = Entry { tag: places[table].tag, counter, useful: 0 };
            return;
        }
        for (table, place) in self.tables.iter_mut().zip(places).skip(first) {
            table[place.index].useful -= 1;
        }
    }
}

/// A saturating counter's next value.
fn towards(counter: i8, taken: bool, least: i8, most: i8) -> i8 {
    if taken { (counter + 1).min(most) } else { (counter - 1).max(least) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mispredictions in the second half of `outcomes`, of one branch.
    fn missed(outcomes: impl Iterator<Item = bool> + Clone) -> usize {
        let mut tage = Tage::default();
        let half = outcomes.clone().count() / 2;
        outcomes.map(|taken| tage.meet(7, taken)).skip(half).filter(|missed| *missed).count()
    }

    #[test]
    fn patterns_within_a_history_are_learnt() {
        assert_eq!(missed((0..1000).map(|_| true)), 0);
        // A loop of 20 rounds: the history of 44 tells its end.
        assert_eq!(missed((0..40_000).map(|n| n % 20 != 0)), 0);
        // One of 100: that of 127.
        assert_eq!(missed((0..200_000).map(|n| n % 100 != 0)), 0);
        // One of 300 ends unforeseen.
        assert_eq!(missed((0..600_000).map(|n| n % 300 != 0)), 1000);
    }

    #[test]
    fn a_coin_is_not_foreseen_and_a_correlated_branch_is() {
        let mut draw = pagelab_trace::rng::Rng::new(1, "coin");
        let mut tage = Tage::default();
        let (mut coins, mut followers) = (0, 0);
        for round in 0..100_000 {
            let coin = draw.below(2) == 0;
            let (first, second) = (tage.meet(1, coin), tage.meet(2, coin));
            if round >= 50_000 {
                coins += u32::from(first);
                followers += u32::from(second);
            }
        }
        assert!((23_000..27_000).contains(&coins), "{coins}");
        assert!(followers < 500, "{followers}");
    }
}
