//! The configuration of a run: one typed definition. Unknown keys are errors, and it is validated once.

mod engine_calls;
mod sample;
mod validate;

pub use engine_calls::{EngineCallAt, EngineCalls};
pub use sample::SampleConfig;

use pagelab_base::switch::Switch;
use pagelab_hardware::core_model::kernel_branches::KernelBranches;
use pagelab_kernel::config::{BootConfig, KernelConfig, SystemConfig};
use pagelab_translate::config::{HardwareConfig, MachineConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Everything that determines a run, except its traces.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The hardware.
    pub machine: MachineConfig,
    /// The virtual-memory system: layers, page tables, MMU caches, page sizes.
    pub system: SystemConfig,
    /// The costs of the kernel's paths.
    pub kernel: KernelConfig,
    /// How the simulation runs.
    pub engine: EngineConfig,
}

impl Config {
    /// The parameters that the kernels boot with.
    /// `program_cpus` is the number of hardware threads that programs run on.
    pub fn boot(&self, program_cpus: u32) -> BootConfig<'_> {
        let machine = self.machine.resources();
        BootConfig { system: &self.system, kernel: &self.kernel, machine, program_cpus, check: self.engine.check.0 }
    }

    /// The branches of the kernels' code, if they have any.
    pub fn kernel_branches(&self) -> Option<KernelBranches> {
        let code = &self.kernel.code;
        (code.branch_instructions > 0).then(|| KernelBranches {
            interval: code.branch_instructions.into(),
            instruction_bytes: code.bytes_per_instruction.into(),
            path_bytes: code.path_bytes(),
            variable_percent: code.variable_branches_percent.into(),
            seed: self.engine.seed,
        })
    }

    /// The parameters of the hardware.
    pub fn hardware(&self) -> HardwareConfig<'_> {
        HardwareConfig {
            machine: &self.machine,
            system: &self.system,
            late_segments: self.kernel.threads.late_segments.is_on(),
            vm_exit_cycles: self.kernel.vm_exit_cycles,
            seed: self.engine.seed,
            kernel_refs: self.engine.kernel_refs.0,
            interleaving: self.engine.interleaving,
            quantum: self.engine.sync_quantum_cycles,
            check: self.engine.check.0,
        }
    }
}

/// How the simulation runs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Seed of every random choice (replacement, workloads).
    pub seed: u64,
    /// Whether page walks and kernel code go through the data caches, and kernel code through the TLBs. With `off`,
    /// only the program's own accesses go through the caches. Accesses that the kernel made for it (system-call
    /// buffers) are then only translated, and references of walks and of the kernel are counted and charged at the L1
    /// latency.
    pub kernel_refs: Switch,
    /// Cycles that a core may run ahead of the others before they synchronise. 0 is the reference: the core with the
    /// smallest clock always goes next.
    pub sync_quantum_cycles: u64,
    /// Whether the engine prefetches its own tables for the next accesses. Affects speed, never a result.
    pub lookahead: Switch,
    /// Whether ordinary accesses take the fast path, code compiled for the machine, or all accesses take the general
    /// path. Affects speed, never a result.
    pub fast_path: Switch,
    /// Accesses of a source that may be buffered for threads that lag behind the recorded order.
    pub input_window_accesses: u64,
    /// Which legal order of the threads of the main sources is replayed: 0 is the recorded one, others are random.
    /// Above 0, with several cores, each access to memory takes 0 to 4 ns longer, at random.
    #[serde(skip_serializing_if = "is_as_recorded")]
    pub interleaving: u32,
    /// Which windows of the main source are replayed and measured (`--sample`). The rest is replayed only as far as
    /// page faults need it.
    #[serde(skip_serializing_if = "SampleConfig::is_off")]
    pub sample: SampleConfig,
    /// Calls with which the process of each main source enables and disables its kernel's fault engine: `enable@N` and
    /// `disable@N` come after the source's first N accesses, at 0 before its first mapping. Kernels without such an
    /// engine ignore them.
    #[serde(skip_serializing_if = "EngineCalls::is_empty")]
    pub fault_engine_calls: EngineCalls,
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
            fault_engine_calls: EngineCalls::default(),
            check: Switch(false),
        }
    }
}
