//! The order of last uses: one mark per entry of the LRU stack, in time order.
//!
//! Time is counted in uses; a stamp is such a time. When a page is used, its old mark is removed and a new one
//! appended. So the marks after a page's mark are the pages used since: its stack distance (Bennett and Kruskal, "LRU
//! stack processing", IBM J. R&D 1975; Olken, LBL-12370, 1981). Marks are bits of words. Above the words is a tree with
//! 16 children per node; for each child, a node stores the sum of the children before it. So counting reads one number
//! per level, and removing a mark changes one cache line per level. Appending only sets a bit, since a node's later
//! sums are written when time reaches them.

use crate::host;

const FAN_OUT_SHIFT: u32 = 4;
const FAN_OUT: usize = 1 << FAN_OUT_SHIFT;
const WORD_SHIFT: u32 = u64::BITS.trailing_zeros();
/// Stamps per word.
const WORD: usize = 1 << WORD_SHIFT;
/// Number of levels that suffices for all stamps.
const MOST_LEVELS: usize = 7;

/// Time of a use.
pub(crate) type Stamp = u32;

/// Minimum number of stamps.
const LEAST_STAMPS: usize = 1 << 14;
/// Stamps per mark: more make renumbering rarer and the bits sparser.
const STAMPS_PER_MARK: usize = 4;
/// Stamps must stay below the value for none.
const MOST_STAMPS: usize = (u32::MAX as usize) & !(WORD - 1);
/// With more marks, over half of the stamps would be in use and renumbering would dominate.
pub(crate) const MOST_MARKS: usize = MOST_STAMPS / 2;

/// Marks in time order.
pub(crate) struct Marks {
    words: Vec<u64>,
    /// For each node and child, the number of marks in the node's children before it. Nodes are stored level by level,
    /// beginning with the level above the words.
    sums: Vec<[u32; FAN_OUT]>,
    /// Start of each level's nodes.
    begins: [usize; MOST_LEVELS],
    levels: usize,
    next: usize,
    count: usize,
}

impl Marks {
    /// `count` marks with the stamps from 0 on, and room for more.
    pub fn new(count: usize) -> Self {
        let room = (count * STAMPS_PER_MARK).clamp(LEAST_STAMPS, MOST_STAMPS).next_multiple_of(WORD);
        let words = room >> WORD_SHIFT;
        let (mut begins, mut levels, mut nodes, mut width) = ([0; MOST_LEVELS], 0, 0, words);
        while width > 1 {
            width = width.div_ceil(FAN_OUT);
            begins[levels] = nodes;
            nodes += width;
            levels += 1;
        }
        let sums = host::filled(nodes, [0; FAN_OUT]);
        let mut marks = Self { words: host::filled(words, 0), sums, begins, levels, next: 0, count: 0 };
        while marks.next < count {
            marks.begin_word();
            let here = (count - marks.next).min(WORD);
            marks.words[marks.next >> WORD_SHIFT] = u64::MAX >> (WORD - here);
            marks.next += here;
            marks.count += here;
        }
        marks
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// True if there is no stamp left and all must be renumbered.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.next == self.words.len() << WORD_SHIFT
    }

    /// Appends a mark; there must be a stamp left.
    #[inline(always)]
    pub fn push(&mut self) -> Stamp {
        let stamp = self.next;
        if stamp.is_multiple_of(WORD) {
            self.begin_word();
        }
        self.words[stamp >> WORD_SHIFT] |= 1 << (stamp & (WORD - 1));
        self.next += 1;
        self.count += 1;
        stamp as Stamp
    }

    /// Removes a mark; returns the number of later marks.
    #[inline(always)]
    pub fn take(&mut self, stamp: Stamp) -> usize {
        let mut child = stamp as usize >> WORD_SHIFT;
        let (word, bit) = (&mut self.words[child], 1 << (stamp as usize & (WORD - 1)));
        let mut before = (*word & (bit - 1)).count_ones();
        *word &= !bit;
        for begin in &self.begins[..self.levels] {
            let (sums, at) = (&mut self.sums[begin + (child >> FAN_OUT_SHIFT)], child & (FAN_OUT - 1));
            before += sums[at];
            // Sums beyond the current time are written when time reaches them, so their values do not matter.
            for (other, sum) in sums.iter_mut().enumerate() {
                *sum = sum.wrapping_sub(u32::from(other > at));
            }
            child >>= FAN_OUT_SHIFT;
        }
        self.count -= 1;
        self.count - before as usize
    }

    /// Number of later marks.
    pub fn behind(&self, stamp: Stamp) -> usize {
        self.count - 1 - self.before(stamp)
    }

    /// Number of earlier marks: its stamp after renumbering.
    #[inline(always)]
    pub fn before(&self, stamp: Stamp) -> usize {
        let mut child = stamp as usize >> WORD_SHIFT;
        let bit = 1 << (stamp as usize & (WORD - 1));
        let mut before = (self.words[child] & (bit - 1)).count_ones();
        for begin in &self.begins[..self.levels] {
            before += self.sums[begin + (child >> FAN_OUT_SHIFT)][child & (FAN_OUT - 1)];
            child >>= FAN_OUT_SHIFT;
        }
        before as usize
    }

    /// Prefetches the data for counting a stamp's marks.
    #[inline(always)]
    pub fn prefetch(&self, stamp: Stamp) {
        host::prefetch(&self.words, stamp as usize >> WORD_SHIFT);
        host::prefetch(&self.sums, stamp as usize >> (WORD_SHIFT + FAN_OUT_SHIFT));
    }

    /// Call it when time reaches a new word: sets the sums before that word.
    #[inline(never)]
    fn begin_word(&mut self) {
        let word = self.next >> WORD_SHIFT;
        let mut above = 0_u32;
        for level in (0..self.levels).rev() {
            let shift = FAN_OUT_SHIFT * level as u32;
            let child = word >> shift;
            let sum = &mut self.sums[self.begins[level] + (child >> FAN_OUT_SHIFT)][child & (FAN_OUT - 1)];
            if child << shift == word {
                *sum = self.count as u32 - above;
            }
            above += *sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_trace::rng::Rng;

    /// Compares with a list, through several levels: more than 16^3 words.
    #[test]
    fn marks_are_counted_as_in_a_list() {
        let mut marks = Marks::new(300_000);
        let mut list: Vec<Stamp> = (0..300_000).collect();
        let mut rng = Rng::new(pagelab_trace::case_seed(1), "marks");
        assert_eq!(marks.levels, 4);
        for step in 0..pagelab_trace::cases(3000_u64) {
            for _ in 0..rng.below(500) {
                if !marks.is_full() {
                    list.push(marks.push());
                }
            }
            let reach = if step % 2 == 0 { list.len() as u64 } else { 600 };
            let at = list.len() - 1 - rng.below(reach) as usize;
            let stamp = list[at];
            assert_eq!(marks.before(stamp), at);
            assert_eq!(marks.behind(stamp), list.len() - 1 - at);
            assert_eq!(marks.take(stamp), list.len() - 1 - at);
            list.remove(at);
            assert_eq!(marks.count(), list.len());
        }
        assert!(list.iter().enumerate().step_by(97).all(|(at, &stamp)| marks.before(stamp) == at));
    }

    #[test]
    fn room_ends_at_a_whole_word() {
        for count in [0, 1, 63, 64, 65, 100_000] {
            let mut marks = Marks::new(count);
            assert_eq!(marks.count(), count);
            assert!((0..count).all(|at| marks.before(at as Stamp) == at));
            while !marks.is_full() {
                marks.push();
            }
            assert_eq!(marks.before(marks.next as Stamp - 1), marks.count() - 1);
            assert_eq!(marks.behind(0), marks.count() - 1);
        }
    }
}
