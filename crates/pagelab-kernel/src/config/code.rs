//! Code that the kernel executes, for machines with instruction caches or branch predictors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pagelab_base::addr::LINE_BYTES;
use pagelab_base::error::{EngineError, between};

/// The code of a kernel's paths. Its lines only matter on machines with instruction caches (`machine.cache.l1i`), and
/// its branches on those whose cores have a branch predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KernelCodeConfig {
    /// Lines of 64 bytes of each path: a stage of page faults, or another activity. Each path has lines of its own.
    /// With 0, kernels fetch no code. Default: 64, estimated: a page of code per path.
    pub path_lines: u32,
    /// Bytes of an instruction. A step fetches the lines from the beginning of its path that its instructions take, but
    /// at most the whole path: what is more runs in loops. Default: 4, estimated: the average of x86-64 code.
    pub bytes_per_instruction: u32,
    /// Instructions per conditional branch of a path. With 0, kernels have no branches. Default: 0. A typical value is
    /// 6, estimated.
    #[serde(skip_serializing_if = "is_zero")]
    pub branch_instructions: u32,
    /// Percentage of the kernel's branches whose outcomes are drawn; the others always go the same way. Default: 10,
    /// estimated.
    #[serde(skip_serializing_if = "is_default_share")]
    pub variable_branches_percent: u32,
}

const VARIABLE_PERCENT: u32 = 10;

/// The code of all paths is one block of frames, which the frame allocator's largest must hold.
const MOST_PATH_LINES: u32 = 2048;

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_default_share(percent: &u32) -> bool {
    *percent == VARIABLE_PERCENT
}

impl Default for KernelCodeConfig {
    fn default() -> Self {
        Self {
            path_lines: 64,
            bytes_per_instruction: 4,
            branch_instructions: 0,
            variable_branches_percent: VARIABLE_PERCENT,
        }
    }
}

impl KernelCodeConfig {
    /// Whether all parameters have their defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses values out of range; `key` is where they are.
    pub fn validate(&self, key: &str) -> Result<(), EngineError> {
        between(&format!("{key}.path_lines"), self.path_lines, 0, MOST_PATH_LINES)?;
        between(&format!("{key}.bytes_per_instruction"), self.bytes_per_instruction, 1, 15)?;
        between(&format!("{key}.variable_branches_percent"), self.variable_branches_percent, 0, 100)?;
        let most = (self.path_bytes() / u64::from(self.bytes_per_instruction)) as u32;
        between(&format!("{key}.branch_instructions"), self.branch_instructions, 0, most)
    }

    /// Bytes of a path.
    pub fn path_bytes(&self) -> u64 {
        u64::from(self.path_lines) * LINE_BYTES
    }

    /// Lines that a step with this many instructions fetches.
    pub fn lines(&self, instructions: u64) -> u64 {
        let bytes = instructions.saturating_mul(self.bytes_per_instruction.into());
        bytes.div_ceil(LINE_BYTES).min(self.path_lines.into())
    }
}
