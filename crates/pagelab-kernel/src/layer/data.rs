//! Addresses of the kernel's own objects: lines that fault stages and kernel threads touch.

use super::code::CodeMemory;
use super::fault_locks::VmaLocks;
use super::requests::RequestMemory;
use super::stage_lines::LineMemory;
use crate::reclaim::GroupId;
use pagelab_base::addr::{LINE_BYTES, Pfn, PhysAddr};
use pagelab_base::ids::CpuId;

/// Number of memory cgroups whose lines, two each, fit into the frame that all CPUs share; further cgroups share lines.
const GROUPS_A_FRAME: u64 = 31;

/// A CPU's own data in a kernel.
#[derive(Clone)]
pub struct CpuData {
    /// The frame with its stack and per-CPU lists.
    pub(super) frame: Pfn,
    /// Pages in its batch for the LRU lists.
    pub lru: Vec<Pfn>,
    /// Mapped pages that it has counted and not yet added to the counters of an address space.
    pub counted: u32,
    /// Remaining pages of its last charge to a memory cgroup.
    pub charged: u32,
    /// The group that was charged.
    pub charged_to: GroupId,
}

/// Lines of a CPU's own data, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuLine {
    /// Saved registers: 168 bytes from here (`struct pt_regs`).
    Stack = 0,
    /// Lists of free pages.
    FreeLists = 4,
    /// Batch of pages for the LRU lists: two lines.
    Lru = 5,
    /// Stock of pages charged to the memory cgroup in advance.
    Charge = 8,
    /// Requests to devices (`struct request`): two lines.
    Requests = 10,
    /// Counters of a translation cache's hits.
    WalkCounters = 12,
    /// Counters of mapped pages that are not in those of the address space yet.
    Resident = 13,
    /// The CPU's node in the queue of a spin lock (`struct qnode`).
    SpinNode = 14,
    /// Lines written by taking a page from a ring: sixteen lines.
    Rings = 16,
}

/// The addresses, see the module's text.
#[derive(Clone)]
pub struct KernelData {
    /// The frame of objects that all CPUs share: lock and lists of the allocator, LRU lists, counters of cgroups.
    pub zone: Pfn,
    /// Number of CPUs that programs run on.
    pub program_cpus: u32,
    /// By CPU of the simulation.
    pub cpus: Vec<CpuData>,
    /// Memory that requests to devices touch, if the preset gives them a cost.
    pub requests: Option<RequestMemory>,
    /// Further lines that stages of page faults touch, if the preset lists any.
    pub stage_lines: Option<LineMemory>,
    /// Lines for the locks of VMAs, if several CPUs use them.
    pub vma_locks: Option<VmaLocks>,
    /// Code of the kernel, on machines with instruction caches.
    pub code: Option<CodeMemory>,
}

impl KernelData {
    /// Before boot: no frames yet.
    pub fn before_boot() -> Self {
        Self {
            zone: Pfn(0),
            program_cpus: 1,
            cpus: Vec::new(),
            requests: None,
            stage_lines: None,
            vma_locks: None,
            code: None,
        }
    }

    /// Address of the allocator's lock and free-list heads.
    pub fn zone_line(&self) -> PhysAddr {
        self.zone.addr()
    }

    /// Address of the lock and the heads of the LRU lists of a group.
    pub fn lru_line(&self, group: GroupId) -> PhysAddr {
        self.zone.addr() + LINE_BYTES * (1 + 2 * (u64::from(group.number()) % GROUPS_A_FRAME))
    }

    /// Address of the counter of a memory cgroup.
    pub fn cgroup_line(&self, group: GroupId) -> PhysAddr {
        self.lru_line(group) + LINE_BYTES
    }

    /// Address of a line of a CPU's own data.
    pub fn cpu_line(&self, cpu: CpuId, line: CpuLine) -> PhysAddr {
        self.cpus[cpu].frame.addr() + line as u64 * LINE_BYTES
    }
}
