//! Storage: the blocks of files on a device.
//!
//! Models: extents. When a program maps a part of a file for the first time, the part gets consecutive blocks behind
//! all blocks handed out before; if it continues the file's last extent, it extends that. A truncated file keeps the
//! blocks behind its new end; from then on they are unwritten: their pages need not be read until they have been
//! written. Pages that the file system moves get other blocks, first of all those that earlier moves released.
//! Source: Linux fs/ext4/extents.c (`ext4_ext_map_blocks`, unwritten extents), fs/ext4/move_extent.c, for a file system
//! on which files were written one after the other.
//! Parameters: `kernel.storage`.
//! Deviations: blocks of a truncated file are not given to others, so a device never gets too full to write a page.
//! Metadata of the file system costs nothing, since it is in memory.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::frames::page_use::FilePage;
use crate::page_ranges::PageRanges;
use pagelab_base::addr::FRAME_BYTES;
use pagelab_base::io::{DeviceRequest, Lba, Striping};
use pagelab_hardware::device::{BlockDevice, Clock, DeviceConfig};

/// Consecutive blocks.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: Lba,
    pages: u64,
}

/// Consecutive pages of a file in consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// Number of the first page in its file.
    pub page: u64,
    /// The block of the first page.
    pub first: Lba,
    /// Number of pages (4 KiB, as the blocks).
    pub pages: u64,
}

/// Error: the device has too few blocks for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Capacity of the device, in bytes.
    pub capacity: u64,
    /// Capacity that it would need, in bytes.
    pub needed: u64,
}

/// See the module's text.
#[derive(Clone)]
pub struct Storage {
    /// The drives of the blocks.
    pub device: BlockDevice,
    /// Distribution of the blocks over the drives.
    pub striping: Striping,
    /// Number of blocks, and number of blocks handed out.
    blocks: u64,
    given: u64,
    /// By file and number of the first page.
    extents: BTreeMap<FilePage, Extent>,
    /// Blocks that files have released.
    free: VecDeque<Extent>,
    /// By file: pages whose blocks are unwritten, since they were cut out of it.
    unwritten: FxHashMap<u32, PageRanges>,
}

impl Storage {
    /// A device without files. If it has no stated capacity, it has as many blocks as are needed.
    pub fn new(config: &DeviceConfig, clock: Clock) -> Self {
        let blocks = config.capacity().map_or(u64::MAX, |bytes| bytes.0 / FRAME_BYTES);
        Self {
            device: BlockDevice::new(config, clock),
            striping: config.striping(),
            blocks,
            given: 0,
            extents: BTreeMap::new(),
            free: VecDeque::new(),
            unwritten: FxHashMap::default(),
        }
    }

    /// Gives blocks to those pages of a file that have none yet.
    pub fn lay_out(&mut self, file: u32, pages: Range<u64>) -> Result<(), Full> {
        let mut page = pages.start;
        while page < pages.end {
            if let Some((first, extent)) = self.extent_of(file, page) {
                page = first + extent.pages;
                continue;
            }
            let next = self.extents.range((file, page)..=(file, pages.end)).next();
            let end = next.map_or(pages.end, |(&(_, first), _)| first.min(pages.end));
            let more = end - page;
            if more > self.room() {
                let needed = (self.blocks - self.room()).saturating_add(more).saturating_mul(FRAME_BYTES);
                return Err(Full { capacity: self.blocks * FRAME_BYTES, needed });
            }
            // In blocks that were never used, as far as there are enough.
            let places = if more <= self.blocks - self.given {
                let first = Lba(self.given);
                self.given += more;
                vec![Extent { first, pages: more }]
            } else {
                self.places(more).expect("there is room")
            };
            for place in places {
                self.append(file, page, place);
                page += place.pages;
            }
            page = end;
        }
        Ok(())
    }

    /// The extent of a page, with the number of its first page.
    fn extent_of(&self, file: u32, page: u64) -> Option<(u64, Extent)> {
        let (&(owner, first), &extent) = self.extents.range(..=(file, page)).next_back()?;
        (owner == file && page < first + extent.pages).then_some((first, extent))
    }

    /// The block of a page that has one.
    pub fn lba(&self, file: u32, page: u64) -> Lba {
        let (first, extent) = self.extent_of(file, page).expect("files are laid out when they are mapped");
        Lba(extent.first.0 + page - first)
    }

    /// Whether a page's block is unwritten.
    pub fn is_unwritten(&self, file: u32, page: u64) -> bool {
        !self.unwritten.is_empty() && self.unwritten.get(&file).is_some_and(|pages| pages.contains(page))
    }

    /// Records that pages were cut out of a file: their blocks are unwritten.
    pub fn cut(&mut self, file: u32, pages: Range<u64>) {
        self.unwritten.entry(file).or_default().add(pages);
    }

    /// A page has been written to its block.
    pub fn note_written(&mut self, file: u32, page: u64) {
        if let Some(pages) = self.unwritten.get_mut(&file) {
            pages.remove(page..page + 1);
        }
    }

    /// Moves the pages of a file in this range to other blocks, as far as they have any. Returns their old places;
    /// `None`, without any change, if the device has too few free blocks.
    pub fn relocate(&mut self, file: u32, pages: Range<u64>) -> Option<Vec<BlockRun>> {
        let moved = self.runs_of(file, pages);
        let mut places = self.places(moved.iter().map(|run| run.pages).sum())?.into_iter();
        let mut place = Extent { first: Lba(0), pages: 0 };
        for run in &moved {
            self.cut_out(file, run);
            let mut page = run.page;
            while page < run.page + run.pages {
                if place.pages == 0 {
                    place = places.next().expect("as many were asked for");
                }
                let part = place.pages.min(run.page + run.pages - page);
                self.append(file, page, Extent { pages: part, ..place });
                place = Extent { first: Lba(place.first.0 + part), pages: place.pages - part };
                page += part;
            }
        }
        moved.iter().for_each(|run| self.release(Extent { first: run.first, pages: run.pages }));
        Some(moved)
    }

    /// The blocks of a file's pages in a range.
    fn runs_of(&self, file: u32, pages: Range<u64>) -> Vec<BlockRun> {
        if pages.is_empty() {
            return Vec::new();
        }
        let before = self.extent_of(file, pages.start).filter(|&(first, _)| first < pages.start);
        let inside = self.extents.range((file, pages.start)..(file, pages.end)).map(|(&(_, at), &extent)| (at, extent));
        let clipped = |(at, extent): (u64, Extent)| {
            let (start, end) = (at.max(pages.start), (at + extent.pages).min(pages.end));
            BlockRun { page: start, first: Lba(extent.first.0 + start - at), pages: end - start }
        };
        before.into_iter().chain(inside).map(clipped).collect()
    }

    /// Takes this many free blocks, first those that were released; `None` if there are too few.
    fn places(&mut self, wanted: u64) -> Option<Vec<Extent>> {
        if wanted > self.room() {
            return None;
        }
        let (mut taken, mut left) = (Vec::new(), wanted);
        while left > 0 {
            let extent = self.free.pop_front().unwrap_or_else(|| {
                let fresh = Extent { first: Lba(self.given), pages: left };
                self.given += left;
                fresh
            });
            let part = extent.pages.min(left);
            if part < extent.pages {
                self.free.push_front(Extent { first: Lba(extent.first.0 + part), pages: extent.pages - part });
            }
            taken.push(Extent { pages: part, ..extent });
            left -= part;
        }
        Some(taken)
    }

    /// Number of free blocks.
    fn room(&self) -> u64 {
        (self.blocks - self.given).saturating_add(self.free.iter().map(|extent| extent.pages).sum())
    }

    /// Adds blocks to a file from a page on that has none.
    fn append(&mut self, file: u32, page: u64, blocks: Extent) {
        match self.extents.range_mut(..(file, page)).next_back() {
            Some((&(before, start), extent))
                if (before, start + extent.pages, extent.first.0 + extent.pages) == (file, page, blocks.first.0) =>
            {
                extent.pages += blocks.pages;
            }
            _ => _ = self.extents.insert((file, page), blocks),
        }
    }

    /// Removes blocks from a file.
    fn cut_out(&mut self, file: u32, run: &BlockRun) {
        let (at, extent) = self.extent_of(file, run.page).expect("the file has them");
        self.extents.remove(&(file, at));
        let end = run.page + run.pages;
        for (from, to) in [(at, run.page), (end, at + extent.pages)] {
            if from < to {
                let part = Extent { first: Lba(extent.first.0 + from - at), pages: to - from };
                self.extents.insert((file, from), part);
            }
        }
    }

    /// Makes blocks free.
    fn release(&mut self, blocks: Extent) {
        match self.free.back_mut() {
            Some(last) if last.first.0 + last.pages == blocks.first.0 => last.pages += blocks.pages,
            _ => self.free.push_back(blocks),
        }
    }

    /// Requests that read pages of a file, given in ascending order; one request for consecutive blocks.
    pub fn reads(&self, file: u32, pages: impl Iterator<Item = u64>) -> Vec<DeviceRequest> {
        joined(pages.map(|page| self.lba(file, page)), DeviceRequest::read)
    }

    /// Requests that write blocks; one request for consecutive blocks.
    pub fn writes(lbas: impl Iterator<Item = Lba>) -> Vec<DeviceRequest> {
        joined(lbas, DeviceRequest::write)
    }
}

/// Makes one request of consecutive blocks.
fn joined(lbas: impl Iterator<Item = Lba>, request: fn(Lba, u32) -> DeviceRequest) -> Vec<DeviceRequest> {
    let mut all: Vec<DeviceRequest> = Vec::new();
    for lba in lbas {
        match all.last_mut() {
            Some(last) if last.first.0 + u64::from(last.blocks) == lba.0 => last.blocks += 1,
            _ => all.push(request(lba, 1)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(blocks: u64) -> Storage {
        let config = DeviceConfig::samples().swap_remove(0);
        Storage { blocks, ..Storage::new(&config, Clock { mhz: 1000 }) }
    }

    #[test]
    fn files_get_blocks_when_they_are_mapped_and_keep_them() {
        let mut storage = storage(100);
        storage.lay_out(0, 10..20).unwrap();
        storage.lay_out(1, 0..5).unwrap();
        storage.lay_out(0, 5..30).unwrap();
        // What was there stays; the extents before and behind it are separate.
        let lbas = [(0, 10), (0, 19), (1, 0), (1, 4), (0, 5), (0, 9), (0, 20), (0, 29)];
        assert_eq!(lbas.map(|(file, page)| storage.lba(file, page).0), [0, 9, 10, 14, 15, 19, 20, 29]);
        storage.lay_out(0, 30..32).unwrap();
        assert_eq!((storage.lba(0, 31), storage.extents.len()), (Lba(31), 4), "it goes on where it ended");
        assert_eq!(storage.lay_out(2, 0..69), Err(Full { capacity: 100 << 12, needed: 101 << 12 }));
        storage.lay_out(2, 0..68).unwrap();
        storage.lay_out(0, 5..32).unwrap();
        let mut seen: Vec<u64> = (5..32).map(|page| storage.lba(0, page).0).collect();
        seen.extend((0..5).map(|page| storage.lba(1, page).0).chain((0..68).map(|page| storage.lba(2, page).0)));
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>(), "each block belongs to one page");
    }

    #[test]
    fn moved_pages_get_other_blocks_and_release_their_own() {
        let mut storage = storage(40);
        storage.lay_out(0, 0..20).unwrap();
        storage.lay_out(1, 0..10).unwrap();
        let lbas = |storage: &Storage, file, pages: Range<u64>| {
            pages.map(|page| storage.lba(file, page).0).collect::<Vec<_>>()
        };
        assert_eq!(storage.relocate(0, 5..8), Some(vec![BlockRun { page: 5, first: Lba(5), pages: 3 }]));
        assert_eq!(lbas(&storage, 0, 3..10), [3, 4, 30, 31, 32, 8, 9]);
        // Released blocks are used first; pages without blocks still have none.
        assert_eq!(storage.relocate(1, 8..30), Some(vec![BlockRun { page: 8, first: Lba(28), pages: 2 }]));
        assert_eq!(lbas(&storage, 1, 7..10), [27, 5, 6]);
        assert_eq!(storage.relocate(1, 20..20), Some(vec![]));
        assert_eq!(storage.relocate(0, 0..20), None, "of 20 blocks there are 10");
        assert_eq!(lbas(&storage, 0, 3..10), [3, 4, 30, 31, 32, 8, 9]);
        for round in 0..1000_u64 {
            let (file, start) = ((round % 2) as u32, round * 7 % 15);
            storage.relocate(file, start..start + 1 + round % 6).unwrap();
            let mut all = [lbas(&storage, 0, 0..20), lbas(&storage, 1, 0..10)].concat();
            all.extend(storage.free.iter().flat_map(|extent| extent.first.0..extent.first.0 + extent.pages));
            all.extend(storage.given..40);
            all.sort_unstable();
            assert_eq!(all, (0..40).collect::<Vec<_>>(), "each block belongs to one page, or is free");
        }
    }

    #[test]
    fn a_file_that_moves_again_and_again_stays_in_one_piece() {
        let mut storage = storage(100);
        storage.lay_out(0, 0..30).unwrap();
        for _ in 0..10 {
            storage.relocate(0, 0..30).unwrap();
            assert_eq!((storage.reads(0, 0..30).len(), storage.extents.len()), (1, 1));
        }
        // Others can use the blocks that it released.
        storage.lay_out(1, 0..70).unwrap();
        assert_eq!(storage.lay_out(2, 0..1), Err(Full { capacity: 100 << 12, needed: 101 << 12 }));
    }

    #[test]
    fn truncated_blocks_are_unwritten_until_written() {
        let mut storage = storage(100);
        storage.lay_out(0, 0..20).unwrap();
        storage.cut(0, 10..u64::MAX);
        assert_eq!([9, 10, 19].map(|page| storage.is_unwritten(0, page)), [false, true, true]);
        storage.note_written(0, 15);
        storage.note_written(0, 5);
        storage.cut(0, 14..u64::MAX);
        assert_eq!([9, 13, 15].map(|page| storage.is_unwritten(0, page)), [false, true, true]);
        storage.note_written(0, 12);
        storage.cut(0, 14..u64::MAX);
        assert_eq!([12, 13].map(|page| storage.is_unwritten(0, page)), [false, true]);
        assert!(!storage.is_unwritten(1, 15), "another file");
        storage.cut(1, 2..4);
        assert_eq!([1, 2, 3, 4].map(|page| storage.is_unwritten(1, page)), [false, true, true, false]);
    }

    #[test]
    fn blocks_that_follow_each_other_are_read_together() {
        let mut storage = storage(100);
        storage.lay_out(0, 0..8).unwrap();
        storage.lay_out(1, 0..1).unwrap();
        storage.lay_out(0, 8..16).unwrap();
        let reads = storage.reads(0, [2, 3, 5, 6, 7, 8].into_iter());
        let read = |first, blocks| DeviceRequest::read(Lba(first), blocks);
        assert_eq!(reads, [read(2, 2), read(5, 3), read(9, 1)]);
    }
}
