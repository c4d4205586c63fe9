//! A small set-associative array from a 64-bit key to a 64-bit value: the storage of TLBs, nested TLBs and
//! paging-structure caches.
//!
//! The owner packs what identifies an entry (virtual page, address space, page size) into the key. It chooses the set
//! by a hash, which is taken modulo the number of sets. Nothing here allocates after construction. The policy is a
//! well-predicted branch, not a call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::rng::Rng;

/// Key that marks an empty way; no entry may have it.
pub const INVALID_KEY: u64 = u64::MAX;

/// Largest number of ways under tree-PLRU: the bits of a set are kept in one word.
const MAX_PLRU_WAYS: u32 = 64;
/// Largest number of entries of an array; a larger one is a mistake in the configuration.
const MAX_ENTRIES: u64 = 1 << 28;

/// Which way of a full set is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AssocPolicy {
    /// The least recently used entry.
    #[default]
    Lru,
    /// The entry that a binary tree of direction bits points at. Every use turns the bits on its path away from it. A
    /// number of ways that is not a power of two prunes the right edge of the tree.
    TreePlru,
    /// Any entry, with equal probability.
    Random,
}

/// Why a geometry cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssocError {
    /// No set, or no way.
    #[error("{sets} sets of {ways} ways: both must be at least 1")]
    Empty {
        /// Sets that were asked for.
        sets: u32,
        /// Ways per set that were asked for.
        ways: u32,
    },
    /// More entries than an array can have.
    #[error("{sets} sets of {ways} ways: at most {MAX_ENTRIES} entries are possible")]
    TooLarge {
        /// Sets that were asked for.
        sets: u32,
        /// Ways per set that were asked for.
        ways: u32,
    },
    /// More ways than a tree of direction bits supports.
    #[error("tree-PLRU over {ways} ways: at most {MAX_PLRU_WAYS} are possible; use LRU or random replacement")]
    PlruTooWide {
        /// Ways per set that were asked for.
        ways: u32,
    },
}

/// Builds the array that a configuration describes; `key` names its part of the configuration in errors.
pub fn array(key: &str, entries: u32, ways: u32, policy: AssocPolicy, rng: &Rng) -> Result<AssocArray, EngineError> {
    if entries == 0 || ways == 0 || !entries.is_multiple_of(ways) {
        let what = format!(
            "{entries} entries cannot be split into sets of {ways} ways; entries must be a multiple of ways, both at least 1"
        );
        return Err(EngineError::config(key, what));
    }
    AssocArray::new(entries / ways, ways, policy, rng.clone()).map_err(|e| EngineError::config(key, e.to_string()))
}

/// An entry that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its key.
    pub key: u64,
    /// Its value.
    pub value: u64,
}

/// What becomes of an entry in [`AssocArray::update`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// It gets this key and value, in the same way and set.
    Become(u64, u64),
    /// It is dropped.
    Drop,
}

/// A set-associative array.
///
/// Order of the ways: under LRU the valid entries of a set come first, the most recently used one in way 0. So a hit on
/// that one is one comparison and moves nothing. Under the other policies an entry stays in its way.
#[derive(Clone, Debug)]
pub struct AssocArray {
    /// Set by set: the keys of its ways ([`INVALID_KEY`] in empty ones), then their values.
    slots: Vec<u64>,
    ways: usize,
    /// Number of empty ways; maintained only under the policies that keep an entry in its way.
    empty_ways: usize,
    index: SetIndex,
    policy: AssocPolicy,
    plru: PlruTree,
    rng: Rng,
}

impl AssocArray {
    /// An empty array of `sets` × `ways` entries (fully associative: 1 set). `rng` is the owner's own stream; only
    /// [`AssocPolicy::Random`] draws from it.
    pub fn new(sets: u32, ways: u32, policy: AssocPolicy, rng: Rng) -> Result<Self, AssocError> {
        if sets == 0 || ways == 0 {
            return Err(AssocError::Empty { sets, ways });
        }
        let entries = u64::from(sets) * u64::from(ways);
        if entries > MAX_ENTRIES {
            return Err(AssocError::TooLarge { sets, ways });
        }
        let plru = match policy {
            AssocPolicy::TreePlru if ways > MAX_PLRU_WAYS => return Err(AssocError::PlruTooWide { ways }),
            AssocPolicy::TreePlru => PlruTree::new(sets, ways),
            AssocPolicy::Lru | AssocPolicy::Random => PlruTree::default(),
        };
        Ok(Self {
            slots: vec![INVALID_KEY; 2 * entries as usize],
            ways: ways as usize,
            empty_ways: entries as usize,
            index: SetIndex::new(sets),
            policy,
            plru,
            rng,
        })
    }

    /// Sets of the array; 1 if it is fully associative.
    pub fn sets(&self) -> u32 {
        self.index.sets as u32
    }

    /// Ways per set.
    pub fn ways(&self) -> u32 {
        self.ways as u32
    }

    pub(super) fn policy(&self) -> AssocPolicy {
        self.policy
    }

    pub(super) fn slots(&mut self) -> &mut [u64] {
        &mut self.slots
    }

    /// The value of `key` in the set of `set_hash`; does not count as a use.
    #[inline(always)]
    pub(super) fn value_of(&mut self, set_hash: u64, key: u64) -> Option<u64> {
        let (keys, values) = self.set(self.index.index(set_hash));
        find(keys, key).map(|way| values[way])
    }

    /// The value of `key` in the set of `set_hash`; does not count as a use, and changes nothing.
    pub fn peek(&self, set_hash: u64, key: u64) -> Option<u64> {
        let first = self.index.index(set_hash) * 2 * self.ways;
        let (keys, values) = self.slots[first..][..2 * self.ways].split_at(self.ways);
        keys.iter().position(|held| *held == key).map(|way| values[way])
    }

    /// Keys and values of the entries in the set of `set_hash`; does not count as a use.
    pub fn entries(&self, set_hash: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.index.index(set_hash) * 2 * self.ways;
        let (keys, values) = self.slots[first..][..2 * self.ways].split_at(self.ways);
        keys.iter().copied().zip(values.iter().copied()).filter(|&(key, _)| key != INVALID_KEY)
    }

    /// Whether `key` is in the set of `set_hash`; does not count as a use.
    pub fn holds(&self, set_hash: u64, key: u64) -> bool {
        let first = self.index.index(set_hash) * 2 * self.ways;
        self.slots[first..][..self.ways].contains(&key)
    }

    /// Keys and values of a set.
    #[inline(always)]
    fn set(&mut self, set: usize) -> (&mut [u64], &mut [u64]) {
        let length = 2 * self.ways;
        self.slots[set * length..][..length].split_at_mut(self.ways)
    }

    /// The value of `key` in the set of `set_hash`; a hit counts as a use.
    #[inline(always)]
    pub fn lookup(&mut self, set_hash: u64, key: u64) -> Option<u64> {
        debug_assert_ne!(key, INVALID_KEY);
        let set = self.index.index(set_hash);
        let lru = self.policy == AssocPolicy::Lru;
        let (keys, values) = self.set(set);
        if !lru {
            return self.lookup_in_place(set, key);
        }
        if keys[0] == key {
            return Some(values[0]);
        }
        match keys.len() {
            4 => promote::<4>(keys, values, key),
            8 => promote::<8>(keys, values, key),
            12 => promote::<12>(keys, values, key),
            _ => promote_any(keys, values, key),
        }
    }

    /// [`Self::lookup`] for the policies under which an entry stays in its way.
    #[inline(never)]
    fn lookup_in_place(&mut self, set: usize, key: u64) -> Option<u64> {
        let (keys, values) = self.set(set);
        let way = find(keys, key)?;
        let value = values[way];
        if self.policy == AssocPolicy::TreePlru {
            self.plru.touch(set, way);
        }
        Some(value)
    }

    /// Stores `key` as the set's most recently used entry. It replaces the key's old value if the key is present;
    /// otherwise it takes an empty way, or the way of the policy's victim, which is returned.
    ///
    /// # Panics
    /// If `key` is [`INVALID_KEY`].
    pub fn insert(&mut self, set_hash: u64, key: u64, value: u64) -> Option<Evicted> {
        if key == INVALID_KEY || self.lookup(set_hash, key).is_none() {
            return self.insert_absent(set_hash, key, value);
        }
        let (keys, values) = self.set(self.index.index(set_hash));
        values[find(keys, key).expect("a look-up has just found it")] = value;
        None
    }

    /// [`Self::insert`] for a key that is known to be absent because a lookup has just missed; this saves a search.
    ///
    /// # Panics
    /// If `key` is [`INVALID_KEY`].
    #[inline(always)]
    pub fn insert_absent(&mut self, set_hash: u64, key: u64, value: u64) -> Option<Evicted> {
        assert_ne!(key, INVALID_KEY, "the key that marks an empty way cannot be stored");
        let set = self.index.index(set_hash);
        let lru = self.policy == AssocPolicy::Lru;
        let (keys, values) = self.set(set);
        debug_assert!(find(keys, key).is_none(), "key {key:#x} is there already");
        let old = if lru {
            match keys.len() {
                4 => push_front::<4>(keys, values, key, value),
                8 => push_front::<8>(keys, values, key, value),
                12 => push_front::<12>(keys, values, key, value),
                ways => {
                    let old = Evicted { key: keys[ways - 1], value: values[ways - 1] };
                    shift_down(keys, ways - 1, key);
                    shift_down(values, ways - 1, value);
                    old
                }
            }
        } else {
            self.insert_in_place(set, key, value)
        };
        (old.key != INVALID_KEY).then_some(old)
    }

    /// [`Self::lookup`], followed by [`Self::insert_absent`] after a miss.
    ///
    /// # Panics
    /// If `key` is [`INVALID_KEY`].
    #[inline(always)]
    pub fn look_up_or_insert(&mut self, set_hash: u64, key: u64, value: u64) -> Option<u64> {
        let found = self.lookup(set_hash, key);
        if found.is_none() {
            self.insert_absent(set_hash, key, value);
        }
        found
    }

    /// [`Self::insert_absent`] under LRU at recency position `rank`: behind the set's `rank` most recently used
    /// entries.
    ///
    /// # Panics
    /// If `key` is [`INVALID_KEY`] or the policy is not LRU.
    pub fn insert_absent_behind(&mut self, set_hash: u64, key: u64, value: u64, rank: usize) {
        assert_ne!(key, INVALID_KEY, "the key that marks an empty way cannot be stored");
        assert_eq!(self.policy, AssocPolicy::Lru, "only LRU keeps its ways in order of use");
        let (keys, values) = self.set(self.index.index(set_hash));
        let valid = find(keys, INVALID_KEY).unwrap_or(keys.len());
        let at = rank.min(valid).min(keys.len() - 1);
        keys[at..].rotate_right(1);
        values[at..].rotate_right(1);
        values[at] = value;
        keys[at] = key;
    }

    /// [`Self::insert_absent`] for the policies under which an entry stays in its way; returns the way's previous
    /// content.
    #[inline(never)]
    fn insert_in_place(&mut self, set: usize, key: u64, value: u64) -> Evicted {
        // While the array is full, no set needs the search for an empty way.
        let empty = if self.empty_ways == 0 { None } else { find(self.set(set).0, INVALID_KEY) };
        let plru = self.policy == AssocPolicy::TreePlru;
        let way = empty
            .unwrap_or_else(|| if plru { self.plru.victim(set) } else { self.rng.below(self.ways as u64) as usize });
        if plru {
            self.plru.touch(set, way);
        }
        let (keys, values) = self.set(set);
        let old =
            Evicted { key: std::mem::replace(&mut keys[way], key), value: std::mem::replace(&mut values[way], value) };
        self.empty_ways -= usize::from(old.key == INVALID_KEY);
        old
    }

    /// Drops the entry of a key; false if there is none.
    pub fn remove(&mut self, set_hash: u64, key: u64) -> bool {
        let lru = self.policy == AssocPolicy::Lru;
        let (keys, values) = self.set(self.index.index(set_hash));
        let Some(way) = find(keys, key) else { return false };
        if lru {
            keys[way..].rotate_left(1);
            values[way..].rotate_left(1);
            keys[keys.len() - 1] = INVALID_KEY;
        } else {
            keys[way] = INVALID_KEY;
            self.empty_ways += 1;
        }
        true
    }

    /// Drops every entry for which `condemned(key, value)` is true; returns how many.
    pub fn invalidate(&mut self, mut condemned: impl FnMut(u64, u64) -> bool) -> u64 {
        let mut dropped = 0;
        self.update(None, |key, value| {
            if !condemned(key, value) {
                return Change::Keep;
            }
            dropped += 1;
            Change::Drop
        });
        dropped
    }

    /// Changes or drops the entries of all sets, or of the one of `set_hash`; none of this counts as a use. A new key
    /// must not be in the set, except as that of an entry that changes as well.
    ///
    /// # Panics
    /// If a new key is [`INVALID_KEY`].
    pub fn update(&mut self, set_hash: Option<u64>, mut change: impl FnMut(u64, u64) -> Change) {
        let (mut dropped, lru) = (0, self.policy == AssocPolicy::Lru);
        let sets = set_hash.map_or(0..self.index.sets as usize, |hash| {
            let set = self.index.index(hash);
            set..set + 1
        });
        for set in sets {
            let (keys, values) = self.set(set);
            // From the last way to the first: under LRU a removal moves later ways up, never earlier ones.
            for way in (0..keys.len()).rev() {
                if keys[way] == INVALID_KEY {
                    continue;
                }
                match change(keys[way], values[way]) {
                    Change::Keep => {}
                    Change::Become(key, value) => {
                        assert_ne!(key, INVALID_KEY, "the key that marks an empty way cannot be stored");
                        (keys[way], values[way]) = (key, value);
                    }
                    Change::Drop => {
                        dropped += 1;
                        if lru {
                            keys[way..].rotate_left(1);
                            values[way..].rotate_left(1);
                            keys[keys.len() - 1] = INVALID_KEY;
                        } else {
                            keys[way] = INVALID_KEY;
                        }
                    }
                }
            }
        }
        if !lru {
            self.empty_ways += dropped;
        }
    }

    /// Drops every entry. Tree-PLRU bits and the random stream stay as they are, as in hardware.
    pub fn clear(&mut self) {
        self.slots.fill(INVALID_KEY);
        self.empty_ways = self.slots.len() / 2;
    }
}

/// The way that contains `key`. Compares four ways at a time without a branch per way, since the matching way is hard
/// to predict.
#[inline]
fn find(keys: &[u64], key: u64) -> Option<usize> {
    let (quads, rest) = keys.as_chunks::<4>();
    for (at, quad) in quads.iter().enumerate() {
        let matches = u32::from(quad[0] == key)
            | u32::from(quad[1] == key) << 1
            | u32::from(quad[2] == key) << 2
            | u32::from(quad[3] == key) << 3;
        if matches != 0 {
            return Some(4 * at + matches.trailing_zeros() as usize);
        }
    }
    let at = rest.iter().position(|&k| k == key)?;
    Some(4 * quads.len() + at)
}

/// Looks for `key` behind the first way of a set of `N` ways in recency order and moves it to the front. With `N` known
/// at compile time, search and moves are a few instructions each.
#[inline(always)]
fn promote<const N: usize>(keys: &mut [u64], values: &mut [u64], key: u64) -> Option<u64> {
    let keys = <&mut [u64; N]>::try_from(keys).expect("the length was matched");
    let values = <&mut [u64; N]>::try_from(values).expect("as many values as keys");
    let mut matches = 0_u32;
    for (way, &other) in keys.iter().enumerate() {
        matches |= u32::from(other == key) << way;
    }
    if matches == 0 {
        return None;
    }
    let way = matches.trailing_zeros() as usize % N;
    let value = values[way];
    // Empty ways come after the valid ones, so only valid entries move down here.
    shift_down(keys, way, key);
    shift_down(values, way, value);
    Some(value)
}

/// [`promote`] for any number of ways.
#[inline(never)]
fn promote_any(keys: &mut [u64], values: &mut [u64], key: u64) -> Option<u64> {
    let way = find(keys, key)?;
    let value = values[way];
    shift_down(keys, way, key);
    shift_down(values, way, value);
    Some(value)
}

/// Puts an entry in front of a set of `N` ways, moves the others down by one and returns the one that drops out.
#[inline(always)]
fn push_front<const N: usize>(keys: &mut [u64], values: &mut [u64], key: u64, value: u64) -> Evicted {
    let keys = <&mut [u64; N]>::try_from(keys).expect("the length was matched");
    let values = <&mut [u64; N]>::try_from(values).expect("as many values as keys");
    let old = Evicted { key: keys[N - 1], value: values[N - 1] };
    keys.copy_within(..N - 1, 1);
    values.copy_within(..N - 1, 1);
    (keys[0], values[0]) = (key, value);
    old
}

/// Puts `first` in front and moves the elements before `way` down by one, over the one at `way`.
#[inline(always)]
fn shift_down(slots: &mut [u64], way: usize, first: u64) {
    if let Ok(quad) = <&mut [u64; 4]>::try_from(&mut *slots) {
        // The most common TLB associativity, without a branch on the way.
        let old = *quad;
        quad[0] = first;
        quad[1] = if way >= 1 { old[0] } else { old[1] };
        quad[2] = if way >= 2 { old[1] } else { old[2] };
        quad[3] = if way >= 3 { old[2] } else { old[3] };
    } else {
        slots.copy_within(..way, 1);
        slots[0] = first;
    }
}

/// Maps a set hash to `hash % sets` without a division.
#[derive(Clone, Debug)]
struct SetIndex {
    sets: u64,
    /// `sets - 1` if `sets` is a power of two.
    mask: Option<u64>,
    /// floor(2^64 / sets) otherwise: the high half of `hash * reciprocal` is then the quotient or one less.
    reciprocal: u64,
}

impl SetIndex {
    fn new(sets: u32) -> Self {
        let sets = u64::from(sets);
        let mask = sets.is_power_of_two().then(|| sets - 1);
        // For a set count that is no power of two, floor((2^64 - 1) / sets) = floor(2^64 / sets).
        Self { sets, mask, reciprocal: u64::MAX / sets }
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        if let Some(mask) = self.mask {
            return (hash & mask) as usize;
        }
        let quotient = ((u128::from(hash) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = hash - quotient * self.sets;
        (if rest >= self.sets { rest - self.sets } else { rest }) as usize
    }
}

/// The direction bits of every set, and how a use of each way changes them.
///
/// Nodes are numbered as in a binary heap from 1; bit `n` of a set's word says where node `n` points for its next
/// victim (0 left, 1 right).
#[derive(Clone, Debug, Default)]
struct PlruTree {
    bits: Vec<u64>,
    /// For each way: mask of the nodes on its path, and of those among them that must point right after a use.
    paths: Vec<(u64, u64)>,
    /// Mask of the nodes whose right half has no ways.
    left_only: u64,
    leaves: u32,
}

impl PlruTree {
    fn new(sets: u32, ways: u32) -> Self {
        let leaves = ways.next_power_of_two();
        let mut left_only = 0;
        for node in 1..leaves {
            // The first leaf below the node's right child.
            let mut leaf = 2 * node + 1;
            while leaf < leaves {
                leaf *= 2;
            }
            if leaf - leaves >= ways {
                left_only |= 1 << node;
            }
        }
        let path = |way: u32| {
            let (mut on_path, mut point_right) = (0, 0);
            let mut child = leaves + way;
            while child > 1 {
                let node = child / 2;
                on_path |= 1 << node;
                if child.is_multiple_of(2) {
                    point_right |= 1 << node;
                }
                child = node;
            }
            (on_path, point_right)
        };
        Self { bits: vec![0; sets as usize], paths: (0..ways).map(path).collect(), left_only, leaves }
    }

    #[inline]
    fn touch(&mut self, set: usize, way: usize) {
        let (on_path, point_right) = self.paths[way];
        let bits = &mut self.bits[set];
        *bits = (*bits & !on_path) | point_right;
    }

    #[inline]
    fn victim(&self, set: usize) -> usize {
        let directions = self.bits[set] & !self.left_only;
        let mut node = 1;
        while node < self.leaves {
            node = 2 * node + (directions >> node & 1) as u32;
        }
        (node - self.leaves) as usize
    }
}

#[cfg(test)]
mod tests;
