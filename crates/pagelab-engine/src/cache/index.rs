//! From a line to its set and tag.
//!
//! set = line mod sets, tag = line ÷ sets. A power of two is a mask and a shift. Every other number of sets (real
//! L3s have 12288) is a multiplication by a reciprocal in 64.64 fixed point: with r = ⌈2^64 / sets⌉ the error of
//! line × r / 2^64 is below line × sets / 2^64 / sets, which cannot carry the quotient to the next integer as long as
//! line × sets < 2^64 (Granlund, Montgomery, "Division by invariant integers using multiplication", PLDI 1994).

/// Most sets a cache may have.
pub(super) const MAX_SETS: u64 = 1 << 24;

#[derive(Clone, Copy, Debug)]
pub(super) struct SetIndex {
    sets: u64,
    /// One less, for a power of two.
    mask: u64,
    /// log2 of a power of two.
    shift: u32,
    /// ⌈2^64 / sets⌉, or 0 for a power of two.
    reciprocal: u64,
}

impl SetIndex {
    /// `sets` is 1 to [`MAX_SETS`].
    pub fn new(sets: u64) -> Self {
        assert!((1..=MAX_SETS).contains(&sets));
        if sets.is_power_of_two() {
            Self { sets, mask: sets - 1, shift: sets.ilog2(), reciprocal: 0 }
        } else {
            Self { sets, mask: 0, shift: 0, reciprocal: u64::MAX / sets + 1 }
        }
    }

    pub fn sets(&self) -> u64 {
        self.sets
    }

    pub fn is_masked(&self) -> bool {
        self.reciprocal == 0
    }

    /// Set and tag of `line` if [`Self::is_masked`].
    #[inline(always)]
    pub fn split_masked(&self, line: u64) -> (usize, u32) {
        debug_assert!(self.is_masked());
        ((line & self.mask) as usize, (line >> self.shift) as u32)
    }

    /// Set and tag of `line`.
    #[inline(always)]
    pub fn split(&self, line: u64) -> (usize, u32) {
        if self.reciprocal == 0 {
            self.split_masked(line)
        } else {
            let tag = ((u128::from(line) * u128::from(self.reciprocal)) >> 64) as u64;
            ((line - tag * self.sets) as usize, tag as u32)
        }
    }

    /// The line with this set and tag.
    #[inline(always)]
    pub fn join(&self, set: usize, tag: u32) -> u64 {
        u64::from(tag) * self.sets + set as u64
    }

    /// The same if [`Self::is_masked`].
    #[inline(always)]
    pub fn join_masked(&self, set: usize, tag: u32) -> u64 {
        debug_assert!(self.is_masked());
        u64::from(tag) << self.shift | set as u64
    }

    /// Lines below this are split exactly.
    pub fn exact_below(&self) -> u64 {
        if self.reciprocal == 0 { 1 << 58 } else { u64::MAX / self.sets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn split_is_division_with_remainder_for_any_number_of_sets() {
        let mut rng = Rng::new(5, "index");
        for sets in [1, 2, 3, 5, 7, 64, 100, 1536, 11_264, 12_288, 45_056, (1 << 24) - 1, 1 << 24] {
            let index = SetIndex::new(sets);
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
}
