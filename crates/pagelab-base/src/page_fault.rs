//! What the hardware tells a kernel: an access that it found no translation for, or none that allows it.

use super::addr::{PhysAddr, VirtAddr};
use super::ids::SpaceId;

/// Why an address is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// A program or a kernel reads.
    Load,
    /// A program or a kernel writes: the page must be writable, and its dirty bit is set.
    Store,
    /// Instructions are fetched: the instruction TLB is asked.
    Fetch,
}

/// The last entry that a hardware walk read before it gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Level of the entry, 1 for that of a 4 KiB page.
    pub level: u8,
    /// Physical address of the entry, in the layer of the space.
    pub entry: PhysAddr,
    /// The address space's count of freed page-table pages at the time.
    pub freed: u64,
}

/// A translation that a kernel must provide or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// The space in which the address has no translation that allows the access.
    pub space: SpaceId,
    /// The address that was accessed.
    pub va: VirtAddr,
    /// What the access is.
    pub intent: Intent,
    /// How far the walk came, if the hardware tells the kernel.
    pub reached: Option<Reached>,
}

/// On whose behalf: a program's access, or a kernel's reference through its direct map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A program's access.
    Program,
    /// A kernel's reference through its direct map.
    Kernel,
}
