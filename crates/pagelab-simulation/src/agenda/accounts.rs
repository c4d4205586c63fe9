//! Whose cycles, walks and faults a turn was.

use crate::machine::simulation::Simulation;
use crate::programs::account::walk_account;
use pagelab_base::ids::CpuId;
use pagelab_translate::counters::WalkCounters;

impl Simulation {
    /// From here on, walks are counted for the source that a CPU works for.
    #[inline]
    pub(crate) fn begin_account(&mut self, cpu: CpuId) {
        let account = self.scheduler.cpus[cpu].works_for().map_or(WalkCounters::NOBODY, walk_account);
        self.hw.walks.count_for(account);
    }

    /// Charges what has been counted since the last call to the source that a CPU runs.
    #[inline]
    pub(crate) fn charge_account(&mut self, cpu: CpuId) {
        self.charge_faults(cpu);
        let of = &mut self.scheduler.cpus[cpu];
        if let Some(input) = of.owner {
            of.charge_to(&mut self.programs.inputs[input].account.cycles);
        }
    }

    /// Charges what a CPU and the kernels have counted since the last call to a source.
    pub(crate) fn charge_source(&mut self, cpu: CpuId, input: usize) {
        self.programs.charge_faults(Some(input), &self.kernels.os);
        self.scheduler.cpus[cpu].charge_to(&mut self.programs.inputs[input].account.cycles);
    }

    /// Charges what the kernels have counted since the last call to the source that a CPU works for.
    #[inline]
    pub(crate) fn charge_faults(&mut self, cpu: CpuId) {
        self.programs.charge_faults(self.scheduler.cpus[cpu].works_for(), &self.kernels.os);
    }

    /// A CPU starts to work for a source.
    #[inline]
    pub(crate) fn own(&mut self, cpu: CpuId, input: usize) {
        if self.scheduler.cpus[cpu].owner != Some(input) {
            self.charge_account(cpu);
            self.scheduler.cpus[cpu].owner = Some(input);
        }
        self.begin_account(cpu);
    }

    /// A CPU becomes idle.
    pub(crate) fn disown(&mut self, cpu: CpuId) {
        self.charge_account(cpu);
        self.scheduler.cpus[cpu].owner = None;
        self.begin_account(cpu);
    }
}
