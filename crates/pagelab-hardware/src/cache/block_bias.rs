//! SRRIP replacement that keeps blocks of translations while the TLB misses often.
//!
//! Models: a second-level cache that knows which of its ways have blocks of translations (`tlb_blocks.rs`). A way has a
//! prediction of 2 bits, 0 (used again soon) to 3. A hit lowers it by 1 for a line and by 3 for a block. A line enters
//! with 2; while the TLB misses often, a block enters with 0, and is passed over as a victim if a line can go.
//! Source: Kanellopoulos et al., "Victima", MICRO 2023, of which only notes were at hand.
//! Parameters: `machine.cache.l2.policy`, as `keep-blocks`. The unit with the blocks says when the TLB misses often.
//! Stats: `cache.blocks_kept`.
//! Choices: a block is passed over for the lowest way with a line whose prediction is 3, too; if there is none, the
//! block goes, and no prediction is raised to find one. Without blocks nothing but the hit differs from SRRIP: there it
//! sets the prediction to 0 (hit priority), here it lowers it (frequency priority).

/// Predictions of a level's ways. A line stays in its way.
#[derive(Clone, Debug)]
pub(super) struct KeptBlocks {
    /// Low bit of the predictions of a set's ways; below, the high bit, and whether it is a block.
    low: Vec<u64>,
    high: Vec<u64>,
    is_block: Vec<u64>,
    all_ways: u64,
    misses_often: bool,
    kept: u64,
}

impl KeptBlocks {
    pub fn new(sets: usize, ways: usize) -> Self {
        let none = || vec![0; sets];
        let all_ways = u64::MAX >> (64 - ways);
        Self { low: none(), high: none(), is_block: none(), all_ways, misses_often: false, kept: 0 }
    }

    /// Says whether the TLB misses often.
    pub fn set_misses_often(&mut self, often: bool) {
        self.misses_often = often;
    }

    #[inline]
    fn set_prediction(&mut self, set: usize, way: usize, prediction: u64) {
        let bit = 1 << way;
        self.low[set] = self.low[set] & !bit | (prediction & 1) << way;
        self.high[set] = self.high[set] & !bit | (prediction >> 1) << way;
    }

    /// The line or block at `way` was used.
    #[inline]
    pub fn hit(&mut self, set: usize, way: usize) {
        let prediction = (self.high[set] >> way & 1) << 1 | self.low[set] >> way & 1;
        let is_block = self.is_block[set] >> way & 1 == 1;
        self.set_prediction(set, way, if is_block { 0 } else { prediction.saturating_sub(1) });
    }

    /// A line or block came to `way`.
    #[inline]
    pub fn fill(&mut self, set: usize, way: usize, is_block: bool) {
        self.is_block[set] = self.is_block[set] & !(1 << way) | u64::from(is_block) << way;
        self.set_prediction(set, way, if is_block && self.misses_often { 0 } else { 2 });
    }

    /// The way of a full set that makes room.
    pub fn victim(&mut self, set: usize) -> usize {
        loop {
            let (low, high) = (self.low[set], self.high[set]);
            let distant = low & high & self.all_ways;
            if distant != 0 {
                let (first, lines) = (distant.trailing_zeros(), distant & !self.is_block[set]);
                let is_passed_over = self.misses_often && self.is_block[set] >> first & 1 == 1 && lines != 0;
                self.kept += u64::from(is_passed_over);
                return if is_passed_over { lines.trailing_zeros() } else { first } as usize;
            }
            // Adds one to all two-bit numbers in parallel; none is 3.
            self.high[set] = high ^ low;
            self.low[set] = !low & self.all_ways;
        }
    }

    /// How often a line left although a block was the victim.
    pub fn kept(&self) -> u64 {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predictions(kept: &KeptBlocks) -> Vec<u64> {
        (0..4).map(|way| (kept.high[0] >> way & 1) << 1 | kept.low[0] >> way & 1).collect()
    }

    #[test]
    fn hits_lower_predictions_of_lines_by_one_and_of_blocks_to_zero() {
        let mut kept = KeptBlocks::new(1, 4);
        (0..4).for_each(|way| kept.fill(0, way, way == 3));
        assert_eq!(predictions(&kept), [2, 2, 2, 2]);
        kept.hit(0, 0);
        kept.hit(0, 0);
        kept.hit(0, 0);
        kept.hit(0, 1);
        kept.hit(0, 3);
        assert_eq!(predictions(&kept), [0, 1, 2, 0]);
        assert_eq!(kept.victim(0), 2);
        assert_eq!(predictions(&kept), [1, 2, 3, 1], "raised once");
        kept.hit(0, 2);
        assert_eq!(predictions(&kept), [1, 2, 2, 1], "from 3 to 2");
    }

    #[test]
    fn blocks_are_passed_over_while_the_tlb_misses_often() {
        let mut kept = KeptBlocks::new(1, 4);
        (0..4).for_each(|way| kept.fill(0, way, way < 2));
        assert_eq!((kept.victim(0), kept.kept()), (0, 0), "the TLB seldom misses");
        kept.set_misses_often(true);
        assert_eq!((kept.victim(0), kept.kept()), (2, 1));
        kept.fill(0, 2, false);
        assert_eq!((kept.victim(0), kept.kept()), (3, 2));
        kept.fill(0, 3, true);
        assert_eq!(predictions(&kept), [3, 3, 2, 0], "a block enters with 0");
        assert_eq!((kept.victim(0), kept.kept()), (0, 2), "no line has 3");
        kept.set_misses_often(false);
        kept.fill(0, 0, true);
        assert_eq!(predictions(&kept), [2, 3, 2, 0]);
        // The way of a block that has left is one of a line.
        kept.fill(0, 1, false);
        kept.hit(0, 1);
        assert_eq!(predictions(&kept), [2, 1, 2, 0]);
    }
}
