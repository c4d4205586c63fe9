//! The kinds of work that a fault may have to do ([`super::route`] chooses), and what they have in common.

use crate::config::{FaultKind, LargePages};
use crate::vma::{HugeAdvice, VaRange, Vma, VmaKind};
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, VirtAddr};
use pagelab_trace::MapFlags;

/// What is to be done about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Map a zeroed frame, or a folio of several.
    Fresh,
    ZeroPage,
    /// Map a copy of a page that stays as it is.
    Copy {
        from: Pfn,
    },
    /// Map a page that is read back from the swap device.
    SwapIn,
    /// Map a page that another user has read back.
    SwapCached,
    /// Map a page of shared anonymous memory: the frame that others map, or else a zeroed one.
    Shared {
        page: u64,
        present: bool,
    },
    /// Map a frame that a fault engine has ready.
    Ready,
    /// Let the write-protected page itself be written.
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
    /// Split a large page, and look again: a part of it is to be copied.
    Split,
}

impl Work {
    /// Whether a frame of the program's own comes of it.
    pub(super) fn allocates(self) -> bool {
        matches!(self, Self::Fresh | Self::SwapIn | Self::Copy { .. } | Self::Shared { present: false, .. })
    }

    /// What the preset calls it, where the walk found a page or none, of a store or of another access; none for what
    /// costs as much as a first touch.
    pub(super) fn kind(self, present: bool, store: bool) -> Option<FaultKind> {
        match self {
            Self::ZeroPage => Some(FaultKind::ZeroPage),
            // Only the zero page gives way to a zeroed frame.
            Self::Fresh => present.then_some(FaultKind::ZeroPageReplaced),
            Self::Copy { .. } => Some(if present { FaultKind::Copy } else { FaultKind::FileCopy }),
            Self::Reuse => Some(FaultKind::Reuse),
            Self::Cached { .. } => Some(if store { FaultKind::FileShared } else { FaultKind::FileAround }),
            Self::SwapIn | Self::SwapCached | Self::Shared { .. } | Self::Ready | Self::Read { .. } | Self::Split => {
                None
            }
        }
    }
}

/// A mapping of a file's pages.
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

/// The largest page that a fault at `va` may map, with pages up to `wanted` for those that ask for no size.
pub fn largest_page(vma: &Vma, va: VirtAddr, policy: LargePages, wanted: PageSize) -> PageSize {
    if is_file(vma) || !gets_large_pages(vma, policy) {
        return PageSize::Size4K;
    }
    largest_inside(vma, va, explicit_size(vma).unwrap_or(wanted))
}

/// The size of the pages that a mapping asks for by MAP_HUGETLB and its size bits (`MAP_HUGE_2MB`, `MAP_HUGE_1GB`).
fn explicit_size(vma: &Vma) -> Option<PageSize> {
    let sizes = PageSize::ALL.into_iter().rev();
    let asked = |size: &PageSize| u64::from(vma.flags.0 >> 26 & 0x3f) == u64::from(size.shift());
    vma.flags.contains(MapFlags::HUGETLB).then(|| sizes.clone().find(asked).unwrap_or(PageSize::Size2M))
}

/// The largest page, up to `wanted`, whose aligned place around `va` lies inside the VMA.
fn largest_inside(vma: &Vma, va: VirtAddr, wanted: PageSize) -> PageSize {
    let inside = |size: &PageSize| {
        let start = va.0 & !(size.bytes() - 1);
        *size <= wanted && vma.start.0 <= start && start + size.bytes() <= vma.end.0
    };
    PageSize::ALL.into_iter().rev().find(inside).unwrap_or(PageSize::Size4K)
}
