//! Faults on mapped pages that may not be written: copies, pages that are not shared, large pages to be split.

use super::Fault;
use crate::effects::Effects;
use crate::fault::work::FaultWork;
use crate::layer::Layer;
use crate::memory::page_metadata;
use crate::os::Os;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, PhysAddr};
use pagelab_base::error::EngineError;
use pagelab_base::step::{RefKind, Step};
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

    /// Plans a split, without the entries that are written one by one.
    pub(super) fn plan_split(&self, os: &Os, frame: Option<Pfn>, step: &mut Step) {
        if let Some(frame) = frame {
            step.kernel(RefKind::Zero { bytes: FRAME_BYTES }, frame.addr());
            step.kernel(RefKind::Write, page_metadata(frame));
        }
        step.kernel(RefKind::Locked, self.entry(os));
    }

    /// Splits the large page that the walk found, unless it is gone. Returns the lines of entries written one by one.
    pub(super) fn split(
        &mut self,
        os: &mut Os,
        effects: &mut Effects,
        frame: Option<Pfn>,
    ) -> Result<Vec<PhysAddr>, EngineError> {
        let context = self.context(os);
        let (space, page, size) = (self.request.space.index, self.target.page, self.target.size);
        let leaf = self.leaf(os);
        let layer = self.layer(os);
        if !matches!(leaf, Leaf::Present(mapping) if mapping.size == size) {
            frame.into_iter().for_each(|frame| layer.memory_for(context).free(frame, 0));
            return Ok(Vec::new());
        }
        let lines = layer.split_page(context, space, page, frame)?;
        effects.invalidate(self.request.space, VaRange { start: page, end: page + size.bytes() });
        self.counters(os).split += 1;
        Ok(lines)
    }
}
