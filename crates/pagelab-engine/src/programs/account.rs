//! Who the cycles of a CPU were spent for, where sources share CPUs.
//!
//! Counters belong to CPUs or to the whole machine. What they grew by while a source ran is that source's: a CPU's clock is
//! looked at whenever the CPU goes over to another source or becomes idle, the machine's counters at every turn too.

use crate::base::cycles::Cycles;
use crate::machine::clock::{Class, CpuClock};

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
    pub(crate) fn add_growth(&mut self, now: &Self, before: &Self) {
        self.walks += now.walks - before.walks;
        self.walk_cycles += now.walk_cycles - before.walk_cycles;
        self.minor_faults += now.minor_faults - before.minor_faults;
        self.major_faults += now.major_faults - before.major_faults;
    }
}

/// What a clock has spent, by class.
pub(crate) fn spent(clock: &CpuClock) -> [Cycles; Class::ALL.len()] {
    Class::ALL.map(|class| clock.spent(class))
}
