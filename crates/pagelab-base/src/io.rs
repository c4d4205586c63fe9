//! Requests to block devices and their completions.

use super::addr::FRAME_BYTES;
use super::cycles::Cycles;

/// A logical block address: the number of a 4 KiB block of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lba(pub u64);

/// NVMe logical blocks of 512 bytes per 4 KiB block.
pub const NVME_UNITS: u64 = 8;
/// Bytes of an entry of an NVMe completion queue.
pub const NVME_COMPLETION_BYTES: u64 = 16;

/// A request to a device to read or write consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The first block.
    pub first: Lba,
    /// Number of consecutive 4 KiB blocks.
    pub blocks: u32,
    /// True for a write, false for a read.
    pub write: bool,
}

impl DeviceRequest {
    /// A read of `blocks` blocks from `first` on.
    pub fn read(first: Lba, blocks: u32) -> Self {
        Self { first, blocks, write: false }
    }

    /// A write of `blocks` blocks from `first` on.
    pub fn write(first: Lba, blocks: u32) -> Self {
        Self { first, blocks, write: true }
    }
}

/// A block of one of the drives that a device consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveBlock {
    /// Number of the drive within the device, from 0.
    pub drive: u32,
    /// The block's number within the drive.
    pub lba: Lba,
}

/// How the blocks of a device are distributed over its drives: in consecutive chunks, round-robin (RAID 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    /// Drives that the device consists of; at least 1.
    pub drives: u32,
    /// Blocks of 4 KiB per chunk.
    pub chunk_blocks: u64,
}

impl Striping {
    /// A device that is a single drive.
    pub const NONE: Self = Self { drives: 1, chunk_blocks: 1 };

    /// The drive, and the block there, of a block of the device.
    pub fn place(self, Lba(block): Lba) -> DriveBlock {
        let (chunk, drives) = (block / self.chunk_blocks, u64::from(self.drives));
        let lba = Lba(chunk / drives * self.chunk_blocks + block % self.chunk_blocks);
        DriveBlock { drive: (chunk % drives) as u32, lba }
    }

    /// Inverse of [`Self::place`].
    pub fn block(self, DriveBlock { drive, lba: Lba(lba) }: DriveBlock) -> Lba {
        let chunk = lba / self.chunk_blocks * u64::from(self.drives) + u64::from(drive);
        Lba(chunk * self.chunk_blocks + lba % self.chunk_blocks)
    }

    /// Capacity that each drive needs for a device of `bytes` bytes.
    pub fn bytes_each(self, bytes: u64) -> u64 {
        if self.drives == 1 {
            return bytes;
        }
        let chunk = self.chunk_blocks * FRAME_BYTES;
        bytes.div_ceil(u64::from(self.drives)).div_ceil(chunk) * chunk
    }

    /// Splits a request to the device into requests to its drives: one per chunk.
    pub fn parts(self, request: DeviceRequest) -> impl Iterator<Item = (u32, DeviceRequest)> {
        let (mut next, end) = (request.first.0, request.first.0 + u64::from(request.blocks));
        std::iter::from_fn(move || {
            let behind = if self.drives == 1 { end } else { (next / self.chunk_blocks + 1) * self.chunk_blocks };
            let blocks = behind.min(end) - next;
            let DriveBlock { drive, lba } = self.place(Lba(next));
            next += blocks;
            (blocks > 0).then_some((drive, DeviceRequest { first: lba, blocks: blocks as u32, ..request }))
        })
    }
}

/// A device's completion of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Time of the completion.
    pub at: Cycles,
    /// The request failed.
    pub failed: bool,
}

/// Requests of a step to the devices of its layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests to the device that the swap area is on.
    pub swap: Vec<DeviceRequest>,
    /// Requests to the device that files are on.
    pub storage: Vec<DeviceRequest>,
}

impl Requests {
    /// Whether there is no request to either device.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.swap.is_empty() && self.storage.is_empty()
    }

    /// Requests in both lists.
    pub fn len(&self) -> u32 {
        (self.swap.len() + self.storage.len()) as u32
    }

    /// Empties both lists and keeps their memory.
    pub fn clear(&mut self) {
        self.swap.clear();
        self.storage.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_lie_on_one_drive_after_the_other() {
        let three = Striping { drives: 3, chunk_blocks: 4 };
        let places: Vec<(u32, u64)> = (0..26).map(|n| three.place(Lba(n))).map(|at| (at.drive, at.lba.0)).collect();
        let first = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)];
        assert_eq!(places[..9], first);
        assert_eq!(places[12..17], [(0, 4), (0, 5), (0, 6), (0, 7), (1, 4)]);
        (0..1000).for_each(|n| assert_eq!(three.block(three.place(Lba(n))), Lba(n)));
        let parts = |striping: Striping, first, blocks| {
            let all = striping.parts(DeviceRequest::read(Lba(first), blocks));
            all.map(|(drive, part)| (drive, part.first.0, part.blocks)).collect::<Vec<_>>()
        };
        assert_eq!(parts(three, 2, 12), [(0, 2, 2), (1, 0, 4), (2, 0, 4), (0, 4, 2)]);
        assert_eq!(parts(three, 5, 3), [(1, 1, 3)]);
        assert_eq!([three.bytes_each(12 << 12), three.bytes_each((12 << 12) + 1)], [4 << 12, 8 << 12]);
        assert_eq!(Striping::NONE.bytes_each(5), 5);
        assert_eq!(parts(Striping::NONE, 5, 300), [(0, 5, 300)], "one drive gets it whole");
    }
}
