//! Computes set and tag of a line.
//!
//! set = line mod sets, tag = line ÷ sets. For a power of two this is a mask and a shift. For any other number of sets
//! (real L3s have 12288) it is a multiplication by a reciprocal in 64.64 fixed point. With r = ⌈2^64 / sets⌉ the error
//! of line × r / 2^64 is below line × sets / 2^64 / sets, which cannot carry the quotient to the next integer as long
//! as line × sets < 2^64 (Granlund, Montgomery, "Division by invariant integers using multiplication", PLDI 1994).
//!
//! If a hash chooses the slice, the sets form groups, one per hash value. Set and tag are computed within a group, and
//! the hash selects the group.

use super::slices::hash;

/// Largest number of sets of a cache.
pub(super) const MAX_SETS: u64 = 1 << 24;

#[derive(Clone, Copy, Debug)]
pub(super) struct SetIndex {
    /// Number of sets of all slices.
    sets: u64,
    /// Number of hashed bits of the slice's number ([`slices`](super::slices)).
    hash_bits: u32,
    /// Number of sets per hash value; the remainder chooses among them.
    rows: u64,
    /// `rows - 1` for a power of two.
    mask: u64,
    /// log2 of `rows` for a power of two.
    shift: u32,
    /// ⌈2^64 / rows⌉, or 0 for a power of two.
    reciprocal: u64,
    /// Whether set and tag are bit fields of the line's number.
    is_masked: bool,
}

impl SetIndex {
    /// `sets` is 1 to [`MAX_SETS`], and a multiple of 2^`hash_bits`.
    pub fn new(sets: u64, hash_bits: u32) -> Self {
        assert!((1..=MAX_SETS).contains(&sets) && sets.is_multiple_of(1 << hash_bits));
        let rows = sets >> hash_bits;
        let index = Self { sets, hash_bits, rows, mask: 0, shift: 0, reciprocal: 0, is_masked: false };
        if rows.is_power_of_two() {
            Self { mask: rows - 1, shift: rows.ilog2(), is_masked: hash_bits == 0, ..index }
        } else {
            Self { reciprocal: u64::MAX / rows + 1, ..index }
        }
    }

    pub fn sets(&self) -> u64 {
        self.sets
    }

    /// Number of sets among which the remainder chooses; fewer than all sets if a hash chooses slices.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn is_masked(&self) -> bool {
        self.is_masked
    }

    /// Set and tag of `line`, provided that [`Self::is_masked`].
    #[inline(always)]
    pub fn split_masked(&self, line: u64) -> (usize, u32) {
        debug_assert!(self.is_masked());
        ((line & self.mask) as usize, (line >> self.shift) as u32)
    }

    /// Set and tag of `line`.
    #[inline(always)]
    pub fn split(&self, line: u64) -> (usize, u32) {
        if self.is_masked { self.split_masked(line) } else { self.split_any(line) }
    }

    #[inline(always)]
    fn split_any(&self, line: u64) -> (usize, u32) {
        let (row, tag) = if self.reciprocal == 0 {
            (line & self.mask, line >> self.shift)
        } else {
            let tag = ((u128::from(line) * u128::from(self.reciprocal)) >> 64) as u64;
            (line - tag * self.rows, tag)
        };
        let slice = if self.hash_bits == 0 { 0 } else { hash(line, self.hash_bits) * self.rows as usize };
        (slice + row as usize, tag as u32)
    }

    /// The line with this set and tag.
    #[inline(always)]
    pub fn join(&self, set: usize, tag: u32) -> u64 {
        // Both fit into 32 bits, whose division is faster on the host.
        let row = if self.hash_bits == 0 { set as u64 } else { u64::from(set as u32 % self.rows as u32) };
        u64::from(tag) * self.rows + row
    }

    /// [`Self::join`], provided that [`Self::is_masked`].
    #[inline(always)]
    pub fn join_masked(&self, set: usize, tag: u32) -> u64 {
        debug_assert!(self.is_masked());
        u64::from(tag) << self.shift | set as u64
    }

    /// [`Self::split`] is exact for lines below this number.
    pub fn exact_below(&self) -> u64 {
        if self.reciprocal == 0 { 1 << 58 } else { u64::MAX / self.rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::rng::Rng;

    #[test]
    fn split_is_division_with_remainder_for_any_number_of_sets() {
        let mut rng = Rng::new(5, "index");
        for sets in [1, 2, 3, 5, 7, 64, 100, 1536, 11_264, 12_288, 45_056, (1 << 24) - 1, 1 << 24] {
            let index = SetIndex::new(sets, 0);
            let limit = index.exact_below().min(sets << 30);
            let edges = [0, 1, sets - 1, sets, sets + 1, limit - 1, limit - 2, (limit - 1) / sets * sets];
            let multiples: Vec<u64> = (0..2000).map(|_| rng.below(limit / sets) * sets).collect();
            let just_below = multiples.iter().map(|m| m.saturating_sub(1));
            let random: Vec<u64> = (0..5000).map(|_| rng.below(limit)).collect();
            for line in edges.into_iter().chain(multiples.iter().copied()).chain(just_below).chain(random) {
                let (set, tag) = index.split(line);
                assert_eq!((set as u64, u64::from(tag)), (line % sets, line / sets), "{line} with {sets} sets");
                assert_eq!(index.join(set, tag), line);
                assert!(!index.is_masked() || index.join_masked(set, tag) == line);
            }
        }
    }

    #[test]
    fn slices_keep_every_line_apart_and_fill_all_sets_alike() {
        for (sets, hash_bits) in [(8192, 2), (12_288, 1), (16_384, 3), (20_480, 1), (24, 3)] {
            let index = SetIndex::new(sets, hash_bits);
            let mut lines_of_set = vec![0; sets as usize];
            for line in 0..64 * sets {
                let (set, tag) = index.split(line);
                assert_eq!(index.join(set, tag), line, "{sets} sets, {hash_bits} bits");
                lines_of_set[set] += 1;
            }
            let rows = sets >> hash_bits;
            if rows.is_power_of_two() && rows >= 64 {
                assert!(lines_of_set.iter().all(|&lines| lines == 64), "{sets} sets, {hash_bits} bits");
            }
        }
    }
}
