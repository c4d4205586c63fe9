//! The kernel's part of the storage management unit: words in entries, marked pages, and counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pagelab_trace::MapFlags;

use crate::entry_word::{EntryWord, MOST_BLOCKS, Stored};
use crate::fault_engine::kernel_side::{
    ArmingJob, EngineScope, KernelSide, ReadyTableId, SupplyOutcome, UnaccountedPage,
};
use crate::fault_engine::smu::parameters::{AfterFork, FastMmap, FillCosts, Parameters};
use crate::fault_engine::smu::unit::Unit;
use crate::frames::page_use::FilePage;
use crate::memory::Memory;
use crate::vma::{Vma, VmaKind};
use pagelab_base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::LayerConfigError;
use pagelab_base::ids::{MachineCore, SpaceIx};
use pagelab_base::io::DriveBlock;
use pagelab_base::latencies::Latencies;
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;
use pagelab_base::step::{RefKind, Step};
use pagelab_tables::page_table::PageTable;

const SIZES: &[PageSize] = &[PageSize::Size4K];
/// The level of the entries that map pages.
pub const LEAF: u8 = 1;
/// Levels of the entries above: a mark there says that there is a mark below.
pub const UPPER: [u8; 2] = [2, 3];

/// Cycles of the unit's steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmuSteps {
    /// Page-miss handler and look-up in the PMSHR, including the way from another socket.
    pub lookup: Cycles,
    /// Taking a free page.
    pub free_page: Cycles,
    /// Writing the command and its doorbell.
    pub submit: Cycles,
    /// Snooping the completion, and writing its doorbell.
    pub complete: Cycles,
    /// Writing the page's entry.
    pub map: Cycles,
    /// Marking the entries above.
    pub marks: Cycles,
}

/// Counters of all units.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmuCounters {
    /// Pages that the unit has read and mapped.
    pub mapped: u64,
    /// Misses that waited for another miss on the same page.
    pub joined: u64,
    /// Misses that waited for a free entry of the PMSHR.
    pub full: u64,
    /// Misses without a free page.
    pub empty: u64,
    /// Misses whose request the drive answered with an error.
    pub failed: u64,
    /// Misses whose entry had changed by the time the unit looked.
    pub gone: u64,
    /// Misses of CPUs on other sockets than the unit.
    pub remote: u64,
    /// Free pages that page faults put into the queue.
    pub supplied_by_faults: u64,
    /// Free pages that kpoold put into the queue.
    pub supplied_by_kpoold: u64,
    /// Times that memory was too short for another free page.
    pub no_frame: u64,
    /// Passes of kpoold.
    pub kpoold_passes: u64,
    /// Passes of kpted.
    pub kpted_passes: u64,
    /// Entries that kpted read, of all levels.
    pub kpted_entries: u64,
    /// Pages that kpted accounted for.
    pub accounted: u64,
    /// Files that are served again after a fork.
    pub resumed: u64,
    /// Entries that mapping calls have written with references, the tables that they built for them, and their cycles.
    pub filled: u64,
    /// See `filled`.
    pub fill_tables: u64,
    /// See `filled`.
    pub fill_cycles: Cycles,
    /// Pages that calls and faults accounted for before kpted.
    pub accounted_by_calls: u64,
    /// Cycles of kpoold.
    pub kpoold_cycles: Cycles,
    /// Cycles of kpted.
    pub kpted_cycles: Cycles,
    /// Cycles of the unit's steps.
    pub steps: SmuSteps,
}

/// The kernel's part, see the module's text.
#[derive(Clone, Debug)]
pub struct Smu {
    /// Its parameters.
    pub parameters: Parameters,
    /// Counters of all units together.
    pub counters: Box<SmuCounters>,
    /// By socket.
    pub units: Vec<Unit>,
    cores: u32,
    /// Marked leaves: pages that are mapped but not accounted for, with their frames and pages of files.
    pub pending: BTreeMap<(SpaceIx, VirtAddr), (Pfn, FilePage)>,
    /// Files with several mappings.
    shared: BTreeSet<Arc<str>>,
    /// Those among them that only forks have mapped again.
    forked: BTreeSet<Arc<str>>,
    mapped: Box<Latencies>,
    refused: Box<Latencies>,
}

impl Smu {
    fn sockets(&self) -> u32 {
        self.units.len() as u32
    }

    /// Whether a core of the machine is on another socket than a unit.
    pub fn is_remote(&self, core: MachineCore, unit: u32) -> bool {
        u64::from(core.number()) * u64::from(self.sockets()) / u64::from(self.cores) != u64::from(unit)
    }

    /// Place on storage of an entry's page.
    pub fn place(&self, stored: &Stored) -> DriveBlock {
        DriveBlock { drive: stored.device * self.sockets() + stored.socket, lba: stored.lba }
    }

    /// Notes that a miss found no free page in a unit's queue.
    pub fn note_empty(&mut self, unit: u32) {
        self.counters.empty += 1;
        self.units[unit as usize].lacking = self.parameters.sync_refill;
    }

    /// Whether the configuration names this file.
    fn is_named(&self, file: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => file.starts_with(beginning),
            None => file == pattern,
        };
        self.parameters.files.iter().any(matches)
    }

    /// The unit whose queue gets the next free page: the one with the fewest; within faults, among those that lack
    /// pages.
    pub fn next_supplied(&self, in_fault: bool) -> usize {
        let wants = |unit: &Unit| !in_fault || unit.lacking > 0;
        let units = self.units.iter().enumerate().filter(|(_, unit)| wants(unit));
        units.min_by_key(|(_, unit)| unit.free.count()).map_or(0, |(number, _)| number)
    }
}

impl KernelSide for Smu {
    type Parameters = Parameters;

    fn boot(
        parameters: &Parameters,
        EngineScope { cores, drives, .. }: EngineScope,
        memory: &mut Memory,
    ) -> Option<Self> {
        let sockets = parameters.sockets;
        // Drives are attached to the sockets in turn.
        let mut unit = |socket| Unit::boot(parameters, (drives + sockets - 1 - socket) / sockets, memory);
        Some(Self {
            parameters: parameters.clone(),
            counters: Box::default(),
            units: (0..sockets).map(&mut unit).collect::<Option<_>>()?,
            cores,
            pending: BTreeMap::new(),
            shared: BTreeSet::new(),
            forked: BTreeSet::new(),
            mapped: Box::default(),
            refused: Box::default(),
        })
    }

    fn serves(&self, _: SpaceIx, vma: &Vma) -> bool {
        let Some(file) = vma.file.as_ref().filter(|_| vma.kind == VmaKind::File) else { return false };
        let named = self.parameters.files.is_empty() || self.is_named(file);
        let named = named && (self.parameters.fast_mmap == FastMmap::All || vma.flags.contains(MapFlags::FAST));
        let readable = vma.prot.read || vma.prot.write;
        named && readable && !vma.flags.contains(MapFlags::HUGETLB) && !self.shared.contains(file)
    }

    fn word(&self, space: SpaceIx, vma: &Vma, stored: Option<DriveBlock>) -> Option<EntryWord> {
        let DriveBlock { drive, lba } = stored.filter(|at| at.lba.0 < MOST_BLOCKS && self.serves(space, vma))?;
        let (socket, device) = (drive % self.sockets(), drive / self.sockets());
        let writable = vma.prot.write && vma.is_shared();
        Some(EntryWord::Stored(Stored { socket, device, lba, writable, executable: vma.prot.execute }))
    }

    fn fills_at_once(&self) -> Option<Cycles> {
        Some(Cycles::from(self.parameters.fill_cycles))
    }

    fn queue_job(&mut self, _: ArmingJob) {
        unreachable!("calls fill the entries of their mappings")
    }

    fn share(&mut self, file: &Arc<str>, by_fork: bool) -> Result<(), LayerConfigError> {
        if by_fork {
            if self.shared.insert(file.clone()) {
                self.forked.insert(file.clone());
            }
            return Ok(());
        }
        if self.is_named(file) {
            let what = format!(
                "`{file}` is mapped more than once, and the unit serves files that one mapping has; allowed are files that no other \
                 process maps, or [] for all that can be served"
            );
            return Err(LayerConfigError::new("fault_engine.files", what));
        }
        self.shared.insert(file.clone());
        self.forked.remove(file);
        Ok(())
    }

    fn resumes(&self, file: &Arc<str>) -> bool {
        self.parameters.after_fork == AfterFork::Resume && self.forked.contains(file)
    }

    fn resume(&mut self, file: &Arc<str>) {
        self.shared.remove(file);
        self.forked.remove(file);
        self.counters.resumed += 1;
    }

    fn fills_by_references(&self) -> bool {
        self.parameters.fill == FillCosts::References
    }

    fn page_sizes(&self) -> &'static [PageSize] {
        SIZES
    }

    fn used_for(&self, space: SpaceIx, _: &PhysMem) -> Vec<UnaccountedPage> {
        let pages = self.pending.range((space, VirtAddr(0))..=(space, VirtAddr(u64::MAX)));
        let taken = |(&(_, va), &(frame, file)): (&(SpaceIx, VirtAddr), &(Pfn, FilePage))| UnaccountedPage {
            va,
            size: PageSize::Size4K,
            frame,
            place: PhysAddr(0),
            file: Some(file),
        };
        pages.map(taken).collect()
    }

    fn clear_used(&mut self, space: SpaceIx, page: UnaccountedPage, table: &mut PageTable, contents: &mut PhysMem) {
        table.set_mark(contents, page.va, LEAF, false);
        self.pending.remove(&(space, page.va)).expect("its entry was marked");
        self.counters.accounted_by_calls += 1;
    }

    fn is_used_at(&self, _: ReadyTableId, _: SpaceIx, _: &PhysMem) -> bool {
        // kpted accounts for a page in one step.
        false
    }

    fn maps_files(&self) -> bool {
        true
    }

    fn has_mapped(&self, space: SpaceIx, va: VirtAddr) -> bool {
        self.pending.contains_key(&(space, va.align_down(PageSize::Size4K.bytes())))
    }

    fn lacks_frames(&self) -> bool {
        self.units.iter().any(|unit| unit.lacking > 0)
    }

    fn plan_supply(&self, in_fault: bool, step: &mut Step) {
        step.kernel(RefKind::Write, self.units[self.next_supplied(in_fault)].free.head());
    }

    fn supply(&mut self, memory: &mut Memory, in_fault: bool) -> SupplyOutcome {
        let next = self.next_supplied(in_fault);
        let unit = &mut self.units[next];
        let supplied = unit.supply(memory);
        let one = supplied == SupplyOutcome::One;
        self.counters.no_frame += u64::from(supplied == SupplyOutcome::NoMemory);
        if !in_fault {
            self.counters.supplied_by_kpoold += u64::from(one);
            return supplied;
        }
        unit.lacking = if one { unit.lacking.saturating_sub(1) } else { 0 };
        self.counters.supplied_by_faults += u64::from(one);
        match supplied {
            SupplyOutcome::Enough | SupplyOutcome::One if self.lacks_frames() => SupplyOutcome::One,
            SupplyOutcome::Enough | SupplyOutcome::One => SupplyOutcome::Enough,
            SupplyOutcome::NoMemory => {
                self.units.iter_mut().for_each(|unit| unit.lacking = 0);
                supplied
            }
        }
    }

    fn serves_faults(&self) -> bool {
        false
    }

    fn plan_take(&self, _: ReadyTableId, _: &PhysMem, _: &mut Step) {
        unreachable!("faults get no frames from the unit")
    }

    fn take(&mut self, _: ReadyTableId, _: SpaceIx, _: VirtAddr, _: &mut PhysMem) -> Option<Pfn> {
        unreachable!("faults get no frames from the unit")
    }

    fn space_ended(&mut self, space: SpaceIx) {
        let left = self.pending.range((space, VirtAddr(0))..=(space, VirtAddr(u64::MAX))).next();
        assert_eq!(left, None, "the end of a space has accounted for its pages");
    }

    fn idle(&self) -> Option<String> {
        let SmuCounters { mapped, empty, failed, gone, .. } = *self.counters;
        let why = if self.parameters.files.is_empty() {
            "no program missed a page of a file that only it has mapped and that is not in memory (kernel.page_cache = cold)"
        } else {
            "no program missed a page of the files that `fault_engine.files` names"
        };
        (mapped + empty + failed + gone == 0).then(|| format!("the storage management unit had nothing to do: {why}"))
    }

    fn held_frames(&self) -> u64 {
        self.units.iter().map(Unit::held_frames).sum()
    }

    fn table_frames(&self) -> u64 {
        self.units.iter().map(Unit::table_frames).sum()
    }

    fn note(&mut self, mapped: bool, latency: Cycles) {
        let latencies = if mapped { &mut self.mapped } else { &mut self.refused };
        latencies.note(latency);
    }

    fn measures(&self) -> Vec<Measure> {
        let counters = &self.counters;
        let mut all = Vec::new();
        for (name, count, text) in [
            ("mapped", counters.mapped, "Pages that the unit has read and mapped"),
            ("joined", counters.joined, "Misses that waited for another miss on the same page"),
            ("full", counters.full, "Misses that waited for a free entry of the PMSHR"),
            ("empty", counters.empty, "Misses that found no free page and were passed to the kernel"),
            ("failed", counters.failed, "Misses whose request the drive answered with an error, passed to the kernel"),
            ("gone", counters.gone, "Misses whose entry had changed by the time the unit looked, passed to the kernel"),
            (
                "resumed",
                counters.resumed,
                "Files that the unit serves again, since the mappings of forked processes are gone",
            ),
            ("fill.entries", counters.filled, "Entries that mapping calls wrote, if their references are simulated"),
            ("fill.tables", counters.fill_tables, "Tables that mapping calls built for these entries"),
            ("free_pages.by_faults", counters.supplied_by_faults, "Free pages that page faults put into the queue"),
            ("free_pages.by_kpoold", counters.supplied_by_kpoold, "Free pages that kpoold put into the queue"),
            ("free_pages.no_memory", counters.no_frame, "Times that memory was too short for another free page"),
            ("kpoold.passes", counters.kpoold_passes, "Passes of kpoold"),
            ("kpted.passes", counters.kpted_passes, "Passes of kpted"),
            ("kpted.entries", counters.kpted_entries, "Entries that kpted read, of all levels"),
            ("kpted.pages", counters.accounted, "Pages that kpted accounted for"),
            (
                "accounted_by_calls",
                counters.accounted_by_calls,
                "Pages that calls and faults accounted for before kpted",
            ),
        ] {
            all.push(Measure::count(name, count, text));
        }
        for (name, cycles, text) in [
            ("kpoold.cycles", counters.kpoold_cycles, "kpoold"),
            ("kpted.cycles", counters.kpted_cycles, "kpted"),
            (
                "fill.cycles",
                counters.fill_cycles,
                "mapping calls that write entries, if their references are simulated",
            ),
            (
                "step.lookup.cycles",
                counters.steps.lookup,
                "the page-miss handler and the look-up in the PMSHR, including the way from another socket",
            ),
            ("step.free_page.cycles", counters.steps.free_page, "taking a free page"),
            ("step.submit.cycles", counters.steps.submit, "writing the command, and its doorbell"),
            ("step.complete.cycles", counters.steps.complete, "snooping the completion, and its doorbell"),
            ("step.map.cycles", counters.steps.map, "writing the page's entry"),
            ("step.marks.cycles", counters.steps.marks, "marking the entries above"),
        ] {
            all.push(Measure::cycles(name, cycles, format!("Cycles of {text}")));
        }
        all.extend(self.mapped.measures("latency", "misses that the unit completed"));
        all.extend(self.refused.measures("refused", "misses that the unit passed to the kernel"));
        let queued = self.units.iter().map(|unit| u64::from(unit.free.count())).sum();
        let pending = self.pending.len() as u64;
        if let [_, _, ..] = self.units[..] {
            let mapped = |(n, unit): (usize, &Unit)| {
                let text = format!("Pages that the unit of socket {n} has read and mapped");
                Measure::count(format!("socket.{n}.mapped"), unit.mapped, text)
            };
            all.extend(self.units.iter().enumerate().map(mapped));
            all.push(Measure::count("remote", counters.remote, "Misses of CPUs on other sockets than the unit"));
        }
        all.push(Measure::state("free_pages", queued, "count", "Free pages in the queue at the end"));
        all.push(Measure::state("pending", pending, "count", "Pages at the end that kpted has not accounted for"));
        all
    }
}
