//! Dictionaries built while encoding: each value gets the next index when it is first seen.
//!
//! A Parquet dictionary belongs to one column of one part. Indices have 16 bits; a value that finds the dictionary
//! full gets [`FULL`], and the column is written plain from that page on.

use std::collections::HashMap;

/// No index: the dictionary is full. Also the mark of an empty place, so a dictionary holds at most 65,535 values.
pub(super) const FULL: u16 = u16::MAX;

/// Dictionary of 32-bit numbers that are mostly small (sizes, gaps, thread numbers): small ones index a table.
pub(super) struct SmallNumbers {
    table: Vec<u16>,
    large: HashMap<u32, u16>,
    values: Vec<u32>,
}

impl SmallNumbers {
    pub(super) fn new() -> Self {
        Self { table: vec![FULL; 1 << 16], large: HashMap::new(), values: Vec::new() }
    }

    pub(super) fn values(&self) -> &[u32] {
        &self.values
    }

    pub(super) fn clear(&mut self) {
        for &value in &self.values {
            if let Some(index) = self.table.get_mut(value as usize) {
                *index = FULL;
            }
        }
        self.large.clear();
        self.values.clear();
    }

    /// Index of `value`, [`FULL`] if it is new and there is no room.
    #[inline(always)]
    pub(super) fn index_of(&mut self, value: u32) -> u16 {
        match self.table.get(value as usize) {
            Some(&index) if index != FULL => index,
            _ => self.look_up_or_add(value),
        }
    }

    #[cold]
    fn look_up_or_add(&mut self, value: u32) -> u16 {
        if let Some(&index) = self.large.get(&value) {
            return index;
        }
        if self.values.len() == FULL as usize {
            return FULL;
        }
        let index = self.values.len() as u16;
        self.values.push(value);
        match self.table.get_mut(value as usize) {
            Some(entry) => *entry = index,
            None => _ = self.large.insert(value, index),
        }
        index
    }
}

/// Dictionary of addresses (program counters): open addressing, half full at most, grown as needed so that it stays
/// in the host's caches while a part touches little code.
pub(super) struct Addresses {
    slots: Vec<Slot>,
    shift: u32,
    values: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Slot {
    key: u64,
    /// [`FULL`] if the slot is empty.
    index: u16,
}

impl Addresses {
    const EMPTY: Slot = Slot { key: 0, index: FULL };
    const FIRST_BITS: u32 = 12;

    pub(super) fn new() -> Self {
        Self { slots: vec![Self::EMPTY; 1 << Self::FIRST_BITS], shift: 64 - Self::FIRST_BITS, values: Vec::new() }
    }

    pub(super) fn values(&self) -> &[u64] {
        &self.values
    }

    pub(super) fn clear(&mut self) {
        self.slots.fill(Self::EMPTY);
        self.values.clear();
    }

    /// Index of `key`, [`FULL`] if it is new and there is no room.
    #[inline(always)]
    pub(super) fn index_of(&mut self, key: u64) -> u16 {
        let mask = self.slots.len() - 1;
        let mut at = Self::hash(key, self.shift);
        loop {
            let slot = self.slots[at & mask];
            if slot.index == FULL {
                return self.add(key, at & mask);
            }
            if slot.key == key {
                return slot.index;
            }
            at += 1;
        }
    }

    #[inline(always)]
    fn hash(key: u64, shift: u32) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize
    }

    #[cold]
    fn add(&mut self, key: u64, at: usize) -> u16 {
        if self.values.len() == FULL as usize {
            return FULL;
        }
        let index = self.values.len() as u16;
        self.values.push(key);
        self.slots[at] = Slot { key, index };
        if self.values.len() * 2 > self.slots.len() {
            self.grow();
        }
        index
    }

    fn grow(&mut self) {
        let len = self.slots.len() * 2;
        self.slots = vec![Self::EMPTY; len];
        self.shift -= 1;
        for (index, &key) in self.values.iter().enumerate() {
            let mut at = Self::hash(key, self.shift);
            while self.slots[at & (len - 1)].index != FULL {
                at += 1;
            }
            self.slots[at & (len - 1)] = Slot { key, index: index as u16 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_index_until_the_dictionary_is_full() {
        let mut addresses = Addresses::new();
        let mut numbers = SmallNumbers::new();
        for round in 0..2 {
            for i in 0..65_535u32 {
                // Multiples of a power of two must not pile up; numbers above 65,535 take the slow way.
                assert_eq!(addresses.index_of(u64::from(i) << 44), i as u16, "round {round}");
                assert_eq!(numbers.index_of(i * 3), i as u16, "round {round}");
            }
            assert_eq!(addresses.index_of(1), FULL);
            assert_eq!(numbers.index_of(1), FULL);
            assert_eq!(addresses.index_of(7 << 44), 7);
            assert_eq!(numbers.index_of(3 * 65_534), 65_534);
            assert_eq!(addresses.values()[9], 9 << 44);
            assert_eq!(numbers.values()[40_000], 120_000);
            addresses.clear();
            numbers.clear();
        }
        assert_eq!(addresses.index_of(5), 0);
        assert_eq!(numbers.index_of(5), 0);
    }
}
