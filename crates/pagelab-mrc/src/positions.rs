//! The last use of each page of an address space.
//!
//! A hash table with open addressing. An entry is a group of 16 adjacent pages, since programs use neighbours: the
//! stamps of a group fill a cache line. A page costs 4 bytes and a share of the key if the whole group is used, 72
//! bytes if it is alone.

use crate::host;
use crate::marks::Stamp;

/// No last use.
pub(crate) const NONE: Stamp = Stamp::MAX;

const GROUP_SHIFT: u32 = 4;
const GROUP: usize = 1 << GROUP_SHIFT;
/// A free slot: no group has this number, since page numbers have fewer bits.
const FREE: u64 = u64::MAX;
const LEAST_SLOTS: usize = 16;

/// Position of a page's stamp; valid until the table grows.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place(usize);

/// Stamps by page number.
pub(crate) struct Positions {
    /// Keys of the slots, whose number is a power of two.
    keys: Vec<u64>,
    stamps: Vec<[Stamp; GROUP]>,
    groups: usize,
}

impl Default for Positions {
    fn default() -> Self {
        Self { keys: vec![FREE; LEAST_SLOTS], stamps: vec![[NONE; GROUP]; LEAST_SLOTS], groups: 0 }
    }
}

impl Positions {
    /// Makes room for this many pages; their positions then stay valid while no more are added.
    #[inline(always)]
    pub fn reserve(&mut self, pages: usize) {
        if (self.groups + pages) * 4 > self.keys.len() * 3 {
            self.grow(pages);
        }
    }

    /// The position of a page, inserted if absent; there must be room.
    #[inline(always)]
    pub fn place(&mut self, page: u64) -> Place {
        let group = page >> GROUP_SHIFT;
        let mut slot = self.home(group);
        while self.keys[slot] != group {
            if self.keys[slot] == FREE {
                self.keys[slot] = group;
                self.groups += 1;
                break;
            }
            slot = (slot + 1) & (self.keys.len() - 1);
        }
        Place(slot << GROUP_SHIFT | (page as usize & (GROUP - 1)))
    }

    /// The position of a page whose group is in the table.
    pub fn find(&self, page: u64) -> Option<Place> {
        self.slot(page >> GROUP_SHIFT).map(|slot| Place(slot << GROUP_SHIFT | (page as usize & (GROUP - 1))))
    }

    #[inline(always)]
    pub fn stamp(&self, place: Place) -> Stamp {
        self.stamps[place.0 >> GROUP_SHIFT][place.0 & (GROUP - 1)]
    }

    #[inline(always)]
    pub fn set(&mut self, place: Place, stamp: Stamp) {
        self.stamps[place.0 >> GROUP_SHIFT][place.0 & (GROUP - 1)] = stamp;
    }

    /// Prefetches a page's group.
    #[inline(always)]
    pub fn prefetch(&self, page: u64) {
        let home = self.home(page >> GROUP_SHIFT);
        host::prefetch(&self.keys, home);
        host::prefetch(&self.stamps, home);
    }

    /// All stamps, to modify.
    pub fn stamps_mut(&mut self) -> impl Iterator<Item = &mut Stamp> {
        self.stamps.iter_mut().flatten().filter(|stamp| **stamp != NONE)
    }

    /// Removes the pages from `first` to `last` and calls `taken` with their stamps.
    pub fn take(&mut self, first: u64, last: u64, mut taken: impl FnMut(Stamp)) {
        let groups = first >> GROUP_SHIFT..=last >> GROUP_SHIFT;
        let mut take = |stamps: &mut [Stamp; GROUP], group: u64| {
            for (at, stamp) in stamps.iter_mut().enumerate() {
                let page = group << GROUP_SHIFT | at as u64;
                if *stamp != NONE && (first..=last).contains(&page) {
                    taken(std::mem::replace(stamp, NONE));
                }
            }
        };
        // Iterates over the smaller number: the groups of the range, or the slots of the table.
        if groups.end() - groups.start() < self.keys.len() as u64 {
            for group in groups {
                if let Some(slot) = self.slot(group) {
                    take(&mut self.stamps[slot], group);
                }
            }
        } else {
            for (key, stamps) in self.keys.iter().zip(&mut self.stamps) {
                if groups.contains(key) {
                    take(stamps, *key);
                }
            }
        }
    }

    fn slot(&self, group: u64) -> Option<usize> {
        let mut slot = self.home(group);
        while self.keys[slot] != group {
            if self.keys[slot] == FREE {
                return None;
            }
            slot = (slot + 1) & (self.keys.len() - 1);
        }
        Some(slot)
    }

    #[inline(always)]
    fn home(&self, group: u64) -> usize {
        (group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - self.keys.len().trailing_zeros())) as usize
    }

    #[inline(never)]
    fn grow(&mut self, pages: usize) {
        // Drops groups without pages.
        let used = |stamps: &[Stamp; GROUP]| stamps.iter().any(|&stamp| stamp != NONE);
        let groups = self.stamps.iter().filter(|stamps| used(stamps)).count();
        let slots = ((groups + pages) * 2).next_power_of_two().max(LEAST_SLOTS);
        let keys = std::mem::replace(&mut self.keys, host::filled(slots, FREE));
        let stamps = std::mem::replace(&mut self.stamps, host::filled(slots, [NONE; GROUP]));
        self.groups = 0;
        for (key, stamps) in keys.into_iter().zip(stamps) {
            if key != FREE && used(&stamps) {
                let place = self.place(key << GROUP_SHIFT);
                self.stamps[place.0 >> GROUP_SHIFT] = stamps;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use pagelab_trace::rng::Rng;

    #[test]
    fn stamps_are_those_of_a_map() {
        let (mut positions, mut map) = (Positions::default(), BTreeMap::new());
        let mut rng = Rng::new(pagelab_trace::case_seed(3), "positions");
        for step in 0..pagelab_trace::cases(100_000_u32) {
            // Neighbouring page numbers, and numbers from the whole address space.
            let page = if rng.below(3) == 0 { rng.below(1 << 58) } else { rng.below(5000) };
            positions.reserve(1);
            let place = positions.place(page);
            assert_eq!(positions.stamp(place), map.insert(page, step).unwrap_or(NONE));
            positions.set(place, step);
            if step % 500 == 0 {
                let first = rng.below(6000);
                let last = first + if rng.below(2) == 0 { rng.below(100) } else { rng.below(1 << 57) };
                let mut taken = Vec::new();
                positions.take(first, last, |stamp| taken.push(stamp));
                taken.sort_unstable();
                let gone: Vec<u64> = map.range(first..=last).map(|(&page, _)| page).collect();
                let mut expected: Vec<u32> = gone.iter().filter_map(|page| map.remove(page)).collect();
                expected.sort_unstable();
                assert_eq!(taken, expected);
            }
        }
        assert!(map.iter().all(|(&page, &stamp)| positions.find(page).map(|at| positions.stamp(at)) == Some(stamp)));
        assert_eq!(positions.stamps_mut().count(), map.len());
    }

    #[test]
    fn forgotten_pages_take_no_room() {
        let mut positions = Positions::default();
        for round in 0..1000_u64 {
            for page in 0..64 {
                positions.reserve(1);
                let place = positions.place(round << 20 | page << GROUP_SHIFT);
                positions.set(place, 7);
            }
            positions.take(round << 20, (round + 1) << 20, |_| ());
        }
        assert!(positions.keys.len() <= 512, "{}", positions.keys.len());
    }
}
