//! One set of an array as a slice of words: finding a tag in it and keeping it in recency order.
//!
//! A word is a tag above two state bits. [`Plain`] is for sets whose length the compiler knows: its loops become a few
//! vector instructions. The functions that end in `_any` take sets of any length.

use super::host::position;

/// Bits of a word below its tag.
pub(super) const STATE_MASK: u32 = 3;
/// An empty way: a tag that no line has, state 0.
pub(super) const EMPTY: u32 = !STATE_MASK;

/// What the compiler is told of an array's sets.
pub(super) trait Ways {
    /// Words a set; 0 if unknown.
    const N: usize;
    /// The number of sets is a power of two.
    const MASKED: bool;

    /// The way whose word has the tag of `wanted` (state bits 0).
    fn find(set: &[u32], wanted: u32) -> Option<usize>;
    /// Moves the word at `way` to the front and those before it back by one.
    fn move_to_front(set: &mut [u32], way: usize);
    /// Puts `word` in front, moves all others back by one, and returns the one that falls off the end.
    fn push_front(set: &mut [u32], word: u32) -> u32;
}

/// `N` ways, a multiple of 4, in recency order.
pub(super) struct Plain<const N: usize>;

/// The same, and the number of sets is a power of two.
pub(super) struct Masked<const N: usize>;

/// Any number of ways.
pub(super) struct AnyWays;

impl<const N: usize> Ways for Plain<N> {
    const N: usize = N;
    const MASKED: bool = false;

    #[inline(always)]
    fn find(set: &[u32], wanted: u32) -> Option<usize> {
        let set: &[u32; N] = set.try_into().expect("the length is promised");
        position(set, wanted, !STATE_MASK)
    }

    /// Without a branch on `way`, which is unpredictable.
    #[inline(always)]
    fn move_to_front(set: &mut [u32], way: usize) {
        let set: &mut [u32; N] = set.try_into().expect("the length is promised");
        let word = set[way];
        let old = *set;
        // Lanes are compared as they are stored, 32 bits and signed, which is the comparison that SSE2 has.
        let last_moved = way as i32;
        for i in 1..N {
            set[i] = if i as i32 <= last_moved { old[i - 1] } else { old[i] };
        }
        set[0] = word;
    }

    #[inline(always)]
    fn push_front(set: &mut [u32], word: u32) -> u32 {
        let set: &mut [u32; N] = set.try_into().expect("the length is promised");
        let old = *set;
        set[1..].copy_from_slice(&old[..N - 1]);
        set[0] = word;
        old[N - 1]
    }
}

impl<const N: usize> Ways for Masked<N> {
    const N: usize = N;
    const MASKED: bool = true;

    #[inline(always)]
    fn find(set: &[u32], wanted: u32) -> Option<usize> {
        Plain::<N>::find(set, wanted)
    }

    #[inline(always)]
    fn move_to_front(set: &mut [u32], way: usize) {
        Plain::<N>::move_to_front(set, way);
    }

    #[inline(always)]
    fn push_front(set: &mut [u32], word: u32) -> u32 {
        Plain::<N>::push_front(set, word)
    }
}

/// Common lengths take their own code here too, behind a branch.
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
    const MASKED: bool = false;

    #[inline(never)]
    fn find(set: &[u32], wanted: u32) -> Option<usize> {
        by_length!(set, Known => Known::find(set, wanted), find_any(set, wanted))
    }

    #[inline(never)]
    fn move_to_front(set: &mut [u32], way: usize) {
        by_length!(set, Known => Known::move_to_front(set, way), move_to_front_any(set, way));
    }

    #[inline(never)]
    fn push_front(set: &mut [u32], word: u32) -> u32 {
        by_length!(set, Known => Known::push_front(set, word), push_front_any(set, word))
    }
}

/// The set's length is a multiple of 4.
fn find_any(set: &[u32], wanted: u32) -> Option<usize> {
    let (quads, rest) = set.as_chunks::<4>();
    debug_assert!(rest.is_empty());
    quads.iter().enumerate().find_map(|(i, quad)| Plain::<4>::find(quad, wanted).map(|way| 4 * i + way))
}

#[inline(never)]
pub(super) fn move_to_front_any<T: Copy>(set: &mut [T], way: usize) {
    // A loop: ways are few, and a call to move memory costs more.
    let mut word = set[way];
    for other in &mut set[..=way] {
        std::mem::swap(other, &mut word);
    }
}

#[inline(never)]
pub(super) fn push_front_any<T: Copy>(set: &mut [T], word: T) -> T {
    let last = set.len() - 1;
    let out = std::mem::replace(&mut set[last], word);
    move_to_front_any(set, last);
    out
}

/// Takes out the word at `way`, moves those after it forward by one and puts `empty` at the end.
#[inline(never)]
pub(super) fn take_out<T: Copy>(set: &mut [T], way: usize, empty: T) -> T {
    let mut word = empty;
    for other in set[way..].iter_mut().rev() {
        std::mem::swap(other, &mut word);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of `len` different tags 10, 11, … and changing states.
    fn set_of(len: usize) -> Vec<u32> {
        (0..len as u32).map(|way| (10 + way) << 2 | (1 + way % 3)).collect()
    }

    fn plain<const N: usize>() {
        let set = set_of(N);
        assert_eq!(AnyWays::find(&set, set[N - 1] & !STATE_MASK), Some(N - 1));
        for way in 0..N {
            assert_eq!(Plain::<N>::find(&set, (10 + way as u32) << 2), Some(way));
            let (mut moved, mut expected) = (set.clone(), set.clone());
            Plain::<N>::move_to_front(&mut moved, way);
            move_to_front_any(&mut expected, way);
            assert_eq!(moved, expected);
        }
        assert_eq!((Plain::<N>::find(&set, 9 << 2), Plain::<N>::find(&set, EMPTY)), (None, None));
        let (mut pushed, mut expected) = (set.clone(), set);
        assert_eq!(Plain::<N>::push_front(&mut pushed, 77), push_front_any(&mut expected, 77));
        assert_eq!(pushed, expected);
    }

    #[test]
    fn known_lengths_do_what_any_length_does() {
        plain::<4>();
        plain::<8>();
        plain::<12>();
        plain::<16>();
        plain::<20>();
    }

    #[test]
    fn sets_move_as_lists_do() {
        for len in (4..=64).step_by(4) {
            for way in 0..len {
                assert_eq!(find_any(&set_of(len), (10 + way as u32) << 2), Some(way), "{len}");
                let mut expected = set_of(len);
                let word = expected.remove(way);
                let mut set = set_of(len);
                assert_eq!(take_out(&mut set, way, EMPTY), word);
                assert_eq!(set, [expected.clone(), vec![EMPTY]].concat());
                expected.insert(0, word);
                let mut set = set_of(len);
                move_to_front_any(&mut set, way);
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
