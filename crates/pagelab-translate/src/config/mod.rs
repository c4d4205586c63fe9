//! The configuration of the hardware: a machine with its caches, TLBs and prefetchers.

mod hardware;
mod machine;
mod prefetch;

pub use hardware::HardwareConfig;
pub use machine::{MachineConfig, TlbArrayConfig, TlbConfig};
pub use prefetch::PrefetchConfig;
