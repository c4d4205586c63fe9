//! What the hardware tells a kernel: an access that it found no translation for, or none that allows it.

use super::addr::{PhysAddr, VirtAddr};
use super::ids::SpaceId;

/// Why an address is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Load,
    Store,
    Fetch,
}

/// The last entry that a hardware walk read before it gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    pub level: u8,
    pub entry: PhysAddr,
    /// The address space's count of freed page-table pages at the time.
    pub(crate) freed: u64,
}

/// A translation that a kernel must provide or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    pub space: SpaceId,
    pub va: VirtAddr,
    pub intent: Intent,
    /// How far the walk came, if the hardware tells the kernel.
    pub reached: Option<Reached>,
}

/// On whose behalf: a program's access, or a kernel's reference through its direct map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Program,
    Kernel,
}
