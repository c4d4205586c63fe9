//! Costs of the stages of a page fault, beyond their references.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pagelab_base::code_cost::{CodeCost, CodeCycles};
use pagelab_base::error::{EngineError, between};

/// Names of the stages, in the order of [`StageCosts::all`].
const NAMES: [&str; 10] =
    ["entry", "lookup", "walk", "allocation", "zeroing", "charge", "rmap", "lru", "install", "return"];

/// Costs of the stages of a page fault.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageCosts {
    /// Exception, register save, swapgs, page-fault handler prologue.
    pub entry: StageCost,
    /// Lock and VMA look-up.
    pub lookup: StageCost,
    /// Software walk of the page table, including construction of missing tables.
    pub walk: StageCost,
    /// Frame allocation.
    pub allocation: StageCost,
    /// Zeroing of the frame or copying of a page, without the bulk accesses, which go through the caches.
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

/// Most lines of each kind that all stages may touch together.
const MOST_LINES: u32 = 1024;

impl StageCosts {
    /// Refuses impossible values.
    pub fn validate(&self) -> Result<(), EngineError> {
        for (cost, name) in [self.entry, self.lookup, self.walk].into_iter().zip(NAMES) {
            if cost.page_instructions > 0 {
                let what = format!(
                    "{} is not possible, since the number of pages that a fault maps is known only after the walk; allowed is 0 here",
                    cost.page_instructions
                );
                return Err(EngineError::config(format!("kernel.fault.{name}.page_instructions"), what));
            }
        }
        Self::validate_lines(self.all(), "kernel.fault")
    }

    /// Refuses impossible numbers of lines; `part` is the part of the configuration with these stages.
    pub fn validate_lines(costs: [StageCost; 10], part: &str) -> Result<(), EngineError> {
        let mut so_far = StageLines::NONE;
        for (cost, name) in costs.into_iter().zip(NAMES) {
            let StageLines { cpu, space, kernel, again } = cost.lines;
            let key = |kind: &str| format!("{part}.{name}.lines.{kind}");
            if again > so_far.cpu {
                let what = format!("is {again}, but the stages before touch {} lines of the CPU", so_far.cpu);
                return Err(EngineError::config(key("again"), what));
            }
            for (kind, lines, sum) in [
                ("cpu", cpu, &mut so_far.cpu),
                ("space", space, &mut so_far.space),
                ("kernel", kernel, &mut so_far.kernel),
            ] {
                between(&key(kind), lines, 0, MOST_LINES - *sum)?;
                *sum += lines;
            }
        }
        Ok(())
    }

    /// Costs of accounting for a page that is already mapped: charge, reverse map and LRU lists. Its instructions are
    /// not counted.
    pub fn accounting(&self) -> CodeCost {
        (self.charge.cost() + self.rmap.cost() + self.lru.cost()).uncounted()
    }

    /// The cost by number of the [`Stage`](crate::fault::stage::Stage).
    pub(super) fn stage(&self, stage: usize) -> &StageCost {
        match stage {
            0 => &self.entry,
            1 => &self.lookup,
            2 => &self.walk,
            3 => &self.allocation,
            4 => &self.zeroing,
            5 => &self.charge,
            6 => &self.rmap,
            7 => &self.lru,
            8 => &self.install,
            9 => &self.exit,
            _ => unreachable!("the other stages belong to requests to devices"),
        }
    }

    /// The costs in the order of [`Stage`](crate::fault::stage::Stage).
    pub fn all(&self) -> [StageCost; 10] {
        let Self { entry, lookup, walk, allocation, zeroing, charge, rmap, lru, install, exit } = *self;
        [entry, lookup, walk, allocation, zeroing, charge, rmap, lru, install, exit]
    }
}

/// Cost of a stage beyond its memory references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageCost {
    /// Instructions for a fault that maps one page.
    pub instructions: u32,
    /// Cycles, including those of the instructions; or `core`, the default: as many as the machine's core model takes
    /// for the instructions.
    #[serde(default)]
    pub cycles: CodeCycles,
    /// Further cycles of the processor that belong to no instruction, such as delivery of an exception or start of a
    /// string instruction. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hardware_cycles: u32,
    /// Instructions per further page that is mapped: of a folio, or around a page of a file. The core model decides
    /// their cycles.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub page_instructions: u32,
    /// Cache lines that the stage touches in every fault, besides those that the engine simulates. Default none.
    #[serde(default, skip_serializing_if = "StageLines::is_none")]
    pub lines: StageLines,
}

impl StageCost {
    /// A cost of 0: no instructions, no lines.
    pub const NONE: Self = Self {
        instructions: 0,
        cycles: CodeCycles::Core,
        hardware_cycles: 0,
        page_instructions: 0,
        lines: StageLines::NONE,
    };

    /// The cost without lines, for a fault that maps one page.
    pub fn cost(&self) -> CodeCost {
        CodeCost::new(self.instructions, self.cycles) + CodeCost::from_cycles(self.hardware_cycles)
    }

    /// The additional cost of each further page.
    pub fn page_cost(&self) -> CodeCost {
        CodeCost::new(self.page_instructions, CodeCycles::Core)
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Cache lines of the kernel's data, by owner, and by whether the fault has touched them before. The lines of a stage
/// are touched together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StageLines {
    /// Lines of the CPU that are written: its stack, its own variables.
    pub cpu: u32,
    /// Lines of the address space that are read: the mm, the VMA, and what these point to.
    pub space: u32,
    /// Lines of the kernel that are read and that all CPUs share.
    pub kernel: u32,
    /// Lines of the CPU that earlier stages have written.
    pub again: u32,
}

impl StageLines {
    /// No lines.
    pub const NONE: Self = Self { cpu: 0, space: 0, kernel: 0, again: 0 };

    /// Whether no line is touched.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The larger number for each kind.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            space: self.space.max(other.space),
            kernel: self.kernel.max(other.kernel),
            again: self.again.max(other.again),
        }
    }
}
