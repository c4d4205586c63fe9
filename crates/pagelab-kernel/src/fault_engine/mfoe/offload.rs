//! The walker's handling of a page whose entry is armed.
//!
//! Models: the walker reads the header of its CPU's table and the entry at the tail. If that has a frame, it locks the
//! page's entry (a locked read-modify-write of its lock bit), reads it again, stores address and owner in the table's
//! entry, advances the tail, writes the page's entry, which unlocks it, and fills the TLB. A walker that finds the
//! entry locked spins and then finds the page mapped, so it takes no frame. Without a frame, a page fault is raised.
//! Source: Tirumalasetty et al., 4.4 with the locks of 4.9.
//! Choices: each reference waits for the one before it. The dirty bit is set only for a store, as by walkers.

use crate::effects::Effects;
use crate::entry_word::{Armed, EntryWord};
use crate::fault_engine::kernel_side::KernelSide;
use crate::fault_engine::mfoe::engine_access::{mfoe, mfoe_mut, with_memory};
use crate::fault_engine::mfoe::parameters::Form;
use crate::fault_engine::mfoe::tables::TableEntry;
use crate::fault_engine::work::{EngineVerdict, PageWork};
use crate::layer::Layer;
use crate::layer::words::WordOf;
use crate::locks::TaskId;
use crate::needs::Need;
use crate::os::Os;
use crate::vma::VaRange;
use pagelab_base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CpuId;
use pagelab_base::page_fault::{Intent, PageFault};
use pagelab_base::step::{BlockKey, Next, Ref, RefKind, RefSpace, Step};
use pagelab_tables::page_table::{Leaf, Mapping, PteFlags, WalkList};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OffloadState {
    /// Read the header of the CPU's table.
    Header,
    /// Read the entry at the tail.
    Entry,
    /// Lock the page's entry and read it again.
    Lock,
    /// Store the page in the table's entry and advance the tail.
    Take,
    /// Write the page's entry.
    Map { frame: Pfn, armed: Armed },
}

/// The engine's work for a page, see the module's text.
#[derive(Clone, Debug)]
pub struct Offload {
    fault: PageFault,
    cpu: CpuId,
    page: VirtAddr,
    size: PageSize,
    /// The lock of the page's entry, while it is held.
    key: Option<BlockKey>,
    state: OffloadState,
    verdict: EngineVerdict,
}

impl Offload {
    fn layer<'a>(&self, os: &'a Os) -> &'a Layer {
        &os.layers[self.fault.space.layer]
    }

    fn layer_mut<'a>(&self, os: &'a mut Os) -> &'a mut Layer {
        &mut os.layers[self.fault.space.layer]
    }

    /// Address of the entry where a walk for the fault's address ends.
    fn entry(&self, os: &Os) -> PhysAddr {
        let layer = self.layer(os);
        layer.spaces[self.fault.space.index].table.entry(&layer.memory.contents, self.fault.va, PageSize::Size4K)
    }

    /// Content of that entry, if it allows the access: a translation, or an armed word with its size.
    fn look(&self, os: &Os) -> (Option<Mapping>, Option<(Armed, PageSize)>) {
        let (layer, index) = (self.layer(os), self.fault.space.index);
        let mut list = WalkList::new();
        layer.spaces[index].table.walk(&layer.memory.contents, self.fault.va, &mut list);
        let store = self.fault.intent == Intent::Store;
        match (list.leaf, layer.word_behind(index, self.fault.va, &list.leaf)) {
            (Leaf::Present(mapping), _) => (Some(mapping).filter(|mapping| mapping.flags.writable || !store), None),
            (Leaf::NotPresent { .. }, Some(WordOf { size, word: EntryWord::Armed(armed), .. })) => {
                (None, Some((armed, size)).filter(|(armed, _)| armed.writable || !store))
            }
            (Leaf::NotPresent { .. }, Some(WordOf { word: EntryWord::Swap(_) | EntryWord::Stored(_), .. }) | None) => {
                (None, None)
            }
        }
    }

    fn end(&mut self, verdict: EngineVerdict) -> Next {
        self.verdict = verdict;
        Next::Done
    }

    /// Unlocks the page's entry.
    fn unlock(&mut self, os: &mut Os, task: TaskId) {
        os.locks.release(self.key.take().expect("the entry is locked"), task);
        os.locks.end_read(self.fault.space, task);
    }

    /// Locks the page's entry; waits if another engine or a handler holds it.
    fn lock(&mut self, os: &mut Os, task: TaskId) -> Next {
        let layer = self.layer(os);
        let key = layer.page_key(self.fault.space, self.page);
        // The part of the address space that the key covers.
        let place = layer.largest_page(self.fault.space.index, self.page).max(self.size);
        if !os.locks.acquire(key, task) {
            return Next::Block(key);
        }
        self.key = Some(key);
        let start = self.page.0 & !place.offset_mask();
        let range = VaRange { start: VirtAddr(start), end: VirtAddr(start + place.bytes()) };
        os.locks.read_mappings(self.fault.space, range, task);
        let (present, armed) = self.look(os);
        if armed.is_some_and(|(_, size)| size == self.size) {
            self.state = OffloadState::Take;
            return Next::Continue;
        }
        self.unlock(os, task);
        let counters = &mut mfoe_mut(self.layer_mut(os)).counters;
        let Some(mapping) = present else {
            counters.gone += 1;
            return self.end(EngineVerdict::Kernel);
        };
        counters.raced += 1;
        self.end(EngineVerdict::Mapped(mapping))
    }

    /// Takes the frame at the tail.
    fn take(&mut self, os: &mut Os, task: TaskId) -> Next {
        let (armed, _) = self.look(os).1.expect("the page's entry is locked");
        let (cpu_and_size, page, owner) = ((self.cpu, self.size), self.page, armed.owner);
        let (mfoe, contents) = with_memory(self.layer_mut(os));
        let Some(frame) = mfoe.take(cpu_and_size, owner, page, contents) else {
            // Another task of this CPU has taken it meanwhile.
            self.unlock(os, task);
            return self.end(EngineVerdict::Kernel);
        };
        self.state = OffloadState::Map { frame, armed };
        Next::Continue
    }

    /// Maps the frame.
    fn map(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId, frame: Pfn, armed: Armed) -> Next {
        let cpu = task.cpu;
        let Armed { writable, executable, .. } = armed;
        let dirty = self.fault.intent == Intent::Store;
        let flags = PteFlags { writable, executable, user: true, accessed: true, dirty };
        let mapping = Mapping { pfn: frame, size: self.size, flags };
        let (index, page, id) = (self.fault.space.index, self.page, self.fault.space.layer);
        let layer = self.layer_mut(os);
        let context = layer.context(cpu, index);
        layer.map_ready(context, index, page, mapping).expect("the entry that says so is the page's place");
        if mfoe(layer).runs_low(self.cpu, self.size) {
            effects.wake(id, Need::ReadyFrames);
        }
        self.unlock(os, task);
        self.end(EngineVerdict::Mapped(mapping))
    }
}

impl PageWork for Offload {
    fn begin(fault: &PageFault, cpu: CpuId, os: &Os) -> Option<Self> {
        let page = |size: PageSize| fault.va.align_down(size.bytes());
        let size = PageSize::Size4K;
        let work = Self {
            fault: *fault,
            cpu,
            page: page(size),
            size,
            key: None,
            state: OffloadState::Header,
            verdict: EngineVerdict::Kernel,
        };
        let engine = mfoe(work.layer(os));
        if engine.parameters.form != Form::Hardware
            || !engine.is_enabled()
            || work.layer(os).has_engine_off(fault.space.index)
        {
            return None;
        }
        let (_, size) = work.look(os).1?;
        Some(Self { page: page(size), size, ..work })
    }

    fn fault(&self) -> &PageFault {
        &self.fault
    }

    fn plan(&self, os: &Os, step: &mut Step) {
        let layer = self.layer(os);
        let (engine, tables) = (mfoe(layer), &mfoe(layer).ready(self.size).tables);
        step.cycles += Cycles::from(engine.parameters.step_cycles);
        let mut physical = |kind, addr| {
            let number = step.refs.len() as u8;
            step.refs.push(Ref { addr, space: RefSpace::Physical, kind, step: number, independent: false, lock: None });
        };
        let header = tables.header(self.cpu);
        match self.state {
            OffloadState::Header => physical(RefKind::Read, header),
            OffloadState::Entry => physical(RefKind::Read, tables.tail(self.cpu, &layer.memory.contents)),
            OffloadState::Lock => physical(RefKind::Locked, self.entry(os)),
            OffloadState::Take => {
                physical(RefKind::Write, tables.tail(self.cpu, &layer.memory.contents));
                physical(RefKind::Write, header);
            }
            OffloadState::Map { .. } => physical(RefKind::Write, self.entry(os)),
        }
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId, _: bool) -> Next {
        match self.state {
            OffloadState::Header => self.state = OffloadState::Entry,
            OffloadState::Entry => {
                let (of_cpu, size, layer) = (self.cpu, self.size, self.layer_mut(os));
                let tables = &mfoe(layer).ready(size).tables;
                let TableEntry::Ready(_) =
                    tables.entry(tables.tail(of_cpu, &layer.memory.contents), &layer.memory.contents)
                else {
                    mfoe_mut(layer).ready_mut(size).note_empty(of_cpu);
                    return self.end(EngineVerdict::Kernel);
                };
                self.state = OffloadState::Lock;
            }
            OffloadState::Lock => return self.lock(os, task),
            OffloadState::Take => return self.take(os, task),
            OffloadState::Map { frame, armed } => return self.map(os, effects, task, frame, armed),
        }
        Next::Continue
    }

    fn charge(&self, os: &mut Os, cycles: Cycles) {
        let steps = &mut mfoe_mut(self.layer_mut(os)).counters.steps;
        *match self.state {
            OffloadState::Header => &mut steps.header,
            OffloadState::Entry => &mut steps.entry,
            OffloadState::Lock => &mut steps.lock,
            OffloadState::Take => &mut steps.take,
            OffloadState::Map { .. } => &mut steps.map,
        } += cycles;
    }

    fn verdict(&self) -> EngineVerdict {
        self.verdict
    }
}
