//! The sets of an LRU associative array for code that knows the numbers of ways and sets at compile time.

use std::marker::PhantomData;

use super::assoc::{AssocArray, AssocPolicy, Evicted, INVALID_KEY};
use super::host::Vectors;

/// Result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LruLookup {
    /// The value; the look-up counts as a use.
    Fit(u64),
    /// The key's value does not fit. Nothing has changed.
    Unfit,
    /// No entry has the key.
    Nothing,
}

/// An array whose look-ups also check that the value fits. Otherwise it behaves as [`AssocArray`].
pub trait Sets {
    /// Looks for `key` in the set of `set_hash`.
    fn look_up(&mut self, set_hash: u64, key: u64, fits: impl Fn(u64) -> bool) -> LruLookup;

    /// See [`AssocArray::insert_absent`].
    fn insert_absent(&mut self, set_hash: u64, key: u64, value: u64) -> Option<Evicted>;
}

/// All sets of an LRU [`AssocArray`] with `N` ways and `SETS` sets, a power of two; operations use the vectors `V`.
pub struct LruSets<'a, V, const N: usize, const SETS: usize> {
    /// Keys and then values of each set.
    sets: &'a mut [[[u64; N]; 2]; SETS],
    vectors: PhantomData<V>,
}

impl<'a, V, const N: usize, const SETS: usize> LruSets<'a, V, N, SETS> {
    /// The sets of an array; `None` if its shape or policy is different.
    pub fn from_array(array: &'a mut AssocArray) -> Option<Self> {
        const { assert!(SETS.is_power_of_two()) };
        if array.policy() != AssocPolicy::Lru || array.ways() as usize != N || array.sets() as usize != SETS {
            return None;
        }
        let (rows, _) = array.slots().as_chunks_mut::<N>();
        let (sets, _) = rows.as_chunks_mut::<2>();
        Some(Self { sets: sets.try_into().ok()?, vectors: PhantomData })
    }
}

impl<V: Vectors, const N: usize, const SETS: usize> LruSets<'_, V, N, SETS> {
    /// Whether the set of `set_hash` has the key, which counts as a use; if not, the key is inserted. For arrays whose
    /// values nobody reads: keys move without them.
    #[inline(always)]
    pub fn find_or_insert(&mut self, set_hash: u64, key: u64) -> bool {
        let [keys, _] = &mut self.sets[set_hash as usize % SETS];
        let found = V::position_of_word(keys, key);
        if let Some(way) = found {
            V::move_word_to_front(keys, way);
        } else {
            V::push_word_to_front(keys, key);
        }
        found.is_some()
    }
}

impl<V: Vectors, const N: usize, const SETS: usize> Sets for LruSets<'_, V, N, SETS> {
    #[inline(always)]
    fn look_up(&mut self, set_hash: u64, key: u64, fits: impl Fn(u64) -> bool) -> LruLookup {
        let [keys, values] = &mut self.sets[set_hash as usize % SETS];
        let Some(way) = V::position_of_word(keys, key) else { return LruLookup::Nothing };
        let value = values[way];
        if !fits(value) {
            return LruLookup::Unfit;
        }
        V::move_word_to_front(keys, way);
        V::move_word_to_front(values, way);
        LruLookup::Fit(value)
    }

    #[inline(always)]
    fn insert_absent(&mut self, set_hash: u64, key: u64, value: u64) -> Option<Evicted> {
        let [keys, values] = &mut self.sets[set_hash as usize % SETS];
        debug_assert!(V::position_of_word(keys, key).is_none(), "key {key:#x} is there already");
        let key = V::push_word_to_front(keys, key);
        let value = V::push_word_to_front(values, value);
        (key != INVALID_KEY).then_some(Evicted { key, value })
    }
}

/// An array of any shape.
impl Sets for &mut AssocArray {
    #[inline(always)]
    fn look_up(&mut self, set_hash: u64, key: u64, fits: impl Fn(u64) -> bool) -> LruLookup {
        match self.value_of(set_hash, key) {
            None => LruLookup::Nothing,
            Some(value) if !fits(value) => LruLookup::Unfit,
            Some(value) => {
                self.lookup(set_hash, key);
                LruLookup::Fit(value)
            }
        }
    }

    #[inline(always)]
    fn insert_absent(&mut self, set_hash: u64, key: u64, value: u64) -> Option<Evicted> {
        AssocArray::insert_absent(self, set_hash, key, value)
    }
}

#[cfg(test)]
mod tests {
    use pagelab_trace::{case_seed, cases};

    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::host::avx2;
    use crate::host::{Portable, VectorWork};
    use crate::rng::Rng;

    /// Applies the same operations to an array and to the sets of a copy, and compares.
    struct Compared<const N: usize, const SETS: usize>;

    impl<const N: usize, const SETS: usize> VectorWork for Compared<N, SETS> {
        type Output = ();

        fn run<V: Vectors>(self) {
            let mut array = AssocArray::new(SETS as u32, N as u32, AssocPolicy::Lru, Rng::new(1, "")).unwrap();
            let mut copy = array.clone();
            let mut rng = Rng::new(case_seed((N * SETS) as u64), "operations");
            for step in 0..cases(20_000_u64) {
                let key = rng.below((N * SETS) as u64 * 3 / 2 + 2);
                let fits = |value: u64| !value.is_multiple_of(5);
                let mut sets = LruSets::<V, N, SETS>::from_array(&mut copy).unwrap();
                let (expected, found) = ((&mut array).look_up(key, key, fits), sets.look_up(key, key, fits));
                assert_eq!(found, expected, "step {step}");
                if found == LruLookup::Nothing {
                    let expected = Sets::insert_absent(&mut &mut array, key, key, step);
                    assert_eq!(sets.insert_absent(key, key, step), expected);
                }
                if rng.below(500) == 0 {
                    assert_eq!(array.invalidate(|key, _| key % 3 == 1), copy.invalidate(|key, _| key % 3 == 1));
                }
                assert_eq!(copy.slots(), array.slots(), "step {step}");
            }
            for step in 0..cases(2_000_u64) {
                let key = rng.below((N * SETS) as u64 * 3 / 2 + 2);
                let expected = array.look_up_or_insert(key, key, 0).is_some();
                let found = LruSets::<V, N, SETS>::from_array(&mut copy).unwrap().find_or_insert(key, key);
                let keys = |array: &mut AssocArray| -> Vec<_> {
                    array.slots().chunks(2 * N).flat_map(|set| set[..N].to_vec()).collect()
                };
                assert_eq!((found, keys(&mut copy)), (expected, keys(&mut array)), "step {step}");
            }
        }
    }

    fn compare<V: Vectors>() {
        V::run(Compared::<2, 1>);
        V::run(Compared::<4, 1>);
        V::run(Compared::<4, 16>);
        V::run(Compared::<8, 4>);
        V::run(Compared::<12, 2>);
    }

    #[test]
    fn sets_do_what_their_array_does() {
        compare::<Portable>();
        #[cfg(target_arch = "x86_64")]
        if avx2::is_available() {
            compare::<avx2::Avx2>();
        }
    }

    #[test]
    fn other_shapes_are_refused() {
        let array = |sets, ways, policy| AssocArray::new(sets, ways, policy, Rng::new(1, "")).unwrap();
        let fits = |mut array: AssocArray| LruSets::<Portable, 4, 16>::from_array(&mut array).is_some();
        assert!(fits(array(16, 4, AssocPolicy::Lru)));
        assert!(!fits(array(16, 4, AssocPolicy::TreePlru)) && !fits(array(16, 4, AssocPolicy::Random)));
        assert!(!fits(array(8, 4, AssocPolicy::Lru)) && !fits(array(16, 8, AssocPolicy::Lru)));
        assert!(!fits(array(8, 8, AssocPolicy::Lru)));
    }
}
