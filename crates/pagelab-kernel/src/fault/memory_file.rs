//! Faults on files that exist in memory only, and on shared anonymous memory.

use super::Fault;
use super::read_ahead::window;
use crate::fault::work::{FaultWork, pages};
use crate::layer::Layer;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::FRAME_BYTES;
use pagelab_base::error::EngineError;
use pagelab_base::page_fault::Intent;

impl Fault {
    /// A page of a mapping of such a file. Those around a page that is read are mapped with it if they hold data.
    pub(super) fn choose_for_memory_file(&mut self, layer: &mut Layer, vma: &Vma, file: u32, around: u64) -> FaultWork {
        let context = self.context_in(layer);
        let store = self.request.intent == Intent::Store;
        let page = vma.file_page(self.request.va);
        let frame = layer.memory_page(context, file, page);
        if let Some(from) = frame
            && self.copies(vma)
        {
            return FaultWork::Copy { from };
        }
        // Nothing has to be told of the first store to a shared page, so it is writable at once.
        (self.target.flags.writable, self.target.flags.dirty) = (vma.is_shared() && vma.prot.write, store);
        self.target.around = VaRange { start: self.target.page, end: self.target.page + FRAME_BYTES };
        if !store && vma.maps_around() {
            self.target.around = window(&layer.spaces[self.request.space.index].table, vma, self.request.va, around);
            for page in pages(self.target.around).map(|at| vma.file_page(at)) {
                layer.memory_page(context, file, page);
            }
        }
        match frame {
            Some(frame) => {
                self.target.frame = frame;
                FaultWork::Cached { file, page }
            }
            None => FaultWork::Hole { file, page },
        }
    }

    /// Whether the page is not to be mapped itself, but a private copy of it.
    fn copies(&self, vma: &Vma) -> bool {
        self.request.intent == Intent::Store && !vma.is_shared()
    }

    /// Fills a hole of a file with the fault's zeroed frame, and maps it; returns how many pages are mapped, 0 if the
    /// page is yet to be copied.
    pub(super) fn fill_hole(&mut self, layer: &mut Layer, file: u32, page: u64) -> Result<u64, EngineError> {
        let context = self.context_in(layer);
        if layer.memory.page_use.cached(file, page).is_some() {
            // Another process was faster.
            layer.free_block(context, self.target.frame, 0);
        } else {
            layer.memory.page_use.cache(file, page, self.target.frame);
        }
        let vma = layer.spaces[self.request.space.index].vmas.find(self.request.va);
        if self.copies(vma.expect("mappings do not change during a fault")) {
            return Ok(0);
        }
        self.map_cached(layer, file, page)
    }
}
