//! Giving memory back when it runs short: LRU lists, a reverse map, a swap area and storage for files.
//!
//! Models: a scan takes the oldest inactive pages, looks at the accessed bits of all PTEs that map them, gives those
//! that are in use another round and takes the others away from their page tables: to the swap area if they are
//! anonymous, back to storage if they are dirty pages of files, nowhere if they are clean ones. kswapd scans between
//! the low and the high watermark; below the min watermark, or at its cgroup's limit ([`Group`]), a fault scans for
//! itself.
//! Source: Linux mm/vmscan.c (`shrink_folio_list`, `shrink_active_list`, `folio_check_references`, `balance_pgdat`),
//! mm/page_alloc.c (`calculate_min_free_kbytes`, `__setup_per_zone_wmarks`), mm/rmap.c (`try_to_unmap`,
//! `folio_referenced_one`), include/linux/mm_inline.h (`vma_has_recency`).
//! Parameters: `kernel.swap`, `kernel.storage`, `kernel.swappiness`, `kernel.cgroup_limit_bytes`, `kernel.new_pages`,
//! `kernel.advised_recency`, `kernel.threads.kswapd`.
//! Deviations: what is written is waited for by whoever scans, where Linux puts it under write-back and goes on. Shared
//! anonymous memory stays, and so do files without `kernel.storage`. No flusher threads: dirty pages of files are
//! written when they leave. A large page leaves whole (`THP_SWAP`) and comes back as 4 KiB pages. No multi-generational
//! LRU, no refault distance.

mod group;
mod lru;
mod rmap;
mod scan;
mod storage;
mod swap;

pub use group::{Group, GroupId, Pressure};
pub use lru::{LruPageKind, SCAN_PAGES};
pub use rmap::{PageOf, Rmap};
pub use scan::{Scan, plan_scan};
pub use storage::{Full, Run, Storage};
pub use swap::{Swap, Swapped};

use rustc_hash::FxHashMap;

use crate::config::{KernelConfig, LruList};
use pagelab_base::addr::{FRAME_BYTES, Pfn};
use pagelab_hardware::device::Clock;

/// What reclaim counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReclaimCounters {
    /// Pages that reclaim looked at.
    pub scanned: u64,
    /// Pages among them that had been accessed and stayed.
    pub activated: u64,
    /// Pages moved from the active list to the inactive.
    pub deactivated: u64,
    /// Pages written to the swap device, of 4 KiB.
    pub swapped_out: u64,
    /// Pages read back from it, of 4 KiB.
    pub swapped_in: u64,
    /// Pages of files that left memory.
    pub files_dropped: u64,
    /// Pages of files that left memory and were written to storage.
    pub files_written: u64,
    /// Pages dropped whose contents MADV_FREE had given up.
    pub freed_lazily: u64,
}

/// Free frames at which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Below it faults make room themselves.
    pub min: u64,
    /// Below it kswapd wakes up.
    pub low: u64,
    /// Above it kswapd goes back to sleep.
    pub high: u64,
}

impl Marks {
    /// Those of a kernel with so many frames.
    fn for_frames(frames: u64) -> Self {
        let kib = frames * FRAME_BYTES / 1024;
        let min_kib = (kib * 16).isqrt().clamp(128, 262_144);
        // A tiny memory keeps a sixteenth.
        let min = (min_kib * 1024 / FRAME_BYTES).min(frames / 16);
        // `watermark_scale_factor`: 10 of 10,000.
        let step = (min / 4).max(frames / 1000);
        Self { min, low: min + step, high: min + 2 * step }
    }
}

/// See the module's text.
#[derive(Clone)]
pub struct Reclaim {
    /// That of all programs in no other first.
    groups: Vec<Group>,
    /// Frames that are charged to the others.
    members: FxHashMap<Pfn, GroupId>,
    /// Which entries of page tables map each frame.
    pub rmap: Rmap,
    new_active: bool,
    /// Whether accesses to mappings under MADV_RANDOM count.
    advised_recency: bool,
    swappiness: u32,
    /// Free frames at which faults and kswapd make room.
    pub marks: Marks,
    /// The swap area, if the kernel has one: without it anonymous pages stay in memory.
    pub swap: Option<Swap>,
    /// Where files are kept; none if they are in memory and stay there.
    pub storage: Option<Storage>,
    /// What was counted, of all groups together.
    pub counters: ReclaimCounters,
}

impl Reclaim {
    /// For a layer of `frames`; none if the kernel has nothing to put pages on.
    pub fn new(frames: u64, kernel: &KernelConfig, clock: Clock) -> Option<Self> {
        if kernel.swap.is_none() && kernel.storage.is_none() {
            return None;
        }
        let limit = kernel.cgroup_limit_bytes.map_or(u64::MAX, |bytes| bytes.0 / FRAME_BYTES);
        Some(Self {
            groups: vec![Group::new("", limit)],
            members: FxHashMap::default(),
            rmap: Rmap::default(),
            new_active: kernel.new_pages == LruList::Active,
            advised_recency: kernel.advised_recency.0,
            swappiness: kernel.swappiness,
            marks: Marks::for_frames(frames),
            swap: kernel.swap.as_ref().map(|swap| Swap::new(swap, clock)),
            storage: kernel.storage.as_ref().map(|device| Storage::new(device, clock)),
            counters: ReclaimCounters::default(),
        })
    }

    /// A page of a program is on an LRU list from now on.
    pub fn add(&mut self, pfn: Pfn, order: u32, kind: LruPageKind) {
        // Pages of files have to earn their place on the active list in every version.
        let active = self.new_active && kind == LruPageKind::Anonymous;
        let id = self.group_of(pfn);
        self.group_mut(id).lru.add(pfn, order, kind, active);
    }

    /// The contents of an anonymous page are given up (MADV_FREE), unless somebody writes to it again. False if the
    /// lists do not know it as a page of this order.
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
        // 8 GiB: min_free_kbytes 11585, and a thousandth of memory between the marks.
        let frames = 8 << 18;
        let Marks { min, low, high } = Marks::for_frames(frames);
        assert_eq!((min, low - min, high - low), (11_585 / 4, frames / 1000, frames / 1000));
        let tiny = Marks::for_frames(1024);
        assert_eq!((tiny.min, tiny.low, tiny.high), (64, 80, 96));
    }
}
