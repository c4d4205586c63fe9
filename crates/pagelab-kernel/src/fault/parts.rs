//! Parts of a fault: the request, the target, the locks that it holds, and its progress.

use super::FaultOutcome;
use super::io::Phase;
use super::work::FaultWork;
use crate::config::FaultKind;
use crate::frames::frame_alloc::ZoneBatch;
use crate::placement::PlacementStep;
use crate::reclaim::{Dissolution, Pressure, ReclaimScan};
use crate::scanning::Scanning;
use crate::table_lock::TableLocking;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::page_fault::{Intent, Reached};
use pagelab_base::step::BlockKey;
use pagelab_tables::page_table::{Mapping, PteFlags, TableBlock};

/// The request to the handler.
#[derive(Clone, Debug)]
pub(super) struct FaultRequest {
    pub space: SpaceId,
    /// Address to map: the faulting one, then those of further pages.
    pub va: VirtAddr,
    pub intent: Intent,
    pub cpu: CpuId,
    /// Whether an exception of the program raised it; otherwise the kernel populates a mapping.
    pub exception: bool,
    /// How far the hardware's walk came, if the hardware reports it; for the first page.
    pub reached: Option<Reached>,
}

/// The page to map.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// First address and size of the page, and its permissions; known after the look-up.
    pub page: VirtAddr,
    pub size: PageSize,
    pub flags: PteFlags,
    /// The largest page that may be mapped if there is none yet.
    pub largest: PageSize,
    /// Order of the key: handlers that may map a part of that page, or of a folio around the address, compete for the
    /// key of the first of 2^`key_order` 4 KiB pages.
    pub key_order: u32,
    /// Order of the frames to map, for a large page or a folio of 4 KiB pages.
    pub order: u32,
    /// The frame to map, once it is allocated.
    pub frame: Pfn,
    /// Pages around the address that are mapped together, including its own.
    pub around: VaRange,
    /// Whether the placement policy does not serve the page.
    pub skips_policy: bool,
    /// Whether the page is read alone, since its file is missed too often.
    pub alone: bool,
}

impl Target {
    /// A page of 4 KiB about which nothing else is known yet.
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

    /// The first address after the page or folio.
    pub fn end(&self) -> VirtAddr {
        self.page + (FRAME_BYTES << self.order)
    }

    /// Content of the page-table entry.
    pub fn mapping(&self) -> Mapping {
        Mapping { pfn: self.frame, size: self.size, flags: self.flags }
    }

    /// Sets the target to the page of this size that contains an address.
    pub fn set_size(&mut self, size: PageSize, va: VirtAddr) {
        (self.size, self.order) = (size, size.order());
        self.page = va.align_down(size.bytes());
    }

    /// Limits the page to the size that an entry of a table of this level maps.
    pub fn shrink_to(&mut self, level: u8, va: VirtAddr) {
        while self.size > PageSize::from_level(level) {
            self.set_size(smaller(self.size), va);
        }
    }
}

/// The next smaller page size.
pub(super) fn smaller(size: PageSize) -> PageSize {
    PageSize::ALL[(size as usize).saturating_sub(1)]
}

/// The locks that the handler holds.
#[derive(Clone, Debug)]
pub(super) struct HeldLocks {
    /// The page's key. The handler that maps the page holds it from the walk to the end of the page.
    pub key: BlockKey,
    /// Whether the handler holds that key.
    pub page: bool,
    /// Whether the handler prevents changes of the mappings.
    pub mappings: bool,
    /// Whether it has fallen back from the lock of its VMA to that of the address space.
    pub fell_back: bool,
    /// Whether the lock of the VMA is still to be released, since it was taken in vain.
    pub returns_vma: bool,
    /// Whether it has given up the mappings while a device works.
    pub waits_without: bool,
}

/// Progress of the handler.
#[derive(Clone, Debug)]
pub(super) struct FaultProgress {
    pub state: FaultState,
    pub phase: Phase,
    pub work: FaultWork,
    /// The kind of fault, `None` for a first touch; known after the walk.
    pub kind: Option<FaultKind>,
    /// Pages still to be mapped after this one.
    pub further: u32,
    /// First address after the pages, from the one at the address on, that the fault has found or made present.
    pub present_to: VirtAddr,
    /// Whether the fault has been counted.
    pub counted: bool,
    /// Whether a device was read.
    pub major: bool,
    /// Number of consecutive scans that freed nothing.
    pub fruitless: u32,
    /// Whether there was no memory to dissolve a late segment.
    pub keeps_segments: bool,
    /// Pages mapped by an engine that the handler has accounted for, whose cost is not charged yet.
    pub accounted: u64,
    /// Whether the frame comes from a ring, and the ring's thread has not been notified of its page yet.
    pub defers: bool,
    /// Whether it has given up its lock for a device before (`FAULT_FLAG_TRIED`).
    pub tried: bool,
    /// Levels of the last walk that the translation cache lacks.
    pub unfilled: Option<(u8, u8)>,
    pub outcome: FaultOutcome,
}

impl HeldLocks {
    /// Makes handlers of 2^`order` 4 KiB pages compete for the key of the first page.
    pub fn contend_at(&mut self, order: u32, request: &FaultRequest) {
        self.key = BlockKey::Page { space: request.space, page: request.va.page_number() >> order << order };
    }
}

impl FaultProgress {
    /// Progress at the entry of the handler.
    pub fn new(page: VirtAddr) -> Self {
        Self {
            state: FaultState::Entry,
            phase: Phase::Plain,
            work: FaultWork::Fresh,
            kind: None,
            further: 0,
            present_to: page,
            counted: false,
            major: false,
            fruitless: 0,
            keeps_segments: false,
            accounted: 0,
            defers: false,
            tried: false,
            unfilled: None,
            outcome: FaultOutcome::Retry,
        }
    }
}

/// How a step uses the lock of a batch of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchLock {
    /// It refers to the lock's line, and holds no lock for a time; or it needs none.
    Unheld,
    /// Take the lock.
    Take,
    /// Do the batch's work, and release the lock.
    Held,
}

/// What the current step does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FaultState {
    Entry,
    /// Search the chain of a hashed table for a page that the walker left to the kernel.
    Collision,
    Lookup,
    Walk,
    /// Read the PTE of the next page, in the table where the walk for the page before ended.
    NextEntry,
    /// Fill the entries of these levels in the translation cache, which may be `new`.
    Fill {
        levels: (u8, u8),
        new: bool,
    },
    /// Zero memory for a page table and link it.
    Table {
        block: TableBlock,
    },
    /// Fill a new page-table page with the parts of a large page, and replace that page by it. Without a frame, write
    /// the entry of each part.
    Split {
        frame: Option<Pfn>,
    },
    /// These lines with entries of the parts have been written.
    Parts {
        lines: Vec<PhysAddr>,
    },
    Allocation,
    /// Take a frame by the placement policy.
    Place(PlacementStep),
    /// Scan the oldest pages.
    Reclaim(Box<Scanning>),
    /// Take memory of a late segment.
    Dissolve(Box<Dissolution>),
    /// Tell the host that these pages leave the balloon, and free them.
    Deflate {
        frames: Vec<Pfn>,
    },
    /// The CPU's list of free pages was empty and is refilled under the zone's lock: write the metadata of these pages.
    Refill {
        batch: ZoneBatch,
        lock: BatchLock,
    },
    /// Take the lock of the address space, if it is free, or make the VMA's `anon_vma` under it.
    AnonVma {
        locked: bool,
    },
    /// Wait until reclaimed pages are written.
    WriteBack {
        scan: Box<ReclaimScan>,
    },
    /// Charge the frames of pages that will be read (Linux `filemap_add_folio`).
    ChargeRead {
        pages: Vec<(u64, Pfn)>,
    },
    /// Read pages of a file into these frames.
    Read {
        pages: Vec<(u64, Pfn)>,
    },
    Zeroing,
    Charge,
    Rmap,
    /// Add the page to the CPU's batch for the LRU lists, after the batch has gone to the lists if it was full.
    Lru {
        lock: BatchLock,
    },
    /// Take the lock of the page-table page.
    Lock(TableLocking),
    /// Take a ready frame under that lock.
    TakeReady {
        entry: PhysAddr,
    },
    /// Write the entry under that lock.
    Install {
        entry: PhysAddr,
    },
    /// These lines of the table had to make room, or moved to a larger table.
    Rehash {
        entry: PhysAddr,
        lines: Vec<PhysAddr>,
    },
    /// Prepare a frame for the layer's engine, which had none for the page.
    Supply,
    Return,
}

impl FaultState {
    /// The first step towards the lock of the page-table page.
    pub const LOCK: Self = Self::Lock(TableLocking::Take);

    /// A scan for pages to reclaim begins.
    pub fn reclaim(pressure: Pressure) -> Self {
        Self::Reclaim(Box::new(Scanning::new(pressure)))
    }
}
