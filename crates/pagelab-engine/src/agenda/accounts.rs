//! Whose cycles a turn was.

use crate::base::ids::CpuId;
use crate::machine::clock::Class;
use crate::machine::simulation::Simulation;
use crate::programs::account::{SharedCounts, spent};

impl Simulation {
    fn shared_counts(&self) -> SharedCounts {
        let (walks, tops) = (&self.hw.walks.program, self.os.tops());
        let mut counts = SharedCounts { walks: walks.count, walk_cycles: walks.cycles, ..SharedCounts::default() };
        for &top in tops {
            let faults = &self.os.faults[top];
            counts.minor_faults += faults.minor;
            counts.major_faults += faults.major;
        }
        counts
    }

    /// A turn begins: what others counted until now is not its own.
    pub(crate) fn begin_account(&mut self) {
        self.counted = self.shared_counts();
    }

    /// Gives the source that a CPU runs what has been counted since the last look.
    pub(crate) fn settle_account(&mut self, cpu: CpuId) {
        if let Some(input) = self.cpus[cpu].owner {
            self.settle_account_for(cpu, input);
        }
    }

    /// Gives a source what a CPU and the machine have counted since the last look.
    pub(crate) fn settle_account_for(&mut self, cpu: CpuId, input: usize) {
        let now = self.shared_counts();
        let account = &mut self.inputs[input].account;
        account.shared.add_growth(&now, &self.counted);
        self.counted = now;
        let of = &mut self.cpus[cpu];
        let spent = spent(&of.clock);
        for ((cycles, now), before) in account.cycles.iter_mut().zip(spent).zip(of.settled) {
            *cycles += now - before;
        }
        of.settled = spent;
    }

    /// A CPU has waited for a source that was not there, so for nobody.
    pub(crate) fn discard_idle(&mut self, cpu: CpuId) {
        let of = &mut self.cpus[cpu];
        of.settled[Class::Idle as usize] = of.clock.spent(Class::Idle);
    }

    /// A CPU goes over to a source.
    #[inline]
    pub(crate) fn own(&mut self, cpu: CpuId, input: usize) {
        if self.cpus[cpu].owner != Some(input) {
            self.settle_account(cpu);
            self.cpus[cpu].owner = Some(input);
        }
    }

    /// A CPU becomes idle.
    pub(crate) fn disown(&mut self, cpu: CpuId) {
        self.settle_account(cpu);
        self.cpus[cpu].owner = None;
    }
}
