//! A set of an array as a slice of words: finds a tag in it and keeps it in recency order.
//!
//! A word is a tag above two state bits. [`Plain`] is for sets whose length is known at compile time: its loops become
//! a few vector instructions. Functions whose name ends in `_any` take sets of any length.

use std::marker::PhantomData;

use pagelab_base::host::{Portable, Vectors};

/// Largest number of ways of a set: the policies keep a set's bits in one word.
pub(super) const MAX_WAYS: usize = 64;
/// Tags are below this number; the remaining value marks empty ways.
pub(super) const TAG_LIMIT: u64 = (1 << 30) - 1;
/// Tags below the limit that no line of memory has, but blocks of translations (`tlb_blocks.rs`).
pub(super) const BLOCK_TAGS: u64 = MAX_WAYS as u64 + 1;

/// Bits of a word below its tag.
pub(super) const STATE_MASK: u32 = 3;
/// An empty way: a tag that no line has, state 0.
pub(super) const EMPTY: u32 = !STATE_MASK;

/// The number of sets is not known.
pub(super) const ANY_SETS: usize = 0;
/// The number of sets is some power of two.
pub(super) const POWER_OF_TWO_SETS: usize = usize::MAX;

/// Compile-time knowledge about an array's sets.
pub(super) trait Ways {
    /// Words per set; 0 if unknown.
    const N: usize;
    /// Number of sets, [`ANY_SETS`] or [`POWER_OF_TWO_SETS`].
    const SETS: usize;

    /// The way whose word has the tag of `wanted` (state bits 0).
    fn find(set: &[u32], wanted: u32) -> Option<usize>;
    /// Puts `word` in front; the words before `way` move back by one, onto the one at `way`.
    fn move_to_front(set: &mut [u32], way: usize, word: u32);
    /// Puts `word` in front, moves all others back by one, and returns the one that drops out.
    fn push_front(set: &mut [u32], word: u32) -> u32;
}

/// `SETS` sets of `N` ways (a multiple of 4) in recency order; operations use the vectors `V`.
pub(super) struct FixedShape<const N: usize, const SETS: usize, V = Portable>(PhantomData<V>);
/// Any number of sets.
pub(super) type Plain<const N: usize, V = Portable> = FixedShape<N, ANY_SETS, V>;
/// Any power of two of sets.
pub(super) type Masked<const N: usize, V = Portable> = FixedShape<N, POWER_OF_TWO_SETS, V>;

/// Any number of ways.
pub(super) struct AnyWays;

#[inline(always)]
fn sized<const N: usize>(set: &mut [u32]) -> &mut [u32; N] {
    set.try_into().expect("the length is promised")
}

impl<const N: usize, const SETS: usize, V: Vectors> Ways for FixedShape<N, SETS, V> {
    const N: usize = N;
    const SETS: usize = SETS;

    #[inline(always)]
    fn find(set: &[u32], wanted: u32) -> Option<usize> {
        V::position::<N>(set.try_into().expect("the length is promised"), wanted, !STATE_MASK)
    }

    #[inline(always)]
    fn move_to_front(set: &mut [u32], way: usize, word: u32) {
        V::move_to_front::<N>(sized(set), way, word);
    }

    #[inline(always)]
    fn push_front(set: &mut [u32], word: u32) -> u32 {
        V::push_front::<N>(sized(set), word)
    }
}

/// Code for common lengths, chosen by a branch.
macro_rules! by_length {
    ($set:expr, $plain:ident => $known:expr, $other:expr) => {{
        macro_rules! of_length {
            ($n:literal) => {{
                type $plain = Plain<$n>;
                $known
            }};
        }
        match $set.len() {
            4 => of_length!(4),
            8 => of_length!(8),
            12 => of_length!(12),
            16 => of_length!(16),
            20 => of_length!(20),
            _ => $other,
        }
    }};
}

impl Ways for AnyWays {
    const N: usize = 0;
    const SETS: usize = ANY_SETS;

    #[inline(never)]
    fn find(set: &[u32], wanted: u32) -> Option<usize> {
        by_length!(set, FixedShape => FixedShape::find(set, wanted), find_any(set, wanted))
    }

    #[inline(never)]
    fn move_to_front(set: &mut [u32], way: usize, word: u32) {
        by_length!(set, FixedShape => FixedShape::move_to_front(set, way, word), move_to_front_any(set, way, word));
    }

    #[inline(never)]
    fn push_front(set: &mut [u32], word: u32) -> u32 {
        by_length!(set, FixedShape => FixedShape::push_front(set, word), push_front_any(set, word))
    }
}

/// The set's length must be a multiple of 4.
fn find_any(set: &[u32], wanted: u32) -> Option<usize> {
    let (quads, rest) = set.as_chunks::<4>();
    debug_assert!(rest.is_empty());
    quads.iter().enumerate().find_map(|(i, quad)| Plain::<4>::find(quad, wanted).map(|way| 4 * i + way))
}

#[inline(never)]
pub(super) fn move_to_front_any<T: Copy>(set: &mut [T], way: usize, mut word: T) {
    // A loop: there are few ways, and a call of `memmove` costs more.
    for other in &mut set[..=way] {
        std::mem::swap(other, &mut word);
    }
}

#[inline(never)]
pub(super) fn push_front_any<T: Copy>(set: &mut [T], word: T) -> T {
    let last = set.len() - 1;
    let out = set[last];
    move_to_front_any(set, last, word);
    out
}

/// Removes the word at `way`, moves those after it forward by one and puts `empty` at the end.
#[inline(never)]
pub(super) fn remove_way<T: Copy>(set: &mut [T], way: usize, empty: T) -> T {
    let mut word = empty;
    for other in set[way..].iter_mut().rev() {
        std::mem::swap(other, &mut word);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use pagelab_base::host::avx2;

    /// A set of `len` different tags 10, 11, … and changing states.
    fn set_of(len: usize) -> Vec<u32> {
        (0..len as u32).map(|way| (10 + way) << 2 | (1 + way % 3)).collect()
    }

    fn known<const N: usize, V: Vectors>() {
        let set = set_of(N);
        assert_eq!(AnyWays::find(&set, set[N - 1] & !STATE_MASK), Some(N - 1));
        for way in 0..N {
            assert_eq!(Plain::<N, V>::find(&set, (10 + way as u32) << 2), Some(way));
            let (mut moved, mut expected) = (set.clone(), set.clone());
            Plain::<N, V>::move_to_front(&mut moved, way, 78);
            move_to_front_any(&mut expected, way, 78);
            assert_eq!(moved, expected);
        }
        assert_eq!((Plain::<N, V>::find(&set, 9 << 2), Plain::<N, V>::find(&set, EMPTY)), (None, None));
        let (mut pushed, mut expected) = (set.clone(), set);
        assert_eq!(Plain::<N, V>::push_front(&mut pushed, 77), push_front_any(&mut expected, 77));
        assert_eq!(pushed, expected);
        pushed[N - 2] = EMPTY;
        pushed[N - 1] = EMPTY;
        assert_eq!(Plain::<N, V>::find(&pushed, EMPTY), Some(N - 2), "the first empty way");
    }

    fn known_lengths<V: Vectors>() {
        known::<4, V>();
        known::<8, V>();
        known::<12, V>();
        known::<16, V>();
        known::<20, V>();
    }

    #[test]
    fn known_lengths_do_what_any_length_does() {
        known_lengths::<Portable>();
        #[cfg(target_arch = "x86_64")]
        if avx2::is_available() {
            known_lengths::<avx2::Avx2>();
        }
    }

    #[test]
    fn sets_move_as_lists_do() {
        for len in (4..=64).step_by(4) {
            for way in 0..len {
                assert_eq!(find_any(&set_of(len), (10 + way as u32) << 2), Some(way), "{len}");
                let mut expected = set_of(len);
                let word = expected.remove(way);
                let mut set = set_of(len);
                assert_eq!(remove_way(&mut set, way, EMPTY), word);
                assert_eq!(set, [expected.clone(), vec![EMPTY]].concat());
                expected.insert(0, word);
                let mut set = set_of(len);
                move_to_front_any(&mut set, way, word);
                assert_eq!(set, expected);
            }
            let mut expected = set_of(len);
            let mut set = set_of(len);
            assert_eq!(push_front_any(&mut set, 77), expected.pop().unwrap());
            expected.insert(0, 77);
            assert_eq!(set, expected);
            set[len - 2] = EMPTY;
            set[len - 1] = EMPTY;
            assert_eq!(find_any(&set, EMPTY), Some(len - 2), "the first empty way");
            assert_eq!(find_any(&set, 9 << 2), None);
        }
    }
}
