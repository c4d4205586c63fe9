//! Configuration of the kernels: costs of their paths, and behaviour when memory runs short.

use std::collections::BTreeMap;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BlockIoConfig, FaultKind, FaultKinds, HeldLocksConfig, KernelCodeConfig, MappingCallConfig, StageCost, StageCosts,
    StageLines, SwapConfig, TranslationCacheConfig, VmaFallbacks,
};
use crate::frames::frame_alloc::PerCpuLists;
use crate::scheduler::SchedulerConfig;
use crate::threads::config::ThreadsConfig;
use pagelab_base::error::EngineError;
use pagelab_base::lock_kind::LockKind;
use pagelab_base::switch::Switch;
use pagelab_hardware::device::DeviceConfig;

/// Smallest memory limit of a cgroup: pages for one scan, and a few more.
const LEAST_CGROUP_BYTES: u64 = 1 << 20;

/// A kernel preset (`presets/kernels/NAME.toml`): costs of the stages of a page fault, beyond the memory references
/// that the engine simulates.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelConfig {
    /// Name of the preset.
    pub name: String,
    /// One sentence for lists: which kernel the preset describes.
    pub description: String,
    /// Costs of the stages of a first touch of anonymous memory by a store.
    pub fault: StageCosts,
    /// Different costs of faults that are not first touches.
    #[serde(default, skip_serializing_if = "FaultKinds::is_none")]
    pub fault_kinds: FaultKinds,
    /// The lock that a fault holds while it uses the mappings.
    pub fault_lock: FaultLock,
    /// With `fault_lock = "vma"`: by the rules of which kernel faults fall back to the lock of the address space.
    /// Without it, every fault is served under the lock of its VMA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vma_fallbacks: Option<VmaFallbacks>,
    /// In which order tasks that spin for a lock get it.
    #[serde(default, skip_serializing_if = "SpinLocks::is_default")]
    pub spin_locks: SpinLocks,
    /// Costs of batches of pages under the locks of free pages and of the LRU lists, which faults, scans and mapping
    /// calls then hold meanwhile. Without it, taking one of these locks costs only references to its line, and no one
    /// waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_locks: Option<HeldLocksConfig>,
    /// Costs of mapping calls, and whether they hold the lock of the address space meanwhile. Without it, they take
    /// effect at once and cost only their TLB shootdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping_calls: Option<MappingCallConfig>,
    /// The data structure that finds the VMA of an address.
    pub vma_index: VmaIndex,
    /// Whether reads of untouched private anonymous memory map the zero page. With `off`, each such page gets a zeroed
    /// frame.
    pub zero_page: Switch,
    /// Size of the window around a read fault of a file in which pages of the page cache are mapped as well (Linux
    /// `fault_around_bytes`); 4096 for none.
    pub fault_around_bytes: Bytes,
    /// Pages of anonymous memory that a fault maps: the one at the address, and the next ones in its mapping. A layer
    /// may have a number of its own.
    pub pages_per_fault: u32,
    /// The order in which a fault clears or copies the small pages of a large one.
    #[serde(default, skip_serializing_if = "ClearingOrder::is_default")]
    pub clearing_order: ClearingOrder,
    /// Pages that a CPU batches before it adds them to the LRU lists under their lock.
    pub lru_batch: u32,
    /// With several CPUs: mapped pages that a CPU counts before it adds them to the counters of the address space.
    /// Default 64 (`TASK_RSS_EVENTS_THRESH`, until Linux 6.1; there, each thread counts its own).
    #[serde(default = "default_rss_batch")]
    pub rss_batch: u32,
    /// Pages that a mapping call takes from the LRU lists at a time, under their lock, as it frees them. Default 32
    /// (`SWAP_CLUSTER_MAX` in `release_pages`, until Linux 6.8).
    #[serde(default = "default_freed_batch")]
    pub freed_batch: u32,
    /// By the rules of which kernel a CPU's lists of free pages exchange pages with their zone, unless
    /// `system.layers.NAME.frame_allocator.pcp.rules` says otherwise for a layer. Default `linux-4.19`.
    #[serde(default)]
    pub per_cpu_lists: PerCpuLists,
    /// Pages that a CPU charges to the memory cgroup at a time.
    pub charge_batch: u32,
    /// Cycles of a fork per page that the child shares.
    pub fork_page_cycles: u32,
    /// Swap area, for when memory runs short. Without it, a program that needs more memory ends the run.
    #[serde(default)]
    pub swap: Option<SwapConfig>,
    /// Device that files are read from and written back to. Without it, all file pages stay in memory.
    #[serde(default)]
    pub storage: Option<DeviceConfig>,
    /// Costs of requests to devices, besides the devices' own time. Without it, they cost nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_io: Option<BlockIoConfig>,
    /// Whether the files of the programs are in memory when a run begins. `cold` needs `storage`.
    #[serde(default)]
    pub page_cache: PageCache,
    /// Bytes that are read around a page of a file that is not in memory (`read_ahead_kb` of its device).
    pub read_ahead_bytes: Bytes,
    /// Share of anonymous pages in scanning, out of 200 (`vm.swappiness`).
    pub swappiness: u32,
    /// Kernel threads of each layer. A thread that is off sleeps for the whole run.
    #[serde(default)]
    pub threads: ThreadsConfig,
    /// Cache of page-table entries for the walks of page faults, in all layers whose `translation_cache` is on. Without
    /// it, each of these walks begins at the root, as in Linux.
    #[serde(default)]
    pub translation_cache: Option<TranslationCacheConfig>,
    /// Memory limit of the programs of a layer (`memory.max` of their cgroup); no limit by default. Needs `swap` or
    /// `storage`.
    #[serde(default)]
    pub cgroup_limit_bytes: Option<Bytes>,
    /// The LRU list that new pages are added to.
    pub new_pages: LruList,
    /// Whether accesses to mappings with MADV_RANDOM count for reclaim. Accesses to mappings that are read sequentially
    /// never count. With `off`, their accessed bits are also left set.
    #[serde(default = "on")]
    pub advised_recency: Switch,
    /// What reclaim flushes from the TLBs when a scan takes pages from an address space.
    #[serde(default)]
    pub reclaim_flush: ReclaimFlush,
    /// Cycles of the world switch from a guest to its host and back, for a fault that the host handles.
    pub vm_exit_cycles: u32,
    /// Cycles of switching the running thread of a CPU.
    pub context_switch_cycles: u32,
    /// Cycles of a time slice, if several threads share a CPU: EEVDF's slice, CFS's minimum granularity, or the turn of
    /// a source whose threads run in recorded order.
    pub quantum_cycles: u64,
    /// How the threads that share a CPU take turns.
    #[serde(default, skip_serializing_if = "SchedulerConfig::is_recorded")]
    pub scheduler: SchedulerConfig,
    /// Whether a thread that has waited for a device may preempt the running thread as soon as that is between two
    /// accesses: if the scheduler lets it, and always in recorded order. With `off`, it waits for its time slice.
    #[serde(default = "on")]
    pub wakeup_preemption: Switch,
    /// Cycles that the initiator of a TLB shootdown waits for each other CPU that runs the address space.
    pub shootdown_ipi_cycles: u32,
    /// Cycles of invalidating one page in the local TLB (INVLPG).
    pub invalidate_page_cycles: u32,
    /// Cycles of flushing all entries of one address space on a CPU (write of CR3, INVPCID).
    pub flush_space_cycles: u32,
    /// Number of address spaces whose translations a CPU keeps (`TLB_NR_DYN_ASIDS`). With 0, every switch between
    /// address spaces flushes.
    pub pcids: u32,
    /// Effect of shootdowns on idle CPUs.
    pub idle_tlb: IdleTlb,
    /// Largest size of a stack mapping (MAP_GROWSDOWN).
    pub stack_limit_bytes: Bytes,
    /// The code of the kernels' paths, on machines with instruction caches.
    #[serde(default, skip_serializing_if = "KernelCodeConfig::is_default")]
    pub code: KernelCodeConfig,
    /// Origin of each number: dotted key (or a prefix of keys) → origin.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
}

impl KernelConfig {
    /// Cost of a stage, by its number, for a fault of a kind; `None` for a first touch, and while the kind is not
    /// known.
    #[inline]
    pub fn stage_cost(&self, kind: Option<FaultKind>, stage: usize) -> &StageCost {
        let of_kind = kind.and_then(|kind| self.fault_kinds.kind_costs(kind).stage(stage));
        of_kind.unwrap_or_else(|| self.fault.stage(stage))
    }

    /// Refuses rules for locks that faults do not take.
    pub fn check_vma_fallbacks(&self) -> Result<(), EngineError> {
        if self.vma_fallbacks.is_some() && self.fault_lock != FaultLock::Vma {
            let what = "faults fall back from the locks of VMAs, which they do not take: set kernel.fault_lock=vma";
            return Err(EngineError::config("kernel.vma_fallbacks", what));
        }
        Ok(())
    }

    /// For each stage, the most lines that a fault of any kind touches.
    pub fn most_lines(&self) -> [StageLines; 10] {
        let mut most = self.fault.all().map(|cost| cost.lines);
        for kind in FaultKind::ALL {
            let of_kind = self.fault_kinds.costs(kind, &self.fault);
            most.iter_mut().zip(of_kind).for_each(|(most, cost)| *most = most.max(cost.lines));
        }
        most
    }
}

fn default_rss_batch() -> u32 {
    64
}

fn default_freed_batch() -> u32 {
    32
}

pub(super) fn on() -> Switch {
    Switch(true)
}

/// The lock that a page fault holds, for reading, while it uses the mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultLock {
    /// The lock of the whole address space (`mmap_sem`, `mmap_lock`): the faults of all threads write its line.
    Mm,
    /// The lock of the VMA (`lock_vma_under_rcu`, Linux 6.4).
    Vma,
}

impl FaultLock {
    /// Its kind in statistics.
    pub fn kind(self) -> LockKind {
        match self {
            Self::Mm => LockKind::MmapRead,
            Self::Vma => LockKind::Vma,
        }
    }
}

/// Who gets a spin lock that is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpinLocks {
    /// All tasks that wait for it try to take it, and each refers to its line.
    #[default]
    Unordered,
    /// The task that has spun for it longest; the others do not refer to its line (`queued_spin_lock_slowpath`, on x86
    /// since Linux 4.2).
    Queued,
}

impl SpinLocks {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The order in which a fault clears or copies the small pages of a large page or a folio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClearingOrder {
    /// By address, the whole page in one operation. Linux did so page by page until 4.13.
    #[default]
    Ascending,
    /// From both ends towards the page at the fault's address, which comes last, with one operation per small page
    /// (`process_huge_page`, Linux 4.14 for clearing and 4.19 for copying). Pages of 1 GiB are cleared by address.
    TowardsFault,
}

impl ClearingOrder {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What an idle CPU does with the address space that it ran last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IdleTlb {
    /// Keeps it loaded; the first shootdown interrupts the CPU and makes it leave (`leave_mm`, until Linux 4.13, and
    /// later without PCIDs).
    Interrupt,
    /// Leaves it at once (`tlb_defer_switch_to_init_mm`, Linux 4.14 to 4.19 with PCIDs).
    Leave,
    /// Keeps it loaded; shootdowns interrupt the CPU only if pages of the page table were freed (Linux 4.20).
    Lazy,
}

/// What reclaim flushes after a scan has taken pages from an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReclaimFlush {
    /// Each of these pages, as Linux does if no CPU except the scanning one has run the address space
    /// (`ptep_clear_flush`).
    #[default]
    Pages,
    /// The whole space once per scan, as Linux does on x86 if other CPUs have run it (`arch_tlbbatch_flush`).
    Space,
}

/// The page cache at the start of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PageCache {
    /// Every page of a file is in memory.
    #[default]
    Warm,
    /// No page of a file is in memory.
    Cold,
}

/// A list of pages by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LruList {
    /// Pages in use: reclaim takes them only after they have moved to the inactive list.
    Active,
    /// Candidates of reclaim: it takes them unless they have been used again.
    Inactive,
}

/// The data structure that finds a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VmaIndex {
    /// A binary tree of the VMAs themselves (until Linux 6.0).
    RbTree,
    /// A B-tree with up to 10 ranges per inner node and 16 per leaf (Linux 6.1).
    MapleTree,
}

/// Checks that programs can run within a memory limit of their cgroup.
pub fn check_limit(key: &str, limit: Bytes, kernel: &KernelConfig) -> Result<(), EngineError> {
    if limit.0 < LEAST_CGROUP_BYTES {
        let what = format!("{} bytes are too few for a program; allowed are {LEAST_CGROUP_BYTES} and more", limit.0);
        return Err(EngineError::config(key, what));
    }
    if kernel.swap.is_none() && kernel.storage.is_none() {
        let example = SwapConfig::example();
        let what = format!(
            "a limit needs a swap device to make room with: set kernel.swap, for example `--set 'kernel.swap={example}'`"
        );
        return Err(EngineError::config(key, what));
    }
    Ok(())
}
