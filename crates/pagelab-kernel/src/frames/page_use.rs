//! Who uses a frame of program memory: one page table, several after a fork, the page cache, or everybody (the zero
//! page).
//!
//! Models: what Linux keeps in `struct page` to decide whether a write-protected page may be written in place, and
//! whether a frame is free once a mapping has gone: the map count of anonymous pages, the page cache's own reference,
//! and the zero page's lack of any.
//! Source: Linux mm/memory.c (`do_wp_page`, `wp_can_reuse_anon_folio`, `zap_pte_range`), mm/filemap.c
//! (`filemap_map_pages`).
//! Parameters: `kernel.fault_around_bytes`, `kernel.page_cache`.
//! Deviations: with a page cache that is warm, every page that has not left it counts as being there, and takes a frame
//! when it is first asked for. It cannot tell where a file ends, so the last window of a mapping may get pages that no
//! file has.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use pagelab_base::addr::Pfn;
use pagelab_base::io::Lba;

/// A page of a file: the file's number here, and the page's in the file.
pub type FilePage = (u32, u64);

/// See the module's text.
#[derive(Clone)]
pub struct PageUse {
    /// The frame that untouched anonymous memory reads from.
    zero: Pfn,
    /// Users of an anonymous frame beyond the first; frames of one user are not listed.
    further: FxHashMap<Pfn, u32>,
    files: FxHashMap<Arc<str>, u32>,
    cached: FxHashMap<FilePage, Pfn>,
    /// The same by frame.
    cache_frames: FxHashMap<Pfn, FilePage>,
    /// Shared anonymous memory, by its place in [`Os::shared_bytes`](super::Os), and the same by frame. A page is here
    /// as long as some page table maps it.
    objects: FxHashMap<u64, Pfn>,
    object_frames: FxHashMap<Pfn, u64>,
    /// Whether files must be read before their pages are there.
    pub cold: bool,
    /// By file, the pages that are in the cache or have left it.
    known: Vec<BTreeSet<u64>>,
    /// Blocks that pages of files came in, by order.
    folios: [u64; 10],
    /// Frames of files whose contents storage does not have yet, as far as no PTE says so.
    dirty: FxHashSet<Pfn>,
    /// Pages of files that are being written, and the blocks that they go to (`PG_writeback`).
    writeback: FxHashMap<FilePage, Lba>,
}

/// What becomes of a frame that lost a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStatus {
    /// Nobody uses it.
    Unused,
    /// Others do, or the kernel keeps it.
    Used,
}

impl PageUse {
    /// Nothing is used yet; `zero` is the frame of the zero page.
    pub fn new(zero: Pfn) -> Self {
        Self {
            zero,
            cold: false,
            further: FxHashMap::default(),
            files: FxHashMap::default(),
            cached: FxHashMap::default(),
            cache_frames: FxHashMap::default(),
            objects: FxHashMap::default(),
            object_frames: FxHashMap::default(),
            known: Vec::new(),
            folios: [0; 10],
            dirty: FxHashSet::default(),
            writeback: FxHashMap::default(),
        }
    }

    /// The frame that reads of untouched memory map, in kernels with a zero page.
    pub fn zero_page(&self) -> Pfn {
        self.zero
    }

    /// True for a frame of anonymous memory: neither the zero page nor one of the page cache.
    pub fn is_anonymous(&self, pfn: Pfn) -> bool {
        pfn != self.zero && (self.cache_frames.is_empty() || !self.cache_frames.contains_key(&pfn))
    }

    /// Page tables that map an anonymous frame.
    pub fn users(&self, pfn: Pfn) -> u32 {
        1 + self.further.get(&pfn).copied().unwrap_or(0)
    }

    /// True if each of 2^order anonymous frames is mapped by one page table.
    pub fn are_exclusive(&self, pfn: Pfn, order: u32) -> bool {
        let shared = |n| self.further.contains_key(&Pfn(pfn.0 + n));
        self.is_anonymous(pfn) && (self.further.is_empty() || !(0..1 << order).any(shared))
    }

    /// A frame is free whoever used it: it has left memory.
    pub fn forget_users(&mut self, pfn: Pfn) {
        self.further.remove(&pfn);
    }

    /// Another page table maps the frame.
    pub fn share(&mut self, pfn: Pfn) {
        if self.is_anonymous(pfn) {
            *self.further.entry(pfn).or_insert(0) += 1;
        }
    }

    /// A page table maps the frame no more.
    pub fn unshare(&mut self, pfn: Pfn) -> FrameStatus {
        if !self.is_anonymous(pfn) {
            return FrameStatus::Used;
        }
        if self.further.is_empty() && self.object_frames.is_empty() {
            return FrameStatus::Unused;
        }
        let Some(further) = self.further.get_mut(&pfn) else {
            if let Some(page) = self.object_frames.remove(&pfn) {
                self.objects.remove(&page);
            }
            return FrameStatus::Unused;
        };
        *further -= 1;
        if *further == 0 {
            self.further.remove(&pfn);
        }
        FrameStatus::Used
    }

    /// The frame of a page of shared anonymous memory, if any page table maps it.
    pub fn object(&self, page: u64) -> Option<Pfn> {
        self.objects.get(&page).copied()
    }

    /// True for a frame that holds a page of shared anonymous memory, however many map it.
    pub fn is_object(&self, pfn: Pfn) -> bool {
        self.object_frames.contains_key(&pfn)
    }

    /// A frame holds a page of shared anonymous memory from now on.
    pub fn set_object(&mut self, page: u64, frame: Pfn) {
        self.objects.insert(page, frame);
        self.object_frames.insert(frame, page);
    }

    /// Number of a file.
    pub fn file(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&file) = self.files.get(name) {
            return file;
        }
        self.known.push(BTreeSet::new());
        let file = self.files.len() as u32;
        self.files.insert(name.clone(), file);
        file
    }

    /// The same, if it has one.
    pub fn known_file(&self, name: &Arc<str>) -> Option<u32> {
        self.files.get(name).copied()
    }

    /// The frame of the page cache that holds a page of a file.
    pub fn cached(&self, file: u32, page: u64) -> Option<Pfn> {
        self.cached.get(&(file, page)).copied()
    }

    /// A page of a file is in the page cache from now on.
    pub fn cache(&mut self, file: u32, page: u64, frame: Pfn) {
        let old = self.cached.insert((file, page), frame);
        assert!(old.is_none(), "page {page} of file {file} is cached twice");
        self.cache_frames.insert(frame, (file, page));
        self.known[file as usize].insert(page);
    }

    /// Whether a page of a file that is not in the page cache is on storage alone.
    pub fn is_on_storage(&self, file: u32, page: u64) -> bool {
        self.cold || self.known[file as usize].contains(&page)
    }

    /// A page of a file leaves the page cache; returns which, and whether it must be written.
    pub fn uncache(&mut self, frame: Pfn) -> (FilePage, bool) {
        let page = self.cache_frames.remove(&frame).expect("the frame is in the page cache");
        self.cached.remove(&page);
        (page, self.dirty.remove(&frame))
    }

    /// A page of the page cache differs from what storage has.
    pub fn set_dirty(&mut self, frame: Pfn) {
        if self.cache_frames.contains_key(&frame) {
            self.dirty.insert(frame);
        }
    }

    /// Whether the frame is known to hold a page of a file that storage has not got in this state; a PTE may know more.
    pub fn is_dirty(&self, frame: Pfn) -> bool {
        !self.dirty.is_empty() && self.dirty.contains(&frame)
    }

    /// The page cache and storage have the same of a page, or will have.
    pub fn set_clean(&mut self, frame: Pfn) {
        self.dirty.remove(&frame);
    }

    /// Pages of a file that the page cache remembers as dirty, of these.
    pub fn dirty_pages(&self, file: u32, pages: Range<u64>) -> Vec<(u64, Pfn)> {
        let page = |&frame: &Pfn| self.cache_frames.get(&frame).map(|&of| (of, frame));
        let inside = |&((of, page), _): &(FilePage, Pfn)| of == file && pages.contains(&page);
        self.dirty.iter().filter_map(page).filter(inside).map(|((_, page), frame)| (page, frame)).collect()
    }

    /// A page is being written to a block.
    pub fn begin_write(&mut self, page: FilePage, lba: Lba) {
        let old = self.writeback.insert(page, lba);
        assert!(old.is_none(), "{page:?} is written twice at a time");
    }

    /// The device has written a page.
    pub fn end_write(&mut self, page: FilePage) {
        self.writeback.remove(&page);
    }

    /// The block that the page which a frame holds is being written to, if it is.
    pub fn write_of(&self, frame: Pfn) -> Option<Lba> {
        if self.writeback.is_empty() {
            return None;
        }
        self.writeback.get(self.cache_frames.get(&frame)?).copied()
    }

    /// The block that the first of these pages is being written to that is.
    pub fn written_back(&self, file: u32, pages: &Range<u64>) -> Option<Lba> {
        let inside = self.writeback.iter().filter(|&(&(of, page), _)| of == file && pages.contains(&page));
        inside.min_by_key(|&(&of, _)| of).map(|(_, &lba)| lba)
    }

    /// Pages of a file from one on leave the page cache, and what they held is nowhere. Returns their frames.
    pub fn cut(&mut self, file: u32, first: u64) -> Vec<Pfn> {
        let cut = self.known[file as usize].split_off(&first);
        let frames: Vec<Pfn> = cut.into_iter().filter_map(|page| self.cached.remove(&(file, page))).collect();
        for frame in &frames {
            self.cache_frames.remove(frame);
            self.dirty.remove(frame);
        }
        frames
    }

    /// Pages of a file get a block.
    pub fn count_folio(&mut self, order: u32) {
        self.folios[order as usize] += 1;
    }

    /// Blocks of an order that pages of files have got.
    pub fn folios(&self, order: u32) -> u64 {
        self.folios[order as usize]
    }

    /// Frames of the page cache.
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
        assert_eq!(frames.cut(a, 4), [Pfn(14), Pfn(17)], "by their places in the file");
        let left = |file| (0..8).filter(|&n| frames.cached(file, n).is_some()).collect::<Vec<_>>();
        assert_eq!((left(a), left(b).len()), (vec![0, 2, 3], 8));
        let on_storage = (0..8).filter(|&n| frames.cached(a, n).is_none() && frames.is_on_storage(a, n));
        assert_eq!(on_storage.collect::<Vec<_>>(), [1], "what was cut is nowhere");
        assert_eq!(frames.cut(a, 4), []);
    }
}
