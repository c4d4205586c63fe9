//! Entries that are not present and hold a word: where the words are, and what becomes of them.
//!
//! Models: swap entries in the page table, which stay in their tables, move and are inherited with them. Page tables without room
//! for words ([`keeps_words`](crate::page_table::PageTable::keeps_words)) have them beside: the kernel finds them by page.
//! Source: Linux mm/memory.c (`copy_nonpresent_pte`, `zap_nonpresent_ptes`), mm/mremap.c (`move_ptes`), mm/rmap.c
//! (`try_to_unmap_one`).
//! Deviations: Linux sets the table of a large page aside when it maps one (`pgtable_trans_huge_deposit`); here the kernel
//! takes it when the page leaves, of the memory that becomes free. Words beside a page table cost no reference.

use crate::base::addr::{FRAME_SHIFT, PageSize, VirtAddr};
use crate::base::error::EngineError;
use crate::kernel::entry_word::EntryWord;
use crate::kernel::layer::Layer;
use crate::kernel::vma::VaRange;
use crate::page_table::{Leaf, WalkList};

fn number(va: VirtAddr) -> u64 {
    va.0 >> FRAME_SHIFT
}

impl Layer {
    /// The word of the page of 4 KiB at `va`, if it has one.
    pub fn word(&self, index: u32, va: VirtAddr) -> Option<EntryWord> {
        let space = &self.spaces[index as usize];
        if space.words == 0 {
            return None;
        }
        let mut list = WalkList::new();
        space.table.walk(&self.mem, va, &mut list);
        self.word_behind(index, va, &list.leaf)
    }

    /// The same, if a walk for `va` ends at `leaf`.
    pub fn word_behind(&self, index: u32, va: VirtAddr, leaf: &Leaf) -> Option<EntryWord> {
        let space = &self.spaces[index as usize];
        match leaf {
            Leaf::Present(_) => None,
            Leaf::NotPresent { word, .. } if space.table.keeps_words() => EntryWord::of_bits(*word),
            Leaf::NotPresent { .. } => space.words_beside.get(&number(va)).copied(),
        }
    }

    /// Whether the page of 4 KiB at `va` is neither mapped nor has it a word.
    pub fn is_untouched(&self, index: u32, va: VirtAddr) -> bool {
        let mut list = WalkList::new();
        self.spaces[index as usize].table.walk(&self.mem, va, &mut list);
        matches!(list.leaf, Leaf::NotPresent { .. }) && self.word_behind(index, va, &list.leaf).is_none()
    }

    /// The first page of a range that has a word.
    pub fn first_word(&self, index: u32, range: VaRange) -> Option<VirtAddr> {
        let any = self.spaces[index as usize].words > 0;
        any.then(|| self.first_words(index, range, 1)).and_then(|words| words.first().map(|&(va, _)| va))
    }

    /// Whether a page of a range has a word.
    pub fn has_words(&self, index: u32, range: VaRange) -> bool {
        self.first_word(index, range).is_some()
    }

    /// The words of a range, in ascending order.
    pub fn words(&self, index: u32, range: VaRange) -> Vec<(VirtAddr, EntryWord)> {
        if self.spaces[index as usize].words == 0 { Vec::new() } else { self.first_words(index, range, usize::MAX) }
    }

    fn first_words(&self, index: u32, range: VaRange, most: usize) -> Vec<(VirtAddr, EntryWord)> {
        let space = &self.spaces[index as usize];
        if !space.table.keeps_words() {
            let beside = space.words_beside.range(number(range.start)..number(range.end).max(number(range.start)));
            return beside.take(most).map(|(&page, &word)| (VirtAddr(page << FRAME_SHIFT), word)).collect();
        }
        let mut found = Vec::new();
        space.table.words(&self.mem, range.start, range.end, most, &mut found);
        let word = |(va, bits)| (va, EntryWord::of_bits(bits).expect("an entry without a word is not listed"));
        found.into_iter().map(word).collect()
    }

    /// Gives the page of 4 KiB at `va` a word, which its owner counts by now. The page is neither mapped nor has it a word.
    /// Errors: there is no memory for the tables on its way.
    pub fn put_word(&mut self, index: u32, va: VirtAddr, word: EntryWord) -> Result<(), EngineError> {
        assert!(self.is_untouched(index, va), "{va:?} of space {index} is mapped or has a word, and is to have one");
        if self.spaces[index as usize].table.keeps_words() {
            self.build_tables(index, va, PageSize::Size4K)?;
            self.spaces[index as usize].table.set_word(&mut self.mem, va, word.to_bits());
        } else {
            self.spaces[index as usize].words_beside.insert(number(va), word);
        }
        self.spaces[index as usize].words += 1;
        Ok(())
    }

    /// Takes the word of the page of 4 KiB at `va` away, if it has one. The caller tells its owner.
    pub fn take_word(&mut self, index: u32, va: VirtAddr) -> Option<EntryWord> {
        let word = self.word(index, va)?;
        let space = &mut self.spaces[index as usize];
        if space.table.keeps_words() {
            space.table.set_word(&mut self.mem, va, 0);
        } else {
            space.words_beside.remove(&number(va));
        }
        space.words -= 1;
        Some(word)
    }

    /// An entry has a word no more: its owner is told.
    pub fn release_word(&mut self, word: EntryWord) {
        match word {
            EntryWord::Swap(slot) => {
                let swap = self.swap().expect("a slot is one of the swap area");
                // A frame that another user has read the slot back to has a user less.
                swap.remove(slot).into_iter().for_each(|frame| self.put_frame(frame));
            }
            EntryWord::Armed(_) => {}
        }
    }

    /// The pages of a range are unmapped: their words go with them.
    pub fn drop_words(&mut self, index: u32, range: VaRange) {
        for (va, word) in self.words(index, range) {
            self.take_word(index, va);
            self.release_word(word);
        }
    }

    /// The pages of a range are mapped elsewhere now, and their words are there.
    pub fn move_words(&mut self, index: u32, from: VaRange, to: VirtAddr) -> Result<(), EngineError> {
        let words = self.words(index, from);
        words.iter().for_each(|&(va, _)| _ = self.take_word(index, va));
        for (va, word) in words {
            let va = VirtAddr(to.0.wrapping_add(va.0.wrapping_sub(from.start.0)));
            let word = match word {
                EntryWord::Swap(_) => Some(word),
                // Entries of a process that is armed no more are not looked for again where a thread has been.
                EntryWord::Armed(_) => self.armed(index, va).map(EntryWord::Armed),
            };
            word.map_or(Ok(()), |word| self.put_word(index, va, word))?;
        }
        Ok(())
    }

    /// A forked child has its parent's words of a range, as far as their kinds are inherited.
    pub fn copy_words(&mut self, parent: u32, child: u32, range: VaRange) -> Result<(), EngineError> {
        for (va, word) in self.words(parent, range) {
            match word {
                EntryWord::Swap(slot) => {
                    let swap = self.swap().expect("a slot is one of the swap area");
                    swap.share(slot).into_iter().for_each(|frame| self.pages.share(frame));
                    self.put_word(child, va, word)?;
                }
                // The child has an owner's number of its own.
                EntryWord::Armed(_) => {}
            }
        }
        Ok(())
    }
}
