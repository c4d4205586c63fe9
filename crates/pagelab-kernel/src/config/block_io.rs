//! Costs of a kernel's requests to devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageCost;
use pagelab_base::code_cost::CodeCycles;
use pagelab_base::error::{EngineError, between};

/// What a kernel does for requests to its devices, beyond the costs of their pages.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockIoConfig {
    /// How the kernel learns of a completed request.
    #[serde(default)]
    pub completion_by: CompletionBy,
    /// Cache lines of kernel code and data that the requests of a fault touch, besides those that the model knows.
    /// Their cycles are included in the costs below.
    #[serde(default)]
    pub lines: u32,
    /// Per request: block layer and driver, up to the doorbell.
    pub submit: StageCost,
    /// Switch from the waiting task to idle, while the device is busy.
    pub switch: StageCost,
    /// Delivery of the interrupt, and the driver's handler up to the completion.
    pub interrupt: StageCost,
    /// Per request: from the driver's completion to the wake-up.
    pub completion: StageCost,
    /// From the wake-up until the task runs.
    pub wakeup: StageCost,
}

/// Largest sensible number: 4 MiB of lines.
const MOST_LINES: u32 = 1 << 16;

impl BlockIoConfig {
    /// Checks the values. Errors: a key, and its allowed values.
    pub fn validate(&self) -> Result<(), EngineError> {
        between("kernel.block_io.lines", self.lines, 0, MOST_LINES)
    }

    /// Distributes the lines over the three parts of a request: until the sleep, until the wake-up, and after it.
    /// Returns, for each part, the number of lines up to its end. The shares are in proportion to the parts' cycles, or
    /// to their instructions if any of them leaves its cycles to the core. A kernel that polls has only the parts that
    /// it executes.
    pub fn line_ends(&self) -> [u32; 3] {
        let all = [self.submit, self.switch, self.interrupt, self.completion, self.wakeup];
        let stated = all.iter().all(|cost| cost.cycles != CodeCycles::Core);
        let weight = |cost: &StageCost| if stated { cost.cost().cycles.0 } else { cost.instructions.into() };
        let total = |costs: &[StageCost]| costs.iter().map(weight).sum::<u64>();
        let parts = match self.completion_by {
            CompletionBy::Interrupt => {
                [total(&[self.submit, self.switch]), total(&[self.interrupt, self.completion]), total(&[self.wakeup])]
            }
            CompletionBy::Polling => [total(&[self.submit]), total(&[self.completion]), 0],
        };
        let (lines, all) = (u64::from(self.lines), parts.iter().sum::<u64>().max(1));
        let mut before = 0;
        parts.map(|part| {
            before += part;
            (lines * before / all) as u32
        })
    }
}

/// How a kernel learns of a completed request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CompletionBy {
    /// The task sleeps until the device's interrupt.
    #[default]
    Interrupt,
    /// The task keeps its CPU and polls the device (`io_poll`).
    Polling,
}
