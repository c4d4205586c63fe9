//! The configuration of the hardware: a machine with its caches, TLBs and prefetchers.

mod hardware;
mod machine;
mod prefetch;

pub use hardware::HardwareConfig;
pub use machine::{MachineConfig, NestedTlbConfig, TlbArrayConfig, TlbConfig};
pub use prefetch::{NextPageConfig, PrefetchConfig, TLB_PREFETCHERS, TlbPrefetchConfig};
