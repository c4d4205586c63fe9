//! The software form as a system call that the program makes ahead of an access (`mfoe_se`).
//!
//! Models: the call takes the lock of the mm for reading and finds the VMA. If the engine serves that, it walks the
//! page table and takes the lock of the page-table page. If the entry is armed, it reads the header of its CPU's table
//! and the entry at the tail. If that has a frame, it stores address and owner there, advances the tail, and writes the
//! page's entry. It returns an error where one of these conditions fails. The program then makes its access: with
//! success that misses the TLB, and the walker finds the page; with an error it is a page fault.
//! Source: Tirumalasetty et al., 4.8.
//! Parameters: `fault_engine.form = "call"`, `fault_engine.call_cycles`. Search, walk and writing of the entry cost as
//! much as in the kernel's fault handler.
//! Stats: `layer.NAME.fault_engine.ahead.*`. Their latency begins after the entry of the system call and ends before
//! its return, as the paper measures it (5.2.2).
//! Choices: the program makes the call ahead of each access to a page that it has not touched since it was mapped, if
//! it has made the mapping while it had the engine. So it knows the faulting addresses beforehand, as in the paper. A
//! call for a page whose entry is being served waits for its lock, like a handler.

use crate::effects::Effects;
use crate::entry_word::{Armed, EntryWord};
use crate::fault::plan_vma_search;
use crate::fault::stage::Stage;
use crate::fault_engine::kernel_side::KernelSide;
use crate::fault_engine::mfoe::engine_access::{mfoe, mfoe_mut, with_memory};
use crate::layer::Layer;
use crate::layer::words::WordOf;
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::needs::Need;
use crate::os::Os;
use pagelab_base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::code_cost::CodeCost;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, SpaceId, SpaceIx};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{BlockKey, Next, RefKind, Step};
use pagelab_tables::page_table::{Leaf, Mapping, PteFlags, WalkList};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AheadState {
    /// Entry and return of the system call.
    Enter,
    /// Lock the mm, and find the VMA.
    Search,
    /// Walk the page table.
    Walk,
    /// Lock the page-table page, and read the page's entry again.
    Lock,
    /// Take the frame at the tail of the CPU's table.
    Take,
    /// Write the page's entry, and unlock.
    Map { frame: Pfn, armed: Armed },
    /// Unlock the page-table page: no frame is ready.
    Unlock,
    /// Unlock the mm, or the VMA in kernels that lock that.
    Leave,
}

/// A call, see the module's text.
#[derive(Clone, Debug)]
pub struct AheadCall {
    space: SpaceId,
    va: VirtAddr,
    size: PageSize,
    cpu: CpuId,
    state: AheadState,
    /// The locks that are held: of the page, and of its page-table page.
    page_key: Option<BlockKey>,
    table_key: Option<BlockKey>,
    mapped: bool,
}

impl AheadCall {
    /// The call for an address of a space.
    pub fn new(space: SpaceId, va: VirtAddr, cpu: CpuId) -> Self {
        let (size, state) = (PageSize::Size4K, AheadState::Enter);
        Self { space, va, size, cpu, state, page_key: None, table_key: None, mapped: false }
    }

    /// Whether the program makes the call ahead of an access.
    pub fn is_due(os: &Os, space: SpaceId, va: VirtAddr) -> bool {
        let (layer, index) = (&os.layers[space.layer], space.index);
        if !layer.calls_ahead() || layer.has_engine_off(index) || !layer.is_served(index, va) {
            return false;
        }
        let leaf = leaf(layer, index, va);
        let untouched = matches!(leaf, Leaf::NotPresent { .. });
        untouched && !matches!(layer.word_behind(index, va, &leaf), Some(WordOf { word: EntryWord::Swap(_), .. }))
    }

    /// The space of the program.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Whether it has mapped the page; otherwise it returns an error.
    pub fn has_mapped(&self) -> bool {
        self.mapped
    }

    fn page(&self) -> VirtAddr {
        self.va.align_down(self.size.bytes())
    }

    /// Address of the entry where a walk ends.
    fn entry(&self, os: &Os) -> PhysAddr {
        let layer = &os.layers[self.space.layer];
        layer.spaces[self.space.index].table.entry(&layer.memory.contents, self.va, self.size)
    }

    /// The armed word of the page and its size.
    fn armed(&self, os: &Os) -> Option<(Armed, PageSize)> {
        let (layer, index) = (&os.layers[self.space.layer], self.space.index);
        match layer.word_behind(index, self.va, &leaf(layer, index, self.va)) {
            Some(WordOf { size, word: EntryWord::Armed(armed), .. }) => Some((armed, size)),
            Some(WordOf { word: EntryWord::Swap(_) | EntryWord::Stored(_), .. }) | None => None,
        }
    }

    /// See `Activity::plan` of the simulation.
    pub fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[self.space.layer];
        let (engine, space) = (mfoe(layer), &layer.spaces[self.space.index]);
        let preset = |step: &mut Step, stage: Stage| step.preset += os.costs.fault.all()[stage as usize].cost();
        match self.state {
            AheadState::Enter => step.preset += CodeCost::from_cycles(engine.parameters.call_cycles),
            AheadState::Search => {
                preset(step, Stage::Lookup);
                let start = space.vmas.find(self.va).map_or(self.va, |vma| vma.start);
                plan_vma_search(os, self.space, start, os.costs.fault_lock, true, step);
            }
            AheadState::Walk => {
                preset(step, Stage::Walk);
                let mut list = WalkList::new();
                space.table.walk(&layer.memory.contents, self.va, &mut list);
                list.refs().iter().for_each(|r| step.kernel(RefKind::Read, r.addr));
            }
            AheadState::Lock => {
                step.kernel(RefKind::Locked, page_metadata(space.lock_frame(self.entry(os))));
                step.note_lock(LockKind::PageTable);
                step.kernel(RefKind::Read, self.entry(os));
            }
            AheadState::Take => engine.plan_take((self.cpu, self.size), &layer.memory.contents, step),
            AheadState::Map { .. } => {
                preset(step, Stage::Install);
                step.kernel(RefKind::Write, self.entry(os));
                step.kernel(RefKind::Write, page_metadata(space.lock_frame(self.entry(os))));
            }
            AheadState::Unlock => step.kernel(RefKind::Write, page_metadata(space.lock_frame(self.entry(os)))),
            AheadState::Leave => {
                let start = space.vmas.find(self.va).map_or(self.va, |vma| vma.start);
                let line = layer.fault_lock_line(os.costs.fault_lock, self.space.index, start);
                step.kernel(RefKind::Locked, line);
                step.note_lock(os.costs.fault_lock.kind());
            }
        }
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        self.state = match self.state {
            AheadState::Enter => AheadState::Search,
            AheadState::Search => {
                let layer = &os.layers[self.space.layer];
                let vma = layer.spaces[self.space.index].vmas.find(self.va).map(|vma| vma.range());
                let Some(range) = vma.filter(|_| layer.is_served(self.space.index, self.va)) else { return Next::Done };
                os.locks.read_mappings(self.space, range, task);
                AheadState::Walk
            }
            AheadState::Walk => match self.armed(os) {
                Some((_, size)) => {
                    self.size = size;
                    AheadState::Lock
                }
                None => AheadState::Leave,
            },
            AheadState::Lock => return self.lock(os, task),
            AheadState::Take => self.take(os),
            AheadState::Map { frame, armed } => self.map(os, effects, task, frame, armed),
            AheadState::Unlock => {
                self.unlock(os, task);
                AheadState::Leave
            }
            AheadState::Leave => {
                os.locks.end_read(self.space, task);
                return Next::Done;
            }
        };
        Next::Continue
    }

    /// Takes the lock of the page, then that of the page-table page, and looks at the entry again.
    fn lock(&mut self, os: &mut Os, task: TaskId) -> Next {
        let layer = &os.layers[self.space.layer];
        let page_key = layer.page_key(self.space, self.page());
        let frame = layer.spaces[self.space.index].lock_frame(self.entry(os));
        let table_key = BlockKey::PageTable { layer: self.space.layer, frame };
        for (key, held) in [(page_key, &mut self.page_key), (table_key, &mut self.table_key)] {
            if held.is_none() && !os.locks.acquire(key, task) {
                return Next::Block(key);
            }
            *held = Some(key);
        }
        let is_armed = self.armed(os).is_some_and(|(_, size)| size == self.size);
        self.state = if is_armed { AheadState::Take } else { AheadState::Unlock };
        Next::Continue
    }

    fn unlock(&mut self, os: &mut Os, task: TaskId) {
        for key in [self.table_key.take(), self.page_key.take()].into_iter().flatten() {
            os.locks.release(key, task);
        }
    }

    /// Takes the frame at the tail.
    fn take(&mut self, os: &mut Os) -> AheadState {
        let (armed, _) = self.armed(os).expect("the page's entry is locked");
        let (table, page) = ((self.cpu, self.size), self.page());
        let (engine, contents) = with_memory(&mut os.layers[self.space.layer]);
        let frame = engine.take(table, armed.owner, page, contents);
        frame.map_or(AheadState::Unlock, |frame| AheadState::Map { frame, armed })
    }

    /// Maps the frame, and unlocks.
    fn map(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId, frame: Pfn, armed: Armed) -> AheadState {
        let Armed { writable, executable, .. } = armed;
        // As a handler installs the entry, young and dirty.
        let flags = PteFlags { writable, executable, user: true, accessed: true, dirty: writable };
        let mapping = Mapping { pfn: frame, size: self.size, flags };
        let (index, page, id) = (self.space.index, self.page(), self.space.layer);
        let layer = &mut os.layers[id];
        let context = layer.context(task.cpu, index);
        layer.map_ready(context, index, page, mapping).expect("the entry that says so is the page's place");
        if mfoe(layer).runs_low(self.cpu, self.size) {
            effects.wake(id, Need::ReadyFrames);
        }
        self.mapped = true;
        self.unlock(os, task);
        AheadState::Leave
    }

    /// Counts cycles of the call.
    pub fn charge(&self, os: &mut Os, cycles: Cycles) {
        mfoe_mut(&mut os.layers[self.space.layer]).counters.ahead_cycles += cycles;
    }

    /// Counts a call that has ended, and its latency without entry and return.
    pub fn note_end(&self, os: &mut Os, took: Cycles) {
        let engine = mfoe_mut(&mut os.layers[self.space.layer]);
        let inside = took.saturating_sub(engine.parameters.call_cycles.into());
        engine.note_ahead(self.mapped, inside);
    }
}

/// Result of a walk of a space's page table.
fn leaf(layer: &Layer, index: SpaceIx, va: VirtAddr) -> Leaf {
    let mut list = WalkList::new();
    layer.spaces[index].table.walk(&layer.memory.contents, va, &mut list);
    list.leaf
}
