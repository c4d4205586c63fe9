//! The fast path with `engine.check`: piece by piece, so that each translation can be compared.
//!
//! Accesses that the filter answers stay together, as the fast path makes them together: if a core's stalls let its
//! turn end among them, all of them belong to the turn.

use crate::cpu::replay::{StopCondition, scan};
use crate::machine::simulation::{Replay, Simulation};
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CpuId;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_trace::{Access, Branches};
use pagelab_translate::walker::TranslationRequest;

impl Simulation {
    /// Makes accesses by `replay` and checks their translations; returns how many.
    #[inline(never)]
    pub(in crate::cpu) fn replay_checked<const MANY: bool>(
        &mut self,
        replay: Replay,
        cpu: CpuId,
        accesses: &[Access],
        branches: &[Branches],
        limit: Cycles,
    ) -> usize {
        let mut at = 0;
        while let Some(access) = accesses.get(at) {
            let this_cpu = &self.scheduler.cpus[cpu];
            let stop = StopCondition { clock: &this_cpu.clock, limit };
            // The filter may answer none of them.
            let together = scan::<MANY, _>(&accesses[at..], &this_cpu.filter, &stop).accesses.max(1);
            let piece = &accesses[at..at + together];
            let made = replay(self, cpu, piece, branches.get(at..).unwrap_or_default(), limit);
            at += made;
            if made > 0 {
                self.check_access(cpu, access);
            }
            if made < together || MANY && self.scheduler.turn_is_over(cpu, limit) {
                break;
            }
        }
        at
    }

    /// Compares the translation of an access that the fast path has just made with the kernels' records.
    fn check_access(&mut self, cpu: CpuId, access: &Access) {
        let (va, write) = (VirtAddr(access.vaddr), access.kind.writes());
        let this_cpu = &self.scheduler.cpus[cpu];
        let wanted = TranslationRequest {
            cpu,
            core: this_cpu.core,
            space: this_cpu.running(),
            va,
            pc: access.pc,
            intent: if write { Intent::Store } else { Intent::Load },
            origin: Origin::Program,
        };
        if let Some(translation) = this_cpu.filter.translation(va, write) {
            self.check(&wanted, translation);
        }
    }
}
