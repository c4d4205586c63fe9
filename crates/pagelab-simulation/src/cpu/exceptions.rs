//! What happens when a walk finds no translation: a handler begins, and observers are notified.

use crate::machine::activity::Activity;
use crate::machine::cpu::Cpu;
use crate::machine::simulation::{Simulation, StackOutcome};
use crate::machine::task::CallsAhead;
use pagelab_base::addr::{FRAME_SHIFT, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_base::page_fault::PageFault;
use pagelab_kernel::fault::{Ahead, Fault, FaultOutcome};
use pagelab_kernel::fault_engine::mfoe::ahead::AheadCall;
use pagelab_kernel::fault_engine::work::{EngineVerdict, EngineWork};
use pagelab_run::observe::page_faults::SeenFault;
use pagelab_trace::{Access, AccessKind};

impl Simulation {
    /// Starts the fault engine of the page's layer, or the kernel's handler.
    pub fn raise(&mut self, cpu: CpuId, fault: &PageFault) {
        if self.kernels.is_backed(fault) {
            let present = Fault::populate(fault.space, fault.va, Ahead::Policy, cpu);
            let this_cpu = &mut self.scheduler.cpus[cpu];
            this_cpu.begin(Activity::Fault(present));
            return this_cpu.task.stack.last_mut().expect("it has begun").is_free = true;
        }
        match EngineWork::begin(fault, cpu, &self.kernels.os, self.scheduler.cpus[cpu].clock.now()) {
            Some(work) => self.scheduler.cpus[cpu].begin(Activity::Engine(work)),
            None => self.begin_handler(cpu, fault),
        }
    }

    /// Makes the program's calls of a fault engine ahead of an access, one per page that would fault. Returns whether
    /// the CPU must do something else before the access.
    pub(super) fn call_ahead<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        access: &Access,
        limit: Cycles,
    ) -> Result<bool, EngineError> {
        let first = access.vaddr >> FRAME_SHIFT;
        let last = access.vaddr.saturating_add(u64::from(access.size_bytes) - 1) >> FRAME_SHIFT;
        let Cpu { task, .. } = &mut self.scheduler.cpus[cpu];
        if task.ahead.vaddr != access.vaddr {
            task.ahead = CallsAhead { vaddr: access.vaddr, pages: 0 };
        }
        if access.maker.is_kernel() || access.kind == AccessKind::Fetch || task.outcome.is_some() {
            return Ok(false);
        }
        while self.scheduler.cpus[cpu].task.ahead.pages <= last - first {
            let this_cpu = &mut self.scheduler.cpus[cpu];
            let va = VirtAddr(access.vaddr.max((first + this_cpu.task.ahead.pages) << FRAME_SHIFT));
            this_cpu.task.ahead.pages += 1;
            let space = this_cpu.running();
            if !AheadCall::is_due(&self.kernels.os, space, va) {
                continue;
            }
            // The kernel's code takes over, and later the program's last line may be gone.
            this_cpu.filter.forget_data();
            this_cpu.filter.forget_code();
            this_cpu.clock.drain();
            this_cpu.begin(Activity::Ahead(AheadCall::new(space, va, cpu)));
            if self.run_stack::<MANY>(cpu, limit)? == StackOutcome::Yields {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the work of a fault engine: inserts the page that it has mapped in the TLB, or starts the kernel's handler.
    pub(super) fn end_engine_work(&mut self, cpu: CpuId, work: &EngineWork) {
        let this_cpu = &mut self.scheduler.cpus[cpu];
        match work.end(&mut self.kernels.os, this_cpu.clock.now()) {
            EngineVerdict::Kernel => self.begin_handler(cpu, work.fault()),
            EngineVerdict::Mapped(mapping) if this_cpu.task.stack.is_empty() => {
                this_cpu.task.outcome = Some(FaultOutcome::Retry);
                self.hw.fill(&self.kernels.os.layers, this_cpu.core, work.fault(), &mapping);
                self.profile_miss_end(cpu, false);
            }
            EngineVerdict::Mapped(_) => {}
        }
    }

    fn begin_handler(&mut self, cpu: CpuId, fault: &PageFault) {
        if self.observers.page_faults.is_some() {
            self.note_begin(cpu, fault);
        }
        self.scheduler.cpus[cpu].begin(Activity::Fault(Fault::new(fault, cpu)));
    }

    /// Records the start of a program's fault in its own kernel.
    fn note_begin(&mut self, cpu: CpuId, fault: &PageFault) {
        let &PageFault { space, va, intent, .. } = fault;
        let this_cpu = &mut self.scheduler.cpus[cpu];
        if !this_cpu.task.stack.is_empty() || !self.kernels.os.tops().contains(&space.layer) {
            return;
        }
        let at = this_cpu.clock.now();
        let thread = this_cpu.thread.expect("a thread made the access");
        let present = !self.kernels.os.layers[space.layer].is_unmapped(space.index, va);
        this_cpu.task.fault = Some(SeenFault { at, took: Cycles::ZERO, cpu, space, va, intent, present, thread });
    }

    /// Records the end of a program's fault.
    pub(super) fn note_end(&mut self, cpu: CpuId) {
        let cpu = &mut self.scheduler.cpus[cpu];
        if let (Some(noted), Some(fault)) = (&mut self.observers.page_faults, cpu.task.fault.take()) {
            noted.push(SeenFault { took: cpu.clock.now() - fault.at, ..fault });
        }
    }
}
