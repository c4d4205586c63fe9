//! The kernel thread that arms the entries of new mappings.
//!
//! Models: for each mapping that a program makes, and for each extension of its heap, the thread goes through the
//! pages, builds missing tables as a fault handler would, and writes a word into every entry that has neither a
//! translation nor a word. Where a page of 2 MiB is possible, it writes the word to the single entry above, if that
//! points to no table. While it works in one table of level 1, or at one such entry, it prevents changes of the
//! mapping. If a fault comes first, the kernel handles it. For a process that may have no more frames, the thread
//! removes the words.
//! Source: Tirumalasetty et al., 4.3; 4.9 for removing words.
//! Parameters: `fault_engine.spawn_cycles`, `fault_engine.arm_cycles`.
//! Deviations: one thread for all mappings, in order.

use crate::effects::Effects;
use crate::entry_word::EntryWord;
use crate::fault_engine::kernel_side::{ArmingJob, KernelSide};
use crate::fault_engine::mfoe::engine_access::{self, mfoe, mfoe_mut};
use crate::fault_engine::mfoe::parameters::HUGE;
use crate::layer::Layer;
use crate::layer::words::WordOf;
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::needs::Need;
use crate::os::Os;
use crate::threads::EngineThread;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, PageSize, PhysAddr, VirtAddr};
use pagelab_base::code_cost::CodeCost;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{LayerId, SpaceId};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{Next, RefKind, Step};
use pagelab_tables::page_table::{TableBlock, WalkList};

/// Number of pages whose entries share a cache line.
const LINE_PAGES: u64 = LINE_BYTES / 8;
/// Number of entries of a table of level 1, and the bytes that it maps.
const TABLE_ENTRIES: u64 = 512;
const TABLE_REACH: u64 = TABLE_ENTRIES * FRAME_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArmingState {
    /// Take the next mapping.
    Begin,
    /// Find the mapping's next page, and prevent changes of the mapping there.
    Find,
    /// Find the table with the page's entry.
    Descend,
    /// Charge for the table that was missing.
    Table(TableBlock),
    /// Write the entries of the page and of the following pages in the cache line.
    Line,
    /// Remove the words of the next entries.
    Disarm,
}

/// The thread, see the module's text.
#[derive(Clone, Debug)]
pub struct Arming {
    layer: LayerId,
    state: ArmingState,
    /// The current mapping, how far it is done, and the size of the page there.
    job: Option<ArmingJob>,
    at: VirtAddr,
    size: PageSize,
}

impl Arming {
    fn space(&self) -> SpaceId {
        SpaceId { layer: self.layer, index: self.job.expect("a mapping is under way").space }
    }

    /// The pages that one step handles: from the current page on, the 4 KiB pages whose entries share its cache line;
    /// or one page of 2 MiB, a part of which may lie before the job's range.
    fn line(&self) -> VaRange {
        let job = self.job.expect("a mapping is under way");
        if self.size > PageSize::Size4K {
            let start = self.at.align_down(self.size.bytes());
            return VaRange { start, end: start + self.size.bytes() };
        }
        let end = (self.at.0 | (LINE_PAGES * FRAME_BYTES - 1)) + 1;
        VaRange { start: self.at, end: VirtAddr(end.min(job.range.end.0)) }
    }

    /// Whether the current mapping is still to be done: its process may have ended.
    fn is_wanted(&self, layer: &Layer) -> bool {
        self.job.is_some() && mfoe(layer).jobs.front() == self.job.as_ref()
    }

    /// Ends the work on the current mapping.
    fn finish(&mut self, layer: &mut Layer) {
        if self.is_wanted(layer) {
            mfoe_mut(layer).jobs.pop_front();
        }
        self.job = None;
        self.state = ArmingState::Begin;
    }

    /// Goes to the next page, from the current one on, that can be armed.
    fn find(&mut self, os: &mut Os, task: TaskId) {
        let cpu = task.cpu;
        let (job, layer) = (self.job.expect("a mapping is under way"), &mut os.layers[self.layer]);
        let context = layer.context(cpu, job.space);
        let vmas = &layer.spaces[job.space].vmas;
        let place = vmas.iter().find(|vma| vma.end > self.at && vma.start < job.range.end).cloned();
        let wanted = self.at < job.range.end && self.is_wanted(layer);
        let Some(vma) = place.filter(|_| wanted) else { return self.finish(layer) };
        self.at = self.at.max(vma.start);
        if layer.armed(context, job.space, self.at).is_none() {
            self.at = vma.end;
            return;
        }
        self.size = if mfoe(layer).page_sizes().contains(&HUGE) {
            layer.largest_page(job.space, self.at)
        } else {
            PageSize::Size4K
        };
        os.locks.read_mappings(self.space(), vma.range(), task);
        self.state = ArmingState::Descend;
    }

    /// Builds the next missing table, or goes on to the entries.
    fn descend(&mut self, os: &mut Os, task: TaskId) {
        let cpu = task.cpu;
        let job = self.job.expect("a mapping is under way");
        let layer = &mut os.layers[self.layer];
        let context = layer.context(cpu, job.space);
        let wanted = self.is_wanted(layer);
        match wanted.then(|| layer.take_table(context, job.space, self.at, self.size)) {
            // The large page cannot be armed, since smaller pages or a table for them are there; those are armed.
            Some(Ok(None)) if self.size > PageSize::Size4K && !layer.is_untouched(job.space, self.at, self.size) => {
                self.descend_further(os, task);
            }
            Some(Ok(None)) => self.state = ArmingState::Line,
            Some(Ok(Some(block))) => {
                let linked = layer.link_table(context, job.space, self.at, self.size, block);
                os.faults[self.layer].tables += u64::from(linked);
                self.state = ArmingState::Table(block);
            }
            Some(Err(_)) | None => {
                // Without memory for tables, the pages are left to the kernel. If the process has ended, there is
                // nothing to arm.
                os.locks.end_read(self.space(), task);
                self.finish(&mut os.layers[self.layer]);
            }
        }
    }

    /// If a large page cannot be armed, goes on to the smaller pages of its table, or skips it.
    fn descend_further(&mut self, os: &mut Os, task: TaskId) {
        let (job, layer) = (self.job.expect("a mapping is under way"), &os.layers[self.layer]);
        let is_whole = layer.word(job.space, self.at).is_some_and(|entry| entry.size == self.size)
            || layer.mapped(job.space, self.at, self.at + 1).iter().any(|page| page.mapping.size == self.size);
        if is_whole {
            self.at = self.line().end;
            os.locks.end_read(self.space(), task);
            self.state = ArmingState::Find;
        } else {
            self.size = PageSize::Size4K;
        }
    }

    /// Arms the entries of a cache line.
    fn arm(&mut self, os: &mut Os, task: TaskId) {
        let cpu = task.cpu;
        let (job, line, size) = (self.job.expect("a mapping is under way"), self.line(), self.size);
        let layer = &mut os.layers[self.layer];
        let context = layer.context(cpu, job.space);
        let mut va = line.start;
        while va < line.end {
            let armed = layer.armed(context, job.space, va);
            if let Some(word) = armed.filter(|_| layer.is_untouched(job.space, va, size)) {
                layer.put_word(context, job.space, WordOf { va, size, word }).expect("its tables are there");
                mfoe_mut(layer).ready_mut(size).counters.armed += 1;
            }
            va.0 += size.bytes();
        }
        self.at = line.end;
        if self.at.0.is_multiple_of(TABLE_REACH) || self.at >= job.range.end {
            os.locks.end_read(self.space(), task);
            self.state = ArmingState::Find;
        }
    }

    /// The next part of the range with words: everything that the same table of level 1 maps as the next word, or
    /// consecutive pages of 2 MiB with words. Returns the part and its number of entries.
    fn next_part(&self, layer: &Layer) -> Option<(VaRange, u64)> {
        let job = self.job.expect("a mapping is under way");
        let first = layer.first_word(job.space, VaRange { start: self.at, end: job.range.end })?;
        let start = first.va.align_down(TABLE_REACH);
        let mut part = VaRange { start, end: start + TABLE_REACH };
        if first.size == PageSize::Size4K {
            return Some((part, TABLE_ENTRIES));
        }
        let table = VaRange { start, end: VirtAddr((start.0 | (TABLE_ENTRIES * TABLE_REACH - 1)) + 1) };
        for entry in layer.words(job.space, table) {
            if entry.size == PageSize::Size4K || entry.va > part.end {
                break;
            }
            part.end = entry.range().end;
        }
        Some((part, (part.end.0 - start.0) / TABLE_REACH))
    }

    /// Removes the words of such a part. Waits for tasks that are about to map a page there, and then looks again.
    fn disarm(&mut self, os: &mut Os) -> Next {
        let job = self.job.expect("a mapping is under way");
        let layer = &mut os.layers[self.layer];
        let part = if self.is_wanted(layer) { self.next_part(layer) } else { None };
        let Some((part, _)) = part else {
            self.finish(layer);
            return Next::Continue;
        };
        let id = SpaceId { layer: self.layer, index: job.space };
        let mut busy = None;
        for WordOf { va, size, word } in layer.words(job.space, part) {
            let key = layer.page_key(id, va);
            if matches!(word, EntryWord::Armed(_)) && os.locks.is_held(key) {
                busy = Some(key);
            } else if matches!(word, EntryWord::Armed(_)) {
                layer.take_word(job.space, va);
                mfoe_mut(layer).ready_mut(size).counters.disarmed += 1;
            }
        }
        if let Some(key) = busy {
            return Next::Block(key);
        }
        self.at = part.end;
        Next::Continue
    }
}

impl EngineThread for Arming {
    fn new_in_layer(id: LayerId, layer: &Layer) -> Vec<Self> {
        let thread =
            |_| Self { layer: id, state: ArmingState::Begin, job: None, at: VirtAddr(0), size: PageSize::Size4K };
        engine_access::find(layer).map(thread).into_iter().collect()
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn wakes_for(&self, need: Need) -> bool {
        need == Need::Arming
    }

    fn begin(&mut self) {
        self.state = ArmingState::Begin;
    }

    fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[self.layer];
        let engine = mfoe(layer);
        if engine.jobs.is_empty() || self.state != ArmingState::Begin && engine.jobs.front() != self.job.as_ref() {
            // There is nothing to do, or the process has ended meanwhile.
            return;
        }
        match self.state {
            ArmingState::Begin => step.preset += CodeCost::from_cycles(engine.parameters.spawn_cycles),
            ArmingState::Find => {
                let space = &layer.spaces[self.space().index];
                step.kernel(RefKind::Locked, space.lock_line());
                step.note_lock(LockKind::MmapRead);
                step.kernel(RefKind::Read, space.object_line(self.at.0));
            }
            ArmingState::Descend => {
                let space = &layer.spaces[self.space().index];
                let mut list = WalkList::new();
                space.table.walk(&layer.memory.contents, self.at, &mut list);
                list.refs().iter().for_each(|r| step.kernel(RefKind::Read, r.addr));
            }
            ArmingState::Table(block) => {
                step.kernel(RefKind::Zero { bytes: FRAME_BYTES << block.order }, block.first.addr());
                step.kernel(RefKind::Write, page_metadata(block.first));
                let space = &layer.spaces[self.space().index];
                step.kernel(RefKind::Locked, space.table.entry(&layer.memory.contents, self.at, self.size));
            }
            ArmingState::Line => {
                let entries = self.line().pages() >> self.size.order();
                step.preset += CodeCost::from_cycles(entries * Cycles::from(engine.parameters.arm_cycles));
                let space = &layer.spaces[self.space().index];
                step.kernel(RefKind::Write, space.table.entry(&layer.memory.contents, self.at, self.size));
            }
            ArmingState::Disarm => {
                let Some((part, entries)) = self.next_part(layer) else { return };
                step.preset += CodeCost::from_cycles(entries * Cycles::from(engine.parameters.arm_cycles));
                let space = &layer.spaces[self.space().index];
                let first = space.table.entry(&layer.memory.contents, part.start, self.size).0 & !(LINE_BYTES - 1);
                (0..entries.div_ceil(LINE_PAGES))
                    .for_each(|n| step.kernel(RefKind::Write, PhysAddr(first + n * LINE_BYTES)));
            }
        }
    }

    fn commit(&mut self, os: &mut Os, _: &mut Effects, task: TaskId) -> Next {
        match self.state {
            ArmingState::Begin => {
                let engine = mfoe_mut(&mut os.layers[self.layer]);
                self.job = engine.jobs.front().copied();
                let Some(job) = self.job else { return Next::Done };
                engine.counters.jobs += 1;
                self.at = job.range.start;
                self.state = if job.arm { ArmingState::Find } else { ArmingState::Disarm };
            }
            ArmingState::Find => self.find(os, task),
            ArmingState::Descend => self.descend(os, task),
            ArmingState::Table(_) => self.state = ArmingState::Descend,
            ArmingState::Line => self.arm(os, task),
            ArmingState::Disarm => return self.disarm(os),
        }
        Next::Continue
    }

    fn charge(&self, os: &mut Os, cycles: Cycles) {
        mfoe_mut(&mut os.layers[self.layer]).counters.arm_cycles += cycles;
    }
}
