//! Dropping translations: what a core does when address spaces change or end.

use pagelab_base::ids::LayerId;
use pagelab_kernel::invalidation::Invalidation;
use pagelab_tables::mmu_cache::Asid;

use crate::hardware::Hardware;

impl Hardware {
    /// Drops what a core holds of a space.
    pub fn flush_space(&mut self, core: usize, layer: LayerId, asid: Asid) {
        self.flush_own(core, layer, asid);
        if self.mmu_caches.are_common() {
            self.mmu_caches.cache(core, layer).flush(asid);
        }
    }

    /// Drops what a core has to itself of a space, whose PCID there is to be another's: a cache of all cores tells
    /// address spaces apart by more than a core's PCIDs.
    pub fn flush_own(&mut self, core: usize, layer: LayerId, asid: Asid) {
        let unit = &mut self.units[core];
        for tlb in [&mut unit.l1d, &mut unit.l1i, &mut unit.l2] {
            tlb.flush(asid);
        }
        unit.next_page.iter_mut().for_each(|next| next.flush(asid));
        unit.guest.iter_mut().for_each(|guest| guest.flush(asid));
        if !self.mmu_caches.are_common() {
            self.mmu_caches.cache(core, layer).flush(asid);
        }
    }

    /// Drops the translations of a space that have changed.
    pub fn drop_translations(&mut self, core: usize, layer: LayerId, asid: Asid, what: &Invalidation) {
        if what.full {
            return self.flush_space(core, layer, asid);
        }
        let unit = &mut self.units[core];
        for tlb in [&mut unit.l1d, &mut unit.l1i, &mut unit.l2] {
            what.ranges.iter().for_each(|range| tlb.invalidate(asid, range.start, range.end));
        }
        if let Some(next) = &mut unit.next_page {
            what.ranges.iter().for_each(|range| next.invalidate(asid, range.start, range.end));
        }
        if let Some(guest) = &mut unit.guest {
            what.ranges.iter().for_each(|range| guest.invalidate(asid, range.start, range.end));
        }
        self.mmu_caches.cache(core, layer).flush(asid);
    }
}
