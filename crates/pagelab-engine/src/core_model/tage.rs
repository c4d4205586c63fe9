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

/// An entry of a table in 16 bits, so that the tables leave the host's first-level cache to others: 11 bits for a tag beyond 0, a counter of
/// 3, how useful it is in 2.
#[derive(Clone, Copy, Debug)]
struct Entry(u16);

const _: () = assert!(1 << TAG_BITS <= Entry::TAG);

impl Entry {
    const COUNTER: u32 = 11;
    const USEFUL: u32 = 14;
    const TAG: u16 = (1 << Self::COUNTER) - 1;
    /// Counters are 0 to 7: taken from 4 on.
    const WEAKLY_TAKEN: u32 = 4;
    const MOST: u32 = 7;
    const MOST_USEFUL: u32 = 3;

    /// One that was never useful, for a branch that went this way.
    fn new(tag: u16, taken: bool) -> Self {
        let counter = if taken { Self::WEAKLY_TAKEN } else { Self::WEAKLY_TAKEN - 1 };
        Self(tag | (counter << Self::COUNTER) as u16)
    }

    fn tag(self) -> u16 {
        self.0 & Self::TAG
    }

    fn counter(self) -> u32 {
        u32::from(self.0) >> Self::COUNTER & Self::MOST
    }

    fn useful(self) -> u32 {
        u32::from(self.0) >> Self::USEFUL
    }

    fn with(self, counter: u32, useful: u32) -> Self {
        Self(self.tag() | (counter << Self::COUNTER | useful << Self::USEFUL) as u16)
    }
}

/// A counter of at most `most` after an outcome.
#[inline(always)]
fn count(counter: u32, taken: bool, most: u32) -> u32 {
    (counter + 2 * u32::from(taken)).clamp(1, most + 1) - 1
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Tage {
    /// 0 to 3: taken from 2 on.
    base: Box<[u8; 1 << BASE_BITS]>,
    /// One table after the other.
    tables: Box<[Entry; LENGTHS.len() << TABLE_BITS]>,
    /// The last outcomes, the youngest lowest.
    history: u128,
    /// Of as much of the history as each table looks at.
    hashes: [u64; LENGTHS.len()],
    counts: BranchCounts,
}

const MOST_OF_BASE: u32 = 3;

/// Where a branch is looked for.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    tag: u16,
}

const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ value >> 29
}

#[inline(always)]
fn place(table: usize, hash: u64) -> Place {
    // 0 is the tag of entries that were never taken.
    let tag = ((hash >> 32) & ((1 << TAG_BITS) - 1)) as u16 + 1;
    Place { index: table << TABLE_BITS | (hash & ((1 << TABLE_BITS) - 1)) as usize, tag }
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
            base: Box::new([2; 1 << BASE_BITS]),
            tables: Box::new([Entry::new(0, true); LENGTHS.len() << TABLE_BITS]),
            history: 0,
            hashes: [0; LENGTHS.len()],
            counts: BranchCounts::default(),
        }
    }
}

impl Tage {
    /// Predicts a branch and learns its outcome; whether it was mispredicted. `name` tells it from others.
    #[inline(always)]
    pub fn meet(&mut self, name: u64, taken: bool) -> bool {
        self.counts.met += 1;
        let places: [Place; LENGTHS.len()] = std::array::from_fn(|table| place(table, mix(name ^ self.hashes[table])));
        let entries = places.map(|place| self.tables[place.index]);
        let base = (mix(name) & ((1 << BASE_BITS) - 1)) as usize;
        // A bit for the counters, and one above for each table: whether they have the branch, and whether they say that it is taken. No
        // branch of this code's own is on them, which the host could not predict.
        let (mut has, mut says) = (1_u32, u32::from(self.base[base] >> 1));
        for (table, (entry, place)) in entries.iter().zip(&places).enumerate() {
            has |= u32::from(entry.tag() == place.tag) << (table + 1);
            says |= u32::from(entry.counter() >= Entry::WEAKLY_TAKEN) << (table + 1);
        }
        let provider = has.ilog2() as usize;
        let predicted = says >> provider & 1 != 0;
        // Whoever would predict if the provider did not have the branch; the counters if it is these.
        let otherwise = says >> ((has ^ 1 << provider) | 1).ilog2() & 1 != 0;
        let of_table = provider > 0;
        let table = provider.saturating_sub(1) % LENGTHS.len();
        let entry = entries[table];
        let useful = if predicted == otherwise {
            entry.useful()
        } else {
            count(entry.useful(), predicted == taken, Entry::MOST_USEFUL)
        };
        let counted = entry.with(count(entry.counter(), taken, Entry::MOST), useful);
        // Both are written, if with what they were: see above.
        self.tables[places[table].index] = if of_table { counted } else { entry };
        let counted = count(self.base[base].into(), taken, MOST_OF_BASE) as u8;
        self.base[base] = if of_table { self.base[base] } else { counted };
        if predicted != taken {
            self.counts.mispredicted += 1;
            self.allocate(provider, &places, taken);
        }
        for (table, hash) in self.hashes.iter_mut().enumerate() {
            *hash = go_on(*hash, table, self.history, taken);
        }
        self.history = self.history << 1 | u128::from(taken);
        if self.counts.met.is_multiple_of(AGEING) {
            self.age();
        }
        predicted != taken
    }

    /// Makes all entries less useful.
    #[cold]
    fn age(&mut self) {
        self.tables.iter_mut().for_each(|entry| *entry = entry.with(entry.counter(), entry.useful() >> 1));
    }

    /// What it has met so far.
    pub fn counts(&self) -> BranchCounts {
        self.counts
    }

    /// Takes an entry for the branch in a table from `first` on.
    #[inline(never)]
    fn allocate(&mut self, first: usize, places: &[Place; LENGTHS.len()], taken: bool) {
        let free = places[first..].iter().find(|place| self.tables[place.index].useful() == 0);
        if let Some(place) = free {
            self.tables[place.index] = Entry::new(place.tag, taken);
            return;
        }
        for place in &places[first..] {
            let entry = &mut self.tables[place.index];
            *entry = entry.with(entry.counter(), entry.useful() - 1);
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
