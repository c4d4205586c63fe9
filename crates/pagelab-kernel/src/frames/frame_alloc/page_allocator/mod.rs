//! The physical page allocator of Linux.
//!
//! # Models
//! Memory is divided into NUMA nodes, and each node into the zones DMA32 (below 4 GiB) and NORMAL. A request tries the
//! zones in the order of its CPU's node: the node's own NORMAL, its DMA32, then those of the other nodes, nearest
//! first. The first zone that stays above its low watermark serves it. If there is none, the request reports the
//! shortage (Linux would wake kswapd) and may go down to min, an urgent request further. DMA32 reserves some memory
//! against requests that NORMAL could serve.
//!
//! A zone has buddy lists by migrate type: unmovable contents are kept together, so that large blocks survive
//! elsewhere. Each pageblock of 2 MiB has a type, which decides on whose lists its freed frames go. A type with empty
//! lists steals the largest block of another type, and the whole pageblock if that is at least half free or compatible.
//! Single frames come from and go to per-CPU lists, hottest first, which exchange batches with the zone under its lock:
//! see `per_cpu_lists`.
//!
//! [`PageAllocator::age`] brings memory into the state of a machine that has run for a long time.
//!
//! # Source
//! Linux 6.1 `mm/page_alloc.c`: `get_page_from_freelist`, `__zone_watermark_ok`, `rmqueue`, `rmqueue_bulk`,
//! `free_unref_page_commit`, `free_pcppages_bulk`, `__rmqueue_fallback`, `steal_suitable_fallback`,
//! `__setup_per_zone_wmarks`, `setup_per_zone_lowmem_reserve`, `find_next_best_node`. Gorman and Whitcroft, "The what,
//! the why and the where to of anti-fragmentation", Ottawa Linux Symposium 2006.
//!
//! # Parameters
//! [`PageAllocatorConfig`], each with the origin of its default.
//!
//! # Deviations from the source
//! - Per-CPU lists hold single frames; Linux since 5.14 also keeps orders 1 to 3 and 9 there.
//! - No HIGHATOMIC, CMA and ISOLATE pageblocks; no watermark boost after stealing; DMA32 is not preferred to stealing
//!   in NORMAL (`ALLOC_NOFRAGMENT`).
//! - No ZONE_DMA (16 MiB) and no hole below 4 GiB. NUMA policies are up to the caller.
//! - A freed block always goes to the head of its list (see [`super::Buddy`]).

mod ageing;
mod config;
mod per_cpu_lists;
mod reporting;
mod zone;

use std::ops::Range;

use super::{AllocEffects, FrameAllocError, FrameAllocator, FrameRequest, Near, ReportPass, Shortage, Urgency};
use config::{Topology, error};
use pagelab_base::addr::{FRAME_BYTES, Pfn};
use pagelab_base::ids::{CpuId, NodeId};
use zone::Zone;

pub use ageing::{Aged, AgedBlock, AgeingConfig};
pub use config::{NodeConfig, PageAllocatorConfig, WatermarkConfig};
pub use per_cpu_lists::{PcpConfig, PerCpuLists};
pub use zone::{Watermarks, ZoneIx, ZoneKind};

/// Bounds of the sum of the min watermarks (Linux `calculate_min_free_kbytes`).
const MIN_FREE_KIB: Range<u64> = 128..(256 << 10);

/// See the module's text.
#[derive(Clone, Debug)]
pub struct PageAllocator {
    config: PageAllocatorConfig,
    /// In address order, without gaps.
    zones: Vec<Zone>,
    cpu_nodes: Vec<NodeId>,
    /// By node: the zones that its CPUs try.
    zonelists: Vec<Vec<ZoneIx>>,
}

/// State of a zone, for reclaim and reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneStatus {
    /// Number of the zone's node.
    pub node: NodeId,
    /// Which part of the node's memory the zone is.
    pub kind: ZoneKind,
    /// The frames that it spans, including reserved ones.
    pub frames: Range<Pfn>,
    /// Frames permanently reserved at boot.
    pub reserved_frames: u64,
    /// Frames in free blocks, without those on per-CPU lists.
    pub free_frames: u64,
    /// Frames on per-CPU lists: available to one CPU only.
    pub per_cpu_frames: u64,
    /// Frames in blocks in use.
    pub used_frames: u64,
    /// The watermarks, in free frames.
    pub watermarks: Watermarks,
    /// Frames that requests which NORMAL could serve must leave here beyond the watermark.
    pub lowmem_reserve: u64,
}

impl PageAllocator {
    /// An allocator for `count` frames from `first`, all free, for a machine with `cpus` CPUs.
    pub fn new(first: Pfn, count: u64, cpus: u32, config: &PageAllocatorConfig) -> Result<Self, FrameAllocError> {
        let end = first.0.checked_add(count).ok_or(FrameAllocError::TooLarge { first, count })?;
        let Topology { node_frames, cpu_nodes, nearest } = config.topology(count, cpus)?;
        let boundary = (config.dma32_end_bytes.0 / FRAME_BYTES).clamp(first.0, end);
        let mut zones: Vec<Zone> = Vec::new();
        let mut start = first.0;
        for (node, frames) in NodeId::all(node_frames.len()).zip(node_frames) {
            let split = boundary.clamp(start, start + frames);
            for (kind, range) in [(ZoneKind::Dma32, start..split), (ZoneKind::Normal, split..start + frames)] {
                if !range.is_empty() {
                    let ix = ZoneIx::from(zones.len());
                    zones.push(Zone::new(ix, (node, kind), range, cpus as usize, config.max_order)?);
                }
            }
            start += frames;
        }
        let of_node = |node| zones.iter().rev().filter(move |z| z.node == node).map(|z| z.ix);
        let zonelists = nearest.into_iter().map(|nodes| nodes.into_iter().flat_map(of_node).collect()).collect();
        let mut allocator = Self { config: config.clone(), zones, cpu_nodes, zonelists };
        allocator.set_reserves()?;
        Ok(allocator)
    }

    /// Reserves `range` permanently (a kernel image, the page descriptors): it is neither free nor in use, and the
    /// watermarks shrink with the remaining memory. An empty range has no effect. Possible only before the first
    /// allocation from the zone. After an error, a part of the range may be reserved.
    pub fn reserve_range(&mut self, range: Range<Pfn>) -> Result<(), FrameAllocError> {
        let Range { start: first, end: last } = self.frames();
        if range.start > range.end || range.start < first || range.end > last {
            return Err(FrameAllocError::ReserveOutside { start: range.start, end: range.end, first, last });
        }
        for zone in &mut self.zones {
            let frames = zone.area.frames();
            let part = range.start.max(frames.start)..range.end.min(frames.end);
            if part.start < part.end {
                zone.area.reserve_range(part)?;
            }
        }
        self.set_reserves()
    }

    /// Linux 6.1 `calculate_min_free_kbytes`, `__setup_per_zone_wmarks`, `setup_per_zone_lowmem_reserve` and
    /// `zone_set_pageset_high_and_batch`.
    fn set_reserves(&mut self) -> Result<(), FrameAllocError> {
        let config = &self.config;
        let managed: u64 = self.zones.iter().map(Zone::managed_frames).sum();
        let kib_a_frame = FRAME_BYTES >> 10;
        let min_kib = match config.watermarks.min_free_bytes {
            Some(bytes) => bytes.0 >> 10,
            None => (managed * kib_a_frame * 16).isqrt().clamp(MIN_FREE_KIB.start, MIN_FREE_KIB.end),
        };
        let min_frames = min_kib / kib_a_frame;
        for at in 0..self.zones.len() {
            let (node, kind) = (self.zones[at].node, self.zones[at].kind);
            let node_cpus = self.cpu_nodes.iter().filter(|&&n| n == node).count();
            let node_cpus = if node_cpus == 0 { self.cpu_nodes.len() } else { node_cpus } as u64;
            let normal = self.zones.iter().filter(|z| z.node == node && z.kind == ZoneKind::Normal);
            let normal: u64 = normal.map(Zone::managed_frames).sum();
            let zone = &mut self.zones[at];
            let share = u128::from(min_frames) * u128::from(zone.managed_frames()) / u128::from(managed.max(1));
            zone.set_watermarks(share as u64, &config.watermarks);
            if kind == ZoneKind::Dma32 {
                let ratio = u64::from(config.watermarks.lowmem_reserve_ratio);
                zone.lowmem_reserve = normal.checked_div(ratio).unwrap_or(0);
            }
            zone.set_pcp_limits(config, node_cpus)?;
        }
        let high: u64 = self.zones.iter().map(|z| z.watermarks.high).sum();
        if high >= managed {
            let what = format!(
                "{} KiB make high watermarks of {high} frames, but the memory has {managed} that are not reserved; \
                 set less or give more memory",
                min_kib
            );
            return Err(error("watermarks.min_free_bytes", what));
        }
        Ok(())
    }

    /// Numbers of all zones, in address order.
    pub fn zones(&self) -> impl Iterator<Item = ZoneIx> + use<> {
        ZoneIx::all(self.zones.len())
    }

    /// The zone of this kind in a node, if it exists.
    pub fn zone_of(&self, node: NodeId, kind: ZoneKind) -> Option<ZoneIx> {
        self.zones.iter().find(|z| z.node == node && z.kind == kind).map(|z| z.ix)
    }

    /// The zone of a frame.
    ///
    /// # Panics
    /// If the frame is outside the memory.
    pub fn zone_at(&self, pfn: Pfn) -> ZoneIx {
        let Range { start, end } = self.frames();
        assert!((start..end).contains(&pfn), "{pfn:?} is outside the memory {start:?}..{end:?}");
        ZoneIx::from(self.zones.partition_point(|z| z.area.frames().start <= pfn) - 1)
    }

    /// The zones that requests of a CPU try, in order.
    pub fn zonelist(&self, cpu: CpuId) -> &[ZoneIx] {
        &self.zonelists[self.cpu_nodes[cpu]]
    }

    /// The watermarks of a zone, in frames.
    pub fn watermarks(&self, zone: ZoneIx) -> Watermarks {
        self.zones[zone].watermarks
    }

    /// Free frames of a zone, to compare with its watermarks.
    pub fn zone_free_frames(&self, zone: ZoneIx) -> u64 {
        self.zones[zone].area.free_frames()
    }

    /// The current state of a zone.
    pub fn zone_status(&self, zone: ZoneIx) -> ZoneStatus {
        let zone = &self.zones[zone];
        ZoneStatus {
            node: zone.node,
            kind: zone.kind,
            frames: zone.area.frames(),
            reserved_frames: zone.area.reserved_frames(),
            free_frames: zone.area.free_frames(),
            per_cpu_frames: zone.per_cpu_frames,
            used_frames: zone.used_frames,
            watermarks: zone.watermarks,
            lowmem_reserve: zone.lowmem_reserve,
        }
    }

    fn zone_mut(&mut self, pfn: Pfn) -> &mut Zone {
        let ix = self.zone_at(pfn);
        &mut self.zones[ix]
    }

    /// The node whose zones a request tries first, and whether it tries only those.
    #[inline]
    fn nodes_for(&self, request: &FrameRequest) -> (NodeId, bool) {
        let near = request.near.unwrap_or(Near { cpu: request.cpu, only: false });
        (self.cpu_nodes[near.cpu], near.only)
    }

    /// Takes a block from the first zone of the CPU's list that passes `mark` and has one (Linux
    /// `get_page_from_freelist`).
    #[inline]
    fn take_from_zonelist(
        &mut self,
        request: &FrameRequest,
        effects: &mut AllocEffects,
        mark: impl Fn(&Zone) -> bool,
    ) -> Option<Pfn> {
        let contents = request.purpose.migrate_type();
        let (node, only) = self.nodes_for(request);
        self.zonelists[node].iter().find_map(|ix| {
            let zone = &mut self.zones[*ix];
            if only && zone.node != node || !mark(zone) {
                return None;
            }
            zone.alloc(request.order, contents, request.cpu, effects)
        })
    }

    /// Second attempt of a request that no zone can serve above its low watermark (Linux `__alloc_pages_slowpath`,
    /// before reclaim).
    #[cold]
    fn alloc_from_reserves(&mut self, request: &FrameRequest, effects: &mut AllocEffects) -> Option<Pfn> {
        let (node, only) = self.nodes_for(request);
        let zones = || {
            let all = self.zonelists[node].iter().map(|ix| &self.zones[*ix]);
            all.filter(move |zone| !only || zone.node == node)
        };
        // Missing large blocks are fragmentation, not a shortage.
        let shortage = if zones().any(|z| z.stays_above(z.watermarks.low, request.order)) {
            Shortage::None
        } else if zones().any(|z| z.stays_above(z.watermarks.min, request.order)) {
            Shortage::BelowLow
        } else {
            Shortage::BelowMin
        };
        effects.shortage = effects.shortage.max(shortage);
        let (order, urgency) = (request.order, request.urgency);
        self.take_from_zonelist(request, effects, |zone| {
            urgency == Urgency::Reclaim || zone.stays_above(zone.min_for(urgency), order) && zone.has_block(order)
        })
    }
}

impl FrameAllocator for PageAllocator {
    fn copy(&self) -> Box<dyn FrameAllocator> {
        Box::new(self.clone())
    }

    #[inline]
    fn alloc(&mut self, request: FrameRequest, effects: &mut AllocEffects) -> Option<Pfn> {
        let order = request.order;
        if order > self.config.max_order {
            return None;
        }
        let above_low = |zone: &Zone| zone.stays_above(zone.watermarks.low, order) && zone.has_block(order);
        self.take_from_zonelist(&request, effects, above_low).or_else(|| self.alloc_from_reserves(&request, effects))
    }

    fn alloc_at(&mut self, pfn: Pfn, request: FrameRequest, effects: &mut AllocEffects) -> bool {
        if request.order > self.config.max_order || !self.frames().contains(&pfn) {
            return false;
        }
        let zone = self.zone_mut(pfn);
        let mark = zone.min_for(request.urgency);
        zone.alloc_at(pfn, request.order, request.purpose.migrate_type(), mark, effects)
    }

    fn find_run(&self, order: u32, frames: u64, cpu: CpuId, looked: &mut Vec<Pfn>) -> Option<Range<Pfn>> {
        let frames_of = |run: &Range<Pfn>| run.end - run.start;
        let mut largest: Option<Range<Pfn>> = None;
        for ix in self.zonelist(cpu) {
            let Some(run) = self.zones[*ix].area.find_run(order, frames, looked) else { continue };
            if frames_of(&run) >= frames {
                return Some(run);
            }
            if largest.as_ref().is_none_or(|largest| frames_of(&run) > frames_of(largest)) {
                largest = Some(run);
            }
        }
        largest
    }

    fn set_rover(&mut self, pfn: Pfn) {
        // The end of a run belongs to the same zone as the run.
        self.zone_mut(pfn - 1).area.set_rover(pfn);
    }

    #[inline]
    fn free(&mut self, pfn: Pfn, order: u32, cpu: CpuId, effects: &mut AllocEffects) {
        self.zone_mut(pfn).free(pfn, order, cpu, effects);
    }

    fn split_used(&mut self, pfn: Pfn, order: u32, into: u32) {
        self.zone_mut(pfn).area.split_used(pfn, order, into);
    }

    #[inline]
    fn used_order(&self, pfn: Pfn) -> Option<u32> {
        self.zones.iter().find_map(|zone| zone.area.used_order(pfn))
    }

    fn frames(&self) -> Range<Pfn> {
        let last = self.zones.last().expect("there is a zone");
        self.zones[0].area.frames().start..last.area.frames().end
    }

    fn max_order(&self) -> u32 {
        self.config.max_order
    }

    fn free_frames(&self) -> u64 {
        self.zones.iter().map(|z| z.area.free_frames()).sum()
    }

    fn per_cpu_frames(&self) -> u64 {
        self.zones.iter().map(|z| z.per_cpu_frames).sum()
    }

    fn set_cpu_nodes(&mut self, nodes: &[NodeId]) {
        self.cpu_nodes[..nodes.len()].copy_from_slice(nodes);
    }

    fn drain_per_cpu(&mut self, effects: &mut AllocEffects) {
        for zone in &mut self.zones {
            for cpu in CpuId::all(zone.pcps.len()) {
                while zone.pcps[cpu].count > 0 {
                    zone.drain(cpu, zone.limits.most_at_once(), effects);
                }
            }
        }
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.zones.iter().map(|z| z.area.free_blocks(order)).sum()
    }

    fn is_free(&self, pfn: Pfn) -> bool {
        self.frames().contains(&pfn) && self.zones[usize::from(self.zone_at(pfn).0)].area.is_free(pfn)
    }

    fn track_reports(&mut self, order: u32) {
        self.zones.iter_mut().for_each(|zone| zone.area.track_reports(order));
    }

    fn isolate_unreported(&mut self, pass: &mut ReportPass, effects: &mut AllocEffects) -> bool {
        while let Some(zone) = self.zones.get_mut(pass.zone) {
            let more = zone.isolate_unreported(pass, effects);
            if !more {
                pass.next_zone();
            }
            // What is left of a zone is a request of its own.
            if !pass.batch.is_empty() {
                return true;
            }
        }
        false
    }

    fn put_back_reported(&mut self, blocks: &[(Pfn, u32)], effects: &mut AllocEffects) {
        if let Some(&(first, _)) = blocks.first() {
            self.zone_mut(first).put_back_reported(blocks, effects);
        }
    }

    fn check_invariants(&self) {
        self.zones.iter().for_each(Zone::check_invariants);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
#[path = "properties.rs"]
mod properties;
