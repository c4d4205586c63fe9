//! Whose cycles, walks and faults a turn was.

use crate::machine::simulation::Simulation;
use crate::machine::task::TaskSlot;
use crate::programs::account::{Account, spent};
use pagelab_base::ids::CpuId;
use pagelab_hardware::core_model::clock::Class;
use pagelab_translate::counters::WalkCounters;

/// The account of a source among those of walks.
fn walks_of(input: usize) -> usize {
    WalkCounters::NOBODY + 1 + input
}

impl Simulation {
    /// What has been counted for a source.
    pub fn account_of(&self, input: usize) -> Account {
        Account { walks: self.hw.walks.account(walks_of(input)), ..self.inputs[input].account.clone() }
    }

    /// What has been counted for no source: for kernel threads. Cycles are their CPUs'.
    pub fn own_account(&self) -> Account {
        let faults = self.own_faults.clone();
        Account { walks: self.hw.walks.account(WalkCounters::NOBODY), faults, ..Account::default() }
    }

    /// The place of an input is another's from here on.
    pub(crate) fn close_account(&mut self, input: usize) {
        self.hw.walks.close(walks_of(input));
    }

    /// The source that a CPU works for; none if it is idle, or runs a kernel thread.
    fn works_for(&self, cpu: CpuId) -> Option<usize> {
        let of = &self.cpus[cpu];
        of.owner.filter(|_| matches!(of.seat, TaskSlot::Queue(_)))
    }

    /// From here on, walks are made for whoever a CPU works for.
    #[inline]
    pub(crate) fn begin_account(&mut self, cpu: CpuId) {
        let account = self.works_for(cpu).map_or(WalkCounters::NOBODY, walks_of);
        self.hw.walks.count_for(account);
    }

    /// Gives the source that a CPU runs what has been counted since the last look.
    pub(crate) fn charge_account(&mut self, cpu: CpuId) {
        self.charge_faults(cpu);
        if let Some(input) = self.cpus[cpu].owner {
            self.charge_cycles(cpu, input);
        }
    }

    /// Gives a source what a CPU and the kernels have counted since the last look.
    pub(crate) fn charge_source(&mut self, cpu: CpuId, input: usize) {
        self.inputs[input].account.faults.add_since(&self.os, &mut self.counted);
        self.charge_cycles(cpu, input);
    }

    /// Gives what the kernels have counted since the last look to whoever a CPU works for.
    pub(crate) fn charge_faults(&mut self, cpu: CpuId) {
        let faults = match self.works_for(cpu) {
            Some(input) => &mut self.inputs[input].account.faults,
            None => &mut self.own_faults,
        };
        faults.add_since(&self.os, &mut self.counted);
    }

    fn charge_cycles(&mut self, cpu: CpuId, input: usize) {
        let of = &mut self.cpus[cpu];
        let spent = spent(&of.clock);
        let account = &mut self.inputs[input].account;
        for ((cycles, now), before) in account.cycles.iter_mut().zip(spent).zip(of.charged) {
            *cycles += now - before;
        }
        of.charged = spent;
    }

    /// A CPU has waited for a source that was not there, so for nobody.
    pub(crate) fn discard_idle(&mut self, cpu: CpuId) {
        let of = &mut self.cpus[cpu];
        of.charged[Class::Idle as usize] = of.clock.spent(Class::Idle);
    }

    /// A CPU goes over to a source.
    #[inline]
    pub(crate) fn own(&mut self, cpu: CpuId, input: usize) {
        if self.cpus[cpu].owner != Some(input) {
            self.charge_account(cpu);
            self.cpus[cpu].owner = Some(input);
        }
        self.begin_account(cpu);
    }

    /// A CPU becomes idle.
    pub(crate) fn disown(&mut self, cpu: CpuId) {
        self.charge_account(cpu);
        self.cpus[cpu].owner = None;
        self.begin_account(cpu);
    }
}
