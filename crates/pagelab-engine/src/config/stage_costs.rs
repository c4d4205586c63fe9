//! What the stages of a page fault cost beyond their references.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::cycles::Cycles;

/// Costs of the stages of a page fault.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageCosts {
    /// Exception, register save, swapgs, page-fault handler prologue.
    pub entry: StageCost,
    /// Lock and VMA look-up.
    pub lookup: StageCost,
    /// Software walk of the page table, building the tables that are missing.
    pub walk: StageCost,
    /// Frame allocation.
    pub allocation: StageCost,
    /// Zeroing of the frame or copying of a page (the bulk accesses come on top, through the caches).
    pub zeroing: StageCost,
    /// Charge to the memory cgroup.
    pub charge: StageCost,
    /// Reverse map.
    pub rmap: StageCost,
    /// Queueing for the LRU lists.
    pub lru: StageCost,
    /// Page-table lock, PTE and counters.
    pub install: StageCost,
    /// Unlock and return from the exception.
    #[serde(rename = "return")]
    pub exit: StageCost,
}

impl StageCosts {
    /// What a kernel does for a page beyond mapping it: charge, reverse map and LRU lists.
    pub fn accounting(&self) -> Cycles {
        let stages = [self.charge, self.rmap, self.lru];
        stages.into_iter().map(|stage| Cycles::from(stage.cycles)).sum()
    }

    /// In the order of [`Stage`](crate::kernel::fault::stage::Stage).
    pub fn all(&self) -> [StageCost; 10] {
        let Self { entry, lookup, walk, allocation, zeroing, charge, rmap, lru, install, exit } = *self;
        [entry, lookup, walk, allocation, zeroing, charge, rmap, lru, install, exit]
    }
}

/// What a stage costs beyond its memory references.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageCost {
    pub instructions: u32,
    /// Cycles, instructions included.
    pub cycles: u32,
}

impl StageCost {
    pub const NONE: Self = Self { instructions: 0, cycles: 0 };
}
