//! A page fault as the hardware reports it to a kernel: an access without a translation that allows it.

use super::addr::{PhysAddr, VirtAddr};
use super::ids::SpaceId;

/// Kind of an access that needs a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// A program or a kernel reads.
    Load,
    /// A program or a kernel writes: the page must be writable, and its dirty bit is set.
    Store,
    /// An instruction fetch: it uses the instruction TLB.
    Fetch,
}

/// The last entry that a hardware walk read before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Level of the entry; 1 for the entry of a 4 KiB page.
    pub level: u8,
    /// Physical address of the entry in the layer that manages the space.
    pub entry: PhysAddr,
    /// The address space's count of freed page-table pages at the time of the walk.
    pub freed: u64,
}

/// A page fault, which a kernel must resolve or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// The space in which the address has no translation that allows the access.
    pub space: SpaceId,
    /// The address that was accessed.
    pub va: VirtAddr,
    /// Kind of the access.
    pub intent: Intent,
    /// Where the walk failed, if the hardware passes it to the kernel.
    pub reached: Option<Reached>,
}

/// Who makes an access: a program, or a kernel through its direct map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A program's access.
    Program,
    /// A kernel's reference through its direct map.
    Kernel,
}
