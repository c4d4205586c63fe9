//! The memory balloon: gives memory of a guest back to its host.
//!
//! Models: a driver in the guest allocates pages that nobody uses then, up to 256 at a time, and tells the host their
//! numbers, for which the guest exits. The host discards what it has mapped for them, by a call for each page, and
//! flushes the guest's translations. When the guest's memory is too short for another page, the driver wakes kswapd
//! and tries again later. With `deflate_on_oom`, a guest whose page fault finds no memory, even after reclaim, takes
//! 256 pages back before it gives up: the fault's handler exits to tell the host their numbers, frees the pages and
//! allocates again. A balloon that has had its size is not inflated again.
//!
//! With a manager, the balloon's size changes while the guest runs. At each interval, the manager looks at the free
//! memory of host and guest, and chooses how much memory the guest is to have ([`parameters::Manager::target`]). To
//! deflate, the driver takes the youngest pages, up to 256 at a time, tells the host their numbers, and frees them.
//! Source: Waldspurger, OSDI 2002, 3.2; Linux drivers/virtio/virtio_balloon.c (`fill_balloon`, `leak_balloon`,
//! `tell_host`, `virtio_balloon_oom_notify`, `VIRTIO_BALLOON_ARRAY_PFNS_MAX`, `VIRTIO_BALLOON_OOM_NR_PAGES`),
//! mm/oom_kill.c (`out_of_memory`); QEMU hw/virtio/virtio-balloon.c; oVirt MOM
//! doc/balloon.rules, doc/mom-balloon.conf.
//! Parameters: `kernel.threads.balloon` (`bytes`, `start_cycles`, `retry_cycles`, `page_cycles`, `deflate_on_oom`,
//! `manager`).
//! Stats: `balloon.*`.
//! Deviations: without a manager, the host inflates the balloon once and never lowers its size. A decision of the
//! manager takes no time, and it sees memory as it is then; MOM takes the average of ten samples. Each guest has a
//! manager of its own. The host's work for a page is a number of cycles. The array of page numbers is not written, and
//! pages in the balloon are not moved by compaction. Calls such as fork, and parts of faults that allocate without a
//! step of their own, take pages back at no cost.

pub mod parameters;

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
use parameters::{Observed, Parameters};

/// Pages whose numbers the driver sends at a time (`VIRTIO_BALLOON_ARRAY_PFNS_MAX`).
const PAGES_PER_EXIT: usize = 256;

/// Counters of a balloon.
#[derive(Clone, Copy, Debug, Default)]
struct BalloonCounts {
    exits: u64,
    freed: u64,
    kept: u64,
    short: u64,
    shrunk: u64,
    grown: u64,
    returned: u64,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Balloon {
    layer: LayerId,
    host: SpaceId,
    config: Parameters,
    /// How often it has woken up.
    wakes: u64,
    /// Pages that the balloon is to have.
    size: u64,
    /// Whether it has had its size.
    complete: bool,
    /// Whether the manager decides next.
    decides: bool,
    /// Allocated pages that the host does not know of yet.
    batch: Vec<Pfn>,
    /// Pages taken out of the balloon that the host does not know of yet.
    leaving: Vec<Pfn>,
    counts: BalloonCounts,
}

impl Balloon {
    /// Number of pages that are still to be added.
    fn missing(&self, os: &Os) -> u64 {
        if self.complete { 0 } else { self.size.saturating_sub(os.layers[self.layer].mechanisms.balloon.pages()) }
    }

    /// Lets the manager choose the balloon's size.
    fn decide(&mut self, os: &Os) {
        let Some(manager) = self.config.manager else { return };
        let (guest, host) = (&os.layers[self.layer].memory, &os.layers[self.host.layer].memory);
        let observed = Observed {
            host: host.frame_count,
            host_free: host.free_frames(),
            most: guest.frame_count,
            guest: guest.frame_count - os.layers[self.layer].mechanisms.balloon.pages(),
            guest_free: guest.free_frames(),
        };
        if let Some(target) = manager.target(&observed) {
            let counter = if target < observed.guest { &mut self.counts.shrunk } else { &mut self.counts.grown };
            *counter += 1;
            (self.size, self.complete) = (observed.most - target, false);
        }
    }

    /// Goes on towards the size: takes pages out of the balloon, or allocates further ones.
    fn approach(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        if std::mem::take(&mut self.decides) {
            self.decide(os);
        }
        let balloon = &mut os.layers[self.layer].mechanisms.balloon;
        let surplus = if self.complete { 0 } else { balloon.pages().saturating_sub(self.size) };
        if surplus > 0 {
            self.leaving = balloon.take(surplus.min(PAGES_PER_EXIT as u64));
            return Next::Continue;
        }
        self.fill(os, effects, task)
    }

    /// The host knows that these pages have left the balloon: frees them.
    fn free(&mut self, os: &mut Os, task: TaskId) {
        self.counts.exits += 1;
        self.counts.returned += self.leaving.len() as u64;
        let layer = &mut os.layers[self.layer];
        let mut memory = layer.memory_for(KernelContext::on(task.cpu));
        self.leaving.drain(..).for_each(|frame| memory.free(frame, 0));
        self.complete = os.layers[self.layer].mechanisms.balloon.pages() == self.size;
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
        let memory = Bytes(layer.memory_bytes());
        let least = parameters.manager.map_or(Bytes(0), |manager| manager.least_bytes);
        for (name, bytes) in [("bytes", parameters.bytes), ("manager.least_bytes", least)] {
            if layer.host.is_some() && bytes.0 > memory.0 {
                let what = format!("{bytes} are more than the {memory} of the guest `{}`", layer.name);
                return Err(EngineError::config(format!("{key}.{name}"), what));
            }
        }
        Ok(())
    }

    fn new_in_layer(id: LayerId, layer: &Layer, parameters: &Parameters) -> Option<Self> {
        let counts = BalloonCounts::default();
        let config = *parameters;
        let size = config.bytes.0 >> FRAME_SHIFT;
        let (batch, leaving) = (Vec::new(), Vec::new());
        let (wakes, complete, decides) = (0, size == 0, false);
        layer.host.map(|host| Self { layer: id, host, config, wakes, size, complete, decides, batch, leaving, counts })
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn sleep_cycles(&self) -> Option<Cycles> {
        let cycles = if self.wakes > 0 { self.config.retry_cycles } else { self.config.start_cycles };
        (!self.complete || self.config.manager.is_some()).then(|| cycles.into())
    }

    fn begin(&mut self) {
        let per_decision = self.config.manager.map(|manager| manager.interval_cycles / self.config.retry_cycles);
        self.decides = self.wakes > 0 && per_decision.is_some_and(|wakes| self.wakes.is_multiple_of(wakes));
        self.wakes += 1;
    }

    fn plan(&self, os: &Os, step: &mut Step) {
        let told = if self.leaving.is_empty() { &self.batch } else { &self.leaving };
        if !told.is_empty() {
            step.cycles += Cycles::from(os.costs.vm_exit_cycles);
            step.cycles += Cycles::from(u64::from(self.config.page_cycles) * told.len() as u64);
        }
        told.iter().for_each(|&frame| step.kernel(RefKind::Write, page_metadata(frame)));
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        if !self.leaving.is_empty() {
            self.free(os, task);
            return Next::Continue;
        }
        if self.batch.is_empty() {
            return self.approach(os, effects, task);
        }
        match self.tell_host(os, effects, task) {
            Ok(()) => Next::Continue,
            Err(key) => Next::Block(key),
        }
    }

    fn held_frames(&self) -> u64 {
        (self.batch.len() + self.leaving.len()) as u64
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
            (
                "balloon.shrunk",
                |thread| thread.counts.shrunk,
                "Decisions of managers that a guest is to have less memory",
            ),
            (
                "balloon.grown",
                |thread| thread.counts.grown,
                "Decisions of managers that a guest is to have more memory",
            ),
            ("balloon.returned", |thread| thread.counts.returned, "Pages that left balloons by decisions of managers"),
        ]
    }
}
