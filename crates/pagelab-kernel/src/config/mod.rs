//! Configuration of the kernels: the layers of a system, and the costs of the kernels' paths.

mod block_io;
mod boot;
mod code;
mod fault_kinds;
mod held_locks;
mod kernel;
mod mapping_calls;
mod stage_costs;
mod swap;
mod system;
mod translation_cache;
mod vma_fallbacks;

pub use block_io::{BlockIoConfig, CompletionBy};
pub use boot::{BootConfig, MachineResources};
pub use code::KernelCodeConfig;
pub use fault_kinds::{FaultKind, FaultKinds, KindCosts};
pub use held_locks::HeldLocksConfig;
pub use kernel::{
    ClearingOrder, FaultLock, IdleTlb, KernelConfig, LruList, PageCache, ReclaimFlush, SpinLocks, VmaIndex, check_limit,
};
pub use mapping_calls::{CallCost, MappingCallConfig};
pub use stage_costs::{StageCost, StageCosts, StageLines};
pub use swap::SwapConfig;
pub use system::{
    Backing, FrameTagsConfig, HostMode, LargePages, LayerConfig, SpeculativeTableConfig, SystemConfig, TagCheck,
};
pub use translation_cache::{
    CacheOwner, InvalidationCause, MmuAssist, SlotCosts, SlotKind, TranslationCacheArrays, TranslationCacheConfig,
    TranslationCacheCosts, TranslationCacheSlots, validate_translation_cache,
};
pub use vma_fallbacks::VmaFallbacks;
