//! Accounts of sources: on whose behalf cycles, walks and faults were spent.

use crate::machine::cpu::Cpu;
use crate::machine::simulation::Simulation;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CpuId;
use pagelab_hardware::core_model::clock::Class;
use pagelab_run::programs::account::walk_account;
use pagelab_translate::counters::WalkCounters;

impl Simulation {
    /// Counts the following walks for the source that a CPU works for.
    #[inline]
    pub(crate) fn begin_account(&mut self, cpu: CpuId) {
        let account = self.scheduler.cpus[cpu].works_for().map_or(WalkCounters::NO_SOURCE, walk_account);
        self.hw.walks.count_for(account);
    }

    /// Charges what was counted since the last call to the source that a CPU runs.
    #[inline]
    pub(crate) fn charge_account(&mut self, cpu: CpuId) {
        self.charge_faults(cpu);
        let cpu = &mut self.scheduler.cpus[cpu];
        match cpu.owner {
            Some(input) => cpu.charge_to(&mut self.programs.inputs[input].account.cycles),
            None => cpu.charge_unowned(&mut self.programs.unowned),
        }
    }

    /// Charges what a CPU and the kernels have counted since the last call to one source.
    pub(crate) fn charge_source(&mut self, cpu: CpuId, input: usize) {
        self.programs.charge_faults(Some(input), &self.kernels.os);
        self.scheduler.cpus[cpu].charge_to(&mut self.programs.inputs[input].account.cycles);
    }

    /// Charges the faults counted since the last call to the source that a CPU works for.
    #[inline]
    pub(crate) fn charge_faults(&mut self, cpu: CpuId) {
        self.programs.charge_faults(self.scheduler.cpus[cpu].works_for(), &self.kernels.os);
    }

    /// Makes a CPU work for a source.
    #[inline]
    pub(crate) fn assign_source(&mut self, cpu: CpuId, input: usize) {
        if self.scheduler.cpus[cpu].owner != Some(input) {
            self.charge_account(cpu);
            self.scheduler.cpus[cpu].owner = Some(input);
        }
        self.begin_account(cpu);
    }

    /// Makes a CPU work for no source: it becomes idle.
    pub(crate) fn release_source(&mut self, cpu: CpuId) {
        self.charge_account(cpu);
        self.scheduler.cpus[cpu].owner = None;
        self.begin_account(cpu);
    }
}

impl Cpu {
    /// Charges the cycles since the last call to an account, by class.
    #[inline]
    pub(crate) fn charge_to(&mut self, account: &mut [Cycles; Class::ALL.len()]) {
        for class in Class::ALL {
            let (now, charged) = (self.clock.spent(class), &mut self.charged[class as usize]);
            account[class as usize] += now - *charged;
            *charged = now;
        }
    }

    /// Adds to `unowned` the cycles since the last call in which it worked for no source: its idle cycles, and all
    /// others if it has no owner.
    pub(crate) fn charge_unowned(&mut self, unowned: &mut [Cycles; Class::ALL.len()]) {
        let before = self.charged;
        for class in Class::ALL {
            if self.owner.is_none() || class == Class::Idle {
                self.charged[class as usize] = self.clock.spent(class);
            }
        }
        // The run's cycles are those of the programs' CPUs.
        if !self.is_kernel_only {
            let pairs = self.charged.iter().zip(before);
            unowned.iter_mut().zip(pairs).for_each(|(sum, (&now, before))| *sum += now - before);
        }
    }
}
