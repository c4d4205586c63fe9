//! Which pages were touched, in little memory.

use std::collections::HashMap;

/// Words kept at hand: accesses alternate between a few places (stack, heap, tables).
const RECENT: usize = 64;

/// A set of pages of address spaces: 64 neighbouring pages share a word.
pub(crate) struct TouchedPages {
    words: HashMap<Key, u64>,
    /// The words used last, each at the place its key hashes to; they may be newer than those in `words`.
    recent: Box<[Option<(Key, u64)>; RECENT]>,
}

/// Address space and page number divided by 64.
type Key = (u32, u64);

impl Default for TouchedPages {
    fn default() -> Self {
        Self { words: HashMap::new(), recent: Box::new([None; RECENT]) }
    }
}

impl TouchedPages {
    /// Adds page number `page` of address space `space`; true if it is new.
    #[inline]
    pub(crate) fn insert(&mut self, space: u32, page: u64) -> bool {
        let key = (space, page >> 6);
        let bit = 1 << (page & 63);
        let hash = (key.1 ^ u64::from(space) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &mut self.recent[(hash >> 58) as usize];
        let word = match place {
            Some((at, word)) if *at == key => word,
            _ => {
                if let Some((old, word)) = place.take() {
                    self.words.insert(old, word);
                }
                let word = self.words.get(&key).copied().unwrap_or(0);
                &mut place.insert((key, word)).1
            }
        };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// All pages, sorted by space and number.
    pub(crate) fn sorted(mut self) -> impl Iterator<Item = (u32, u64)> {
        self.words.extend(self.recent.into_iter().flatten());
        let mut words: Vec<_> = self.words.into_iter().collect();
        words.sort_unstable();
        let pages_of = |((space, high), word): (Key, u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| (space, high << 6 | bit))
        };
        words.into_iter().flat_map(pages_of)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pages_are_new_once_and_come_back_sorted() {
        let mut touched = TouchedPages::default();
        let pages = [(0, 5), (1, 5), (0, 4), (0, 64), (0, 5), (0, u64::MAX >> 12), (1, 5), (0, 64)];
        let new: Vec<bool> = pages.into_iter().map(|(space, page)| touched.insert(space, page)).collect();
        assert_eq!(new, [true, true, true, true, false, true, false, false]);
        assert_eq!(touched.sorted().collect::<Vec<_>>(), [(0, 4), (0, 5), (0, 64), (0, u64::MAX >> 12), (1, 5)]);
    }

    #[test]
    fn words_that_give_way_to_others_are_kept() {
        let mut touched = TouchedPages::default();
        let mut expected = BTreeSet::new();
        let mut page = 1u64;
        for _ in 0..20_000 {
            page = page.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let entry = ((page >> 60) as u32 & 1, page >> 40 & 0x3ffff);
            assert_eq!(touched.insert(entry.0, entry.1), expected.insert(entry));
        }
        assert!(touched.sorted().eq(expected));
    }
}
