//! The unit's handling of a page that a walk has not found.
//!
//! Models: the walker sends the addresses of the page's entries and the content of the leaf. The page-miss handler
//! searches the misses in progress for the same entry and waits for that miss if there is one; otherwise it takes a
//! register. It takes a free page, writes a read command for the block to the submission queue, and rings the doorbell.
//! The drive writes the page and a completion, which the unit snoops. The unit writes the entry, marks the entries
//! above, and notifies all waiting misses.
//! Source: as in [`super`]. The order of the steps: claims of US 11,436,150, and the slides "SMU - Page Miss Handler".
//! Deviations: the registers are looked up by the page's key ([`pagelab_base::step::BlockKey::Page`]), which the
//! kernels' handlers also use.

use crate::context::KernelContext;
use crate::effects::Effects;
use crate::entry_word::{EntryWord, Stored};
use crate::fault_engine::smu::engine_access::{smu, smu_mut, with_memory};
use crate::fault_engine::smu::queue_pair::{Completion, DriveRead};
use crate::fault_engine::smu::state::{LEAF, UPPER};
use crate::fault_engine::smu::unit::Unit;
use crate::fault_engine::work::{EngineVerdict, PageWork};
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::os::Os;
use crate::vma::VaRange;
use pagelab_base::addr::{PageSize, Pfn, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CpuId;
use pagelab_base::io::{DeviceRequest, Lba};
use pagelab_base::memory::PhysMem;
use pagelab_base::page_fault::{Intent, PageFault};
use pagelab_base::step::{BlockKey, Next, Ref, RefKind, RefSpace, Step};
use pagelab_tables::page_table::{Leaf, Mapping, PteFlags, WalkList};

/// The current step. Register and frame are held from the step on that takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissState {
    /// Search the misses in progress, and take a register.
    Lookup,
    FreePage,
    /// Write the command.
    Submit {
        frame: Pfn,
    },
    /// Wait for the drive.
    Device {
        frame: Pfn,
    },
    /// Read the completion.
    Complete {
        frame: Pfn,
    },
    /// Write the page's entry.
    Map {
        frame: Pfn,
    },
    /// Mark the entries above.
    Marks {
        mapping: Mapping,
    },
}

/// The engine's work for a page, see the module's text.
#[derive(Clone, Debug)]
pub struct Offload {
    fault: PageFault,
    page: VirtAddr,
    cpu: CpuId,
    /// Whether the unit has received the miss.
    arrived: bool,
    /// Content of the entry.
    stored: Stored,
    /// The register of the miss.
    id: u16,
    /// Whether it has waited for another miss on the page.
    joined: bool,
    /// Its place among the misses that wait for a register.
    ticket: Option<u64>,
    state: MissState,
    verdict: EngineVerdict,
}

/// Content of an entry, if it allows the access.
enum EntryContent {
    Page(Mapping),
    Stored(Stored),
    Nothing,
}

impl Offload {
    fn layer<'a>(&self, os: &'a Os) -> &'a Layer {
        &os.layers[self.fault.space.layer]
    }

    fn layer_mut<'a>(&self, os: &'a mut Os) -> &'a mut Layer {
        &mut os.layers[self.fault.space.layer]
    }

    /// The unit that the entry names.
    fn unit<'a>(&self, os: &'a Os) -> &'a Unit {
        &smu(self.layer(os)).units[self.stored.socket as usize]
    }

    fn unit_mut<'a>(&self, os: &'a mut Os) -> &'a mut Unit {
        self.unit_with_memory(os).0
    }

    fn unit_with_memory<'a>(&self, os: &'a mut Os) -> (&'a mut Unit, &'a mut PhysMem) {
        let (engine, contents) = with_memory(self.layer_mut(os));
        (&mut engine.units[self.stored.socket as usize], contents)
    }

    /// Whether the CPU is on another socket than the unit.
    fn is_remote(&self, os: &Os) -> bool {
        smu(self.layer(os)).is_remote(os.cores[self.cpu], self.stored.socket)
    }

    /// The block of the layer's storage that the entry names.
    fn block(&self, os: &Os) -> Lba {
        let layer = self.layer(os);
        let storage = layer.storage().expect("an entry says that the page is there");
        storage.striping.block(smu(layer).place(&self.stored))
    }

    fn key(&self, os: &Os) -> BlockKey {
        self.layer(os).page_key(self.fault.space, self.page)
    }

    fn look(fault: &PageFault, layer: &Layer) -> EntryContent {
        let index = fault.space.index;
        let mut list = WalkList::new();
        layer.spaces[index].table.walk(&layer.memory.contents, fault.va, &mut list);
        let store = fault.intent == Intent::Store;
        match (list.leaf, layer.word_behind(index, fault.va, &list.leaf).map(|entry| entry.word)) {
            (Leaf::Present(mapping), _) if mapping.flags.writable || !store => EntryContent::Page(mapping),
            (Leaf::NotPresent { .. }, Some(EntryWord::Stored(stored))) if stored.writable || !store => {
                EntryContent::Stored(stored)
            }
            (Leaf::Present(_), _)
            | (Leaf::NotPresent { .. }, Some(EntryWord::Stored(_) | EntryWord::Swap(_) | EntryWord::Armed(_)) | None) => {
                EntryContent::Nothing
            }
        }
    }

    /// Takes the page's key and a register; waits for another miss on the page, or for a free register.
    fn lookup(&mut self, os: &mut Os, task: TaskId) -> Next {
        let next = self.try_lookup(os, task);
        let layer = self.fault.space.layer;
        let waits_for_register = matches!(next, Next::Block(key) if key == Unit::idle_key(layer, self.stored.socket));
        if !waits_for_register {
            let mut ticket = self.ticket.take();
            let unit = self.unit_mut(os);
            unit.leave(&mut ticket);
            if unit.serves_next() {
                os.locks.signal(Unit::idle_key(layer, self.stored.socket));
            }
        }
        next
    }

    fn try_lookup(&mut self, os: &mut Os, task: TaskId) -> Next {
        let (key, layer) = (self.key(os), self.fault.space.layer);
        if !std::mem::replace(&mut self.arrived, true) && self.is_remote(os) {
            smu_mut(self.layer_mut(os)).counters.remote += 1;
        }
        if os.locks.is_held(key) {
            self.joined = true;
            return Next::Block(key);
        }
        match Self::look(&self.fault, self.layer(os)) {
            EntryContent::Page(mapping) => {
                smu_mut(self.layer_mut(os)).counters.joined += u64::from(self.joined);
                self.verdict = EngineVerdict::Mapped(mapping);
                return Next::Done;
            }
            EntryContent::Nothing => {
                smu_mut(self.layer_mut(os)).counters.gone += 1;
                return Next::Done;
            }
            EntryContent::Stored(stored) => {
                if stored.socket != self.stored.socket {
                    // The page is on another drive by now, whose unit has a queue of its own.
                    let mut ticket = self.ticket.take();
                    self.unit_mut(os).leave(&mut ticket);
                }
                self.stored = stored;
            }
        }
        // The page has just left memory, and its entry has been rewritten meanwhile.
        let written = BlockKey::Writeback { layer, lba: self.block(os) };
        if os.locks.is_held(written) {
            return Next::Block(written);
        }
        let mut ticket = self.ticket;
        let id = self.unit_mut(os).begin_miss(&mut ticket);
        let begins_to_wait = self.ticket.is_none() && ticket.is_some();
        self.ticket = ticket;
        let Some(id) = id else {
            smu_mut(self.layer_mut(os)).counters.full += u64::from(begins_to_wait);
            return Next::Block(Unit::idle_key(layer, self.stored.socket));
        };
        let free = os.locks.acquire(key, task);
        assert!(free, "{key:?} was free just now");
        let end = self.page + PageSize::Size4K.bytes();
        os.locks.read_mappings(self.fault.space, VaRange { start: self.page, end }, task);
        (self.id, self.state) = (id, MissState::FreePage);
        Next::Continue
    }

    /// Releases register and key.
    fn release(&self, os: &mut Os, task: TaskId) -> Next {
        self.unit_mut(os).end_miss(self.id);
        os.locks.signal(Unit::idle_key(self.fault.space.layer, self.stored.socket));
        os.locks.release(self.key(os), task);
        os.locks.end_read(self.fault.space, task);
        Next::Done
    }

    /// Leaves the page to the kernel.
    fn leave_to_kernel(&self, os: &mut Os, task: TaskId, frame: Pfn) -> Next {
        let cpu = task.cpu;
        let context = KernelContext::on(cpu);
        let (unit, contents) = self.unit_with_memory(os);
        if let Some(frame) = unit.put_back(frame, contents) {
            self.layer_mut(os).memory_for(context).free(frame, 0);
        }
        self.release(os, task)
    }

    /// Takes a free page.
    fn take(&mut self, os: &mut Os, task: TaskId) -> Next {
        let (unit, contents) = self.unit_with_memory(os);
        let Some(frame) = unit.free.take(contents) else {
            smu_mut(self.layer_mut(os)).note_empty(self.stored.socket);
            return self.release(os, task);
        };
        unit.in_hand += 1;
        self.state = MissState::Submit { frame };
        Next::Continue
    }

    /// Reads the completion.
    fn complete(&mut self, os: &mut Os, task: TaskId, frame: Pfn) -> Next {
        let (unit, contents) = self.unit_with_memory(os);
        if unit.complete(self.stored.device as usize, self.id, contents) {
            smu_mut(self.layer_mut(os)).counters.failed += 1;
            return self.leave_to_kernel(os, task, frame);
        }
        self.state = MissState::Map { frame };
        Next::Continue
    }

    /// Writes the page's entry, if that has not changed.
    fn map(&mut self, os: &mut Os, task: TaskId, frame: Pfn) -> Next {
        let cpu = task.cpu;
        let store = self.fault.intent == Intent::Store;
        let (index, page) = (self.fault.space.index, self.page);
        let EntryContent::Stored(stored) = Self::look(&self.fault, self.layer(os)) else {
            smu_mut(self.layer_mut(os)).counters.gone += 1;
            return self.leave_to_kernel(os, task, frame);
        };
        let Stored { writable, executable, socket, device, lba } = stored;
        let asked = (self.stored.socket, self.stored.device, self.stored.lba);
        assert_eq!((socket, device, lba), asked, "{page:?} is in another block by now");
        let flags = PteFlags { writable, executable, user: true, accessed: true, dirty: store };
        let mapping = Mapping { pfn: frame, size: PageSize::Size4K, flags };
        let layer = self.layer_mut(os);
        let file = layer.file_page(index, page).expect("the entry is one of a file's mapping");
        let context = layer.context(cpu, index);
        layer.map_ready(context, index, page, mapping).expect("the entry that says so is the page's place");
        layer.spaces[index].table.set_mark(&mut layer.memory.contents, page, LEAF, true);
        let engine = smu_mut(layer);
        let unit = &mut engine.units[socket as usize];
        unit.in_hand -= 1;
        unit.mapped += 1;
        engine.counters.mapped += 1;
        engine.pending.insert((index, page), (frame, file));
        self.state = MissState::Marks { mapping };
        Next::Continue
    }

    fn marks(&mut self, os: &mut Os, task: TaskId, mapping: Mapping) -> Next {
        let layer = self.layer_mut(os);
        for level in UPPER {
            layer.spaces[self.fault.space.index].table.set_mark(&mut layer.memory.contents, self.page, level, true);
        }
        self.unit_mut(os).free.fetch();
        self.verdict = EngineVerdict::Mapped(mapping);
        self.release(os, task)
    }
}

impl PageWork for Offload {
    fn begin(fault: &PageFault, cpu: CpuId, os: &Os) -> Option<Self> {
        let EntryContent::Stored(stored) = Self::look(fault, &os.layers[fault.space.layer]) else { return None };
        Some(Self {
            fault: *fault,
            page: fault.va.align_down(PageSize::Size4K.bytes()),
            cpu,
            arrived: false,
            stored,
            id: 0,
            joined: false,
            ticket: None,
            state: MissState::Lookup,
            verdict: EngineVerdict::Kernel,
        })
    }

    fn fault(&self) -> &PageFault {
        &self.fault
    }

    fn plan(&self, os: &Os, step: &mut Step) {
        let (layer, unit) = (self.layer(os), self.unit(os));
        let engine = smu(layer);
        step.cycles += Cycles::from(engine.parameters.step_cycles);
        let doorbell = Cycles::from(engine.parameters.doorbell_cycles);
        let mut physical = |kind, addr| {
            let number = step.refs.len() as u8;
            step.refs.push(Ref { addr, space: RefSpace::Physical, kind, step: number, independent: false, lock: None });
        };
        match self.state {
            MissState::Lookup => {
                if !self.arrived && self.is_remote(os) {
                    step.cycles += Cycles::from(engine.parameters.remote_cycles);
                }
            }
            MissState::FreePage => unit.free.to_fetch().into_iter().for_each(|at| physical(RefKind::Read, at)),
            MissState::Submit { .. } => {
                physical(RefKind::Write, unit.pairs[self.stored.device as usize].submission());
                step.cycles += doorbell;
            }
            MissState::Device { .. } => {
                step.cycles = Cycles::ZERO;
                step.io.storage.push(DeviceRequest::read(self.block(os), 1));
                step.stalls = true;
            }
            MissState::Complete { .. } => step.cycles += doorbell,
            MissState::Map { .. } => {
                let table = &layer.spaces[self.fault.space.index].table;
                physical(RefKind::Write, table.entry(&layer.memory.contents, self.page, PageSize::Size4K));
            }
            MissState::Marks { .. } => {
                let table = &layer.spaces[self.fault.space.index].table;
                for level in UPPER {
                    let (addr, marked) =
                        table.mark(&layer.memory.contents, self.page, level).expect("a page below it is mapped");
                    physical(if marked { RefKind::Read } else { RefKind::Write }, addr);
                }
            }
        }
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId, io_failed: bool) -> Next {
        match self.state {
            MissState::Lookup => return self.lookup(os, task),
            MissState::FreePage => return self.take(os, task),
            MissState::Submit { frame } => {
                let (id, lba) = (self.id, self.stored.lba);
                let (unit, contents) = self.unit_with_memory(os);
                unit.pairs[self.stored.device as usize].submit(id, lba, frame, contents);
                self.state = MissState::Device { frame };
            }
            MissState::Device { frame } => {
                let (id, lba, failed) = (self.id, self.stored.lba, io_failed);
                let block = self.block(os);
                let (unit, contents) = self.unit_with_memory(os);
                let written = unit.pairs[self.stored.device as usize].answer(Completion { id, failed }, contents);
                assert_eq!(written, DriveRead { lba, frame }, "the drive executes the command");
                effects.note_page_read(self.fault.space.layer, frame);
                if !failed {
                    self.layer_mut(os).check_read(self.fault.space.index, self.page, block, frame);
                }
                self.state = MissState::Complete { frame };
            }
            MissState::Complete { frame } => return self.complete(os, task, frame),
            MissState::Map { frame } => return self.map(os, task, frame),
            MissState::Marks { mapping } => return self.marks(os, task, mapping),
        }
        Next::Continue
    }

    fn charge(&self, os: &mut Os, cycles: Cycles) {
        let steps = &mut smu_mut(self.layer_mut(os)).counters.steps;
        *match self.state {
            MissState::Lookup => &mut steps.lookup,
            MissState::FreePage => &mut steps.free_page,
            MissState::Submit { .. } => &mut steps.submit,
            // Its time is the drive's.
            MissState::Device { .. } | MissState::Complete { .. } => &mut steps.complete,
            MissState::Map { .. } => &mut steps.map,
            MissState::Marks { .. } => &mut steps.marks,
        } += cycles;
    }

    fn verdict(&self) -> EngineVerdict {
        self.verdict
    }
}
