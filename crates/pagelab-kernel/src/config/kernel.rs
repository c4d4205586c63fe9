//! Configuration of the kernels: what their paths cost, and what they do when memory runs short.

use std::collections::BTreeMap;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BlockIoConfig, FaultKind, FaultKinds, StageCost, StageCosts, StageLines, SwapConfig, TranslationCacheConfig,
};
use crate::threads::config::ThreadsConfig;
use pagelab_base::error::EngineError;
use pagelab_base::switch::Switch;
use pagelab_hardware::device::DeviceConfig;

/// Memory that a cgroup may use at least: a scan's worth of pages and a few more.
const LEAST_CGROUP_BYTES: u64 = 1 << 20;

/// A kernel preset (`presets/kernels/NAME.toml`): what the stages of a page fault cost beyond the memory
/// references that the engine replays for them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelConfig {
    /// Name of the preset.
    pub name: String,
    /// What the preset is of, in a sentence, for lists.
    pub description: String,
    /// Costs of the stages of a first touch of anonymous memory by a store.
    pub fault: StageCosts,
    /// What differs where a fault is no first touch.
    #[serde(default, skip_serializing_if = "FaultKinds::is_none")]
    pub fault_kinds: FaultKinds,
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
    pub storage: Option<DeviceConfig>,
    /// What requests to devices cost beside the devices; none: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_io: Option<BlockIoConfig>,
    /// Whether the files of the programs are in memory when a run begins. `cold` needs `storage`.
    #[serde(default)]
    pub page_cache: PageCache,
    /// What is read around a page of a file that is not in memory (`read_ahead_kb` of its device).
    pub read_ahead_bytes: Bytes,
    /// Share of scanning that is for anonymous pages, of 200 (`vm.swappiness`).
    pub swappiness: u32,
    /// Threads of each layer's kernel; one that is off sleeps for as long as a run takes.
    #[serde(default)]
    pub threads: ThreadsConfig,
    /// What page faults keep of their walks for later ones, in all layers but those whose `translation_cache` is off;
    /// none: each walks from the root, as Linux does.
    #[serde(default)]
    pub translation_cache: Option<TranslationCacheConfig>,
    /// Memory that the programs of a layer may use (`memory.max` of their cgroup); none for all of it. Needs `swap` or
    /// `storage`.
    #[serde(default)]
    pub cgroup_limit_bytes: Option<Bytes>,
    /// The LRU list that new pages begin on.
    pub new_pages: LruList,
    /// Whether reclaim heeds accesses to mappings that are read at random (MADV_RANDOM). Those to mappings that are
    /// read in sequence never count; without this, their accessed bits stay, too.
    #[serde(default = "on")]
    pub advised_recency: Switch,
    /// What leaves the TLBs when a scan takes pages away from an address space.
    #[serde(default)]
    pub reclaim_flush: ReclaimFlush,
    /// World switch from a guest to its host and back, for a fault that the host handles.
    pub vm_exit_cycles: u32,
    /// Switch of the running thread on a CPU.
    pub context_switch_cycles: u32,
    /// Time slice when several processes share a CPU.
    pub quantum_cycles: u64,
    /// Whether a thread that has waited for a device gets its CPU back as soon as the one that runs is between two
    /// accesses; `off`: when its turn comes by the time slices.
    #[serde(default = "on")]
    pub wakeup_preemption: Switch,
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

impl KernelConfig {
    /// What a stage, by its number, costs a fault of a kind; of a first touch, and as long as nothing is known, of
    /// none.
    #[inline]
    pub fn stage_cost(&self, kind: Option<FaultKind>, stage: usize) -> &StageCost {
        let of_kind = kind.and_then(|kind| self.fault_kinds.kind_costs(kind).stage(stage));
        of_kind.unwrap_or_else(|| self.fault.stage(stage))
    }

    /// The most lines of each stage that a fault of any kind touches.
    pub fn most_lines(&self) -> [StageLines; 10] {
        let mut most = self.fault.all().map(|cost| cost.lines);
        for kind in FaultKind::ALL {
            let of_kind = self.fault_kinds.costs(kind, &self.fault);
            most.iter_mut().zip(of_kind).for_each(|(most, cost)| *most = most.max(cost.lines));
        }
        most
    }
}

pub(super) fn on() -> Switch {
    Switch(true)
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
    /// Keeps it loaded; the first shootdown interrupts the CPU and makes it leave (`leave_mm`, until Linux 4.13, and
    /// later without PCIDs).
    Interrupt,
    /// Leaves it at once (`tlb_defer_switch_to_init_mm`, Linux 4.14 to 4.19 with PCIDs).
    Leave,
    /// Keeps it loaded; shootdowns interrupt the CPU only if pages of the page table were freed (Linux 4.20).
    Lazy,
}

/// What a scan of reclaim flushes of an address space that it has taken pages from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReclaimFlush {
    /// Each of the pages, as Linux does where no CPU but the scan's has run the address space (`ptep_clear_flush`).
    #[default]
    Pages,
    /// All of it, once per scan, as Linux does on x86 where others have (`arch_tlbbatch_flush`).
    Space,
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
    /// Pages that count as in use: reclaim takes them only after they have moved to the other list.
    Active,
    /// Pages that reclaim looks at, and takes unless they have been used again.
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

/// Whether programs can live within a limit of their cgroup.
pub fn check_limit(key: &str, limit: Bytes, kernel: &KernelConfig) -> Result<(), EngineError> {
    if limit.0 < LEAST_CGROUP_BYTES {
        let what = format!("{} bytes are too few for a program; allowed is {LEAST_CGROUP_BYTES} and more", limit.0);
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
