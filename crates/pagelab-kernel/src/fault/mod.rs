//! The page-fault handler of a kernel.
//!
//! Models: an activity of named stages ([`Stage`]). Each stage has the instructions and cycles of the kernel preset,
//! and references to the kernel's data, which go through TLB and caches: saved registers on the CPU's stack, the lock
//! and the nodes of the VMA index, page-table entries, the allocator's lists, page metadata, the CPU's batches for
//! cgroup and LRU lists, and, whenever a batch is exhausted, the line that all CPUs share. After its walk the fault
//! decides what to map (`FaultWork`): a zeroed frame, the zero page, a copy of a write-protected page, that page itself
//! if it is not shared, or a page of the page cache and those around it.
//!
//! The first handler of a page takes the page's key and does the work. Others that fault on the page meanwhile wait,
//! then find the translation and return. The PTE is written under the lock of its page-table page.
//! Source: Linux `exc_page_fault`, `handle_mm_fault`, `do_anonymous_page`, `do_wp_page`, `do_read_fault`,
//! `do_cow_fault`, `do_shared_fault`, `do_fault_around` (mm/memory.c), `filemap_map_pages` (mm/filemap.c).
//! Parameters: `kernel.fault.*` (instructions and cycles of each stage beyond its references), `kernel.fault_kinds.*`
//! (where kinds of faults differ), `kernel.fault_lock`, `kernel.vma_index`, `kernel.zero_page`,
//! `kernel.fault_around_bytes`, `kernel.pages_per_fault` and `system.layers.NAME.pages_per_fault`, `kernel.lru_batch`,
//! `kernel.charge_batch`, `kernel.vm_exit_cycles`.
//! Deviations: in Linux, two handlers of one page both allocate and zero a frame, and the one that gets the PTE lock
//! second frees its frame. Here it waits after its walk, so a frame is never allocated twice. A mapping call waits for
//! faults in progress, but not vice versa, since it is carried out at once. A kernel's objects of an address space
//! share one frame. Additional pages of a fault cost references, but instructions only if the preset says so
//! (`page_instructions`). Pages of a file that are read together are charged in one step, with the cost of one page and
//! the references of all.

mod allocate;
mod anonymous;
mod batches;
mod cached_walk;
mod copy;
mod fallback;
mod file;
mod install;
pub mod io;
pub mod latencies;
mod memory_file;
mod parts;
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
pub use plan::plan_vma_search;
use stage::{FaultCounters, Stage};
pub use work::{gets_large_pages, largest_page};

use crate::config::FaultLock;
use crate::context::KernelContext;
use crate::effects::Effects;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::os::Os;
use crate::reclaim::Pressure;
use crate::vma::{VaRange, Vma};
use latencies::Service;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, PageSize, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::page_fault::{Intent, PageFault};
use pagelab_base::step::{BlockKey, Next};
use pagelab_tables::page_table::{Exhausted, Leaf, NoRoom, TableBlock, WalkList};
use parts::{FaultProgress, FaultRequest, FaultState, HeldLocks, Target};
use work::FaultWork;

/// Size of a PTE.
const ENTRY_BYTES: u64 = 8;

/// How a finished fault ended, for the access that raised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOutcome {
    /// Translate again.
    Retry,
    /// The access is impossible: there is no mapping, or it forbids the access.
    Refused,
}

/// Why pages are mapped ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// A call asks for it; the pages are mapped as for such accesses.
    Asked(Intent),
    /// The kernel's policy, as long as there is enough memory.
    Policy,
}

/// The handling of a fault, see the module's text.
#[derive(Clone, Debug)]
pub struct Fault {
    request: FaultRequest,
    target: Target,
    held: HeldLocks,
    progress: FaultProgress,
}

impl Fault {
    /// The handler, on a CPU, for a fault that hardware reports.
    pub fn new(fault: &PageFault, cpu: CpuId) -> Self {
        let page = fault.va.align_down(FRAME_BYTES);
        Self {
            request: FaultRequest {
                space: fault.space,
                va: fault.va,
                intent: fault.intent,
                cpu,
                exception: true,
                reached: fault.reached,
            },
            target: Target::new(page),
            held: HeldLocks {
                key: BlockKey::Page { space: fault.space, page: fault.va.page_number() },
                page: false,
                mappings: false,
                fell_back: false,
                returns_vma: false,
                waits_without: false,
            },
            progress: FaultProgress::new(page),
        }
    }

    /// The handling of a page that the kernel populates. It counts as a fault only if a call asked for it.
    pub fn populate(space: SpaceId, va: VirtAddr, why: Ahead, cpu: CpuId) -> Self {
        let (intent, counted) = match why {
            Ahead::Asked(intent) => (intent, false),
            Ahead::Policy => (Intent::Store, true),
        };
        let mut fault = Self::new(&PageFault { space, va, intent, reached: None }, cpu);
        fault.request.exception = false;
        (fault.progress.state, fault.progress.counted) = (FaultState::Lookup, counted);
        fault
    }

    /// The space whose page is missing.
    pub fn space(&self) -> SpaceId {
        self.request.space
    }

    /// Whether it read a device.
    pub fn is_major(&self) -> bool {
        self.progress.major || self.progress.work == FaultWork::SwapIn
    }

    /// How it was served, when it is done; none if it mapped nothing.
    pub fn service(&self, nested: bool) -> Option<Service> {
        if nested {
            return self.progress.counted.then_some(Service::Nested);
        }
        if self.is_major() {
            return Some(Service::Major);
        }
        let ready = self.progress.work == FaultWork::Ready;
        self.progress.counted.then_some(if ready { Service::ReadyFrame } else { Service::Minor })
    }

    /// How it ended, when it is done.
    pub fn outcome(&self) -> FaultOutcome {
        self.progress.outcome
    }

    /// First address after the pages that the fault has found or made present.
    pub fn present_to(&self) -> VirtAddr {
        self.progress.present_to
    }

    /// The stage of the next step, whose counters get its costs.
    pub fn stage(&self) -> Stage {
        if let Some(stage) = self.progress.phase.stage() {
            return stage;
        }
        match self.progress.state {
            FaultState::Entry => Stage::Entry,
            FaultState::Lookup => Stage::Lookup,
            FaultState::Collision
            | FaultState::Walk
            | FaultState::NextEntry
            | FaultState::Fill { .. }
            | FaultState::Table { .. }
            | FaultState::Split { .. }
            | FaultState::Parts { .. } => Stage::Walk,
            FaultState::TakeReady { .. } if self.progress.defers => Stage::Lru,
            FaultState::Allocation
            | FaultState::TakeReady { .. }
            | FaultState::Place(_)
            | FaultState::Refill { .. }
            | FaultState::Reclaim(_)
            | FaultState::WriteBack { .. }
            | FaultState::Dissolve(_)
            | FaultState::Deflate { .. }
            | FaultState::Supply => Stage::Allocation,
            FaultState::Zeroing | FaultState::Read { .. } => Stage::Zeroing,
            FaultState::Charge | FaultState::ChargeRead { .. } => Stage::Charge,
            FaultState::AnonVma { .. } | FaultState::Rmap => Stage::Rmap,
            FaultState::Lru { .. } => Stage::Lru,
            FaultState::Lock(_) | FaultState::Install { .. } | FaultState::Rehash { .. } => Stage::Install,
            FaultState::Return => Stage::Return,
        }
    }

    /// On whose behalf the handler acts.
    fn context(&self, os: &Os) -> KernelContext {
        self.context_in(&os.layers[self.request.space.layer])
    }

    /// The same, for callers that have the layer.
    fn context_in(&self, layer: &Layer) -> KernelContext {
        layer.context(self.request.cpu, self.request.space.index)
    }

    fn layer<'a>(&self, os: &'a mut Os) -> &'a mut Layer {
        &mut os.layers[self.request.space.layer]
    }

    fn counters<'a>(&self, os: &'a mut Os) -> &'a mut FaultCounters {
        &mut os.faults[self.request.space.layer]
    }

    /// Lists the references of a walk for the page, in the caller's list, since lists are large.
    fn walk(&self, os: &Os, list: &mut WalkList) {
        let layer = &os.layers[self.request.space.layer];
        layer.spaces[self.request.space.index].table.walk(&layer.memory.contents, self.request.va, list);
    }

    /// The end of a walk for the page.
    fn leaf(&self, os: &Os) -> Leaf {
        let mut list = WalkList::new();
        self.walk(os, &mut list);
        list.leaf
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Result<Next, EngineError> {
        let cpu = task.cpu;
        // The step has paid for these.
        self.progress.accounted = 0;
        if self.commit_io(os, effects) {
            return Ok(Next::Continue);
        }
        if self.writes_tables() && self.layer(os).paging.shadowed {
            self.counters(os).table_exits += 1;
        }
        // Matched in place, since few states own anything.
        self.progress.state = match self.progress.state {
            FaultState::Entry => self.after_entry(os),
            FaultState::Collision => self.commit_collision(os)?,
            FaultState::Lookup => return self.go(|fault| Ok(fault.commit_lookup(os, task))),
            FaultState::Walk => return self.go(|fault| fault.commit_walk(os, task, FaultState::Walk)),
            FaultState::NextEntry => return self.go(|fault| fault.commit_walk(os, task, FaultState::NextEntry)),
            FaultState::Fill { levels, .. } => {
                let (space, va, request_cpu) = (self.request.space.index, self.request.va, self.request.cpu);
                self.layer(os).fill_translation_cache(space, request_cpu, va, levels);
                self.after_walk(os)
            }
            FaultState::Table { block } => {
                self.link(os, effects, block);
                self.next_table(os)?
            }
            FaultState::Split { frame } => {
                let lines = self.split(os, effects, frame)?;
                if lines.is_empty() { self.look_again(os, task) } else { FaultState::Parts { lines } }
            }
            FaultState::Parts { .. } => self.look_again(os, task),
            FaultState::AnonVma { locked } => self.commit_anon_vma(os, task, locked),
            FaultState::Allocation => self.allocate(os, effects)?,
            FaultState::Supply => self.supply(os, effects, cpu),
            FaultState::Reclaim(_)
            | FaultState::WriteBack { .. }
            | FaultState::Dissolve(_)
            | FaultState::Deflate { .. }
            | FaultState::Place(_)
            | FaultState::ChargeRead { .. }
            | FaultState::Read { .. } => match self.commit_owned(os, effects, task) {
                Ok(state) => state,
                Err(next) => return Ok(next),
            },
            FaultState::Refill { lock, .. } => return self.go(|fault| Ok(fault.commit_refill(os, task, lock))),
            FaultState::Zeroing => self.filled(os, effects),
            FaultState::Charge => self.charged(os, cpu),
            FaultState::Rmap if self.progress.work == FaultWork::SwapCached => FaultState::LOCK,
            FaultState::Rmap if self.progress.work == FaultWork::Ready => {
                FaultState::TakeReady { entry: self.entry(os) }
            }
            FaultState::Rmap => FaultState::Lru { lock: self.lru_lock(os) },
            FaultState::Lru { lock } => return self.go(|fault| Ok(fault.commit_lru(os, task, lock))),
            FaultState::Lock(locking) => return self.go(|fault| Ok(fault.commit_lock(os, task, locking))),
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

    /// Carries out a step whose state owns data.
    fn commit_owned(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Result<FaultState, Next> {
        Ok(match std::mem::replace(&mut self.progress.state, FaultState::Entry) {
            FaultState::Reclaim(scan) => return self.reclaim(os, effects, scan, task),
            FaultState::WriteBack { mut scan } if !scan.absent.is_empty() => {
                scan.absent.clear();
                FaultState::WriteBack { scan }
            }
            FaultState::WriteBack { scan } => self.written_back(os, &scan, task),
            FaultState::Dissolve(work) => self.commit_dissolution(os, effects, work, task),
            FaultState::Deflate { frames } => self.deflated(os, &frames, task),
            FaultState::Place(step) => match self.place(os, effects, task, step) {
                Ok(state) => state,
                Err((key, step)) => {
                    self.progress.state = FaultState::Place(step);
                    return Err(Next::Block(key));
                }
            },
            FaultState::ChargeRead { pages } => {
                self.charge_pages(os, task.cpu, pages.len() as u32);
                self.give_up_mappings(os, task);
                FaultState::Read { pages }
            }
            FaultState::Read { pages } => {
                let FaultWork::Read { file, .. } = self.progress.work else { unreachable!("only such a fault reads") };
                self.finish_read(os, effects, file, &pages);
                self.progress.major = true;
                self.look_again_after_read(os, task)
            }
            state => unreachable!("{state:?} is carried out where it is"),
        })
    }

    /// Runs a commit that returns the next state, or what the handler does instead of continuing.
    fn go(
        &mut self,
        commit: impl FnOnce(&mut Self) -> Result<Result<FaultState, Next>, EngineError>,
    ) -> Result<Next, EngineError> {
        Ok(match commit(self)? {
            Ok(state) => {
                self.progress.state = state;
                Next::Continue
            }
            Err(next) => next,
        })
    }

    /// Exchanges the entry with the one in the head of its chain, unless another handler did so or it has gone.
    fn commit_collision(&self, os: &mut Os) -> Result<FaultState, EngineError> {
        if self.hidden_lines(os).is_none() {
            return Ok(FaultState::Lookup);
        }
        self.counters(os).collisions += 1;
        let (space, va) = (self.request.space.index, self.request.va);
        let layer = self.layer(os);
        let uncovered = layer.spaces[space].table.uncover(&mut layer.memory.contents, va);
        uncovered.map_err(|NoRoom| layer.exhausted(Exhausted::Places(va)))?;
        Ok(FaultState::Return)
    }

    /// Finds the VMA. Returns the next state, or what the handler must do instead of continuing.
    fn commit_lookup(&mut self, os: &mut Os, task: TaskId) -> Result<FaultState, Next> {
        let context = self.context(os);
        self.held.returns_vma = false;
        if let Some(why) = self.refused_under_vma(os) {
            return Ok(self.fall_back(os, task, why));
        }
        let lock = self.lock(os);
        // A stack that grows changes what other faults in it rely on (`expand_stack` locks the mappings for writing).
        let growth = self.layer(os).spaces[self.request.space.index].vmas.growth(self.request.va);
        if growth.is_some() && !os.locks.may_change(self.request.space, growth, os.costs.fault_lock) {
            self.progress.state = FaultState::Lookup;
            return Err(Next::Block(BlockKey::Mappings { space: self.request.space }));
        }
        let vma = self.layer(os).spaces[self.request.space.index].vmas.find(self.request.va).map(Vma::range);
        if !self.held.mappings && !os.locks.may_read(self.request.space, vma, lock) {
            self.progress.state = FaultState::Lookup;
            return Err(Next::Block(BlockKey::MappingsRead { space: self.request.space }));
        }
        let next = self.look_up(os, task);
        if let Some(growth) = growth {
            let space = self.request.space.index;
            self.layer(os).grow_translation_cache(context, space, growth.end);
        }
        Ok(next)
    }

    /// Releases the page's key and walks again.
    fn look_again(&mut self, os: &mut Os, task: TaskId) -> FaultState {
        os.locks.release(self.held.key, task);
        self.held.page = false;
        FaultState::Walk
    }

    fn look_up(&mut self, os: &mut Os, task: TaskId) -> FaultState {
        let lock = self.lock(os);
        let pages_of_kernel = os.costs.pages_per_fault;
        let layer = self.layer(os);
        let pages_per_fault = layer.paging.pages_per_fault.unwrap_or(pages_of_kernel);
        let (wanted, large_pages, folio) =
            (layer.paging.page_size, layer.paging.large_pages, layer.paging.folio_orders.last().copied());
        let space = &mut layer.spaces[self.request.space.index];
        let (segment, vmas) = (space.segment, &mut space.vmas);
        let Some(vma) = vmas.find_or_grow(self.request.va) else {
            self.progress.outcome = FaultOutcome::Refused;
            self.counters(os).outside += u64::from(self.request.exception);
            return FaultState::Return;
        };
        let allowed = match self.request.intent {
            Intent::Load => vma.prot.read || vma.prot.write || vma.prot.execute,
            Intent::Store => vma.prot.write,
            // Imported traces and synthetic programs have no execute permissions.
            Intent::Fetch => vma.prot.execute || vma.prot.read,
        };
        if !allowed {
            self.progress.outcome = FaultOutcome::Refused;
            self.counters(os).forbidden += u64::from(self.request.exception);
            return FaultState::Return;
        }
        if let Some(segment) = segment.filter(|segment| segment.range.contains(self.request.va)) {
            // The segment has grown since the exception, or since the call that populates memory.
            self.progress.present_to = segment.range.end;
            self.counters(os).raced += u64::from(self.request.exception);
            return FaultState::Return;
        }
        self.target.flags.executable = vma.prot.execute;
        let anonymous = !work::is_file(vma);
        let size = largest_page(vma, self.request.va, large_pages, wanted);
        let range = vma.range();
        let following = ((vma.end.0 - 1) >> FRAME_SHIFT) - self.request.va.page_number();
        let (folio, single) = (folio.filter(|_| anonymous), size == PageSize::Size4K);
        self.target.largest = size;
        self.target.key_order = folio.filter(|_| single).unwrap_or(size.order());
        if anonymous && self.request.exception && single && folio.is_none() && !self.progress.counted {
            self.progress.further = (pages_per_fault - 1).min(following as u32);
        }
        // Under the lock of the address space, it relies on all mappings.
        let range = if lock == FaultLock::Mm { VaRange::ALL } else { range };
        os.locks.read_mappings(self.request.space, range, task);
        self.held.mappings = true;
        FaultState::Walk
    }

    /// Goes to the next missing table, or on to the page itself.
    fn next_table(&mut self, os: &mut Os) -> Result<FaultState, EngineError> {
        let context = self.context(os);
        let tries = self.tries_reclaim();
        let layer = self.layer(os);
        let (space, page, size) = (self.request.space.index, self.target.page, self.target.size);
        let taken = layer.take_table(context, space, page, size);
        match taken {
            Ok(block) => Ok(block.map_or_else(|| self.after_tables(os), |block| FaultState::Table { block })),
            // A page table is allocated like a page (`GFP_PGTABLE_USER`), and may wait for reclaim.
            Err(_) if tries && layer.memory.can_reclaim(Pressure::Memory) => Ok(FaultState::reclaim(Pressure::Memory)),
            Err(error) if layer.deflates_for_table(space, page, size) => self.last_resort(os).ok_or(error),
            Err(error) => Err(error),
        }
    }

    fn after_tables(&mut self, os: &mut Os) -> FaultState {
        self.begin_fill(os).unwrap_or_else(|| self.after_walk(os))
    }

    fn after_walk(&self, os: &Os) -> FaultState {
        if let Some(state) = self.before_anonymous_page(os) {
            return state;
        }
        match self.progress.work {
            work if work.allocates() => self.begin_allocation(os),
            FaultWork::Ready if os.layers[self.request.space.layer].takes_in_faults() => {
                FaultState::TakeReady { entry: self.entry(os) }
            }
            FaultWork::Read { .. } => FaultState::Allocation,
            FaultWork::Cached { .. } | FaultWork::SwapCached => FaultState::Rmap,
            _ => FaultState::LOCK,
        }
    }

    /// Whether the step writes to the page table.
    fn writes_tables(&self) -> bool {
        matches!(self.progress.state, FaultState::Table { .. } | FaultState::Split { .. } | FaultState::Install { .. })
    }

    /// Links a zeroed table, unless another handler was faster.
    fn link(&self, os: &mut Os, effects: &mut Effects, block: TableBlock) {
        let context = self.context(os);
        if self.layer(os).link_table(context, self.request.space.index, self.target.page, self.target.size, block) {
            self.counters(os).tables += 1;
        }
        os.request_arming_after_split(effects, context, self.request.space.layer);
    }

    /// The lock of the page-table page that contains an entry.
    fn table_key(&self, os: &Os, entry: PhysAddr) -> BlockKey {
        let space = &os.layers[self.request.space.layer].spaces[self.request.space.index];
        BlockKey::PageTable { layer: self.request.space.layer, frame: space.lock_frame(entry) }
    }

    /// The page at `va` is mapped: goes to the next one, or ends.
    fn page_done(&mut self, os: &mut Os, task: TaskId) -> Next {
        if self.held.page {
            os.locks.release(self.held.key, task);
            self.held.page = false;
            // Counted as in Linux (`mm_account_fault`), including populated pages.
            if !std::mem::replace(&mut self.progress.counted, true) {
                let major = self.is_major();
                let counters = self.counters(os);
                *if major { &mut counters.major } else { &mut counters.minor } += 1;
            }
        }
        if self.progress.further > 0 && matches!(self.progress.work, FaultWork::Fresh) {
            self.progress.further -= 1;
            let before = self.entry(os);
            // For a page that is already present, `page` is still at the one before.
            self.request.va = VirtAddr((self.request.va.0 & !(FRAME_BYTES - 1)) + FRAME_BYTES);
            self.request.reached = None;
            let entry = self.entry(os);
            let beside = entry.0 == before.0 + ENTRY_BYTES && entry.pfn() == before.pfn();
            self.progress.state = if beside { FaultState::NextEntry } else { FaultState::Walk };
            return Next::Continue;
        }
        if !self.request.exception {
            self.end_read(os, task);
            return Next::Done;
        }
        self.progress.state = FaultState::Return;
        Next::Continue
    }

    /// Allows the mappings to change again.
    fn end_read(&mut self, os: &mut Os, task: TaskId) {
        if std::mem::take(&mut self.held.mappings) {
            os.locks.end_read(self.request.space, task);
        }
    }
}
