//! A branch predictor: TAGE.
//!
//! Models: a table of two-bit counters, and four tables of tagged entries for histories of 5 to 127 outcomes, in a
//! geometric series. The prediction comes from the longest history with an entry whose tag matches. A misprediction
//! allocates an entry of a longer history; it replaces only an entry that is not useful.
//! Source: Seznec and Michaud, "A case for (partially) TAgged GEometric history length branch prediction" (JILP 2006),
//! the predictor of five components; 8,192 counters and four times 1,024 entries with tags of 9 bits, 3-bit counters
//! and 2-bit useful counters.
//! Deviations: recordings contain outcomes but no addresses of branches. So a branch is identified by the previous
//! access and the outcomes since. No two branches share an identity, but a branch that is reached along several paths
//! has several. Kernel branches have addresses ([`super::kernel_branches`]). New entries are always trusted, and the
//! first table with a free entry is chosen, where the paper chooses at random. Useful counters are periodically halved,
//! where the paper clears their two bits alternately. Indirect branches and returns are always predicted correctly.

use pagelab_trace::Branches;

use super::kernel_branches::BranchRun;
use super::{BranchCounts, ROW};

/// Lengths of the histories, in outcomes.
const LENGTHS: [u32; 4] = [5, 15, 44, 127];
const BASE_BITS: u32 = 13;
const TABLE_BITS: u32 = 10;
const TAG_BITS: u32 = 9;
/// Number of branches after which the useful counters are halved.
const AGEING: u64 = 1 << 18;

/// An entry of a table in 16 bits, so that the tables leave room in the host's first-level cache: 11 bits for a nonzero
/// tag, a counter of 3 bits, and a useful counter of 2 bits.
#[derive(Clone, Copy, Debug)]
struct TageEntry(u16);

const _: () = assert!(1 << TAG_BITS <= TageEntry::TAG);

impl TageEntry {
    const COUNTERS: u32 = 11;
    /// Position of the counter's highest bit, which is the prediction.
    const SAYS: u32 = Self::COUNTERS + Counters::COUNTER_BITS - 1;
    const TAG: u16 = (1 << Self::COUNTERS) - 1;

    /// An entry that is not useful, for a branch with this outcome.
    fn new(tag: u16, taken: bool) -> Self {
        let counter = if taken { Counters::WEAKLY_TAKEN } else { Counters::WEAKLY_TAKEN - 1 };
        Self(tag).with(Counters(counter))
    }

    fn tag(self) -> u16 {
        self.0 & Self::TAG
    }

    fn counters(self) -> Counters {
        Counters((self.0 >> Self::COUNTERS) as u8)
    }

    fn with(self, counters: Counters) -> Self {
        Self(self.tag() | u16::from(counters.0) << Self::COUNTERS)
    }

    fn less_useful(self, by: impl Fn(u8) -> u8) -> Self {
        self.with(Counters::new(self.counters().counter(), by(self.counters().useful())))
    }
}

/// An entry's prediction counter in the lower bits, and its useful counter.
#[derive(Clone, Copy, Debug)]
struct Counters(u8);

impl Counters {
    const COUNTER_BITS: u32 = 3;
    const BITS: u32 = 5;
    /// Counters are 0 to 7: taken from 4 on.
    const WEAKLY_TAKEN: u8 = 4;
    const MOST: u8 = 7;
    const MOST_USEFUL: u8 = 3;

    const fn counter(self) -> u8 {
        self.0 & Self::MOST
    }

    const fn useful(self) -> u8 {
        self.0 >> Self::COUNTER_BITS
    }

    const fn new(counter: u8, useful: u8) -> Self {
        Self(counter | useful << Self::COUNTER_BITS)
    }

    /// Whether it predicts that the branch is taken.
    const fn says(self) -> bool {
        self.counter() >= Self::WEAKLY_TAKEN
    }

    /// The counters after an outcome that this entry predicted; `differs` tells whether the alternative prediction was
    /// different.
    const fn after(self, taken: bool, differs: bool) -> Self {
        let useful =
            if differs { count(self.useful(), self.says() == taken, Self::MOST_USEFUL) } else { self.useful() };
        Self::new(count(self.counter(), taken, Self::MOST), useful)
    }
}

/// A saturating counter of at most `most` after an outcome.
const fn count(counter: u8, up: bool, most: u8) -> u8 {
    match up {
        true if counter < most => counter + 1,
        false if counter > 0 => counter - 1,
        _ => counter,
    }
}

/// New state of an entry, indexed by its state and three bits above: whether the branch is taken, whether the
/// alternative prediction was different, and whether this entry predicted (otherwise it does not change). A table,
/// since the host could not predict branches in this code.
static AFTER: [u8; 8 << Counters::BITS] = {
    let mut all = [0; 8 << Counters::BITS];
    let mut at = 0;
    while at < all.len() {
        let (state, step) = (Counters(at as u8 & ((1 << Counters::BITS) - 1)), at >> Counters::BITS);
        all[at] = if step & 4 != 0 { state.after(step & 1 != 0, step & 2 != 0).0 } else { state.0 };
        at += 1;
    }
    all
};

/// Counters without tags are 0 to 3: taken from 2 on.
const MOST_OF_BASE: u8 = 3;

/// New value of such a counter, indexed by its value and two bits above: whether the branch is taken, and whether a
/// tagged table predicted (then the counter does not change).
static BASE_AFTER: [u8; 16] = {
    let mut all = [0; 16];
    let mut at = 0;
    while at < all.len() {
        let counter = at as u8 & MOST_OF_BASE;
        all[at] = if at & 8 != 0 { counter } else { count(counter, at & 4 != 0, MOST_OF_BASE) };
        at += 1;
    }
    all
};

/// The predictor, indexed by a bitmap of the tables that have an entry for the branch: the table with the longest
/// history, or 0 for the counters without tags; and the alternative, which would predict without that entry.
static PREDICTS: [(u8, u8); 1 << LENGTHS.len()] = {
    let mut all = [(0, 0); 1 << LENGTHS.len()];
    let mut has = 1_u32;
    while has < 1 << LENGTHS.len() {
        let rest = has & !(1 << has.ilog2());
        all[has as usize] = (has.ilog2() as u8 + 1, if rest == 0 { 0 } else { rest.ilog2() as u8 + 1 });
        has += 1;
    }
    all
};

/// A TAGE branch predictor.
#[derive(Clone, Debug)]
pub struct Tage {
    tables: Tables,
    past: BranchHistory,
    batch: Box<BranchBatch>,
    /// Those of programs include those of kernels here.
    counts: BranchCounts,
}

/// The predictor's tables.
#[derive(Clone, Debug)]
struct Tables {
    base: Box<[u8; 1 << BASE_BITS]>,
    /// The tagged tables, one after the other.
    tagged: Box<[TageEntry; LENGTHS.len() << TABLE_BITS]>,
}

/// The most recent outcomes.
#[derive(Clone, Copy, Debug, Default)]
struct BranchHistory {
    /// The most recent outcome is in the lowest bit.
    history: u128,
    /// For each table, a hash of the part of the history that it uses.
    hashes: [u32; LENGTHS.len()],
}

/// A batch of branches and their indices: in the counters without tags, and in each table.
///
/// Outcomes are known before they are predicted. So the indices of many branches are computed before the first of them
/// is predicted. The host can then overlap its cache misses and compute hashes with vectors.
#[derive(Clone, Debug)]
struct BranchBatch {
    count: usize,
    /// Input of each table's hash function.
    keys: [[u32; LENGTHS.len()]; BATCH],
    indices: [[u16; LENGTHS.len()]; BATCH],
    tags: [[u16; LENGTHS.len()]; BATCH],
    base: [u16; BATCH],
    taken: [bool; BATCH],
    /// Number of the access after the branch.
    number: [u8; BATCH],
}

impl BranchBatch {
    const EMPTY: Self = Self {
        count: 0,
        keys: [[0; LENGTHS.len()]; BATCH],
        indices: [[0; LENGTHS.len()]; BATCH],
        tags: [[0; LENGTHS.len()]; BATCH],
        base: [0; BATCH],
        taken: [false; BATCH],
        number: [0; BATCH],
    };

    /// Adds a branch, identified by `name`, if there is room.
    #[inline(always)]
    fn push(&mut self, past: &BranchHistory, name: u64, taken: bool, number: u8) {
        let name = (name ^ name >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = self.count % BATCH;
        self.keys[at] = past.hashes.map(|of_past| (name >> 32) as u32 ^ of_past);
        self.base[at] = (name >> (u64::BITS - BASE_BITS)) as u16;
        (self.taken[at], self.number[at]) = (taken, number);
        self.count += 1;
    }

    /// Computes the indices of all branches of the batch.
    #[inline(always)]
    fn seek(&mut self) {
        let used = LENGTHS.len() * self.count.min(BATCH);
        let (indices, tags) = (self.indices.as_flattened_mut(), self.tags.as_flattened_mut());
        for ((key, index), tag) in self.keys.as_flattened()[..used].iter().zip(indices).zip(tags) {
            let hash = mix(*key);
            *index = (hash & ((1 << TABLE_BITS) - 1)) as u16;
            // 0 is the tag of unused entries.
            *tag = (hash >> 16 & ((1 << TAG_BITS) - 1)) as u16 + 1;
        }
    }

    /// One branch of the batch.
    #[inline(always)]
    fn get(&self, at: usize) -> TableIndices {
        let at = at % BATCH;
        TableIndices { indices: self.indices[at], tags: self.tags[at], base: self.base[at], taken: self.taken[at] }
    }
}

/// One branch of a [`BranchBatch`].
#[derive(Clone, Copy, Debug)]
struct TableIndices {
    indices: [u16; LENGTHS.len()],
    tags: [u16; LENGTHS.len()],
    base: u16,
    taken: bool,
}

impl TableIndices {
    /// Position in [`Tables::tagged`] of the branch's entry in a table.
    #[inline(always)]
    fn place(&self, table: usize) -> usize {
        table << TABLE_BITS | usize::from(self.indices[table]) & ((1 << TABLE_BITS) - 1)
    }
}

/// Number of branches of a batch.
const BATCH: usize = 64;

/// Combines the lowest bits of the lanes to one number.
#[inline(always)]
fn gather(lanes: u64) -> usize {
    ((lanes & LANES).wrapping_mul(1 << 48 | 1 << 33 | 1 << 18 | 1 << 3) >> 48 & 0xf) as usize
}

/// Packs four numbers into the lanes of one.
#[inline(always)]
fn lanes(numbers: [u16; LENGTHS.len()]) -> u64 {
    numbers.into_iter().rev().fold(0, |all, lane| all << 16 | u64::from(lane))
}

/// The lowest bit of each lane.
const LANES: u64 = 0x0001_0001_0001_0001;
const _: () = assert!(LENGTHS.len() == 4);

/// A hash of 32 bits, since the hosts' vectors can multiply 32-bit numbers.
const fn mix(value: u32) -> u32 {
    let value = (value ^ value >> 16).wrapping_mul(FACTOR);
    value ^ value >> 15
}

/// Factor by which the weight of an outcome in a history's hash grows with each later outcome: a polynomial hash as by
/// Karp and Rabin (IBM Journal of Research and Development 31, 1987).
const FACTOR: u32 = 0x9e37_79b1;

/// Change of the tables' hashes, indexed by a bitmap: for each table, whether the outcome that leaves its history was
/// taken; and above these, whether the new outcome is taken.
static CHANGES: [[u32; LENGTHS.len()]; 2 << LENGTHS.len()] = {
    let mut all = [[0; LENGTHS.len()]; 2 << LENGTHS.len()];
    let mut at = 0;
    while at < all.len() {
        let mut table = 0;
        while table < LENGTHS.len() {
            let last = if at >> table & 1 != 0 { FACTOR.wrapping_pow(LENGTHS[table]) } else { 0 };
            all[at][table] = ((at >> LENGTHS.len()) as u32).wrapping_sub(last);
            table += 1;
        }
        at += 1;
    }
    all
};

impl BranchHistory {
    /// Appends an outcome.
    #[inline(always)]
    fn push(&mut self, taken: bool) {
        let leaves = LENGTHS.map(|length| (self.history >> (length - 1)) as usize & 1);
        let leave = (0..LENGTHS.len()).fold(0, |all, table| all | leaves[table] << table);
        let changes = &CHANGES[leave | usize::from(taken) << LENGTHS.len()];
        for (hash, change) in self.hashes.iter_mut().zip(changes) {
            *hash = hash.wrapping_mul(FACTOR).wrapping_add(*change);
        }
        self.history = self.history << 1 | u128::from(taken);
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            base: Box::new([2; 1 << BASE_BITS]),
            tagged: Box::new([TageEntry::new(0, true); LENGTHS.len() << TABLE_BITS]),
        }
    }
}

impl Tables {
    /// Predicts a branch and learns its outcome; returns whether it was mispredicted.
    #[inline(always)]
    fn predict_branch(&mut self, sought: &TableIndices) -> bool {
        let &TableIndices { tags, base, taken, .. } = sought;
        let entries = lanes(std::array::from_fn(|table| self.tagged[sought.place(table)].0));
        let counter = &mut self.base[usize::from(base) & ((1 << BASE_BITS) - 1)];
        // Bitmap of the tables whose tag matches: where no tag bit differs, the addition does not carry into the lane's
        // highest bit.
        let differing = (entries ^ lanes(tags)) & (LANES * u64::from(TageEntry::TAG));
        let has = !gather((differing + LANES * 0x7fff) >> 15) & 0xf;
        // Predictions: bit 0 of the counter without tag, above it one bit per table.
        let says = gather(entries >> TageEntry::SAYS) << 1 | usize::from(*counter >> 1);
        let (provider, other) = PREDICTS[has];
        let (predicted, otherwise) = (says >> provider & 1 != 0, says >> other & 1 != 0);
        let (differs, of_table) = (usize::from(predicted != otherwise), usize::from(provider > 0));
        let taken_bit = usize::from(taken);
        let provider = usize::from(provider);
        let table = provider.saturating_sub(1) % LENGTHS.len();
        let entry = TageEntry((entries >> (16 * table)) as u16);
        let after = usize::from(entry.counters().0) | (taken_bit | differs << 1 | of_table << 2) << Counters::BITS;
        let after_of_base = usize::from(*counter & MOST_OF_BASE) | taken_bit << 2 | of_table << 3;
        *counter = BASE_AFTER[after_of_base];
        self.tagged[sought.place(table)] = entry.with(Counters(AFTER[after]));
        if predicted != taken {
            self.allocate(provider, sought);
        }
        predicted != taken
    }

    /// Halves all useful counters.
    #[cold]
    fn age(&mut self) {
        self.tagged.iter_mut().for_each(|entry| *entry = entry.less_useful(|useful| useful >> 1));
    }

    /// Allocates an entry for the branch in a table from `first` on.
    #[inline(never)]
    fn allocate(&mut self, first: usize, sought: &TableIndices) {
        let free = (first..LENGTHS.len()).find(|&table| self.tagged[sought.place(table)].counters().useful() == 0);
        if let Some(table) = free {
            self.tagged[sought.place(table)] = TageEntry::new(sought.tags[table], sought.taken);
            return;
        }
        for table in first..LENGTHS.len() {
            let entry = &mut self.tagged[sought.place(table)];
            *entry = entry.less_useful(|useful| useful - 1);
        }
    }
}

impl Default for Tage {
    fn default() -> Self {
        Self {
            tables: Tables::default(),
            past: BranchHistory::default(),
            batch: Box::new(BranchBatch::EMPTY),
            counts: BranchCounts::default(),
        }
    }
}

impl Tage {
    /// Predicts the branches between accesses. Each item contains the instruction address of the previous access, the
    /// branches, and the number of the next access. Adds the mispredictions to `missed`, by that number.
    #[inline(always)]
    pub fn predict_branches(&mut self, all: impl Iterator<Item = (u64, Branches, u8)>, missed: &mut [u8; ROW]) {
        // A local copy stays in the host's registers.
        let mut past = self.past;
        for (before, branches, number) in all {
            if self.batch.count + Branches::MOST as usize > BATCH {
                self.predict_batch(missed);
            }
            // Identifies the branch by the previous access and the outcomes since.
            let mut name = before << 8 | 1;
            for taken in branches.outcomes() {
                self.batch.push(&past, name, taken, number);
                name = name & !0xff | (name << 1 | u64::from(taken)) & 0xff;
                past.push(taken);
            }
        }
        self.past = past;
        self.predict_batch(missed);
    }

    /// Predicts all branches of the batch.
    #[inline(always)]
    fn predict_batch(&mut self, missed: &mut [u8; ROW]) {
        let Self { tables, batch, counts, .. } = self;
        batch.seek();
        for at in 0..batch.count {
            let is_missed = tables.predict_branch(&batch.get(at));
            missed[usize::from(batch.number[at % BATCH]) % ROW] += u8::from(is_missed);
            counts.mispredicted += u64::from(is_missed);
            counts.met += 1;
            if counts.met.is_multiple_of(AGEING) {
                tables.age();
            }
        }
        batch.count = 0;
    }

    /// Predicts branches of kernel code; returns the number of mispredictions.
    #[cold]
    pub fn predict_kernel(&mut self, run: &BranchRun) -> u64 {
        let before = self.counts;
        for number in 0..run.count {
            if self.batch.count == BATCH {
                self.predict_batch(&mut [0; ROW]);
            }
            let (address, taken) = run.branch(number, before.kernel + number);
            self.batch.push(&self.past, address << 8 | 1, taken, 0);
            self.past.push(taken);
        }
        self.predict_batch(&mut [0; ROW]);
        let missed = self.counts.mispredicted - before.mispredicted;
        self.counts.kernel += run.count;
        self.counts.kernel_mispredicted += missed;
        missed
    }

    /// Statistics so far.
    pub fn counts(&self) -> BranchCounts {
        let BranchCounts { met, mispredicted, kernel, kernel_mispredicted } = self.counts;
        BranchCounts { met: met - kernel, mispredicted: mispredicted - kernel_mispredicted, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the branch after an access by this instruction is mispredicted.
    fn predict_branch(tage: &mut Tage, pc: u64, taken: bool) -> bool {
        let (mut branches, mut missed) = (Branches::NONE, [0; ROW]);
        branches.push(taken);
        tage.predict_branches([(pc, branches, 5)].into_iter(), &mut missed);
        assert_eq!(missed.iter().sum::<u8>(), missed[5]);
        missed[5] > 0
    }

    /// Mispredictions of one branch in the second half of `outcomes`.
    fn missed(outcomes: impl Iterator<Item = bool> + Clone) -> usize {
        let mut tage = Tage::default();
        let half = outcomes.clone().count() / 2;
        outcomes.map(|taken| predict_branch(&mut tage, 7, taken)).skip(half).filter(|missed| *missed).count()
    }

    #[test]
    fn incremental_hashes_equal_those_of_whole_histories() {
        let mut draw = pagelab_trace::rng::Rng::new(2, "outcomes");
        let mut tage = Tage::default();
        let mut outcomes = std::collections::VecDeque::from([false; 127]);
        for _ in 0..1000 {
            outcomes.push_front(draw.below(3) > 0);
            outcomes.pop_back();
            predict_branch(&mut tage, 7, outcomes[0]);
            for (table, length) in LENGTHS.into_iter().enumerate() {
                let taken = (0..length).filter(|&age| outcomes[age as usize]);
                let whole = taken.fold(0, |hash: u32, age| hash.wrapping_add(FACTOR.wrapping_pow(age)));
                assert_eq!(tage.past.hashes[table], whole, "{table}");
            }
        }
    }

    #[test]
    fn patterns_within_a_history_are_learnt() {
        assert_eq!(missed((0..1000).map(|_| true)), 0);
        // A loop of 20 iterations: the history of 44 predicts its end.
        assert_eq!(missed((0..40_000).map(|n| n % 20 != 0)), 0);
        // A loop of 100: the history of 127 does.
        assert_eq!(missed((0..200_000).map(|n| n % 100 != 0)), 0);
        // The end of a loop of 300 is not predicted.
        assert_eq!(missed((0..600_000).map(|n| n % 300 != 0)), 1000);
    }

    #[test]
    fn a_coin_is_not_foreseen_and_a_correlated_branch_is() {
        let mut draw = pagelab_trace::rng::Rng::new(1, "coin");
        let mut tage = Tage::default();
        let (mut coins, mut followers) = (0, 0);
        for round in 0..100_000 {
            let coin = draw.below(2) == 0;
            let (first, second) = (predict_branch(&mut tage, 1, coin), predict_branch(&mut tage, 2, coin));
            if round >= 50_000 {
                coins += u32::from(first);
                followers += u32::from(second);
            }
        }
        assert!((23_000..27_000).contains(&coins), "{coins}");
        assert!(followers < 500, "{followers}");
    }
}
