//! Faults on mapped pages that may not be written: copies, pages that are not shared, large pages to be split.

use super::Fault;
use crate::effects::Effects;
use crate::fault::work::FaultWork;
use crate::layer::Layer;
use crate::os::Os;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{PageSize, Pfn};
use pagelab_tables::page_table::{Leaf, Mapping, PteFlags};
use pagelab_trace::MapFlags;

impl Fault {
    /// Chooses the work for a write-protected page.
    pub(super) fn choose_for_present(&mut self, layer: &mut Layer, vma: &Vma, mapping: Mapping) -> FaultWork {
        self.target.set_size(mapping.size, self.request.va);
        self.held.contend_at(self.target.order, &self.request);
        let reuse = vma.is_shared() || layer.memory.page_use.are_exclusive(mapping.pfn, self.target.order);
        if reuse {
            self.target.frame = mapping.pfn;
        }
        self.target.flags = PteFlags { writable: true, dirty: true, ..mapping.flags };
        match () {
            () if reuse => FaultWork::Reuse,
            () if mapping.pfn == layer.memory.page_use.zero_page() => FaultWork::Fresh,
            // Explicit huge pages are copied whole (`hugetlb_wp`), others in parts (`do_huge_pmd_wp_page`).
            () if self.target.size > PageSize::Size4K && !vma.flags.contains(MapFlags::HUGETLB) => FaultWork::Split,
            () => FaultWork::Copy { from: mapping.pfn },
        }
    }

    /// Splits the large page that the walk found, unless it is gone.
    pub(super) fn split(&mut self, os: &mut Os, effects: &mut Effects, frame: Pfn) {
        let context = self.context(os);
        let (space, page, size) = (self.request.space.index, self.target.page, self.target.size);
        let leaf = self.leaf(os);
        let layer = self.layer(os);
        if matches!(leaf, Leaf::Present(mapping) if mapping.size == size) {
            layer.split_page(space, page, frame);
            effects.invalidate(self.request.space, VaRange { start: page, end: page + size.bytes() });
            self.counters(os).split += 1;
        } else {
            layer.memory_for(context).free(frame, 0);
        }
    }
}
