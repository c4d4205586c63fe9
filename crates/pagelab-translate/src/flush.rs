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
        self.units[core].flush_units(asid);
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
        what.ranges.iter().for_each(|range| unit.invalidate_units(asid, range.start, range.end));
        self.mmu_caches.cache(core, layer).flush(asid);
    }
}
