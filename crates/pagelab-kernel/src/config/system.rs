//! The virtual-memory system: layers, and the design of each.

use std::collections::BTreeMap;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fault_engine::config::FaultEngineConfig;
use crate::frames::frame_alloc::AgeingConfig;
use crate::frames::supply::FrameAllocatorConfig;
use crate::placement::PlacementConfig;
use pagelab_base::addr::{FRAME_BYTES, PageSize};
use pagelab_base::error::EngineError;
use pagelab_base::ids::LayerId;
use pagelab_base::switch::Switch;
use pagelab_tables::mmu_cache::MmuCacheKind;
use pagelab_tables::page_table::PageTableConfig;

/// A system preset (`presets/systems/NAME.toml`).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemConfig {
    /// Name of the preset.
    pub name: String,
    /// One sentence for lists: which system the preset describes.
    pub description: String,
    /// The layers, in any order; each except one names its host. Processes run on the layers that host no other: the
    /// first source on the first of these layers, and so on in turn.
    pub layers: Vec<LayerConfig>,
    /// Origin of each number: dotted key (or a prefix of keys) → origin.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

/// A kernel with its page tables, its frame allocator and its MMU caches.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerConfig {
    /// The name for keys (`system.layers.NAME`), other layers (`host`) and statistics (`layer.NAME`).
    pub name: String,
    /// Name of the layer that hosts this one; omitted for the machine's own layer.
    #[serde(default)]
    pub host: Option<String>,
    /// How the hardware translates this layer's addresses to its host's.
    #[serde(default)]
    pub host_mode: HostMode,
    /// When the host allocates frames for this guest's memory.
    #[serde(default)]
    pub backing: Backing,
    /// Page-table design of the layer's address spaces, with its parameters.
    pub page_table: PageTableConfig,
    /// MMU cache for walks of its page tables; its geometry is the machine's (`machine.mmu_cache`).
    pub mmu_cache: MmuCacheKind,
    /// Largest page with which this layer's kernel maps anonymous memory.
    pub page_size: PageSize,
    /// Which mappings get pages above 4 KiB (`/sys/kernel/mm/transparent_hugepage/enabled`).
    #[serde(default)]
    pub large_pages: LargePages,
    /// A power of two to whose multiples the program break (`brk(2)`) is rounded up: the heap then grows in such steps,
    /// as with `glibc.malloc.hugetlb=1` in steps of a huge page. By default, the heap ends where the trace says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brk_alignment_bytes: Option<Bytes>,
    /// Sizes of the folios with which the kernel may map anonymous memory by 4 KiB pages, in mappings that get large
    /// pages (`/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled`): powers of two from 16 KiB to 1 MiB.
    #[serde(default)]
    pub folios: Vec<Bytes>,
    /// Sizes of the folios in which the page cache may hold files: powers of two from 16 KiB to 1 MiB. In Linux, the
    /// file system chooses them.
    #[serde(default)]
    pub file_folios: Vec<Bytes>,
    /// Placement policy: which of the free frames its programs get.
    #[serde(default)]
    pub placement: PlacementConfig,
    /// Hardware that maps pages of new memory without the kernel. By default, the walker raises a fault for each page.
    #[serde(default)]
    pub fault_engine: Option<FaultEngineConfig>,
    /// The sources whose processes have enabled `fault_engine`, named as in `placement_for`; all by default.
    #[serde(default)]
    pub fault_engine_for: Option<Vec<String>>,
    /// Pages of anonymous memory that a fault of this layer's kernel maps; by default `kernel.pages_per_fault`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages_per_fault: Option<u32>,
    /// Whether the layer's kernel has the translation cache of `kernel.translation_cache`, if there is one.
    #[serde(default = "super::kernel::on")]
    pub translation_cache: Switch,
    /// Whether the layer's kernel has a swap area as `kernel.swap` describes it, if that is set. A host swaps out
    /// memory of its guests.
    #[serde(default = "super::kernel::on")]
    pub swap: Switch,
    /// The sources to whose processes `placement` applies, named as in the statistics (`source.0`, `co_runner.1`,
    /// `arrivals.0`); all by default. Other processes get frames in the ordinary way.
    #[serde(default)]
    pub placement_for: Option<Vec<String>>,
    /// The allocator of the layer's physical memory.
    #[serde(default)]
    pub frame_allocator: FrameAllocatorConfig,
    /// The state of the memory when the first program starts; unused memory by default.
    #[serde(default)]
    pub age: Option<AgeingConfig>,
    /// Physical memory of the layer. By default, the bottom layer has the whole machine, and guests have equal shares
    /// of their host's memory, minus a sixteenth for the host's own tables.
    #[serde(default)]
    pub memory_bytes: Option<Bytes>,
    /// Contiguous physical memory that is reserved at boot for a direct segment: of the first program with a large
    /// mapping, or of a host's guests. By default, the layer translates by page tables alone.
    #[serde(default)]
    pub direct_segment_bytes: Option<Bytes>,
    /// Number of leaf tables that the kernel places side by side: those of as many regions of 2 MiB, from a block of
    /// contiguous frames that the first of them reserves; a power of two from 2 to 64. By default, each table is a
    /// frame of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contiguous_tables: Option<u32>,
    /// A table of machine frames with which the cores of guests continue while they walk; only for the machine's own
    /// layer.
    #[serde(default)]
    pub speculative_table: Option<SpeculativeTableConfig>,
    /// Size of the inverted shadow page table of the guests, a power of two; a page takes 16 bytes. Only for the
    /// machine's own layer, if it has guests with `host_mode = "inverted-shadow"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inverted_shadow_bytes: Option<Bytes>,
    /// Tags of machine frames, with which walks of `page_table.kind = "do-it-yourself"` are checked and need no walk of
    /// the host; only for the machine's own layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_tags: Option<FrameTagsConfig>,
}

/// Tags of machine frames, against which walks of programs' own structures are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameTagsConfig {
    /// Entries of each core's tag cache, each a line of 16 tags; a multiple of `cache_ways`.
    pub cache_entries: u32,
    /// Ways per set of the tag cache.
    pub cache_ways: u32,
    /// Cycles of a look-up of the tag cache.
    pub latency_cycles: u32,
    /// Whether accesses wait for the check.
    pub check: TagCheck,
    /// Size of the aligned blocks in which the hypervisor gives a guest its memory, a power of two from 4096 to 1 GiB.
    pub grant_bytes: Bytes,
}

/// Whether accesses wait for the check of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TagCheck {
    /// The data are fetched during the check.
    Overlapped,
    /// The data are fetched after the check.
    Waited,
}

/// Speculative inverted shadow page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeTableConfig {
    /// Size of the table, a power of two; a page takes 16 bytes.
    pub table_bytes: Bytes,
    /// Cycles of a pipeline flush after a wrong speculation.
    pub flush_cycles: u32,
}

impl SystemConfig {
    /// Layers that host no other, by number; sources are assigned to them in turn.
    pub fn tops(&self) -> Vec<LayerId> {
        let hosts = |layer: &LayerConfig| self.layers.iter().any(|guest| guest.host.as_ref() == Some(&layer.name));
        LayerId::all(self.layers.len()).filter(|&layer| !hosts(&self.layers[layer])).collect()
    }

    /// Refuses names in a layer's settings that match no source on the layer; `sources` are the names of all sources,
    /// in order.
    pub fn check_names(&self, sources: &[String]) -> Result<(), EngineError> {
        for (index, layer) in self.layers.iter().enumerate() {
            self.check_names_of(index, layer, "placement_for", layer.placement_for.as_deref(), sources)?;
            self.check_names_of(index, layer, "fault_engine_for", layer.fault_engine_for.as_deref(), sources)?;
        }
        Ok(())
    }

    fn check_names_of(
        &self,
        index: usize,
        layer: &LayerConfig,
        key: &str,
        names: Option<&[String]>,
        sources: &[String],
    ) -> Result<(), EngineError> {
        let tops = self.tops();
        let here = |nth: &usize| tops[nth % tops.len()].index() == index;
        let here: Vec<&str> = (0..sources.len()).filter(here).map(|nth| sources[nth].as_str()).collect();
        let there = if here.is_empty() { "none".to_owned() } else { here.join(", ") };
        match names.unwrap_or_default().iter().find(|name| !here.contains(&name.as_str())) {
            Some(name) => Err(EngineError::config(
                format!("system.layers.{}.{key}", layer.name),
                format!("no source on this layer is `{name}`; the sources here: {there}"),
            )),
            None => Ok(()),
        }
    }
}

impl LayerConfig {
    /// Order of the largest block that the layer may request from its allocator.
    pub fn largest_block(&self) -> u32 {
        let of_tables = self.contiguous_tables.map_or(0, u32::ilog2);
        let table = self.page_table.largest_block().max(self.page_table.optional_block());
        self.page_size.order().max(table).max(of_tables)
    }

    /// The sizes of [`Self::folios`], or of the blocks of eager paging, as orders (powers of two of 4 KiB), ascending.
    pub fn folio_orders(&self) -> Vec<u32> {
        self.placement.block_order().map_or_else(|| orders(&self.folios), |most| (1..=most).collect())
    }

    /// The sizes of [`Self::file_folios`] likewise.
    pub fn file_folio_orders(&self) -> Vec<u32> {
        orders(&self.file_folios)
    }
}

fn orders(folios: &[Bytes]) -> Vec<u32> {
    let mut orders: Vec<u32> = folios.iter().map(|bytes| (bytes.0 / FRAME_BYTES).ilog2()).collect();
    orders.sort_unstable();
    orders.dedup();
    orders
}

/// How a guest's addresses are translated to machine addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostMode {
    /// The walker reads the guest's table, and translates each of its addresses by the host's.
    #[default]
    Nested,
    /// Shadow page tables: the host keeps its own tables for the guest's address spaces. Only for guests of the bottom
    /// layer that host no other.
    Shadow,
    /// An inverted shadow page table: the host keeps one hashed table for all of its guests
    /// (`inverted_shadow_bytes`), which the walker reads instead of theirs. For the same guests.
    InvertedShadow,
}

impl HostMode {
    /// Whether the walker reads tables that the host keeps for the guest, so that the guest's changes are exits.
    pub fn is_shadowed(self) -> bool {
        match self {
            Self::Nested => false,
            Self::Shadow | Self::InvertedShadow => true,
        }
    }
}

/// When a host allocates frames for the memory of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// At the first touch in the guest, by a fault in the host, as for a virtual machine that has just started.
    #[default]
    OnDemand,
    /// Before the run, as for a virtual machine that has already used all of its memory. A first touch costs the host
    /// nothing.
    Present,
}

/// Which mappings get pages above 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LargePages {
    /// All except those with MADV_NOHUGEPAGE.
    #[default]
    Always,
    /// Those with MADV_HUGEPAGE, and explicit ones (MAP_HUGETLB).
    Madvise,
}
