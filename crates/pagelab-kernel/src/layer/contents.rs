//! Contents of frames and blocks of storage, as tags, for `--check`. A page that a program reads must have been read
//! from its own block, with everything that has been stored there since; a page that truncation has emptied must hold
//! zeros.
//!
//! Everything that moves contents reports it: reads and writes of devices, stores of programs to shared pages of files,
//! truncation of files, and file systems that move blocks.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::frames::page_use::FilePage;
use crate::layer::Layer;
use crate::page_ranges::PageRanges;
use pagelab_base::addr::{Pfn, VirtAddr};
use pagelab_base::ids::SpaceIx;
use pagelab_base::io::Lba;

/// Contents of a frame or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// The initial contents of a block.
    Original(Lba),
    /// A page after a store.
    Stored {
        /// The page of a file.
        page: FilePage,
        /// Number of the last store to it, counted over all pages.
        store: u64,
    },
    /// Zeros: a page that no block holds, or that truncation has emptied.
    Zeros,
    /// The contents have moved elsewhere.
    Moved,
}

/// The contents, see the module's text.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The page in each frame, and its contents.
    frames: FxHashMap<Pfn, (FilePage, Tag)>,
    /// Contents that are being written to blocks, and contents of blocks; blocks that are not listed have their initial
    /// contents.
    writing: FxHashMap<Lba, Tag>,
    blocks: FxHashMap<Lba, Tag>,
    /// Contents that programs should see, for pages that they have stored to and pages whose blocks have moved.
    expected: FxHashMap<FilePage, Tag>,
    /// By file: pages that truncation or a hole has emptied.
    cut: FxHashMap<u32, PageRanges>,
    stores: u64,
}

impl Contents {
    fn block(&self, lba: Lba) -> Tag {
        self.blocks.get(&lba).copied().unwrap_or(Tag::Original(lba))
    }

    /// Records that a device has read a page's block into a frame.
    pub fn read(&mut self, page: FilePage, lba: Lba, frame: Pfn) {
        self.frames.insert(frame, (page, self.block(lba)));
    }

    /// Records that a page without a block is filled with zeros.
    fn clear(&mut self, page: FilePage, frame: Pfn) {
        self.frames.insert(frame, (page, Tag::Zeros));
    }

    /// Records that a write of a frame to a block begins.
    pub fn begin_write(&mut self, lba: Lba, frame: Pfn) {
        if let Some(&(_, tag)) = self.frames.get(&frame) {
            self.writing.insert(lba, tag);
        }
    }

    /// Records that a block has been written.
    pub fn end_write(&mut self, lba: Lba) {
        if let Some(tag) = self.writing.remove(&lba) {
            self.blocks.insert(lba, tag);
        }
    }

    /// Records that a program stores to a frame.
    fn store(&mut self, frame: Pfn) {
        if let Some((page, tag)) = self.frames.get_mut(&frame) {
            self.stores += 1;
            *tag = Tag::Stored { page: *page, store: self.stores };
            self.expected.insert(*page, *tag);
        }
    }

    /// Records that pages were cut out of a file.
    pub fn cut(&mut self, file: u32, pages: Range<u64>) {
        self.expected.retain(|&(owner, page), _| owner != file || !pages.contains(&page));
        self.cut.entry(file).or_default().add(pages);
    }

    /// Records that pages' contents moved to other blocks.
    pub fn relocate(&mut self, moves: impl Iterator<Item = (FilePage, Lba, Lba)>) {
        let moved: Vec<(FilePage, Lba, Lba, Tag)> =
            moves.map(|(page, from, to)| (page, from, to, self.block(from))).collect();
        for &(_, from, ..) in &moved {
            self.blocks.insert(from, Tag::Moved);
        }
        for (page, _, to, tag) in moved {
            self.blocks.insert(to, tag);
            if !self.is_cut(page) {
                self.expected.entry(page).or_insert(tag);
            }
        }
    }

    fn is_cut(&self, (file, page): FilePage) -> bool {
        self.cut.get(&file).is_some_and(|pages| pages.contains(page))
    }

    /// What is wrong with a frame that should hold a page with this block, if anything.
    fn difference(&self, page: FilePage, lba: Lba, frame: Pfn) -> Option<String> {
        let untouched = if self.is_cut(page) { Tag::Zeros } else { Tag::Original(lba) };
        let expected = self.expected.get(&page).copied().unwrap_or(untouched);
        match self.frames.get(&frame) {
            Some(&(_, tag)) if tag == expected => None,
            Some((_, tag)) => Some(format!("{frame:?} holds {tag:?} instead of {expected:?}")),
            None => Some(format!("{frame:?} holds no contents of storage instead of {expected:?}")),
        }
    }
}

impl Layer {
    /// Records that a page of a file was brought into a frame. Only with `--check`.
    pub fn note_read(&mut self, file: u32, page: u64, frame: Pfn) {
        let Some(mut contents) = self.memory.checked.take() else { return };
        if let Some(storage) = self.storage() {
            if storage.is_unwritten(file, page) {
                contents.clear((file, page), frame);
            } else {
                contents.read((file, page), storage.lba(file, page), frame);
            }
        }
        self.memory.checked = Some(contents);
    }

    /// Records that an engine has read a block into a frame, for the page of a file at an address. Only with `--check`.
    pub fn check_read(&mut self, index: SpaceIx, va: VirtAddr, lba: Lba, frame: Pfn) {
        if let Some(mut contents) = self.memory.checked.take() {
            contents.read(self.file_page(index, va).expect("it is one of a file's mapping"), lba, frame);
            self.memory.checked = Some(contents);
        }
    }

    /// Checks an access of a program to an address that translates to `frame`. Returns what is wrong with the contents,
    /// if anything.
    pub fn access_contents(&mut self, index: SpaceIx, va: VirtAddr, frame: Pfn, store: bool) -> Option<String> {
        let (file, page) = self.file_page(index, va)?;
        let lba = self.storage()?.lba(file, page);
        let of_engine = || self.mechanisms.engine.as_ref().is_some_and(|engine| engine.has_mapped(index, va));
        // Other frames are copies, or do not come from storage.
        if self.memory.page_use.cached(file, page) != Some(frame) && !of_engine() {
            return None;
        }
        let contents = self.memory.checked.as_mut()?;
        let wrong = contents.difference((file, page), lba, frame);
        if store {
            contents.store(frame);
        }
        wrong.map(|what| format!("{va:?} of space {index} of `{}`: {what}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: FilePage = (3, 8);
    const LBA: Lba = Lba(5);

    #[test]
    fn a_page_has_the_contents_stored_last() {
        let mut contents = Contents::default();
        let (frame, other) = (Pfn(9), Pfn(10));
        assert!(contents.difference(PAGE, LBA, frame).is_some(), "it was never read");
        contents.read(PAGE, LBA, frame);
        assert_eq!(contents.difference(PAGE, LBA, frame), None);
        assert!(contents.difference((3, 9), Lba(6), frame).is_some(), "it is another block");
        contents.store(frame);
        assert_eq!(contents.difference(PAGE, LBA, frame), None);
        contents.read(PAGE, LBA, other);
        assert!(contents.difference(PAGE, LBA, other).is_some(), "what was stored is not on storage");
        contents.begin_write(LBA, frame);
        contents.read(PAGE, LBA, other);
        assert!(contents.difference(PAGE, LBA, other).is_some(), "it is on its way there");
        contents.end_write(LBA);
        contents.read(PAGE, LBA, other);
        assert_eq!(contents.difference(PAGE, LBA, other), None);
    }

    #[test]
    fn a_moved_page_is_read_from_its_new_place_and_a_truncated_one_not_at_all() {
        let (mut contents, frame, to) = (Contents::default(), Pfn(9), Lba(7));
        contents.relocate([(PAGE, LBA, to)].into_iter());
        contents.read(PAGE, LBA, frame);
        assert!(contents.difference(PAGE, to, frame).is_some(), "it is no more there");
        contents.read(PAGE, to, frame);
        assert_eq!(contents.difference(PAGE, to, frame), None);
        contents.cut(3, 8..u64::MAX);
        assert!(contents.difference(PAGE, to, frame).is_some(), "what was cut is not to be seen again");
        contents.clear(PAGE, frame);
        assert_eq!(contents.difference(PAGE, to, frame), None);
        contents.store(frame);
        assert_eq!(contents.difference(PAGE, to, frame), None);
        contents.relocate([(PAGE, to, LBA)].into_iter());
        contents.begin_write(LBA, frame);
        contents.end_write(LBA);
        contents.read(PAGE, LBA, frame);
        assert_eq!(contents.difference(PAGE, LBA, frame), None);
    }
}
