//! The clock of a CPU: where each of its cycles went.

use crate::base::cycles::Cycles;

/// What a CPU's cycles are spent on. The classes partition its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Class {
    /// Retiring instructions of the program.
    Base,
    /// The program waiting for its data.
    DataStall,
    /// The program waiting for address translation: second-level TLBs and page walks.
    Translation,
    /// Page-fault handlers, their own data and translation included.
    Fault,
    /// Other kernel work: mapping calls, TLB shootdowns, context switches.
    Kernel,
    /// Waiting for another CPU's handler of the same page.
    LockWait,
    /// Waiting for other threads of the process, where the recorded order demands it.
    Blocked,
    /// Waiting for a device: swap, storage.
    Io,
    /// Work that others made this CPU do: interrupts for TLB shootdowns.
    Stolen,
    /// Nothing to run.
    Idle,
}

impl Class {
    pub const ALL: [Self; 10] = [
        Self::Base,
        Self::DataStall,
        Self::Translation,
        Self::Fault,
        Self::Kernel,
        Self::LockWait,
        Self::Blocked,
        Self::Io,
        Self::Stolen,
        Self::Idle,
    ];
}

/// Cycles an instruction are kept in units of 1/256.
const CPI_SHIFT: u32 = 8;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct CpuClock {
    instructions: u64,
    cpi: u64,
    /// By class; `Base` stays 0 here and is derived from the instructions.
    spent: [Cycles; Class::ALL.len()],
    /// Sum of `spent`.
    beyond_base: Cycles,
}

impl CpuClock {
    pub fn new(cycles_per_instruction: f64) -> Self {
        let cpi = (cycles_per_instruction * f64::from(1 << CPI_SHIFT)).round() as u64;
        Self { instructions: 0, cpi, spent: [Cycles::ZERO; Class::ALL.len()], beyond_base: Cycles::ZERO }
    }

    #[inline]
    pub fn now(&self) -> Cycles {
        self.base() + self.beyond_base
    }

    /// What [`Self::now`] will be once `instructions` more have retired.
    #[inline]
    pub fn now_after(&self, instructions: u64) -> Cycles {
        self.base_of(self.instructions + instructions) + self.beyond_base
    }

    #[inline]
    fn base(&self) -> Cycles {
        self.base_of(self.instructions)
    }

    #[inline]
    fn base_of(&self, instructions: u64) -> Cycles {
        Cycles((instructions * self.cpi) >> CPI_SHIFT)
    }

    /// The program retired instructions.
    #[inline]
    pub fn retire(&mut self, instructions: u64) {
        self.instructions += instructions;
    }

    #[inline]
    pub fn spend(&mut self, class: Class, cycles: Cycles) {
        debug_assert_ne!(class, Class::Base);
        self.spent[class as usize] += cycles;
        self.beyond_base += cycles;
    }

    /// Waits until `time`, if that is ahead.
    pub fn wait_until(&mut self, class: Class, time: Cycles) {
        self.spend(class, time.saturating_sub(self.now()));
    }

    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    pub fn spent(&self, class: Class) -> Cycles {
        if class == Class::Base { self.base() } else { self.spent[class as usize] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_sum_to_the_clock() {
        let mut clock = CpuClock::new(0.75);
        clock.retire(1000);
        for (n, &class) in Class::ALL.iter().enumerate().skip(1) {
            clock.spend(class, Cycles(n as u64));
        }
        clock.wait_until(Class::Idle, Cycles(500));
        clock.wait_until(Class::Idle, Cycles(1000));
        assert_eq!(clock.spent(Class::Base), Cycles(750));
        assert_eq!(clock.now(), Cycles(1000));
        assert_eq!(Class::ALL.iter().map(|&c| clock.spent(c)).sum::<Cycles>(), clock.now());
    }
}
