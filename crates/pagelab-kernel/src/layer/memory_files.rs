//! Mappings of files that exist in memory only, shared anonymous memory among them.

use std::ops::Range;

use crate::context::KernelContext;
use crate::frames::memory_files::SHARED_ANONYMOUS;
use crate::layer::Layer;
use crate::page_ranges::PageRanges;
use crate::vma::{VaRange, Vma, VmaKind};
use pagelab_base::addr::{FRAME_BYTES, Pfn};
use pagelab_base::ids::SpaceIx;
use pagelab_trace::MapFlags;

impl Layer {
    /// The number of the file that a mapping shows, if that file exists in memory only.
    pub fn memory_file(&mut self, vma: &Vma) -> Option<u32> {
        match &vma.file {
            Some(name) if vma.is_of_memory_file() => Some(self.memory.page_use.file(name)),
            _ if vma.is_shared_anonymous() => Some(SHARED_ANONYMOUS),
            _ => None,
        }
    }

    /// The frame of a page of a file in memory. None if the page is a hole, or if a frame is not to be had at once.
    pub fn memory_page(&mut self, context: KernelContext, file: u32, page: u64) -> Option<Pfn> {
        if let Some(frame) = self.memory.page_use.cached(file, page) {
            return Some(frame);
        }
        let has_data = self.memory.page_use.memory_files().has_data(file, page);
        if !has_data || self.memory.pressure(0, context.group).is_some() {
            return None;
        }
        let frame = self.take_page(context, 0)?;
        self.memory.page_use.cache(file, page, frame);
        Some(frame)
    }

    /// Where address spaces map these pages of the file in memory that a mapping shows.
    pub fn places_of_memory_file(&self, vma: &Vma, pages: &Range<u64>) -> Vec<(SpaceIx, VaRange)> {
        let of_space = |index| {
            let others = self.spaces[index].vmas.iter().filter(|other| other.shows_same_memory_file(vma));
            others.filter_map(move |other| Some((index, other.range_of_pages(pages)?)))
        };
        self.spaces.numbers().flat_map(of_space).collect()
    }

    /// A mapping has gone: if it showed a file in memory, frees the frames of its pages that no other mapping shows.
    pub fn release_memory_pages(&mut self, context: KernelContext, vma: &Vma) {
        let Some(file) = self.memory_file(vma) else { return };
        if !self.memory.page_use.memory_files().has_frames(file, &vma.file_pages()) {
            return;
        }
        let mut alone = PageRanges::new(vma.file_pages());
        for other in self.spaces.iter().flat_map(|space| space.vmas.iter()) {
            if other.shows_same_memory_file(vma) {
                alone.remove(other.file_pages());
            }
        }
        for pages in alone.iter() {
            for frame in self.memory.page_use.take_memory_frames(file, pages) {
                self.free_block(context, frame, 0);
            }
        }
    }
}

impl Vma {
    /// Whether it maps a file that exists in memory only.
    pub fn is_of_memory_file(&self) -> bool {
        self.kind == VmaKind::File && self.flags.contains(MapFlags::MEMORY_FILE)
    }

    /// Whether it is memory that processes share without a file.
    pub fn is_shared_anonymous(&self) -> bool {
        self.is_shared() && !(self.kind == VmaKind::File && self.file.is_some())
    }

    /// Whether a store needs a fault of its own even where a load has mapped the page (`vma_wants_writenotify`): files
    /// on storage are written back, so their kernel must know which pages are dirty.
    pub fn notes_first_store(&self) -> bool {
        self.is_shared() && !self.is_of_memory_file() && !self.is_shared_anonymous()
    }

    /// Whether a fault for reading maps pages around its own (`do_fault_around`). System V segments have no
    /// `map_pages` (ipc/shm.c, `shm_vm_ops`).
    pub fn maps_around(&self) -> bool {
        !self.file.as_ref().is_some_and(|name| name.starts_with("/SYSV"))
    }

    /// The addresses of those of these pages of its file that it maps.
    pub fn range_of_pages(&self, pages: &Range<u64>) -> Option<VaRange> {
        let own = self.file_pages();
        let (start, end) = (pages.start.max(own.start), pages.end.min(own.end));
        let va = |page: u64| self.start + (page - own.start) * FRAME_BYTES;
        (start < end).then(|| VaRange { start: va(start), end: va(end) })
    }

    fn shows_same_memory_file(&self, other: &Self) -> bool {
        if other.is_shared_anonymous() {
            self.is_shared_anonymous()
        } else {
            self.is_of_memory_file() && self.file == other.file
        }
    }
}
