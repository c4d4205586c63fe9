//! The order of last uses: a mark for each place of the LRU stack, in the order of time.
//!
//! Time is counted in uses; a stamp is such a time. A page that is used gives up the mark of its last use and gets one
//! at the end, so the marks behind a page's are the pages used since: its stack distance (Bennett and Kruskal, "LRU
//! stack processing", IBM J. R&D 1975; Olken, LBL-12370, 1981). They are bits of words. Above the words is a tree of 16
//! children per node whose nodes hold sums of the children before, so counting reads one number per level and taking a
//! mark away changes one cache line per level. Marks at the end cost no more than their bit, as a node's later sums are
//! written when time gets there.

use crate::host;

const FAN_OUT_SHIFT: u32 = 4;
const FAN_OUT: usize = 1 << FAN_OUT_SHIFT;
const WORD_SHIFT: u32 = u64::BITS.trailing_zeros();
/// Stamps of a word.
const WORD: usize = 1 << WORD_SHIFT;
/// Levels that suffice for all stamps.
const MOST_LEVELS: usize = 7;

/// Time of a use.
pub(crate) type Stamp = u32;

/// The least room that is worth its administration.
const LEAST_STAMPS: usize = 1 << 14;
/// Room for each mark: more makes renumbering rarer and the bits sparser.
const STAMPS_PER_MARK: usize = 4;
/// Stamps stay below the one that stands for none.
const MOST_STAMPS: usize = (u32::MAX as usize) & !(WORD - 1);
/// With more marks, half of the stamps would be in use and renumbering would take over.
pub(crate) const MOST_MARKS: usize = MOST_STAMPS / 2;

/// Marks in the order of time.
pub(crate) struct Marks {
    words: Vec<u64>,
    /// For each node and child, the marks of the node's children before it. Nodes lie level by level, those above words
    /// first.
    sums: Vec<[u32; FAN_OUT]>,
    /// Where each level's nodes begin.
    begins: [usize; MOST_LEVELS],
    levels: usize,
    next: usize,
    count: usize,
}

impl Marks {
    /// `count` marks with the stamps from 0 on, and room for more of them.
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

    /// True if there is no stamp left: all must be renumbered.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.next == self.words.len() << WORD_SHIFT
    }

    /// A mark behind all others; there must be a stamp left.
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

    /// Takes a mark away; returns how many are behind it.
    #[inline(always)]
    pub fn take(&mut self, stamp: Stamp) -> usize {
        let mut child = stamp as usize >> WORD_SHIFT;
        let (word, bit) = (&mut self.words[child], 1 << (stamp as usize & (WORD - 1)));
        let mut before = (*word & (bit - 1)).count_ones();
        *word &= !bit;
        for begin in &self.begins[..self.levels] {
            let (sums, at) = (&mut self.sums[begin + (child >> FAN_OUT_SHIFT)], child & (FAN_OUT - 1));
            before += sums[at];
            // Sums that lie ahead of time are written when it gets there, so it does not matter what becomes of them.
            for (other, sum) in sums.iter_mut().enumerate() {
                *sum = sum.wrapping_sub(u32::from(other > at));
            }
            child >>= FAN_OUT_SHIFT;
        }
        self.count -= 1;
        self.count - before as usize
    }

    /// How many marks are behind this one.
    pub fn behind(&self, stamp: Stamp) -> usize {
        self.count - 1 - self.before(stamp)
    }

    /// How many marks are before this one: its stamp when all are renumbered.
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

    /// Asks for what a stamp's mark is counted by before it is needed.
    #[inline(always)]
    pub fn prefetch(&self, stamp: Stamp) {
        host::prefetch(&self.words, stamp as usize >> WORD_SHIFT);
        host::prefetch(&self.sums, stamp as usize >> (WORD_SHIFT + FAN_OUT_SHIFT));
    }

    /// Time has come to a new word: the sums before it are known from here on.
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

    /// Against a list, through several levels: more than 16^3 words.
    #[test]
    fn marks_are_counted_as_in_a_list() {
        let mut marks = Marks::new(300_000);
        let mut list: Vec<Stamp> = (0..300_000).collect();
        let mut rng = Rng::new(1, "marks");
        assert_eq!(marks.levels, 4);
        for step in 0..pagelab_trace::cases(3000_u64) {
            for _ in 0..rng.below(500) {
                if !marks.is_full() {
                    list.push(marks.push());
                }
            }
            let of = if step % 2 == 0 { list.len() as u64 } else { 600 };
            let at = list.len() - 1 - rng.below(of) as usize;
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
