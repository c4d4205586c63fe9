//! Routing of a fault: choosing the kind of work that its page needs, from the result of the walk.
//!
//! A walk begins where a translation cache says ([`super::cached_walk`]). Its result and the VMA decide the
//! [`FaultWork`]: for anonymous memory ([`super::anonymous`]), for a file ([`super::file`]), for a present page that
//! must be copied ([`super::copy`]), or for a page in the swap area ([`super::swap`]).

use super::{Fault, FaultState};
use crate::entry_word::EntryWord;
use crate::fault::work::{FaultWork, is_file};
use crate::fault_engine::kernel_side::EngineState;
use crate::locks::TaskId;
use crate::os::Os;
use crate::vma::VaRange;
use pagelab_base::addr::{PageSize, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::page_fault::Intent;
use pagelab_base::step::{BlockKey, Next};
use pagelab_tables::page_table::{Leaf, WalkList};

impl Fault {
    /// Chooses the work for the page at `va`, given the result of a walk; `None` if it can be accessed by now.
    pub(super) fn choose(&mut self, os: &mut Os, leaf: &Leaf) -> Result<Option<FaultWork>, EngineError> {
        let (zero_page, around) = (os.costs.zero_page.0, os.costs.fault_around_bytes.0);
        let layer = self.layer(os);
        let vma = layer.spaces[self.request.space.index].vmas.find(self.request.va);
        let vma = vma.expect("mappings do not change during a fault").clone();
        let level = match *leaf {
            Leaf::Present(mapping) if mapping.flags.writable || self.request.intent != Intent::Store => {
                return Ok(None);
            }
            Leaf::Present(mapping) => {
                if layer.mechanisms.engine.as_ref().is_some_and(EngineState::maps_files) {
                    self.progress.accounted += layer.account_for_taken(self.request.space.index);
                }
                return Ok(Some(self.choose_for_present(layer, &vma, mapping)));
            }
            Leaf::NotPresent { level, .. } => level,
        };
        self.target.set_size(self.target.largest, self.request.va);
        self.held.contend_at(self.target.key_order, &self.request);
        self.target.shrink_to(level, self.request.va);
        self.target.flags.writable = vma.prot.write;
        // Linux installs writable anonymous pages dirty (`do_anonymous_page`: pte_mkwrite(pte_mkdirty)).
        self.target.flags.dirty = vma.prot.write;
        let whole = VaRange { start: self.target.page, end: self.target.page + self.target.size.bytes() };
        let word = layer.word_behind(self.request.space.index, self.request.va, leaf);
        let is_of_page = word.is_some_and(|entry| entry.size == self.target.size);
        if self.target.size > PageSize::Size4K && !is_of_page && layer.has_words(self.request.space.index, whole) {
            self.target.set_size(PageSize::Size4K, self.request.va);
        }
        match word.map(|entry| entry.word) {
            Some(EntryWord::Swap(slot)) => return Ok(Some(self.choose_for_swapped(layer, slot))),
            Some(EntryWord::Armed(_)) if layer.serves_faults() && !layer.has_engine_off(self.request.space.index) => {
                return Ok(Some(FaultWork::Ready));
            }
            Some(EntryWord::Armed(_) | EntryWord::Stored(_)) | None => {}
        }
        if self.target.size == PageSize::Size4K
            && let Some(file) = layer.memory_file(&vma)
        {
            return Ok(Some(self.choose_for_memory_file(layer, &vma, file, around)));
        }
        if is_file(&vma) {
            return self.choose_for_file(layer, &vma, around).map(Some);
        }
        let work = self.choose_anonymous(layer, &vma, zero_page);
        let takes = layer.takes_in_faults() && !layer.has_engine_off(self.request.space.index);
        let ready = work == FaultWork::Fresh && self.target.order == 0 && takes;
        Ok(Some(if ready && layer.is_served(self.request.space.index, self.request.va) {
            FaultWork::Ready
        } else {
            work
        }))
    }

    /// The key of a file's page that must be read, since it may be in the middle of being written.
    fn written(&self, os: &Os, work: FaultWork) -> Option<BlockKey> {
        let FaultWork::Read { file, page } = work else { return None };
        let layer = self.request.space.layer;
        let storage = os.layers[layer].storage()?;
        Some(BlockKey::Writeback { layer, lba: storage.lba(file, page) })
    }

    /// Chooses the work and takes the page's key, when the PTE has been reached, `by` a walk or from the one before it.
    /// Returns the next state, or what the handler must do instead of continuing.
    pub(super) fn commit_walk(
        &mut self,
        os: &mut Os,
        task: TaskId,
        by: FaultState,
    ) -> Result<Result<FaultState, Next>, EngineError> {
        let context = self.context(os);
        self.target.skips_policy = false;
        let mut list = WalkList::new();
        self.walk(os, &mut list);
        if by == FaultState::Walk {
            self.counters(os).walks += 1;
            self.note_walk(os, &list)?;
        }
        let leaf = list.leaf;
        let Some(work) = self.choose(os, &leaf)? else {
            if let Leaf::Present(there) = leaf {
                self.progress.present_to =
                    VirtAddr((self.request.va.0 & !there.size.offset_mask()) + there.size.bytes());
            }
            if self.request.exception && !self.progress.counted {
                (self.progress.counted, self.progress.further) = (true, 0);
                self.counters(os).raced += 1;
            }
            return Ok(Err(self.page_done(os, task)));
        };
        if let Some(why) = self.refused_work(os, work, &leaf) {
            return Ok(Ok(self.fall_back(os, task, why)));
        }
        if let Some(key) = self.written(os, work).filter(|&key| os.locks.is_held(key)) {
            self.progress.state = by;
            return Ok(Err(Next::Block(key)));
        }
        if !os.locks.acquire(self.held.key, task) {
            self.progress.state = by;
            return Ok(Err(Next::Block(self.held.key)));
        }
        (self.held.page, self.progress.work) = (true, work);
        self.progress.kind = work.kind(matches!(leaf, Leaf::Present(_)), self.request.intent == Intent::Store);
        if let FaultWork::Read { file, .. } = work {
            self.note_miss(os, file);
        }
        Ok(Ok(match (work, leaf) {
            (FaultWork::Split, _) => {
                let space = self.request.space.index;
                let frame = self.layer(os).take_split_table(context, space)?;
                FaultState::Split { frame }
            }
            (_, Leaf::Present(_)) => self.after_tables(os),
            (_, Leaf::NotPresent { .. }) => self.next_table(os)?,
        }))
    }
}
