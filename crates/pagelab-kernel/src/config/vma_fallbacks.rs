//! Which faults are not served under the lock of their VMA alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The versions of Linux whose rules decide which faults fall back to the lock of the address space. Each stands for
/// the versions up to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum VmaFallbacks {
    /// Only anonymous memory is served, and only where it has an `anon_vma`; not the swap area.
    #[serde(rename = "linux-6.4")]
    Linux64,
    /// So are the swap area, and reads of pages of files that are in memory.
    #[serde(rename = "linux-6.6")]
    Linux66,
    /// So are all faults of files.
    #[serde(rename = "linux-6.7")]
    Linux67,
    /// Faults without an `anon_vma` take both locks where they need it, and so do explicit huge pages.
    #[serde(rename = "linux-6.10")]
    Linux610,
}
