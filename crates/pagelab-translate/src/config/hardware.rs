//! Parameters of the simulated hardware of a run.

use pagelab_kernel::config::SystemConfig;

use super::MachineConfig;

/// Parameters of the simulated hardware of a run.
#[derive(Clone, Debug)]
pub struct HardwareConfig<'a> {
    /// The machine.
    pub machine: &'a MachineConfig,
    /// The layers whose addresses it translates.
    pub system: &'a SystemConfig,
    /// Whether kernels may make direct segments while programs run (`kernel.threads.late_segments`).
    pub late_segments: bool,
    /// Cycles of one exit of a guest with shadow page tables (`kernel.vm_exit_cycles`).
    pub vm_exit_cycles: u32,
    /// Seed of every random choice (`engine.seed`).
    pub seed: u64,
    /// Whether walks and the kernel go through the caches (`engine.kernel_refs`).
    pub kernel_refs: bool,
    /// Which legal order of threads is replayed (`engine.interleaving`); above 0, memory latencies vary at random.
    pub interleaving: u32,
    /// Cycles that the clocks of CPUs may differ (`engine.sync_quantum_cycles`).
    pub quantum: u64,
    /// Whether every translation is compared with the kernels' own records (`engine.check`).
    pub check: bool,
}
