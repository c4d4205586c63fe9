//! Faults on mappings of files: pages of the page cache, fault-around, and pages that must be read first.

use crate::effects::Effects;
use crate::entry_word::EntryWord;
use crate::fault::work::{FaultWork, pages};
use crate::layer::Layer;
use crate::os::Os;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{FRAME_BYTES, Pfn};
use pagelab_base::error::EngineError;
use pagelab_base::page_fault::Intent;
use pagelab_base::step::BlockKey;
use pagelab_tables::page_table::Mapping;

use super::Fault;
use super::read_ahead::window;

impl Fault {
    /// Chooses the work for a page of a file's mapping.
    pub(super) fn choose_for_file(
        &mut self,
        layer: &mut Layer,
        vma: &Vma,
        around: u64,
    ) -> Result<FaultWork, EngineError> {
        let context = self.context_in(layer);
        let store = self.request.intent == Intent::Store;
        let file = layer.memory.page_use.file(vma.file.as_ref().expect("it is of a file"));
        let page = vma.file_page(self.request.va);
        if layer.must_be_read(context, file, page) {
            return Ok(FaultWork::Read { file, page });
        }
        let within = vma.file_pages();
        let frame = layer.cached_page(context, file, page, &within)?;
        if store && !vma.is_shared() {
            return Ok(FaultWork::Copy { from: frame });
        }
        // Until the first store, a writable page is clean (shared) or not yet a copy (private).
        (self.target.flags.writable, self.target.flags.dirty) = (store, store);
        (self.target.frame, self.target.around) =
            (frame, VaRange { start: self.target.page, end: self.target.page + FRAME_BYTES });
        if !store {
            self.target.around = window(&layer.spaces[self.request.space.index].table, vma, self.request.va, around);
            for page in pages(self.target.around).map(|at| vma.file_page(at)) {
                if !layer.must_be_read(context, file, page) {
                    layer.cached_page(context, file, page, &within)?;
                }
            }
        }
        Ok(FaultWork::Cached { file, page })
    }

    /// Maps a page of the page cache and those pages around it that are in the cache. Returns the number of mapped
    /// pages; 0 if the page itself is not in the cache.
    pub(super) fn map_cached(&mut self, layer: &mut Layer, file: u32, number: u64) -> Result<u64, EngineError> {
        let context = self.context_in(layer);
        let Some(frame) = layer.memory.page_use.cached(file, number) else { return Ok(0) };
        self.note_hits(layer, file);
        self.target.frame = frame;
        layer.memory.page_use.unmark(frame);
        let space = self.request.space.index;
        let mut mapped = 0;
        for at in pages(self.target.around) {
            let number = number.wrapping_add(at.page_number()).wrapping_sub(self.target.page.page_number());
            let mut present = !layer.is_unmapped(space, at);
            if !present
                && let Some(pfn) = layer.memory.page_use.cached(file, number)
                && !layer.memory.page_use.is_marked(pfn)
                && layer.word(space, at).is_none_or(|entry| matches!(entry.word, EntryWord::Stored(_)))
            {
                layer.take_word(space, at);
                layer.map(context, space, at, Mapping { pfn, ..self.target.mapping() })?;
                (present, mapped) = (true, mapped + 1);
            }
            if present && at == self.progress.present_to {
                self.progress.present_to = at + FRAME_BYTES;
            }
        }
        // Another fault may have mapped the page itself by now.
        Ok(mapped.max(1))
    }

    /// Allocates frames for those pages of a file that are read together and are not in memory; returns them with their
    /// page numbers, for [`Self::finish_read`].
    pub(super) fn take_window(&mut self, os: &mut Os, file: u32, page: u64) -> Vec<(u64, Pfn)> {
        let context = self.context(os);
        let bytes = os.costs.read_ahead_bytes.0;
        let va = self.request.va;
        let layer = &mut os.layers[self.request.space.layer];
        let vma = layer.spaces[self.request.space.index].vmas.find(va).expect("mappings do not change during a fault");
        debug_assert_eq!(vma.file_page(va), page);
        let mut window = self.read_window(vma, page, bytes);
        if layer.is_served(self.request.space.index, va) {
            // The fault engine handles the pages around it.
            window = page..page + 1;
        }
        let mut taken: Vec<(u64, Pfn)> = Vec::new();
        let (id, locks) = (self.request.space.layer, &os.locks);
        let is_written = |layer: &Layer, number| {
            let lba = layer.storage().expect("pages are read from storage").lba(file, number);
            locks.is_held(BlockKey::Writeback { layer: id, lba })
        };
        // The page itself first, in case there is no room for all.
        for number in std::iter::once(page).chain(window.clone().filter(|&number| number != page)) {
            let is_new = |layer: &Layer, n| !taken.iter().any(|&(other, _)| other == n) && !is_written(layer, n);
            if layer.memory.page_use.cached(file, number).is_none()
                && is_new(layer, number)
                && let Some(folio) = layer.take_cache_folio(context, file, number, &window, &is_new)
            {
                taken.extend(folio.pages());
            }
        }
        taken.iter().for_each(|&(number, _)| layer.memory.page_use.begin_read(file, number));
        taken
    }

    /// Handles the end of a read of pages of a file. Removes the word of the missing page's entry, so that an engine
    /// does not read the page again before the fault maps it.
    pub(super) fn finish_read(&mut self, os: &mut Os, effects: &mut Effects, file: u32, read: &[(u64, Pfn)]) {
        let context = self.context(os);
        let (space, page) = (self.request.space.index, self.target.page);
        let storage = os.layers[self.request.space.layer].storage().expect("pages are read from storage");
        let came = read.iter().filter(|&&(number, _)| !storage.is_unwritten(file, number));
        let came: Vec<Pfn> = came.map(|&(_, frame)| frame).collect();
        came.into_iter().for_each(|frame| effects.note_page_read(self.request.space.layer, frame));
        let layer = self.layer(os);
        if let Some(EntryWord::Stored(_)) = layer.word(space, page).map(|entry| entry.word) {
            layer.take_word(space, page);
        }
        for &(number, frame) in read {
            layer.memory.page_use.end_read(file, number);
            layer.note_read(file, number, frame);
            if layer.memory.page_use.cached(file, number).is_some() {
                // Another handler was faster.
                layer.free_block(context, frame, 0);
            } else {
                layer.cache_page(file, number, frame);
            }
        }
    }
}
