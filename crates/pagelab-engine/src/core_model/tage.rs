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
    /// Of as much of the history as each table looks at.
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

/// By how much an outcome counts for more in the hash of a history with each that comes after it: a polynomial, as of Karp and Rabin (IBM
/// Journal of Research and Development 31, 1987).
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
/// What an outcome counts for that leaves a table's history.
const LAST: [u64; LENGTHS.len()] = [
    BASE.wrapping_pow(LENGTHS[0]),
    BASE.wrapping_pow(LENGTHS[1]),
    BASE.wrapping_pow(LENGTHS[2]),
    BASE.wrapping_pow(LENGTHS[3]),
];

/// The hash of a history that goes on with an outcome; it was of `history`.
#[inline]
fn go_on(hash: u64, table: usize, history: u128, taken: bool) -> u64 {
    let leaves = (history >> (LENGTHS[table] - 1)) as u64 & 1;
    hash.wrapping_mul(BASE).wrapping_add(u64::from(taken)).wrapping_sub(LAST[table] & leaves.wrapping_neg())
}

impl Default for Tage {
    fn default() -> Self {
        Self {
            base: Box::new([0; 1 << BASE_BITS]),
            tables: Box::new([[Entry::default(); 1 << TABLE_BITS]; LENGTHS.len()]),
            history: 0,
            hashes: [0; LENGTHS.len()],
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
        let provider = has.ilog2() as usize;
        let predicted = says >> provider & 1 != 0;
        // Whoever would predict if the provider did not have the branch; the counters if it is these.
        let otherwise = says >> ((has ^ 1 << provider) | 1).ilog2() & 1 != 0;
        let table = provider.saturating_sub(1);
        let entry = &mut self.tables[table][places[table].index];
        let useful = if predicted == taken { (entry.useful + 1).min(3) } else { entry.useful.saturating_sub(1) };
        entry.useful = if predicted == otherwise { entry.useful } else { useful };
        let of_table = provider > 0;
        let counter = if of_table { &mut entry.counter } else { &mut self.base[base] };
        let (least, most) = if of_table { (-4, 3) } else { (-2, 1) };
        *counter = (*counter + if taken { 1 } else { -1 }).clamp(least, most);
        if predicted != taken {
            self.counts.mispredicted += 1;
            self.allocate(provider, &places, taken);
        }
        for (table, hash) in self.hashes.iter_mut().enumerate() {
            *hash = go_on(*hash, table, self.history, taken);
        }
        self.history = self.history << 1 | u128::from(taken);
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
    fn hashes_that_go_on_are_those_of_their_histories() {
        let mut draw = pagelab_trace::rng::Rng::new(2, "outcomes");
        let mut tage = Tage::default();
        let mut outcomes = std::collections::VecDeque::from([false; 127]);
        for _ in 0..1000 {
            outcomes.push_front(draw.below(3) > 0);
            outcomes.pop_back();
            tage.meet(7, outcomes[0]);
            for (table, length) in LENGTHS.into_iter().enumerate() {
                let taken = (0..length).filter(|&age| outcomes[age as usize]);
                let whole = taken.fold(0, |hash: u64, age| hash.wrapping_add(BASE.wrapping_pow(age)));
                assert_eq!(tage.hashes[table], whole, "{table}");
            }
        }
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
