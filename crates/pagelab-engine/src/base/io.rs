//! What is asked of devices that hold blocks, and what they answer.

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
    pub first: Lba,
    pub blocks: u32,
    pub write: bool,
}

impl DeviceRequest {
    pub fn read(first: Lba, blocks: u32) -> Self {
        Self { first, blocks, write: false }
    }

    pub fn write(first: Lba, blocks: u32) -> Self {
        Self { first, blocks, write: true }
    }
}

/// A device's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub at: Cycles,
    /// It has not done what was asked.
    pub failed: bool,
}

/// What a step asks of the devices of its layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub swap: Vec<DeviceRequest>,
    pub storage: Vec<DeviceRequest>,
}

impl Requests {
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
