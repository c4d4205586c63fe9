//! The page faults of programs, one by one: what a fault trace of the run holds.
//!
//! Models: what a recorder sees that listens to the exceptions of the programs' own kernels, at no cost. Not among them
//! are faults that a host handles on behalf of a guest, pages that a call populates, and those that a fault engine
//! maps. Memory: 64 bytes per fault, until the run ends.

use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::page_fault::Intent;
use pagelab_trace::ThreadIx;

/// A page fault that a kernel has handled for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenFault {
    /// When the exception was raised.
    pub at: Cycles,
    /// From then until the access is made again.
    pub took: Cycles,
    /// Among the CPUs in use.
    pub cpu: CpuId,
    /// The space of the program.
    pub space: SpaceId,
    /// The address that was accessed.
    pub va: VirtAddr,
    /// What the access was.
    pub intent: Intent,
    /// There was a translation, which forbids the access.
    pub present: bool,
    /// The source and its thread.
    pub thread: (usize, ThreadIx),
}

/// Those of a run, if somebody wants them.
#[derive(Clone, Debug, Default)]
pub struct PageFaults {
    /// In the order of their ends.
    ended: Vec<SeenFault>,
}

impl PageFaults {
    /// One that has ended.
    pub fn push(&mut self, fault: SeenFault) {
        self.ended.push(fault);
    }

    /// In the order of their beginnings; those of one time in the order of their CPUs.
    pub fn in_order(mut self) -> Vec<SeenFault> {
        self.ended.sort_unstable_by_key(|fault| (fault.at, fault.cpu.index()));
        self.ended
    }
}
