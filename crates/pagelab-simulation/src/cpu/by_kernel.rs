//! Costs of the accesses that the trace attributes to a kernel, counted besides the program's own.

use crate::machine::cpu::Cpu;
use pagelab_base::cycles::Cycles;
use pagelab_hardware::core_model::clock::Class;
use pagelab_translate::counters::{TLB_DATA, TlbCounters};
use pagelab_translate::hardware::Hardware;

/// The classes of cycles that they spend; a fault handler in between spends others.
const CLASSES: [Class; 3] = [Class::Base, Class::DataStall, Class::Translation];

/// Counts before some of these accesses.
pub(super) struct CountsBefore {
    instructions: u64,
    cycles: [Cycles; CLASSES.len()],
    tlb_misses: [u64; 2],
}

fn tlb_misses(tlb: &TlbCounters) -> [u64; 2] {
    [tlb.l1.misses[TLB_DATA], tlb.l2.misses[TLB_DATA]]
}

impl Cpu {
    /// The counts so far.
    pub(super) fn mark(&self, hw: &Hardware) -> CountsBefore {
        CountsBefore {
            instructions: self.clock.instructions(),
            cycles: CLASSES.map(|class| self.clock.spent(class)),
            tlb_misses: tlb_misses(&hw.units[self.core].tlb),
        }
    }

    /// Attributes the counts since a mark to the kernel.
    pub(super) fn count_by_kernel(&mut self, hw: &Hardware, since: &CountsBefore) {
        let CountsBefore { instructions, cycles, tlb_misses } = self.mark(hw);
        let sums = &mut self.counters.by_kernel;
        sums.instructions += instructions - since.instructions;
        for (sum, (now, before)) in sums.cycles.iter_mut().zip(cycles.into_iter().zip(since.cycles)) {
            *sum += now - before;
        }
        for (sum, (now, before)) in sums.tlb_misses.iter_mut().zip(tlb_misses.into_iter().zip(since.tlb_misses)) {
            *sum += now - before;
        }
    }
}
