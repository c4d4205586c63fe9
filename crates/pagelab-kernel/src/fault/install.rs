//! The end of a fault's work on a page: its translation is written.

use super::work::Work;
use super::{Fault, FaultState, PageSize};
use crate::effects::Effects;
use crate::locks::TaskId;
use crate::os::Os;
use crate::vma::VaRange;
use pagelab_base::addr::PhysAddr;
use pagelab_base::error::EngineError;
use pagelab_base::step::Next;
use pagelab_tables::page_table::{Leaf, Mapping};

impl Fault {
    /// Writes the PTE, and those of the pages around or of the rest of a folio. False if what was to be mapped has left
    /// memory meanwhile: the fault has to look again. Errors: the page table is full.
    pub(super) fn install(&mut self, os: &mut Os, effects: &mut Effects) -> Result<bool, EngineError> {
        let context = self.context(os);
        let (space, page) = (self.space.index, self.page);
        let leaf = self.leaf(os);
        self.present_to = self.end();
        let layer = self.layer(os);
        let mapped = match (self.work, leaf) {
            (Work::Cached { file, page: number }, _) => self.map_cached(layer, file, number)?,
            (Work::Reuse, Leaf::Present(old)) => {
                layer.remap(space, page, Mapping { flags: self.flags, ..old });
                1
            }
            (Work::SwapIn | Work::SwapCached, _) => self.map_swapped(layer)?,
            (_, Leaf::Present(old)) => {
                layer.remap(space, page, self.mapping());
                layer.put_page(context, &old);
                effects.invalidate(self.space, VaRange { start: page, end: self.end() });
                1
            }
            (Work::Shared { page: number, present }, _) => self.map_shared(layer, number, present)?,
            (Work::Ready, _) => {
                layer.map_ready(context, space, page, self.mapping())?;
                1
            }
            (_, Leaf::NotPresent { .. }) => self.map_fresh(layer)?,
        };
        if mapped == 0 {
            return Ok(false);
        }
        let layer = self.layer(os);
        if self.work.allocates() {
            for n in 0..1 << (self.order - self.size.order()) {
                layer.list_page(&Mapping { pfn: self.frame + n, ..self.mapping() });
            }
        }
        self.count_mapped(os, mapped);
        Ok(true)
    }

    /// With the lock of the page-table page: writes the entry. Says what is to be done instead of going on, if it must.
    pub(super) fn commit_install(
        &mut self,
        os: &mut Os,
        effects: &mut Effects,
        task: TaskId,
        entry: PhysAddr,
    ) -> Result<Result<FaultState, Next>, EngineError> {
        let context = self.context(os);
        if let Work::Copy { .. } = self.work {
            let (placement, mut memory) = os.layers[self.space.layer].placing(context);
            placement.copied(self.space.index, self.va, &mut memory);
        }
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

    pub(super) fn mapping(&self) -> Mapping {
        Mapping { pfn: self.frame, size: self.size, flags: self.flags }
    }

    fn count_mapped(&mut self, os: &mut Os, mapped: u64) {
        let (work, exception, size, order) = (self.work, self.exception, self.size, self.order);
        let counters = self.counters(os);
        match work {
            Work::ZeroPage => counters.zero_page += 1,
            Work::Copy { .. } => counters.copied += 1,
            Work::Reuse => counters.reused += 1,
            Work::Cached { .. } => {
                (counters.cached, counters.around) = (counters.cached + 1, counters.around + mapped - 1);
            }
            Work::Fresh if size == PageSize::Size4K && order > 0 => counters.folios[order as usize] += 1,
            _ => {}
        }
        counters.populated += if exception { 0 } else { mapped };
        counters.pages[size as usize] += mapped;
    }
}
