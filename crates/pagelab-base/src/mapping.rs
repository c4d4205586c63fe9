//! The mapping of a page in a page table.

use crate::addr::{PageSize, Pfn};

/// Permissions and status bits of a leaf entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PteFlags {
    /// Stores are allowed (bit R/W of x86-64).
    pub writable: bool,
    /// Programs may use the page, not only the kernel (bit U/S).
    pub user: bool,
    /// Instructions may be fetched from it (bit NX is clear).
    pub executable: bool,
    /// A page walk has used the entry (bit A).
    pub accessed: bool,
    /// A store has used the entry (bit D).
    pub dirty: bool,
}

/// The mapping of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First frame of the page.
    pub pfn: Pfn,
    /// Size of the page, which determines the level of its entry.
    pub size: PageSize,
    /// Permissions and status bits of its entry.
    pub flags: PteFlags,
}
