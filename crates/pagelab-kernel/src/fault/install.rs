//! The end of a fault's work on a page: writing its translation under the lock of the page-table page.

use super::work::FaultWork;
use super::{Fault, FaultState, PageSize};
use crate::config::SpinLocks;
use crate::effects::Effects;
use crate::locks::TaskId;
use crate::os::Os;
use crate::table_lock::{TableLocked, TableLocking};
use crate::vma::VaRange;
use pagelab_base::addr::PhysAddr;
use pagelab_base::error::EngineError;
use pagelab_base::step::Next;
use pagelab_tables::page_table::{Leaf, Mapping};

impl Fault {
    /// Writes the PTE, and those of the pages around or of the rest of a folio. False if the page has left memory
    /// meanwhile, so that the fault must look again. Errors: the page table is full.
    pub(super) fn install(&mut self, os: &mut Os, effects: &mut Effects) -> Result<bool, EngineError> {
        let context = self.context(os);
        let (space, page) = (self.request.space.index, self.target.page);
        let leaf = self.leaf(os);
        self.progress.present_to = self.target.end();
        let layer = self.layer(os);
        let mapped = match (self.progress.work, leaf) {
            (FaultWork::Cached { file, page: number }, _) => self.map_cached(layer, file, number)?,
            // Another process may have filled it meanwhile, and mapped it in a segment that both share.
            (FaultWork::Hole { file, page: number }, _) => self.fill_hole(layer, file, number)?,
            (FaultWork::Reuse, Leaf::Present(old)) => {
                layer.remap(space, page, Mapping { flags: self.target.flags, ..old });
                1
            }
            (FaultWork::SwapIn | FaultWork::SwapCached, _) => self.map_swapped(layer)?,
            (_, Leaf::Present(old)) => {
                layer.remap(space, page, self.target.mapping());
                layer.put_page(context, &old);
                effects.invalidate(self.request.space, VaRange { start: page, end: self.target.end() });
                1
            }
            (FaultWork::Ready, _) => {
                layer.map_ready(context, space, page, self.target.mapping())?;
                1
            }
            (_, Leaf::NotPresent { .. }) => self.map_fresh(layer)?,
        };
        if mapped == 0 {
            return Ok(false);
        }
        let layer = self.layer(os);
        for segment in layer.take_rewritten_segments(space) {
            effects.invalidate(self.request.space, segment).segments.push(segment);
        }
        if self.progress.work.allocates() {
            for n in 0..1 << (self.target.order - self.target.size.order()) {
                layer.list_page(&Mapping { pfn: self.target.frame + n, ..self.target.mapping() });
            }
        }
        self.count_mapped(os, mapped);
        Ok(true)
    }

    /// Takes the lock of the page-table page, or waits for it.
    pub(super) fn commit_lock(&mut self, os: &mut Os, task: TaskId, locking: TableLocking) -> Result<FaultState, Next> {
        let (entry, queued) = (self.entry(os), os.costs.spin_locks == SpinLocks::Queued);
        let key = self.table_key(os, entry);
        match locking.commit(&mut os.locks, queued, key, task) {
            TableLocked::Holds => {}
            TableLocked::Continues(next) => return Ok(FaultState::Lock(next)),
            TableLocked::Waits(next, key) => {
                self.progress.state = FaultState::Lock(next);
                return Err(Next::Block(key));
            }
        }
        let takes = self.progress.work == FaultWork::Ready && !self.layer(os).takes_in_faults();
        Ok(if takes { FaultState::TakeReady { entry } } else { FaultState::Install { entry } })
    }

    /// Writes the entry, with the lock of the page-table page held. Returns the next state, or what the handler must do
    /// instead of continuing.
    pub(super) fn commit_install(
        &mut self,
        os: &mut Os,
        effects: &mut Effects,
        task: TaskId,
        entry: PhysAddr,
    ) -> Result<Result<FaultState, Next>, EngineError> {
        let context = self.context(os);
        if let FaultWork::Copy { .. } = self.progress.work {
            let (placement, mut memory) = os.layers[self.request.space.layer].placing(context);
            placement.copied(self.request.space.index, self.request.va, &mut memory);
        }
        // Nobody frees a table that a mapping needs, so the one that the handler has found or built is still there.
        self.layer(os).spaces.table_work.lines.clear();
        let installed = self.install(os, effects)?;
        let lines = std::mem::take(&mut self.layer(os).spaces.table_work.lines);
        Ok(Ok(if lines.is_empty() {
            os.locks.release(self.table_key(os, entry), task);
            if installed {
                return Ok(Err(self.page_done(os, task)));
            }
            self.look_again(os, task)
        } else {
            FaultState::Rehash { entry, lines }
        }))
    }

    fn count_mapped(&mut self, os: &mut Os, mapped: u64) {
        let (work, exception, size, order) =
            (self.progress.work, self.request.exception, self.target.size, self.target.order);
        let (cpu, batch) = (self.request.cpu, os.costs.rss_batch);
        self.layer(os).count_resident(cpu, mapped as u32, batch);
        let counters = self.counters(os);
        match work {
            FaultWork::ZeroPage => counters.zero_page += 1,
            FaultWork::Copy { .. } => counters.copied += 1,
            FaultWork::Reuse => counters.reused += 1,
            FaultWork::Cached { .. } => {
                (counters.cached, counters.around) = (counters.cached + 1, counters.around + mapped - 1);
            }
            FaultWork::Hole { .. } => counters.around += mapped - 1,
            FaultWork::Fresh if size == PageSize::Size4K && order > 0 => counters.folios[order as usize] += 1,
            _ => {}
        }
        counters.populated += if exception { 0 } else { mapped };
        counters.pages[size as usize] += mapped;
    }
}
