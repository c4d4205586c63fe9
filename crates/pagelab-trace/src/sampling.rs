//! The windows of a sample: plain data in traces and sources.

use serde::{Deserialize, Serialize};

/// The windows of a sample, in instructions of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// Length of a period.
    pub every: u64,
    /// Length of its window.
    pub length: u64,
    /// Length of the warm-up before each window.
    pub warm: u64,
    /// Start of the window in its period; none: drawn, the same for all periods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}
