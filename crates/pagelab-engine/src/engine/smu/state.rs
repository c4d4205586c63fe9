//! The kernel's part of the storage management unit: what stands in entries, which pages are marked, and what is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pagelab_trace::MapFlags;

use crate::base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use crate::base::cycles::Cycles;
use crate::base::error::Misfit;
use crate::base::ids::{CpuId, LayerId};
use crate::base::io::Lba;
use crate::base::latencies::Latencies;
use crate::base::measure::Measure;
use crate::base::memory::PhysMem;
use crate::base::step::{BlockKey, RefKind, Step};
use crate::engine::kernel_side::{Job, KernelSide, Supplied, Table, Taken};
use crate::engine::smu::free_pages::FreePages;
use crate::engine::smu::parameters::Parameters;
use crate::engine::smu::queue_pair::QueuePair;
use crate::kernel::entry_word::{EntryWord, MOST_BLOCKS, Stored};
use crate::kernel::frames::frame_alloc::FramePurpose;
use crate::kernel::frames::page_use::FilePage;
use crate::kernel::memory::Memory;
use crate::kernel::vma::{Vma, VmaKind};
use crate::page_table::PageTable;

const SIZES: &[PageSize] = &[PageSize::Size4K];
/// The level of the entries that map pages, and the levels above that lead to marks.
pub const LEAF: u8 = 1;
pub const UPPER: [u8; 2] = [2, 3];

/// Cycles of the unit's steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    pub lookup: Cycles,
    pub free_page: Cycles,
    pub submit: Cycles,
    pub complete: Cycles,
    pub map: Cycles,
    pub marks: Cycles,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Pages that the unit has read and mapped.
    pub mapped: u64,
    /// Misses that waited for another one's page.
    pub joined: u64,
    /// Misses that waited until an entry of the PMSHR was free.
    pub full: u64,
    /// Misses without a free page, requests that failed, and entries that said otherwise by the time the unit looked.
    pub empty: u64,
    pub failed: u64,
    pub gone: u64,
    /// Free pages that faults made ready, and kpoold.
    pub supplied_by_faults: u64,
    pub supplied_by_kpoold: u64,
    pub no_frame: u64,
    /// Passes of the threads, entries that kpted looked at, and pages that it accounted for; those that calls and faults did.
    pub kpoold_passes: u64,
    pub kpted_passes: u64,
    pub kpted_entries: u64,
    pub accounted: u64,
    pub accounted_by_calls: u64,
    pub kpoold_cycles: Cycles,
    pub kpted_cycles: Cycles,
    pub steps: Steps,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Smu {
    pub parameters: Parameters,
    pub counters: Box<Counters>,
    pub free: FreePages,
    pub pair: QueuePair,
    /// Completions that have been read, and not been looked at by their misses: whether they failed.
    answered: BTreeMap<u16, bool>,
    /// Numbers of the entries of the PMSHR that are free, which are those of their commands.
    idle: Vec<u16>,
    /// Frames that misses have taken and not mapped.
    pub in_hand: u32,
    /// What marks of leaves say: pages that are mapped and not accounted for, with their frames, and which pages of files they are.
    pub pending: BTreeMap<(u32, VirtAddr), (Pfn, FilePage)>,
    /// Free pages that faults are to make ready yet.
    lacking: u32,
    /// Files that are mapped more than once.
    shared: BTreeSet<Arc<str>>,
    mapped: Box<Latencies>,
    refused: Box<Latencies>,
}

impl Smu {
    /// What a miss waits for that finds no entry of the PMSHR.
    pub fn idle_key(layer: LayerId) -> BlockKey {
        BlockKey::Engine { layer, table: (CpuId(0), PageSize::Size4K) }
    }

    /// Takes an entry of the PMSHR.
    pub fn begin_miss(&mut self) -> Option<u16> {
        self.idle.pop()
    }

    pub fn end_miss(&mut self, id: u16) {
        self.idle.push(id);
    }

    /// Reads the completions that the drive has written; whether the request of a miss, which is among them, has failed.
    pub fn complete(&mut self, id: u16, contents: &PhysMem) -> bool {
        while let Some(of) = self.pair.reap(contents) {
            self.answered.insert(of.id, of.failed);
        }
        self.answered.remove(&id).expect("the drive has answered")
    }

    /// A miss found no free page.
    pub fn note_empty(&mut self) {
        self.counters.empty += 1;
        self.lacking = self.parameters.sync_refill;
    }

    /// Whether a file of this name is one of those that the configuration names.
    fn is_named(&self, file: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => file.starts_with(beginning),
            None => file == pattern,
        };
        self.parameters.files.iter().any(matches)
    }

    /// Puts a free page into the queue if there is room for it, and memory to spare.
    fn supply_one(&mut self, memory: &mut Memory) -> Supplied {
        if self.free.is_full() {
            return Supplied::Enough;
        }
        let left = memory.view().free_frames().saturating_sub(1);
        let short = memory.reclaim.as_ref().is_some_and(|of| left < of.marks.low);
        let frame = if short { None } else { memory.take(0, FramePurpose::PageCache) };
        let Some(frame) = frame else {
            self.counters.no_frame += 1;
            return Supplied::NoMemory;
        };
        self.free.put(frame, memory.contents);
        Supplied::One
    }
}

impl KernelSide for Smu {
    type Parameters = Parameters;

    fn boot(parameters: &Parameters, _: u32, memory: &mut Memory) -> Option<Self> {
        Some(Self {
            parameters: parameters.clone(),
            counters: Box::default(),
            free: FreePages::boot(parameters.free_pages, parameters.prefetch, memory)?,
            pair: QueuePair::boot(parameters.nvme_entries, memory)?,
            answered: BTreeMap::new(),
            idle: (0..parameters.pmshr as u16).rev().collect(),
            in_hand: 0,
            pending: BTreeMap::new(),
            lacking: 0,
            shared: BTreeSet::new(),
            mapped: Box::default(),
            refused: Box::default(),
        })
    }

    fn serves(&self, _: u32, vma: &Vma) -> bool {
        let Some(file) = vma.file.as_ref().filter(|_| vma.kind == VmaKind::File) else { return false };
        let named = self.parameters.files.is_empty() || self.is_named(file);
        let readable = vma.prot.read || vma.prot.write;
        named && readable && !vma.flags.contains(MapFlags::HUGETLB) && !self.shared.contains(file)
    }

    fn word(&self, space: u32, vma: &Vma, stored: Option<Lba>) -> Option<EntryWord> {
        let lba = stored.filter(|lba| lba.0 < MOST_BLOCKS && self.serves(space, vma))?;
        let writable = vma.prot.write && vma.is_shared();
        Some(EntryWord::Stored(Stored { lba, writable, executable: vma.prot.execute }))
    }

    fn fills_at_once(&self) -> Option<Cycles> {
        Some(Cycles::from(self.parameters.fill_cycles))
    }

    fn want(&mut self, _: Job) {
        unreachable!("calls fill the entries of their mappings")
    }

    fn share(&mut self, file: &Arc<str>) -> Result<(), Misfit> {
        if self.is_named(file) {
            let what = format!(
                "`{file}` is mapped more than once, and the unit serves files that one mapping has; allowed are files that no other \
                 process maps, or [] for all that can be served"
            );
            return Err(Misfit::new("fault_engine.files", what));
        }
        self.shared.insert(file.clone());
        Ok(())
    }

    fn page_sizes(&self) -> &'static [PageSize] {
        SIZES
    }

    fn used_for(&self, space: u32, _: &PhysMem) -> Vec<Taken> {
        let pages = self.pending.range((space, VirtAddr(0))..=(space, VirtAddr(u64::MAX)));
        let taken = |(&(_, va), &(frame, file)): (&(u32, VirtAddr), &(Pfn, FilePage))| Taken {
            va,
            size: PageSize::Size4K,
            frame,
            place: PhysAddr(0),
            file: Some(file),
        };
        pages.map(taken).collect()
    }

    fn clear_used(&mut self, space: u32, page: Taken, table: &mut PageTable, contents: &mut PhysMem) {
        table.set_mark(contents, page.va, LEAF, false);
        self.pending.remove(&(space, page.va)).expect("its entry was marked");
        self.counters.accounted_by_calls += 1;
    }

    fn is_used_at(&self, _: Table, _: u32, _: &PhysMem) -> bool {
        // kpted accounts for a page in one step.
        false
    }

    fn maps_files(&self) -> bool {
        true
    }

    fn has_mapped(&self, space: u32, va: VirtAddr) -> bool {
        self.pending.contains_key(&(space, VirtAddr(va.0 & !PageSize::Size4K.offset_mask())))
    }

    fn lacks_frames(&self) -> bool {
        self.lacking > 0
    }

    fn plan_supply(&self, step: &mut Step) {
        step.kernel(RefKind::Write, self.free.head());
    }

    fn supply(&mut self, memory: &mut Memory, in_fault: bool) -> Supplied {
        let supplied = self.supply_one(memory);
        let one = supplied == Supplied::One;
        if !in_fault {
            self.counters.supplied_by_kpoold += u64::from(one);
            return supplied;
        }
        self.counters.supplied_by_faults += u64::from(one);
        self.lacking = if one { self.lacking.saturating_sub(1) } else { 0 };
        if self.lacking == 0 && one { Supplied::Enough } else { supplied }
    }

    fn serves_faults(&self) -> bool {
        false
    }

    fn plan_take(&self, _: Table, _: &PhysMem, _: &mut Step) {
        unreachable!("faults get no frames from the unit")
    }

    fn take(&mut self, _: Table, _: u32, _: VirtAddr, _: &mut PhysMem) -> Option<Pfn> {
        unreachable!("faults get no frames from the unit")
    }

    fn space_ended(&mut self, space: u32) {
        let left = self.pending.range((space, VirtAddr(0))..=(space, VirtAddr(u64::MAX))).next();
        assert_eq!(left, None, "the end of a space has accounted for its pages");
    }

    fn idle(&self) -> Option<String> {
        let Counters { mapped, empty, failed, gone, .. } = *self.counters;
        let why = if self.parameters.files.is_empty() {
            "no program missed a page of a file that it alone has mapped, and that is not in memory (kernel.page_cache = cold)"
        } else {
            "no program missed a page of the files that `fault_engine.files` names"
        };
        (mapped + empty + failed + gone == 0).then(|| format!("the storage management unit had nothing to do: {why}"))
    }

    fn held_frames(&self) -> u64 {
        u64::from(self.free.count() + self.in_hand)
    }

    fn table_frames(&self) -> u64 {
        self.free.frames() + self.pair.frames()
    }

    fn note(&mut self, mapped: bool, latency: Cycles) {
        let of = if mapped { &mut self.mapped } else { &mut self.refused };
        of.note(latency);
    }

    fn measures(&self) -> Vec<Measure> {
        let of = &self.counters;
        let mut all = Vec::new();
        for (name, count, text) in [
            ("mapped", of.mapped, "Pages that the unit has read and mapped"),
            ("joined", of.joined, "Misses that waited for the page of another one"),
            ("full", of.full, "Misses that waited until an entry of the PMSHR was free"),
            ("empty", of.empty, "Misses that found no free page, and went to the kernel"),
            ("failed", of.failed, "Misses whose request the drive answered with an error, and that went to the kernel"),
            (
                "gone",
                of.gone,
                "Misses whose entry said otherwise by the time the unit looked, and that went to the kernel",
            ),
            ("free_pages.by_faults", of.supplied_by_faults, "Free pages that page faults put into the queue"),
            ("free_pages.by_kpoold", of.supplied_by_kpoold, "Free pages that kpoold put into the queue"),
            ("free_pages.no_memory", of.no_frame, "Times that memory was too short for another one"),
            ("kpoold.passes", of.kpoold_passes, "Passes of kpoold"),
            ("kpted.passes", of.kpted_passes, "Passes of kpted"),
            ("kpted.entries", of.kpted_entries, "Entries that kpted looked at, of all levels"),
            ("kpted.pages", of.accounted, "Pages that kpted accounted for"),
            (
                "accounted_by_calls",
                of.accounted_by_calls,
                "Pages that calls and faults accounted for, before kpted came",
            ),
        ] {
            all.push(Measure::count(name, count, text));
        }
        for (name, cycles, text) in [
            ("kpoold.cycles", of.kpoold_cycles, "kpoold"),
            ("kpted.cycles", of.kpted_cycles, "kpted"),
            ("step.lookup.cycles", of.steps.lookup, "the page-miss handler and the look-up in the PMSHR"),
            ("step.free_page.cycles", of.steps.free_page, "taking a free page"),
            ("step.submit.cycles", of.steps.submit, "writing the command, and its doorbell"),
            ("step.complete.cycles", of.steps.complete, "snooping the completion, and its doorbell"),
            ("step.map.cycles", of.steps.map, "writing the page's entry"),
            ("step.marks.cycles", of.steps.marks, "marking the entries above"),
        ] {
            all.push(Measure::cycles(name, cycles, format!("Cycles of {text}")));
        }
        all.extend(self.mapped.measures("latency", "misses that the unit ended with a translation"));
        all.extend(self.refused.measures("refused", "what the unit did before it gave a miss to the kernel"));
        let (queued, pending) = (u64::from(self.free.count()), self.pending.len() as u64);
        all.push(Measure::state("free_pages", queued, "count", "Free pages in the queue at the end"));
        all.push(Measure::state("pending", pending, "count", "Pages at the end that kpted has not seen"));
        all
    }
}
