//! How far khugepaged has come in a layer.

use crate::base::addr::VirtAddr;
use crate::base::ids::DIRECT_MAP;

/// Where the first program may have memory.
pub(crate) const START: (u32, VirtAddr) = (DIRECT_MAP + 1, VirtAddr(0));

/// How far the thread of a layer has come, and what it did.
#[derive(Clone, Copy, Debug)]
pub struct Collapse {
    /// Where it goes on: the address space's number and the address.
    pub(crate) cursor: (u32, VirtAddr),
    pub scanned: u64,
    pub collapsed: u64,
    /// Places that were ripe when no large page was free.
    pub no_frame: u64,
    /// Frames of the large page that small ones are being copied to.
    pub held_frames: u64,
}

impl Default for Collapse {
    fn default() -> Self {
        Self { cursor: START, scanned: 0, collapsed: 0, no_frame: 0, held_frames: 0 }
    }
}
