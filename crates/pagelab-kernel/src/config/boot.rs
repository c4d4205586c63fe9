//! What the kernels of a machine boot with.

use pagelab_trace::quantity::Bytes;

use super::{KernelConfig, SystemConfig};

/// What the kernels of a machine boot with.
#[derive(Clone, Debug)]
pub struct BootConfig<'a> {
    /// The layers.
    pub system: &'a SystemConfig,
    /// What the kernels' paths cost and what they do.
    pub kernel: &'a KernelConfig,
    /// What there is to manage.
    pub machine: MachineResources,
    /// Whether a flat record of all mappings is kept to compare translations with.
    pub check: bool,
}

/// What of a machine its kernels manage.
#[derive(Clone, Debug)]
pub struct MachineResources {
    /// The cores' clock.
    pub frequency_mhz: u32,
    /// Physical memory.
    pub memory_bytes: Bytes,
    /// Sizes of the NUMA nodes that the kernel knows; empty for memory that is one node to it.
    pub node_bytes: Vec<Bytes>,
    /// Cores.
    pub cores: u32,
    /// Hardware threads of all cores.
    pub cpus: u32,
}
