//! The hardware: cores, TLBs, MMU caches, data caches, memory.

use std::collections::BTreeMap;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::prefetch::PrefetchConfig;
use crate::size_prediction::{SizeIndex, SizePredictionConfig};
use crate::speculation::SpeculationConfig;
use crate::tlb_organisation::TlbOrganisationConfig;
use crate::translation_unit::{NestedTlbConfig, TlbStagesConfig};
use pagelab_base::addr::PageSize;
use pagelab_base::assoc::AssocPolicy;
use pagelab_base::error::EngineError;
use pagelab_base::switched::Switched;
use pagelab_hardware::cache::{BulkConfig, CacheConfig, MemoryConfig};
use pagelab_hardware::core_model::CoreConfig;
use pagelab_kernel::config::MachineResources;
use pagelab_tables::mmu_cache::MmuCacheGeometry;

/// A machine preset (`presets/machines/NAME.toml`).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineConfig {
    /// Name of the preset.
    pub name: String,
    /// One sentence for lists: which machine the preset describes.
    pub description: String,
    /// What the machine was made for; used only in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<MachineClass>,
    /// The year in which the processor was launched; used only in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub year: Option<u16>,
    /// Physical cores.
    pub cores: u32,
    /// Hardware threads per core; they share the core's TLBs, MMU caches and private data caches.
    pub threads_per_core: u32,
    /// Clock rate in MHz; used only to convert cycles to time.
    pub frequency_mhz: u32,
    /// Physical memory.
    pub memory_bytes: Bytes,
    /// The core model and its parameters: what a program waits for, and what instructions cost.
    pub core: CoreConfig,
    /// The TLBs of one core, shared by its hardware threads. Entries carry an address-space tag.
    pub tlb: TlbConfig,
    /// Geometry of the MMU caches that a layer can choose. Each layer has its own cache of the kind it chooses, except
    /// for kinds that layers share.
    pub mmu_cache: MmuCacheGeometry,
    /// The data caches: private L1 and L2 per core, an L3 shared by all cores, and memory behind them.
    pub cache: CacheConfig,
    /// Bandwidth and NUMA nodes; if omitted, memory has a latency alone.
    #[serde(default, skip_serializing_if = "MemoryConfig::is_plain")]
    pub memory: MemoryConfig,
    /// Zeroing and copying of pages: what they cost, and which stores they use.
    #[serde(default, skip_serializing_if = "BulkConfig::is_default")]
    pub bulk: BulkConfig,
    /// Prefetchers; off by default.
    #[serde(default, skip_serializing_if = "PrefetchConfig::is_off")]
    pub prefetch: PrefetchConfig,
    /// Origin of each number: dotted key (or a prefix of keys) → origin.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

/// What a machine was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MachineClass {
    /// Servers and workstations.
    Server,
    /// Desktop computers.
    Desktop,
    /// Notebooks.
    Mobile,
    /// A machine that exists only as a simulator's configuration.
    Simulated,
}

impl MachineConfig {
    /// Number of hardware threads of the machine.
    pub fn cpus(&self) -> u32 {
        self.cores * self.threads_per_core
    }

    /// The key of a design that predicts by the addresses of instructions, if there is one.
    pub fn needs_pc(&self) -> Option<&'static str> {
        let Self { tlb, prefetch, .. } = self;
        let by_pc = tlb.size_prediction.on().filter(|prediction| prediction.index == SizeIndex::Pc);
        let predicts = by_pc.map(|_| "machine.tlb.size_prediction.index");
        tlb.stages.needs_pc().or(prefetch.tlb.needs_pc()).or(tlb.speculation.needs_pc()).or(predicts)
    }

    /// The part of the machine that kernels manage.
    pub fn resources(&self) -> MachineResources {
        MachineResources {
            frequency_mhz: self.frequency_mhz,
            memory_bytes: self.memory_bytes,
            node_bytes: self.memory.sizes_for_kernel(),
            cores: self.cores,
            cpus: self.cpus(),
            instruction_caches: self.cache.l1i.is_some(),
        }
    }
}

/// The TLBs of one core, shared by its hardware threads. Entries carry an address-space tag.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlbConfig {
    /// First-level data TLB: one array or several, each for some page sizes.
    pub l1d: Vec<TlbArrayConfig>,
    /// First-level instruction TLB.
    pub l1i: Vec<TlbArrayConfig>,
    /// Second-level TLB for data and instructions; empty if there is none.
    #[serde(default)]
    pub l2: Vec<TlbArrayConfig>,
    /// Cycles that a first-level miss waits for the second level, hit or miss.
    #[serde(default)]
    pub l2_latency_cycles: u32,
    /// Prediction of page sizes for an array of the second level that holds pages of 4 KiB and larger ones. If it is
    /// off, such an array is looked up for all sizes at once.
    #[serde(default, skip_serializing_if = "Switched::is_off")]
    pub size_prediction: Switched<SizePredictionConfig>,
    /// TLB from guest-physical to machine frames, used inside nested walks; if omitted, every such address is walked
    /// for.
    #[serde(default)]
    pub nested: Option<NestedTlbConfig>,
    /// TLB of guests' large pages, from guest-virtual to guest-physical. A hit skips the guest's tables; only the host
    /// translates the address. If omitted, walks always read the guest's tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<NestedTlbConfig>,
    /// Units between the last TLB and the walk; off by default.
    #[serde(default, skip_serializing_if = "TlbStagesConfig::is_off")]
    pub stages: TlbStagesConfig,
    /// What guesses the frames of programs' data before walks; nothing by default.
    #[serde(default, skip_serializing_if = "SpeculationConfig::is_off")]
    pub speculation: SpeculationConfig,
}

impl TlbConfig {
    /// The key of the first array whose organisation is not an entry per page, if there is one.
    pub fn organised(&self) -> Option<String> {
        let levels = [("l1d", &self.l1d), ("l1i", &self.l1i), ("l2", &self.l2)];
        levels.into_iter().find_map(|(level, arrays)| {
            let at = arrays.iter().position(|array| !array.organisation.is_of_pages())?;
            Some(format!("machine.tlb.{level}.{at}.organisation"))
        })
    }

    /// Refuses a prediction of page sizes that is impossible, or not for the second level's arrays.
    pub fn validate_size_prediction(&self) -> Result<(), EngineError> {
        let arrays: Vec<_> = self.l2.iter().map(|array| (&array.pages[..], &array.organisation)).collect();
        self.size_prediction.on().map_or(Ok(()), |prediction| prediction.validate(&arrays))
    }
}

/// One set-associative TLB array with any number of sets.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlbArrayConfig {
    /// Page sizes that it holds.
    pub pages: Vec<PageSize>,
    /// Entries of the array, a multiple of `ways`.
    pub entries: u32,
    /// Ways per set; equal to `entries` for a fully associative array.
    pub ways: u32,
    /// Replacement policy of a full set.
    #[serde(default)]
    pub policy: AssocPolicy,
    /// What an entry for pages of 4 KiB covers; entries for larger pages cover one.
    #[serde(default, skip_serializing_if = "TlbOrganisationConfig::is_of_pages")]
    pub organisation: TlbOrganisationConfig,
}
