//! What a fault maps, decided by what its walk found, the VMA, and who else uses the page.

use std::ops::Range;

use super::{Fault, Intent};
use crate::base::addr::{FRAME_BYTES, FRAME_SHIFT, PageSize, Pfn, VirtAddr};
use crate::base::error::EngineError;
use crate::config::LargePages;
use crate::kernel::layer::Layer;
use crate::kernel::os::Os;
use crate::kernel::reclaim::Swapped;
use crate::kernel::vma::{HugeAdvice, OrderAdvice, VaRange, Vma, VmaKind};
use crate::page_table::{Leaf, PteFlags};
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
}

impl Fault {
    /// What is to be done about the page at `va`, given what a walk finds there; nothing if it can be accessed by now.
    pub(super) fn choose(&mut self, os: &mut Os, leaf: &Leaf) -> Result<Option<Work>, EngineError> {
        let (zero_page, around) = (os.costs.zero_page.0, os.costs.fault_around_bytes.0);
        let layer = self.layer(os);
        let vma = layer.spaces[self.space.index as usize].vmas.find(self.va);
        let vma = vma.expect("mappings do not change during a fault").clone();
        let level = match *leaf {
            Leaf::Present(mapping) if mapping.flags.writable || self.intent != Intent::Store => return Ok(None),
            Leaf::Present(mapping) => {
                self.set_size(mapping.size);
                self.meet_at(self.order);
                let reuse = vma.is_shared() || layer.pages.are_exclusive(mapping.pfn, self.order);
                if reuse {
                    self.frame = mapping.pfn;
                }
                self.flags = PteFlags { writable: true, dirty: true, ..mapping.flags };
                return Ok(Some(match () {
                    () if reuse => Work::Reuse,
                    () if mapping.pfn == layer.pages.zero_page() => Work::Fresh,
                    // Explicit ones are copied whole (`hugetlb_wp`), others by parts (`do_huge_pmd_wp_page`).
                    () if self.size > PageSize::Size4K && !vma.flags.contains(MapFlags::HUGETLB) => Work::Split,
                    () => Work::Copy { from: mapping.pfn },
                }));
            }
            Leaf::NotPresent { level } => level,
        };
        self.set_size(self.wanted);
        self.meet_at(self.together);
        self.shrink_to(level);
        self.flags.writable = vma.prot.write;
        // Linux installs writable anonymous pages dirty (`do_anonymous_page`: pte_mkwrite(pte_mkdirty)).
        self.flags.dirty = vma.prot.write;
        if let Some(swap) = layer.swap() {
            // Where a part is on the device, Linux has a table of swap entries.
            let whole = VaRange { start: self.page, end: VirtAddr(self.page.0 + self.size.bytes()) };
            if self.size > PageSize::Size4K && swap.holds_some(self.space.index, whole) {
                self.set_size(PageSize::Size4K);
            }
            if let Some(swapped) = swap.find(self.space.index, self.va) {
                return Ok(Some(self.choose_of_swapped(layer, swapped)));
            }
        }
        if is_file(&vma) {
            return self.choose_of_file(layer, &vma, around).map(Some);
        }
        if vma.is_shared() && self.size == PageSize::Size4K {
            let page = file_page(&vma, self.page);
            let frame = layer.pages.object(page);
            self.frame = frame.unwrap_or(self.frame);
            return Ok(Some(Work::Shared { page, present: frame.is_some() }));
        }
        let untouched =
            self.intent != Intent::Store && !vma.is_shared() && !vma.flags.contains(MapFlags::WRITTEN_BEFORE);
        if zero_page && untouched && self.size == PageSize::Size4K && vma.kind != VmaKind::Special {
            (self.flags.writable, self.flags.dirty) = (false, false);
            self.frame = layer.pages.zero_page();
            return Ok(Some(Work::ZeroPage));
        }
        if self.size == PageSize::Size4K && !vma.is_shared() && self.gets_folios(layer, &vma) {
            let most = layer.folio_orders.last().copied().unwrap_or(0);
            self.set_folio(layer, &vma, most);
        }
        Ok(Some(Work::Fresh))
    }

    /// Whether pages are mapped by several: in kernels that are eager, those that are mapped ahead.
    fn gets_folios(&self, layer: &Layer, vma: &Vma) -> bool {
        if layer.blocks_ahead { !self.exception } else { gets_large_pages(vma, layer.large_pages) }
    }

    /// A page of a file's mapping.
    fn choose_of_file(&mut self, layer: &mut Layer, vma: &Vma, around: u64) -> Result<Work, EngineError> {
        let store = self.intent == Intent::Store;
        let file = layer.pages.file(vma.file.as_ref().expect("it is of a file"));
        let page = file_page(vma, self.va);
        if layer.must_be_read(file, page) {
            return Ok(Work::Read { file, page });
        }
        let within = file_pages(vma);
        let frame = layer.cached_page(file, page, &within)?;
        if store && !vma.is_shared() {
            return Ok(Work::Copy { from: frame });
        }
        // Until the first store, a page that can be written is not dirty (shared) or not yet a copy (private).
        (self.flags.writable, self.flags.dirty) = (store, store);
        (self.frame, self.around) = (frame, VaRange { start: self.page, end: VirtAddr(self.page.0 + FRAME_BYTES) });
        if !store {
            self.around = window(vma, self.va, around);
            for page in pages(self.around).map(|at| file_page(vma, at)) {
                if !layer.must_be_read(file, page) {
                    layer.cached_page(file, page, &within)?;
                }
            }
        }
        Ok(Work::Cached { file, page })
    }

    /// A page that was swapped out.
    fn choose_of_swapped(&mut self, layer: &Layer, swapped: Swapped) -> Work {
        let Swapped::InMemory(frame) = swapped else { return Work::SwapIn };
        self.frame = frame;
        let exclusive = layer.pages.are_exclusive(frame, 0);
        if self.intent == Intent::Store && !exclusive {
            return Work::Copy { from: frame };
        }
        self.flags.writable &= exclusive;
        self.flags.dirty &= exclusive;
        Work::SwapCached
    }

    /// Makes the page a folio: the largest of the layer's orders up to `most` whose place lies inside the VMA and has no page
    /// yet (Linux `alloc_anon_folio`); a single page if there is none.
    pub(super) fn set_folio(&mut self, layer: &mut Layer, vma: &Vma, most: u32) {
        let space = self.space.index;
        let free = |layer: &mut Layer, start: u64, end: u64| {
            let range = VaRange { start: VirtAddr(start), end: VirtAddr(end) };
            let swapped = layer.swap().is_some_and(|swap| swap.holds_some(space, range));
            !swapped && pages(range).all(|at| layer.is_unmapped(space, at))
        };
        let orders: Vec<u32> = layer.folio_orders.iter().copied().filter(|&order| order <= most).collect();
        let fits = orders.into_iter().rev().find(|&order| {
            let start = self.va.0 & !((FRAME_BYTES << order) - 1);
            let end = start + (FRAME_BYTES << order);
            vma.start.0 <= start && end <= vma.end.0 && free(layer, start, end)
        });
        self.order = fits.unwrap_or(0);
        self.page = VirtAddr(self.va.0 & !((FRAME_BYTES << self.order) - 1));
    }

    /// The pages of a file that are read with the one at `va`, as numbers in the file (Linux `do_sync_mmap_readahead`): around
    /// it, from it on if the mapping is read in sequence, it alone if at random; those inside the mapping.
    pub(super) fn read_window(&self, vma: &Vma, page: u64, bytes: u64) -> Range<u64> {
        let ahead = bytes >> FRAME_SHIFT;
        let Range { start: first, end } = file_pages(vma);
        match vma.advice.order {
            OrderAdvice::Random => page..page + 1,
            OrderAdvice::Sequential => page..(page + ahead).min(end),
            OrderAdvice::Normal => {
                let start = page.saturating_sub(ahead / 2).max(first);
                start..(start + ahead).max(page + 1).min(end)
            }
        }
    }
}

/// Number in its file (or its object) of the page at an address of a mapping.
pub(super) fn file_page(vma: &Vma, va: VirtAddr) -> u64 {
    (vma.file_offset + (va.0 - vma.start.0)) >> FRAME_SHIFT
}

/// Numbers in its file of all pages of a mapping.
fn file_pages(vma: &Vma) -> Range<u64> {
    let first = file_page(vma, vma.start);
    first..first + ((vma.end.0 - vma.start.0) >> FRAME_SHIFT)
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

/// The window of `bytes` around `va`: it begins at a multiple of its size or with the VMA, and ends with what one
/// page-table page maps at the latest (Linux `do_fault_around`).
fn window(vma: &Vma, va: VirtAddr, bytes: u64) -> VaRange {
    let table = PageSize::Size2M.bytes();
    let start = (va.0 & !(bytes - 1)).max(vma.start.0);
    let end = (start + bytes).min(vma.end.0).min((va.0 & !(table - 1)) + table);
    VaRange { start: VirtAddr(start), end: VirtAddr(end) }
}

/// The size of the pages that a mapping asks for by MAP_HUGETLB and its size bits (`MAP_HUGE_2MB`, `MAP_HUGE_1GB`).
pub(super) fn explicit_size(vma: &Vma) -> Option<PageSize> {
    let sizes = PageSize::ALL.into_iter().rev();
    let asked = |size: &PageSize| u64::from(vma.flags.0 >> 26 & 0x3f) == u64::from(size.shift());
    vma.flags.contains(MapFlags::HUGETLB).then(|| sizes.clone().find(asked).unwrap_or(PageSize::Size2M))
}

/// The largest page, up to `wanted`, whose aligned place around `va` lies inside the VMA.
pub(super) fn largest_inside(vma: &Vma, va: VirtAddr, wanted: PageSize) -> PageSize {
    let inside = |size: &PageSize| {
        let start = va.0 & !(size.bytes() - 1);
        *size <= wanted && vma.start.0 <= start && start + size.bytes() <= vma.end.0
    };
    PageSize::ALL.into_iter().rev().find(inside).unwrap_or(PageSize::Size4K)
}
