//! Storage: where on a device the blocks of files are.
//!
//! Models: extents. What a program maps of a file for the first time gets blocks that follow each other, behind all that have been
//! given before; what follows on from the file's last extent extends it.
//! Source: Linux fs/ext4/extents.c (`ext4_ext_map_blocks`), of a file system on which files were written one after the other.
//! Parameters: `kernel.storage`.
//! Deviations: a file's blocks stay where they are for as long as a run takes. Metadata of the file system costs nothing: it is in
//! memory.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::base::addr::FRAME_BYTES;
use crate::base::io::{DeviceRequest, Lba};
use crate::device::{BlockDevice, Clock, DeviceConfig};

/// Blocks that follow each other.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: Lba,
    pages: u64,
}

/// The device has too few blocks for a file: it holds so many bytes, and would need as many as this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub capacity: u64,
    pub needed: u64,
}

/// See the module's text.
#[derive(Clone)]
pub struct Storage {
    pub device: BlockDevice,
    /// Blocks that it has, and how many are given.
    blocks: u64,
    given: u64,
    /// By file and number of the first page.
    extents: BTreeMap<(u32, u64), Extent>,
}

impl Storage {
    pub fn new(config: &DeviceConfig, clock: Clock) -> Self {
        let blocks = config.capacity().map_or(u64::MAX, |bytes| bytes.0 / FRAME_BYTES);
        Self { device: BlockDevice::new(config, clock), blocks, given: 0, extents: BTreeMap::new() }
    }

    /// Gives blocks to those of a file's pages that have none yet.
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
            if more > self.blocks - self.given {
                let needed = (self.given + more).saturating_mul(FRAME_BYTES);
                return Err(Full { capacity: self.blocks * FRAME_BYTES, needed });
            }
            let first = Lba(self.given);
            self.given += more;
            match self.extents.range_mut(..(file, page)).next_back() {
                Some((&(of, start), extent))
                    if (of, start + extent.pages, extent.first.0 + extent.pages) == (file, page, first.0) =>
                {
                    extent.pages += more;
                }
                _ => _ = self.extents.insert((file, page), Extent { first, pages: more }),
            }
            page = end;
        }
        Ok(())
    }

    /// The extent that a page is in, with the number of its first page.
    fn extent_of(&self, file: u32, page: u64) -> Option<(u64, Extent)> {
        let (&(of, first), &extent) = self.extents.range(..=(file, page)).next_back()?;
        (of == file && page < first + extent.pages).then_some((first, extent))
    }

    /// The block of a page that has been laid out.
    pub fn lba(&self, file: u32, page: u64) -> Lba {
        let (first, extent) = self.extent_of(file, page).expect("files are laid out when they are mapped");
        Lba(extent.first.0 + page - first)
    }

    /// Requests that read pages of a file, given in ascending order: one for blocks that follow each other.
    pub fn reads(&self, file: u32, pages: impl Iterator<Item = u64>) -> Vec<DeviceRequest> {
        let mut all: Vec<DeviceRequest> = Vec::new();
        for lba in pages.map(|page| self.lba(file, page)) {
            match all.last_mut() {
                Some(last) if last.first.0 + u64::from(last.blocks) == lba.0 => last.blocks += 1,
                _ => all.push(DeviceRequest::read(lba, 1)),
            }
        }
        all
    }
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
        // What was there stays; before it and behind it are extents of their own.
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
