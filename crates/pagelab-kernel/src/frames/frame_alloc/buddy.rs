//! The binary buddy allocator of Linux.
//!
//! # Models
//! Free memory as naturally aligned blocks of 2^order frames, one LIFO list per order. An allocation takes the newest
//! block of the smallest sufficient order and splits it in halves; it keeps the lower half and queues the upper ones. A
//! free merges the block with its buddy as long as the buddy is completely free. At boot, memory is queued in the
//! largest blocks that its alignment allows, in ascending order, so the first allocations get ascending addresses.
//!
//! # Source
//! Linux 6.1 `mm/page_alloc.c`: `__rmqueue_smallest`, `expand`, `__free_one_page`; `mm/memblock.c`:
//! `__free_pages_memory` and the boot-time tail placement of `__free_pages_core`. Knowlton, "A fast storage
//! allocator", CACM 1965.
//!
//! # Parameters
//! `max_order`: the largest order, 0 to 18; default 10, the value of x86-64 Linux (blocks of 4 MiB).
//!
//! # Deviations from the source
//! - One list per order: no migration types, zones, nodes, watermarks or per-CPU lists, which [`super::PageAllocator`]
//!   has.
//! - Linux never hands out blocks above order 10 here: it takes 1 GiB pages from a pool reserved at boot or from a
//!   contiguous-memory area. With `max_order` 18 this allocator serves them itself, which is a choice of the model:
//!   such memory is then shared with other users as long as nobody fragments it.
//! - A freed block always goes to the head of its list; Linux puts a block at the tail if its buddy's parent is likely
//!   to be freed next (`buddy_merge_likely`).

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::free_area::FreeArea;
use super::{AllocEffects, FrameAllocError, FrameAllocator, FrameRequest, MigrateType, ReportPass};
use pagelab_base::addr::Pfn;
use pagelab_base::ids::CpuId;

/// Parameters of [`Buddy`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BuddyConfig {
    /// The largest order of a block: 10 is Linux's (4 MiB), 18 allows 1 GiB pages.
    pub max_order: u32,
}

impl Default for BuddyConfig {
    fn default() -> Self {
        Self { max_order: 10 }
    }
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Buddy {
    area: FreeArea,
}

/// The only type whose lists are used.
const ANY: MigrateType = MigrateType::Movable;

impl Buddy {
    /// An allocator for `count` frames from `first`, all free.
    pub fn new(first: Pfn, count: u64, config: &BuddyConfig) -> Result<Self, FrameAllocError> {
        Ok(Self { area: FreeArea::new(first, count, config.max_order)? })
    }

    /// Reserves `range` permanently (a kernel image, a firmware hole): it is neither free nor in use. An empty range
    /// has no effect. Possible only before the first allocation.
    pub fn reserve_range(&mut self, range: Range<Pfn>) -> Result<(), FrameAllocError> {
        self.area.reserve_range(range)
    }

    /// Frames reserved by [`Self::reserve_range`].
    pub fn reserved_frames(&self) -> u64 {
        self.area.reserved_frames()
    }
}

impl FrameAllocator for Buddy {
    fn copy(&self) -> Box<dyn FrameAllocator> {
        Box::new(self.clone())
    }

    #[inline]
    fn alloc(&mut self, request: FrameRequest, effects: &mut AllocEffects) -> Option<Pfn> {
        if request.order > self.area.max_order() {
            return None;
        }
        self.area.take(request.order, ANY, ANY, effects).map(|index| self.area.pfn(index))
    }

    fn alloc_at(&mut self, pfn: Pfn, request: FrameRequest, effects: &mut AllocEffects) -> bool {
        let order = request.order;
        let inside = order <= self.area.max_order() && self.area.holds(pfn, order);
        inside && self.area.take_at(self.area.index(pfn), order, ANY, effects)
    }

    fn find_run(&self, order: u32, frames: u64, _cpu: CpuId, looked: &mut Vec<Pfn>) -> Option<Range<Pfn>> {
        self.area.find_run(order, frames, looked)
    }

    fn set_rover(&mut self, pfn: Pfn) {
        self.area.set_rover(pfn);
    }

    #[inline]
    fn free(&mut self, pfn: Pfn, order: u32, _cpu: CpuId, effects: &mut AllocEffects) {
        let index = self.area.used_index(pfn, order);
        self.area.give(index, order, ANY, effects);
    }

    fn split_used(&mut self, pfn: Pfn, order: u32, into: u32) {
        self.area.split_used(pfn, order, into);
    }

    #[inline]
    fn used_order(&self, pfn: Pfn) -> Option<u32> {
        self.area.used_order(pfn)
    }

    fn frames(&self) -> Range<Pfn> {
        self.area.frames()
    }

    fn max_order(&self) -> u32 {
        self.area.max_order()
    }

    fn free_frames(&self) -> u64 {
        self.area.free_frames()
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.area.free_blocks(order)
    }

    fn is_free(&self, pfn: Pfn) -> bool {
        self.area.is_free(pfn)
    }

    fn track_reports(&mut self, order: u32) {
        self.area.track_reports(order);
    }

    fn isolate_unreported(&mut self, pass: &mut ReportPass, effects: &mut AllocEffects) -> bool {
        let order = self.area.report_order();
        if pass.zone == 0 && (pass.in_zone || pass.may_begin(self.area.free_frames(), 0, order)) {
            if self.area.isolate_unreported(pass, 0, effects, &mut |_| {}) {
                return true;
            }
            pass.next_zone();
        }
        !pass.batch.is_empty()
    }

    fn put_back_reported(&mut self, blocks: &[(Pfn, u32)], effects: &mut AllocEffects) {
        blocks.iter().for_each(|&(first, order)| {
            let index = self.area.used_index(first, order);
            self.area.put_back(index, order, ANY, effects);
        });
    }

    fn check_invariants(&self) {
        self.area.check_invariants();
    }
}

#[cfg(test)]
#[path = "buddy_tests.rs"]
mod tests;
