//! Who the cycles of a CPU were spent for, where sources share CPUs.
//!
//! Counters belong to CPUs or to the whole machine. What they grew by while a source ran is that source's: a CPU's clock is
//! looked at whenever the CPU goes over to another source or becomes idle, the machine's counters at every turn too.

use crate::agenda::simulation::Simulation;
use crate::base::addr::Cycles;
use crate::cpu::clock::{Class, CpuClock};

/// What was counted for a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// By class.
    pub cycles: [Cycles; Class::ALL.len()],
    pub shared: SharedCounts,
}

/// Counters that all CPUs share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounts {
    /// Completed page walks of programs.
    pub walks: u64,
    pub walk_cycles: Cycles,
    /// Pages that fault handlers mapped for programs, as in `fault.minor.count` and `fault.major.count`.
    pub minor_faults: u64,
    pub major_faults: u64,
}

impl Account {
    pub fn add(&mut self, other: &Self) {
        for (cycles, more) in self.cycles.iter_mut().zip(other.cycles) {
            *cycles += more;
        }
        self.shared.add_growth(&other.shared, &SharedCounts::default());
    }
}

impl SharedCounts {
    fn add_growth(&mut self, now: &Self, before: &Self) {
        self.walks += now.walks - before.walks;
        self.walk_cycles += now.walk_cycles - before.walk_cycles;
        self.minor_faults += now.minor_faults - before.minor_faults;
        self.major_faults += now.major_faults - before.major_faults;
    }
}

/// What a clock has spent, by class.
fn spent(clock: &CpuClock) -> [Cycles; Class::ALL.len()] {
    Class::ALL.map(|class| clock.spent(class))
}

impl Simulation {
    fn shared_counts(&self) -> SharedCounts {
        let (walks, tops) = (&self.hw.walks.program, self.os.tops());
        let mut counts = SharedCounts { walks: walks.count, walk_cycles: walks.cycles, ..SharedCounts::default() };
        for &top in tops {
            let faults = &self.os.faults[usize::from(top)];
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
    pub(crate) fn settle_account(&mut self, cpu: usize) {
        if let Some(input) = self.cpus[cpu].owner {
            self.settle_account_for(cpu, input);
        }
    }

    /// Gives a source what a CPU and the machine have counted since the last look.
    pub(crate) fn settle_account_for(&mut self, cpu: usize, input: usize) {
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
    pub(crate) fn discard_idle(&mut self, cpu: usize) {
        let of = &mut self.cpus[cpu];
        of.settled[Class::Idle as usize] = of.clock.spent(Class::Idle);
    }

    /// A CPU goes over to a source.
    #[inline]
    pub(crate) fn own(&mut self, cpu: usize, input: usize) {
        if self.cpus[cpu].owner != Some(input) {
            self.settle_account(cpu);
            self.cpus[cpu].owner = Some(input);
        }
    }

    /// A CPU becomes idle.
    pub(crate) fn disown(&mut self, cpu: usize) {
        self.settle_account(cpu);
        self.cpus[cpu].owner = None;
    }
}
