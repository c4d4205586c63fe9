//! The stages of a page fault, and their counters.

use pagelab_base::code_cost::CodeCost;
use pagelab_base::cycles::Cycles;
use pagelab_base::lock_kind::LockQueues;
use pagelab_base::measure::Measure;
use pagelab_hardware::cache::HitLevel;
use std::ops::RangeInclusive;

/// Stages of a fault, in order. A fault that maps an existing page skips some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Exception delivery, saving of registers.
    Entry,
    /// The lock of the mm or of the VMA, and the search for the VMA.
    Lookup,
    /// Software walk of the page table, including construction of missing tables.
    Walk,
    /// Frame allocation.
    Allocation,
    /// Zeroing of the frame, copying of the written page, or reading it from a device.
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
    /// Block layer and driver, up to the doorbell. This stage and the following exist in kernels with `block_io`.
    Submit,
    /// Switch from the waiting task to another one or to idle, while the device works.
    Switch,
    /// Interrupt and completion, up to the wake-up.
    Completion,
    /// From the wake-up until the task runs.
    Wakeup,
}

impl Stage {
    /// The stages of `__handle_mm_fault`: all except the exception, the look-up of the VMA, and the return.
    pub const OF_HANDLING: RangeInclusive<usize> = Self::Walk as usize..=Self::Install as usize;

    /// All stages, in the order of their counters.
    pub const ALL: [Self; 14] = [
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
        Self::Switch,
        Self::Completion,
        Self::Wakeup,
    ];

    /// The stages of all kernels; the others exist in kernels with `block_io`.
    pub const OF_ALL: &[Self] = Self::ALL.first_chunk::<10>().expect("there are more");

    /// Name in keys of the configuration (`kernel.fault`) and in statistics.
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
            Self::Switch => "switch",
            Self::Completion => "completion",
            Self::Wakeup => "wakeup",
        }
    }
}

/// Why a fault is not served under the lock of its VMA alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// There is no VMA, but a stack may grow, or the access is refused.
    NoVma,
    /// The VMA has no `anon_vma`.
    AnonVma,
    /// The kernel serves no such fault of a file, or of explicit huge pages.
    File,
    /// The kernel serves no fault of the swap area.
    Swap,
    /// A call changes the mapping.
    Writer,
    /// A device must be waited for.
    Device,
}

impl Fallback {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 6] = [Self::NoVma, Self::AnonVma, Self::File, Self::Swap, Self::Writer, Self::Device];

    /// Its name in statistics, and what it means.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::NoVma => ("no_vma", "no mapping was at the address"),
            Self::AnonVma => ("anon_vma", "the mapping had no anonymous page yet"),
            Self::File => ("file", "the kernel serves no such fault of a file under that lock"),
            Self::Swap => ("swap", "the kernel serves no fault of the swap area under that lock"),
            Self::Writer => ("writer", "a call changed the mapping"),
            Self::Device => ("device", "a page had to be read from a device"),
        }
    }

    /// Statistics of fall-backs, given their counts.
    pub fn measures(counts: &[u64; Self::ALL.len()]) -> Vec<Measure> {
        let measure = |(why, &count): (Self, &u64)| {
            let (name, text) = why.texts();
            let text = format!("Faults that fell back from the lock of their mapping to that of the space: {text}");
            Measure::timed_count(format!("fallbacks.{name}"), count, text)
        };
        Self::ALL.into_iter().zip(counts).map(measure).collect()
    }
}

/// Counters of the faults of a layer, and of their stages.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultCounters {
    /// Faults handled without reading storage.
    pub minor: u64,
    /// Faults that read a page from storage.
    pub major: u64,
    /// Faults whose translation another core's handler had provided by the time the handler looked.
    pub raced: u64,
    /// Faults of walkers that leave collisions of a hashed table to the kernel.
    pub collisions: u64,
    /// Faults at addresses that no mapping covers.
    pub outside: u64,
    /// Faults at addresses whose mapping forbids the access.
    pub forbidden: u64,
    /// Minor faults: reads that mapped the zero page.
    pub zero_page: u64,
    /// Minor faults: writes that copied a shared page.
    pub copied: u64,
    /// Minor faults: writes to a write-protected page that is not shared.
    pub reused: u64,
    /// Minor faults that mapped a page of the page cache.
    pub cached: u64,
    /// Pages mapped by fault-around.
    pub around: u64,
    /// Pages mapped ahead of any access (MAP_POPULATE, MADV_POPULATE_*); not faults.
    pub populated: u64,
    /// Large pages split because a part had to be copied.
    pub split: u64,
    /// Folios of several 4 KiB pages mapped, by order.
    pub folios: [u64; 10],
    /// Pages mapped, by size.
    pub pages: [u64; 3],
    /// Bytes of program memory zeroed.
    pub zeroed_bytes: u64,
    /// Page-table pages built.
    pub tables: u64,
    /// Exits of a guest with shadow page tables, for writes to its page tables.
    pub table_exits: u64,
    /// Walks, from the root or from where a translation cache let them begin.
    pub walks: u64,
    /// Cycles of these walks without the reference to the PTE: what `__handle_mm_fault` spends before
    /// `handle_pte_fault`.
    pub before_pte_cycles: Cycles,
    /// Cycles in `before_pte_cycles` that filled translation caches.
    pub fill_cycles: Cycles,
    /// Cycles of switching away from tasks that wait for a device, while it is busy.
    pub switch_cycles: Cycles,
    /// Kernel instructions, by stage.
    pub instructions: [u64; Stage::ALL.len()],
    /// Cycles by stage, including references but not waiting for locks.
    pub cycles: [Cycles; Stage::ALL.len()],
    /// Cycles by stage that the kernel preset states, beyond the references.
    pub preset_cycles: [Cycles; Stage::ALL.len()],
    /// Cycles by stage that the core model takes for instructions of the preset, where the preset states no cycles.
    pub timed_cycles: [Cycles; Stage::ALL.len()],
    /// Lines that kernel code referred to, by stage and by the place that served them ([`HitLevel`]), including zeroed
    /// ones.
    pub lines: [[u64; HitLevel::ALL.len()]; Stage::ALL.len()],
    /// Faults that were not served under the lock of their VMA alone, by reason ([`Fallback`]).
    pub fallbacks: [u64; Fallback::ALL.len()],
    /// Structures of VMAs for anonymous pages that faults have made.
    pub anon_vmas: u64,
    /// References to lines of locks that waited for the line, by kind of lock. All kernel code of the layer is counted.
    pub lock_queues: LockQueues,
}

impl FaultCounters {
    /// Counts cycles before the PTE is read; `fills` if they fill a translation cache.
    pub fn spend_before_pte(&mut self, cycles: Cycles, fills: bool) {
        self.before_pte_cycles += cycles;
        self.fill_cycles += if fills { cycles } else { Cycles::ZERO };
    }

    /// Counts the cycles of switching from a task whose fault waits for a device. They end with the device's answer at
    /// the latest.
    pub fn note_switch(&mut self, switch: &CodeCost, spent: Cycles) {
        let stage = Stage::Switch as usize;
        self.cycles[stage] += spent;
        let preset = spent.min(switch.cycles);
        self.preset_cycles[stage] += preset;
        self.timed_cycles[stage] += spent - preset;
    }
}
