//! Faults whose handlers are recorded: the part of the processor.
//!
//! Models: the access looks up its page in the TLBs and walks without success, which takes the cycles of an aborted
//! walk. The rest is in the trace: the accesses of the recorded kernel, the mapping that it made
//! (`MapFlags::RECORDED`), and the access itself, whose look-ups are the ones that count.
//! Source: Intel SDM volume 3, 4.7 (page-fault exceptions).
//! Parameters: none.
//! Deviations: the delivery of the exception takes no cycles, and the words that it pushes on the kernel's stack are
//! not written. In a hosted layer, pages that the host lacks are mapped when the access is made.

use crate::machine::simulation::Simulation;
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_translate::walker::TranslationRequest;

impl Simulation {
    /// Simulates the processor's part of a recorded fault, see the module's text.
    pub(crate) fn simulate_recorded_fault(&mut self, cpu: CpuId, space: SpaceId, va: VirtAddr, intent: Intent) {
        self.scheduler.cpus[cpu].load_space(&mut self.hw, &mut self.kernels, space);
        let core = self.scheduler.cpus[cpu].core;
        let wanted = TranslationRequest { cpu, core, space, va, pc: 0, intent, origin: Origin::Program };
        let before = self.hw.units[core].tlb;
        let mut cycles = Cycles::ZERO;
        let found = self.hw.translate(&mut self.kernels.os.layers, &wanted, &mut cycles);
        self.hw.units[core].tlb.move_retries(&before);
        // The walk that finds nothing has no guess to go on with; one that finds something is amiss.
        self.hw.guessed = None;
        let cpu = &mut self.scheduler.cpus[cpu];
        cpu.clock.wait_for_translation(self.hw.translating(cycles, None, false));
        cpu.filter.forget_data();
        self.kernels.os.mapping.faults_recorded += 1;
        self.kernels.os.mapping.faults_recorded_amiss += u64::from(found.is_ok());
    }
}
