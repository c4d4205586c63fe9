//! Faults that use a ready frame of a fault engine: its software form.
//!
//! Models: with the lock of the page-table page held, the handler takes the frame from the engine's table and writes
//! the PTE. It does not allocate, zero, charge or list: the engine's threads have done so, or will. Without a ready
//! frame it goes the ordinary way.
//! Source: Tirumalasetty et al., "Reducing Minor Page Fault Overheads through Enhanced Page Walker", 4.8.
//! Deviations: the paper does this in a system call before each access; here it is in the fault handler, as the paper
//! proposes.
//!
//! With `in_fault` it works as in pagelab's Linux (`pagelab_linux/kernel/src/rings.c`): the zeroed frame replaces an
//! allocation, whatever the entry says. The fault charges it and adds it to the reverse map, and leaves the LRU lists
//! to the thread. (The thread updates the counters of cgroups and lists together with the page; the fault has paid for
//! its part.) A fault that finds no frame executes no instructions beyond those of its allocation.

use super::work::FaultWork;
use super::{Fault, FaultState};
use crate::config::StageLines;
use crate::fault::stage::Stage;
use crate::layer::{CpuLine, Layer};
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::os::Os;
use pagelab_base::addr::{LINE_BYTES, PhysAddr};
use pagelab_base::code_cost::CodeCost;
use pagelab_base::step::{RefKind, Step};

/// Index of the first of the space's objects that are read.
const OBJECTS: u64 = 1 << 61;

impl Fault {
    pub(super) fn plan_take_ready(&self, layer: &Layer, step: &mut Step) {
        let Some(engine) = &layer.mechanisms.engine else { return };
        if !self.progress.defers {
            engine.plan_take((self.request.cpu, self.target.size), &layer.memory.contents, step);
        }
        let Some(costs) = engine.in_fault() else { return };
        let cost = if self.progress.defers { costs.defer } else { costs.take };
        let again = StageLines { again: cost.again, ..StageLines::NONE };
        layer.plan_stage_lines(Stage::Zeroing as usize, again, self.request.cpu, self.request.space.index, step);
        let (own, space) =
            (layer.data.cpu_line(self.request.cpu, CpuLine::Rings), &layer.spaces[self.request.space.index]);
        (0..cost.cpu).for_each(|n| step.kernel_overlapped(RefKind::Write, own + u64::from(n) * LINE_BYTES));
        (0..cost.space).for_each(|n| step.kernel_overlapped(RefKind::Read, space.object_line(OBJECTS + u64::from(n))));
        if self.progress.defers {
            step.preset += CodeCost::new(cost.instructions, cost.cycles);
            step.kernel_overlapped(RefKind::Write, page_metadata(self.target.frame));
        }
    }

    /// Takes a ready frame, or goes the ordinary way. The lock of the page-table page is held, unless the frame
    /// replaces an allocation.
    pub(super) fn take_ready(&mut self, os: &mut Os, task: TaskId, entry: PhysAddr) -> FaultState {
        if std::mem::take(&mut self.progress.defers) {
            return FaultState::LOCK;
        }
        let zero_page = os.costs.zero_page.0;
        let (space, page, table) = (self.request.space.index, self.target.page, (self.request.cpu, self.target.size));
        let layer = self.layer(os);
        let engine = layer.mechanisms.engine.as_mut().expect("the page's entry is armed for one");
        if let Some(frame) = engine.take(table, space, page, &mut layer.memory.contents) {
            self.target.frame = frame;
            self.progress.defers = engine.in_fault().is_some();
            return if self.progress.defers { FaultState::Charge } else { FaultState::Install { entry } };
        }
        if !self.layer(os).takes_in_faults() {
            os.locks.release(self.table_key(os, entry), task);
        }
        let layer = self.layer(os);
        let vma = layer.spaces[space].vmas.find(self.request.va);
        let vma = vma.expect("mappings do not change during a fault").clone();
        self.progress.work = self.choose_anonymous(layer, &vma, zero_page);
        debug_assert_ne!(self.progress.work, FaultWork::Ready);
        self.after_walk(os)
    }
}
