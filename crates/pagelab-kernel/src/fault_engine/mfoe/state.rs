//! The kernel's part of MFOE: words in page-table entries, the contents of its tables, and counters.

use std::collections::{BTreeSet, VecDeque};

use crate::entry_word::{Armed, EntryWord, MOST_OWNERS};
use crate::fault_engine::config::RingCosts;
use crate::fault_engine::kernel_side::{ArmingJob, EngineScope, KernelSide, ReadyTableId, UnaccountedPage};
use crate::fault_engine::mfoe::parameters::{Enabled, Form, HUGE, Parameters, Unused};
use crate::fault_engine::mfoe::ready::Ready;
use crate::fault_engine::mfoe::tables::TableEntry;
use crate::memory::Memory;
use crate::vma::{Vma, VmaKind};
use pagelab_base::addr::{PageSize, Pfn, VirtAddr};
use pagelab_base::code_cost::CodeCost;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, SpaceIx};
use pagelab_base::io::DriveBlock;
use pagelab_base::latencies::Latencies;
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;
use pagelab_base::step::{RefKind, Step};
use pagelab_tables::page_table::PageTable;
use pagelab_trace::MapFlags;

const WITHOUT: &[PageSize] = &[PageSize::Size4K];
const WITH_HUGE: &[PageSize] = &[PageSize::Size4K, HUGE];

/// Cycles of the walker's steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct MfoeSteps {
    /// Reading the header of the CPU's table.
    pub header: Cycles,
    /// Reading the table's entry.
    pub entry: Cycles,
    /// Locking the page's entry, without waiting for others.
    pub lock: Cycles,
    /// Writing the table's entry and its header.
    pub take: Cycles,
    /// Writing the page's entry.
    pub map: Cycles,
}

/// Counters for pages of all sizes together.
#[derive(Clone, Debug, Default)]
pub struct MfoeCounters {
    /// Pages that were already mapped when the engine had locked their entry.
    pub raced: u64,
    /// Pages whose entry was no longer armed when the engine had locked it.
    pub gone: u64,
    /// Memory ranges whose entries the arming thread has armed or disarmed.
    pub jobs: u64,
    /// Cycles of the thread that arms entries.
    pub arm_cycles: Cycles,
    /// Processes that exceeded their share of memory.
    pub stopped: u64,
    /// Cycles of the walker's steps in the hardware form.
    pub steps: MfoeSteps,
    /// Cycles of the calls ahead of accesses.
    pub ahead_cycles: Cycles,
    /// System calls of processes.
    pub calls: CallCounters,
}

/// Counters of the calls that enable and disable the engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallCounters {
    /// Calls that enabled the engine for their process.
    pub enabled: u64,
    /// Calls that disabled it.
    pub disabled: u64,
    /// Calls that changed nothing.
    pub repeated: u64,
    /// Cycles of all of them.
    pub cycles: Cycles,
}

impl CallCounters {
    fn measures(&self) -> [Measure; 4] {
        [
            Measure::count("calls.enabled", self.enabled, "System calls that enabled the engine for their process"),
            Measure::count("calls.disabled", self.disabled, "System calls that disabled it for their process"),
            Measure::count("calls.repeated", self.repeated, "System calls that found it as they wanted it"),
            Measure::cycles("calls.cycles", self.cycles, "Cycles of the calls that enable and disable the engine"),
        ]
    }
}

/// The kernel's part of MFOE, see the module's text.
#[derive(Clone, Debug)]
pub struct Mfoe {
    /// Its parameters.
    pub parameters: Parameters,
    /// Counters for pages of all sizes together.
    pub counters: MfoeCounters,
    /// Ready frames by page size: 4 KiB, and 2 MiB if the engine maps such pages.
    ready: Vec<Ready>,
    /// Number of spaces that have ended. When it changes, the threads' knowledge of a space's pages is obsolete.
    pub ended: u64,
    /// Requests to arm or disarm mappings. The first one is in progress.
    pub jobs: VecDeque<ArmingJob>,
    /// Spaces whose pages are armed or being armed, and spaces that get no more frames from the engine.
    users: BTreeSet<SpaceIx>,
    stopped: BTreeSet<SpaceIx>,
    /// Whether the enable bit of the CPUs' registers is clear: no process has enabled the engine yet, or the last one
    /// has disabled it.
    closed: bool,
    hits: Box<Latencies>,
    misses: Box<Latencies>,
}

impl Mfoe {
    /// The ready frames for a page size, one of [`Mfoe::page_sizes`].
    pub fn ready(&self, size: PageSize) -> &Ready {
        &self.ready[size as usize]
    }

    /// The ready frames for a page size, mutable.
    pub fn ready_mut(&mut self, size: PageSize) -> &mut Ready {
        &mut self.ready[size as usize]
    }

    /// Whether frames are kept ready: the walker's ENABLE bit.
    pub fn is_enabled(&self) -> bool {
        !self.closed && (self.parameters.unused == Unused::Keep || !self.users.is_empty())
    }

    /// Whether the registers' enable bit is set.
    pub fn is_on(&self) -> bool {
        !self.closed
    }

    /// A process has enabled the engine.
    pub fn begin_use(&mut self, space: SpaceIx) {
        self.users.insert(space);
        self.closed = false;
    }

    /// A process has disabled the engine.
    pub fn end_use(&mut self, space: SpaceIx) {
        self.users.remove(&space);
        self.closed = self.users.is_empty();
    }

    /// Whether the background threads have nothing to do until a process enables the engine.
    pub fn is_idle(&self) -> bool {
        self.closed && self.ready.iter().all(Ready::is_clear)
    }

    /// Whether a background pass should start early, since a CPU has few frames of a size.
    pub fn runs_low(&self, cpu: CpuId, size: PageSize) -> bool {
        let below = match size {
            PageSize::Size4K => self.parameters.wake_below,
            PageSize::Size2M | PageSize::Size1G => self.parameters.huge_wake_below,
        };
        self.ready(size).has_less_than(cpu, below)
    }

    /// Statistics of what the walker, or the calls ahead of accesses, take.
    fn latency_measures(&self) -> Vec<Measure> {
        let (counters, mut all) = (&self.counters, Vec::new());
        let latencies = match self.parameters.form {
            Form::Hardware => [
                ("mapped", "page faults that the engine ended with a translation"),
                ("refused", "what the engine did before it gave a fault to the kernel"),
            ],
            Form::Call => [
                ("ahead.mapped", "calls ahead of an access that mapped its page, without entry and return"),
                ("ahead.refused", "calls ahead of an access that returned an error, without entry and return"),
            ],
            Form::Software => [("", ""); 2],
        };
        for (latencies, (name, text)) in [&self.hits, &self.misses].into_iter().zip(latencies) {
            if !name.is_empty() {
                all.extend(latencies.measures(name, text));
                all.push(latencies.deviation_measure(name, text));
            }
        }
        if self.parameters.form == Form::Call {
            let text = "Calls ahead of an access that mapped its page";
            all.push(Measure::count("ahead.mapped.count", self.hits.count(), text));
            let text = "Calls ahead of an access that returned an error";
            all.push(Measure::count("ahead.refused.count", self.misses.count(), text));
            let text = "Cycles of the calls ahead of accesses, with entry and return";
            all.push(Measure::cycles("ahead.cycles", counters.ahead_cycles, text));
        }
        if self.parameters.form == Form::Hardware {
            for (name, cycles, text) in [
                ("header", counters.steps.header, "reading the header of the CPU's table"),
                ("entry", counters.steps.entry, "reading the table's entry"),
                ("lock", counters.steps.lock, "locking the page's entry, without waiting for others"),
                ("take", counters.steps.take, "writing the table's entry and its header"),
                ("map", counters.steps.map, "writing the page's entry"),
            ] {
                all.push(Measure::cycles(format!("step.{name}.cycles"), cycles, format!("Cycles of {text}")));
            }
        }
        all
    }

    /// Records the end of a call ahead of an access: its latency, and whether it mapped the page.
    pub fn note_ahead(&mut self, mapped: bool, latency: Cycles) {
        if mapped { &mut self.hits } else { &mut self.misses }.note(latency);
    }

    /// Excludes a space, and requests that its entries are disarmed. False if it already was excluded.
    pub fn stop(&mut self, job: ArmingJob) -> bool {
        let new = self.stopped.insert(job.space);
        if new {
            self.jobs.retain(|other| other.space != job.space);
            self.jobs.push_back(job);
            self.users.remove(&job.space);
            self.counters.stopped += 1;
        }
        new
    }
}

impl KernelSide for Mfoe {
    type Parameters = Parameters;

    fn boot(parameters: &Parameters, served: EngineScope, memory: &mut Memory) -> Option<Self> {
        let sizes = if parameters.huge_entries > 0 { WITH_HUGE } else { WITHOUT };
        let ready =
            sizes.iter().map(|&size| Ready::boot(size, parameters, served.cpus, memory)).collect::<Option<_>>()?;
        Some(Self {
            parameters: parameters.clone(),
            counters: MfoeCounters::default(),
            ready,
            ended: 0,
            jobs: VecDeque::new(),
            users: BTreeSet::new(),
            stopped: BTreeSet::new(),
            closed: parameters.enabled == Enabled::ByCall,
            hits: Box::default(),
            misses: Box::default(),
        })
    }

    fn serves(&self, space: SpaceIx, vma: &Vma) -> bool {
        let own = matches!(vma.kind, VmaKind::Anonymous | VmaKind::Heap) && !vma.is_shared() && vma.file.is_none();
        let plain = own && !vma.flags.contains(MapFlags::HUGETLB) && (vma.prot.read || vma.prot.write);
        plain && !vma.advice.unserved && space.number() < MOST_OWNERS && !self.stopped.contains(&space)
    }

    fn word(&self, space: SpaceIx, vma: &Vma, _: Option<DriveBlock>) -> Option<EntryWord> {
        let (writable, executable) = (vma.prot.write, vma.prot.execute);
        let arms = self.parameters.in_fault.is_none() && self.serves(space, vma);
        arms.then_some(EntryWord::Armed(Armed { owner: space, writable, executable }))
    }

    fn queue_job(&mut self, job: ArmingJob) {
        self.begin_use(job.space);
        self.jobs.push_back(job);
    }

    fn is_off_at_start(&self) -> bool {
        self.parameters.enabled == Enabled::ByCall
    }

    fn inherit(&mut self, parent: SpaceIx, child: SpaceIx) {
        if self.is_off_at_start() && self.users.contains(&parent) {
            self.users.insert(child);
        }
    }

    fn page_sizes(&self) -> &'static [PageSize] {
        if self.ready.len() > 1 { WITH_HUGE } else { WITHOUT }
    }

    fn used_for(&self, space: SpaceIx, contents: &PhysMem) -> Vec<UnaccountedPage> {
        self.ready.iter().flat_map(|ready| ready.used_for(space, contents)).collect()
    }

    fn clear_used(&mut self, _: SpaceIx, page: UnaccountedPage, _: &mut PageTable, contents: &mut PhysMem) {
        let ready = self.ready_mut(page.size);
        ready.tables.clear(page.place, contents);
        ready.counters.accounted_by_calls += 1;
    }

    fn is_used_at(&self, (cpu, size): ReadyTableId, space: SpaceIx, contents: &PhysMem) -> bool {
        let is_own = |(_, entry): (_, TableEntry)| matches!(entry, TableEntry::Used { owner, .. } if owner == space);
        self.ready(size).tables.used(cpu, contents).any(is_own)
    }

    fn serves_faults(&self) -> bool {
        self.parameters.form == Form::Software
    }

    fn calls_ahead(&self) -> bool {
        self.parameters.form == Form::Call
    }

    fn in_fault(&self) -> Option<RingCosts> {
        self.parameters.in_fault.as_deref().copied()
    }

    fn plan_take(&self, (cpu, size): ReadyTableId, contents: &PhysMem, step: &mut Step) {
        let tables = &self.ready(size).tables;
        if let Some(costs) = &self.parameters.in_fault {
            let tail = tables.tail(cpu, contents);
            if let TableEntry::Ready(_) = tables.entry(tail, contents) {
                // The entry is exchanged, and the tail advances (`__pagelab_ring_take`).
                step.preset += CodeCost::new(costs.take.instructions, costs.take.cycles);
                step.kernel(RefKind::Write, tables.header(cpu));
                return step.kernel(RefKind::Locked, tail);
            }
            step.kernel(RefKind::Read, tables.header(cpu));
            return step.kernel(RefKind::Read, tail);
        }
        step.kernel(RefKind::Read, tables.header(cpu));
        let tail = tables.tail(cpu, contents);
        step.kernel(RefKind::Read, tail);
        if let TableEntry::Ready(_) = tables.entry(tail, contents) {
            step.kernel(RefKind::Write, tail);
            step.kernel(RefKind::Write, tables.header(cpu));
        }
    }

    fn take(&mut self, (cpu, size): ReadyTableId, space: SpaceIx, va: VirtAddr, contents: &mut PhysMem) -> Option<Pfn> {
        self.ready_mut(size).take(cpu, space, va, contents)
    }

    fn space_ended(&mut self, space: SpaceIx) {
        self.jobs.retain(|job| job.space != space);
        self.stopped.remove(&space);
        self.users.remove(&space);
        self.ended += 1;
    }

    fn held_frames(&self) -> u64 {
        self.ready.iter().map(Ready::held_frames).sum()
    }

    fn table_frames(&self) -> u64 {
        self.ready.iter().map(|ready| ready.tables.frames()).sum()
    }

    fn note(&mut self, mapped: bool, latency: Cycles) {
        if mapped { &mut self.hits } else { &mut self.misses }.note(latency);
    }

    fn measures(&self) -> Vec<Measure> {
        let counters = &self.counters;
        let mut all = Vec::new();
        for (name, count, text) in [
            ("raced", counters.raced, "Page faults whose page was already mapped when the engine had locked its entry"),
            ("gone", counters.gone, "Page faults whose entry was no longer armed when the engine had locked it"),
            ("arming.runs", counters.jobs, "Memory ranges whose entries the thread has armed or disarmed"),
            (
                "stopped",
                counters.stopped,
                "Processes that got no more frames from the engine because they had too much memory",
            ),
        ] {
            all.push(Measure::count(name, count, text));
        }
        all.extend(counters.calls.measures());
        let [counts, cycles]: [Vec<_>; 2] = std::array::from_fn(|n| {
            let of_size = |ready: &Ready| {
                let prefix = if ready.size == PageSize::Size4K { "" } else { "huge." };
                std::mem::take(&mut ready.measures(prefix, self.ready.len() > 1)[n])
            };
            self.ready.iter().flat_map(of_size).collect()
        });
        all.extend(counts);
        all.push(Measure::cycles("arming.cycles", counters.arm_cycles, "Cycles of the thread that arms entries"));
        all.extend(cycles);
        all.extend(self.latency_measures());
        all.push(Measure::state(
            "ready_frames",
            self.held_frames(),
            "count",
            "Frames of 4 KiB that are ready at the end, or almost; a page of 2 MiB has 512",
        ));
        for (ready, prefix) in self.ready.iter().zip(["", "huge."]) {
            if let Some(wanted) = ready.wanted_frames() {
                let text = "Target number of ready frames at the end, over all CPUs";
                let text =
                    if prefix.is_empty() { text.to_owned() } else { format!("{text}, of {}", ready.size.name()) };
                all.push(Measure::state(format!("{prefix}wanted_frames"), wanted, "count", text));
            }
        }
        all.push(Measure::state("table_frames", self.table_frames(), "count", "Frames of the pre-allocation tables"));
        all
    }
}
