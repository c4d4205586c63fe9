//! The kinds of work of a fault ([`super::route`] chooses among them), and functions that they share.

use crate::config::{FaultKind, LargePages};
use crate::vma::{HugeAdvice, VaRange, Vma, VmaKind};
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, VirtAddr};
use pagelab_trace::MapFlags;

/// The work for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultWork {
    /// Map a zeroed frame, or a folio of several.
    Fresh,
    ZeroPage,
    /// Map a copy of a page that stays unchanged.
    Copy {
        from: Pfn,
    },
    /// Map a page that is read back from the swap device.
    SwapIn,
    /// Map a page that another user has read back.
    SwapCached,
    /// Fill a hole of a file in memory with a zeroed page, and map it.
    Hole {
        file: u32,
        page: u64,
    },
    /// Map a ready frame of a fault engine.
    Ready,
    /// Make the write-protected page itself writable.
    Reuse,
    /// Map a page of a file, in the page cache.
    Cached {
        file: u32,
        page: u64,
    },
    /// Read a page of a file and those around it, and look again.
    Read {
        file: u32,
        page: u64,
    },
    /// Split a large page and look again, since a part of it must be copied.
    Split,
}

impl FaultWork {
    /// Whether it allocates a frame for the program.
    pub(super) fn allocates(self) -> bool {
        matches!(self, Self::Fresh | Self::SwapIn | Self::Copy { .. } | Self::Hole { .. })
    }

    /// The kind of fault in the preset; `present` if the walk found a page. `None` if it costs as much as a first
    /// touch.
    pub(super) fn kind(self, present: bool, store: bool) -> Option<FaultKind> {
        match self {
            Self::ZeroPage => Some(FaultKind::ZeroPage),
            // Only the zero page is replaced by a zeroed frame.
            Self::Fresh => present.then_some(FaultKind::ZeroPageReplaced),
            Self::Copy { .. } => Some(if present { FaultKind::Copy } else { FaultKind::FileCopy }),
            Self::Reuse => Some(FaultKind::Reuse),
            Self::Cached { .. } => Some(if store { FaultKind::FileShared } else { FaultKind::FileAround }),
            Self::SwapIn | Self::SwapCached | Self::Hole { .. } | Self::Ready | Self::Read { .. } | Self::Split => None,
        }
    }
}

/// Whether a VMA maps a file.
pub(super) fn is_file(vma: &Vma) -> bool {
    vma.kind == VmaKind::File && vma.file.is_some()
}

/// Whether a mapping may have pages above 4 KiB (Linux `thp_vma_allowable_orders`).
pub fn gets_large_pages(vma: &Vma, policy: LargePages) -> bool {
    let explicit = vma.flags.contains(MapFlags::HUGETLB);
    match (vma.advice.huge, policy) {
        _ if explicit => true,
        (HugeAdvice::NoHuge, _) => false,
        (HugeAdvice::Huge, _) | (HugeAdvice::None, LargePages::Always) => true,
        (HugeAdvice::None, LargePages::Madvise) => false,
    }
}

/// The 4 KiB pages of a range.
pub(super) fn pages(range: VaRange) -> impl Iterator<Item = VirtAddr> {
    (range.start.0..range.end.0).step_by(FRAME_BYTES as usize).map(VirtAddr)
}

/// The largest page that a fault at `va` may map; `wanted_page` is the limit for mappings that ask for no size.
pub fn largest_page(vma: &Vma, va: VirtAddr, policy: LargePages, wanted: PageSize) -> PageSize {
    if is_file(vma) || !gets_large_pages(vma, policy) {
        return PageSize::Size4K;
    }
    largest_inside(vma, va, explicit_size(vma).unwrap_or(wanted))
}

/// The page size that a mapping asks for by MAP_HUGETLB and its size bits (`MAP_HUGE_2MB`, `MAP_HUGE_1GB`).
fn explicit_size(vma: &Vma) -> Option<PageSize> {
    let sizes = PageSize::ALL.into_iter().rev();
    let asked = |size: &PageSize| u64::from(vma.flags.0 >> 26 & 0x3f) == u64::from(size.shift());
    vma.flags.contains(MapFlags::HUGETLB).then(|| sizes.clone().find(asked).unwrap_or(PageSize::Size2M))
}

/// The largest page up to `wanted_page` that contains `va`, is aligned and lies inside the VMA.
fn largest_inside(vma: &Vma, va: VirtAddr, wanted: PageSize) -> PageSize {
    let inside = |size: &PageSize| {
        let start = va.0 & !(size.bytes() - 1);
        *size <= wanted && vma.start.0 <= start && start + size.bytes() <= vma.end.0
    };
    PageSize::ALL.into_iter().rev().find(inside).unwrap_or(PageSize::Size4K)
}
