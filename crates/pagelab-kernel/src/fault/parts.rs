//! What the handler of a page fault knows: what is asked, what is to be mapped, what it holds, and how far it is.

use super::Outcome;
use super::io::Phase;
use super::work::Work;
use crate::config::FaultKind;
use crate::placement::PlacementStep;
use crate::reclaim::{Pressure, Scan};
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::page_fault::{Intent, Reached};
use pagelab_base::step::BlockKey;
use pagelab_tables::page_table::{Mapping, PteFlags, TableBlock};

/// What is asked of the handler.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub space: SpaceId,
    /// Address that is to be mapped: the faulting one, then those of further pages.
    pub va: VirtAddr,
    pub intent: Intent,
    pub cpu: CpuId,
    /// An exception of the program; otherwise the kernel populates a mapping.
    pub exception: bool,
    /// How far the hardware's walk came, if the hardware tells; for the first page.
    pub reached: Option<Reached>,
}

/// What is to be mapped.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// First address and size of the page, and its permissions; known after the lookup.
    pub page: VirtAddr,
    pub size: PageSize,
    pub flags: PteFlags,
    /// The largest page that may be mapped where there is none.
    pub largest: PageSize,
    /// Handlers that may map a part of that page, or of a folio around the address, contend for the key of the first of
    /// 2^this 4 KiB pages.
    pub key_order: u32,
    /// 2^this frames are to be mapped: those of a large page, or of a folio of 4 KiB pages.
    pub order: u32,
    /// The frame to be mapped, from its allocation on.
    pub frame: Pfn,
    /// Pages around the one at the address that are mapped with it, itself included.
    pub around: VaRange,
    /// The placement policy does not serve the page.
    pub skips_policy: bool,
    /// No page is read with this one, since its file is missed too often.
    pub alone: bool,
}

impl Target {
    /// A page of 4 KiB of which nothing else is known yet.
    pub fn new(page: VirtAddr) -> Self {
        Self {
            page,
            size: PageSize::Size4K,
            flags: PteFlags { writable: false, user: true, executable: false, accessed: true, dirty: false },
            largest: PageSize::Size4K,
            key_order: 0,
            order: 0,
            frame: Pfn(0),
            around: VaRange { start: page, end: page },
            skips_policy: false,
            alone: false,
        }
    }

    /// The first address behind the page or folio.
    pub fn end(&self) -> VirtAddr {
        VirtAddr(self.page.0 + (FRAME_BYTES << self.order))
    }

    /// What the page-table entry is to say.
    pub fn mapping(&self) -> Mapping {
        Mapping { pfn: self.frame, size: self.size, flags: self.flags }
    }

    /// The page of a size that an address is in is to be mapped.
    pub fn set_size(&mut self, size: PageSize, va: VirtAddr) {
        (self.size, self.order) = (size, size.order());
        self.page = va.align_down(size.bytes());
    }

    /// Makes the page no larger than what an entry of a table of this level maps.
    pub fn shrink_to(&mut self, level: u8, va: VirtAddr) {
        while self.size > PageSize::of_level(level) {
            self.set_size(smaller(self.size), va);
        }
    }
}

/// The next smaller page size.
pub(super) fn smaller(size: PageSize) -> PageSize {
    PageSize::ALL[(size as usize).saturating_sub(1)]
}

/// What the handler holds.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The page's key: held from the walk to the end of its page by the handler that maps it.
    pub key: BlockKey,
    /// The handler holds that key.
    pub page: bool,
    /// The handler holds off changes of the mappings.
    pub mappings: bool,
}

/// How far the handler is.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub state: FaultState,
    pub phase: Phase,
    pub work: Work,
    /// The kind of fault, if it is no first touch; known after the walk.
    pub kind: Option<FaultKind>,
    /// Pages still to be mapped after this one.
    pub further: u32,
    /// First address behind the pages, from the one at the address on, that the fault has found or made present.
    pub present_to: VirtAddr,
    /// The fault is in the counters.
    pub counted: bool,
    /// A device had to be read.
    pub major: bool,
    /// Scans in a row that freed nothing.
    pub fruitless: u32,
    /// Pages that an engine has mapped and that the handler has accounted for; their cost is not charged yet.
    pub accounted: u64,
    /// The frame is from a ring, and the ring's thread has yet to be told of its page.
    pub defers: bool,
    /// Levels of the last walk that the translation cache lacks.
    pub unfilled: Option<(u8, u8)>,
    pub outcome: Outcome,
}

impl Held {
    /// Handlers of 2^order 4 KiB pages contend for the key of the first of them.
    pub fn contend_at(&mut self, order: u32, request: &Request) {
        self.key = BlockKey::Page { space: request.space, page: request.va.page_number() >> order << order };
    }
}

impl Progress {
    /// At the entry of the handler.
    pub fn new(page: VirtAddr) -> Self {
        Self {
            state: FaultState::Entry,
            phase: Phase::Plain,
            work: Work::Fresh,
            kind: None,
            further: 0,
            present_to: page,
            counted: false,
            major: false,
            fruitless: 0,
            accounted: 0,
            defers: false,
            unfilled: None,
            outcome: Outcome::Retry,
        }
    }
}

/// What the step under way does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FaultState {
    Entry,
    Lookup,
    Walk,
    /// Look at the PTE of the next page, in the table that the walk for the one before ended at.
    NextEntry,
    /// Enter the entries of these levels in the translation cache, which may be `new`.
    Fill {
        levels: (u8, u8),
        new: bool,
    },
    /// Zero memory for a page table and link it.
    Table {
        block: TableBlock,
    },
    /// Fill a new page-table page with the parts of a large page and put it in that page's place.
    Split {
        frame: Pfn,
    },
    Allocation,
    /// Go for a frame by the placement policy.
    Place(PlacementStep),
    /// Scan the oldest pages.
    Reclaim {
        pressure: Pressure,
    },
    /// The CPU's list of free pages was empty: under the zone's lock it got what these pages' metadata tells.
    Refill {
        descriptors: Vec<Pfn>,
    },
    /// Wait until those that leave are written.
    WriteBack {
        scan: Box<Scan>,
    },
    /// Read pages of a file into these frames.
    Read {
        pages: Vec<(u64, Pfn)>,
    },
    Zeroing,
    Charge,
    Rmap,
    Lru,
    /// Take the lock of the page-table page.
    Lock,
    /// Under that lock, take a frame that is ready.
    TakeReady {
        entry: PhysAddr,
    },
    /// Under that lock, write the entry.
    Install {
        entry: PhysAddr,
    },
    /// These lines of the table had to make room or moved on to a larger one.
    Rehash {
        entry: PhysAddr,
        lines: Vec<PhysAddr>,
    },
    /// Make a frame ready for the layer's engine, which had none for the page.
    Supply,
    Return,
}
