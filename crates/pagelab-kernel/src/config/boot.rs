//! Parameters with which the kernels of a machine boot.

use pagelab_trace::quantity::Bytes;

use super::{KernelConfig, SystemConfig};

/// Parameters with which the kernels of a machine boot.
#[derive(Clone, Debug)]
pub struct BootConfig<'a> {
    /// The layers.
    pub system: &'a SystemConfig,
    /// Costs and behaviour of the kernels.
    pub kernel: &'a KernelConfig,
    /// The resources that they manage.
    pub machine: MachineResources,
    /// Number of hardware threads that programs run on.
    pub program_cpus: u32,
    /// Whether a flat record of all mappings is kept, to check translations against.
    pub check: bool,
}

/// The resources of a machine that its kernels manage.
#[derive(Clone, Debug)]
pub struct MachineResources {
    /// Clock rate in MHz.
    pub frequency_mhz: u32,
    /// Physical memory.
    pub memory_bytes: Bytes,
    /// Sizes of the NUMA nodes that the kernel knows; empty if it sees a single node.
    pub node_bytes: Vec<Bytes>,
    /// Number of cores.
    pub cores: u32,
    /// Number of hardware threads.
    pub cpus: u32,
    /// Whether the cores have instruction caches, so that kernels must have code.
    pub instruction_caches: bool,
}
