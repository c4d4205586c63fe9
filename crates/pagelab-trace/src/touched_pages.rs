//! Compact sets of touched pages.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::{Batch, ProcessIx, Segment, Source, ThreadIx, TraceError};

/// Bytes of a page as a power of two.
const PAGE_SHIFT: u32 = 12;

/// The first touches of a source's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstTouches {
    /// Number of accesses examined.
    pub accesses: u64,
    /// Number of 4 KiB pages that they touch, in all processes.
    pub pages: u64,
    /// Number of accesses up to and including the last one that touches a new page.
    pub until: u64,
}

impl FirstTouches {
    /// Examines this many accesses of a source. Pages that are unmapped and touched again are not counted again.
    ///
    /// # Errors
    /// Those of the source.
    pub fn from_source(source: &mut dyn Source, max_accesses: u64) -> Result<Self, TraceError> {
        let (mut found, mut batch, mut pages) = (Self::default(), Batch::default(), NewPages::new(PAGE_SHIFT));
        loop {
            batch.clear();
            if found.accesses >= max_accesses || !source.next_batch(&mut batch)? {
                return Ok(found);
            }
            let left = usize::try_from(max_accesses - found.accesses).unwrap_or(usize::MAX);
            let before = found.accesses;
            pages.find_in(&batch, left, &mut |at| {
                found.pages += 1;
                found.until = before + at as u64 + 1;
            });
            found.accesses += batch.accesses.len().min(left) as u64;
        }
    }
}

/// Finds the pages in a stream of batches that were not touched before, by process.
pub(crate) struct NewPages {
    page_shift: u32,
    process_of: HashMap<ThreadIx, ProcessIx>,
    touched: TouchedPages,
}

impl NewPages {
    /// For pages of 2^`page_shift` bytes.
    pub(crate) fn new(page_shift: u32) -> Self {
        Self { page_shift, process_of: HashMap::new(), touched: TouchedPages::default() }
    }

    /// Calls `found` with the index of the access for every new page of a batch's first `most` accesses.
    pub(crate) fn find_in(&mut self, batch: &Batch, most: usize, found: &mut dyn FnMut(usize)) {
        let mut begin = 0;
        for segment in &batch.segments {
            match segment {
                Segment::Event(event) => _ = self.process_of.insert(event.thread, event.process),
                Segment::Run { thread, end } => {
                    let process = self.process_of.get(thread).map_or(0, |process| process.0);
                    for at in begin..(*end).min(most) {
                        let access = &batch.accesses[at];
                        let last = access.vaddr.saturating_add(u64::from(access.size_bytes) - 1);
                        for page in access.vaddr >> self.page_shift..=last >> self.page_shift {
                            if self.touched.insert(process, page) {
                                found(at);
                            }
                        }
                    }
                    begin = *end;
                }
            }
        }
    }
}

/// Number of recently used words: accesses alternate between a few regions (stack, heap, tables).
const RECENT: usize = 64;

/// A set of pages of address spaces: 64 neighbouring pages share a word.
pub(crate) struct TouchedPages {
    words: FxHashMap<Key, u64>,
    /// The most recently used words, indexed by the hash of their key; they may be newer than those in `words`.
    recent: Box<[(Key, u64); RECENT]>,
}

/// Address space and page number divided by 64.
type Key = (u32, u64);

/// Key of a free place: no page has this number.
const FREE: Key = (0, u64::MAX);

impl Default for TouchedPages {
    fn default() -> Self {
        Self { words: FxHashMap::default(), recent: Box::new([(FREE, 0); RECENT]) }
    }
}

impl TouchedPages {
    /// Adds page number `page` of address space `space`; true if it is new.
    #[inline]
    pub(crate) fn insert(&mut self, space: u32, page: u64) -> bool {
        let key = (space, page >> 6);
        let bit = 1 << (page & 63);
        let hash = (key.1 ^ u64::from(space) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (hash >> 58) as usize;
        if self.recent[at].0 != key {
            self.bring(at, key);
        }
        let word = &mut self.recent[at].1;
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Replaces a recent word by that of a key.
    #[cold]
    fn bring(&mut self, at: usize, key: Key) {
        let word = self.words.get(&key).copied().unwrap_or(0);
        let (old, of_old) = std::mem::replace(&mut self.recent[at], (key, word));
        if old != FREE {
            self.words.insert(old, of_old);
        }
    }

    /// Number of touched regions of 64 pages, without the most recently used ones.
    pub(crate) fn regions(&self) -> usize {
        self.words.len()
    }

    /// All pages, sorted by space and number.
    pub(crate) fn sorted(mut self) -> impl Iterator<Item = (u32, u64)> {
        self.words.extend(self.recent.into_iter().filter(|(key, _)| *key != FREE));
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
    fn first_touches_end_with_the_last_new_page() {
        let first_touches =
            |spec: &str, most| FirstTouches::from_source(&mut *crate::workload::parse(spec, 1).unwrap(), most).unwrap();
        // Code and data: the first access touches two pages.
        let all = first_touches("seq:size=64KiB,accesses=20000", u64::MAX);
        assert_eq!(all.accesses, 20_000);
        let step = (15 * 4096) / 8 + 1;
        assert_eq!((all.pages, all.until), (16, step));
        assert_eq!(first_touches("seq:size=64KiB,accesses=20000", step - 1).pages, 15);
        let touched_before = first_touches("random:size=64KiB,accesses=20000,init=pages", u64::MAX);
        assert_eq!((touched_before.pages, touched_before.until), (16, 16));
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
