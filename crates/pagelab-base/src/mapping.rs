//! What a page-table entry maps.

use crate::addr::{PageSize, Pfn};

/// What a leaf entry says about its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PteFlags {
    /// Stores are allowed (bit R/W of x86-64).
    pub writable: bool,
    /// Programs may use it, not the kernel alone (bit U/S).
    pub user: bool,
    /// Instructions may be fetched from it (bit NX is clear).
    pub executable: bool,
    /// A walk for an access has used it (bit A).
    pub accessed: bool,
    /// A store has been made through it (bit D).
    pub dirty: bool,
}

/// A translation of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First frame of the page.
    pub pfn: Pfn,
    /// Size of the page, and so the level of its entry.
    pub size: PageSize,
    /// What its entry allows and has seen.
    pub flags: PteFlags,
}
