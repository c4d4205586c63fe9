//! With `--check`: what every frame and every block of storage holds of files, as tags. A page that a program sees must have been read
//! from its own block, with all that has been stored there since.
//!
//! What moves contents tells of it: a device's reads and writes, stores of programs to pages of files that they share. A page's tag is
//! its block, and the number of the last store to it.

use rustc_hash::FxHashMap;

use crate::base::addr::{Pfn, VirtAddr};
use crate::base::io::Lba;
use crate::kernel::layer::Layer;

/// What a frame holds: a block's contents, as of its last store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    lba: Lba,
    store: u64,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    frames: FxHashMap<Pfn, Tag>,
    /// The last store of what is on its way to storage, and of what is there; blocks that were never written are left out.
    writing: FxHashMap<Lba, u64>,
    written: FxHashMap<Lba, u64>,
    /// What programs have stored last.
    stored: FxHashMap<Lba, u64>,
    stores: u64,
}

impl Contents {
    /// A device has read a block into a frame.
    pub fn read(&mut self, lba: Lba, frame: Pfn) {
        let store = self.written.get(&lba).copied().unwrap_or(0);
        self.frames.insert(frame, Tag { lba, store });
    }

    /// A frame is to be written to its block.
    pub fn begin_write(&mut self, frame: Pfn) {
        if let Some(&Tag { lba, store }) = self.frames.get(&frame) {
            self.writing.insert(lba, store);
        }
    }

    /// A block has been written.
    pub fn end_write(&mut self, lba: Lba) {
        if let Some(store) = self.writing.remove(&lba) {
            self.written.insert(lba, store);
        }
    }

    /// A program stores to a frame.
    fn store(&mut self, frame: Pfn) {
        if let Some(tag) = self.frames.get_mut(&frame) {
            self.stores += 1;
            tag.store = self.stores;
            self.stored.insert(tag.lba, self.stores);
        }
    }

    /// What is wrong with a frame that is to hold a block.
    fn difference(&self, lba: Lba, frame: Pfn) -> Option<String> {
        let expected = Tag { lba, store: self.stored.get(&lba).copied().unwrap_or(0) };
        match self.frames.get(&frame) {
            Some(&tag) if tag == expected => None,
            Some(tag) => Some(format!("{frame:?} holds {tag:?}, and {expected:?} was to be seen")),
            None => Some(format!("{frame:?} holds nothing of storage, and {expected:?} was to be seen")),
        }
    }
}

impl Layer {
    /// A page of a file has come into a frame. Only with `--check`.
    pub fn note_read(&mut self, file: u32, page: u64, frame: Pfn) {
        let storage = self.reclaim.as_ref().and_then(|reclaim| reclaim.storage.as_ref());
        if let (Some(contents), Some(storage)) = (&mut self.contents, storage) {
            contents.read(storage.lba(file, page), frame);
        }
    }

    /// A program loads from or stores to an address that is translated to `frame`: says what is wrong with what it sees.
    pub fn access_contents(&mut self, index: u32, va: VirtAddr, frame: Pfn, store: bool) -> Option<String> {
        let (file, page) = self.file_page(index, va)?;
        let lba = self.reclaim.as_ref()?.storage.as_ref()?.lba(file, page);
        let of_engine = || self.engine.as_ref().is_some_and(|engine| engine.has_mapped(index, va));
        // Others are copies, or nothing of storage.
        if self.pages.cached(file, page) != Some(frame) && !of_engine() {
            return None;
        }
        let contents = self.contents.as_mut()?;
        let wrong = contents.difference(lba, frame);
        if store {
            contents.store(frame);
        }
        wrong.map(|what| format!("{va:?} of space {index} of `{}`: {what}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_to_hold_what_was_stored_last() {
        let mut contents = Contents::default();
        let (lba, frame, other) = (Lba(5), Pfn(9), Pfn(10));
        assert!(contents.difference(lba, frame).is_some(), "it was never read");
        contents.read(lba, frame);
        assert_eq!(contents.difference(lba, frame), None);
        assert!(contents.difference(Lba(6), frame).is_some(), "it is another block");
        contents.store(frame);
        assert_eq!(contents.difference(lba, frame), None);
        contents.read(lba, other);
        assert!(contents.difference(lba, other).is_some(), "what was stored is not on storage");
        contents.begin_write(frame);
        contents.read(lba, other);
        assert!(contents.difference(lba, other).is_some(), "it is on its way there");
        contents.end_write(lba);
        contents.read(lba, other);
        assert_eq!(contents.difference(lba, other), None);
    }
}
