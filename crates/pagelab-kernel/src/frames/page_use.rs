//! Users of a frame of program memory: one page table, several after a fork, the page cache, or all (the zero page).
//!
//! Models: the contents of Linux's `struct page` that decide whether a write-protected page may be written in place,
//! and whether a frame is free once a mapping is removed: the map count of anonymous pages, and the page cache's own
//! reference. The zero page has neither.
//! Source: Linux mm/memory.c (`do_wp_page`, `wp_can_reuse_anon_folio`, `zap_pte_range`), mm/filemap.c
//! (`filemap_map_pages`).
//! Parameters: `kernel.fault_around_bytes`, `kernel.page_cache`.
//! Deviations: with a warm page cache, every page that has not left it counts as cached, and gets a frame when it is
//! first requested. The page cache does not know where a file ends, so the last window of a mapping may get pages
//! beyond the file's end.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::memory_files::{MemoryFiles, SHARED_ANONYMOUS};
use pagelab_base::addr::Pfn;
use pagelab_base::io::Lba;

/// A page of a file: number of the file in the layer, and of the page in the file.
pub type FilePage = (u32, u64);

/// See the module's text.
#[derive(Clone)]
pub struct PageUse {
    /// The frame that reads of untouched anonymous memory map.
    zero: Pfn,
    /// Number of users of an anonymous frame beyond the first; frames with one user are not listed.
    further: FxHashMap<Pfn, u32>,
    files: FxHashMap<Arc<str>, u32>,
    cached: FxHashMap<FilePage, Pfn>,
    /// The inverse of `cached`.
    cache_frames: FxHashMap<Pfn, FilePage>,
    /// Files that exist in memory only.
    memory_files: MemoryFiles,
    /// Whether the page cache is cold at the start, so that files must be read from storage first.
    pub cold: bool,
    /// By file: the pages that are or were in the cache.
    known: Vec<BTreeSet<u64>>,
    /// Number of blocks allocated for pages of files, by order.
    folios: [u64; 10],
    /// Frames of dirty pages of files, as far as this is not recorded in a PTE only.
    dirty: FxHashSet<Pfn>,
    /// Dirty pages of files that MADV_PAGEOUT has unmapped (`PG_reclaim`).
    marked: FxHashSet<Pfn>,
    /// Pages of files under write-back, with their blocks (`PG_writeback`).
    writeback: FxHashMap<FilePage, Lba>,
    /// Pages of files that page faults are reading, with the number of faults.
    reads: FxHashMap<FilePage, u32>,
}

/// Status of a frame after it lost a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStatus {
    /// The frame has no user left.
    Unused,
    /// The frame has other users, or the kernel keeps it.
    Used,
}

impl PageUse {
    /// No frame is used yet; `zero` is the frame of the zero page.
    pub fn new(zero: Pfn) -> Self {
        Self {
            zero,
            cold: false,
            further: FxHashMap::default(),
            files: FxHashMap::default(),
            cached: FxHashMap::default(),
            cache_frames: FxHashMap::default(),
            memory_files: MemoryFiles::default(),
            known: Vec::new(),
            folios: [0; 10],
            dirty: FxHashSet::default(),
            marked: FxHashSet::default(),
            writeback: FxHashMap::default(),
            reads: FxHashMap::default(),
        }
    }

    /// The frame that reads of untouched memory map in kernels with a zero page.
    pub fn zero_page(&self) -> Pfn {
        self.zero
    }

    /// True for a frame of anonymous memory, which is neither the zero page nor in the page cache.
    pub fn is_anonymous(&self, pfn: Pfn) -> bool {
        pfn != self.zero && (self.cache_frames.is_empty() || !self.cache_frames.contains_key(&pfn))
    }

    /// Number of page tables that map an anonymous frame.
    pub fn users(&self, pfn: Pfn) -> u32 {
        1 + self.further.get(&pfn).copied().unwrap_or(0)
    }

    /// True if each of 2^order anonymous frames is mapped by only one page table.
    pub fn are_exclusive(&self, pfn: Pfn, order: u32) -> bool {
        let shared = |n| self.further.contains_key(&(pfn + n));
        self.is_anonymous(pfn) && (self.further.is_empty() || !(0..1 << order).any(shared))
    }

    /// Forgets all users of a frame, which has left memory.
    pub fn forget_users(&mut self, pfn: Pfn) {
        self.further.remove(&pfn);
    }

    /// Adds a page table that maps the frame.
    pub fn share(&mut self, pfn: Pfn) {
        if self.is_anonymous(pfn) {
            *self.further.entry(pfn).or_insert(0) += 1;
        }
    }

    /// Removes a page table that mapped the frame.
    pub fn unshare(&mut self, pfn: Pfn) -> FrameStatus {
        if !self.is_anonymous(pfn) {
            return FrameStatus::Used;
        }
        if self.further.is_empty() {
            return FrameStatus::Unused;
        }
        let Some(further) = self.further.get_mut(&pfn) else { return FrameStatus::Unused };
        *further -= 1;
        if *further == 0 {
            self.further.remove(&pfn);
        }
        FrameStatus::Used
    }

    /// Files that exist in memory only.
    pub fn memory_files(&self) -> &MemoryFiles {
        &self.memory_files
    }

    /// Files that exist in memory only, mutable.
    pub fn memory_files_mut(&mut self) -> &mut MemoryFiles {
        &mut self.memory_files
    }

    /// Removes the frames of pages of a file in memory from the page cache. That the pages hold data stays known.
    pub fn take_memory_frames(&mut self, file: u32, pages: Range<u64>) -> Vec<Pfn> {
        let taken = self.memory_files.take_frames(file, pages);
        for (page, frame) in &taken {
            self.cached.remove(&(file, *page));
            self.cache_frames.remove(frame);
        }
        taken.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Number of a file, which is assigned on first use.
    pub fn file(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&file) = self.files.get(name) {
            return file;
        }
        self.known.push(BTreeSet::new());
        let file = self.files.len() as u32;
        assert!(file < SHARED_ANONYMOUS, "too many files");
        self.files.insert(name.clone(), file);
        file
    }

    /// Number of a file, if it has one already.
    pub fn known_file(&self, name: &Arc<str>) -> Option<u32> {
        self.files.get(name).copied()
    }

    /// The frame of a page of a file in the page cache.
    pub fn cached(&self, file: u32, page: u64) -> Option<Pfn> {
        self.cached.get(&(file, page)).copied()
    }

    /// Adds a page of a file to the page cache.
    pub fn cache(&mut self, file: u32, page: u64, frame: Pfn) {
        let old = self.cached.insert((file, page), frame);
        assert!(old.is_none(), "page {page} of file {file} is cached twice");
        self.cache_frames.insert(frame, (file, page));
        if self.memory_files.contains(file) {
            self.memory_files.set_frame(file, page, frame);
        } else {
            self.known[file as usize].insert(page);
        }
    }

    /// Notes that a page fault reads a page of a file, until [`Self::end_read`]. In Linux the page is in the page cache
    /// by then, locked (`page_cache_ra_unbounded`).
    pub fn begin_read(&mut self, file: u32, page: u64) {
        *self.reads.entry((file, page)).or_insert(0) += 1;
    }

    /// See [`Self::begin_read`].
    pub fn end_read(&mut self, file: u32, page: u64) {
        let faults = self.reads.get_mut(&(file, page)).expect("a fault reads the page");
        *faults -= 1;
        if *faults == 0 {
            self.reads.remove(&(file, page));
        }
    }

    /// Whether a page fault is reading a page of a file.
    pub fn is_read(&self, file: u32, page: u64) -> bool {
        !self.reads.is_empty() && self.reads.contains_key(&(file, page))
    }

    /// Whether a page of a file that is not in the page cache must be read from storage.
    pub fn is_on_storage(&self, file: u32, page: u64) -> bool {
        self.cold || self.known[file as usize].contains(&page)
    }

    /// Removes a page of a file from the page cache. Returns the page, and whether it must be written.
    pub fn uncache(&mut self, frame: Pfn) -> (FilePage, bool) {
        let page = self.cache_frames.remove(&frame).expect("the frame is in the page cache");
        self.cached.remove(&page);
        self.marked.remove(&frame);
        (page, self.dirty.remove(&frame))
    }

    /// Marks a page of the page cache as dirty: storage has older contents.
    pub fn set_dirty(&mut self, frame: Pfn) {
        if self.cache_frames.contains_key(&frame) && !self.is_of_memory_file(frame) {
            self.dirty.insert(frame);
        }
    }

    /// Whether the frame is known to hold a dirty page of a file; a PTE may have a dirty bit that is not recorded here.
    pub fn is_dirty(&self, frame: Pfn) -> bool {
        !self.dirty.is_empty() && self.dirty.contains(&frame)
    }

    /// Marks a page as clean: it is written to storage, or is being written.
    pub fn set_clean(&mut self, frame: Pfn) {
        self.dirty.remove(&frame);
        self.marked.remove(&frame);
    }

    /// Windows of read faults leave the page out until it is touched or written.
    pub fn mark_for_reclaim(&mut self, frame: Pfn) {
        self.marked.insert(frame);
    }

    /// Whether the page is left out of windows.
    #[inline]
    pub fn is_marked(&self, frame: Pfn) -> bool {
        !self.marked.is_empty() && self.marked.contains(&frame)
    }

    /// The page is touched.
    pub fn unmark(&mut self, frame: Pfn) {
        if !self.marked.is_empty() {
            self.marked.remove(&frame);
        }
    }

    /// Whether a frame holds a page of a file that exists in memory only.
    pub fn is_of_memory_file(&self, frame: Pfn) -> bool {
        self.cache_frames.get(&frame).is_some_and(|&(file, _)| self.memory_files.contains(file))
    }

    /// Pages of a file in this range that the page cache knows to be dirty.
    pub fn dirty_pages(&self, file: u32, pages: Range<u64>) -> Vec<(u64, Pfn)> {
        let page = |&frame: &Pfn| self.cache_frames.get(&frame).map(|&page| (page, frame));
        let inside = |&((owner, page), _): &(FilePage, Pfn)| owner == file && pages.contains(&page);
        self.dirty.iter().filter_map(page).filter(inside).map(|((_, page), frame)| (page, frame)).collect()
    }

    /// Records that a page is being written to a block.
    pub fn begin_write(&mut self, page: FilePage, lba: Lba) {
        let old = self.writeback.insert(page, lba);
        assert!(old.is_none(), "{page:?} is written twice at a time");
    }

    /// Records that the device has written a page.
    pub fn end_write(&mut self, page: FilePage) {
        self.writeback.remove(&page);
    }

    /// The block to which the page in a frame is being written, if it is.
    pub fn write_of(&self, frame: Pfn) -> Option<Lba> {
        if self.writeback.is_empty() {
            return None;
        }
        self.writeback.get(self.cache_frames.get(&frame)?).copied()
    }

    /// The block to which the first page in this range that is under write-back is being written.
    pub fn written_back(&self, file: u32, pages: &Range<u64>) -> Option<Lba> {
        let inside = self.writeback.iter().filter(|&(&(owner, page), _)| owner == file && pages.contains(&page));
        inside.min_by_key(|&(&page, _)| page).map(|(_, &lba)| lba)
    }

    /// Removes pages of a file from the page cache and discards their contents. Returns their frames.
    pub fn cut(&mut self, file: u32, pages: Range<u64>) -> Vec<Pfn> {
        if self.memory_files.contains(file) {
            self.memory_files.remove_data(file, pages.clone());
            return self.take_memory_frames(file, pages);
        }
        let known = &mut self.known[file as usize];
        let cut: Vec<u64> = known.range(pages).copied().collect();
        cut.iter().for_each(|page| _ = known.remove(page));
        let frames: Vec<Pfn> = cut.into_iter().filter_map(|page| self.cached.remove(&(file, page))).collect();
        for frame in &frames {
            self.cache_frames.remove(frame);
            self.dirty.remove(frame);
            self.marked.remove(frame);
        }
        frames
    }

    /// Counts a block that was allocated for pages of files.
    pub fn count_folio(&mut self, order: u32) {
        self.folios[order as usize] += 1;
    }

    /// Number of blocks of an order that were allocated for pages of files.
    pub fn folios(&self, order: u32) -> u64 {
        self.folios[order as usize]
    }

    /// Number of frames in the page cache.
    pub fn cached_frames(&self) -> u64 {
        self.cached.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_unused_when_its_last_user_goes() {
        let mut frames = PageUse::new(Pfn(1));
        assert!(frames.are_exclusive(Pfn(7), 0));
        frames.share(Pfn(7));
        frames.share(Pfn(7));
        assert!(!frames.are_exclusive(Pfn(7), 0) && frames.are_exclusive(Pfn(8), 0));
        assert!(!frames.are_exclusive(Pfn(0), 9) && frames.are_exclusive(Pfn(512), 9));
        assert_eq!(
            [(); 3].map(|()| frames.unshare(Pfn(7))),
            [FrameStatus::Used, FrameStatus::Used, FrameStatus::Unused]
        );
        assert!(frames.are_exclusive(Pfn(7), 0) && frames.further.is_empty());
        frames.share(Pfn(1));
        assert_eq!(
            [frames.unshare(Pfn(1)), frames.unshare(Pfn(1))],
            [FrameStatus::Used; 2],
            "the zero page belongs to all"
        );
        assert!(!frames.are_exclusive(Pfn(1), 0));
    }

    #[test]
    fn the_page_cache_keeps_its_frames() {
        let mut frames = PageUse::new(Pfn(1));
        let (a, b) = (frames.file(&"a".into()), frames.file(&"b".into()));
        assert!(a != b && frames.file(&"a".into()) == a);
        frames.cache(a, 3, Pfn(9));
        assert_eq!((frames.cached(a, 3), frames.cached(b, 3)), (Some(Pfn(9)), None));
        assert!(!frames.are_exclusive(Pfn(9), 0));
        assert_eq!(frames.unshare(Pfn(9)), FrameStatus::Used);
    }

    #[test]
    fn a_cut_takes_what_is_cached_and_forgets_what_has_left() {
        let mut frames = PageUse::new(Pfn(1));
        let (a, b) = (frames.file(&"a".into()), frames.file(&"b".into()));
        for page in 0..8 {
            frames.cache(a, page, Pfn(10 + page));
            frames.cache(b, page, Pfn(20 + page));
        }
        for page in [1, 5, 6] {
            assert_eq!(frames.uncache(Pfn(10 + page)), ((a, page), false));
        }
        assert_eq!(frames.cut(a, 4..u64::MAX), [Pfn(14), Pfn(17)], "by their places in the file");
        let left = |file| (0..8).filter(|&n| frames.cached(file, n).is_some()).collect::<Vec<_>>();
        assert_eq!((left(a), left(b).len()), (vec![0, 2, 3], 8));
        let on_storage = (0..8).filter(|&n| frames.cached(a, n).is_none() && frames.is_on_storage(a, n));
        assert_eq!(on_storage.collect::<Vec<_>>(), [1], "what was cut is nowhere");
        assert_eq!(frames.cut(a, 4..u64::MAX), []);
    }
}
