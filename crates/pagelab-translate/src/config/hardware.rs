//! What the hardware of a run is built of.

use pagelab_kernel::config::SystemConfig;

use super::MachineConfig;

/// What the hardware of a run is built of.
#[derive(Clone, Debug)]
pub struct HardwareConfig<'a> {
    /// The machine.
    pub machine: &'a MachineConfig,
    /// The layers that it translates for.
    pub system: &'a SystemConfig,
    /// Cycles of an exit of a shadowed guest (`kernel.vm_exit_cycles`).
    pub vm_exit_cycles: u32,
    /// Seed of every random choice (`engine.seed`).
    pub seed: u64,
    /// Whether walks and the kernel go through the caches (`engine.kernel_refs`).
    pub kernel_refs: bool,
    /// Which legal order of threads is replayed (`engine.interleaving`); above 0, memory takes a random time.
    pub interleaving: u32,
    /// Whether every translation is compared with the kernels' own records (`engine.check`).
    pub check: bool,
}
