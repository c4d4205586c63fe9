//! The configuration of a run: one typed definition, unknown keys refused, validated once.
//!
//! A run's [`Config`] is put together from presets (a machine, a system, a kernel's costs), the engine's defaults and the
//! user's `--set key=value` overrides, in this order; [`assemble`] does it. What the user does not name keeps the
//! preset's value, and the effective configuration is written with every result.

mod assemble;
mod block_io;
mod designs;
mod extend;
mod fault_kinds;
mod kernel;
mod machine;
mod mistake;
mod prefetch;
mod preset;
mod sample;
mod stage_costs;
mod swap;
mod system;
mod translation_cache;
mod validate;

pub use assemble::{Assembly, assemble};
pub use block_io::{BlockIoConfig, CompletionBy};
pub use fault_kinds::{FaultKind, FaultKinds, KindCosts};
pub use kernel::{FaultLock, IdleTlb, KernelConfig, LruList, PageCache, ReclaimFlush, VmaIndex};
pub use machine::{MachineConfig, NestedTlbConfig, TlbArrayConfig, TlbConfig};
pub use prefetch::{NextPageConfig, PrefetchConfig, TLB_PREFETCHERS, TlbPrefetchConfig};
pub use preset::{Preset, PresetKind, presets};
pub use sample::SampleConfig;
pub use stage_costs::{StageCost, StageCosts, StageLines};
pub use swap::SwapConfig;
pub use system::{Backing, HostMode, LargePages, LayerConfig, SpeculativeTableConfig, SystemConfig};
pub use translation_cache::{
    CacheOwner, InvalidationCause, MmuAssist, SlotCosts, SlotKind, TranslationCacheArrays, TranslationCacheConfig,
    TranslationCacheCosts, TranslationCacheSlots,
};
pub(crate) use validate::check_limit;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Everything that determines a run, besides its traces.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The hardware.
    pub machine: MachineConfig,
    /// The virtual-memory system: layers, page tables, MMU caches, page sizes.
    pub system: SystemConfig,
    /// What the kernel's paths cost.
    pub kernel: KernelConfig,
    /// How the simulation runs.
    pub engine: EngineConfig,
}

/// A switch, written `on` or `off` (or as a boolean).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "SwitchText", into = "bool")]
#[schemars(with = "SwitchText")]
pub struct Switch(pub bool);

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum SwitchText {
    Bool(bool),
    Text(String),
}

impl TryFrom<SwitchText> for Switch {
    type Error = String;

    fn try_from(text: SwitchText) -> Result<Self, String> {
        match text {
            SwitchText::Bool(value) => Ok(Self(value)),
            SwitchText::Text(text) => match text.as_str() {
                "on" | "true" => Ok(Self(true)),
                "off" | "false" => Ok(Self(false)),
                _ => Err(format!("`{text}` is not a switch; write `on` or `off`")),
            },
        }
    }
}

impl From<Switch> for bool {
    fn from(switch: Switch) -> bool {
        switch.0
    }
}

/// How the simulation runs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Seed of every random choice (replacement, workloads).
    pub seed: u64,
    /// Whether page walks and kernel code go through the data caches, and kernel code through the TLBs. `off` replays only
    /// the program's own accesses through the caches: those that the kernel made for it (system-call buffers) are then
    /// translated only, and references of walks and of the kernel are counted and charged at the L1 latency.
    pub kernel_refs: Switch,
    /// Cycles that a core may run ahead of the others before they synchronise; 0 is the reference: the smallest
    /// clock always goes next.
    pub sync_quantum_cycles: u64,
    /// Whether the engine prefetches its own tables for accesses to come. Changes speed, never a result.
    pub lookahead: Switch,
    /// Whether accesses that meet nothing unusual take code that is compiled for the machine, or all of them that which does for
    /// every system. Changes speed, never a result.
    pub fast_path: Switch,
    /// Accesses of a source that may be held back for threads that lag behind the recorded order.
    pub input_window_accesses: u64,
    /// Which legal order of the threads of the main sources is replayed: 0 as recorded, others at random. On several cores
    /// each access to memory takes 0 to 4 ns more then, at random.
    #[serde(skip_serializing_if = "is_as_recorded")]
    pub interleaving: u32,
    /// Which windows of the main source are replayed and measured; of the rest, what page faults need (`--sample`).
    #[serde(skip_serializing_if = "SampleConfig::is_off")]
    pub sample: SampleConfig,
    /// Compare every translation with a flat record of what the kernel mapped (`--check`).
    pub check: Switch,
}

/// Whether threads are replayed as recorded.
fn is_as_recorded(interleaving: &u32) -> bool {
    *interleaving == 0
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            kernel_refs: Switch(true),
            sync_quantum_cycles: 1000,
            lookahead: Switch(true),
            fast_path: Switch(true),
            input_window_accesses: 1 << 20,
            interleaving: 0,
            sample: SampleConfig::Off,
            check: Switch(false),
        }
    }
}
