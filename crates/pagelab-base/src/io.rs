//! What is asked of devices that hold blocks, and what they answer.

use super::addr::FRAME_BYTES;
use super::cycles::Cycles;

/// A logical block address: the number of a block of 4 KiB of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lba(pub u64);

/// Logical blocks of 512 bytes, as NVMe namespaces have them, of a block of 4 KiB.
pub const NVME_UNITS: u64 = 8;
/// Bytes of a completion queue's entry in NVMe.
pub const NVME_COMPLETION_BYTES: u64 = 16;

/// A request to a device: to read or write blocks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The first of the blocks.
    pub first: Lba,
    /// How many blocks of 4 KiB follow each other.
    pub blocks: u32,
    /// Whether they are written; else they are read.
    pub write: bool,
}

impl DeviceRequest {
    /// Reads `blocks` blocks from `first` on.
    pub fn read(first: Lba, blocks: u32) -> Self {
        Self { first, blocks, write: false }
    }

    /// Writes `blocks` blocks from `first` on.
    pub fn write(first: Lba, blocks: u32) -> Self {
        Self { first, blocks, write: true }
    }
}

/// A block of one of the drives that a device consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveBlock {
    /// Number of the drive within the device, from 0.
    pub drive: u32,
    /// The block, as the drive numbers them.
    pub lba: Lba,
}

/// How the blocks of a device lie on its drives: in chunks that follow each other, one drive after the other (RAID 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    /// Drives that the device consists of; at least 1.
    pub drives: u32,
    /// Blocks of 4 KiB per chunk.
    pub chunk_blocks: u64,
}

impl Striping {
    /// Of a device that is one drive.
    pub const NONE: Self = Self { drives: 1, chunk_blocks: 1 };

    /// Where a block of the device is.
    pub fn place(self, Lba(block): Lba) -> DriveBlock {
        let (chunk, drives) = (block / self.chunk_blocks, u64::from(self.drives));
        let lba = Lba(chunk / drives * self.chunk_blocks + block % self.chunk_blocks);
        DriveBlock { drive: (chunk % drives) as u32, lba }
    }

    /// Which block of the device that is.
    pub fn block(self, DriveBlock { drive, lba: Lba(lba) }: DriveBlock) -> Lba {
        let chunk = lba / self.chunk_blocks * u64::from(self.drives) + u64::from(drive);
        Lba(chunk * self.chunk_blocks + lba % self.chunk_blocks)
    }

    /// What each drive must hold at least if the device is to hold so many bytes.
    pub fn bytes_each(self, bytes: u64) -> u64 {
        if self.drives == 1 {
            return bytes;
        }
        let chunk = self.chunk_blocks * FRAME_BYTES;
        bytes.div_ceil(u64::from(self.drives)).div_ceil(chunk) * chunk
    }

    /// A request to the device as those to its drives: one per chunk.
    pub fn parts(self, of: DeviceRequest) -> impl Iterator<Item = (u32, DeviceRequest)> {
        let (mut next, end) = (of.first.0, of.first.0 + u64::from(of.blocks));
        std::iter::from_fn(move || {
            let behind = if self.drives == 1 { end } else { (next / self.chunk_blocks + 1) * self.chunk_blocks };
            let blocks = behind.min(end) - next;
            let DriveBlock { drive, lba } = self.place(Lba(next));
            next += blocks;
            (blocks > 0).then_some((drive, DeviceRequest { first: lba, blocks: blocks as u32, ..of }))
        })
    }
}

/// A device's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The moment at which the answer is there.
    pub at: Cycles,
    /// It has not done what was asked.
    pub failed: bool,
}

/// What a step asks of the devices of its layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests to the device that the swap area is on.
    pub swap: Vec<DeviceRequest>,
    /// Requests to the device that files are on.
    pub storage: Vec<DeviceRequest>,
}

impl Requests {
    /// Whether nothing is asked of either device.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.swap.is_empty() && self.storage.is_empty()
    }

    /// Requests in both lists.
    pub fn len(&self) -> u32 {
        (self.swap.len() + self.storage.len()) as u32
    }

    /// Keeps the memory that the lists have.
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
        let parts = |of: Striping, first, blocks| {
            let all = of.parts(DeviceRequest::read(Lba(first), blocks));
            all.map(|(drive, of)| (drive, of.first.0, of.blocks)).collect::<Vec<_>>()
        };
        assert_eq!(parts(three, 2, 12), [(0, 2, 2), (1, 0, 4), (2, 0, 4), (0, 4, 2)]);
        assert_eq!(parts(three, 5, 3), [(1, 1, 3)]);
        assert_eq!([three.bytes_each(12 << 12), three.bytes_each((12 << 12) + 1)], [4 << 12, 8 << 12]);
        assert_eq!(Striping::NONE.bytes_each(5), 5);
        assert_eq!(parts(Striping::NONE, 5, 300), [(0, 5, 300)], "one drive gets it whole");
    }
}
