//! The page cache of a layer: which pages of files are in memory, and in which folios they are brought in.
//!
//! Models: a page is brought in with a folio, the largest of the layer's sizes that lies inside the readable range and
//! contains no cached page; otherwise alone. A warm cache contains every page that has not been reclaimed, and
//! allocates its frame at the first request. Other pages are read from storage, one window at a time.
//! Source: Linux mm/readahead.c (`page_cache_ra_order`), mm/filemap.c (`__filemap_get_folio`), mm/memory.c.
//! Parameters: `system.layers.NAME.file_folios`, `kernel.page_cache`, `kernel.storage`, `kernel.read_ahead_bytes`.
//! Stats: `layer.NAME.file_folios.*`.
//! Deviations: in Linux the file system chooses the sizes. A stream of read(2) starts with small folios and enlarges
//! them as it proceeds, but reads around a fault are in single pages. A trace has no read(2), so here each read uses
//! the largest folio that fits. The pages of a folio age and are reclaimed one by one.

use std::ops::Range;

use crate::context::KernelContext;
use crate::frames::frame_alloc::FramePurpose;
use crate::layer::Layer;
use crate::reclaim::{Full, LruPageKind, Storage};
use crate::vma::VaRange;
use pagelab_base::addr::{PageSize, Pfn};
use pagelab_base::error::EngineError;
use pagelab_base::ids::SpaceIx;
use pagelab_trace::quantity::format_bytes;

/// A block for consecutive pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFolio {
    /// Number of its first page in the file.
    pub page: u64,
    pub pfn: Pfn,
    pub order: u32,
}

impl CacheFolio {
    /// Its page numbers in the file, with their frames.
    pub fn pages(self) -> impl Iterator<Item = (u64, Pfn)> {
        (0..1 << self.order).map(move |n| (self.page + n, self.pfn + n))
    }
}

impl Layer {
    /// The storage of files, if the layer has any.
    pub fn storage(&self) -> Option<&Storage> {
        self.memory.reclaim.as_ref()?.storage.as_ref()
    }

    /// Whether a page of a file must be read from storage. A warm cache holds as much as fits into memory. Unwritten
    /// blocks are not read.
    pub fn must_be_read(&self, context: KernelContext, file: u32, page: u64) -> bool {
        if self.memory.page_use.memory_files().contains(file) {
            return false;
        }
        let storage = self.storage();
        let crowded = || storage.is_some() && self.is_short(context, 0);
        self.memory.page_use.cached(file, page).is_none()
            && (self.memory.page_use.is_on_storage(file, page) || crowded())
            && !storage.is_some_and(|storage| storage.is_unwritten(file, page))
    }

    /// The frame of a page of a file that is in memory; brings the page into the page cache if necessary, possibly with
    /// other pages `within` a range.
    pub fn cached_page(
        &mut self,
        context: KernelContext,
        file: u32,
        page: u64,
        within: &Range<u64>,
    ) -> Result<Pfn, EngineError> {
        if let Some(frame) = self.memory.page_use.cached(file, page) {
            return Ok(frame);
        }
        let in_memory = |layer: &Self, page| !layer.must_be_read(context, file, page);
        let folio = loop {
            if let Some(folio) = self.take_cache_folio(context, file, page, within, &in_memory) {
                break folio;
            }
            if !self.deflate_at_once(context) {
                return Err(self.out_of_memory("the page cache"));
            }
        };
        for (page, frame) in folio.pages() {
            self.note_read(file, page, frame);
            self.cache_page(file, page, frame);
        }
        Ok(folio.pfn + page - folio.page)
    }

    /// Assigns blocks of the layer's storage to a mapping's pages of a file. Errors: storage is full.
    pub fn lay_out(&mut self, index: SpaceIx, range: VaRange) -> Result<(), EngineError> {
        let vma = self.spaces[index].vmas.find(range.start);
        let Some((vma, name)) = vma.and_then(|vma| Some((vma, vma.file.as_ref()?))) else { return Ok(()) };
        if vma.is_of_memory_file() {
            let file = self.memory.page_use.file(name);
            self.memory.page_use.memory_files_mut().add(file);
            return Ok(());
        }
        let Some(storage) = self.memory.reclaim.as_mut().and_then(|reclaim| reclaim.storage.as_mut()) else {
            return Ok(());
        };
        let file = self.memory.page_use.file(name);
        storage.lay_out(file, vma.file_pages()).map_err(|Full { capacity, needed }| {
            let each = storage.striping.bytes_each(needed);
            let what = format!(
                "the device holds {}, but the mapped files take {} with `{name}`; allowed are at least {}{}, or none for a device \
                 without a limit",
                format_bytes(capacity),
                format_bytes(needed),
                format_bytes(each),
                if each < needed { " of each drive, in whole chunks" } else { "" }
            );
            EngineError::config("kernel.storage.capacity_bytes", what)
        })
    }

    /// Allocates a block for a page of a file and its neighbours, as far as they are `within` the range, not in the
    /// cache, and `wanted`.
    pub fn take_cache_folio(
        &mut self,
        context: KernelContext,
        file: u32,
        page: u64,
        within: &Range<u64>,
        wanted: &dyn Fn(&Self, u64) -> bool,
    ) -> Option<CacheFolio> {
        let fits = |layer: &Self, order: u32| {
            let (start, end) = (page >> order << order, (page >> order << order) + (1 << order));
            let free = |n| layer.memory.page_use.cached(file, n).is_none() && wanted(layer, n);
            within.start <= start && end <= within.end && !layer.is_short(context, order) && (start..end).all(free)
        };
        let orders: Vec<u32> =
            self.paging.file_folio_orders.iter().rev().copied().filter(|&order| fits(self, order)).collect();
        orders.into_iter().chain([0]).find_map(|order| {
            let pfn = self.memory.frames.alloc(order, FramePurpose::PageCache, context.cpu)?;
            if let Some(reclaim) = self.memory.reclaim.as_mut().filter(|reclaim| reclaim.storage.is_some()) {
                reclaim.charge(pfn, order, context.group);
            }
            self.memory.page_use.count_folio(order);
            Some(CacheFolio { page: page >> order << order, pfn, order })
        })
    }

    /// Adds a frame with a page of a file to the page cache.
    pub fn cache_page(&mut self, file: u32, page: u64, frame: Pfn) {
        self.memory.page_use.cache(file, page, frame);
        if let Some(reclaim) = &mut self.memory.reclaim
            && reclaim.storage.is_some()
        {
            reclaim.add(frame, PageSize::Size4K.order(), LruPageKind::File);
        }
    }
}
