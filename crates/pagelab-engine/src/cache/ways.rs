//! One set of an array as a slice of words: finding a tag in it and keeping it in recency order.
//!
//! A word is a tag above two state bits. The common numbers of ways have code of their own, so that the loops over
//! them disappear; the length of the slice chooses it, which a branch predictor learns at once.

/// Bits of a word below its tag.
pub(super) const STATE_MASK: u32 = 3;
/// An empty way: a tag that no line has, state 0.
pub(super) const EMPTY: u32 = !STATE_MASK;

/// The way whose word has the tag of `wanted` (state bits 0). The set's length is a multiple of 4.
#[inline(always)]
pub(super) fn find(set: &[u32], wanted: u32) -> Option<usize> {
    match set.len() {
        4 => first_bit(match_fixed::<4>(set, wanted)),
        8 => first_bit(match_fixed::<8>(set, wanted)),
        12 => first_bit(match_fixed::<12>(set, wanted)),
        16 => first_bit(match_fixed::<16>(set, wanted)),
        20 => first_bit(match_fixed::<16>(&set[..16], wanted) | match_fixed::<4>(&set[16..], wanted) << 16),
        _ => find_any(set, wanted),
    }
}

#[inline(never)]
fn find_any(set: &[u32], wanted: u32) -> Option<usize> {
    let (groups, rest) = set.as_chunks::<4>();
    debug_assert!(rest.is_empty());
    let quad_with = groups.iter().position(|quad| match_fixed::<4>(quad, wanted) != 0)?;
    Some(quad_with * 4 + match_fixed::<4>(&groups[quad_with], wanted).trailing_zeros() as usize)
}

#[inline(always)]
fn first_bit(mask: u32) -> Option<usize> {
    (mask != 0).then(|| mask.trailing_zeros() as usize)
}

/// Bit i is set if word i has the wanted tag; `N` is 4, 8, 12 or 16.
#[inline(always)]
fn match_fixed<const N: usize>(set: &[u32], wanted: u32) -> u32 {
    let set: &[u32; N] = set.try_into().expect("the caller looked at the length");
    set.iter().enumerate().fold(0, |mask, (way, word)| mask | u32::from(word & !STATE_MASK == wanted) << way)
}

/// Moves the word at `way` to the front and those before it back by one.
#[inline(always)]
pub(super) fn move_to_front(set: &mut [u32], way: usize) {
    match set.len() {
        4 => move_to_front_fixed::<4>(set, way),
        8 => move_to_front_fixed::<8>(set, way),
        12 => move_to_front_fixed::<12>(set, way),
        16 => move_to_front_fixed::<16>(set, way),
        20 => move_to_front_fixed::<20>(set, way),
        _ => move_to_front_any(set, way),
    }
}

/// Without a branch on `way`, which is unpredictable.
#[inline(always)]
fn move_to_front_fixed<const N: usize>(set: &mut [u32], way: usize) {
    let set: &mut [u32; N] = set.try_into().expect("the caller looked at the length");
    let old = *set;
    for i in 1..N {
        set[i] = if i <= way { old[i - 1] } else { old[i] };
    }
    set[0] = old[way];
}

#[inline(never)]
fn move_to_front_any<T: Copy>(set: &mut [T], way: usize) {
    set[..=way].rotate_right(1);
}

/// Puts `word` in front, moves all others back by one, and returns the one that falls off the end.
#[inline(always)]
pub(super) fn push_front(set: &mut [u32], word: u32) -> u32 {
    match set.len() {
        4 => push_front_fixed::<4>(set, word),
        8 => push_front_fixed::<8>(set, word),
        12 => push_front_fixed::<12>(set, word),
        16 => push_front_fixed::<16>(set, word),
        20 => push_front_fixed::<20>(set, word),
        _ => push_front_any(set, word),
    }
}

#[inline(always)]
fn push_front_fixed<const N: usize>(set: &mut [u32], word: u32) -> u32 {
    let set: &mut [u32; N] = set.try_into().expect("the caller looked at the length");
    let old = *set;
    set[1..].copy_from_slice(&old[..N - 1]);
    set[0] = word;
    old[N - 1]
}

#[inline(never)]
pub(super) fn push_front_any<T: Copy>(set: &mut [T], word: T) -> T {
    set.rotate_right(1);
    std::mem::replace(&mut set[0], word)
}

/// Takes out the word at `way`, moves those after it forward by one and puts `empty` at the end.
pub(super) fn take_out<T: Copy>(set: &mut [T], way: usize, empty: T) -> T {
    let taken = set[way];
    set[way..].rotate_left(1);
    *set.last_mut().expect("a set has a way") = empty;
    taken
}

/// As [`move_to_front`], for what runs beside the words.
pub(super) fn rotate_to_front<T: Copy>(set: &mut [T], way: usize) {
    move_to_front_any(set, way);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of the given length with different tags 10, 11, … and changing states.
    fn set_of(len: usize) -> Vec<u32> {
        (0..len as u32).map(|way| (10 + way) << 2 | (1 + way % 3)).collect()
    }

    #[test]
    fn every_length_finds_every_way() {
        for len in (4..=64).step_by(4) {
            let mut set = set_of(len);
            for way in 0..len {
                assert_eq!(find(&set, (10 + way as u32) << 2), Some(way), "{len}");
            }
            assert_eq!(find(&set, 9 << 2), None);
            assert_eq!(find(&set, EMPTY), None);
            set[len - 2] = EMPTY;
            set[len - 1] = EMPTY;
            assert_eq!(find(&set, EMPTY), Some(len - 2), "the first empty way");
        }
    }

    #[test]
    fn every_length_moves_as_a_list_does() {
        for len in (4..=64).step_by(4) {
            for way in 0..len {
                let mut expected = set_of(len);
                let word = expected.remove(way);
                let mut set = set_of(len);
                assert_eq!(take_out(&mut set, way, EMPTY), word);
                assert_eq!(set, [expected.clone(), vec![EMPTY]].concat());
                expected.insert(0, word);
                let mut set = set_of(len);
                move_to_front(&mut set, way);
                assert_eq!(set, expected);
            }
            let mut expected = set_of(len);
            let mut set = set_of(len);
            assert_eq!(push_front(&mut set, 77), expected.pop().unwrap());
            expected.insert(0, 77);
            assert_eq!(set, expected);
        }
    }
}
