//! The page-fault handler of a kernel: demand paging of anonymous and, for now, of file pages that the page cache holds.
//!
//! Models: an activity of named stages: entry, lookup, walk (building missing tables), allocation, zeroing, install, exit.
//! The first handler of a page takes the page's key and does the work; others that fault on the page meanwhile wait, then
//! find the translation and return.
//! Source: Linux `exc_page_fault`, `handle_mm_fault`, `do_anonymous_page` (mm/memory.c).
//! Parameters: `kernel.fault.*` (cycles of each stage beyond its references), `kernel.vm_exit_cycles`.
//! Deviations: in Linux two handlers of one page both allocate and zero a frame, and the one that comes second to the PTE
//! lock gives its frame back; here it waits from the end of its walk, so a frame is never allocated twice. The mm lock is
//! read-held and never waited for: mapping calls are atomic.

use super::Os;
use super::frame_alloc::FramePurpose;
use super::vma::Vma;
use crate::activity::{BlockKey, Next, RefKind, Step};
use crate::addr::{Cycles, FRAME_BYTES, FRAME_SHIFT, PageSize, Pfn, VirtAddr};
use crate::config::StageCost;
use crate::error::EngineError;
use crate::layer::SpaceId;
use crate::page_table::{Leaf, Mapping, PteFlags, WalkList};
use crate::walker::{Intent, PageFault};

/// Stages of a fault, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Entry,
    Lookup,
    Walk,
    Allocation,
    Zeroing,
    Install,
    Exit,
}

impl Stage {
    pub const ALL: [Self; 7] =
        [Self::Entry, Self::Lookup, Self::Walk, Self::Allocation, Self::Zeroing, Self::Install, Self::Exit];

    pub fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Lookup => "lookup",
            Self::Walk => "walk",
            Self::Allocation => "allocation",
            Self::Zeroing => "zeroing",
            Self::Install => "install",
            Self::Exit => "return",
        }
    }
}

/// How faults of a layer ended, and what their stages cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultCounters {
    /// A page was mapped without reading storage.
    pub minor: u64,
    /// A page was read from storage.
    pub major: u64,
    /// The translation was there by the time the handler looked: another core's handler had provided it.
    pub raced: u64,
    /// No mapping covers the address.
    pub outside: u64,
    /// A mapping covers it but forbids the access.
    pub forbidden: u64,
    /// Pages mapped, by size.
    pub pages: [u64; 3],
    /// Page-table pages built.
    pub tables: u64,
    /// Kernel instructions, by stage.
    pub instructions: [u64; Stage::ALL.len()],
    /// Cycles, by stage, references included; waiting for a lock is not.
    pub cycles: [Cycles; Stage::ALL.len()],
}

/// What the step under way does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Entry,
    Lookup,
    Walk,
    /// Zero a new page-table page and link it.
    Table {
        frame: Pfn,
    },
    Allocation,
    Zeroing {
        frame: Pfn,
    },
    Install {
        frame: Pfn,
    },
    Exit,
}

/// How a finished fault ended for the access that raised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Translate again.
    Retry,
    /// The access cannot be made: no mapping, or one that forbids it.
    Refused,
}

/// A fault being handled; see the module's text.
#[derive(Clone, Debug)]
pub struct Fault {
    space: SpaceId,
    va: VirtAddr,
    intent: Intent,
    state: State,
    /// First address and size of the page to be mapped, and its permissions; known after the lookup.
    page: VirtAddr,
    size: PageSize,
    flags: PteFlags,
    /// The page's key: held from the walk to the end by the handler that maps the page.
    key: BlockKey,
    locked: bool,
    outcome: Outcome,
}

impl Fault {
    pub fn new(fault: &PageFault) -> Self {
        Self {
            space: fault.space,
            va: fault.va,
            intent: fault.intent,
            state: State::Entry,
            page: VirtAddr(fault.va.0 & !(FRAME_BYTES - 1)),
            size: PageSize::Size4K,
            flags: PteFlags { writable: false, user: true, executable: false, accessed: true, dirty: false },
            key: BlockKey::Page { space: fault.space, page: fault.va.0 >> FRAME_SHIFT },
            locked: false,
            outcome: Outcome::Retry,
        }
    }

    pub fn space(&self) -> SpaceId {
        self.space
    }

    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    pub fn stage(&self) -> Stage {
        match self.state {
            State::Entry => Stage::Entry,
            State::Lookup => Stage::Lookup,
            State::Walk | State::Table { .. } => Stage::Walk,
            State::Allocation => Stage::Allocation,
            State::Zeroing { .. } => Stage::Zeroing,
            State::Install { .. } => Stage::Install,
            State::Exit => Stage::Exit,
        }
    }

    fn walk(&self, os: &Os) -> WalkList {
        let layer = &os.layers[usize::from(self.space.layer)];
        let mut list = WalkList::new();
        layer.spaces[self.space.index as usize].table.walk(&layer.mem, self.va, &mut list);
        list
    }

    /// See [`crate::activity::Activity::plan`].
    pub fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[usize::from(self.space.layer)];
        let space = &layer.spaces[self.space.index as usize];
        let costs = &os.costs.fault;
        let cost = |step: &mut Step, cost: &StageCost| {
            step.cycles += Cycles::from(cost.cycles);
            step.instructions += u64::from(cost.instructions);
        };
        match self.state {
            State::Entry => {
                cost(step, &costs.entry);
                if os.hosts(self.space.layer) {
                    step.cycles += Cycles::from(os.costs.vm_exit_cycles);
                }
            }
            State::Lookup => {
                cost(step, &costs.lookup);
                step.kernel(RefKind::Locked, space.lock_line());
                let start = space.vmas.find(self.va).map_or(self.va, |vma| vma.start);
                step.kernel(RefKind::Read, space.vma_line(start));
            }
            State::Walk => {
                cost(step, &costs.walk);
                for r in self.walk(os).refs() {
                    step.kernel(RefKind::Read, r.addr);
                }
            }
            State::Table { frame } => {
                step.kernel(RefKind::Zero { bytes: FRAME_BYTES }, frame.addr());
                step.kernel(RefKind::Write, layer.page_metadata(frame));
                let entry = self.walk(os).refs().last().expect("a walk reads an entry at least").addr;
                step.kernel(RefKind::Locked, entry);
            }
            State::Allocation => {
                cost(step, &costs.allocation);
                step.kernel(RefKind::Locked, layer.zone_line());
            }
            State::Zeroing { frame } => {
                cost(step, &costs.zeroing);
                step.kernel(RefKind::Write, layer.page_metadata(frame));
                step.kernel(RefKind::Zero { bytes: self.size.bytes() }, frame.addr());
            }
            State::Install { frame } => {
                cost(step, &costs.install);
                step.kernel(RefKind::Write, layer.page_metadata(frame));
                let entry = self.walk(os).refs().last().expect("a walk reads an entry at least").addr;
                step.kernel(RefKind::Write, entry);
            }
            State::Exit => cost(step, &costs.exit),
        }
    }

    /// See [`crate::activity::Activity::commit`].
    pub fn commit(&mut self, os: &mut Os, cpu: usize) -> Result<Next, EngineError> {
        self.state = match self.state {
            State::Entry => State::Lookup,
            State::Lookup => self.look_up(os),
            State::Walk => {
                let list = self.walk(os);
                match list.leaf {
                    Leaf::Present(mapping) if mapping.flags.writable || self.intent != Intent::Store => {
                        os.faults[usize::from(self.space.layer)].raced += 1;
                        State::Exit
                    }
                    Leaf::Present(_) => unreachable!("mapping calls keep the permissions of VMA and page alike"),
                    Leaf::NotPresent { level } => {
                        if !os.locks.acquire(self.key, cpu) {
                            return Ok(Next::Block(self.key));
                        }
                        self.locked = true;
                        self.shrink_to(level);
                        self.next_table(os)?
                    }
                }
            }
            State::Table { frame } => {
                self.link(os, frame);
                self.next_table(os)?
            }
            State::Allocation => {
                let layer = &mut os.layers[usize::from(self.space.layer)];
                match layer.alloc_frames(self.size.order(), FramePurpose::UserData) {
                    Some(frame) => State::Zeroing { frame },
                    // No contiguous block: a smaller page serves as well.
                    None if self.size > PageSize::Size4K => {
                        self.set_size(smaller(self.size));
                        self.next_table(os)?
                    }
                    None => return Err(layer.out_of_memory("a page of a program")),
                }
            }
            State::Zeroing { frame } => State::Install { frame },
            State::Install { frame } => {
                let layer = &mut os.layers[usize::from(self.space.layer)];
                let mapping = Mapping { pfn: frame, size: self.size, flags: self.flags };
                layer.map(self.space.index, self.page, mapping);
                let counters = &mut os.faults[usize::from(self.space.layer)];
                counters.minor += 1;
                counters.pages[self.size as usize] += 1;
                State::Exit
            }
            State::Exit => {
                if self.locked {
                    os.locks.release(self.key, cpu);
                }
                return Ok(Next::Done);
            }
        };
        Ok(Next::Continue)
    }

    fn look_up(&mut self, os: &mut Os) -> State {
        let layer = &mut os.layers[usize::from(self.space.layer)];
        let wanted = layer.page_size;
        let vmas = &mut layer.spaces[self.space.index as usize].vmas;
        let counters = &mut os.faults[usize::from(self.space.layer)];
        let Some(vma) = vmas.find_or_grow(self.va) else {
            counters.outside += 1;
            self.outcome = Outcome::Refused;
            return State::Exit;
        };
        let allowed = match self.intent {
            Intent::Load => vma.prot.read || vma.prot.write || vma.prot.execute,
            Intent::Store => vma.prot.write,
            // Imported traces and synthetic programs know nothing of execute permission.
            Intent::Fetch => vma.prot.execute || vma.prot.read,
        };
        if !allowed {
            counters.forbidden += 1;
            self.outcome = Outcome::Refused;
            return State::Exit;
        }
        self.flags.writable = vma.prot.write;
        // Linux installs writable anonymous pages dirty (`do_anonymous_page`: pte_mkwrite(pte_mkdirty)).
        self.flags.dirty = vma.prot.write;
        self.flags.executable = vma.prot.execute;
        let size = largest_inside(vma, self.va, wanted);
        self.set_size(size);
        // All that may come to map a part of this page meet at its first 4 KiB.
        self.key = BlockKey::Page { space: self.space, page: self.page.0 >> FRAME_SHIFT };
        State::Walk
    }

    fn set_size(&mut self, size: PageSize) {
        self.size = size;
        self.page = VirtAddr(self.va.0 & !(size.bytes() - 1));
    }

    /// Where a table stands already, the page is no larger than what the table maps by an entry.
    fn shrink_to(&mut self, level: u8) {
        while self.size > PageSize::ALL[usize::from(level.clamp(1, 3)) - 1] {
            self.set_size(smaller(self.size));
        }
    }

    /// Goes for the next missing table, or on to the page itself.
    fn next_table(&self, os: &mut Os) -> Result<State, EngineError> {
        let layer = &mut os.layers[usize::from(self.space.layer)];
        let table = &layer.spaces[self.space.index as usize].table;
        if table.missing_tables(&layer.mem, self.page, self.size) == 0 {
            return Ok(State::Allocation);
        }
        Ok(State::Table { frame: layer.take_frame(FramePurpose::PageTable, "a page table")? })
    }

    /// Links a zeroed table, unless another handler was faster.
    fn link(&self, os: &mut Os, frame: Pfn) {
        let layer = &mut os.layers[usize::from(self.space.layer)];
        let space = &mut layer.spaces[self.space.index as usize];
        layer.mem.create(frame);
        if space.table.link_table(&mut layer.mem, self.page, self.size, frame).is_some() {
            os.faults[usize::from(self.space.layer)].tables += 1;
        } else {
            layer.mem.destroy(frame);
            layer.free_frames(frame, 0);
        }
    }
}

fn smaller(size: PageSize) -> PageSize {
    PageSize::ALL[(size as usize).saturating_sub(1)]
}

/// The largest page, up to `wanted`, whose aligned place around `va` lies inside the VMA.
fn largest_inside(vma: &Vma, va: VirtAddr, wanted: PageSize) -> PageSize {
    let inside = |size: &PageSize| {
        let start = va.0 & !(size.bytes() - 1);
        *size <= wanted && vma.start.0 <= start && start + size.bytes() <= vma.end.0
    };
    PageSize::ALL.into_iter().rev().find(inside).unwrap_or(PageSize::Size4K)
}
