//! Allocation of a layer's physical memory.
//!
//! A [`FrameAllocator`] owns a range of 4 KiB frames and hands out naturally aligned blocks of 2^order frames. Each
//! request of the kernel names the purpose of the block, the requesting CPU and, for user data, the faulting page. The
//! plain [`Buddy`] uses the order alone. [`PageAllocator`], with its nodes, zones, migrate types and per-CPU lists,
//! uses everything but the page. The allocator reports its work in [`AllocEffects`], so that the kernel can charge
//! instructions and memory references for it.
//!
//! Invariants of every allocator: no frame belongs to two blocks in use; a freed block was handed out by this allocator
//! with this order; and the number of frames that are free, in use or on per-CPU lists is constant. A violation is a
//! defect of the kernel model and panics.

mod buddy;
mod free_area;
mod page_allocator;
mod report;

use std::ops::Range;

use pagelab_trace::event::ProcessIx;

use pagelab_base::addr::{Pfn, VirtAddr};
use pagelab_base::ids::{CpuId, NodeId};

pub use buddy::{Buddy, BuddyConfig};
pub use free_area::MAX_MAX_ORDER;
pub use page_allocator::{
    Aged, AgedBlock, AgeingConfig, NodeConfig, PageAllocator, PageAllocatorConfig, PcpConfig, PerCpuLists,
    WatermarkConfig, Watermarks, ZoneIx, ZoneKind, ZoneStatus,
};
pub use report::ReportPass;

/// Purpose of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FramePurpose {
    /// Page-table pages.
    PageTable,
    /// Pages of programs, except those of the page cache.
    UserData,
    /// Other memory of the kernel: rings, descriptors, stacks.
    KernelObject,
    /// Contents of files.
    PageCache,
    /// Kernel objects that a shrinker can free: dentries, inodes.
    ReclaimableObject,
}

impl FramePurpose {
    /// The mobility of such contents (Linux `gfp_migratetype`): user data and the page cache are allocated with
    /// `__GFP_MOVABLE`, dentries and inodes with `__GFP_RECLAIMABLE`, everything else with neither.
    pub fn migrate_type(self) -> MigrateType {
        match self {
            Self::UserData | Self::PageCache => MigrateType::Movable,
            Self::ReclaimableObject => MigrateType::Reclaimable,
            Self::PageTable | Self::KernelObject => MigrateType::Unmovable,
        }
    }
}

/// Mobility of contents, that is, how memory that they occupy can be freed (Linux `enum migratetype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MigrateType {
    /// Cannot be moved: page tables and the kernel's own objects.
    Unmovable,
    /// Can be copied elsewhere: pages that programs access through page tables, and the page cache.
    Movable,
    /// Can be freed: objects with a shrinker.
    Reclaimable,
}

impl MigrateType {
    /// All types, in the order of the allocator's lists.
    pub const ALL: [Self; Self::COUNT] = [Self::Unmovable, Self::Movable, Self::Reclaimable];
    /// Number of types.
    pub const COUNT: usize = 3;
}

/// How far a request may use the reserves (Linux `gfp_to_alloc_flags`, `__zone_watermark_ok`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// Down to the min watermark (`GFP_KERNEL`, `GFP_HIGHUSER_MOVABLE`).
    #[default]
    Ordinary,
    /// Down to three eighths of the min watermark (`GFP_ATOMIC`: `ALLOC_HIGH` leaves half of min, `ALLOC_HARDER` three
    /// quarters of that).
    Atomic,
    /// To the last frame, for reclaim itself (`PF_MEMALLOC`: `ALLOC_NO_WATERMARKS`).
    Reclaim,
}

/// How short of memory the zones were that an allocation may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shortage {
    /// At least one zone stays above its low watermark.
    #[default]
    None,
    /// No zone stays above its low watermark: Linux wakes kswapd.
    BelowLow,
    /// No zone stays above its min watermark: Linux refuses ordinary requests, which then reclaim memory themselves.
    BelowMin,
}

/// The page whose fault requests memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultingPage {
    /// The process that faulted.
    pub process: ProcessIx,
    /// The address that faulted.
    pub vaddr: VirtAddr,
}

/// The nodes that a request tries (Linux `alloc_pages_node`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Near {
    /// Tries the nodes in order of distance from this CPU.
    pub cpu: CpuId,
    /// Tries only the CPU's own node (`__GFP_THISNODE`).
    pub only: bool,
}

/// A request for a block of 2^`order` frames, aligned to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRequest {
    /// log2 of the number of frames in the block.
    pub order: u32,
    /// Purpose of the block, which decides its mobility.
    pub purpose: FramePurpose,
    /// The requesting CPU: a hint for per-CPU lists and nearest nodes, never a restriction.
    pub cpu: CpuId,
    /// The nodes to try, if not those of the requesting CPU.
    pub near: Option<Near>,
    /// The faulting page; known only for user data.
    pub faulting: Option<FaultingPage>,
    /// How far the request may use the reserves.
    pub urgency: Urgency,
}

impl FrameRequest {
    /// An ordinary request of CPU 0, without a faulting page.
    pub fn new(order: u32, purpose: FramePurpose) -> Self {
        Self { order, purpose, cpu: CpuId::FIRST, near: None, faulting: None, urgency: Urgency::Ordinary }
    }
}

/// Work of the allocations and frees since the last [`Self::clear`]. The caller keeps one and clears it, so that no
/// request allocates memory on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocEffects {
    /// Free blocks split in two.
    pub splits: u32,
    /// Pairs of free buddies merged.
    pub merges: u32,
    /// The frames whose descriptor (`struct page`) was read or written, in order; a frame may occur several times.
    pub descriptors: Vec<Pfn>,
    /// Allocations and frees that a per-CPU list served without the zone lock.
    pub per_cpu_hits: u32,
    /// The zones whose lock was taken, in order, one entry per acquisition.
    pub zone_locks: Vec<ZoneIx>,
    /// Blocks that allocations and frees moved from or to a zone's lists.
    pub moved: u32,
    /// Blocks taken from the lists of another migrate type.
    pub steals: u32,
    /// Pageblocks that changed their migrate type.
    pub conversions: u32,
    /// The worst shortage that an allocation found.
    pub shortage: Shortage,
    /// Whether a block became free that is to be reported to a host.
    pub is_to_be_reported: bool,
}

impl AllocEffects {
    /// Clears everything but keeps the memory of its lists.
    pub fn clear(&mut self) {
        let (mut descriptors, mut zone_locks) =
            (std::mem::take(&mut self.descriptors), std::mem::take(&mut self.zone_locks));
        descriptors.clear();
        zone_locks.clear();
        *self = Self { descriptors, zone_locks, ..Self::default() };
    }

    /// What was done under a zone's lock; `None` if it was not taken.
    pub fn zone_batch(&self) -> Option<ZoneBatch> {
        let batch = || ZoneBatch { descriptors: self.descriptors.clone(), moved: self.moved.into() };
        (!self.zone_locks.is_empty()).then(batch)
    }
}

/// Blocks that move from or to a zone's lists under its lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneBatch {
    /// The frames whose descriptor is read or written, in order. They include neighbours on the lists and buddies; a
    /// frame may occur several times.
    pub descriptors: Vec<Pfn>,
    /// Number of blocks that move.
    pub moved: u64,
}

/// An allocator of physical frames.
pub trait FrameAllocator: Send {
    /// Returns a copy in the current state.
    fn copy(&self) -> Box<dyn FrameAllocator>;

    /// Returns a free block of the requested order; `None` if there is none that the request may use (also for orders
    /// above [`Self::max_order`]). Adds its work to `effects`.
    fn alloc(&mut self, request: FrameRequest, effects: &mut AllocEffects) -> Option<Pfn>;

    /// Takes exactly the block of the requested order at `pfn`. Returns false, without any change, if that is not a
    /// block, if a part of it is not free (a frame on a per-CPU list is not), or if the request may not use it. Adds
    /// its work to `effects`.
    fn alloc_at(&mut self, pfn: Pfn, request: FrameRequest, effects: &mut AllocEffects) -> bool;

    /// Returns a run of free blocks of at least 2^`order` frames, each aligned to its size: the next run after the
    /// rover, wrapping around to it, that has `frames`; the largest run if none is that large. Nodes and zones are
    /// searched in the order in which `cpu` tries them. Adds the first frames of all examined runs to `looked`.
    fn find_run(&self, order: u32, frames: u64, cpu: CpuId, looked: &mut Vec<Pfn>) -> Option<Range<Pfn>>;

    /// Lets the next search in the part of the memory that contains `pfn`, or that ends there, begin at `pfn`.
    fn set_rover(&mut self, pfn: Pfn);

    /// Frees a block. Adds its work to `effects`.
    ///
    /// # Panics
    /// If `pfn` is not the first frame of a block of this order in use.
    fn free(&mut self, pfn: Pfn, order: u32, cpu: CpuId, effects: &mut AllocEffects);

    /// Splits a block in use into blocks of order `into`, each to be freed on its own, as the kernel does when it
    /// splits a huge page.
    ///
    /// # Panics
    /// As [`Self::free`], or if `into` exceeds `order`.
    fn split_used(&mut self, pfn: Pfn, order: u32, into: u32);

    /// Order of the block in use that begins at `pfn`; `None` if no block begins there.
    fn used_order(&self, pfn: Pfn) -> Option<u32>;

    /// The frames that the allocator owns, including reserved ones.
    fn frames(&self) -> Range<Pfn>;

    /// The largest order that can be requested.
    fn max_order(&self) -> u32;

    /// Frames in free blocks, without those on per-CPU lists, as in Linux's `NR_FREE_PAGES`.
    fn free_frames(&self) -> u64;

    /// Frames on per-CPU lists: not in use, but available to one CPU only.
    fn per_cpu_frames(&self) -> u64 {
        0
    }

    /// Sets the nodes of the first CPUs, if the allocator has nodes.
    fn set_cpu_nodes(&mut self, _nodes: &[NodeId]) {}

    /// Frees the frames on the per-CPU lists (Linux `drain_all_pages`): before memory counts as exhausted, and to check
    /// whether all memory is free.
    fn drain_per_cpu(&mut self, _effects: &mut AllocEffects) {}

    /// Free blocks of exactly this order; 0 above [`Self::max_order`].
    fn free_blocks(&self, order: u32) -> u64;

    /// Whether `pfn` lies in a free block.
    fn is_free(&self, pfn: Pfn) -> bool;

    /// Begins to note which free blocks of at least this order have been reported to a host.
    fn track_reports(&mut self, order: u32);

    /// Isolates free blocks for the next request of a pass that reports them; false if there are none any more. They
    /// count as in use until [`Self::put_back_reported`].
    fn isolate_unreported(&mut self, pass: &mut ReportPass, effects: &mut AllocEffects) -> bool;

    /// Puts blocks back that were isolated and reported.
    fn put_back_reported(&mut self, blocks: &[(Pfn, u32)], effects: &mut AllocEffects);

    /// Checks all structures of the allocator against each other, in time linear in the number of frames. For tests and
    /// `--check`.
    ///
    /// # Panics
    /// If they contradict each other.
    fn check_invariants(&self);
}

/// A memory or an allocator that cannot be set up as configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameAllocError {
    /// A memory without frames.
    #[error("physical memory of 0 frames: at least one 4 KiB frame is needed")]
    NoFrames,
    #[error(
        "physical memory of {count} frames from {first:?}: it must fit 2^32 frames (16 TiB) when its start is \
             rounded down to a block of the largest order"
    )]
    /// Too many frames for an allocator to number.
    TooLarge {
        /// The first frame of the memory.
        first: Pfn,
        /// Number of frames requested.
        count: u64,
    },
    /// Blocks larger than the allocator supports.
    #[error("max_order {max_order}: at most {MAX_MAX_ORDER} (blocks of 1 GiB) is possible")]
    MaxOrder {
        /// The requested order.
        max_order: u32,
    },
    /// A part of the range is outside the allocator's memory.
    #[error("frames {start:?}..{end:?} cannot be reserved: the memory is {first:?}..{last:?} (end excluded)")]
    ReserveOutside {
        /// First frame of the range.
        start: Pfn,
        /// The first frame after the range.
        end: Pfn,
        /// First frame of the memory.
        first: Pfn,
        /// The first frame after the memory.
        last: Pfn,
    },
    /// A part of the range is reserved already.
    #[error("frames {start:?}..{end:?} cannot be reserved: {taken:?} is reserved already")]
    ReservedTwice {
        /// First frame of the range.
        start: Pfn,
        /// The first frame after the range.
        end: Pfn,
        /// The first frame of the range that is reserved already.
        taken: Pfn,
    },
    /// The zone has handed out memory, so the range may be in use.
    #[error("frames {start:?}..{end:?} cannot be reserved after the first allocation: reserve them at boot")]
    ReserveAfterBoot {
        /// First frame of the range.
        start: Pfn,
        /// The first frame after the range.
        end: Pfn,
    },
    /// An impossible parameter of the allocator.
    #[error("{key}: {what}")]
    Config {
        /// The key, relative to the allocator's own parameters.
        key: String,
        /// What is wrong, and which values are allowed.
        what: String,
    },
}

#[cfg(test)]
mod report_tests;
