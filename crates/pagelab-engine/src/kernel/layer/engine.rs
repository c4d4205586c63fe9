//! A layer's fault engine as its kernel sees it: entries that are armed, and pages that the engine has mapped.

use crate::base::addr::{FRAME_SHIFT, PageSize, VirtAddr};
use crate::base::error::EngineError;
use crate::base::ids::SpaceId;
use crate::base::step::BlockKey;
use crate::engine::kernel_side::{Job, Taken};
use crate::kernel::entry_word::{Armed, EntryWord};
use crate::kernel::fault::largest_page;
use crate::kernel::layer::Layer;
use crate::kernel::layer::words::WordOf;
use crate::kernel::vma::VaRange;
use crate::page_table::{Leaf, Mapping, WalkList};

impl Layer {
    /// Whether faults on armed entries get frames that are ready.
    pub fn serves_faults(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| engine.serves_faults())
    }

    /// What stands in the entry of a page until it is mapped, if its engine may map it.
    pub fn armed(&self, index: u32, va: VirtAddr) -> Option<Armed> {
        let engine = self.engine.as_ref()?;
        let space = &self.spaces[index as usize];
        engine.arms(index, space.vmas.find(va).filter(|_| space.served)?)
    }

    /// The entries of a new mapping are to be armed; false if the engine has nothing to do with it.
    pub fn want_armed(&mut self, index: u32, range: VaRange) -> bool {
        let wanted = self.armed(index, range.start).is_some();
        if let Some(engine) = self.engine.as_mut().filter(|_| wanted) {
            engine.want(Job { space: index, range, arm: true });
        }
        wanted
    }

    /// The words of a range whose permissions have changed say so, too.
    pub fn protect_words(&mut self, index: u32, range: VaRange) -> Result<(), EngineError> {
        for WordOf { va, size, word } in self.words(index, range) {
            if let EntryWord::Armed(_) = word {
                self.take_word(index, va);
                self.put_armed(index, va, size)?;
            }
        }
        Ok(())
    }

    /// Arms the entry of a page that was armed before, if its engine may map it. One that it may not map whole is wanted anew.
    /// Entries of a process that is armed no more are not looked for again where a thread has been.
    pub fn put_armed(&mut self, index: u32, va: VirtAddr, size: PageSize) -> Result<(), EngineError> {
        let Some(armed) = self.armed(index, va) else { return Ok(()) };
        let of = WordOf { va, size, word: EntryWord::Armed(armed) };
        let may_be_whole = va.0.is_multiple_of(size.bytes()) && self.largest_page(index, va) >= size;
        if size == PageSize::Size4K || may_be_whole && self.is_untouched(index, va, size) {
            return self.put_word(index, of);
        }
        self.cut.push((index, of.range()));
        Ok(())
    }

    /// The largest page that may be mapped at `va`, by the mapping that it is in; a page of 4 KiB without one.
    pub fn largest_page(&self, index: u32, va: VirtAddr) -> PageSize {
        let vma = self.spaces[index as usize].vmas.find(va);
        vma.map_or(PageSize::Size4K, |vma| largest_page(vma, va, self.large_pages, self.page_size))
    }

    /// What whoever is about to map a page holds: those of a place that may become one large page meet at its first.
    pub fn page_key(&self, space: SpaceId, va: VirtAddr) -> BlockKey {
        let order = self.largest_page(space.index, va).order();
        BlockKey::Page { space, page: va.0 >> FRAME_SHIFT >> order << order }
    }

    /// Accounts for all pages of a space that its engine has mapped. Returns how many there were.
    pub fn account_for_taken(&mut self, index: u32) -> u64 {
        let Some(engine) = &self.engine else { return 0 };
        let mut taken = engine.used_for(index, &self.mem);
        // The others are about to be mapped.
        taken.retain(|page| self.is_mapped_to(index, page));
        for &page in &taken {
            let engine = self.engine.as_mut().expect("it was there just now");
            engine.clear_used(page, &mut self.mem);
            self.account(index, page);
        }
        taken.len() as u64
    }

    /// Whether a page is mapped to the frame that its engine has taken for it.
    fn is_mapped_to(&self, index: u32, page: &Taken) -> bool {
        let mut list = WalkList::new();
        self.spaces[index as usize].table.walk(&self.mem, page.va, &mut list);
        matches!(list.leaf, Leaf::Present(of) if (of.pfn, of.size) == (page.frame, page.size))
    }

    /// Enters a page that the engine has mapped in the reverse map and the LRU lists, and charges it.
    pub fn account(&mut self, index: u32, Taken { va, size, frame, .. }: Taken) {
        let mut list = WalkList::new();
        self.spaces[index as usize].table.walk(&self.mem, va, &mut list);
        let Leaf::Present(mapping) = list.leaf else { unreachable!("{va:?} of space {index} is not mapped") };
        assert_eq!((mapping.pfn, mapping.size), (frame, size), "{va:?} of space {index} is mapped to another frame");
        let group = self.spaces[index as usize].group;
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.charge(frame, size.order(), group);
        }
        self.note_listed(index, va, &mapping);
    }

    /// Maps a page in a frame that was ready. What the kernel keeps of pages is left to [`Self::account`].
    pub fn map_ready(&mut self, index: u32, va: VirtAddr, mapping: Mapping) -> Result<(), EngineError> {
        self.take_word(index, va);
        self.map_unlisted(index, va, mapping)
    }
}
