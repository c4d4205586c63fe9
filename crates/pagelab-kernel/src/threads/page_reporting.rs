//! Free page reporting: tells a guest's host which of its memory is free.
//!
//! Models: delayed work of a guest's kernel. When a block of at least `order` becomes free, a pass begins
//! `delay_cycles` later. It goes through the lists of free blocks of such orders. Under the zone's lock it isolates up
//! to `capacity` blocks that have not been reported since they were last used, and sends them to the host in one
//! request, for which the guest exits. The host unmaps each block and frees its frames, and the guest puts the blocks
//! back at the ends of their lists. Zones that are short of memory are passed over, and a pass that sends many requests
//! for a list goes on after the delay. Whoever uses such memory again faults in the host.
//! Source: Linux 6.1 mm/page_reporting.c (`page_reporting_process`, `PAGE_REPORTING_DELAY`, `PAGE_REPORTING_CAPACITY`),
//! drivers/virtio/virtio_balloon.c (`virtballoon_free_page_report`); QEMU hw/virtio/virtio-balloon.c
//! (`virtio_balloon_handle_report`); the host's work: Linux mm/memory.c (`zap_pte_range`).
//! Parameters: `kernel.threads.page_reporting` (`order`, `delay_cycles`, `capacity`, `block_cycles`, `page_cycles`).
//! Stats: `page_reporting.*`.
//! Deviations: the virtual machine monitor works on the CPU of the guest's thread, which waits for it. The memory of
//! the scatter list is kept from pass to pass. Of the host's own allocator only the locks of zones and the metadata of
//! freed frames are referenced. The timer itself costs nothing.

use super::{Counter, Need, Thread, discard};
use crate::context::KernelContext;
use crate::effects::Effects;
use crate::frames::frame_alloc::{FramePurpose, ReportPass};
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::os::Os;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{LayerId, SpaceId};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{Next, RefKind, Step};
use pagelab_tables::page_table::WalkList;
use parameters::Parameters;

/// Its configuration. This module is below the kernels and imports nothing from them.
pub mod parameters {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::threads::config::ThreadParameters;
    use pagelab_base::error::{EngineError, between};

    /// Parameters of free page reporting.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct Parameters {
        /// Smallest order of a block that is reported. Linux on x86: 9, that of a pageblock.
        pub order: u32,
        /// Cycles from the first block that becomes free to the pass. Linux: 2 s, here at 2.6 GHz.
        pub delay_cycles: u64,
        /// Most blocks of a request. Linux: 32.
        pub capacity: u32,
        /// The host's cycles for a block, besides its references: a system call. Estimated.
        pub block_cycles: u32,
        /// The host's cycles for each page that it had mapped there. Estimated.
        pub page_cycles: u32,
    }

    impl Default for Parameters {
        fn default() -> Self {
            Self { order: 9, delay_cycles: 5_200_000_000, capacity: 32, block_cycles: 1000, page_cycles: 100 }
        }
    }

    impl ThreadParameters for Parameters {
        fn validate(&self, key: &str) -> Result<(), EngineError> {
            between(&format!("{key}.capacity"), self.capacity, 1, 1024)?;
            if self.delay_cycles == 0 {
                let what = "0 is not possible; allowed is 1 and more";
                return Err(EngineError::config(format!("{key}.delay_cycles"), what));
            }
            Ok(())
        }

        fn samples() -> Vec<Self> {
            let often = Self { order: 3, delay_cycles: 30_000, capacity: 4, ..Self::default() };
            vec![often, Self { order: 9, capacity: 1, delay_cycles: 200_000, block_cycles: 0, page_cycles: 0 }]
        }
    }
}

/// Bytes of an entry of the scatter list (`struct scatterlist`), and of a descriptor of the queue.
const SCATTER_BYTES: u64 = 32;
const DESCRIPTOR_BYTES: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing became free.
    Idle,
    /// A block became free: the timer starts.
    Starting,
    /// The timer runs.
    Scheduled,
    /// Isolate blocks.
    Isolate,
    /// Send them to the host.
    Request,
    /// The host unmaps the block of this number; behind the last one, it answers.
    Host(usize),
    /// Put the blocks back.
    PutBack,
    /// The pass is over.
    End,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default)]
struct ReportCounts {
    passes: u64,
    short: u64,
    exits: u64,
    blocks: u64,
    pages: u64,
    freed: u64,
    kept: u64,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct PageReporting {
    layer: LayerId,
    host: SpaceId,
    config: Parameters,
    state: State,
    pass: Option<ReportPass>,
    /// First frame and number of the frames of the scatter list and the queue, once they are allocated.
    list: Option<(Pfn, u64)>,
    /// Metadata that the last commit touched, and how often it took locks of zones: of the guest or of its host.
    touched: Vec<Pfn>,
    locks: u64,
    counts: ReportCounts,
}

/// The addresses of a block in the host.
fn range((first, order): (Pfn, u32)) -> VaRange {
    let start = first.addr().0;
    VaRange { start: VirtAddr(start), end: VirtAddr(start + (FRAME_BYTES << order)) }
}

impl PageReporting {
    fn batch(&self) -> &[(Pfn, u32)] {
        self.pass.as_ref().map_or(&[], |pass| &pass.batch)
    }

    /// Notes the work of the guest's allocator, which the next step charges.
    fn note_work(&mut self, layer: &Layer) {
        let effects = layer.last_effects();
        self.touched.clone_from(&effects.descriptors);
        self.locks = effects.zone_locks.len() as u64;
    }

    /// Isolates the blocks of the next request; ends the pass if there is none.
    fn isolate(&mut self, os: &mut Os, task: TaskId) -> Next {
        let layer = &mut os.layers[self.layer];
        let reports = &mut layer.memory.frames.reports;
        let first = self.pass.is_none();
        if first {
            (reports.requested, reports.scheduled) = (false, true);
            layer.memory.frames.allocator.track_reports(self.config.order);
            self.pass = Some(ReportPass::new(self.config.capacity as usize));
            self.counts.passes += 1;
        }
        if self.list.is_none() {
            let bytes = u64::from(self.config.capacity) * (SCATTER_BYTES + DESCRIPTOR_BYTES) + LINE_BYTES;
            let order = bytes.div_ceil(FRAME_BYTES).next_power_of_two().ilog2();
            let taken = layer.memory_for(KernelContext::on(task.cpu)).take(order, FramePurpose::KernelObject);
            self.list = taken.map(|first| (first, 1 << order));
        }
        // Without memory for the list, Linux tries again after the delay.
        let pass = self.pass.as_mut().expect("it has begun");
        let more = self.list.is_some() && layer.memory.frames.isolate_unreported(pass);
        self.note_work(&os.layers[self.layer]);
        if more {
            self.state = State::Request;
            return Next::Continue;
        }
        self.state = State::End;
        Next::Continue
    }

    /// Ends the pass, and starts the timer for another one if there is more to report.
    fn end(&mut self, os: &mut Os) -> Next {
        let pass = self.pass.take().expect("it has begun");
        self.counts.short += pass.short;
        let reports = &mut os.layers[self.layer].memory.frames.reports;
        reports.scheduled = pass.goes_on || reports.requested || self.list.is_none();
        self.state = if reports.scheduled { State::Scheduled } else { State::Idle };
        Next::Done
    }

    /// The host discards a block, or waits for a lock.
    fn discard(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId, number: usize) -> Next {
        self.touched.clear();
        let Some(&block) = self.batch().get(number) else {
            (self.state, self.locks) = (State::PutBack, 0);
            return Next::Continue;
        };
        if let Some(key) = discard::block_key(os, self.host, range(block)) {
            self.locks = 0;
            return Next::Block(key);
        }
        let locks = |os: &Os| os.layers[self.host.layer].frame_counters().zone_locks;
        let before = locks(os);
        let freed = discard::discard(os, effects, task.cpu, (self.layer, self.host), range(block));
        let taken = locks(os) - before;
        self.locks = taken;
        match freed {
            Some(pages) => self.counts.freed += pages,
            None => self.counts.kept += 1,
        }
        self.state = State::Host(number + 1);
        Next::Continue
    }

    /// Puts the blocks back.
    fn put_back(&mut self, os: &mut Os) -> Next {
        let pass = self.pass.as_mut().expect("blocks are isolated during a pass");
        self.counts.blocks += pass.batch.len() as u64;
        self.counts.pages += pass.batch.iter().map(|&(_, order)| 1 << order).sum::<u64>();
        os.layers[self.layer].memory.frames.put_back_reported(pass);
        self.note_work(&os.layers[self.layer]);
        self.state = State::Isolate;
        Next::Continue
    }

    /// Plans the request: the lines of the scatter list and of the queue that are written, and the exit.
    fn plan_request(&self, os: &Os, step: &mut Step) {
        let (list, _) = self.list.expect("a request has a list");
        let (entries, capacity) = (self.batch().len() as u64, u64::from(self.config.capacity));
        let mut write = |from: PhysAddr, bytes: u64| {
            let lines = bytes.div_ceil(LINE_BYTES);
            (0..lines).for_each(|line| step.kernel_independent(RefKind::Write, from + line * LINE_BYTES));
        };
        write(list.addr(), entries * SCATTER_BYTES);
        write(list.addr() + capacity * SCATTER_BYTES, entries * DESCRIPTOR_BYTES);
        write(list.addr() + capacity * (SCATTER_BYTES + DESCRIPTOR_BYTES), 1);
        step.cycles += Cycles::from(os.costs.vm_exit_cycles);
    }

    /// Plans the host's unmapping of a block: the upper levels, the lines with entries of its pages, and the metadata
    /// of their frames.
    fn plan_discard(&self, os: &Os, block: (Pfn, u32), step: &mut Step) {
        let range = range(block);
        let layer = &os.layers[self.host.layer];
        let (table, contents) = (&layer.spaces[self.host.index].table, &layer.memory.contents);
        let mut walk = WalkList::new();
        table.walk(contents, range.start, &mut walk);
        walk.refs().iter().for_each(|reference| step.kernel(RefKind::Read, reference.addr));
        let mapped = layer.mapped(self.host.index, range.start, range.end);
        let mut pages = mapped.iter().peekable();
        let (mut va, mut line) = (range.start, None);
        while va < range.end {
            let present = pages.next_if(|page| page.va <= va);
            let size = present.map_or(PageSize::Size4K, |page| page.mapping.size);
            let entry = table.entry(contents, va, size).align_down(LINE_BYTES);
            if present.is_some() {
                step.kernel_independent(RefKind::Write, entry);
            } else if line != Some(entry) {
                step.kernel_independent(RefKind::Read, entry);
            }
            line = Some(entry);
            va = present.map_or(va + FRAME_BYTES, |page| page.va + size.bytes());
        }
        for page in &mapped {
            step.kernel_independent(RefKind::Write, page_metadata(page.mapping.pfn));
        }
        step.cycles += Cycles::from(u64::from(self.config.block_cycles));
        step.cycles += Cycles::from(u64::from(self.config.page_cycles) * mapped.len() as u64);
    }
}

impl Thread for PageReporting {
    type Parameters = Parameters;

    fn check(layer: &Layer, parameters: &Parameters, key: &str) -> Result<(), EngineError> {
        if layer.host.is_none() {
            let what = format!(
                "layer `{}` is not a guest and has no host to report to; choose a system with guests",
                layer.name
            );
            return Err(EngineError::config(key, what));
        }
        let (order, most) = (parameters.order, layer.frame_allocator().max_order());
        if order > most {
            let name = &layer.name;
            let what = format!("{order} is not possible; allowed are 0 to {most}, the largest order of layer `{name}`");
            return Err(EngineError::config(format!("{key}.order"), what));
        }
        Ok(())
    }

    fn new_in_layer(id: LayerId, layer: &Layer, parameters: &Parameters) -> Option<Self> {
        // What is free from the beginning is reported, too (`page_reporting_register`).
        layer.host.map(|host| Self {
            layer: id,
            host,
            config: *parameters,
            state: State::Scheduled,
            pass: None,
            list: None,
            touched: Vec::new(),
            locks: 0,
            counts: ReportCounts::default(),
        })
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn step_layer(&self) -> LayerId {
        if matches!(self.state, State::Host(_)) { self.host.layer } else { self.layer }
    }

    fn sleep_cycles(&self) -> Option<Cycles> {
        (self.state == State::Scheduled).then(|| self.config.delay_cycles.into())
    }

    fn wakes_for(&self, need: Need) -> bool {
        need == Need::Reporting && self.state == State::Idle
    }

    fn begin(&mut self) {
        self.state = if self.state == State::Idle { State::Starting } else { State::Isolate };
    }

    fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[self.step_layer()];
        (0..self.locks).for_each(|_| step.take_lock(LockKind::Zone, layer.data.zone_line()));
        self.touched.iter().for_each(|&frame| step.kernel(RefKind::Write, page_metadata(frame)));
        match self.state {
            State::Idle | State::Starting | State::Scheduled | State::Isolate | State::PutBack | State::End => {}
            State::Request => self.plan_request(os, step),
            State::Host(number) => {
                self.batch().get(number).into_iter().for_each(|&block| self.plan_discard(os, block, step));
            }
        }
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        match self.state {
            State::Idle | State::Scheduled | State::Starting => {
                os.layers[self.layer].memory.frames.reports.scheduled = true;
                self.state = State::Scheduled;
                Next::Done
            }
            State::Isolate => self.isolate(os, task),
            State::Request => {
                (self.state, self.locks) = (State::Host(0), 0);
                self.touched.clear();
                self.counts.exits += 1;
                Next::Continue
            }
            State::Host(number) => self.discard(os, effects, task, number),
            State::PutBack => self.put_back(os),
            State::End => self.end(os),
        }
    }

    fn held_frames(&self) -> u64 {
        let isolated = self.batch().iter().map(|&(_, order)| 1 << order).sum::<u64>();
        isolated + self.list.map_or(0, |(_, frames)| frames)
    }

    fn counters() -> &'static [Counter<Self>] {
        &[
            ("page_reporting.passes", |thread| thread.counts.passes, "Passes over the free blocks of guests"),
            (
                "page_reporting.short",
                |thread| thread.counts.short,
                "Zones that passes left out, as less memory was free than the low watermark and a full request",
            ),
            (
                "page_reporting.exits",
                |thread| thread.counts.exits,
                "Exits of guests to report free blocks to their host",
            ),
            ("page_reporting.blocks", |thread| thread.counts.blocks, "Free blocks that guests reported"),
            ("page_reporting.pages", |thread| thread.counts.pages, "Pages of 4 KiB in these blocks"),
            ("page_reporting.freed", |thread| thread.counts.freed, "Pages that hosts had mapped for them and freed"),
            (
                "page_reporting.kept",
                |thread| thread.counts.kept,
                "Reported blocks that hosts kept, as they lie in a direct segment or there was no frame to split a page",
            ),
        ]
    }
}
