//! Dictionaries built while encoding: each new value gets the next index.
//!
//! A Parquet dictionary belongs to a part. Its indices have 16 bits, and a page has no more rows than that, so every
//! page fits an empty dictionary. A page that does not fit the current dictionary begins a new part.

use crate::{Access, ThreadIx};

/// Maximum number of values in a dictionary.
pub(super) const MAX_VALUES: usize = 1 << 16;
const _: () = assert!(super::PAGE_ROWS <= MAX_VALUES);

/// A value in a dictionary.
pub(super) trait Value: Copy + Eq {
    /// A hash with good upper bits.
    fn hash(self) -> u64;
}

/// An access without its address: instruction, kind, size and gap. A program has few of them and repeats them in the
/// same order, so these columns share one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub pc: u64,
    /// `gap`, `size` (16 bits) and index of the kind (8 bits) from the lowest bit on, in one word that is compared
    /// quickly.
    rest: u64,
}

impl Site {
    #[inline(always)]
    pub(crate) fn from_access(access: &Access) -> Self {
        let kind = super::columns::kind_index(access);
        let rest = u64::from(access.gap) | u64::from(access.size_bytes) << 32 | u64::from(kind) << 48;
        Self { pc: access.pc, rest }
    }

    /// The access of this site to an address.
    #[inline]
    pub(super) fn access(self, vaddr: u64) -> Access {
        let (kind, maker) = super::columns::kind_at(self.kind_index());
        Access { vaddr, pc: self.pc, gap: self.gap(), size_bytes: self.size_bytes(), kind, maker }
    }

    pub(super) fn gap(self) -> u32 {
        self.rest as u32
    }

    pub(super) fn size_bytes(self) -> u16 {
        (self.rest >> 32) as u16
    }

    pub(super) fn kind_index(self) -> usize {
        usize::from((self.rest >> 48) as u8)
    }
}

/// 2^64 divided by the golden ratio: multiples of it spread evenly over the upper bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Value for Site {
    #[inline(always)]
    fn hash(self) -> u64 {
        (self.pc ^ self.rest.rotate_left(20)).wrapping_mul(SPREAD)
    }
}

impl Value for ThreadIx {
    fn hash(self) -> u64 {
        u64::from(self.0).wrapping_mul(SPREAD)
    }
}

/// A dictionary with open addressing, at most half full. It grows as needed, so that it stays in the host's caches
/// while a part accesses little code.
pub(super) struct Dictionary<V> {
    /// Indices by hash; [`EMPTY`] in free slots.
    slots: Vec<u32>,
    shift: u32,
    values: Vec<V>,
}

const EMPTY: u32 = u32::MAX;
const FIRST_BITS: u32 = 12;

impl<V: Value> Dictionary<V> {
    pub(super) fn new() -> Self {
        Self { slots: vec![EMPTY; 1 << FIRST_BITS], shift: 64 - FIRST_BITS, values: Vec::new() }
    }

    /// The values, each at its index.
    pub(super) fn values(&self) -> &[V] {
        &self.values
    }

    /// Removes and returns the values.
    pub(super) fn take(&mut self) -> Vec<V> {
        self.slots.fill(EMPTY);
        std::mem::take(&mut self.values)
    }

    /// The value's index; none if it is new and the dictionary is full.
    #[inline(always)]
    pub(super) fn index_of(&mut self, value: V) -> Option<u16> {
        let mask = self.slots.len() - 1;
        let mut at = (value.hash() >> self.shift) as usize;
        loop {
            let index = self.slots[at & mask];
            match self.values.get(index as usize) {
                Some(known) if *known == value => return Some(index as u16),
                Some(_) => at += 1,
                None => return self.add(value, at & mask),
            }
        }
    }

    #[cold]
    fn add(&mut self, value: V, at: usize) -> Option<u16> {
        let index = self.values.len();
        if index == MAX_VALUES {
            return None;
        }
        self.values.push(value);
        self.slots[at] = index as u32;
        if self.values.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(index as u16)
    }

    fn grow(&mut self) {
        let len = self.slots.len() * 2;
        self.slots = vec![EMPTY; len];
        self.shift -= 1;
        for (index, value) in self.values.iter().enumerate() {
            let mut at = (value.hash() >> self.shift) as usize;
            while self.slots[at & (len - 1)] != EMPTY {
                at += 1;
            }
            self.slots[at & (len - 1)] = index as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessKind, Maker};

    #[test]
    fn values_keep_their_index_until_the_dictionary_is_full() {
        let access = |i: u64| Access { pc: i << 44, ..Access::new(AccessKind::Load, 0, 1) };
        let mut sites = Dictionary::new();
        for round in 0..2 {
            for i in 0..MAX_VALUES as u64 {
                // Multiples of a power of two must not pile up.
                assert_eq!(sites.index_of(Site::from_access(&access(i))), Some(i as u16), "round {round}");
            }
            assert_eq!(sites.index_of(Site::from_access(&access(MAX_VALUES as u64))), None);
            assert_eq!(sites.index_of(Site::from_access(&access(7))), Some(7));
            let values = sites.take();
            assert_eq!((values.len(), values[9]), (MAX_VALUES, Site::from_access(&access(9))));
        }
        assert_eq!(sites.index_of(Site::from_access(&access(5))), Some(0));
    }

    #[test]
    fn sites_differ_in_everything_but_the_address() {
        let access = Access { pc: 1, gap: 2, ..Access::new(AccessKind::Load, 3, 4) };
        let same = Access { vaddr: 9, ..access };
        assert_eq!(Site::from_access(&access), Site::from_access(&same));
        for other in [
            Access { pc: 2, ..access },
            Access { gap: u32::MAX, ..access },
            Access { size_bytes: 4096, ..access },
            Access { kind: AccessKind::Store, ..access },
            Access { maker: Maker::KERNEL, ..access },
        ] {
            let site = Site::from_access(&other);
            assert_ne!(Site::from_access(&access), site);
            assert_eq!((site.pc, site.gap(), site.size_bytes()), (other.pc, other.gap, other.size_bytes));
            assert_eq!(site.kind_index(), usize::from(super::super::columns::kind_index(&other)));
            assert_eq!(site.access(3), other);
        }
    }
}
