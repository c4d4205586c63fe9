//! The stages of a page fault, and what is counted of them.

use std::ops::RangeInclusive;

use pagelab_base::cycles::Cycles;
use pagelab_hardware::cache::HitLevel;

/// Stages of a fault, in order. A fault that maps a page which is there already leaves some of them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Exception delivery, saving of registers.
    Entry,
    /// The lock of the mm or of the VMA, and the search for the VMA.
    Lookup,
    /// Software walk of the page table, building the tables that are missing.
    Walk,
    /// Frame allocation.
    Allocation,
    /// Zeroing of the frame, copying of the page that is written, or reading it from a device.
    Zeroing,
    /// Charge to the memory cgroup.
    Charge,
    /// Reverse map.
    Rmap,
    /// Queueing for the LRU lists.
    Lru,
    /// Page-table lock, PTE and counters; for file pages also those around.
    Install,
    /// Unlocking and return from the exception.
    Return,
    /// Block layer and driver, up to the doorbell; of a kernel with `block_io`, as those that follow.
    Submit,
    /// Interrupt and completion, up to the wake-up.
    Completion,
    /// From the wake-up until the task runs again.
    Wakeup,
}

impl Stage {
    /// Those of `__handle_mm_fault`: all but the exception, the look-up of the VMA, and the way back.
    pub const OF_HANDLING: RangeInclusive<usize> = Self::Walk as usize..=Self::Install as usize;

    /// All stages, in the order of their counters.
    pub const ALL: [Self; 13] = [
        Self::Entry,
        Self::Lookup,
        Self::Walk,
        Self::Allocation,
        Self::Zeroing,
        Self::Charge,
        Self::Rmap,
        Self::Lru,
        Self::Install,
        Self::Return,
        Self::Submit,
        Self::Completion,
        Self::Wakeup,
    ];

    /// Those of all kernels: the others are of kernels with `block_io`.
    pub const OF_ALL: &[Self] = Self::ALL.first_chunk::<10>().expect("there are more");

    /// As keys of the configuration (`kernel.fault`) and statistics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Lookup => "lookup",
            Self::Walk => "walk",
            Self::Allocation => "allocation",
            Self::Zeroing => "zeroing",
            Self::Charge => "charge",
            Self::Rmap => "rmap",
            Self::Lru => "lru",
            Self::Install => "install",
            Self::Return => "return",
            Self::Submit => "submit",
            Self::Completion => "completion",
            Self::Wakeup => "wakeup",
        }
    }
}

/// How faults of a layer ended, and what their stages cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultCounters {
    /// A fault was handled without reading storage.
    pub minor: u64,
    /// A page was read from storage.
    pub major: u64,
    /// The translation was there by the time the handler looked: another core's handler had provided it.
    pub raced: u64,
    /// No mapping covers the address.
    pub outside: u64,
    /// A mapping covers it but forbids the access.
    pub forbidden: u64,
    /// Among the minor faults: reads that mapped the zero page.
    pub zero_page: u64,
    /// Writes that copied a page which others use too.
    pub copied: u64,
    /// Writes that found themselves the only user of a write-protected page.
    pub reused: u64,
    /// Faults that mapped a page of the page cache.
    pub cached: u64,
    /// Pages mapped around those.
    pub around: u64,
    /// Pages mapped ahead of any access (MAP_POPULATE, MADV_POPULATE_*); no faults.
    pub populated: u64,
    /// Large pages split because a part of them was to be copied.
    pub split: u64,
    /// Folios of several 4 KiB pages mapped, by order.
    pub folios: [u64; 10],
    /// Pages mapped, by size.
    pub pages: [u64; 3],
    /// Bytes of program memory zeroed.
    pub zeroed_bytes: u64,
    /// Page-table pages built.
    pub tables: u64,
    /// Exits of a shadowed guest for writes to its page tables.
    pub table_exits: u64,
    /// Walks made from the root, or from where a translation cache knew to begin.
    pub walks: u64,
    /// Cycles of these without the reference of the PTE: what `__handle_mm_fault` spends before `handle_pte_fault`.
    pub before_pte_cycles: Cycles,
    /// Those of them that filled translation caches.
    pub fill_cycles: Cycles,
    /// Cycles of switching away from tasks that wait for a device, while it is at work.
    pub switch_cycles: Cycles,
    /// Kernel instructions, by stage.
    pub instructions: [u64; Stage::ALL.len()],
    /// Cycles, by stage, references included; waiting for a lock is not.
    pub cycles: [Cycles; Stage::ALL.len()],
    /// Those of them that the kernel preset states, beyond the references.
    pub preset_cycles: [Cycles; Stage::ALL.len()],
    /// Those of them that the core takes for instructions of the preset whose cycles it does not state.
    pub timed_cycles: [Cycles; Stage::ALL.len()],
    /// Lines that kernel code referred to, by stage and by where they were found ([`HitLevel`]); zeroed ones too.
    pub lines: [[u64; HitLevel::ALL.len()]; Stage::ALL.len()],
}

impl FaultCounters {
    /// Cycles before the PTE is looked at, maybe of filling a translation cache.
    pub fn spend_before_pte(&mut self, cycles: Cycles, fills: bool) {
        self.before_pte_cycles += cycles;
        self.fill_cycles += if fills { cycles } else { Cycles::ZERO };
    }
}
