//! Free memory as naturally aligned blocks of 2^order frames: one LIFO list for each order and migrate type.
//!
//! The plain [`super::Buddy`] and the zones of [`super::PageAllocator`] share it. It takes the newest block of a list,
//! splits blocks in halves, merges free buddies, and keeps the order and the mobility of every block in use. Its owner
//! decides from which list to allocate.
//!
//! # Source
//! Linux 6.1 `mm/page_alloc.c`: `__rmqueue_smallest`, `expand`, `__free_one_page`, `move_to_free_list`;
//! `mm/memblock.c`: `__free_pages_memory`; the boot-time tail placement of `__free_pages_core`.
//!
//! # Host memory
//! One byte per frame for its state and four for links. Of two buddies of order 0 at most one can be listed, since two
//! free ones would have been merged, so a pair of frames shares an entry. The host backs only what is written. Blocks
//! of the largest order that were never handed out are on no list: the `untouched` ranges represent them, as the tail
//! of the movable list of the largest order.

mod reporting;
mod runs;

use std::ops::Range;

use super::report::Reported;
use super::{AllocEffects, FrameAllocError, MigrateType};
use pagelab_base::addr::Pfn;

/// The largest `max_order` that can be configured: blocks of 1 GiB.
pub const MAX_MAX_ORDER: u32 = 18;
const ORDERS: usize = MAX_MAX_ORDER as usize + 1;

/// A frame's number relative to [`FreeArea::base`].
pub(super) type Index = u32;

/// State of a frame in one byte: zero inside a block, in a reserved range and in memory that was never touched;
/// otherwise the frame is the head of a block, with the order in the lower five bits and the class above them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameState(u8);

impl FrameState {
    const NOT_A_HEAD: Self = Self(0);
    /// A single frame on a per-CPU list: neither free here nor in use.
    pub(super) const PER_CPU: Self = Self(7 << 5);

    /// The head of a free block on the list of `mobility`.
    fn free(order: u32, mobility: MigrateType) -> Self {
        Self((1 + mobility as u8) << 5 | order as u8)
    }

    pub(super) fn used(order: u32, mobility: MigrateType) -> Self {
        Self((4 + mobility as u8) << 5 | order as u8)
    }

    pub(super) fn order(self) -> u32 {
        u32::from(self.0 & 0x1f)
    }

    /// The list of the block, if it is free.
    pub(super) fn free_list(self) -> Option<MigrateType> {
        match self.0 >> 5 {
            class @ 1..=3 => Some(MigrateType::ALL[usize::from(class) - 1]),
            _ => None,
        }
    }

    /// The mobility of the contents, if the block is in use.
    pub(super) fn used_for(self) -> Option<MigrateType> {
        match self.0 >> 5 {
            class @ 4..=6 => Some(MigrateType::ALL[usize::from(class) - 4]),
            _ => None,
        }
    }

    fn is_free_of(self, order: u32) -> bool {
        self.free_list().is_some() && self.order() == order
    }
}

impl std::fmt::Display for FrameState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::PER_CPU {
            write!(f, "on a per-CPU list")
        } else if self.free_list().is_some() {
            write!(f, "a free block of order {}", self.order())
        } else if self.used_for().is_some() {
            write!(f, "a block in use of order {}", self.order())
        } else {
            write!(f, "not the head of a block")
        }
    }
}

/// Number of frames by state, counted by [`FreeArea::check_invariants`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) free: u64,
    pub(super) used: u64,
    pub(super) per_cpu: u64,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct FreeArea {
    /// The first frame rounded down to the largest block, so that alignment is kept when it is subtracted.
    base: u64,
    first: Pfn,
    end: Pfn,
    max_order: u32,
    /// [`FrameState`] by index.
    states: Vec<u8>,
    /// Neighbours of a free block's head in its list, `[newer, older]`, as index + 1; 0 means none. By index >> `pair`.
    links: Vec<[u32; 2]>,
    /// 1, or 0 if blocks are never merged.
    pair: u32,
    /// Newest block by type and order, as index + 1; 0 means none.
    heads: [[u32; ORDERS]; MigrateType::COUNT],
    /// Oldest block by type and order, likewise.
    tails: [[u32; ORDERS]; MigrateType::COUNT],
    /// Listed blocks by type and order.
    listed: [[u64; ORDERS]; MigrateType::COUNT],
    /// Bit `o` is set if the type's list of order `o` has a block.
    nonempty: [u32; MigrateType::COUNT],
    /// Ranges of whole blocks of the largest order, descending. The last range is handed out first, from its start.
    untouched: Vec<Range<Index>>,
    untouched_blocks: u64,
    /// In ascending order, disjoint.
    reserved: Vec<Range<Pfn>>,
    free_frames: u64,
    /// Whether a block has been taken, so that boot is over.
    booted: bool,
    /// Where the next search for a run of free blocks begins.
    rover: Index,
    /// Which free blocks have been reported to a host.
    reported: Reported,
}

const NEWER: usize = 0;
const OLDER: usize = 1;
/// At boot, all of Linux's memory is movable (`memmap_init`).
const AT_BOOT: MigrateType = MigrateType::Movable;

impl FreeArea {
    /// An area of `count` frames from `first`, all free.
    pub(super) fn new(first: Pfn, count: u64, max_order: u32) -> Result<Self, FrameAllocError> {
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
        let pair = max_order.min(1);
        let mut area = Self {
            base,
            first,
            end: Pfn(end),
            max_order,
            states: vec![0; indices as usize],
            links: vec![[0; 2]; (indices as usize >> pair) + 1],
            pair,
            heads: [[0; ORDERS]; MigrateType::COUNT],
            tails: [[0; ORDERS]; MigrateType::COUNT],
            listed: [[0; ORDERS]; MigrateType::COUNT],
            nonempty: [0; MigrateType::COUNT],
            untouched: Vec::new(),
            untouched_blocks: 0,
            reserved: Vec::new(),
            free_frames: 0,
            booted: false,
            rover: 0,
            reported: Reported::NEVER,
        };
        area.queue_boot_memory();
        Ok(area)
    }

    /// Reserves `range` permanently. An empty range has no effect. Possible only before the first block is taken.
    pub(super) fn reserve_range(&mut self, range: Range<Pfn>) -> Result<(), FrameAllocError> {
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

    /// Frames reserved by [`Self::reserve_range`].
    pub(super) fn reserved_frames(&self) -> u64 {
        self.reserved.iter().map(|r| r.end - r.start).sum()
    }

    /// Rebuilds the lists from all memory that is not reserved.
    fn queue_boot_memory(&mut self) {
        let mut scratch = AllocEffects::default();
        for order in 0..=self.max_order {
            while self.heads[AT_BOOT as usize][order as usize] != 0 {
                self.unlink(self.heads[AT_BOOT as usize][order as usize] - 1, &mut scratch);
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

        // In descending order, since the block queued last is handed out first. Within an order the lists then ascend,
        // as in Linux, which fills them from the other end.
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
                    self.link(end, order, AT_BOOT, &mut scratch);
                }
            }
        }
    }

    #[inline]
    pub(super) fn index(&self, pfn: Pfn) -> Index {
        (pfn.0 - self.base) as Index
    }

    #[inline]
    pub(super) fn pfn(&self, index: Index) -> Pfn {
        Pfn(self.base + u64::from(index))
    }

    pub(super) fn frames(&self) -> Range<Pfn> {
        self.first..self.end
    }

    pub(super) fn max_order(&self) -> u32 {
        self.max_order
    }

    pub(super) fn free_frames(&self) -> u64 {
        self.free_frames
    }

    #[inline]
    pub(super) fn state(&self, index: Index) -> FrameState {
        FrameState(self.states[index as usize])
    }

    #[inline]
    pub(super) fn set_state(&mut self, index: Index, state: FrameState) {
        self.states[index as usize] = state.0;
    }

    /// Puts the free block at `index` at the head of the list of its order and type.
    #[inline]
    pub(super) fn link(&mut self, index: Index, order: u32, list: MigrateType, effects: &mut AllocEffects) {
        let older = self.heads[list as usize][order as usize];
        self.links[(index >> self.pair) as usize] = [0, older];
        self.states[index as usize] = FrameState::free(order, list).0;
        effects.descriptors.push(self.pfn(index));
        if older != 0 {
            self.links[((older - 1) >> self.pair) as usize][NEWER] = index + 1;
            effects.descriptors.push(self.pfn(older - 1));
        } else {
            self.nonempty[list as usize] |= 1 << order;
            self.tails[list as usize][order as usize] = index + 1;
        }
        self.heads[list as usize][order as usize] = index + 1;
        self.listed[list as usize][order as usize] += 1;
    }

    /// Removes the free block at `index` from its list.
    #[inline]
    pub(super) fn unlink(&mut self, index: Index, effects: &mut AllocEffects) {
        let state = self.state(index);
        let (order, list) = (state.order() as usize, state.free_list().expect("the block is free") as usize);
        let [newer, older] = self.links[(index >> self.pair) as usize];
        self.states[index as usize] = FrameState::NOT_A_HEAD.0;
        effects.descriptors.push(self.pfn(index));
        if newer != 0 {
            self.links[((newer - 1) >> self.pair) as usize][OLDER] = older;
            effects.descriptors.push(self.pfn(newer - 1));
        } else {
            self.heads[list][order] = older;
            if older == 0 {
                self.nonempty[list] &= !(1 << order);
            }
        }
        if older != 0 {
            self.links[((older - 1) >> self.pair) as usize][NEWER] = newer;
            effects.descriptors.push(self.pfn(older - 1));
        } else {
            self.tails[list][order] = newer;
        }
        self.listed[list][order] -= 1;
        if order as u32 >= self.reported.order {
            self.reported.set(index, false);
        }
    }

    /// Order of the smallest block on the type's lists that has at least 2^`order` frames.
    #[inline]
    pub(super) fn smallest(&self, order: u32, list: MigrateType) -> Option<u32> {
        let sufficient = self.nonempty[list as usize] >> order << order;
        if sufficient != 0 {
            return Some(sufficient.trailing_zeros());
        }
        (list == AT_BOOT && !self.untouched.is_empty()).then_some(self.max_order)
    }

    /// Whether the type's list of exactly this order has a block.
    pub(super) fn has(&self, order: u32, list: MigrateType) -> bool {
        self.nonempty[list as usize] >> order & 1 == 1
            || (list == AT_BOOT && order == self.max_order && !self.untouched.is_empty())
    }

    /// Takes the newest block of a list, which must have one ([`Self::has`]). The block still counts as free.
    #[inline]
    pub(super) fn pop(&mut self, order: u32, list: MigrateType, effects: &mut AllocEffects) -> Index {
        let head = self.heads[list as usize][order as usize];
        if head != 0 {
            self.unlink(head - 1, effects);
            return head - 1;
        }
        let range = self.untouched.last_mut().expect("the list has a block");
        let index = range.start;
        range.start += 1 << self.max_order;
        if range.start == range.end {
            self.untouched.pop();
        }
        self.untouched_blocks -= 1;
        effects.descriptors.push(self.pfn(index));
        index
    }

    /// Takes a block of `order` from the type's lists for such contents; splits a larger one if necessary.
    #[inline]
    pub(super) fn take(
        &mut self,
        order: u32,
        list: MigrateType,
        contents: MigrateType,
        effects: &mut AllocEffects,
    ) -> Option<Index> {
        let mut size = self.smallest(order, list)?;
        let index = self.pop(size, list, effects);
        effects.splits += size - order;
        while size > order {
            size -= 1;
            self.link(index + (1 << size), size, list, effects);
        }
        self.states[index as usize] = FrameState::used(order, contents).0;
        self.free_frames -= 1 << order;
        self.booted = true;
        Some(index)
    }

    /// Frees the block at `index` into a list of type `list`, merged with its free buddies, whatever lists they are on.
    #[inline]
    pub(super) fn give(&mut self, index: Index, order: u32, list: MigrateType, effects: &mut AllocEffects) {
        let (index, order) = self.merge(index, order, effects);
        self.link(index, order, list, effects);
        effects.is_to_be_reported |= order >= self.reported.order;
    }

    /// Frees the block at `index` without listing it. Returns the block that it makes with its free buddies.
    #[inline]
    fn merge(&mut self, mut index: Index, mut order: u32, effects: &mut AllocEffects) -> (Index, u32) {
        self.states[index as usize] = FrameState::NOT_A_HEAD.0;
        self.free_frames += 1 << order;
        while order < self.max_order {
            let buddy = index ^ (1 << order);
            if !self.states.get(buddy as usize).is_some_and(|&s| FrameState(s).is_free_of(order)) {
                break;
            }
            self.unlink(buddy, effects);
            effects.merges += 1;
            index = index.min(buddy);
            order += 1;
        }
        (index, order)
    }

    /// Returns the index of `pfn`, which must be the head of a block of `order` in use.
    #[inline]
    pub(super) fn used_index(&self, pfn: Pfn, order: u32) -> Index {
        assert!((self.first..self.end).contains(&pfn), "{pfn:?} is outside the memory {:?}", self.frames());
        let index = self.index(pfn);
        let state = self.state(index);
        let is_it = state.used_for().is_some() && state.order() == order;
        assert!(is_it, "block of order {order} at {pfn:?}: the frame is {state}");
        index
    }

    /// See [`super::FrameAllocator::split_used`].
    pub(super) fn split_used(&mut self, pfn: Pfn, order: u32, into: u32) {
        assert!(into <= order, "a block of order {order} cannot be cut into larger ones of order {into}");
        let index = self.used_index(pfn, order);
        let contents = self.state(index).used_for().expect("the block is in use");
        for head in (index..index + (1 << order)).step_by(1 << into) {
            self.states[head as usize] = FrameState::used(into, contents).0;
        }
    }

    /// See [`super::FrameAllocator::used_order`].
    #[inline]
    pub(super) fn used_order(&self, pfn: Pfn) -> Option<u32> {
        let state = (self.first..self.end).contains(&pfn).then(|| self.state(self.index(pfn)))?;
        state.used_for().map(|_| state.order())
    }

    /// Free blocks of exactly this order on the lists of one type.
    pub(super) fn free_blocks_of(&self, order: u32, list: MigrateType) -> u64 {
        let listed = self.listed[list as usize].get(order as usize).copied().unwrap_or(0);
        listed + if list == AT_BOOT && order == self.max_order { self.untouched_blocks } else { 0 }
    }

    pub(super) fn free_blocks(&self, order: u32) -> u64 {
        MigrateType::ALL.into_iter().map(|list| self.free_blocks_of(order, list)).sum()
    }

    pub(super) fn is_free(&self, pfn: Pfn) -> bool {
        if !(self.first..self.end).contains(&pfn) {
            return false;
        }
        let index = self.index(pfn);
        let heads_a_free_block = |order: u32| self.state(index >> order << order).is_free_of(order);
        (0..=self.max_order).any(heads_a_free_block) || self.is_untouched(index)
    }

    fn is_untouched(&self, index: Index) -> bool {
        let at = self.untouched.partition_point(|r| r.start > index);
        self.untouched.get(at).is_some_and(|r| r.contains(&index))
    }

    /// Checks the structures against each other and counts the frames.
    ///
    /// # Panics
    /// If they contradict each other.
    pub(super) fn check_invariants(&self) -> Census {
        let listed_frames: u64 = MigrateType::ALL.into_iter().map(|list| self.check_lists(list)).sum();
        let untouched: u64 = self.untouched.iter().map(|r| u64::from(r.end - r.start)).sum();
        assert_eq!(untouched, self.untouched_blocks << self.max_order, "untouched blocks");
        assert_eq!(listed_frames + untouched, self.free_frames, "free frames");

        // Every frame is covered exactly once: by a block, by an untouched range or by a reserved range.
        let mut unlisted = self.untouched.iter().rev().cloned().collect::<Vec<_>>();
        unlisted.extend(self.reserved.iter().map(|r| self.index(r.start)..(r.end.0 - self.base) as Index));
        unlisted.sort_by_key(|r| r.start);
        let mut unlisted = unlisted.into_iter().peekable();
        let (mut index, mut census) = (self.index(self.first), Census::default());
        let mut free_heads = 0;
        while u64::from(index) < self.end.0 - self.base {
            let next = match unlisted.next_if(|r| r.start == index) {
                Some(range) => {
                    assert_eq!(self.states[index as usize], 0, "a block in unlisted memory at {:?}", self.pfn(index));
                    range.end
                }
                None => {
                    let state = self.state(index);
                    let frames = 1_u64 << state.order();
                    if state.free_list().is_some() {
                        census.free += frames;
                        free_heads += 1;
                    } else if state == FrameState::PER_CPU {
                        census.per_cpu += frames;
                    } else {
                        assert!(state.used_for().is_some(), "{:?} belongs to no block", self.pfn(index));
                        census.used += frames;
                    }
                    index + (1 << state.order())
                }
            };
            let inner = &self.states[index as usize + 1..next as usize];
            assert!(inner.iter().all(|&s| s == 0), "a block within the range that begins at {:?}", self.pfn(index));
            index = next;
        }
        census.free += untouched;
        assert_eq!(census.free, self.free_frames, "free frames by state");
        self.check_reported();
        assert_eq!(free_heads, self.listed.iter().flatten().sum::<u64>(), "free blocks by state and by list");
        census
    }

    /// Checks the lists of one type and returns their number of frames.
    fn check_lists(&self, list: MigrateType) -> u64 {
        let mut frames = 0;
        for order in 0..=self.max_order {
            let listed = self.listed[list as usize][order as usize];
            let (mut at, mut newer, mut blocks) = (self.heads[list as usize][order as usize], 0, 0);
            assert_eq!(self.nonempty[list as usize] >> order & 1 == 1, at != 0, "order {order}: summary bit");
            while at != 0 {
                let index = at - 1;
                assert_eq!(index & ((1 << order) - 1), 0, "order {order}: block {index} is not aligned");
                assert_eq!(self.state(index), FrameState::free(order, list), "order {order}: listed at {index}");
                let links = self.links[(index >> self.pair) as usize];
                assert_eq!(links[NEWER], newer, "order {order}: back link of {index}");
                if order < self.max_order {
                    let buddy = self.states.get((index ^ (1 << order)) as usize);
                    let unmerged = buddy.is_some_and(|&s| FrameState(s).is_free_of(order));
                    assert!(!unmerged, "order {order}: unmerged buddy of {index}");
                }
                newer = at;
                at = links[OLDER];
                blocks += 1;
                assert!(blocks <= listed, "order {order}: list longer than its count");
            }
            assert_eq!(blocks, listed, "order {order}: list shorter than its count");
            assert_eq!(newer, self.tails[list as usize][order as usize], "order {order}: oldest block");
            frames += blocks << order;
        }
        frames
    }
}
