//! What the accesses that a kernel made, as the trace says, cost beside the program's own.

use crate::machine::simulation::Simulation;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CpuId;
use pagelab_hardware::core_model::clock::Class;
use pagelab_translate::counters::{TLB_DATA, TlbCounters};

/// What they take of a CPU's clock; a fault handler on the way is of other classes.
const CLASSES: [Class; 3] = [Class::Base, Class::DataStall, Class::Translation];

/// What had been counted before some of them.
pub(super) struct Mark {
    instructions: u64,
    cycles: [Cycles; CLASSES.len()],
    tlb_misses: [u64; 2],
}

fn tlb_misses(tlb: &TlbCounters) -> [u64; 2] {
    [tlb.l1.misses[TLB_DATA], tlb.l2.misses[TLB_DATA]]
}

impl Simulation {
    pub(super) fn mark(&self, cpu: CpuId) -> Mark {
        let of = &self.scheduler.cpus[cpu];
        Mark {
            instructions: of.clock.instructions(),
            cycles: CLASSES.map(|class| of.clock.spent(class)),
            tlb_misses: tlb_misses(&self.hw.units[of.core].tlb),
        }
    }

    /// Counts what has been counted since a mark as a kernel's.
    pub(super) fn count_by_kernel(&mut self, cpu: CpuId, since: &Mark) {
        let Mark { instructions, cycles, tlb_misses } = self.mark(cpu);
        let of = &mut self.scheduler.cpus[cpu].counters.by_kernel;
        of.instructions += instructions - since.instructions;
        for (sum, (now, before)) in of.cycles.iter_mut().zip(cycles.into_iter().zip(since.cycles)) {
            *sum += now - before;
        }
        for (sum, (now, before)) in of.tlb_misses.iter_mut().zip(tlb_misses.into_iter().zip(since.tlb_misses)) {
            *sum += now - before;
        }
    }
}
