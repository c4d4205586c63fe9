//! The virtual-memory system: layers and what each of them uses, and what the kernel's paths cost.

use std::collections::BTreeMap;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ElasticCuckooConfig, HashedConfig, Switch, TranslationCacheConfig};
use crate::base::addr::{FRAME_BYTES, PageSize};
use crate::kernel::frames::frame_alloc::{AgeingConfig, PageAllocatorConfig};
use crate::kernel::placement::PlacementConfig;

/// A system preset (`presets/systems/NAME.toml`).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemConfig {
    pub name: String,
    pub description: String,
    /// The layers, in any order; each but one names its host. Processes run on the layers that host nobody, the
    /// first source on the first of them, and so on in turn.
    pub layers: Vec<LayerConfig>,
    /// Where each number comes from: dotted key (or a prefix of keys) → origin.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

/// A kernel with its page tables, its frame allocator and its MMU caches.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerConfig {
    pub name: String,
    /// Name of the layer that hosts this one; none for the machine's own.
    #[serde(default)]
    pub host: Option<String>,
    /// How the hardware gets from this layer's addresses to its host's.
    #[serde(default)]
    pub host_mode: HostMode,
    pub page_table: PageTableConfig,
    pub mmu_cache: MmuCacheKind,
    /// Largest page that this layer's kernel maps anonymous memory with.
    pub page_size: PageSize,
    /// Which mappings get pages above 4 KiB (`/sys/kernel/mm/transparent_hugepage/enabled`).
    #[serde(default)]
    pub large_pages: LargePages,
    /// Sizes of the folios that the kernel may map anonymous memory with by 4 KiB pages, in the mappings that get large
    /// pages (`/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled`): powers of two from 16 KiB to 1 MiB.
    #[serde(default)]
    pub folios: Vec<Bytes>,
    /// Sizes of the folios that the page cache may hold files in: powers of two from 16 KiB to 1 MiB. Which there are is the
    /// file system's choice in Linux.
    #[serde(default)]
    pub file_folios: Vec<Bytes>,
    /// Which of the frames that are free its programs get.
    #[serde(default)]
    pub placement: PlacementConfig,
    /// Who hands out the layer's physical memory.
    #[serde(default)]
    pub frame_allocator: FrameAllocatorConfig,
    /// The state of the memory when the first program starts; none for memory that nobody has used.
    #[serde(default)]
    pub age: Option<AgeingConfig>,
    /// Physical memory of the layer; none for what is left of its host's (an equal share among guests, less a
    /// sixteenth for the host's own tables), and the whole machine for the bottom layer.
    #[serde(default)]
    pub memory_bytes: Option<Bytes>,
    /// Contiguous physical memory that is set aside at boot for a direct segment: of the first program with a large mapping,
    /// or of a host's guests; none for a layer that translates by its page tables alone.
    #[serde(default)]
    pub direct_segment_bytes: Option<Bytes>,
    /// A table of machine frames that the cores of guests go on with while they walk; of the machine's own layer.
    #[serde(default)]
    pub speculative_table: Option<SpeculativeTableConfig>,
}

/// Speculative inverted shadow page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeTableConfig {
    /// A power of two; a page has 16 bytes.
    pub table_bytes: Bytes,
    /// Cycles of a pipeline flush, where the table was wrong.
    pub flush_cycles: u32,
}

impl LayerConfig {
    /// Order of the largest block that the layer may ask its allocator for at once.
    pub fn largest_block(&self) -> u32 {
        match self.page_table {
            // A way of 1 GiB is the largest.
            PageTableConfig::ElasticCuckoo(_) => PageSize::Size1G.order(),
            _ => self.page_size.order(),
        }
    }

    /// The sizes of [`Self::folios`], or of the blocks of eager paging, as powers of two of 4 KiB, ascending.
    pub fn folio_orders(&self) -> Vec<u32> {
        self.placement.block_order().map_or_else(|| orders(&self.folios), |most| (1..=most).collect())
    }

    /// The same of [`Self::file_folios`].
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
    /// The walker reads the guest's table and translates each of its addresses by the host's.
    #[default]
    Nested,
    /// The host keeps tables of its own for the guest's address spaces (shadow page tables). For guests of the bottom layer
    /// that host nobody.
    Shadow,
}

/// Which mappings get pages above 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LargePages {
    /// All but those that `madvise(2)` exempts (MADV_NOHUGEPAGE).
    #[default]
    Always,
    /// Those that `madvise(2)` asks for (MADV_HUGEPAGE), and explicit ones (MAP_HUGETLB).
    Madvise,
}

/// Page-table design of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PageTableConfig {
    /// x86-64 radix tree.
    Radix {
        /// 4 (48-bit virtual addresses) or 5 (57-bit).
        levels: u8,
    },
    /// One hashed table for all address spaces, whose collisions hang on chains.
    HashedChained(HashedConfig),
    /// One hashed table for all address spaces, with linear probing.
    HashedOpen(HashedConfig),
    /// The same with the entries of several pages in a slot.
    HashedClustered(HashedConfig),
    /// The same with the entries of 8 pages and their tag in a line.
    HashedCompact(HashedConfig),
    /// One hashed table for all address spaces, with two groups of eight slots for each page.
    HashedPower(HashedConfig),
    /// A hashed table an address space, with three places for a line of entries, that grows step by step.
    ElasticCuckoo(ElasticCuckooConfig),
    /// x86-64 radix tree with pairs of levels in one table each.
    Flattened {
        #[serde(default)]
        merge: MergedLevels,
    },
    /// Flat array indexed by guest frame number; for hosts only, with 4 KiB pages.
    Linear,
}

/// Levels of a radix tree that are one table of 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MergedLevels {
    /// 4 with 3, and 2 with 1.
    #[default]
    #[serde(rename = "l4l3+l2l1")]
    UpperAndLower,
    #[serde(rename = "l4l3")]
    Upper,
    #[serde(rename = "l3l2")]
    Middle,
    #[serde(rename = "l2l1")]
    Lower,
}

impl MergedLevels {
    /// Whether a table of this level is one with those below it.
    pub fn begin_at(self, level: u8) -> bool {
        match self {
            Self::UpperAndLower => level == 4 || level == 2,
            Self::Upper => level == 4,
            Self::Middle => level == 3,
            Self::Lower => level == 2,
        }
    }
}

impl PageTableConfig {
    /// The table of the kernel's direct map: designs without large pages leave it to a radix tree.
    pub fn of_kernel(&self) -> Self {
        match *self {
            Self::Radix { levels } => Self::Radix { levels },
            _ => Self::Radix { levels: 4 },
        }
    }
}

/// Frame allocator of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FrameAllocatorConfig {
    /// One buddy allocator over all memory.
    Buddy,
    /// Linux's: NUMA nodes, zones, migrate types, lists of free pages a CPU, watermarks.
    Linux(PageAllocatorConfig),
}

impl Default for FrameAllocatorConfig {
    fn default() -> Self {
        Self::Linux(PageAllocatorConfig::default())
    }
}

/// MMU cache of a layer; its geometry is the machine's (`machine.mmu_cache`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MmuCacheKind {
    /// Every walk reads every level.
    None,
    /// Per-level arrays tagged by virtual-address prefix, longest match (Intel).
    PagingStructure,
    /// Per-level arrays whose entries of level 2 stand for several that point to adjacent leaf tables.
    Coalesced,
    /// One array tagged by the physical address of the entry (AMD).
    PageWalkCache,
    /// One for all layers that choose it, tagged by the machine address of the entry (AMD's nested paging).
    SharedPageWalkCache,
    /// One array of entries of all upper levels, tagged by virtual-address prefix, longest match.
    Unified,
    /// Unlimited and always hit: a walk reads its leaf only, at the cost of a paging-structure look-up.
    Perfect,
}

/// A kernel preset (`presets/kernels/NAME.toml`): what the stages of a page fault cost beyond the memory
/// references that the engine replays for them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelConfig {
    pub name: String,
    pub description: String,
    pub fault: StageCosts,
    /// What a fault holds while it relies on the mappings.
    pub fault_lock: FaultLock,
    /// What finds the VMA of an address.
    pub vma_index: VmaIndex,
    /// Whether reads of untouched private anonymous memory map the zero page; `off`: a zeroed frame of their own.
    pub zero_page: Switch,
    /// Size of the window around a read fault of a file whose pages are mapped with it if the page cache holds them
    /// (Linux `fault_around_bytes`); 4096 for none.
    pub fault_around_bytes: Bytes,
    /// Pages of anonymous memory that a fault maps: the one at the address and those that follow in its mapping.
    pub pages_per_fault: u32,
    /// Pages that a CPU gathers before it puts them on the LRU lists under their lock.
    pub lru_batch: u32,
    /// Pages that a CPU charges to the memory cgroup in one go.
    pub charge_batch: u32,
    /// Cycles of a fork for each page that the child shares.
    pub fork_page_cycles: u32,
    /// Where pages go when memory runs short; none: a program that needs more ends the run.
    #[serde(default)]
    pub swap: Option<SwapConfig>,
    /// Where the pages of files come from, and go when memory runs short; none: they are in memory and stay there.
    #[serde(default)]
    pub storage: Option<StorageConfig>,
    /// Whether the files of the programs are in memory when a run begins. `cold` needs `storage`.
    #[serde(default)]
    pub page_cache: PageCache,
    /// What is read around a page of a file that is not in memory (`read_ahead_kb` of its device).
    pub read_ahead_bytes: Bytes,
    /// Share of scanning that is for anonymous pages, of 200 (`vm.swappiness`).
    pub swappiness: u32,
    /// Whether a kernel thread makes room before a fault must.
    pub kswapd: Switch,
    /// The thread that puts large pages in the place of small ones, in layers with pages above 4 KiB; none: it sleeps for as
    /// long as a run takes.
    #[serde(default)]
    pub khugepaged: Option<KhugepagedConfig>,
    /// What page faults keep of their walks for later ones, in all layers; none: each walks from the root, as Linux does.
    #[serde(default)]
    pub translation_cache: Option<TranslationCacheConfig>,
    /// Memory that the programs of a layer may use (`memory.max` of their cgroup); none for all of it. Needs `swap` or
    /// `storage`.
    #[serde(default)]
    pub cgroup_limit_bytes: Option<Bytes>,
    /// The LRU list that new pages begin on.
    pub new_pages: LruList,
    /// World switch from a guest to its host and back, for a fault that the host handles.
    pub vm_exit_cycles: u32,
    /// Switch of the running thread on a CPU.
    pub context_switch_cycles: u32,
    /// Time slice when several processes share a CPU.
    pub quantum_cycles: u64,
    /// Cycles that the initiator of a TLB shootdown waits for each other CPU that runs the address space.
    pub shootdown_ipi_cycles: u32,
    /// Cycles of invalidating one page in the local TLB (INVLPG).
    pub invalidate_page_cycles: u32,
    /// Cycles of flushing what a CPU holds of one address space (CR3 written, INVPCID).
    pub flush_space_cycles: u32,
    /// Address spaces that a CPU holds translations of (`TLB_NR_DYN_ASIDS`); 0: every switch between address spaces
    /// flushes.
    pub pcids: u32,
    /// What shootdowns do to CPUs that are idle.
    pub idle_tlb: IdleTlb,
    /// How far a stack mapping (MAP_GROWSDOWN) may grow.
    pub stack_limit_bytes: Bytes,
    /// Where each number comes from: dotted key (or a prefix of keys) → origin.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

/// What a page fault holds while it relies on the mappings, for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultLock {
    /// The lock of the whole address space (`mmap_sem`, `mmap_lock`): a line that the faults of all threads write.
    Mm,
    /// The VMA's own (`lock_vma_under_rcu`, Linux 6.4).
    Vma,
}

/// What an idle CPU does with the address space that it ran last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IdleTlb {
    /// Keeps it loaded; the first shootdown interrupts the CPU and makes it leave (`leave_mm`, until Linux 4.13, and later
    /// without PCIDs).
    Interrupt,
    /// Leaves it at once (`tlb_defer_switch_to_init_mm`, Linux 4.14 to 4.19 with PCIDs).
    Leave,
    /// Keeps it loaded; shootdowns interrupt the CPU only if pages of the page table were freed (Linux 4.20).
    Lazy,
}

/// A swap area and the device that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwapConfig {
    pub size_bytes: Bytes,
    /// Cycles from a request for a page to its answer.
    pub read_cycles: u64,
    pub write_cycles: u64,
    /// Requests that the device serves at a time.
    pub queue_depth: u32,
}

/// The device that files are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageConfig {
    /// Cycles from a request to its answer, for a page or several that follow each other.
    pub read_cycles: u64,
    pub write_cycles: u64,
    /// Requests that the device serves at a time.
    pub queue_depth: u32,
}

/// What khugepaged does (`/sys/kernel/mm/transparent_hugepage/khugepaged`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KhugepagedConfig {
    /// Cycles between two scans (`scan_sleep_millisecs`, 10 s in Linux).
    pub scan_sleep_cycles: u64,
    /// 4 KiB pages that it looks at each time (4096 in Linux).
    pub pages_to_scan: u32,
    /// Pages of 512 that may be missing (511 in Linux).
    pub max_ptes_none: u32,
}

/// The page cache at the start of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PageCache {
    /// Every page of a file is in memory.
    #[default]
    Warm,
    /// None is.
    Cold,
}

/// A list of pages by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LruList {
    Active,
    Inactive,
}

/// How the kernel finds a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VmaIndex {
    /// A binary tree of the VMAs themselves (until Linux 6.0).
    RbTree,
    /// A tree of nodes with up to 10 ranges and 16 leaves each (Linux 6.1).
    MapleTree,
}

/// Costs of the stages of a page fault.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageCosts {
    /// Exception, register save, swapgs, page-fault handler prologue.
    pub entry: StageCost,
    /// Lock and VMA look-up.
    pub lookup: StageCost,
    /// Software walk of the page table, building the tables that are missing.
    pub walk: StageCost,
    /// Frame allocation.
    pub allocation: StageCost,
    /// Zeroing of the frame or copying of a page (the bulk accesses come on top, through the caches).
    pub zeroing: StageCost,
    /// Charge to the memory cgroup.
    pub charge: StageCost,
    /// Reverse map.
    pub rmap: StageCost,
    /// Queueing for the LRU lists.
    pub lru: StageCost,
    /// Page-table lock, PTE and counters.
    pub install: StageCost,
    /// Unlock and return from the exception.
    #[serde(rename = "return")]
    pub exit: StageCost,
}

impl StageCosts {
    /// In the order of [`Stage`](crate::kernel::fault::stage::Stage).
    pub fn all(&self) -> [StageCost; 10] {
        let Self { entry, lookup, walk, allocation, zeroing, charge, rmap, lru, install, exit } = *self;
        [entry, lookup, walk, allocation, zeroing, charge, rmap, lru, install, exit]
    }
}

/// What a stage costs beyond its memory references.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageCost {
    pub instructions: u32,
    /// Cycles, instructions included.
    pub cycles: u32,
}
