//! Who hands out the physical memory of a layer.
//!
//! A [`FrameAllocator`] owns a range of 4 KiB frames and gives out naturally aligned blocks of 2^order of them. The
//! kernel says with each request what the block is for, which CPU asks and, for user data, which page faulted;
//! the plain [`Buddy`] looks at the order alone, [`PageAllocator`] with its nodes, zones, migrate types and per-CPU
//! lists at all but the page. What the allocator did on the way comes back in [`AllocEffects`], so that the kernel can
//! charge instructions and memory references for it.
//!
//! Invariants that every allocator holds: no frame belongs to two blocks that are in use at once, a freed block
//! was handed out by this allocator with this order, and the frames that are free, in use or on a per-CPU list are
//! constant in sum. Breaking one is a defect of the kernel model and panics.

mod buddy;
mod free_area;
mod page_allocator;

use std::ops::Range;

use pagelab_trace::event::ProcessIx;

use pagelab_base::addr::{Pfn, VirtAddr};

pub use buddy::{Buddy, BuddyConfig};
pub use free_area::MAX_MAX_ORDER;
pub use page_allocator::{
    Aged, AgedBlock, AgeingConfig, NodeConfig, PageAllocator, PageAllocatorConfig, PcpConfig, WatermarkConfig,
    Watermarks, ZoneIx, ZoneKind, ZoneStatus,
};

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FramePurpose {
    /// Tables of a page table.
    PageTable,
    /// Pages of programs, but for those of the page cache.
    UserData,
    /// Anything else that the kernel keeps: rings, descriptors, stacks.
    KernelObject,
    /// Contents of files.
    PageCache,
    /// Kernel objects that a shrinker can drop: dentries, inodes.
    ReclaimableObject,
}

impl FramePurpose {
    /// The mobility of such contents (Linux `gfp_migratetype`): user data and the page cache are allocated with
    /// `__GFP_MOVABLE`, dentries and inodes with `__GFP_RECLAIMABLE`, all else with neither.
    pub fn migrate_type(self) -> MigrateType {
        match self {
            Self::UserData | Self::PageCache => MigrateType::Movable,
            Self::ReclaimableObject => MigrateType::Reclaimable,
            Self::PageTable | Self::KernelObject => MigrateType::Unmovable,
        }
    }
}

/// What can be done with contents to make room (Linux `enum migratetype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MigrateType {
    /// Stays where it is: page tables and the kernel's own objects.
    Unmovable,
    /// Can be copied elsewhere: pages that programs reach through page tables, and the page cache.
    Movable,
    /// Can be dropped: objects with a shrinker.
    Reclaimable,
}

impl MigrateType {
    /// All types, in the order of the allocator's lists.
    pub const ALL: [Self; Self::COUNT] = [Self::Unmovable, Self::Movable, Self::Reclaimable];
    /// How many types there are.
    pub const COUNT: usize = 3;
}

/// How deep a request may go into the reserves (Linux `gfp_to_alloc_flags`, `__zone_watermark_ok`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// Down to the min watermark (`GFP_KERNEL`, `GFP_HIGHUSER_MOVABLE`).
    #[default]
    Ordinary,
    /// Down to three eighths of it (`GFP_ATOMIC`: `ALLOC_HIGH` leaves a half of min, `ALLOC_HARDER` three quarters of
    /// that).
    Atomic,
    /// To the last frame: reclaim itself (`PF_MEMALLOC`: `ALLOC_NO_WATERMARKS`).
    Reclaim,
}

/// How short of memory an allocation found the zones that it may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shortage {
    /// Some zone stays above its low watermark.
    #[default]
    None,
    /// None does: Linux wakes kswapd.
    BelowLow,
    /// None stays above its min watermark: Linux refuses ordinary requests, which then reclaim themselves.
    BelowMin,
}

/// The page whose fault asks for memory.
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
    /// Those nearest to this CPU first.
    pub cpu: u32,
    /// Its own alone (`__GFP_THISNODE`).
    pub only: bool,
}

/// One request for a block of 2^`order` frames, aligned to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRequest {
    /// log2 of the frames of the block.
    pub order: u32,
    /// What the block is for; it decides the mobility.
    pub purpose: FramePurpose,
    /// The CPU that asks: a hint for per-CPU lists and nearest nodes, never a restriction.
    pub cpu: u32,
    /// Whose nodes are tried, if not the CPU's own.
    pub near: Option<Near>,
    /// Known for user data only.
    pub faulting: Option<FaultingPage>,
    /// How deep the request may go into the reserves.
    pub urgency: Urgency,
}

impl FrameRequest {
    /// An ordinary request of CPU 0 with no faulting page.
    pub fn new(order: u32, purpose: FramePurpose) -> Self {
        Self { order, purpose, cpu: 0, near: None, faulting: None, urgency: Urgency::Ordinary }
    }
}

/// What allocations and frees did since the last [`Self::clear`]. The caller keeps one and clears it, so that
/// nothing is allocated per request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocEffects {
    /// Free blocks cut in two.
    pub splits: u32,
    /// Pairs of free buddies joined.
    pub merges: u32,
    /// The frames whose descriptor (`struct page`) was read or written, in order; a frame may appear repeatedly.
    pub descriptors: Vec<Pfn>,
    /// Allocations and frees that a per-CPU list served alone, without the zone lock.
    pub per_cpu_hits: u32,
    /// The zones whose lock was taken, in order, once each time.
    pub zone_locks: Vec<ZoneIx>,
    /// Blocks taken from the lists of another migrate type.
    pub steals: u32,
    /// Pageblocks that changed their migrate type.
    pub conversions: u32,
    /// The worst that an allocation found.
    pub shortage: Shortage,
}

impl AllocEffects {
    /// Forgets what was done and keeps the memory of its lists.
    pub fn clear(&mut self) {
        let (mut descriptors, mut zone_locks) =
            (std::mem::take(&mut self.descriptors), std::mem::take(&mut self.zone_locks));
        descriptors.clear();
        zone_locks.clear();
        *self = Self { descriptors, zone_locks, ..Self::default() };
    }
}

/// An allocator of physical frames.
pub trait FrameAllocator: Send {
    /// A copy of it in the state that it is in.
    fn copy(&self) -> Box<dyn FrameAllocator>;

    /// A free block of the requested order, `None` if there is none that the request may have (also for orders above
    /// [`Self::max_order`]). What it took is added to `effects`.
    fn alloc(&mut self, request: FrameRequest, effects: &mut AllocEffects) -> Option<Pfn>;

    /// Takes exactly the block of the requested order at `pfn`. False, and nothing has changed, if it is not one, if a
    /// part of it is not free (a frame on a per-CPU list is not), or if the request may not have it. What it took is
    /// added to `effects`.
    fn alloc_at(&mut self, pfn: Pfn, request: FrameRequest, effects: &mut AllocEffects) -> bool;

    /// A run of free blocks of 2^`order` frames or more, each aligned to its size: the next one after the rover, and
    /// round to it, that has `frames`; the largest if there is none so large. Nodes and zones come in the order in
    /// which `cpu` tries them. The first frames of the runs that were looked at are added to `looked`.
    fn find_run(&self, order: u32, frames: u64, cpu: u32, looked: &mut Vec<Pfn>) -> Option<Range<Pfn>>;

    /// The next search in the part of the memory that ends or goes on at `pfn` begins there.
    fn set_rover(&mut self, pfn: Pfn);

    /// Gives a block back. What it took is added to `effects`.
    ///
    /// # Panics
    /// If `pfn` is not the first frame of a block of this order that is in use.
    fn free(&mut self, pfn: Pfn, order: u32, cpu: u32, effects: &mut AllocEffects);

    /// Cuts a block that is in use into blocks of order `into`, each to be freed on its own: what the kernel does
    /// when it splits a huge page.
    ///
    /// # Panics
    /// As [`Self::free`], or if `into` exceeds `order`.
    fn split_used(&mut self, pfn: Pfn, order: u32, into: u32);

    /// Order of the block in use that begins at `pfn`; none if none does.
    fn used_order(&self, pfn: Pfn) -> Option<u32>;

    /// The frames that the allocator owns, reserved ones included.
    fn frames(&self) -> Range<Pfn>;

    /// The largest order that can be asked for.
    fn max_order(&self) -> u32;

    /// Frames in free blocks. Those on per-CPU lists do not count, as in Linux's `NR_FREE_PAGES`.
    fn free_frames(&self) -> u64;

    /// Frames on per-CPU lists: not in use, but free for one CPU only.
    fn per_cpu_frames(&self) -> u64 {
        0
    }

    /// The nodes of the first CPUs, if it knows nodes.
    fn set_cpu_nodes(&mut self, _nodes: &[u32]) {}

    /// Frees what is on the per-CPU lists (Linux `drain_all_pages`): before memory counts as exhausted, and to see
    /// whether all of it is free.
    fn drain_per_cpu(&mut self, _effects: &mut AllocEffects) {}

    /// Free blocks of exactly this order; 0 above [`Self::max_order`].
    fn free_blocks(&self, order: u32) -> u64;

    /// Whether `pfn` lies in a free block.
    fn is_free(&self, pfn: Pfn) -> bool;

    /// Compares every structure of the allocator with every other, in time linear in the number of frames: for
    /// tests and `--check`.
    ///
    /// # Panics
    /// If they contradict each other.
    fn check_invariants(&self);
}

/// Memory that cannot be set up as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameAllocError {
    /// A memory without frames.
    #[error("physical memory of 0 frames: at least one 4 KiB frame is needed")]
    NoFrames,
    #[error(
        "physical memory of {count} frames from {first:?}: it must fit 2^32 frames (16 TiB) when its start is \
             rounded down to a block of the largest order"
    )]
    /// More frames than an allocator can number.
    TooLarge {
        /// The first frame of the memory.
        first: Pfn,
        /// Frames that were asked for.
        count: u64,
    },
    /// Blocks larger than there can be.
    #[error("max_order {max_order}: at most {MAX_MAX_ORDER} (blocks of 1 GiB) is possible")]
    MaxOrder {
        /// The order that was asked for.
        max_order: u32,
    },
    /// A part of the range is no memory of the allocator.
    #[error("frames {start:?}..{end:?} cannot be reserved: the memory is {first:?}..{last:?} (end excluded)")]
    ReserveOutside {
        /// First frame of the range.
        start: Pfn,
        /// The frame behind the range.
        end: Pfn,
        /// First frame of the memory.
        first: Pfn,
        /// The frame behind the memory.
        last: Pfn,
    },
    /// A part of the range is reserved already.
    #[error("frames {start:?}..{end:?} cannot be reserved: {taken:?} is reserved already")]
    ReservedTwice {
        /// First frame of the range.
        start: Pfn,
        /// The frame behind the range.
        end: Pfn,
        /// The first frame of the range that is reserved already.
        taken: Pfn,
    },
    /// The zone has given out memory, so the range may be in use.
    #[error("frames {start:?}..{end:?} cannot be reserved after the first allocation: reserve them at boot")]
    ReserveAfterBoot {
        /// First frame of the range.
        start: Pfn,
        /// The frame behind the range.
        end: Pfn,
    },
    /// `key` is relative to the allocator's own parameters.
    #[error("{key}: {what}")]
    Config {
        /// The key, relative to the allocator's own parameters.
        key: String,
        /// What is wrong, and what is allowed.
        what: String,
    },
}
