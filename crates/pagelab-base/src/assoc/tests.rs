//! Compares the array with a naive one.

use pagelab_trace::{case_seed, cases};

use super::*;

/// A set as a list of (key, value, way), most recently used first, with the policies written out.
struct NaiveSet {
    entries: Vec<(u64, u64, usize)>,
    ways: usize,
    /// Tree-PLRU by its definition: the direction of each node, by the range of its ways.
    directions: std::collections::BTreeMap<(usize, usize), bool>,
}

impl NaiveSet {
    fn new(ways: usize) -> Self {
        Self { entries: Vec::new(), ways, directions: Default::default() }
    }

    fn touch(&mut self, at: usize) {
        let entry = self.entries.remove(at);
        self.entries.insert(0, entry);
        let (mut low, mut high) = (0, self.ways.next_power_of_two());
        while high - low > 1 {
            let middle = (low + high) / 2;
            let went_right = entry.2 >= middle;
            self.directions.insert((low, high), !went_right);
            if went_right { low = middle } else { high = middle }
        }
    }

    fn plru_victim(&self) -> usize {
        let (mut low, mut high) = (0, self.ways.next_power_of_two());
        while high - low > 1 {
            let middle = (low + high) / 2;
            let right = self.directions.get(&(low, high)).copied().unwrap_or(false) && middle < self.ways;
            if right { low = middle } else { high = middle }
        }
        low
    }

    fn find(&self, key: u64) -> Option<usize> {
        self.entries.iter().position(|e| e.0 == key)
    }

    fn insert(&mut self, key: u64, value: u64, policy: AssocPolicy, rng: &mut Rng) -> Option<Evicted> {
        if let Some(at) = self.find(key) {
            self.entries[at].1 = value;
            self.touch(at);
            return None;
        }
        let mut evicted = None;
        let free = (0..self.ways).find(|w| self.entries.iter().all(|e| e.2 != *w));
        let way = free.unwrap_or_else(|| {
            let way = match policy {
                AssocPolicy::Lru => self.entries.last().unwrap().2,
                AssocPolicy::TreePlru => self.plru_victim(),
                AssocPolicy::Random => rng.below(self.ways as u64) as usize,
            };
            let at = self.entries.iter().position(|e| e.2 == way).unwrap();
            let (key, value, _) = self.entries.remove(at);
            evicted = Some(Evicted { key, value });
            way
        });
        self.entries.push((key, value, way));
        self.touch(self.entries.len() - 1);
        evicted
    }
}

fn compare_with_naive(sets: u32, ways: u32, policy: AssocPolicy) {
    let seed = u64::from(sets) << 32 | u64::from(ways);
    let mut array = AssocArray::new(sets, ways, policy, Rng::new(seed, "victims")).unwrap();
    let mut naive: Vec<_> = (0..sets).map(|_| NaiveSet::new(ways as usize)).collect();
    let mut victims = Rng::new(seed, "victims");
    let mut rng = Rng::new(case_seed(seed), "operations");
    let keys = u64::from(sets * ways) * 3 / 2 + 2;
    for step in 0..cases(60_000_u64) {
        let key = rng.below(keys);
        // Widely spread hashes, to test the reduction to a set.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = &mut naive[(hash % u64::from(sets)) as usize];
        match rng.below(1000) {
            0..500 => {
                let expected = set.find(key).map(|at| {
                    let value = set.entries[at].1;
                    set.touch(at);
                    value
                });
                assert_eq!(array.lookup(hash, key), expected, "step {step}");
            }
            500..990 => {
                let expected = set.insert(key, step, policy, &mut victims);
                assert_eq!(array.insert(hash, key, step), expected, "step {step}");
            }
            990..999 => {
                let (divisor, rest) = (3 + rng.below(5), rng.below(3));
                let condemned = |k: u64, v: u64| (k ^ v) % divisor == rest;
                let before: usize = naive.iter().map(|s| s.entries.len()).sum();
                naive.iter_mut().for_each(|s| s.entries.retain(|e| !condemned(e.0, e.1)));
                let after: usize = naive.iter().map(|s| s.entries.len()).sum();
                assert_eq!(array.invalidate(condemned), (before - after) as u64);
            }
            _ => {
                array.clear();
                naive.iter_mut().for_each(|s| s.entries.clear());
            }
        }
        if step % 1000 == 0 {
            let sets = array.slots.chunks_exact(2 * ways as usize).map(|slots| slots.split_at(ways as usize));
            let pairs = sets.flat_map(|(keys, values)| keys.iter().copied().zip(values.iter().copied()));
            let mut held: Vec<_> = pairs.filter(|pair| pair.0 != INVALID_KEY).collect();
            let mut expected: Vec<_> = naive.iter().flat_map(|s| s.entries.iter().map(|e| (e.0, e.1))).collect();
            held.sort_unstable();
            expected.sort_unstable();
            assert_eq!(held, expected, "step {step}");
            if policy != AssocPolicy::Lru {
                assert_eq!(array.empty_ways, naive.len() * ways as usize - held.len());
            }
        }
    }
}

#[test]
fn every_policy_and_geometry_equals_the_naive_model() {
    for policy in [AssocPolicy::Lru, AssocPolicy::TreePlru, AssocPolicy::Random] {
        for (sets, ways) in [(1, 1), (1, 4), (16, 4), (1, 64), (3, 6), (128, 12), (7, 5), (12, 1), (1, 63)] {
            compare_with_naive(sets, ways, policy);
        }
    }
    compare_with_naive(5, 100, AssocPolicy::Lru);
    compare_with_naive(1, 200, AssocPolicy::Random);
}

#[test]
fn set_index_is_the_remainder() {
    let mut rng = Rng::new(3, "hashes");
    for sets in [1, 2, 3, 5, 7, 12, 96, 1536, 12_288, (1 << 20) - 1, u32::MAX] {
        let index = SetIndex::new(sets);
        let sets = u64::from(sets);
        let edges = [0, 1, sets - 1, sets, sets + 1, u64::MAX, u64::MAX - 1, u64::MAX / sets * sets];
        for hash in edges.into_iter().chain((0..2000).map(|_| rng.next_u64())) {
            assert_eq!(index.index(hash) as u64, hash % sets, "{hash} % {sets}");
        }
        let multiples = (0..2000).map(|_| rng.next_u64() / sets * sets);
        assert!(multiples.into_iter().all(|hash| index.index(hash) == 0));
    }
}

#[test]
fn an_update_changes_and_drops_entries_where_they_are() {
    for policy in [AssocPolicy::Lru, AssocPolicy::TreePlru, AssocPolicy::Random] {
        let mut array = AssocArray::new(2, 4, policy, Rng::new(1, "update")).unwrap();
        (0..8).for_each(|key| assert_eq!(array.insert(key, key, 10 * key), None));
        let mut seen = Vec::new();
        array.update(Some(1), |key, value| {
            seen.push((key, value));
            match key {
                3 => Change::Drop,
                5 => Change::Become(9, 90),
                _ => Change::Keep,
            }
        });
        seen.sort_unstable();
        assert_eq!(seen, [(1, 10), (3, 30), (5, 50), (7, 70)], "{policy:?}: the entries of one set");
        let held = |array: &AssocArray, set| {
            let mut held: Vec<_> = array.entries(set).collect();
            held.sort_unstable();
            held
        };
        assert_eq!(held(&array, 1), [(1, 10), (7, 70), (9, 90)], "{policy:?}");
        assert_eq!(array.insert(1, 11, 110), None, "{policy:?}: a dropped entry leaves an empty way");
        if policy == AssocPolicy::Lru {
            let victims: Vec<_> = (0..3).map(|n| array.insert(1, 13 + 2 * n, 0).unwrap().key).collect();
            assert_eq!(victims, [1, 9, 7], "an update is no use");
        }
        array.update(None, |key, _| if key < 8 { Change::Drop } else { Change::Keep });
        assert_eq!(held(&array, 0), []);
    }
}

#[test]
fn random_replacement_spreads_over_the_ways() {
    let mut array = AssocArray::new(1, 8, AssocPolicy::Random, Rng::new(1, "spread")).unwrap();
    (0..8).for_each(|key| assert_eq!(array.insert(0, key, key), None));
    let mut evictions = [0_u32; 8];
    for step in 0..8000 {
        let key = 8 + step;
        assert!(array.insert(0, key, step).is_some());
        // Under random replacement an entry stays in its way.
        let way = array.slots[..8].iter().position(|&k| k == key).unwrap();
        evictions[way] += 1;
    }
    assert!(evictions.iter().all(|&n| (850..1150).contains(&n)), "{evictions:?}");
}

#[test]
fn impossible_geometries_are_refused() {
    let build = |sets, ways, policy| AssocArray::new(sets, ways, policy, Rng::new(0, "")).map(|_| ());
    assert_eq!(build(0, 4, AssocPolicy::Lru), Err(AssocError::Empty { sets: 0, ways: 4 }));
    assert_eq!(build(4, 0, AssocPolicy::Lru), Err(AssocError::Empty { sets: 4, ways: 0 }));
    assert_eq!(build(1, 65, AssocPolicy::TreePlru), Err(AssocError::PlruTooWide { ways: 65 }));
    let huge = build(u32::MAX, u32::MAX, AssocPolicy::Random);
    assert!(huge.unwrap_err().to_string().contains("at most 268435456 entries"));
    assert_eq!(build(1, 64, AssocPolicy::TreePlru), Ok(()));
}

#[test]
#[should_panic(expected = "marks an empty way")]
fn the_invalid_key_cannot_be_stored() {
    let mut array = AssocArray::new(1, 2, AssocPolicy::Lru, Rng::new(0, "")).unwrap();
    array.insert(0, INVALID_KEY, 1);
}
