//! Costs of mapping calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pagelab_base::code_cost::{CodeCost, CodeCycles};
use pagelab_base::switch::Switch;

/// What mapping calls cost besides their TLB shootdown, and which locks they hold meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MappingCallConfig {
    /// Per call: entry, changes of the VMAs, and return.
    pub call: CallCost,
    /// Per page that is unmapped, of any size: its entry, its reverse map, and freeing it.
    pub unmap_page: CallCost,
    /// Per page whose entry is changed or moved.
    pub change_page: CallCost,
    /// Whether munmap and a brk that shrinks the heap hold the lock of the address space only as readers while they
    /// unmap pages (`mmap_write_downgrade`, since Linux 4.20).
    pub downgrade: Switch,
}

/// Cost of kernel code beyond its references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallCost {
    /// Instructions.
    pub instructions: u32,
    /// Cycles, including those of the instructions; or `core`, the default: as many as the machine's core model takes
    /// for the instructions.
    #[serde(default)]
    pub cycles: CodeCycles,
}

impl CallCost {
    /// The cost.
    pub fn cost(self) -> CodeCost {
        CodeCost::new(self.instructions, self.cycles)
    }
}
