//! The page-fault handler of a kernel.
//!
//! Models: an activity of named stages ([`Stage`]), each with the instructions and cycles that the kernel preset gives
//! and with references to the kernel's data, which go through TLB and caches: saved registers on the CPU's stack, the
//! lock and the nodes of the VMA index, page-table entries, the allocator's lists, page metadata, the CPU's batches for
//! cgroup and LRU lists, and every so often the line behind each batch that all CPUs share. What a fault maps is
//! decided after its walk (`Work`): a zeroed frame, the zero page, a copy of a write-protected page, that page itself
//! if nobody else uses it, or a page of the page cache and those around it.
//!
//! The first handler of a page takes the page's key and does the work; others that fault on the page meanwhile wait,
//! then find the translation and return. The PTE is written under the lock of its page-table page.
//! Source: Linux `exc_page_fault`, `handle_mm_fault`, `do_anonymous_page`, `do_wp_page`, `do_read_fault`,
//! `do_cow_fault`, `do_shared_fault`, `do_fault_around` (mm/memory.c), `filemap_map_pages` (mm/filemap.c).
//! Parameters: `kernel.fault.*` (instructions and cycles of each stage beyond its references), `kernel.fault_kinds.*`
//! (where kinds of faults differ), `kernel.fault_lock`, `kernel.vma_index`, `kernel.zero_page`,
//! `kernel.fault_around_bytes`, `kernel.pages_per_fault`, `kernel.lru_batch`, `kernel.charge_batch`,
//! `kernel.vm_exit_cycles`.
//! Deviations: in Linux two handlers of one page both allocate and zero a frame, and the one that comes second to the
//! PTE lock gives its frame back; here it waits from the end of its walk, so a frame is never allocated twice. A
//! mapping call waits for faults in its way, but not the other way round, since it is made at once. A kernel's objects
//! of an address space share one frame. Pages that are mapped beside another cost references, and instructions of their
//! own only where the preset says so (`page_instructions`).

mod allocate;
mod anonymous;
mod cached_walk;
mod copy;
mod file;
mod install;
pub mod io;
mod place;
mod plan;
mod read_ahead;
mod ready;
mod route;
pub mod stage;
pub mod supply;
mod swap;
mod work;

use pagelab_base::ids::{CpuId, SpaceId};
use stage::{FaultCounters, Stage};
pub use work::{gets_large_pages, largest_page};

use crate::config::FaultKind;
use crate::context::KernelContext;
use crate::effects::Effects;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::os::Os;
use crate::placement::PlacementStep;
use crate::reclaim::{Pressure, Scan};
use crate::vma::VaRange;
use io::Phase;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::page_fault::{Intent, PageFault, Reached};
use pagelab_base::step::{BlockKey, Next};
use pagelab_tables::page_table::{Leaf, PteFlags, TableBlock, WalkList};
use work::Work;

/// Size of a PTE.
const ENTRY_BYTES: u64 = 8;

/// What the step under way does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FaultState {
    Entry,
    Lookup,
    Walk,
    /// Look at the PTE of the next page, in the table that the walk for the one before ended at.
    NextEntry,
    /// Enter the entries of these levels in the translation cache, which may be `new`.
    Fill {
        levels: (u8, u8),
        new: bool,
    },
    /// Zero memory for a page table and link it.
    Table {
        block: TableBlock,
    },
    /// Fill a new page-table page with the parts of a large page and put it in that page's place.
    Split {
        frame: Pfn,
    },
    Allocation,
    /// Go for a frame by the placement policy.
    Place(PlacementStep),
    /// Scan the oldest pages.
    Reclaim {
        pressure: Pressure,
    },
    /// The CPU's list of free pages was empty: under the zone's lock it got what these pages' metadata tells.
    Refill {
        descriptors: Vec<Pfn>,
    },
    /// Wait until those that leave are written.
    WriteBack {
        scan: Box<Scan>,
    },
    /// Read pages of a file into these frames.
    Read {
        pages: Vec<(u64, Pfn)>,
    },
    Zeroing,
    Charge,
    Rmap,
    Lru,
    /// Take the lock of the page-table page.
    Lock,
    /// With that lock, take a frame that is ready.
    TakeReady {
        entry: PhysAddr,
    },
    /// With that lock, the entry stays where it is.
    Install {
        entry: PhysAddr,
    },
    /// These lines of the table had to make room or moved on to a larger one.
    Rehash {
        entry: PhysAddr,
        lines: Vec<PhysAddr>,
    },
    /// Make a frame ready for the layer's engine, which had none for the page.
    Supply,
    Return,
}

/// How a finished fault ended for the access that raised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Translate again.
    Retry,
    /// The access cannot be made: no mapping, or one that forbids it.
    Refused,
}

/// Why pages are mapped ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// A call asks for it, as if by such accesses.
    Asked(Intent),
    /// The kernel does so of itself, as long as there is memory to spare.
    Policy,
}

/// A fault being handled; see the module's text.
#[derive(Clone, Debug)]
pub struct Fault {
    space: SpaceId,
    /// Address that is to be mapped: the faulting one, then those of further pages.
    va: VirtAddr,
    intent: Intent,
    cpu: CpuId,
    state: FaultState,
    phase: Phase,
    work: Work,
    /// What it is, if it is no first touch; known after the walk.
    kind: Option<FaultKind>,
    /// First address and size of the page to be mapped, and its permissions; known after the lookup.
    page: VirtAddr,
    size: PageSize,
    /// The largest page that may be mapped where there is none.
    wanted: PageSize,
    /// All that may come to map a part of that page, or of a folio around the address, meet at the first of N 4 KiB
    /// pages, as a power of two.
    together: u32,
    /// Frames that are to be mapped, as a power of two: those of a large page, or of a folio of 4 KiB pages.
    order: u32,
    flags: PteFlags,
    /// The frame to be mapped, from its allocation on.
    frame: Pfn,
    /// Pages around the one at the address that are mapped with it, itself included.
    around: VaRange,
    /// First address behind the one at the address, and those after it, that the fault has found or made present.
    present_to: VirtAddr,
    /// Pages still to be mapped after this one.
    further: u32,
    /// The fault is in the counters.
    counted: bool,
    /// A device had to be read.
    major: bool,
    /// Nothing is read with the page, since its file is missed too often.
    alone: bool,
    /// Scans in a row that gave nothing back.
    fruitless: u32,
    /// Pages that an engine has mapped and that it has accounted for, to be paid for yet.
    accounted: u64,
    /// An exception of the program; otherwise the kernel populates a mapping.
    exception: bool,
    /// The page's key: held from the walk to the end of its page by the handler that maps it.
    key: BlockKey,
    locked: bool,
    /// Whether it holds off changes of the mappings.
    reads: bool,
    /// The placement policy does not serve the page.
    plain: bool,
    /// What the hardware told of its walk, for the first page.
    reached: Option<Reached>,
    /// The frame is from a ring, and its page is yet to be left to the thread of that.
    defers: bool,
    /// Levels that the translation cache lacks of the last walk.
    unfilled: Option<(u8, u8)>,
    outcome: Outcome,
}

impl Fault {
    /// The handler, on a CPU, of what hardware reports.
    pub fn new(fault: &PageFault, cpu: CpuId) -> Self {
        let page = fault.va.align_down(FRAME_BYTES);
        Self {
            space: fault.space,
            va: fault.va,
            intent: fault.intent,
            cpu,
            state: FaultState::Entry,
            phase: Phase::Plain,
            work: Work::Fresh,
            kind: None,
            page,
            size: PageSize::Size4K,
            wanted: PageSize::Size4K,
            together: 0,
            order: 0,
            flags: PteFlags { writable: false, user: true, executable: false, accessed: true, dirty: false },
            frame: Pfn(0),
            around: VaRange { start: page, end: page },
            present_to: page,
            further: 0,
            counted: false,
            major: false,
            alone: false,
            fruitless: 0,
            accounted: 0,
            exception: true,
            key: BlockKey::Page { space: fault.space, page: fault.va.page_number() },
            locked: false,
            reads: false,
            plain: false,
            reached: fault.reached,
            defers: false,
            unfilled: None,
            outcome: Outcome::Retry,
        }
    }

    /// The kernel's own handling of a page that it populates. What a call did not ask for is no fault.
    pub fn populate(space: SpaceId, va: VirtAddr, why: Ahead, cpu: CpuId) -> Self {
        let (intent, counted) = match why {
            Ahead::Asked(intent) => (intent, false),
            Ahead::Policy => (Intent::Store, true),
        };
        Self {
            state: FaultState::Lookup,
            exception: false,
            counted,
            ..Self::new(&PageFault { space, va, intent, reached: None }, cpu)
        }
    }

    /// The space whose page is missing.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Whether a device was read for it.
    pub fn is_major(&self) -> bool {
        self.major || self.work == Work::SwapIn
    }

    /// How it has ended, once it is done.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// First address behind the page that was mapped.
    fn end(&self) -> VirtAddr {
        VirtAddr(self.page.0 + (FRAME_BYTES << self.order))
    }

    /// See the field.
    pub fn present_to(&self) -> VirtAddr {
        self.present_to
    }

    /// The stage that the next step is of; costs and cycles are counted there.
    pub fn stage(&self) -> Stage {
        if let Some(stage) = self.phase.stage() {
            return stage;
        }
        match self.state {
            FaultState::Entry => Stage::Entry,
            FaultState::Lookup => Stage::Lookup,
            FaultState::Walk
            | FaultState::NextEntry
            | FaultState::Fill { .. }
            | FaultState::Table { .. }
            | FaultState::Split { .. } => Stage::Walk,
            FaultState::TakeReady { .. } if self.defers => Stage::Lru,
            FaultState::Allocation
            | FaultState::TakeReady { .. }
            | FaultState::Place(_)
            | FaultState::Refill { .. }
            | FaultState::Reclaim { .. }
            | FaultState::WriteBack { .. }
            | FaultState::Supply => Stage::Allocation,
            FaultState::Zeroing | FaultState::Read { .. } => Stage::Zeroing,
            FaultState::Charge => Stage::Charge,
            FaultState::Rmap => Stage::Rmap,
            FaultState::Lru => Stage::Lru,
            FaultState::Lock | FaultState::Install { .. } | FaultState::Rehash { .. } => Stage::Install,
            FaultState::Return => Stage::Return,
        }
    }

    /// On whose behalf the handler acts.
    fn context(&self, os: &Os) -> KernelContext {
        self.context_in(&os.layers[self.space.layer])
    }

    /// The same, for callers that have the layer.
    fn context_in(&self, layer: &Layer) -> KernelContext {
        layer.context(self.cpu, self.space.index)
    }

    fn layer<'a>(&self, os: &'a mut Os) -> &'a mut Layer {
        &mut os.layers[self.space.layer]
    }

    fn counters<'a>(&self, os: &'a mut Os) -> &'a mut FaultCounters {
        &mut os.faults[self.space.layer]
    }

    /// Lists the references of a walk for the page; into a list of the caller's, which is large.
    fn walk(&self, os: &Os, list: &mut WalkList) {
        let layer = &os.layers[self.space.layer];
        layer.spaces[self.space.index].table.walk(&layer.memory.contents, self.va, list);
    }

    /// What a walk for the page ends at.
    fn leaf(&self, os: &Os) -> Leaf {
        let mut list = WalkList::new();
        self.walk(os, &mut list);
        list.leaf
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Result<Next, EngineError> {
        let cpu = task.cpu;
        // What the step has paid for.
        self.accounted = 0;
        if self.commit_io(os, effects) {
            return Ok(Next::Continue);
        }
        if self.writes_tables() && self.layer(os).paging.shadowed {
            self.counters(os).table_exits += 1;
        }
        // Matched where it is: few states own anything.
        self.state = match self.state {
            FaultState::Entry => self.after_entry(os),
            FaultState::Lookup => return self.go(|fault| Ok(fault.commit_lookup(os, task))),
            FaultState::Walk => return self.go(|fault| fault.commit_walk(os, task, FaultState::Walk)),
            FaultState::NextEntry => return self.go(|fault| fault.commit_walk(os, task, FaultState::NextEntry)),
            FaultState::Fill { levels, .. } => {
                let (space, va, of) = (self.space.index, self.va, self.cpu);
                self.layer(os).fill_translation_cache(space, of, va, levels);
                self.after_walk(os)
            }
            FaultState::Table { block } => {
                self.link(os, effects, block);
                self.next_table(os)?
            }
            FaultState::Split { frame } => {
                self.split(os, effects, frame);
                self.look_again(os, task)
            }
            FaultState::Allocation => self.allocate(os, effects)?,
            FaultState::Reclaim { pressure } => match self.reclaim(os, effects, pressure, task) {
                Ok(state) => state,
                Err(key) => return Ok(Next::Block(key)),
            },
            FaultState::Supply => self.supply(os, effects, cpu),
            FaultState::WriteBack { .. } | FaultState::Place(_) | FaultState::Read { .. } => {
                match self.commit_owned(os, effects, task) {
                    Ok(state) => state,
                    Err(next) => return Ok(next),
                }
            }
            FaultState::Refill { .. } => FaultState::Zeroing,
            FaultState::Zeroing => self.filled(os, effects),
            FaultState::Charge => self.charged(os, cpu),
            FaultState::Rmap if matches!(self.work, Work::SwapCached | Work::Shared { present: true, .. }) => {
                FaultState::Lock
            }
            FaultState::Rmap if self.work == Work::Ready => FaultState::TakeReady { entry: self.entry(os) },
            FaultState::Rmap => FaultState::Lru,
            FaultState::Lru => {
                let (batch, frame) = (os.costs.lru_batch, self.frame);
                self.layer(os).gather(cpu, frame, batch);
                FaultState::Lock
            }
            FaultState::Lock => return self.go(|fault| Ok(fault.commit_lock(os, task))),
            FaultState::TakeReady { entry } => self.take_ready(os, task, entry),
            FaultState::Install { entry } => return self.go(|fault| fault.commit_install(os, effects, task, entry)),
            FaultState::Rehash { entry, .. } => {
                os.locks.release(self.table_key(os, entry), task);
                return Ok(self.page_done(os, task));
            }
            FaultState::Return => {
                self.end_read(os, task);
                return Ok(Next::Done);
            }
        };
        self.begin_io(os);
        Ok(Next::Continue)
    }

    /// Carries out a step whose state owns what it is about.
    fn commit_owned(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Result<FaultState, Next> {
        Ok(match std::mem::replace(&mut self.state, FaultState::Entry) {
            FaultState::WriteBack { scan } => self.written_back(os, &scan, task),
            FaultState::Place(step) => match self.place(os, effects, task, step) {
                Ok(state) => state,
                Err((key, step)) => {
                    self.state = FaultState::Place(step);
                    return Err(Next::Block(key));
                }
            },
            FaultState::Read { pages } => {
                let Work::Read { file, .. } = self.work else { unreachable!("only such a fault reads") };
                self.finish_read(os, effects, file, &pages);
                self.major = true;
                self.look_again(os, task)
            }
            state => unreachable!("{state:?} is carried out where it is"),
        })
    }

    /// Carries out what either goes on with a state or says what is to be done instead.
    fn go(
        &mut self,
        commit: impl FnOnce(&mut Self) -> Result<Result<FaultState, Next>, EngineError>,
    ) -> Result<Next, EngineError> {
        Ok(match commit(self)? {
            Ok(state) => {
                self.state = state;
                Next::Continue
            }
            Err(next) => next,
        })
    }

    /// Takes the lock of the page-table page.
    fn commit_lock(&mut self, os: &mut Os, task: TaskId) -> Result<FaultState, Next> {
        let entry = self.entry(os);
        let key = self.table_key(os, entry);
        if !os.locks.acquire(key, task) {
            self.state = FaultState::Lock;
            return Err(Next::Block(key));
        }
        let takes = self.work == Work::Ready && !self.layer(os).takes_in_faults();
        Ok(if takes { FaultState::TakeReady { entry } } else { FaultState::Install { entry } })
    }

    /// Finds the VMA; says what is to be done instead of going on, if it must.
    fn commit_lookup(&mut self, os: &mut Os, task: TaskId) -> Result<FaultState, Next> {
        let context = self.context(os);
        // A stack that grows changes what faults in it rely on (`expand_stack` locks the mappings for writing).
        let growth = self.layer(os).spaces[self.space.index].vmas.growth(self.va);
        if growth.is_some() && !os.locks.may_change(self.space, growth, os.costs.fault_lock) {
            self.state = FaultState::Lookup;
            return Err(Next::Block(BlockKey::Mappings { space: self.space }));
        }
        let next = self.look_up(os, task);
        if let Some(growth) = growth {
            let space = self.space.index;
            self.layer(os).grow_translation_cache(context, space, growth.end);
        }
        Ok(next)
    }

    /// Lets the page go and begins with it anew.
    fn look_again(&mut self, os: &mut Os, task: TaskId) -> FaultState {
        os.locks.release(self.key, task);
        self.locked = false;
        FaultState::Walk
    }

    fn look_up(&mut self, os: &mut Os, task: TaskId) -> FaultState {
        let layer = self.layer(os);
        let (wanted, large_pages, folio) =
            (layer.paging.page_size, layer.paging.large_pages, layer.paging.folio_orders.last().copied());
        let vmas = &mut layer.spaces[self.space.index].vmas;
        let Some(vma) = vmas.find_or_grow(self.va) else {
            self.outcome = Outcome::Refused;
            self.counters(os).outside += u64::from(self.exception);
            return FaultState::Return;
        };
        let allowed = match self.intent {
            Intent::Load => vma.prot.read || vma.prot.write || vma.prot.execute,
            Intent::Store => vma.prot.write,
            // Imported traces and synthetic programs know nothing of execute permission.
            Intent::Fetch => vma.prot.execute || vma.prot.read,
        };
        if !allowed {
            self.outcome = Outcome::Refused;
            self.counters(os).forbidden += u64::from(self.exception);
            return FaultState::Return;
        }
        self.flags.executable = vma.prot.execute;
        let anonymous = !work::is_file(vma);
        let size = largest_page(vma, self.va, large_pages, wanted);
        let range = vma.range();
        let following = ((vma.end.0 - 1) >> FRAME_SHIFT) - self.va.page_number();
        let (folio, single) = (folio.filter(|_| anonymous), size == PageSize::Size4K);
        self.wanted = size;
        self.together = folio.filter(|_| single).unwrap_or(size.order());
        if anonymous && self.exception && single && folio.is_none() {
            self.further = (os.costs.pages_per_fault - 1).min(following as u32);
        }
        os.locks.read_mappings(self.space, range, task);
        self.reads = true;
        FaultState::Walk
    }

    fn set_size(&mut self, size: PageSize) {
        (self.size, self.order) = (size, size.order());
        self.page = VirtAddr(self.va.0 & !(size.bytes() - 1));
    }

    /// Where those meet who may change the same page: at the first of 2^order 4 KiB pages.
    fn meet_at(&mut self, order: u32) {
        self.key = BlockKey::Page { space: self.space, page: self.va.page_number() >> order << order };
    }

    /// Where a table stands already, the page is no larger than what the table maps by an entry.
    fn shrink_to(&mut self, level: u8) {
        while self.size > PageSize::of_level(level) {
            self.set_size(smaller(self.size));
        }
    }

    /// Goes for the next missing table, or on to the page itself.
    fn next_table(&mut self, os: &mut Os) -> Result<FaultState, EngineError> {
        let context = self.context(os);
        let block = self.layer(os).take_table(context, self.space.index, self.page, self.size)?;
        Ok(block.map_or_else(|| self.after_tables(os), |block| FaultState::Table { block }))
    }

    fn after_tables(&mut self, os: &mut Os) -> FaultState {
        self.begin_fill(os).unwrap_or_else(|| self.after_walk(os))
    }

    fn after_walk(&self, os: &Os) -> FaultState {
        match self.work {
            work if work.allocates() => self.begin_allocation(os),
            Work::Ready if os.layers[self.space.layer].takes_in_faults() => {
                FaultState::TakeReady { entry: self.entry(os) }
            }
            Work::Read { .. } => FaultState::Allocation,
            Work::Cached { .. } | Work::SwapCached | Work::Shared { present: true, .. } => FaultState::Rmap,
            _ => FaultState::Lock,
        }
    }

    /// Whether the step writes to the page table.
    fn writes_tables(&self) -> bool {
        matches!(self.state, FaultState::Table { .. } | FaultState::Split { .. } | FaultState::Install { .. })
    }

    /// Links a zeroed table, unless another handler was faster.
    fn link(&self, os: &mut Os, effects: &mut Effects, block: TableBlock) {
        let context = self.context(os);
        if self.layer(os).link_table(context, self.space.index, self.page, self.size, block) {
            self.counters(os).tables += 1;
        }
        os.want_cut_armed(effects, context, self.space.layer);
    }

    /// The lock of the page-table page that an entry is in.
    fn table_key(&self, os: &Os, entry: PhysAddr) -> BlockKey {
        let space = &os.layers[self.space.layer].spaces[self.space.index];
        BlockKey::PageTable { layer: self.space.layer, frame: space.lock_frame(entry) }
    }

    /// The page at `va` is mapped: goes on to the next one, or ends.
    fn page_done(&mut self, os: &mut Os, task: TaskId) -> Next {
        if self.locked {
            os.locks.release(self.key, task);
            self.locked = false;
            // As Linux counts them (`mm_account_fault`): population too.
            if !std::mem::replace(&mut self.counted, true) {
                let major = self.is_major();
                let counters = self.counters(os);
                *if major { &mut counters.major } else { &mut counters.minor } += 1;
            }
        }
        if self.further > 0 && matches!(self.work, Work::Fresh) {
            self.further -= 1;
            let before = self.entry(os);
            // A page that is there already has left `page` at the one before it.
            self.va = VirtAddr((self.va.0 & !(FRAME_BYTES - 1)) + FRAME_BYTES);
            self.reached = None;
            let entry = self.entry(os);
            let beside = entry.0 == before.0 + ENTRY_BYTES && entry.pfn() == before.pfn();
            self.state = if beside { FaultState::NextEntry } else { FaultState::Walk };
            return Next::Continue;
        }
        if !self.exception {
            self.end_read(os, task);
            return Next::Done;
        }
        self.state = FaultState::Return;
        Next::Continue
    }

    /// The mappings may change again.
    fn end_read(&mut self, os: &mut Os, task: TaskId) {
        if std::mem::take(&mut self.reads) {
            os.locks.end_read(self.space, task);
        }
    }
}

fn smaller(size: PageSize) -> PageSize {
    PageSize::ALL[(size as usize).saturating_sub(1)]
}
