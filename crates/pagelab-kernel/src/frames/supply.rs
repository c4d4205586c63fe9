//! A layer's frame allocator, with the effects of its last operation and its counters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::frames::frame_alloc::{
    Aged, AgeingConfig, AllocEffects, Buddy, BuddyConfig, FrameAllocError, FrameAllocator, FramePurpose, FrameRequest,
    Near, PageAllocator, PageAllocatorConfig, ReportPass, Urgency,
};
use pagelab_base::addr::Pfn;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;

/// Frame allocator of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FrameAllocatorConfig {
    /// One buddy allocator over all memory.
    Buddy,
    /// Linux's: NUMA nodes, zones, migrate types, per-CPU lists of free pages, watermarks.
    Linux(PageAllocatorConfig),
}

impl Default for FrameAllocatorConfig {
    fn default() -> Self {
        Self::Linux(PageAllocatorConfig::default())
    }
}

/// Requirements of a layer for its frame allocator.
#[derive(Clone, Copy, Debug)]
pub struct WantedFrames<'a> {
    /// The layer's name, for errors.
    pub layer: &'a str,
    /// Parameters of the allocator.
    pub allocator: &'a FrameAllocatorConfig,
    /// Ageing of the memory before the run.
    pub age: Option<&'a AgeingConfig>,
    /// Order of the largest block that may be requested at once.
    pub largest_block: u32,
}

/// See the module's text.
pub struct Frames {
    /// The allocator of the layer's frames.
    pub allocator: Box<dyn FrameAllocator>,
    /// Effects of the last request.
    pub effects: AllocEffects,
    /// Sums over all requests of the run.
    pub counters: FrameCounters,
    /// Whether free blocks are to be reported to a host.
    pub reports: ReportRequest,
    /// How far requests may use the reserves: further while reclaim itself allocates.
    pub urgency: Urgency,
}

/// A request to report free blocks to a host, as Linux's `page_reporting_dev_info` keeps its state.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportRequest {
    /// A block has become free since the last pass began.
    pub requested: bool,
    /// A pass runs, or will begin after a delay.
    pub scheduled: bool,
}

impl ReportRequest {
    /// Whether a pass must be scheduled.
    pub fn is_due(self) -> bool {
        self.requested && !self.scheduled
    }
}

/// Counters of a layer's frame allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameCounters {
    /// Number of requested blocks.
    pub requests: u64,
    /// Requests that a per-CPU list served.
    pub per_cpu_hits: u64,
    /// Acquisitions of a zone's lock.
    pub zone_locks: u64,
    /// Blocks that allocations and frees moved from or to a zone's lists.
    pub moved: u64,
    /// Free blocks split in two.
    pub splits: u64,
    /// Pairs of free buddies merged.
    pub merges: u64,
    /// Blocks taken from pageblocks of another mobility.
    pub steals: u64,
}

impl Clone for Frames {
    fn clone(&self) -> Self {
        let Self { allocator, effects, counters, reports, urgency } = self;
        let (allocator, effects) = (allocator.copy(), effects.clone());
        Self { allocator, effects, counters: *counters, reports: *reports, urgency: *urgency }
    }
}

impl Frames {
    /// Creates the frames of a layer in the state before its programs start, with the page metadata reserved. Returns
    /// also the result of ageing.
    pub fn new(
        want: &WantedFrames,
        frames: u64,
        metadata_frames: u64,
        cpus: u32,
    ) -> Result<(Self, Option<Aged>), EngineError> {
        let (allocator, aged) = frame_allocator(want, frames, metadata_frames, cpus)?;
        let (effects, counters, reports) =
            (AllocEffects::default(), FrameCounters::default(), ReportRequest::default());
        Ok((Self { allocator, effects, counters, reports, urgency: Urgency::Ordinary }, aged))
    }

    /// Allocates a block of 2^`order` frames for a CPU; `None` if there is no memory, not even on the per-CPU lists.
    pub fn alloc(&mut self, order: u32, purpose: FramePurpose, cpu: CpuId) -> Option<Pfn> {
        self.serve(FrameRequest { cpu, urgency: self.urgency, ..FrameRequest::new(order, purpose) })
    }

    /// Allocates a block from the nodes that `near` names instead of the CPU's own.
    pub fn alloc_near(&mut self, order: u32, purpose: FramePurpose, cpu: CpuId, near: Near) -> Option<Pfn> {
        self.serve(FrameRequest { cpu, near: Some(near), ..FrameRequest::new(order, purpose) })
    }

    fn serve(&mut self, request: FrameRequest) -> Option<Pfn> {
        self.effects.clear();
        self.counters.requests += 1;
        let mut pfn = self.allocator.alloc(request, &mut self.effects);
        if pfn.is_none() && self.allocator.per_cpu_frames() > 0 {
            // Before it fails, a kernel collects the frames on the per-CPU lists (`__alloc_pages_direct_reclaim`).
            self.allocator.drain_per_cpu(&mut self.effects);
            pfn = self.allocator.alloc(request, &mut self.effects);
        }
        self.count();
        pfn
    }

    /// Takes exactly the block at `pfn`; false if it is not free.
    pub fn alloc_at(&mut self, pfn: Pfn, order: u32, purpose: FramePurpose, cpu: CpuId) -> bool {
        self.effects.clear();
        self.counters.requests += 1;
        let request = FrameRequest { cpu, ..FrameRequest::new(order, purpose) };
        let taken = self.allocator.alloc_at(pfn, request, &mut self.effects);
        self.count();
        taken
    }

    /// Frees a block of 2^`order` frames, on behalf of a CPU.
    pub fn free(&mut self, pfn: Pfn, order: u32, cpu: CpuId) {
        self.effects.clear();
        self.allocator.free(pfn, order, cpu, &mut self.effects);
        self.count();
    }

    /// Frees the block in use that begins at `first`, whatever its size.
    pub fn free_block(&mut self, first: Pfn, cpu: CpuId) {
        let order = self.allocator.used_order(first).expect("a block begins there");
        self.free(first, order, cpu);
    }

    /// Gives what is on the lists of all CPUs back to the zones.
    pub fn drain_lists(&mut self) {
        self.effects.clear();
        self.allocator.drain_per_cpu(&mut self.effects);
        self.count();
    }

    /// Isolates the blocks of the next request of a pass that reports them to a host; false if there are none.
    pub fn isolate_unreported(&mut self, pass: &mut ReportPass) -> bool {
        self.effects.clear();
        let any = self.allocator.isolate_unreported(pass, &mut self.effects);
        self.count();
        any
    }

    /// Puts the blocks of the request back, which has been made.
    pub fn put_back_reported(&mut self, pass: &mut ReportPass) {
        self.effects.clear();
        self.allocator.put_back_reported(&pass.batch, &mut self.effects);
        pass.batch.clear();
        self.count();
    }

    fn count(&mut self) {
        self.reports.requested |= self.effects.is_to_be_reported;
        let (effects, counters) = (&self.effects, &mut self.counters);
        counters.per_cpu_hits += u64::from(effects.per_cpu_hits);
        counters.zone_locks += effects.zone_locks.len() as u64;
        counters.moved += u64::from(effects.moved);
        counters.splits += u64::from(effects.splits);
        counters.merges += u64::from(effects.merges);
        counters.steals += u64::from(effects.steals);
    }
}

/// The frame allocator of a layer, in the state before its programs start, with the page metadata reserved.
fn frame_allocator(
    config: &WantedFrames,
    frames: u64,
    metadata_frames: u64,
    cpus: u32,
) -> Result<(Box<dyn FrameAllocator>, Option<Aged>), EngineError> {
    let error = |part: &'static str| {
        move |e: FrameAllocError| match e {
            FrameAllocError::Config { key, what } => {
                EngineError::config(format!("system.layers.{}.{part}.{key}", config.layer), what)
            }
            other => EngineError::config(format!("system.layers.{}.memory_bytes", config.layer), other.to_string()),
        }
    };
    let metadata = Pfn(0)..Pfn(metadata_frames);
    match config.allocator {
        FrameAllocatorConfig::Buddy => {
            let max_order = config.largest_block.max(BuddyConfig::default().max_order);
            let mut buddy = Buddy::new(Pfn(0), frames, &BuddyConfig { max_order }).map_err(error("frame_allocator"))?;
            buddy.reserve_range(metadata).map_err(error("frame_allocator"))?;
            if config.age.is_some() {
                let what = "only the allocator of kind `linux` can be aged";
                return Err(EngineError::config(format!("system.layers.{}.age", config.layer), what));
            }
            Ok((Box::new(buddy), None))
        }
        FrameAllocatorConfig::Linux(linux) => {
            // Blocks above Linux's largest order represent pages that were reserved at boot, or that Linux assembles
            // (`alloc_contig_range`).
            let max_order = linux.max_order.max(config.largest_block);
            let linux = PageAllocatorConfig { max_order, ..linux.clone() };
            let mut pages = PageAllocator::new(Pfn(0), frames, cpus, &linux).map_err(error("frame_allocator"))?;
            pages.reserve_range(metadata).map_err(error("frame_allocator"))?;
            let aged = config.age.map(|age| pages.age(age)).transpose().map_err(error("age"))?;
            Ok((Box::new(pages), aged))
        }
    }
}
