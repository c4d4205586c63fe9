//! The page faults of programs, one by one: the content of a fault trace of the run.
//!
//! Models: a recorder that traces, at no cost, the exceptions that the programs' own kernels handle. It does not see
//! faults that a host handles for a guest, pages that a call populates, and pages that a fault engine maps. Memory: 64
//! bytes per fault, until the run ends.

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
    /// Cycles from then until the access is retried.
    pub took: Cycles,
    /// Its index among the CPUs in use.
    pub cpu: CpuId,
    /// The space of the program.
    pub space: SpaceId,
    /// The address that was accessed.
    pub va: VirtAddr,
    /// Load, store or fetch.
    pub intent: Intent,
    /// Whether there was a translation, which forbids the access.
    pub present: bool,
    /// The source and its thread.
    pub thread: (usize, ThreadIx),
}

/// The page faults of a run.
#[derive(Clone, Debug, Default)]
pub struct PageFaults {
    /// In the order of their ends.
    ended: Vec<SeenFault>,
}

impl PageFaults {
    /// Adds a fault that has ended.
    pub fn push(&mut self, fault: SeenFault) {
        self.ended.push(fault);
    }

    /// The faults in the order of their start; ties in the order of their CPUs.
    pub fn in_order(mut self) -> Vec<SeenFault> {
        self.ended.sort_unstable_by_key(|fault| (fault.at, fault.cpu.index()));
        self.ended
    }
}
