//! What the stages of a page fault cost beyond their references.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pagelab_base::code_cost::{CodeCost, CodeCycles};
use pagelab_base::error::{EngineError, between};

/// In the order of [`StageCosts::all`].
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

/// Lines that stages may touch together, of each kind.
const MOST_LINES: u32 = 1024;

impl StageCosts {
    /// Refuses what cannot be.
    pub fn validate(&self) -> Result<(), EngineError> {
        for (cost, name) in [self.entry, self.lookup, self.walk].into_iter().zip(NAMES) {
            if cost.page_instructions > 0 {
                let what = format!(
                    "{} is not possible, since how many pages a fault maps is not known before the walk ends; allowed is 0 here",
                    cost.page_instructions
                );
                return Err(EngineError::config(format!("kernel.fault.{name}.page_instructions"), what));
            }
        }
        Self::validate_lines(self.all(), "kernel.fault")
    }

    /// Refuses lines that cannot be, of stages that a part of the configuration gives.
    pub fn validate_lines(costs: [StageCost; 10], part: &str) -> Result<(), EngineError> {
        let mut so_far = StageLines::NONE;
        for (cost, name) in costs.into_iter().zip(NAMES) {
            let StageLines { cpu, space, kernel, again } = cost.lines;
            let key = |kind: &str| format!("{part}.{name}.lines.{kind}");
            if again > so_far.cpu {
                let what = format!("is {again}, and the stages before touch {} lines of the CPU", so_far.cpu);
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

    /// What a kernel does for a page beyond mapping it: charge, reverse map and LRU lists.
    /// Its instructions are not counted.
    pub fn accounting(&self) -> CodeCost {
        (self.charge.cost() + self.rmap.cost() + self.lru.cost()).uncounted()
    }

    /// By number of the [`Stage`](crate::fault::stage::Stage).
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
            _ => unreachable!("the others are of requests to devices"),
        }
    }

    /// In the order of [`Stage`](crate::fault::stage::Stage).
    pub fn all(&self) -> [StageCost; 10] {
        let Self { entry, lookup, walk, allocation, zeroing, charge, rmap, lru, install, exit } = *self;
        [entry, lookup, walk, allocation, zeroing, charge, rmap, lru, install, exit]
    }
}

/// What a stage costs beyond its memory references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageCost {
    /// Instructions of a fault that maps one page.
    pub instructions: u32,
    /// Cycles, those of the instructions included; or `core`, as unless given: those that the machine's core takes for
    /// the instructions.
    #[serde(default)]
    pub cycles: CodeCycles,
    /// Cycles of the processor on top of them, which are no instruction's: delivery of an exception, start of a string
    /// instruction; none unless given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hardware_cycles: u32,
    /// Instructions per page that is mapped beside the first: of a folio, or around a page of a file. Their cycles are
    /// the core's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub page_instructions: u32,
    /// Lines that it touches in every fault beside those that the engine knows the meaning of; none unless given.
    #[serde(default, skip_serializing_if = "StageLines::is_none")]
    pub lines: StageLines,
}

impl StageCost {
    /// Nothing is executed, and no line is touched.
    pub const NONE: Self = Self {
        instructions: 0,
        cycles: CodeCycles::Core,
        hardware_cycles: 0,
        page_instructions: 0,
        lines: StageLines::NONE,
    };

    /// Without its lines, of a fault that maps one page.
    pub fn cost(&self) -> CodeCost {
        CodeCost::new(self.instructions, self.cycles) + CodeCost::of_cycles(self.hardware_cycles)
    }

    /// What each page beside the first adds.
    pub fn page_cost(&self) -> CodeCost {
        CodeCost::new(self.page_instructions, CodeCycles::Core)
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Lines of the kernel's data, by whose they are, and whether the fault has touched them before. Those of a stage are
/// touched together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StageLines {
    /// Of the CPU, and written: its stack, its own variables.
    pub cpu: u32,
    /// Of the address space, and read: the mm, the VMA, what they point to.
    pub space: u32,
    /// Of the kernel, and read: what all CPUs share.
    pub kernel: u32,
    /// Of the CPU, which stages before have written.
    pub again: u32,
}

impl StageLines {
    /// No line is touched.
    pub const NONE: Self = Self { cpu: 0, space: 0, kernel: 0, again: 0 };

    /// Whether no line is touched.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// As many of each kind as either has.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            space: self.space.max(other.space),
            kernel: self.kernel.max(other.kernel),
            again: self.again.max(other.again),
        }
    }
}
