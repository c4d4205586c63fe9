//! Read-ahead: how much of a file is read together with a page that a mapping misses.
//!
//! Models: by default, pages around the missing one are read; for a mapping that is read sequentially, pages from it
//! on; for one that is read at random, the page alone. If mappings of a file are missed much more often than hit, each
//! page is read alone. A miss counts up; a page that is found in memory, or by fault-around, counts down.
//! Source: Linux mm/filemap.c (`do_sync_mmap_readahead`, `do_async_mmap_readahead`, `filemap_map_pages`;
//! `file_ra_state.mmap_miss`).
//! Parameters: `kernel.read_ahead_bytes`, `kernel.fault_around_bytes`.
//! Deviations: Linux counts per opened file, which a trace does not distinguish. Here, each address space has one count
//! per file: a file that a process opens twice counts as one, and a forked child starts at 0 instead of sharing its
//! parent's count. Pages that were active and came back after reclaim (`PG_workingset`) count down like others, which
//! Linux 6.12 excludes. A page that is found in memory and then copied does not count. No page is marked to trigger the
//! next read when it is used (`PG_readahead`), so a program that reads a file sequentially misses once per window.

use std::ops::Range;

use super::{Fault, Intent};
use crate::fault::work::pages;
use crate::layer::Layer;
use crate::os::Os;
use crate::vma::{OrderAdvice, VaRange, Vma};
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, VirtAddr};
use pagelab_base::ids::SpaceIx;
use pagelab_tables::page_table::PageTable;

impl Layer {
    /// Counts the pages of a mapping that are in memory as hits, if the file has misses.
    fn count_hits(&mut self, space: SpaceIx, vma: &Vma, file: u32, around: VaRange) {
        if self.spaces[space].misses.count(file) > 0 {
            let hits =
                pages(around).filter(|&at| self.memory.page_use.cached(file, vma.file_page(at)).is_some()).count();
            self.spaces[space].misses.hit(file, hits as u32);
        }
    }
}

impl Fault {
    /// Counts a page of a file that must be read, and decides whether it is read alone.
    pub(super) fn note_miss(&mut self, os: &mut Os, file: u32) {
        let around = os.costs.fault_around_bytes.0;
        let (space, va, load) = (self.request.space.index, self.request.va, self.request.intent != Intent::Store);
        let layer = self.layer(os);
        let vma = layer.spaces[space].vmas.find(va).expect("mappings do not change during a fault").clone();
        if load && around > FRAME_BYTES {
            let window = window(&layer.spaces[space].table, &vma, va, around);
            layer.count_hits(space, &vma, file, window);
        }
        let normal = vma.advice.order == OrderAdvice::Normal;
        self.target.alone = normal && !layer.spaces[space].misses.miss(file);
    }

    /// Counts pages of a file that have been found in memory and are about to be mapped.
    pub(super) fn note_hits(&self, layer: &mut Layer, file: u32) {
        // Pages that the fault has just read only count as hits with fault-around.
        let space = &layer.spaces[self.request.space.index];
        if space.misses.count(file) > 0 && (self.target.around.pages() > 1 || !self.progress.major) {
            let vma = space.vmas.find(self.request.va).expect("mappings do not change during a fault").clone();
            layer.count_hits(self.request.space.index, &vma, file, self.target.around);
        }
    }

    /// The pages of a file that are read with the one at `va`, limited to the mapping; as page numbers in the file.
    pub(super) fn read_window(&self, vma: &Vma, page: u64, bytes: u64) -> Range<u64> {
        let ahead = bytes >> FRAME_SHIFT;
        let Range { start: first, end } = vma.file_pages();
        match vma.advice.order {
            OrderAdvice::Random => page..page + 1,
            OrderAdvice::Sequential => page..(page + ahead).min(end),
            OrderAdvice::Normal if self.target.alone => page..page + 1,
            OrderAdvice::Normal => {
                let start = page.saturating_sub(ahead / 2).max(first);
                start..(start + ahead).max(page + 1).min(end)
            }
        }
    }
}

/// The window of `bytes` around `va`. It begins at a multiple of its size, with the VMA or with the range of one
/// page-table page, and ends at the latest with the range of that page (Linux `do_fault_around`).
pub(super) fn window(table: &PageTable, vma: &Vma, va: VirtAddr, bytes: u64) -> VaRange {
    let (first, end) = table.leaf_table_range(va);
    let start = (va.0 & !(bytes - 1)).max(vma.start.0).max(first.0);
    let end = (start + bytes).min(vma.end.0).min(end.0);
    VaRange { start: VirtAddr(start), end: VirtAddr(end) }
}
