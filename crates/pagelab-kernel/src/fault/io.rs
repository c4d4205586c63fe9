//! What a fault's requests to devices cost beside the device, in kernels whose configuration says so.
//!
//! Models: the request goes through block layer and driver up to the doorbell; the task sleeps, and the CPU goes over
//! to another or to nothing; the device's interrupt is handled, the request completed, and the task woken, which runs
//! again. A kernel that polls keeps the CPU until the answer is there, and has neither interrupt nor wake-up.
//! Source: Linux block/blk-mq.c (`blk_mq_submit_bio`, `blk_mq_complete_request`), drivers/nvme/host/pci.c
//! (`nvme_queue_rq`, `nvme_irq`, `nvme_poll`), mm/filemap.c (`folio_wait_bit_common`, `folio_end_read`).
//! Parameters: `kernel.block_io`. What the stages touch: [`requests`](crate::layer::requests).
//! Deviations: the CPU that asked handles the interrupt, as part of the task that waits. One interrupt tells of all
//! that a step asked for. A request that is made again costs the device's time and the step's own cycles anew, not
//! these stages. kpted pays none of them for what it writes at a cgroup's limit. The lines of its own that the kernel
//! touches are the same for all CPUs and requests, and are read only; kernel threads and msync touch none.

use super::{Fault, FaultState};
use crate::config::{BlockIoConfig, CompletionBy, StageCost};
use crate::effects::{DmaWrite, Effects};
use crate::fault::stage::Stage;
use crate::fault::work::Work;
use crate::layer::requests::Requested;
use crate::layer::{CpuLine, Layer};
use crate::os::Os;
use pagelab_base::addr::LINE_BYTES;
use pagelab_base::step::{RefKind, Step};

/// How far requests have come that a step is to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// There are none, or they cost nothing beside the device.
    #[default]
    Plain,
    /// They are to be made.
    Submit(Requested),
    /// The device is at work.
    Device(Requested),
    Completion(Requested),
    Wakeup,
}

impl Phase {
    /// The stage that the step under way is counted for, if it is one of these alone.
    pub fn stage(self) -> Option<Stage> {
        match self {
            Self::Plain | Self::Device(_) => None,
            Self::Submit(_) => Some(Stage::Submit),
            Self::Completion(_) => Some(Stage::Completion),
            Self::Wakeup => Some(Stage::Wakeup),
        }
    }
}

/// What a kernel does while the device is at work.
pub fn plan_wait(costs: &BlockIoConfig, step: &mut Step) {
    match costs.completion_by {
        CompletionBy::Interrupt => {
            step.switch = costs.switch.cost();
            step.preset.instructions += step.switch.instructions;
        }
        CompletionBy::Polling => step.stalls = true,
    }
}

/// What it does per request, so many times, and once.
fn plan_stage(each: StageCost, many: u32, once: StageCost, step: &mut Step) {
    step.preset += u64::from(many) * each.cost() + once.cost();
}

/// What a kernel thread does that asks so often, its going to sleep included.
pub fn plan_submit(costs: &BlockIoConfig, requests: u32, step: &mut Step) {
    let sleep = if costs.completion_by == CompletionBy::Interrupt { costs.switch } else { StageCost::NONE };
    plan_stage(costs.submit, requests, sleep, step);
}

/// What it does once the device has answered, up to the wake-up.
pub fn plan_completion(costs: &BlockIoConfig, requests: u32, step: &mut Step) {
    let once = if costs.completion_by == CompletionBy::Interrupt { costs.interrupt } else { StageCost::NONE };
    plan_stage(costs.completion, requests, once, step);
}

/// Lines of the kernel's own that are touched in one of the parts that [`BlockIoConfig::line_ends`] tells apart.
fn plan_lines(costs: &BlockIoConfig, layer: &Layer, part: usize, step: &mut Step) {
    let ends = costs.line_ends();
    let (from, to) = (if part == 0 { 0 } else { ends[part - 1] }, ends[part]);
    if from < to {
        step.kernel(RefKind::Touch { bytes: u64::from(to - from) * LINE_BYTES }, layer.request_memory().line(from));
    }
}

impl Fault {
    /// Begins the requests to devices that the state which was just entered needs.
    pub(super) fn begin_io(&mut self, os: &mut Os) {
        let requests = match &self.progress.state {
            FaultState::Read { pages } => self.reads(&os.layers[self.request.space.layer], pages).len() as u32,
            FaultState::WriteBack { scan } => scan.io.len(),
            FaultState::Zeroing => u32::from(self.progress.work == Work::SwapIn),
            _ => 0,
        };
        self.progress.phase = Phase::Plain;
        if requests > 0 && os.costs.block_io.is_some() {
            self.progress.phase = Phase::Submit(os.layers[self.request.space.layer].begin_requests(requests));
        }
    }

    /// The references and cycles of a step that is of the requests alone; false if it is another.
    #[inline]
    pub(super) fn plan_io(&self, os: &Os, layer: &Layer, step: &mut Step) -> bool {
        self.progress.phase != Phase::Plain && self.plan_phase(os, layer, step)
    }

    fn plan_phase(&self, os: &Os, layer: &Layer, step: &mut Step) -> bool {
        let Some(costs) = &os.costs.block_io else { return false };
        match self.progress.phase {
            Phase::Plain => return false,
            Phase::Device(_) => {
                plan_wait(costs, step);
                return false;
            }
            Phase::Submit(requests) => {
                plan_stage(costs.submit, requests.many, StageCost::NONE, step);
                layer.request_memory().submissions(requests).for_each(|entry| step.kernel(RefKind::Write, entry));
                plan_lines(costs, layer, 0, step);
                step.kernel(RefKind::Write, layer.data.cpu_line(self.request.cpu, CpuLine::Requests));
            }
            Phase::Completion(requests) => {
                plan_completion(costs, requests.many, step);
                layer
                    .request_memory()
                    .completions(requests)
                    .into_iter()
                    .for_each(|line| step.kernel(RefKind::Read, line));
                plan_lines(costs, layer, 1, step);
                step.kernel(RefKind::Write, layer.data.cpu_line(self.request.cpu, CpuLine::Requests));
            }
            Phase::Wakeup => {
                step.preset += costs.wakeup.cost();
                plan_lines(costs, layer, 2, step);
                step.kernel(RefKind::Read, layer.data.cpu_line(self.request.cpu, CpuLine::Stack));
            }
        }
        true
    }

    /// Carries such a step out; false if the state's own step is to be carried out.
    #[inline]
    pub(super) fn commit_io(&mut self, os: &mut Os, effects: &mut Effects) -> bool {
        self.progress.phase != Phase::Plain && self.end_phase(os, effects)
    }

    fn end_phase(&mut self, os: &mut Os, effects: &mut Effects) -> bool {
        let sleeps = os.costs.block_io.is_some_and(|costs| costs.completion_by == CompletionBy::Interrupt);
        self.progress.phase = match self.progress.phase {
            Phase::Plain => return false,
            Phase::Submit(requests) => Phase::Device(requests),
            Phase::Device(requests) => {
                let id = self.request.space.layer;
                let lines = os.layers[id].request_memory().completions(requests).into_iter();
                effects.dma.extend(lines.map(|addr| DmaWrite { layer: id, addr, lines: 1 }));
                Phase::Completion(requests)
            }
            Phase::Completion(_) if sleeps => Phase::Wakeup,
            Phase::Completion(_) | Phase::Wakeup => Phase::Plain,
        };
        self.progress.phase != Phase::Plain
    }
}
