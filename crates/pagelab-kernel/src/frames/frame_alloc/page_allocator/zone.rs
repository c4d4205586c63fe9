//! A zone: its free lists by migrate type, its per-CPU lists and its watermarks.

use std::collections::VecDeque;
use std::ops::Range;

use super::super::free_area::{FrameState, FreeArea, Index};
use super::super::{AllocEffects, FrameAllocError, MigrateType, Urgency};
use super::config::{PageAllocatorConfig, WatermarkConfig};
use super::per_cpu_lists::{Pcp, PcpLimits};
use pagelab_base::addr::Pfn;
use pagelab_base::ids::{CpuId, NodeId};

pagelab_base::id! {
    /// Number of a zone of a [`super::PageAllocator`], over all nodes in address order.
    ZoneIx(u16)
}

/// Part of a node's memory that a zone covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZoneKind {
    /// Below 4 GiB: for devices with 32 address bits.
    Dma32,
    /// All other memory, above DMA32.
    Normal,
}

/// Watermarks of a zone, in free frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Below it, ordinary requests are refused.
    pub min: u64,
    /// Below it, kswapd is woken.
    pub low: u64,
    /// Above it, kswapd sleeps again.
    pub high: u64,
}

/// log2 of the number of frames in a pageblock, whose free memory shares a migrate type: those of a 2 MiB page
/// (`pageblock_order`).
pub(super) const PAGEBLOCK_ORDER: u32 = 9;

/// The types to steal from, in this order (Linux 6.1 `fallbacks`).
fn fallbacks(migrate_type: MigrateType) -> [MigrateType; 2] {
    use MigrateType::{Movable, Reclaimable, Unmovable};
    match migrate_type {
        Unmovable => [Reclaimable, Movable],
        Movable => [Reclaimable, Unmovable],
        Reclaimable => [Unmovable, Movable],
    }
}

#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) ix: ZoneIx,
    pub(super) node: NodeId,
    pub(super) kind: ZoneKind,
    pub(super) area: FreeArea,
    /// [`PAGEBLOCK_ORDER`], or the largest order if that is less.
    pub(super) pageblock_order: u32,
    /// By index >> `pageblock_order`.
    pageblocks: Vec<MigrateType>,
    /// By CPU.
    pub(super) pcps: Vec<Pcp>,
    pub(super) limits: PcpLimits,
    pub(super) watermarks: Watermarks,
    /// An allocation has found less than the high watermark free, and no list has given frames back above it since
    /// (`ZONE_BELOW_HIGH`).
    pub(super) is_short: bool,
    /// Frames that requests which a higher zone could serve must leave (`lowmem_reserve`).
    pub(super) lowmem_reserve: u64,
    pub(super) used_frames: u64,
    pub(super) per_cpu_frames: u64,
}

impl Zone {
    pub(super) fn new(
        ix: ZoneIx,
        (node, kind): (NodeId, ZoneKind),
        frames: Range<u64>,
        cpus: usize,
        max_order: u32,
    ) -> Result<Self, FrameAllocError> {
        let area = FreeArea::new(Pfn(frames.start), frames.end - frames.start, max_order)?;
        let pageblock_order = PAGEBLOCK_ORDER.min(max_order);
        let last = area.index(Pfn(frames.end - 1));
        Ok(Self {
            ix,
            node,
            kind,
            area,
            pageblock_order,
            pageblocks: vec![MigrateType::Movable; (last >> pageblock_order) as usize + 1],
            pcps: vec![Pcp::default(); cpus],
            limits: PcpLimits::default(),
            watermarks: Watermarks::default(),
            is_short: false,
            lowmem_reserve: 0,
            used_frames: 0,
            per_cpu_frames: 0,
        })
    }

    /// Frames that are not reserved (`zone_managed_pages`).
    pub(super) fn managed_frames(&self) -> u64 {
        let frames = self.area.frames();
        frames.end - frames.start - self.area.reserved_frames()
    }

    /// Linux 6.1 `__setup_per_zone_wmarks`.
    pub(super) fn set_watermarks(&mut self, min: u64, config: &WatermarkConfig) {
        let scaled = self.managed_frames() * u64::from(config.scale_factor) / 10_000;
        let step = (min / 4).max(scaled);
        self.watermarks = Watermarks { min, low: min + step, high: min + 2 * step };
    }

    /// Sets the limits of the per-CPU lists, which depend on the watermarks.
    pub(super) fn set_pcp_limits(
        &mut self,
        config: &PageAllocatorConfig,
        node_cpus: u64,
    ) -> Result<(), FrameAllocError> {
        self.limits = PcpLimits::new(&config.pcp, self.managed_frames(), self.watermarks.low, node_cpus)?;
        Ok(())
    }

    /// Whether `mark` frames remain after 2^`order` are taken (first half of `__zone_watermark_ok`).
    #[inline]
    pub(super) fn stays_above(&self, mark: u64, order: u32) -> bool {
        self.area.free_frames() + 1 > mark + self.lowmem_reserve + (1 << order)
    }

    /// Whether there is a free block of at least 2^`order` frames, of any type (second half of `__zone_watermark_ok`).
    #[inline]
    pub(super) fn has_block(&self, order: u32) -> bool {
        order == 0 || MigrateType::ALL.into_iter().any(|list| self.area.smallest(order, list).is_some())
    }

    /// The part of the min watermark that applies to a request.
    pub(super) fn min_for(&self, urgency: Urgency) -> u64 {
        match urgency {
            Urgency::Ordinary => self.watermarks.min,
            Urgency::Atomic => {
                let half = self.watermarks.min - self.watermarks.min / 2;
                half - half / 4
            }
            Urgency::Reclaim => 0,
        }
    }

    /// Allocates a block for contents of type `contents`; a single frame from the CPU's list (Linux `rmqueue`).
    #[inline]
    pub(super) fn alloc(
        &mut self,
        order: u32,
        contents: MigrateType,
        cpu: CpuId,
        effects: &mut AllocEffects,
    ) -> Option<Pfn> {
        self.is_short = self.is_short || !self.stays_above(self.watermarks.high, order);
        let index = if order == 0 {
            self.pcps[cpu].allocates();
            if self.pcps[cpu].lists[contents as usize].is_empty() {
                self.refill(cpu, contents, effects)?;
            } else {
                effects.per_cpu_hits += 1;
            }
            let list = &mut self.pcps[cpu].lists[contents as usize];
            let index = list.pop_front().expect("the list has just been filled");
            // `list_del` writes to the neighbour, which becomes the head.
            let second = list.front().copied();
            self.pcps[cpu].count -= 1;
            self.per_cpu_frames -= 1;
            self.area.set_state(index, FrameState::used(0, contents));
            effects.descriptors.push(self.area.pfn(index));
            effects.descriptors.extend(second.map(|second| self.area.pfn(second)));
            index
        } else {
            effects.zone_locks.push(self.ix);
            effects.moved += 1;
            self.rmqueue(order, contents, effects)?
        };
        self.used_frames += 1 << order;
        Some(self.area.pfn(index))
    }

    /// Takes exactly the block at `pfn`, if all of it is on the zone's lists and `mark` frames remain.
    pub(super) fn alloc_at(
        &mut self,
        pfn: Pfn,
        order: u32,
        contents: MigrateType,
        mark: u64,
        effects: &mut AllocEffects,
    ) -> bool {
        if !self.area.holds(pfn, order) || !self.stays_above(mark, order) {
            return false;
        }
        let taken = self.area.take_at(self.area.index(pfn), order, contents, effects);
        if taken {
            effects.zone_locks.push(self.ix);
            effects.moved += 1;
            self.used_frames += 1 << order;
        }
        taken
    }

    /// Frees a block in use.
    #[inline]
    pub(super) fn free(&mut self, pfn: Pfn, order: u32, cpu: CpuId, effects: &mut AllocEffects) {
        let index = self.area.used_index(pfn, order);
        let list = self.pageblock(index);
        self.used_frames -= 1 << order;
        effects.descriptors.push(pfn);
        if order > 0 {
            effects.zone_locks.push(self.ix);
            effects.moved += 1;
            self.area.give(index, order, list, effects);
            return;
        }
        let pcp = &mut self.pcps[cpu];
        let second = pcp.lists[list as usize].front().copied();
        pcp.lists[list as usize].push_front(index);
        pcp.count += 1;
        self.per_cpu_frames += 1;
        self.area.set_state(index, FrameState::PER_CPU);
        effects.descriptors.extend(second.map(|second| self.area.pfn(second)));
        let given = pcp.frames_to_give(&self.limits, self.is_short);
        if given > 0 {
            self.drain(cpu, given, effects);
            self.is_short = self.is_short && !self.stays_above(self.watermarks.high, 0);
        } else {
            effects.per_cpu_hits += 1;
        }
    }

    /// Linux `rmqueue_bulk`: takes up to a batch under one lock, in the order in which the zone hands them out.
    #[cold]
    fn refill(&mut self, cpu: CpuId, contents: MigrateType, effects: &mut AllocEffects) -> Option<()> {
        effects.zone_locks.push(self.ix);
        for _ in 0..self.pcps[cpu].frames_to_take(&self.limits, self.is_short) {
            let Some(index) = self.rmqueue(0, contents, effects) else { break };
            self.area.set_state(index, FrameState::PER_CPU);
            effects.moved += 1;
            self.pcps[cpu].lists[contents as usize].push_back(index);
            self.pcps[cpu].count += 1;
            self.per_cpu_frames += 1;
        }
        (!self.pcps[cpu].lists[contents as usize].is_empty()).then_some(())
    }

    /// Linux 6.1 `free_pcppages_bulk`: frees the coldest frames, from the lists in turn, under one lock.
    #[cold]
    pub(super) fn drain(&mut self, cpu: CpuId, frames: u32, effects: &mut AllocEffects) {
        effects.zone_locks.push(self.ix);
        for _ in 0..frames.min(self.pcps[cpu].count) {
            let pcp = &mut self.pcps[cpu];
            let index = loop {
                pcp.drained = (pcp.drained + 1) % MigrateType::COUNT;
                if let Some(index) = pcp.lists[pcp.drained].pop_back() {
                    break index;
                }
            };
            let list = MigrateType::ALL[pcp.drained];
            pcp.count -= 1;
            self.per_cpu_frames -= 1;
            effects.descriptors.push(self.area.pfn(index));
            effects.moved += 1;
            self.area.give(index, 0, list, effects);
        }
    }

    /// Linux `__rmqueue`: allocates from the type's own lists; if they are empty, steals from another type first.
    fn rmqueue(&mut self, order: u32, contents: MigrateType, effects: &mut AllocEffects) -> Option<Index> {
        loop {
            if let Some(index) = self.area.take(order, contents, contents, effects) {
                return Some(index);
            }
            if !self.steal(order, contents, effects) {
                return None;
            }
        }
    }

    /// Linux 6.1 `__rmqueue_fallback`: moves a block of another type to the lists of `to`. It takes the largest block,
    /// so that types mix rarely. Movable contents that may not convert a pageblock take the smallest instead, since
    /// they do no harm there.
    fn steal(&mut self, order: u32, to: MigrateType, effects: &mut AllocEffects) -> bool {
        let source = |size: u32| fallbacks(to).into_iter().find(|&from| self.area.has(size, from));
        let Some(mut size) = (order..=self.area.max_order()).rev().find(|&size| source(size).is_some()) else {
            return false;
        };
        let converts = self.may_convert(size, to);
        if !converts && size > order {
            size = (order..=size).find(|&size| source(size).is_some()).expect("there is one of the larger size");
        }
        let from = source(size).expect("found above");
        effects.steals += 1;
        let index = self.area.pop(size, from, effects);
        self.area.link(index, size, to, effects);
        if size >= self.pageblock_order {
            for block in index >> self.pageblock_order..(index + (1 << size)) >> self.pageblock_order {
                self.convert(block, to, effects);
            }
        } else if converts {
            self.steal_pageblock(index >> self.pageblock_order, to, effects);
        }
        true
    }

    /// Linux `can_steal_fallback`.
    fn may_convert(&self, size: u32, to: MigrateType) -> bool {
        size >= self.pageblock_order / 2 || to != MigrateType::Movable
    }

    /// Linux 6.1 `steal_suitable_fallback` for a part of a pageblock: all its free blocks change lists, and its type
    /// changes if at least half of it is now free or has contents compatible with the new type.
    fn steal_pageblock(&mut self, block: Index, to: MigrateType, effects: &mut AllocEffects) {
        let start = block << self.pageblock_order;
        let frames = 1 << self.pageblock_order;
        let zone = self.area.frames();
        if self.area.pfn(start) < zone.start || self.area.pfn(start).0 + u64::from(frames) > zone.end.0 {
            // The zone ends inside the pageblock (`move_freepages_block`).
            return;
        }
        let (mut index, mut free, mut movable) = (start, 0, 0);
        while index < start + frames {
            let state = self.area.state(index);
            let size = 1 << state.order();
            if let Some(list) = state.free_list() {
                free += size;
                if list != to {
                    self.area.unlink(index, effects);
                    self.area.link(index, state.order(), to, effects);
                }
            } else if state.used_for() == Some(MigrateType::Movable) {
                movable += size;
            }
            index += size;
        }
        let alike = match (to, self.pageblocks[block as usize]) {
            (MigrateType::Movable, _) => movable,
            // Unmovable contents of a movable pageblock are more compatible than movable ones.
            (_, MigrateType::Movable) => frames - free - movable,
            _ => 0,
        };
        if free + alike >= frames / 2 {
            self.convert(block, to, effects);
        }
    }

    fn convert(&mut self, block: Index, to: MigrateType, effects: &mut AllocEffects) {
        let current = &mut self.pageblocks[block as usize];
        effects.conversions += u32::from(*current != to);
        *current = to;
    }

    /// The migrate type of a frame's pageblock.
    #[inline]
    pub(super) fn pageblock(&self, index: Index) -> MigrateType {
        self.pageblocks[(index >> self.pageblock_order) as usize]
    }

    pub(super) fn set_pageblock(&mut self, index: Index, to: MigrateType) {
        self.pageblocks[(index >> self.pageblock_order) as usize] = to;
    }

    /// # Panics
    /// If the zone's structures contradict each other.
    pub(super) fn check_invariants(&self) {
        let census = self.area.check_invariants();
        assert_eq!(census.used, self.used_frames, "{:?}: frames in use", self.ix);
        assert_eq!(census.per_cpu, self.per_cpu_frames, "{:?}: frames on per-CPU lists", self.ix);
        let total = census.free + census.used + census.per_cpu;
        assert_eq!(total, self.managed_frames(), "{:?}: frames", self.ix);
        let mut listed = 0;
        for pcp in &self.pcps {
            for &index in pcp.lists.iter().flatten() {
                assert_eq!(self.area.state(index), FrameState::PER_CPU, "{:?}: listed at {index}", self.ix);
                listed += 1;
            }
            assert_eq!(pcp.lists.iter().map(VecDeque::len).sum::<usize>(), pcp.count as usize, "per-CPU count");
            // A refill only considers the list of its own type.
            let most = self.limits.high_max + 2 * self.limits.batch;
            assert!(pcp.count < most, "{:?}: per-CPU lists beyond their limit", self.ix);
        }
        // Together with the count of states, this also implies that no frame is listed twice: each is visited once
        // there.
        assert_eq!(listed, census.per_cpu, "{:?}: frames listed by CPUs", self.ix);
    }
}
