//! Words in entries that are not present: where they are stored, and what happens to them.
//!
//! Models: swap entries in the page table, which stay in their tables, and are moved and inherited with them. For page
//! tables without room for words ([`keeps_words`](pagelab_tables::page_table::PageTable::keeps_words)) the kernel keeps
//! the words separately, by page.
//! Source: Linux mm/memory.c (`copy_nonpresent_pte`, `zap_nonpresent_ptes`), mm/mremap.c (`move_ptes`), mm/rmap.c
//! (`try_to_unmap_one`).
//! Deviations: Linux allocates a table when it maps a large page, for a later split (`pgtable_trans_huge_deposit`);
//! here the kernel allocates it when the page is swapped out, from the freed memory. Words outside of a page table cost
//! no reference.

use crate::context::KernelContext;
use crate::entry_word::EntryWord;
use crate::layer::Layer;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, PageSize, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::ids::SpaceIx;
use pagelab_tables::page_table::{Leaf, WalkList, Word};

/// A word, and the page that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordOf {
    /// First address of the page.
    pub va: VirtAddr,
    /// Size of the page that the entry would map.
    pub size: PageSize,
    /// Content of its entry.
    pub word: EntryWord,
}

impl WordOf {
    /// The range of the page.
    pub fn range(&self) -> VaRange {
        VaRange { start: self.va, end: self.va + self.size.bytes() }
    }
}

fn number(va: VirtAddr) -> u64 {
    va.page_number()
}

impl Layer {
    /// The word of the page that contains `va`, if it has one.
    pub fn word(&self, index: SpaceIx, va: VirtAddr) -> Option<WordOf> {
        let space = &self.spaces[index];
        if space.words == 0 {
            return None;
        }
        self.word_behind(index, va, &self.leaf(index, va))
    }

    /// The end of a walk for `va`.
    pub(super) fn leaf(&self, index: SpaceIx, va: VirtAddr) -> Leaf {
        let mut list = WalkList::new();
        self.spaces[index].table.walk(&self.memory.contents, va, &mut list);
        list.leaf
    }

    /// [`Self::word`], given the end of a walk for `va`.
    pub fn word_behind(&self, index: SpaceIx, va: VirtAddr, leaf: &Leaf) -> Option<WordOf> {
        let space = &self.spaces[index];
        let (size, word) = match *leaf {
            Leaf::Present(_) => return None,
            Leaf::NotPresent { level, word } if space.table.keeps_words() => {
                let word = EntryWord::from_bits(word)?;
                (PageSize::from_level(level), word)
            }
            Leaf::NotPresent { .. } => (PageSize::Size4K, space.small_page_words.get(&number(va)).copied()?),
        };
        Some(WordOf { va: va.align_down(size.bytes()), size, word })
    }

    /// Whether the page of a size that contains `va` is unmapped and has no word, and there is no table for smaller
    /// pages.
    pub fn is_untouched(&self, index: SpaceIx, va: VirtAddr, size: PageSize) -> bool {
        let leaf = self.leaf(index, va);
        let is_free = matches!(leaf, Leaf::NotPresent { level, .. } if size == PageSize::Size4K || PageSize::from_level(level) >= size);
        is_free && self.word_behind(index, va, &leaf).is_none()
    }

    /// The first page with a word among those that overlap a range.
    pub fn first_word(&self, index: SpaceIx, range: VaRange) -> Option<WordOf> {
        let any = self.spaces[index].words > 0;
        any.then(|| self.first_words(index, range, 1)).and_then(|words| words.first().copied())
    }

    /// Whether a page that overlaps a range has a word.
    pub fn has_words(&self, index: SpaceIx, range: VaRange) -> bool {
        self.first_word(index, range).is_some()
    }

    /// Whether a word that overlaps a range represents contents.
    pub fn has_contents(&self, index: SpaceIx, range: VaRange) -> bool {
        self.words(index, range).iter().any(|entry| match entry.word {
            EntryWord::Swap(_) => true,
            EntryWord::Armed(_) | EntryWord::Stored(_) => false,
        })
    }

    /// The words of the pages that overlap a range, in ascending order.
    pub fn words(&self, index: SpaceIx, range: VaRange) -> Vec<WordOf> {
        if self.spaces[index].words == 0 { Vec::new() } else { self.first_words(index, range, usize::MAX) }
    }

    fn first_words(&self, index: SpaceIx, range: VaRange, most: usize) -> Vec<WordOf> {
        let space = &self.spaces[index];
        if !space.table.keeps_words() {
            let beside = space.small_page_words.range(number(range.start)..number(range.end).max(number(range.start)));
            let size = PageSize::Size4K;
            let word = |(&page, &word): (&u64, &EntryWord)| WordOf { va: VirtAddr::from_page_number(page), size, word };
            return beside.take(most).map(word).collect();
        }
        let mut found = Vec::new();
        space.table.words(&self.memory.contents, range.start, range.end, most, &mut found);
        let word = |Word { va, size, word }| {
            let word = EntryWord::from_bits(word).expect("an entry without a word is not listed");
            WordOf { va, size, word }
        };
        found.into_iter().map(word).collect()
    }

    /// Gives a word to a page, which must be untouched ([`Self::is_untouched`]); its owner has already counted it.
    /// Errors: there is no memory for tables.
    pub fn put_word(&mut self, context: KernelContext, index: SpaceIx, entry: WordOf) -> Result<(), EngineError> {
        let WordOf { va, size, word } = entry;
        assert!(
            self.is_untouched(index, va, size),
            "{va:?} of space {index} is mapped or has a word, and is to have one"
        );
        if self.spaces[index].table.keeps_words() {
            self.build_tables(context, index, va, size)?;
            self.spaces[index].table.set_word(&mut self.memory.contents, va, size, word.to_bits());
        } else {
            assert_eq!(size, PageSize::Size4K, "words beside a table are of small pages");
            self.spaces[index].small_page_words.insert(number(va), word);
        }
        self.spaces[index].words += 1;
        Ok(())
    }

    /// The same for small pages whose entries are in one table, which must keep words.
    pub fn put_words(&mut self, context: KernelContext, index: SpaceIx, words: &[WordOf]) -> Result<(), EngineError> {
        let Some((&first, others)) = words.split_first() else { return Ok(()) };
        self.put_word(context, index, first)?;
        for &entry in others {
            debug_assert!(self.is_untouched(index, entry.va, entry.size), "{:?} is to have a word", entry.va);
            let space = &mut self.spaces[index];
            assert!(space.table.keeps_words(), "the words of many are in their table");
            space.table.set_word(&mut self.memory.contents, entry.va, entry.size, entry.word.to_bits());
            space.words += 1;
        }
        Ok(())
    }

    /// Removes the word of the page that contains `va`, if it has one. The caller notifies the owner.
    pub fn take_word(&mut self, index: SpaceIx, va: VirtAddr) -> Option<WordOf> {
        let entry = self.word(index, va)?;
        let space = &mut self.spaces[index];
        if space.table.keeps_words() {
            space.table.set_word(&mut self.memory.contents, entry.va, entry.size, 0);
        } else {
            space.small_page_words.remove(&number(va));
        }
        space.words -= 1;
        Some(entry)
    }

    /// Removes the word of a larger page that a table for a page of `size` at `va` will replace. Its parts are
    /// requested again (`Spaces::cut`).
    pub fn clear_above(&mut self, context: KernelContext, index: SpaceIx, va: VirtAddr, size: PageSize) {
        if let Some(entry) = self.word(index, va).filter(|entry| entry.size > size) {
            self.take_word(index, va);
            self.release_word(context, entry.word);
            self.spaces.cut.push((index, entry.range()));
        }
    }

    /// Frees the tables of places that may now have large pages, if such a table only has armed entries. Returns these
    /// places, which must be armed again. For layers with an engine.
    pub fn free_armed_tables(&mut self, context: KernelContext, index: SpaceIx, range: VaRange) -> Vec<VaRange> {
        const LARGE: PageSize = PageSize::Size2M;
        let mut freed = Vec::new();
        if self.mechanisms.engine.is_none() || self.paging.page_size < LARGE {
            return freed;
        }
        let mut start = range.start.0.next_multiple_of(LARGE.bytes());
        while start + LARGE.bytes() <= range.end.0 {
            let place = VaRange { start: VirtAddr(start), end: VirtAddr(start + LARGE.bytes()) };
            let armed_in_parts = self.first_word(index, place).is_some_and(|entry| entry.size < LARGE);
            let may_be_whole = armed_in_parts && self.largest_page(index, place.start) >= LARGE;
            let is_empty = may_be_whole && !self.has_contents(index, place);
            if is_empty && self.mapped(index, place.start, place.end).is_empty() {
                self.drop_words(context, index, place);
                self.free_leaf_table(context, index, place.start);
                self.spaces.cut.push((index, place));
                freed.push(place);
            }
            start += LARGE.bytes();
        }
        freed
    }

    /// Removes the words of pages that are larger than what may now be mapped there.
    pub fn cut_too_large_words(&mut self, context: KernelContext, index: SpaceIx, range: VaRange) {
        for entry in self.words(index, range) {
            if entry.size > PageSize::Size4K && entry.size > self.largest_page(index, entry.va) {
                self.cut_words(context, index, entry.va, entry.va + FRAME_BYTES);
            }
        }
    }

    /// Removes the words of large pages across the edges of `start..end`, so that every word's page lies inside the
    /// range or outside. Their parts are requested again (`Spaces::cut`).
    pub fn cut_words(&mut self, context: KernelContext, index: SpaceIx, start: VirtAddr, end: VirtAddr) {
        for edge in [start, end] {
            if let Some(entry) = self.word(index, edge).filter(|entry| entry.va != edge) {
                self.take_word(index, edge);
                self.release_word(context, entry.word);
                self.spaces.cut.push((index, entry.range()));
            }
        }
    }

    /// Notifies the owner of a word that was removed.
    pub fn release_word(&mut self, context: KernelContext, word: EntryWord) {
        match word {
            EntryWord::Swap(slot) => {
                let swap = self.swap().expect("a slot is one of the swap area");
                // A frame into which another user has read the slot loses a user.
                swap.remove(slot).into_iter().for_each(|frame| self.put_frame(context, frame));
            }
            EntryWord::Armed(_) | EntryWord::Stored(_) => {}
        }
    }

    /// Removes the words of a range that is unmapped.
    pub fn drop_words(&mut self, context: KernelContext, index: SpaceIx, range: VaRange) {
        for entry in self.words(index, range) {
            self.take_word(index, entry.va);
            self.release_word(context, entry.word);
        }
    }

    /// Moves the words of a range whose pages have been moved.
    pub fn move_words(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        from: VaRange,
        to: VirtAddr,
    ) -> Result<(), EngineError> {
        let words = self.words(index, from);
        words.iter().for_each(|entry| _ = self.take_word(index, entry.va));
        for WordOf { va, size, word } in words {
            let va = VirtAddr(to.0.wrapping_add(va.0.wrapping_sub(from.start.0)));
            match word {
                EntryWord::Swap(_) => self.put_word(context, index, WordOf { va, size, word })?,
                EntryWord::Armed(_) | EntryWord::Stored(_) => self.put_armed(context, index, va, size)?,
            }
        }
        Ok(())
    }

    /// Copies a parent's words of a range to a forked child, if their kinds are inherited.
    pub fn copy_words(
        &mut self,
        context: KernelContext,
        parent: SpaceIx,
        child: SpaceIx,
        range: VaRange,
    ) -> Result<(), EngineError> {
        for entry in self.words(parent, range) {
            match entry.word {
                EntryWord::Swap(slot) => {
                    let swap = self.swap().expect("a slot is one of the swap area");
                    swap.share(slot).into_iter().for_each(|frame| self.memory.page_use.share(frame));
                    self.put_word(context, child, entry)?;
                }
                // The child has an owner number of its own, and engines do not read pages that two processes map.
                EntryWord::Armed(_) | EntryWord::Stored(_) => {}
            }
        }
        Ok(())
    }
}
