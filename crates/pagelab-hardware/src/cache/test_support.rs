//! Configurations that several tests share.

use pagelab_trace::quantity::Bytes;

use super::*;

/// The machine of many published TLB studies: 32 KiB L1, 256 KiB L2, 15 MiB L3 of 12288 sets.
pub(super) fn sandy_bridge() -> CacheConfig {
    let private = |kib: u64, latency_cycles| PrivateCacheConfig {
        size_bytes: Bytes(kib << 10),
        ways: 8,
        latency_cycles,
        policy: ReplacementPolicy::Lru,
    };
    CacheConfig {
        l1: private(32, 4),
        l1i: None,
        l2: Some(private(256, 12)),
        l3: Some(SharedCacheConfig {
            size_bytes: Bytes(15 << 20),
            ways: 20,
            latency_cycles: 30,
            policy: ReplacementPolicy::Lru,
            inclusion: Inclusion::Inclusive,
            slices: 1,
            slice_hash: SliceHash::Xor,
        }),
        dram_latency_cycles: 100,
        cache_to_cache_latency_cycles: 60,
        far_cores: Vec::new(),
        queue_transfers: pagelab_base::switch::Switch(true),
        upgrade_latency_cycles: 43,
        locked_extra_cycles: 18,
        walker_entry: WalkerEntry::L1,
        bulk_parallelism: 10,
    }
}
