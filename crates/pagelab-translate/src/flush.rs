//! Invalidating translations when address spaces change or end.

use pagelab_base::ids::{CoreId, LayerId};
use pagelab_kernel::invalidation::Invalidation;
use pagelab_tables::mmu_cache::Asid;

use crate::hardware::Hardware;

impl Hardware {
    /// Drops all translations of a space from a core.
    pub fn flush_space(&mut self, core: CoreId, layer: LayerId, asid: Asid) {
        self.flush_own(core, layer, asid);
        if self.mmu_caches.are_common() {
            self.mmu_caches.cache(core, layer).flush(asid);
        }
    }

    /// Drops the translations of a space that a core holds for itself, before the core reuses the space's PCID. An MMU
    /// cache shared by all cores keeps its entries: it does not rely on a core's PCIDs to tell address spaces apart.
    pub fn flush_own(&mut self, core: CoreId, layer: LayerId, asid: Asid) {
        self.units[core].flush_units(asid);
        if !self.mmu_caches.are_common() {
            self.mmu_caches.cache(core, layer).flush(asid);
        }
    }

    /// Drops the translations of a space that have changed from a core.
    pub fn drop_translations(&mut self, core: CoreId, layer: LayerId, asid: Asid, what: &Invalidation) {
        if what.full {
            return self.flush_space(core, layer, asid);
        }
        let unit = &mut self.units[core];
        what.ranges.iter().for_each(|range| unit.invalidate_units(asid, range.start, range.end));
        let cache = self.mmu_caches.cache(core, layer);
        cache.flush_with_page(asid);
        what.segments.iter().for_each(|range| cache.invalidate_segments(asid, range.start, range.end));
    }
}
