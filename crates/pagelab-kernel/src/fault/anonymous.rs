//! Faults on untouched anonymous memory: zeroed frames, folios and the zero page.

use super::Fault;
use crate::fault::work::{FaultWork, gets_large_pages, pages};
use crate::layer::Layer;
use crate::vma::{VaRange, Vma, VmaKind};
use pagelab_base::addr::{FRAME_BYTES, PageSize, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::page_fault::Intent;
use pagelab_tables::page_table::Mapping;
use pagelab_trace::MapFlags;

impl Fault {
    /// Chooses the work for a missing page of anonymous memory.
    pub(super) fn choose_anonymous(&mut self, layer: &mut Layer, vma: &Vma, zero_page: bool) -> FaultWork {
        let untouched =
            self.request.intent != Intent::Store && !vma.is_shared() && !vma.flags.contains(MapFlags::WRITTEN_BEFORE);
        if zero_page && untouched && self.target.size == PageSize::Size4K && vma.kind != VmaKind::Special {
            (self.target.flags.writable, self.target.flags.dirty) = (false, false);
            self.target.frame = layer.memory.page_use.zero_page();
            return FaultWork::ZeroPage;
        }
        if self.target.size == PageSize::Size4K && !vma.is_shared() && self.gets_folios(layer, vma) {
            let most = layer.paging.folio_orders.last().copied().unwrap_or(0);
            self.set_folio(layer, vma, most);
        }
        FaultWork::Fresh
    }

    /// Whether several pages may be mapped at once; with eager paging, only pages that are mapped ahead.
    fn gets_folios(&self, layer: &Layer, vma: &Vma) -> bool {
        if layer.paging.blocks_ahead {
            !self.request.exception && layer.spaces[self.request.space.index].uses_placement
        } else {
            gets_large_pages(vma, layer.paging.large_pages)
        }
    }

    /// Sets the target to a folio: the largest of the layer's orders up to `most` that lies inside the VMA and whose
    /// pages are all unmapped (Linux `alloc_anon_folio`); a single page if there is none.
    pub(super) fn set_folio(&mut self, layer: &mut Layer, vma: &Vma, most: u32) {
        let space = self.request.space.index;
        let free = |layer: &mut Layer, start: u64, end: u64| {
            let range = VaRange { start: VirtAddr(start), end: VirtAddr(end) };
            !layer.has_words(space, range) && pages(range).all(|at| layer.is_unmapped(space, at))
        };
        let orders: Vec<u32> = layer.paging.folio_orders.iter().copied().filter(|&order| order <= most).collect();
        let fits = orders.into_iter().rev().find(|&order| {
            let start = self.request.va.0 & !((FRAME_BYTES << order) - 1);
            let end = start + (FRAME_BYTES << order);
            vma.start.0 <= start && end <= vma.end.0 && free(layer, start, end)
        });
        self.target.order = fits.unwrap_or(0);
        self.target.page = VirtAddr(self.request.va.0 & !((FRAME_BYTES << self.target.order) - 1));
    }

    /// Maps the fault's frame or folio where nothing is mapped; returns the number of entries written.
    pub(super) fn map_fresh(&mut self, layer: &mut Layer) -> Result<u64, EngineError> {
        let context = self.context_in(layer);
        let (space, page) = (self.request.space.index, self.target.page);
        // Each page of a folio has a PTE; a large page has one.
        let ptes = 1_u64 << (self.target.order - self.target.size.order());
        // Only a copy of a page that others have read back has a word; folios and large pages are mapped where there is
        // none.
        let word = layer.take_word(space, page);
        for n in 0..ptes {
            let pfn = self.target.frame + n;
            layer.map(context, space, page + n * FRAME_BYTES, Mapping { pfn, ..self.target.mapping() })?;
        }
        word.into_iter().for_each(|entry| layer.release_word(context, entry.word));
        Ok(ptes)
    }
}
