//! The hardware: cores, TLBs, MMU caches, data caches, memory.

use std::collections::BTreeMap;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::addr::PageSize;
use crate::cache::CacheConfig;

/// A machine preset (`presets/machines/NAME.toml`).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineConfig {
    pub name: String,
    pub description: String,
    /// Physical cores.
    pub cores: u32,
    /// Hardware threads a core; they share its TLBs, MMU caches and private data caches.
    pub threads_per_core: u32,
    /// Clock rate, MHz; only turns cycles into time.
    pub frequency_mhz: u32,
    /// Physical memory.
    pub memory_bytes: Bytes,
    pub core: CoreConfig,
    pub tlb: TlbConfig,
    pub mmu_cache: MmuCacheGeometry,
    pub cache: CacheConfig,
    /// Where each number comes from: dotted key (or a prefix of keys) → origin.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

/// An in-order core that retires instructions at a fixed rate and waits for memory.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoreConfig {
    /// Cycles an instruction when neither memory nor translation stalls it; resolved to 1/256.
    pub cycles_per_instruction: f64,
    /// True if the pipeline hides the L1 latency: an access then stalls for what it takes beyond an L1 hit.
    pub l1_hit_hidden: bool,
}

/// The TLBs of one core, shared by its hardware threads. Entries carry an address-space tag.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlbConfig {
    /// First-level data TLB: one array or several, each for some page sizes.
    pub l1d: Vec<TlbArrayConfig>,
    /// First-level instruction TLB.
    pub l1i: Vec<TlbArrayConfig>,
    /// Second-level TLB, for data and instructions; empty for none.
    #[serde(default)]
    pub l2: Vec<TlbArrayConfig>,
    /// Cycles that an L1 miss waits for the second level, hit or not.
    #[serde(default)]
    pub l2_latency_cycles: u32,
    /// TLB of guest-physical to machine frames, used inside nested walks; none to walk every time.
    #[serde(default)]
    pub nested: Option<NestedTlbConfig>,
}

/// One set-associative TLB array; any number of sets.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlbArrayConfig {
    /// Page sizes that it holds.
    pub pages: Vec<PageSize>,
    pub entries: u32,
    /// Equal to `entries` for a fully associative array.
    pub ways: u32,
    #[serde(default)]
    pub policy: TlbPolicy,
}

/// Replacement policy of a TLB or MMU-cache array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TlbPolicy {
    #[default]
    Lru,
    TreePlru,
    Random,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NestedTlbConfig {
    pub entries: u32,
    pub ways: u32,
    pub latency_cycles: u32,
    #[serde(default)]
    pub policy: TlbPolicy,
}

/// Geometry of the MMU caches that a layer may choose to use; every layer has its own of the kind it chooses, but for the
/// page-walk cache that layers share.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MmuCacheGeometry {
    pub paging_structure: PagingStructureConfig,
    pub page_walk_cache: PageWalkCacheConfig,
    pub unified: UnifiedTranslationCacheConfig,
    /// One MMU cache for all cores in place of one a core, with the entries of all together; none: one a core.
    #[serde(default)]
    pub shared_by_cores: Option<SharedMmuCacheConfig>,
}

/// An MMU cache outside the cores (Bhattacharjee, "Large-reach memory management unit caches", MICRO 2013).
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedMmuCacheConfig {
    /// What a look-up takes beyond one of a core's own.
    pub extra_latency_cycles: u32,
}

impl MmuCacheGeometry {
    /// The geometry of one cache for `cores` cores that replaces theirs.
    pub fn together(&self, cores: u32, shared: SharedMmuCacheConfig) -> Self {
        let mut all = self.clone();
        let arrays = all.paging_structure.arrays.iter_mut().map(|array| &mut array.entries);
        let entries = arrays.chain([&mut all.page_walk_cache.entries, &mut all.unified.entries]);
        entries.for_each(|entries| *entries = entries.saturating_mul(cores));
        let latencies = [
            &mut all.paging_structure.latency_cycles,
            &mut all.page_walk_cache.latency_cycles,
            &mut all.unified.latency_cycles,
        ];
        latencies.into_iter().for_each(|latency| *latency = latency.saturating_add(shared.extra_latency_cycles));
        all
    }
}

/// Paging-structure caches (Intel SDM vol. 3A, 4.10.3): one array a level, tagged by virtual-address prefix.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PagingStructureConfig {
    /// One array a level of entries it holds: 2 caches PDEs, 3 PDPTEs, 4 PML4Es, 5 PML5Es.
    pub arrays: Vec<PagingStructureArray>,
    /// Cycles of one look-up of all arrays at once.
    pub latency_cycles: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PagingStructureArray {
    /// Level of the page-table entries held; the leaf level is 1 and is never held here.
    pub level: u8,
    pub entries: u32,
    pub ways: u32,
    #[serde(default)]
    pub policy: TlbPolicy,
}

/// Unified translation cache: one array of entries of all levels but the leaf's, tagged by virtual-address prefix (Barr,
/// Cox, Rixner, "Translation caching", ISCA 2010).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnifiedTranslationCacheConfig {
    pub entries: u32,
    pub ways: u32,
    /// Cycles of one look-up of all prefixes at once.
    pub latency_cycles: u32,
    /// Where entries of level 2, which are reused least, are inserted among those of their set in order of use: 0 as the
    /// most recently used (plain LRU), below `ways`. Those of higher levels are always inserted as the most recently used.
    pub level2_insertion: u32,
}

/// Page-walk cache: one array of page-table entries of all levels but the leaf's, tagged by physical address
/// (AMD; Barr, Cox, Rixner, "Translation caching", ISCA 2010, calls it the unified page table cache).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageWalkCacheConfig {
    pub entries: u32,
    pub ways: u32,
    /// Cycles of one look-up; a walk makes one a level.
    pub latency_cycles: u32,
    #[serde(default)]
    pub policy: TlbPolicy,
}
