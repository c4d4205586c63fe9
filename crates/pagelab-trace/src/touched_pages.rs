//! Which pages were touched, in little memory.

use std::collections::HashMap;

/// A set of pages of address spaces: 64 neighbouring pages share a word.
#[derive(Default)]
pub(crate) struct TouchedPages {
    words: HashMap<(u32, u64), u64>,
    /// The word used last, not in the map: most accesses stay near the one before.
    last: Option<((u32, u64), u64)>,
}

impl TouchedPages {
    /// Adds page number `page` of address space `space`; true if it is new.
    #[inline]
    pub(crate) fn insert(&mut self, space: u32, page: u64) -> bool {
        let key = (space, page >> 6);
        let bit = 1 << (page & 63);
        let word = match &mut self.last {
            Some((last, word)) if *last == key => word,
            _ => self.go_to(key),
        };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn go_to(&mut self, key: (u32, u64)) -> &mut u64 {
        let word = self.words.get(&key).copied().unwrap_or(0);
        if let Some((old, word)) = self.last.replace((key, word)) {
            self.words.insert(old, word);
        }
        &mut self.last.as_mut().expect("just set").1
    }

    /// All pages, sorted by space and number.
    pub(crate) fn sorted(mut self) -> Vec<(u32, u64)> {
        if let Some((key, word)) = self.last.take() {
            self.words.insert(key, word);
        }
        let mut words: Vec<_> = self.words.into_iter().collect();
        words.sort_unstable();
        let pages_of = |((space, high), word): ((u32, u64), u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| (space, high << 6 | bit))
        };
        words.into_iter().flat_map(pages_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_new_once_and_come_back_sorted() {
        let mut touched = TouchedPages::default();
        let pages = [(0, 5), (1, 5), (0, 4), (0, 64), (0, 5), (0, u64::MAX >> 12), (1, 5), (0, 64)];
        let new: Vec<bool> = pages.into_iter().map(|(space, page)| touched.insert(space, page)).collect();
        assert_eq!(new, [true, true, true, true, false, true, false, false]);
        assert_eq!(touched.sorted(), [(0, 4), (0, 5), (0, 64), (0, u64::MAX >> 12), (1, 5)]);
    }
}
