//! Which windows a sample has: plain data, which traces and sources carry.

use serde::{Deserialize, Serialize};

/// Which windows of a source are passed on, in instructions of all its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// Of a period.
    pub every: u64,
    /// Of its window.
    pub length: u64,
    /// Before each window, to warm up.
    pub warm: u64,
    /// From the begin of a period to its window; none for one that is drawn, the same for all periods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}
