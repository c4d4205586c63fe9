//! A layer's fault engine as its kernel sees it: entries that are armed, and pages that the engine has mapped.

use crate::base::addr::VirtAddr;
use crate::base::error::EngineError;
use crate::engine::kernel_side::{Job, Taken};
use crate::kernel::entry_word::{Armed, EntryWord};
use crate::kernel::layer::Layer;
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
        for (va, word) in self.words(index, range) {
            if let EntryWord::Armed(_) = word {
                self.take_word(index, va);
                if let Some(armed) = self.armed(index, va) {
                    self.put_word(index, va, EntryWord::Armed(armed))?;
                }
            }
        }
        Ok(())
    }

    /// Accounts for all pages of a space that its engine has mapped; `is_busy` says of a page (4 KiB number) that it is about to be
    /// mapped. Returns how many there were.
    pub fn account_for_taken(&mut self, index: u32, is_busy: &dyn Fn(u64) -> bool) -> u64 {
        let Some(engine) = &mut self.engine else { return 0 };
        let taken = engine.take_used(index, is_busy, &mut self.mem);
        let pages = taken.len() as u64;
        taken.into_iter().for_each(|page| self.account(index, page));
        pages
    }

    /// Enters a page that the engine has mapped in the reverse map and the LRU lists, and charges it.
    pub fn account(&mut self, index: u32, Taken { va, frame }: Taken) {
        let mut list = WalkList::new();
        self.spaces[index as usize].table.walk(&self.mem, va, &mut list);
        let Leaf::Present(mapping) = list.leaf else { unreachable!("{va:?} of space {index} is not mapped") };
        assert_eq!(mapping.pfn, frame, "{va:?} of space {index} is mapped to another frame");
        let group = self.spaces[index as usize].group;
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.charge(frame, 0, group);
        }
        self.note_listed(index, va, &mapping);
    }

    /// Maps a page in a frame that was ready. What the kernel keeps of pages is left to [`Self::account`].
    pub fn map_ready(&mut self, index: u32, va: VirtAddr, mapping: Mapping) -> Result<(), EngineError> {
        self.take_word(index, va);
        self.map_unlisted(index, va, mapping)
    }
}
