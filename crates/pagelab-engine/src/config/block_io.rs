//! What requests to devices cost a kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageCost;

/// What a kernel does about requests to its devices, beyond what their pages cost anyway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockIoConfig {
    /// How it learns of answers.
    #[serde(default)]
    pub completion_by: CompletionBy,
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
