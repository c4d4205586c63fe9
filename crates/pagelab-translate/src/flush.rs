//! Invalidating translations when address spaces change or end.

use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, LayerId};
use pagelab_kernel::invalidation::Invalidation;
use pagelab_tables::mmu_cache::Asid;

use crate::hardware::Hardware;
use crate::translation_unit::CoreLines;

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

    /// Drops all translations of a space from the stages that all cores share. Cores that flush a space for themselves
    /// do not: these stages follow every shootdown at once.
    pub fn flush_shared(&mut self, asid: Asid) {
        self.shared_stages.iter_mut().for_each(|stage| stage.flush(asid));
    }

    /// Drops the translations of a space that have changed from the stages that all cores share; `by` is the core that
    /// does so. Returns the cycles of its references.
    pub fn drop_shared(&mut self, by: CoreId, asid: Asid, what: &Invalidation) -> Cycles {
        if what.full {
            self.flush_shared(asid);
            return Cycles::ZERO;
        }
        let (_, shared, mut lines) = self.stages_of(by);
        let mut spent = Cycles::ZERO;
        for stage in shared {
            for range in &what.ranges {
                spent += stage.invalidate(asid, range.start, range.end, &mut lines);
            }
        }
        spent
    }

    /// Drops the translations of a space that have changed from a core.
    pub fn drop_translations(&mut self, core: CoreId, layer: LayerId, asid: Asid, what: &Invalidation) {
        if what.full {
            return self.flush_space(core, layer, asid);
        }
        let bypass = (!self.kernel_refs).then_some(self.l1_latency);
        let (unit, mut lines) = (&mut self.units[core], CoreLines::new(&mut self.caches, core, bypass));
        what.ranges.iter().for_each(|range| unit.invalidate_units(asid, range.start, range.end, &mut lines));
        let cache = self.mmu_caches.cache(core, layer);
        cache.flush_with_page(asid);
        what.segments.iter().for_each(|range| cache.invalidate_segments(asid, range.start, range.end));
    }
}
