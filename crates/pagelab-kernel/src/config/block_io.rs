//! What requests to devices cost a kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageCost;
use pagelab_base::code_cost::CodeCycles;
use pagelab_base::error::{EngineError, between};

/// What a kernel does about requests to its devices, beyond what their pages cost anyway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockIoConfig {
    /// How it learns of answers.
    #[serde(default)]
    pub completion_by: CompletionBy,
    /// Cache lines of its own code and data that the kernel touches for a fault's requests, beyond those that the model
    /// knows. What they take is in the costs below.
    #[serde(default)]
    pub lines: u32,
    /// Block layer and driver, up to the doorbell; per request.
    pub submit: StageCost,
    /// Switch away from the task that waits, with no other to run; while the device is at work.
    pub switch: StageCost,
    /// Delivery of the interrupt, and the driver's handler up to the completion.
    pub interrupt: StageCost,
    /// From there to the wake-up: per request.
    pub completion: StageCost,
    /// From the wake-up until the task runs again.
    pub wakeup: StageCost,
}

/// Most that makes sense: 4 MiB of lines.
const MOST_LINES: u32 = 1 << 16;

impl BlockIoConfig {
    /// Errors: a key, and what it allows.
    pub fn validate(&self) -> Result<(), EngineError> {
        between("kernel.block_io.lines", self.lines, 0, MOST_LINES)
    }

    /// Of the lines, those up to the end of each of the three parts that a request's way has, in proportion to their
    /// cycles: up to the sleep, up to the wake-up, and from there on; in proportion to their instructions if the core
    /// gives cycles of any of them. A kernel that polls touches those of the parts alone that its way has.
    pub fn line_ends(&self) -> [u32; 3] {
        let all = [self.submit, self.switch, self.interrupt, self.completion, self.wakeup];
        let stated = all.iter().all(|of| of.cycles != CodeCycles::Core);
        let weight = |of: &StageCost| if stated { of.cost().cycles.0 } else { of.instructions.into() };
        let of = |costs: &[StageCost]| costs.iter().map(weight).sum::<u64>();
        let parts = match self.completion_by {
            CompletionBy::Interrupt => {
                [of(&[self.submit, self.switch]), of(&[self.interrupt, self.completion]), of(&[self.wakeup])]
            }
            CompletionBy::Polling => [of(&[self.submit]), of(&[self.completion]), 0],
        };
        let (lines, all) = (u64::from(self.lines), parts.iter().sum::<u64>().max(1));
        let mut before = 0;
        parts.map(|part| {
            before += part;
            (lines * before / all) as u32
        })
    }
}

/// How a kernel learns of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CompletionBy {
    /// The task sleeps, and the device interrupts.
    #[default]
    Interrupt,
    /// The task keeps its CPU and looks for the answer (`io_poll`).
    Polling,
}
