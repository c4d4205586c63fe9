//! Reclaim of memory when it runs short: LRU lists, a reverse map, a swap area and storage for files.
//!
//! Models: a scan takes the oldest inactive pages and checks the accessed bits of all PTEs that map them. Pages in use
//! get another round. Others are unmapped: anonymous pages go to the swap area, dirty pages of files are written back
//! to storage, and clean ones are dropped. kswapd scans between the low and the high watermark; below the min
//! watermark, or at the limit of its cgroup ([`Cgroup`]), a fault scans itself.
//! Source: Linux mm/vmscan.c (`shrink_folio_list`, `shrink_active_list`, `folio_check_references`, `balance_pgdat`),
//! mm/page_alloc.c (`calculate_min_free_kbytes`, `__setup_per_zone_wmarks`), mm/rmap.c (`try_to_unmap`,
//! `folio_referenced_one`), include/linux/mm_inline.h (`vma_has_recency`).
//! Parameters: `kernel.swap`, `kernel.storage`, `kernel.swappiness`, `kernel.cgroup_limit_bytes`, `kernel.new_pages`,
//! `kernel.advised_recency`, `kernel.threads.kswapd`.
//! Deviations: the task that scans waits for its writes, while Linux puts the pages under write-back and continues.
//! Shared anonymous memory is not reclaimed, nor are files without `kernel.storage`. No flusher threads: dirty pages of
//! files are written when they are reclaimed. A large page is reclaimed as a whole (`THP_SWAP`) and read back as 4 KiB
//! pages. No multi-generational LRU, no refault distance.

mod advised;
mod group;
mod lru;
mod rmap;
mod scan;
mod segments;
mod storage;
mod swap;

pub use advised::PagedOut;
pub use group::{Cgroup, GroupId, Pressure};
pub use lru::{LruPageKind, SCAN_PAGES};
pub use rmap::{PageOf, Rmap};
pub use scan::{PagesToScan, ReclaimScan, plan_read_back, plan_scan};
pub use segments::{Dissolution, Dissolved};
pub use storage::{BlockRun, Full, Storage};
pub use swap::{Swap, Swapped};

use rustc_hash::FxHashMap;

use crate::config::{KernelConfig, LruList};
use pagelab_base::addr::{FRAME_BYTES, Pfn};
use pagelab_hardware::device::Clock;

/// Counters of reclaim.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReclaimCounters {
    /// Pages that scans examined.
    pub scanned: u64,
    /// Examined pages that had been accessed and stayed.
    pub activated: u64,
    /// Pages moved from the active to the inactive list.
    pub deactivated: u64,
    /// Pages of 4 KiB written to the swap device.
    pub swapped_out: u64,
    /// Pages of 4 KiB read back from the swap device.
    pub swapped_in: u64,
    /// Pages to be written to a device that a host had swapped out, and read back for that.
    pub double_paged: u64,
    /// Reclaimed pages of files.
    pub files_dropped: u64,
    /// Reclaimed pages of files that were written to storage.
    pub files_written: u64,
    /// Pages dropped after MADV_FREE.
    pub freed_lazily: u64,
}

/// Watermarks, in free frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimMarks {
    /// Below it, faults reclaim memory themselves.
    pub min: u64,
    /// Below it, kswapd is woken.
    pub low: u64,
    /// Above it, kswapd sleeps again.
    pub high: u64,
}

impl ReclaimMarks {
    /// The watermarks of a kernel with this many frames.
    pub fn for_frames(frames: u64) -> Self {
        let kib = frames * FRAME_BYTES / 1024;
        let min_kib = (kib * 16).isqrt().clamp(128, 262_144);
        // A tiny memory reserves a sixteenth.
        let min = (min_kib * 1024 / FRAME_BYTES).min(frames / 16);
        // `watermark_scale_factor`: 10 of 10,000.
        let step = (min / 4).max(frames / 1000);
        Self { min, low: min + step, high: min + 2 * step }
    }
}

/// See the module's text.
#[derive(Clone)]
pub struct Reclaim {
    /// The group of all programs in no other group is the first.
    groups: Vec<Cgroup>,
    /// The group of each frame that is charged to another group than the first.
    members: FxHashMap<Pfn, GroupId>,
    /// The entries of page tables that map each frame.
    pub rmap: Rmap,
    new_active: bool,
    /// Whether accesses to mappings with MADV_RANDOM count as use.
    advised_recency: bool,
    swappiness: u32,
    /// Free frames at which faults and kswapd reclaim memory.
    pub marks: ReclaimMarks,
    /// The swap area, if the kernel has one; without it anonymous pages stay in memory.
    pub swap: Option<Swap>,
    /// Storage of the files; `None` if files stay in memory.
    pub storage: Option<Storage>,
    /// Counters over all groups.
    pub counters: ReclaimCounters,
}

impl Reclaim {
    /// Reclaim of a layer with this many frames; `None` if the kernel has neither swap nor storage.
    pub fn new(frames: u64, kernel: &KernelConfig, clock: Clock) -> Option<Self> {
        if kernel.swap.is_none() && kernel.storage.is_none() {
            return None;
        }
        let limit = kernel.cgroup_limit_bytes.map_or(u64::MAX, |bytes| bytes.0 / FRAME_BYTES);
        Some(Self {
            groups: vec![Cgroup::new("", limit)],
            members: FxHashMap::default(),
            rmap: Rmap::default(),
            new_active: kernel.new_pages == LruList::Active,
            advised_recency: kernel.advised_recency.0,
            swappiness: kernel.swappiness,
            marks: ReclaimMarks::for_frames(frames),
            swap: kernel.swap.as_ref().map(|swap| Swap::new(swap, clock)),
            storage: kernel.storage.as_ref().map(|device| Storage::new(device, clock)),
            counters: ReclaimCounters::default(),
        })
    }

    /// Adds a page of a program to an LRU list.
    pub fn add(&mut self, pfn: Pfn, order: u32, kind: LruPageKind) {
        // In every version, pages of files start on the inactive list.
        let active = self.new_active && kind == LruPageKind::Anonymous;
        let id = self.group_of(pfn);
        self.group_mut(id).lru.add(pfn, order, kind, active);
    }

    /// Records that a program gave up the contents of an anonymous page (MADV_FREE), until somebody writes to it again.
    /// False if the lists have no page of this order there.
    pub fn free_lazily(&mut self, pfn: Pfn, order: u32) -> bool {
        let id = self.group_of(pfn);
        let lru = &mut self.group_mut(id).lru;
        let known = lru.get(pfn).is_some_and(|entry| entry.order == order);
        if known {
            lru.set_lazy_free(pfn, true);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_are_those_of_linux() {
        // 8 GiB: min_free_kbytes is 11585, and the distance of the watermarks is a thousandth of memory.
        let frames = 8 << 18;
        let ReclaimMarks { min, low, high } = ReclaimMarks::for_frames(frames);
        assert_eq!((min, low - min, high - low), (11_585 / 4, frames / 1000, frames / 1000));
        let tiny = ReclaimMarks::for_frames(1024);
        assert_eq!((tiny.min, tiny.low, tiny.high), (64, 80, 96));
    }
}
