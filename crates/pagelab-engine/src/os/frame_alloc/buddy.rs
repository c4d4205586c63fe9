//! The binary buddy allocator of Linux.
//!
//! # Models
//! Free memory as naturally aligned blocks of 2^order frames, one LIFO list an order. An allocation takes the newest
//! block of the smallest order that suffices and cuts it in halves, keeping the lower one and queueing the upper
//! ones; a free joins the block with its buddy while that is free as a whole. At boot the memory is queued in the
//! largest blocks that its alignment allows, ascending, so the first allocations get ascending addresses.
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
//! - One list an order: no migration types, zones, nodes, watermarks or per-CPU lists.
//! - Linux never gives out more than order 10 here: it takes 1 GiB pages from a pool set aside at boot or from a
//!   contiguous-memory area. With `max_order` 18 this allocator serves them itself, which is a model choice: such
//!   memory is then shared with other users as long as nobody fragments it.
//! - A freed block goes to the head of its list always; Linux puts a block at the tail when its buddy's parent
//!   looks likely to be freed next (`buddy_merge_likely`).

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AllocEffects, FrameAllocError, FrameAllocator, FrameRequest};
use crate::addr::Pfn;

/// The largest `max_order` that can be configured: blocks of 1 GiB.
pub const MAX_MAX_ORDER: u32 = 18;

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

/// A frame's number relative to [`Buddy::base`].
type Index = u32;

/// What a frame is, in one byte: zero within a block, in a reserved range and in memory that was never touched;
/// else the head of a block, free or in use, with its order.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FrameState(u8);

impl FrameState {
    const NOT_A_HEAD: Self = Self(0);

    fn free(order: u32) -> Self {
        Self(0x40 | order as u8)
    }

    fn used(order: u32) -> Self {
        Self(0x80 | order as u8)
    }
}

impl std::fmt::Display for FrameState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 >> 6 {
            0 => write!(f, "not the head of a block"),
            1 => write!(f, "a free block of order {}", self.0 & 0x3f),
            _ => write!(f, "a block in use of order {}", self.0 & 0x3f),
        }
    }
}

/// See the module's text.
///
/// The per-frame arrays are 9 bytes a frame of address space, but the host backs only what is written. Blocks of
/// the largest order that were never handed out therefore stay out of the lists: they are the `untouched`
/// ranges, which stand for the tail of the largest order's list.
#[derive(Clone, Debug)]
pub struct Buddy {
    /// The first frame rounded down to the largest block, so that alignment survives the subtraction.
    base: u64,
    first: Pfn,
    end: Pfn,
    max_order: u32,
    /// [`FrameState`] by index.
    states: Vec<u8>,
    /// Neighbours of a free block's head in its list, `[newer, older]`, as index + 1; 0 is none.
    links: Vec<[u32; 2]>,
    /// Newest block of each order, as index + 1; 0 is none.
    heads: [u32; MAX_MAX_ORDER as usize + 1],
    /// Listed blocks of each order.
    listed: [u64; MAX_MAX_ORDER as usize + 1],
    /// Bit `o`: the list of order `o` has a block.
    nonempty: u32,
    /// Ranges of whole blocks of the largest order, descending (the last is handed out first, from its start).
    untouched: Vec<Range<Index>>,
    untouched_blocks: u64,
    /// Ascending, disjoint.
    reserved: Vec<Range<Pfn>>,
    free_frames: u64,
    /// Whether an allocation has succeeded: boot is over.
    booted: bool,
}

const NEWER: usize = 0;
const OLDER: usize = 1;

impl Buddy {
    /// All of `count` frames from `first`, free.
    pub fn new(first: Pfn, count: u64, config: &BuddyConfig) -> Result<Self, FrameAllocError> {
        let max_order = config.max_order;
        if max_order > MAX_MAX_ORDER {
            return Err(FrameAllocError::MaxOrder { max_order });
        }
        if count == 0 {
            return Err(FrameAllocError::NoFrames);
        }
        let too_large = FrameAllocError::TooLarge { first, count };
        let base = first.0 >> max_order << max_order;
        let end = first.0.checked_add(count).ok_or(too_large.clone())?;
        // One less than 2^32, so that index + 1 fits.
        let indices = end - base;
        if indices > u64::from(u32::MAX) {
            return Err(too_large);
        }
        let mut buddy = Self {
            base,
            first,
            end: Pfn(end),
            max_order,
            states: vec![0; indices as usize],
            links: vec![[0; 2]; indices as usize],
            heads: [0; MAX_MAX_ORDER as usize + 1],
            listed: [0; MAX_MAX_ORDER as usize + 1],
            nonempty: 0,
            untouched: Vec::new(),
            untouched_blocks: 0,
            reserved: Vec::new(),
            free_frames: 0,
            booted: false,
        };
        buddy.queue_boot_memory();
        Ok(buddy)
    }

    /// Takes `range` out of the memory for good (a kernel image, a firmware hole): it is neither free nor in use.
    /// An empty range does nothing. Possible until the first allocation.
    pub fn reserve_range(&mut self, range: Range<Pfn>) -> Result<(), FrameAllocError> {
        let Range { start, end } = range;
        if self.booted {
            return Err(FrameAllocError::ReserveAfterBoot { start, end });
        }
        if start > end || start < self.first || end > self.end {
            return Err(FrameAllocError::ReserveOutside { start, end, first: self.first, last: self.end });
        }
        if start == end {
            return Ok(());
        }
        let at = self.reserved.partition_point(|r| r.end <= start);
        if let Some(taken) = self.reserved.get(at).filter(|r| r.start < end) {
            return Err(FrameAllocError::ReservedTwice { start, end, taken: taken.start.max(start) });
        }
        self.reserved.insert(at, start..end);
        self.queue_boot_memory();
        Ok(())
    }

    /// Frames set aside by [`Self::reserve_range`].
    pub fn reserved_frames(&self) -> u64 {
        self.reserved.iter().map(|r| r.end.0 - r.start.0).sum()
    }

    /// Fills the lists anew with everything that is not reserved.
    fn queue_boot_memory(&mut self) {
        let mut scratch = AllocEffects::default();
        for order in 0..=self.max_order {
            while self.heads[order as usize] != 0 {
                self.unlink(self.heads[order as usize] - 1, order, &mut scratch);
            }
        }
        self.untouched.clear();
        self.untouched_blocks = 0;
        self.free_frames = 0;

        let mut gaps = Vec::with_capacity(self.reserved.len() + 1);
        let mut start = self.first;
        for taken in &self.reserved {
            gaps.push(start..taken.start);
            start = taken.end;
        }
        gaps.push(start..self.end);

        // Descending, since the block queued last is handed out first. Within an order the lists then ascend, as
        // Linux's do, which fills them from the other end.
        for gap in gaps.into_iter().rev() {
            let (start, mut end) = (self.index(gap.start), (gap.end.0 - self.base) as Index);
            self.free_frames += u64::from(end - start);
            while end > start {
                let order = end.trailing_zeros().min((end - start).ilog2()).min(self.max_order);
                if order == self.max_order {
                    let blocks = (end - start) >> order;
                    let from = end - (blocks << order);
                    self.untouched.push(from..end);
                    self.untouched_blocks += u64::from(blocks);
                    end = from;
                } else {
                    end -= 1 << order;
                    self.link(end, order, &mut scratch);
                }
            }
        }
    }

    fn index(&self, pfn: Pfn) -> Index {
        (pfn.0 - self.base) as Index
    }

    fn pfn(&self, index: Index) -> Pfn {
        Pfn(self.base + u64::from(index))
    }

    /// Makes the free block at `index` the newest of its order.
    #[inline]
    fn link(&mut self, index: Index, order: u32, effects: &mut AllocEffects) {
        let older = self.heads[order as usize];
        self.links[index as usize] = [0, older];
        self.states[index as usize] = FrameState::free(order).0;
        effects.descriptors.push(self.pfn(index));
        if older != 0 {
            self.links[older as usize - 1][NEWER] = index + 1;
            effects.descriptors.push(self.pfn(older - 1));
        } else {
            self.nonempty |= 1 << order;
        }
        self.heads[order as usize] = index + 1;
        self.listed[order as usize] += 1;
    }

    /// Takes the free block at `index` out of its list.
    #[inline]
    fn unlink(&mut self, index: Index, order: u32, effects: &mut AllocEffects) {
        let [newer, older] = self.links[index as usize];
        self.states[index as usize] = FrameState::NOT_A_HEAD.0;
        effects.descriptors.push(self.pfn(index));
        if newer != 0 {
            self.links[newer as usize - 1][OLDER] = older;
            effects.descriptors.push(self.pfn(newer - 1));
        } else {
            self.heads[order as usize] = older;
            if older == 0 {
                self.nonempty &= !(1 << order);
            }
        }
        if older != 0 {
            self.links[older as usize - 1][NEWER] = newer;
            effects.descriptors.push(self.pfn(older - 1));
        }
        self.listed[order as usize] -= 1;
    }

    /// A free block of order `order` or of the next larger that exists, with its order; no longer free.
    #[inline]
    fn take_smallest(&mut self, order: u32, effects: &mut AllocEffects) -> Option<(Index, u32)> {
        let sufficient = self.nonempty >> order << order;
        if sufficient != 0 {
            let order = sufficient.trailing_zeros();
            let index = self.heads[order as usize] - 1;
            self.unlink(index, order, effects);
            return Some((index, order));
        }
        let range = self.untouched.last_mut()?;
        let index = range.start;
        range.start += 1 << self.max_order;
        if range.start == range.end {
            self.untouched.pop();
        }
        self.untouched_blocks -= 1;
        effects.descriptors.push(self.pfn(index));
        Some((index, self.max_order))
    }

    /// The index of `pfn`, which must be the head of a block of `order` that is in use.
    #[inline]
    fn used_index(&self, pfn: Pfn, order: u32) -> Index {
        assert!((self.first..self.end).contains(&pfn), "{pfn:?} is outside the memory {:?}", self.frames());
        let index = self.index(pfn);
        let state = FrameState(self.states[index as usize]);
        assert!(state == FrameState::used(order), "block of order {order} at {pfn:?}: the frame is {state}");
        index
    }

    fn is_untouched(&self, index: Index) -> bool {
        let at = self.untouched.partition_point(|r| r.start > index);
        self.untouched.get(at).is_some_and(|r| r.contains(&index))
    }
}

impl FrameAllocator for Buddy {
    #[inline]
    fn alloc(&mut self, request: FrameRequest, effects: &mut AllocEffects) -> Option<Pfn> {
        let order = request.order;
        if order > self.max_order {
            return None;
        }
        let (index, mut size) = self.take_smallest(order, effects)?;
        effects.splits += size - order;
        while size > order {
            size -= 1;
            self.link(index + (1 << size), size, effects);
        }
        self.states[index as usize] = FrameState::used(order).0;
        self.free_frames -= 1 << order;
        self.booted = true;
        Some(self.pfn(index))
    }

    #[inline]
    fn free(&mut self, pfn: Pfn, mut order: u32, _cpu: u32, effects: &mut AllocEffects) {
        let mut index = self.used_index(pfn, order);
        self.states[index as usize] = FrameState::NOT_A_HEAD.0;
        self.free_frames += 1 << order;
        while order < self.max_order {
            let buddy = index ^ (1 << order);
            if self.states.get(buddy as usize) != Some(&FrameState::free(order).0) {
                break;
            }
            self.unlink(buddy, order, effects);
            effects.merges += 1;
            index = index.min(buddy);
            order += 1;
        }
        self.link(index, order, effects);
    }

    fn split_used(&mut self, pfn: Pfn, order: u32, into: u32) {
        assert!(into <= order, "a block of order {order} cannot be cut into larger ones of order {into}");
        let index = self.used_index(pfn, order);
        for head in (index..index + (1 << order)).step_by(1 << into) {
            self.states[head as usize] = FrameState::used(into).0;
        }
    }

    fn frames(&self) -> Range<Pfn> {
        self.first..self.end
    }

    fn max_order(&self) -> u32 {
        self.max_order
    }

    fn free_frames(&self) -> u64 {
        self.free_frames
    }

    fn free_blocks(&self, order: u32) -> u64 {
        let listed = self.listed.get(order as usize).copied().unwrap_or(0);
        listed + if order == self.max_order { self.untouched_blocks } else { 0 }
    }

    fn is_free(&self, pfn: Pfn) -> bool {
        if !(self.first..self.end).contains(&pfn) {
            return false;
        }
        let index = self.index(pfn);
        let heads_a_free_block = |order| self.states[(index >> order << order) as usize] == FrameState::free(order).0;
        (0..=self.max_order).any(heads_a_free_block) || self.is_untouched(index)
    }

    fn check_invariants(&self) {
        let mut listed_frames = 0;
        for order in 0..=self.max_order {
            let (mut at, mut newer, mut blocks) = (self.heads[order as usize], 0, 0);
            assert_eq!(self.nonempty >> order & 1 == 1, at != 0, "order {order}: summary bit");
            while at != 0 {
                let index = at - 1;
                assert_eq!(index & ((1 << order) - 1), 0, "order {order}: block {index} is not aligned");
                assert!(FrameState(self.states[index as usize]) == FrameState::free(order), "listed but not free");
                assert_eq!(self.links[index as usize][NEWER], newer, "order {order}: back link of {index}");
                if order < self.max_order {
                    let buddy = self.states.get((index ^ (1 << order)) as usize);
                    assert_ne!(buddy, Some(&FrameState::free(order).0), "order {order}: unmerged buddy of {index}");
                }
                newer = at;
                at = self.links[index as usize][OLDER];
                blocks += 1;
                assert!(blocks <= self.listed[order as usize], "order {order}: list longer than its count");
            }
            assert_eq!(blocks, self.listed[order as usize], "order {order}: list shorter than its count");
            listed_frames += blocks << order;
        }
        let untouched: u64 = self.untouched.iter().map(|r| u64::from(r.end - r.start)).sum();
        assert_eq!(untouched, self.untouched_blocks << self.max_order, "untouched blocks");
        assert_eq!(listed_frames + untouched, self.free_frames, "free frames");

        // Every frame is covered exactly once: by a block, by an untouched range or by a reservation.
        let mut unlisted = self.untouched.iter().rev().cloned().collect::<Vec<_>>();
        unlisted.extend(self.reserved.iter().map(|r| self.index(r.start)..(r.end.0 - self.base) as Index));
        unlisted.sort_by_key(|r| r.start);
        let mut unlisted = unlisted.into_iter().peekable();
        let (mut index, mut free) = (self.index(self.first), 0);
        let mut free_heads = 0;
        while u64::from(index) < self.end.0 - self.base {
            let next = match unlisted.next_if(|r| r.start == index) {
                Some(range) => {
                    assert_eq!(self.states[index as usize], 0, "a block in unlisted memory at {:?}", self.pfn(index));
                    range.end
                }
                None => {
                    let state = self.states[index as usize];
                    assert_ne!(state, 0, "{:?} belongs to no block", self.pfn(index));
                    if state & 0x40 != 0 {
                        free += 1_u64 << (state & 0x3f);
                        free_heads += 1;
                    }
                    index + (1 << (state & 0x3f))
                }
            };
            let inner = &self.states[index as usize + 1..next as usize];
            assert!(inner.iter().all(|&s| s == 0), "a block within the range that begins at {:?}", self.pfn(index));
            index = next;
        }
        assert_eq!(free + untouched, self.free_frames, "free frames by state");
        assert_eq!(free_heads, self.listed.iter().sum::<u64>(), "free blocks by state and by list");
    }
}

#[cfg(test)]
#[path = "buddy_tests.rs"]
mod tests;
