//! Files that exist in memory only: tmpfs, `memfd_create`, System V shared memory, and shared anonymous memory.
//!
//! Models: such a file has a page only where something was written or touched. Elsewhere it has a hole, and the first
//! access to a hole adds a zeroed page. So the page cache holds all data of the file, and nothing else does.
//! Source: Linux mm/shmem.c (`shmem_get_folio_gfp`, `shmem_fault`).
//! Deviations: a page takes a frame when it is first mapped, and gives it back when no mapping covers it any more. That
//! it holds data stays known. So what only `write(2)` has filled takes no memory.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::page_ranges::PageRanges;
use pagelab_base::addr::Pfn;

/// The number of the file that all shared anonymous memory of a layer is part of. A mapping's place in it is
/// [`Os::shared_bytes`](crate::os::Os).
pub const SHARED_ANONYMOUS: u32 = u32::MAX;

/// One file.
#[derive(Clone, Debug, Default)]
struct MemoryFile {
    /// Pages that hold data.
    data: PageRanges,
    /// Frames of those that have one.
    frames: BTreeMap<u64, Pfn>,
}

/// All such files of a layer, by number.
#[derive(Clone, Debug)]
pub struct MemoryFiles {
    files: FxHashMap<u32, MemoryFile>,
    frames: u64,
}

impl Default for MemoryFiles {
    fn default() -> Self {
        let files = FxHashMap::from_iter([(SHARED_ANONYMOUS, MemoryFile::default())]);
        Self { files, frames: 0 }
    }
}

impl MemoryFiles {
    /// Whether a file exists in memory only.
    pub fn contains(&self, file: u32) -> bool {
        self.files.contains_key(&file)
    }

    /// Makes a file one that exists in memory only. Pages hold data if an earlier [`Self::add_data`] says so.
    pub fn add(&mut self, file: u32) {
        self.files.entry(file).or_default();
    }

    /// Pages of a file hold data from now on.
    pub fn add_data(&mut self, file: u32, pages: Range<u64>) {
        self.files.entry(file).or_default().data.add(pages);
    }

    /// Whether a page of a file holds data.
    pub fn has_data(&self, file: u32, page: u64) -> bool {
        self.files.get(&file).is_some_and(|state| state.data.contains(page))
    }

    /// A page of a file has a frame, and data, from now on.
    pub fn set_frame(&mut self, file: u32, page: u64, frame: Pfn) {
        let state = self.files.entry(file).or_default();
        state.data.add(page..page + 1);
        state.frames.insert(page, frame);
        self.frames += 1;
    }

    /// Whether one of these pages has a frame.
    pub fn has_frames(&self, file: u32, pages: &Range<u64>) -> bool {
        self.files.get(&file).is_some_and(|state| state.frames.range(pages.clone()).next().is_some())
    }

    /// Takes the frames of these pages away; returns the pages with their frames.
    pub fn take_frames(&mut self, file: u32, pages: Range<u64>) -> Vec<(u64, Pfn)> {
        let Some(state) = self.files.get_mut(&file).filter(|_| !pages.is_empty()) else { return Vec::new() };
        let taken: Vec<(u64, Pfn)> = state.frames.range(pages).map(|(&page, &frame)| (page, frame)).collect();
        taken.iter().for_each(|(page, _)| _ = state.frames.remove(page));
        self.frames -= taken.len() as u64;
        taken
    }

    /// These pages hold no data any more.
    pub fn remove_data(&mut self, file: u32, pages: Range<u64>) {
        if let Some(state) = self.files.get_mut(&file) {
            state.data.remove(pages);
        }
    }

    /// Frames of all files.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}
