//! The virtual-memory system: layers and what each of them uses, and what the kernel's paths cost.

use std::collections::BTreeMap;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::addr::PageSize;

/// A system preset (`presets/systems/NAME.toml`).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemConfig {
    pub name: String,
    pub description: String,
    /// The layers, in any order; each but one names its host. Processes run on the layers that host nobody, the
    /// first source on the first of them, and so on in turn.
    pub layers: Vec<LayerConfig>,
    /// Where each number comes from: dotted key (or a prefix of keys) → origin.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

/// A kernel with its page tables, its frame allocator and its MMU caches.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerConfig {
    pub name: String,
    /// Name of the layer that hosts this one; none for the machine's own.
    #[serde(default)]
    pub host: Option<String>,
    pub page_table: PageTableConfig,
    pub mmu_cache: MmuCacheKind,
    /// Page size of every mapping that this layer's kernel makes.
    pub page_size: PageSize,
    /// Physical memory of the layer; none for what is left of its host's (an equal share among guests, less a
    /// sixteenth for the host's own tables), and the whole machine for the bottom layer.
    #[serde(default)]
    pub memory_bytes: Option<Bytes>,
}

/// Page-table design of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PageTableConfig {
    /// x86-64 radix tree.
    Radix {
        /// 4 (48-bit virtual addresses) or 5 (57-bit).
        levels: u8,
    },
}

/// MMU cache of a layer; its geometry is the machine's (`machine.mmu_cache`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MmuCacheKind {
    /// Every walk reads every level.
    None,
    /// Per-level arrays tagged by virtual-address prefix, longest match (Intel).
    PagingStructure,
    /// One array tagged by the physical address of the entry (AMD).
    PageWalkCache,
    /// Unlimited and always hit: a walk reads its leaf only, at the cost of a paging-structure look-up.
    Perfect,
}

/// A kernel preset (`presets/kernels/NAME.toml`): what the stages of a page fault cost beyond the memory
/// references that the engine replays for them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelConfig {
    pub name: String,
    pub description: String,
    pub fault: StageCosts,
    /// World switch from a guest to its host and back, for a fault that the host handles.
    pub vm_exit_cycles: u32,
    /// Switch of the running thread on a CPU.
    pub context_switch_cycles: u32,
    /// Time slice when several processes share a CPU.
    pub quantum_cycles: u64,
    /// Cycles that the initiator of a TLB shootdown waits for each other CPU that runs the address space.
    pub shootdown_ipi_cycles: u32,
    /// Cycles of invalidating one page in the local TLB (INVLPG).
    pub invalidate_page_cycles: u32,
    /// How far a stack mapping (MAP_GROWSDOWN) may grow.
    pub stack_limit_bytes: Bytes,
    /// Where each number comes from: dotted key (or a prefix of keys) → origin.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

/// Costs of the stages of a demand-paging fault.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageCosts {
    /// Exception, register save, swapgs, page-fault handler prologue.
    pub entry: StageCost,
    /// mm lock and VMA look-up.
    pub lookup: StageCost,
    /// Software walk of the page table, building the tables that are missing.
    pub walk: StageCost,
    /// Frame allocation.
    pub allocation: StageCost,
    /// Zeroing of the frame (its bulk write comes on top, through the caches).
    pub zeroing: StageCost,
    /// Reverse map, LRU, accounting and the PTE's installation.
    pub install: StageCost,
    /// Unlock and return from the exception.
    pub exit: StageCost,
}

/// What a stage costs beyond its memory references.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageCost {
    pub instructions: u32,
    /// Cycles, instructions included.
    pub cycles: u32,
}
