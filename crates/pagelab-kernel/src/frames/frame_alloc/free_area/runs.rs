//! Allocation of blocks at a given place, and the search for runs of free blocks.
//!
//! # Source
//! Linux 6.1 `mm/page_alloc.c`: `break_down_buddy_pages`, `is_free_buddy_page`. The runs correspond to the contiguity
//! map of Alverti et al., "Enhancing and exploiting contiguity for fast memory virtualization" (ISCA 2020); here they
//! are found by a search instead of being kept.

use std::ops::Range;

use super::super::{AllocEffects, MigrateType};
use super::{AT_BOOT, FrameState, FreeArea, Index};
use pagelab_base::addr::Pfn;

impl FreeArea {
    /// Takes exactly the block of `order` at `index` for such contents, out of the free block that contains it (Linux
    /// `break_down_buddy_pages`). False if it is not completely free.
    pub(in crate::frames::frame_alloc) fn take_at(
        &mut self,
        index: Index,
        order: u32,
        contents: MigrateType,
        effects: &mut AllocEffects,
    ) -> bool {
        let Some((mut head, mut size)) = self.free_block_around(index, order) else { return false };
        let list = self.state(head).free_list();
        if list.is_some() {
            self.unlink(head, effects);
        } else {
            self.touch(head, effects);
        }
        effects.splits += size - order;
        while size > order {
            size -= 1;
            let upper = head + (1 << size);
            self.link(if index < upper { upper } else { head }, size, list.unwrap_or(AT_BOOT), effects);
            head = if index < upper { head } else { upper };
        }
        self.states[index as usize] = FrameState::used(order, contents).0;
        self.free_frames -= 1 << order;
        self.booted = true;
        true
    }

    /// Whether `pfn` is aligned to a block of `order` that lies inside the memory.
    pub(in crate::frames::frame_alloc) fn holds(&self, pfn: Pfn, order: u32) -> bool {
        pfn.is_aligned(1 << order) && (self.first..self.end).contains(&pfn) && self.end.0 - pfn.0 >= 1 << order
    }

    /// First frame and order of the free block that contains the aligned block of `order` at `index`.
    fn free_block_around(&self, index: Index, order: u32) -> Option<(Index, u32)> {
        let mut blocks = (order..=self.max_order).map(|size| (index >> size << size, size));
        let listed = |&(head, size): &(Index, u32)| self.state(head).is_free_of(size);
        let untouched =
            || self.is_untouched(index).then_some((index >> self.max_order << self.max_order, self.max_order));
        blocks.find(listed).or_else(untouched)
    }

    /// Takes one block from the untouched ranges, wherever it lies.
    fn touch(&mut self, head: Index, effects: &mut AllocEffects) {
        let at = self.untouched.partition_point(|r| r.start > head);
        let Range { start, end } = self.untouched[at].clone();
        let parts = [head + (1 << self.max_order)..end, start..head];
        self.untouched.splice(at..=at, parts.into_iter().filter(|part| part.start < part.end));
        self.untouched_blocks -= 1;
        effects.descriptors.push(self.pfn(head));
    }

    /// Returns the first run of free blocks of at least 2^`order` frames that has `frames`, searching from the rover on
    /// and wrapping around to it; the largest run if none has. Adds the first frames of all examined runs to `looked`.
    pub(in crate::frames::frame_alloc) fn find_run(
        &self,
        order: u32,
        frames: u64,
        looked: &mut Vec<Pfn>,
    ) -> Option<Range<Pfn>> {
        if (order..=self.max_order).all(|size| self.free_blocks(size) == 0) {
            return None;
        }
        let pfns = |run: Range<Index>| self.pfn(run.start)..self.pfn(run.end);
        let mut largest = 0..0;
        for (mut from, until) in [(self.rover, self.states.len() as Index), (0, self.rover)] {
            while let Some(run) = self.next_run(from..until, order, frames) {
                looked.push(self.pfn(run.start));
                if run.len() as u64 >= frames {
                    return Some(pfns(run));
                }
                from = run.end;
                if run.len() > largest.len() {
                    largest = run;
                }
            }
        }
        (!largest.is_empty()).then(|| pfns(largest))
    }

    /// The next run of such blocks inside `within`, cut off where it has `frames`.
    fn next_run(&self, within: Range<Index>, order: u32, frames: u64) -> Option<Range<Index>> {
        let (step, until) = (1 << order, within.end);
        // The end of the free block around the aligned block at `at`, clipped to `within`.
        let beyond = |at: Index| {
            let (head, size) = (until - at >= step).then(|| self.free_block_around(at, order)).flatten()?;
            Some((head + (1 << size)).min(until >> order << order))
        };
        let mut starts = (within.start.next_multiple_of(step)..until).step_by(step as usize);
        let start = starts.find(|&at| beyond(at).is_some())?;
        let mut end = start;
        while let Some(further) = beyond(end).filter(|_| u64::from(end - start) < frames) {
            end = further;
        }
        Some(start..end)
    }

    /// Lets the next search begin at `pfn`.
    pub(in crate::frames::frame_alloc) fn set_rover(&mut self, pfn: Pfn) {
        self.rover = self.index(pfn.min(self.end));
    }
}
