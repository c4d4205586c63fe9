//! The memory balloon: gives memory of a guest back to its host.
//!
//! Models: a driver in the guest allocates pages that nobody uses then, up to 256 at a time, and tells the host their
//! numbers, for which the guest exits. The host discards what it has mapped for them, by a call for each page, and
//! flushes the guest's translations. When the guest's memory is too short for another page, the driver wakes kswapd
//! and tries again later. With `deflate_on_oom`, a guest whose page fault finds no memory, even after reclaim, takes
//! 256 pages back before it gives up: the fault's handler exits to tell the host their numbers, frees the pages and
//! allocates again. A balloon that has had its size is not inflated again.
//! Source: Waldspurger, OSDI 2002, 3.2; Linux drivers/virtio/virtio_balloon.c (`fill_balloon`, `leak_balloon`,
//! `tell_host`, `virtio_balloon_oom_notify`, `VIRTIO_BALLOON_ARRAY_PFNS_MAX`, `VIRTIO_BALLOON_OOM_NR_PAGES`),
//! mm/oom_kill.c (`out_of_memory`); QEMU hw/virtio/virtio-balloon.c.
//! Parameters: `kernel.threads.balloon` (`bytes`, `start_cycles`, `retry_cycles`, `page_cycles`, `deflate_on_oom`).
//! Stats: `balloon.*`.
//! Deviations: the host inflates the balloon once and never lowers its size. The host's work for a page is a number of
//! cycles. The array of page numbers is not written, and pages in the balloon are not moved by compaction. Calls such
//! as fork, and parts of faults that allocate without a step of their own, take pages back at no cost.

use super::{Counter, Need, Thread, discard};
use crate::context::KernelContext;
use crate::effects::Effects;
use crate::frames::frame_alloc::FramePurpose;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::os::Os;
use crate::reclaim::ReclaimMarks;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, Pfn, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{LayerId, SpaceId};
use pagelab_base::step::{BlockKey, Next, RefKind, Step};
use pagelab_trace::quantity::Bytes;
use parameters::Parameters;

/// Its configuration. This module is below the kernels and imports nothing from them.
pub mod parameters {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::threads::config::ThreadParameters;
    use pagelab_base::addr::FRAME_BYTES;
    use pagelab_base::error::EngineError;
    use pagelab_trace::quantity::Bytes;

    /// Parameters of the balloons of guests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct Parameters {
        /// Memory that each guest is to give back.
        pub bytes: Bytes,
        /// Cycles from the start to the inflation.
        pub start_cycles: u64,
        /// Cycles until the driver tries again when the guest's memory is short. Linux: 200 ms.
        pub retry_cycles: u64,
        /// Cycles of the host's work for a page, besides the exit and the flush.
        pub page_cycles: u32,
        /// Whether a guest without memory takes pages back from the balloon (`VIRTIO_BALLOON_F_DEFLATE_ON_OOM`).
        #[serde(default)]
        pub deflate_on_oom: bool,
    }

    impl ThreadParameters for Parameters {
        fn validate(&self, key: &str) -> Result<(), EngineError> {
            if self.bytes.0 == 0 || !self.bytes.0.is_multiple_of(FRAME_BYTES) {
                let what = format!("{} is not possible; allowed are multiples of 4096 from 4096 on", self.bytes);
                return Err(EngineError::config(format!("{key}.bytes"), what));
            }
            for (name, cycles) in [("start_cycles", self.start_cycles), ("retry_cycles", self.retry_cycles)] {
                if cycles == 0 {
                    let what = "0 is not possible; allowed is 1 and more";
                    return Err(EngineError::config(format!("{key}.{name}"), what));
                }
            }
            Ok(())
        }

        fn samples() -> Vec<Self> {
            let small = Self {
                bytes: Bytes(1 << 20),
                start_cycles: 20_000,
                retry_cycles: 50_000,
                page_cycles: 1000,
                deflate_on_oom: false,
            };
            let bytes = Bytes(4 << 20);
            let large = Self { bytes, start_cycles: 1, retry_cycles: 1_000_000, page_cycles: 0, ..small };
            vec![small, large, Self { deflate_on_oom: true, ..large }]
        }
    }
}

/// Pages whose numbers the driver sends at a time (`VIRTIO_BALLOON_ARRAY_PFNS_MAX`).
const PAGES_PER_EXIT: usize = 256;

/// Counters of a balloon.
#[derive(Clone, Copy, Debug, Default)]
struct BalloonCounts {
    exits: u64,
    freed: u64,
    kept: u64,
    short: u64,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Balloon {
    layer: LayerId,
    host: SpaceId,
    config: Parameters,
    started: bool,
    /// Whether it has had its size.
    complete: bool,
    /// Allocated pages that the host does not know of yet.
    batch: Vec<Pfn>,
    counts: BalloonCounts,
}

impl Balloon {
    /// Number of pages that are still to be added.
    fn missing(&self, os: &Os) -> u64 {
        let size = self.config.bytes.0 >> FRAME_SHIFT;
        if self.complete { 0 } else { size - os.layers[self.layer].mechanisms.balloon.pages() }
    }

    /// Allocates the next pages.
    fn fill(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        let missing = self.missing(os);
        let layer = &mut os.layers[self.layer];
        while self.batch.len() < PAGES_PER_EXIT && (self.batch.len() as u64) < missing {
            // The driver does not use the reserves (`__GFP_NORETRY`).
            let short = layer.memory.free_frames() < ReclaimMarks::for_frames(layer.memory.frame_count).low;
            let mut memory = layer.memory_for(KernelContext::on(task.cpu));
            let frame = if short { None } else { memory.take(0, FramePurpose::UserData) };
            let Some(frame) = frame else {
                self.counts.short += 1;
                effects.wake(self.layer, Need::Memory);
                break;
            };
            self.batch.push(frame);
        }
        if self.batch.is_empty() { Next::Done } else { Next::Continue }
    }

    /// The host discards the pages. Fails with the key to wait for.
    fn tell_host(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Result<(), BlockKey> {
        let page =
            |frame: Pfn| VaRange { start: VirtAddr(frame.addr().0), end: VirtAddr(frame.addr().0 + FRAME_BYTES) };
        if let Some(key) = self.batch.iter().find_map(|&frame| discard::block_key(os, self.host, page(frame))) {
            return Err(key);
        }
        self.counts.exits += 1;
        let page_cycles = self.config.deflate_on_oom.then_some(self.config.page_cycles);
        os.layers[self.layer].mechanisms.balloon.deflation_page_cycles = page_cycles;
        for frame in std::mem::take(&mut self.batch) {
            match discard::discard(os, effects, task.cpu, (self.layer, self.host), page(frame)) {
                Some(freed) => self.counts.freed += freed,
                None => self.counts.kept += 1,
            }
            os.layers[self.layer].mechanisms.balloon.add(frame);
        }
        self.complete = self.missing(os) == 0;
        Ok(())
    }
}

impl Thread for Balloon {
    type Parameters = Parameters;

    fn check(layer: &Layer, parameters: &Parameters, key: &str) -> Result<(), EngineError> {
        let (bytes, memory) = (parameters.bytes, Bytes(layer.memory_bytes()));
        if layer.host.is_some() && bytes.0 > memory.0 {
            let what = format!("{bytes} are more than the {memory} of the guest `{}`", layer.name);
            return Err(EngineError::config(format!("{key}.bytes"), what));
        }
        Ok(())
    }

    fn new_in_layer(id: LayerId, layer: &Layer, parameters: &Parameters) -> Option<Self> {
        let counts = BalloonCounts::default();
        let config = *parameters;
        let (started, complete, batch) = (false, false, Vec::new());
        layer.host.map(|host| Self { layer: id, host, config, started, complete, batch, counts })
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn sleep_cycles(&self) -> Option<Cycles> {
        let cycles = if self.started { self.config.retry_cycles } else { self.config.start_cycles };
        (!self.complete).then(|| cycles.into())
    }

    fn begin(&mut self) {
        self.started = true;
    }

    fn plan(&self, os: &Os, step: &mut Step) {
        if !self.batch.is_empty() {
            step.cycles += Cycles::from(os.costs.vm_exit_cycles);
            step.cycles += Cycles::from(u64::from(self.config.page_cycles) * self.batch.len() as u64);
        }
        self.batch.iter().for_each(|&frame| step.kernel(RefKind::Write, page_metadata(frame)));
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        if self.batch.is_empty() {
            return self.fill(os, effects, task);
        }
        match self.tell_host(os, effects, task) {
            Ok(()) => Next::Continue,
            Err(key) => Next::Block(key),
        }
    }

    fn held_frames(&self) -> u64 {
        self.batch.len() as u64
    }

    fn counters() -> &'static [Counter<Self>] {
        &[
            ("balloon.exits", |thread| thread.counts.exits, "Exits of guests to tell their host of such pages"),
            ("balloon.freed", |thread| thread.counts.freed, "Pages that hosts had mapped for them and freed"),
            (
                "balloon.kept",
                |thread| thread.counts.kept,
                "Pages in balloons that hosts kept, as they lie in a direct segment or there was no frame to split a page",
            ),
            (
                "balloon.short",
                |thread| thread.counts.short,
                "Times that a guest's memory was too short for another page",
            ),
        ]
    }
}
