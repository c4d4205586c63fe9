//! Costs of a fault's requests to devices, besides the device, in kernels whose configuration has them.
//!
//! Models: the request goes through block layer and driver up to the doorbell. The task sleeps, and the CPU switches to
//! another task or to idle. The device's interrupt is handled, the request is completed, and the task is woken and runs
//! again. A kernel that polls keeps the CPU until the answer arrives, and has neither interrupt nor wake-up.
//! Source: Linux block/blk-mq.c (`blk_mq_submit_bio`, `blk_mq_complete_request`), drivers/nvme/host/pci.c
//! (`nvme_queue_rq`, `nvme_irq`, `nvme_poll`), mm/filemap.c (`folio_wait_bit_common`, `folio_end_read`).
//! Parameters: `kernel.block_io`. Memory that the stages touch: [`requests`](crate::layer::requests).
//! Deviations: the requesting CPU handles the interrupt, as part of the waiting task. One interrupt covers all requests
//! of a step. A retried request costs the device's time and the step's own cycles again, but not these stages. kpted
//! pays none of them for pages that it writes at a cgroup's limit. The kernel's own lines are the same for all CPUs and
//! requests, and are only read; kernel threads and msync touch none.

use super::{Fault, FaultState};
use crate::config::{BlockIoConfig, CompletionBy, StageCost};
use crate::effects::{DmaWrite, Effects};
use crate::fault::stage::Stage;
use crate::fault::work::FaultWork;
use crate::layer::requests::Requested;
use crate::layer::{CpuLine, Layer};
use crate::os::Os;
use pagelab_base::addr::LINE_BYTES;
use pagelab_base::step::{RefKind, Step};

/// Progress of the requests that a step makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// There are no requests, or they cost nothing besides the device.
    #[default]
    Plain,
    /// Submit them.
    Submit(Requested),
    /// The device is busy.
    Device(Requested),
    Completion(Requested),
    Wakeup,
}

impl Phase {
    /// The stage of the current step, if the step belongs to the requests alone.
    pub fn stage(self) -> Option<Stage> {
        match self {
            Self::Plain | Self::Device(_) => None,
            Self::Submit(_) => Some(Stage::Submit),
            Self::Completion(_) => Some(Stage::Completion),
            Self::Wakeup => Some(Stage::Wakeup),
        }
    }
}

/// Plans what a kernel does while the device is busy.
pub fn plan_wait(costs: &BlockIoConfig, step: &mut Step) {
    match costs.completion_by {
        CompletionBy::Interrupt => {
            step.switch = costs.switch.cost();
            step.preset.instructions += step.switch.instructions;
        }
        CompletionBy::Polling => step.stalls = true,
    }
}

/// Plans a stage with a cost per request and a cost that occurs once.
fn plan_stage(each: StageCost, many: u32, once: StageCost, step: &mut Step) {
    step.preset += u64::from(many) * each.cost() + once.cost();
}

/// Plans the requests of a kernel thread, including its going to sleep.
pub fn plan_submit(costs: &BlockIoConfig, requests: u32, step: &mut Step) {
    let sleep = if costs.completion_by == CompletionBy::Interrupt { costs.switch } else { StageCost::NONE };
    plan_stage(costs.submit, requests, sleep, step);
}

/// Plans what a kernel thread does after the device has answered, up to the wake-up.
pub fn plan_completion(costs: &BlockIoConfig, requests: u32, step: &mut Step) {
    let once = if costs.completion_by == CompletionBy::Interrupt { costs.interrupt } else { StageCost::NONE };
    plan_stage(costs.completion, requests, once, step);
}

/// Plans the kernel's own lines in one of the parts of [`BlockIoConfig::line_ends`].
fn plan_lines(costs: &BlockIoConfig, layer: &Layer, part: usize, step: &mut Step) {
    let ends = costs.line_ends();
    let (from, to) = (if part == 0 { 0 } else { ends[part - 1] }, ends[part]);
    if from < to {
        step.kernel(RefKind::Touch { bytes: u64::from(to - from) * LINE_BYTES }, layer.request_memory().line(from));
    }
}

impl Fault {
    /// Begins the requests to devices of the state that was just entered.
    pub(super) fn begin_io(&mut self, os: &mut Os) {
        let requests = match &self.progress.state {
            FaultState::Read { pages } => self.reads(&os.layers[self.request.space.layer], pages).len() as u32,
            FaultState::WriteBack { scan } if scan.absent.is_empty() => scan.io.len(),
            FaultState::Zeroing => u32::from(self.progress.work == FaultWork::SwapIn),
            _ => 0,
        };
        self.progress.phase = Phase::Plain;
        if requests > 0 && os.costs.block_io.is_some() {
            self.progress.phase = Phase::Submit(os.layers[self.request.space.layer].begin_requests(requests));
        }
    }

    /// Plans a step that belongs to the requests alone; false if the current step does not.
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

    /// Carries out such a step; false if the state's own step must be carried out.
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
