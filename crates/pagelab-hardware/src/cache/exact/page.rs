//! Writes all lines of a page at once if no cache holds any of them, as when zeroing a new page.
//!
//! The work goes level by level instead of line by line. Each line's effects still happen in the same order. No two
//! lines use the same set, since at every level the sets of a line depend on its number modulo 64. So sets are visited
//! in order, all tags are compared with one number, and the positions of eight victims are computed at a time. Loops
//! are written out: closures of iterators are separate functions, which are compiled without the caller's vector
//! instructions.

use super::{Tables, find, is_modified, line_of, place};
use crate::cache::array::LineState;
use crate::cache::ways::{EMPTY, STATE_MASK};
use pagelab_base::host::Vectors;

/// Lines per page.
pub(super) const LINES: usize = 64;

/// The sets of a page's lines, beginning with the set `first` of its first line.
#[inline(always)]
fn of_page<const W: usize>(sets: &mut [[u32; W]], first: usize) -> &mut [[u32; W]; LINES] {
    sets[first..].first_chunk_mut().expect("a level's sets are those of whole pages")
}

/// Whether a word in these sets has the tag of `wanted`.
#[inline(always)]
fn any_holds<const W: usize>(sets: &[[u32; W]; LINES], wanted: u32) -> bool {
    let mut nearest = u32::MAX;
    for &word in sets.as_flattened() {
        // Words with the same tag differ in the state only.
        nearest = nearest.min(word ^ wanted);
    }
    nearest <= STATE_MASK
}

/// Whether any set contains its own tag of `tags`.
#[inline(always)]
fn any_holds_its<const W: usize>(sets: &[[u32; W]; LINES], tags: &[u32; LINES]) -> bool {
    let mut nearest = [u32::MAX; W];
    for at in 0..LINES {
        for way in 0..W {
            nearest[way] = nearest[way].min(sets[at][way] ^ tags[at]);
        }
    }
    let mut least = u32::MAX;
    for word in nearest {
        least = least.min(word);
    }
    least <= STATE_MASK
}

/// Puts `word` in front of every set; returns the words that dropped out.
#[inline(always)]
fn push_front_of_all<V: Vectors, const W: usize>(sets: &mut [[u32; W]; LINES], word: u32) -> [u32; LINES] {
    let mut out = [0; LINES];
    for at in 0..LINES {
        out[at] = V::push_front(&mut sets[at], word);
    }
    out
}

#[inline(always)]
fn count_modified(words: &[u32; LINES]) -> u64 {
    let mut count = 0_u32;
    for &word in words {
        count += u32::from(is_modified(word));
    }
    count.into()
}

/// For the words that left the sets of a page at a level of `INNER` sets: set and tag of their lines at a level of
/// `OUTER` sets. An unmodified word gets a tag that no line has.
#[inline(always)]
fn places<const INNER: usize, const OUTER: usize>(first: usize, words: &[u32; LINES]) -> [[u32; LINES]; 2] {
    let ratio = (OUTER / INNER) as u32;
    let [mut sets, mut tags] = [[0; LINES]; 2];
    for at in 0..LINES {
        let tag = words[at] >> 2;
        sets[at] = tag % ratio * INNER as u32 + first as u32 + at as u32;
        tags[at] = ((tag / ratio) << 2) | (!words[at] & STATE_MASK);
    }
    [sets, tags]
}

/// For the words that left the sets of a page at a level of `OUTER` sets: tags of their lines at a level of `INNER`
/// sets.
#[inline(always)]
fn inner_tags<const INNER: usize, const OUTER: usize>(first: usize, words: &[u32; LINES]) -> [u32; LINES] {
    let (ratio, rest) = ((OUTER / INNER) as u32, (first / INNER) as u32);
    let mut tags = [0; LINES];
    for at in 0..LINES {
        tags[at] = (words[at] >> 2).wrapping_mul(ratio).wrapping_add(rest) << 2;
    }
    tags
}

/// Marks the lines with these sets and tags as modified and most recently used. Returns a bit for each that is not in
/// its set.
#[inline(always)]
fn write_back_all<V: Vectors, const W: usize>(sets: &mut [[u32; W]], [at, tags]: &[[u32; LINES]; 2]) -> u64 {
    let mut elsewhere = 0;
    for line in 0..LINES {
        let set = &mut sets[at[line] as usize];
        let word = tags[line] | LineState::MODIFIED.bits();
        // Since it was fetched, usually no other line came to its set.
        if set[0] & !STATE_MASK == tags[line] {
            set[0] = word;
        } else if let Some(way) = find::<V, W>(set, tags[line]) {
            V::move_to_front(set, way, word);
        } else {
            elsewhere |= 1 << line;
        }
    }
    elsewhere
}

/// Positions of the set bits.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (at < LINES).then_some(at)
    })
}

impl<V: Vectors, const W1: usize, const S1: usize, const W2: usize, const S2: usize, const W3: usize, const S3: usize>
    Tables<'_, V, W1, S1, W2, S2, W3, S3>
{
    /// Writes the lines of the page that begins with line `first`. Returns false, with nothing changed, if a cache
    /// holds one.
    #[inline(always)]
    pub(super) fn write_new_page(&mut self, first: u64) -> bool {
        const { assert!(S1.is_multiple_of(LINES) && S2.is_multiple_of(S1) && S3.is_multiple_of(S2)) };
        let ((set1, wanted1), (set2, wanted2), (set3, wanted3)) =
            (place::<S1>(first), place::<S2>(first), place::<S3>(first));
        // An inclusive L3 contains every line that a private cache holds.
        let is_private = !self.inclusive
            && (any_holds(of_page(self.l1, set1), wanted1) || any_holds(of_page(self.l2, set2), wanted2));
        if is_private || any_holds(of_page(self.l3, set3), wanted3) {
            return false;
        }
        let out = push_front_of_all::<V, W3>(of_page(self.l3, set3), wanted3 | LineState::EXCLUSIVE.bits());
        self.drop_page_from_l3(set3, &out);
        let out = push_front_of_all::<V, W2>(of_page(self.l2, set2), wanted2 | LineState::EXCLUSIVE.bits());
        self.write_page_back_from_l2(set2, &out);
        let out = push_front_of_all::<V, W1>(of_page(self.l1, set1), wanted1 | LineState::MODIFIED.bits());
        self.write_page_back_from_l1(set1, &out);
        true
    }

    /// Handles the words that left the L3's sets from `first` on. The private caches can hold these lines only in the
    /// page's own sets, and usually no longer do.
    #[inline(always)]
    fn drop_page_from_l3(&mut self, first: usize, out: &[u32; LINES]) {
        let mut modified = count_modified(out);
        if self.inclusive
            && (any_holds_its(of_page(self.l1, first % S1), &inner_tags::<S1, S3>(first, out))
                || any_holds_its(of_page(self.l2, first % S2), &inner_tags::<S2, S3>(first, out)))
        {
            for (set, &word) in (first..).zip(out).filter(|&(_, &word)| word != EMPTY) {
                let newer = self.back_invalidate(line_of::<S3>(set, word));
                modified += u64::from(newer && !is_modified(word));
            }
        }
        self.shared_stats.l3_writebacks += modified;
        self.shared_stats.dram_writes += modified;
    }

    /// Handles the words that left the L2's sets from `first` on.
    #[inline(always)]
    fn write_page_back_from_l2(&mut self, first: usize, out: &[u32; LINES]) {
        let elsewhere = write_back_all::<V, W3>(self.l3, &places::<S2, S3>(first, out));
        self.stats.l2_writebacks += u64::from(elsewhere.count_zeros());
        for at in ones(elsewhere).filter(|&at| is_modified(out[at])) {
            self.write_back_from_l2(line_of::<S2>(first + at, out[at]));
        }
    }

    /// Handles the words that left the L1's sets from `first` on.
    #[inline(always)]
    fn write_page_back_from_l1(&mut self, first: usize, out: &[u32; LINES]) {
        let elsewhere = write_back_all::<V, W2>(self.l2, &places::<S1, S2>(first, out));
        self.stats.l1_writebacks += u64::from(elsewhere.count_zeros());
        for at in ones(elsewhere).filter(|&at| is_modified(out[at])) {
            self.write_back_from_l1(line_of::<S1>(first + at, out[at]));
        }
    }
}
