//! Free blocks of a zone that are isolated, reported to a host, and put back.
//!
//! # Source
//! Linux 6.1 `mm/page_reporting.c`: `page_reporting_process_zone`, `page_reporting_drain`; `mm/page_alloc.c`:
//! `__isolate_free_page`.

use super::super::{AllocEffects, MigrateType, ReportPass};
use super::zone::Zone;
use pagelab_base::addr::Pfn;

impl Zone {
    /// [`FreeArea::isolate_unreported`](super::super::free_area::FreeArea), unless the zone is short of memory. A
    /// pageblock of which at least half is isolated becomes movable.
    pub(super) fn isolate_unreported(&mut self, pass: &mut ReportPass, effects: &mut AllocEffects) -> bool {
        let order = self.area.report_order();
        if !pass.in_zone && !pass.may_begin(self.area.free_frames(), self.watermarks.low, order) {
            return false;
        }
        let (known, ix) = (pass.batch.len(), self.ix);
        let mut lock = |effects: &mut AllocEffects| effects.zone_locks.push(ix);
        let more = self.area.isolate_unreported(pass, self.watermarks.min, effects, &mut lock);
        for &(first, order) in &pass.batch[known..] {
            self.used_frames += 1 << order;
            if order + 1 >= self.pageblock_order {
                let index = self.area.index(first);
                let blocks = (index..index + (1 << order)).step_by(1 << self.pageblock_order);
                blocks.for_each(|block| self.set_pageblock(block, MigrateType::Movable));
            }
        }
        more
    }

    /// Puts blocks back, all under one lock.
    pub(super) fn put_back_reported(&mut self, blocks: &[(Pfn, u32)], effects: &mut AllocEffects) {
        effects.zone_locks.push(self.ix);
        for &(first, order) in blocks {
            let index = self.area.used_index(first, order);
            self.used_frames -= 1 << order;
            let list = self.pageblock(index);
            self.area.put_back(index, order, list, effects);
        }
    }
}
