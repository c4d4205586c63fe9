//! Code that the kernel executes, for machines with instruction caches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pagelab_base::addr::LINE_BYTES;
use pagelab_base::error::{EngineError, between};

/// The code of a kernel's paths. It only matters on machines with instruction caches (`machine.cache.l1i`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KernelCodeConfig {
    /// Lines of 64 bytes of each path: a stage of page faults, or another activity. Each path has lines of its own.
    /// With 0, kernels fetch no code. Default: 64, estimated: a page of code per path.
    pub path_lines: u32,
    /// Bytes of an instruction. A step fetches the lines from the beginning of its path that its instructions take, but
    /// at most the whole path: what is more runs in loops. Default: 4, estimated: the average of x86-64 code.
    pub bytes_per_instruction: u32,
}

impl Default for KernelCodeConfig {
    fn default() -> Self {
        Self { path_lines: 64, bytes_per_instruction: 4 }
    }
}

impl KernelCodeConfig {
    /// Whether all parameters have their defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses values out of range; `key` is where they are.
    pub fn validate(&self, key: &str) -> Result<(), EngineError> {
        between(&format!("{key}.path_lines"), self.path_lines, 0, 4096)?;
        between(&format!("{key}.bytes_per_instruction"), self.bytes_per_instruction, 1, 15)
    }

    /// Lines that a step with this many instructions fetches.
    pub fn lines(&self, instructions: u64) -> u64 {
        let bytes = instructions.saturating_mul(self.bytes_per_instruction.into());
        bytes.div_ceil(LINE_BYTES).min(self.path_lines.into())
    }
}
