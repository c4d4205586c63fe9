//! The background thread, which accounts for mapped pages and replaces their frames by zeroed ones.
//!
//! Models: delayed work that requeues itself when it ends. It goes through the tables of the CPUs in turn, each under
//! the lock in its header, from the head to the first entry whose frame is still ready, or once around. If an entry is
//! used, it does for the page what a fault handler would have done: the VMA's anon_vma, the counter of the process, the
//! reverse map, the LRU lists and the charge to the memory cgroup. If the CPU should get more frames, it then allocates
//! and zeroes one, stores it at the head and advances the head. Each of these operations costs as much as in the
//! kernel's fault handler, stage by stage. The thread may be slower than that by cycles of its own, which the handler
//! does not pay.
//! Source: Tirumalasetty et al., 4.2 and 4.5; 4.9 for the limit.
//! Parameters: `fault_engine.period_cycles`, `late_pass`, `threads`, `wake_below`, `least_entries`, `limit_percent`,
//! `numa`, `prepare_cycles`, `account_cycles`.
//! Choices: an entry is marked used before its page is mapped; the thread then waits for the lock of the page. If no
//! frame is available without reclaim, entries stay empty until the next pass, kswapd is woken, and the pass continues
//! to account for the others.

use crate::context::KernelContext;
use crate::effects::Effects;
use crate::fault::stage::Stage;
use crate::fault_engine::kernel_side::{ArmingJob, KernelSide, UnaccountedPage};
use crate::fault_engine::mfoe::engine_access::{self, mfoe, mfoe_mut, with_memory};
use crate::fault_engine::mfoe::parameters::{LatePass, Numa};
use crate::fault_engine::mfoe::ready::Ready;
use crate::fault_engine::mfoe::tables::TableEntry;
use crate::frames::frame_alloc::{FramePurpose, Near};
use crate::layer::{CpuLine, Layer};
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::needs::Need;
use crate::os::Os;
use crate::threads::{Delay, EngineThread};
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, PhysAddr};
use pagelab_base::code_cost::CodeCost;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, LayerId, SpaceId, SpaceIx};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{BlockKey, Next, RefKind, Step};

#[derive(Clone, Debug, PartialEq, Eq)]
enum RefillState {
    /// Take the lock of a table.
    Lock,
    /// Read the next entry.
    Look,
    /// Account for the page that was mapped to its frame.
    Account {
        owner: SpaceIx,
        page: UnaccountedPage,
        ended: u64,
    },
    Allocate,
    /// The CPU's list of free pages was empty and was refilled under the zone's lock; read the metadata of these pages.
    Batch {
        frame: Pfn,
        descriptors: Vec<Pfn>,
    },
    Zero {
        frame: Pfn,
    },
    /// Store it at the head.
    Put {
        frame: Pfn,
    },
    /// No process is served: free the frame at the tail.
    Free,
    Unlock,
}

/// The thread, see the module's text.
#[derive(Clone, Debug)]
pub struct Refill {
    layer: LayerId,
    /// The CPU of the current table (with N threads, each handles every Nth CPU), and the page size of the table.
    table: CpuId,
    size: PageSize,
    /// The CPU that it runs on.
    cpu: CpuId,
    threads: usize,
    state: RefillState,
    /// Entries of the table that this pass has filled.
    filled: u32,
    /// Empty entries after the head that have been skipped.
    passed: u32,
    /// Whether the current entry was used.
    replaces: bool,
    /// This pass has found no free frame: it only accounts for used entries.
    is_short: bool,
}

impl Refill {
    fn key(&self) -> BlockKey {
        BlockKey::Engine { layer: self.layer, table: (self.table, self.size) }
    }

    /// The ready frames of the current table's size.
    fn ready<'a>(&self, layer: &'a Layer) -> &'a Ready {
        mfoe(layer).ready(self.size)
    }

    /// Address of the current entry.
    fn place(&self, layer: &Layer) -> PhysAddr {
        self.ready(layer).tables.after_head(self.table, self.passed, &layer.memory.contents)
    }

    /// Decides what to do about the next entry. Fails with the lock of its page if a task is about to map that page.
    fn look(&mut self, os: &Os) -> Result<RefillState, BlockKey> {
        let layer = &os.layers[self.layer];
        let ready = self.ready(layer);
        if self.filled + self.passed >= ready.entries {
            return Ok(RefillState::Unlock);
        }
        let entry = ready.tables.entry(self.place(layer), &layer.memory.contents);
        self.replaces = matches!(entry, TableEntry::Used { .. });
        Ok(match entry {
            TableEntry::Ready(_) if mfoe(layer).is_enabled() => RefillState::Unlock,
            TableEntry::Ready(_) => RefillState::Free,
            TableEntry::Empty => self.pass(layer),
            TableEntry::Used { owner, va, frame } => {
                let key = layer.page_key(SpaceId { layer: self.layer, index: owner }, va);
                if os.locks.is_held(key) {
                    return Err(key);
                }
                let page = UnaccountedPage { va, size: self.size, frame, place: self.place(layer), file: None };
                RefillState::Account { owner, page, ended: mfoe(layer).ended }
            }
        })
    }

    /// At an empty entry: prepares a frame for the head if one is needed, otherwise skips the entry.
    fn pass(&mut self, layer: &Layer) -> RefillState {
        let wants = self.ready(layer).wants_frame(self.table) && mfoe(layer).is_enabled();
        if wants && !self.is_short {
            return RefillState::Allocate;
        }
        self.passed += 1;
        RefillState::Look
    }

    /// Accounts for a page as a fault handler would, and clears the entry.
    fn account(&self, os: &mut Os, effects: &mut Effects, owner: SpaceIx, page: UnaccountedPage) {
        let layer = &mut os.layers[self.layer];
        let (engine, contents) = with_memory(layer);
        let ready = engine.ready_mut(self.size);
        ready.tables.clear(page.place, contents);
        ready.counters.accounted += 1;
        let (cpu, group) = (self.cpu, layer.spaces[owner].group);
        if !layer.takes_in_faults() {
            layer.consume_charge(cpu, group, 1 << self.size.order(), os.costs.charge_batch);
        }
        layer.gather(cpu, page.frame, os.costs.lru_batch);
        layer.account(owner, page);
        if is_beyond_limit(layer, owner) {
            let job = ArmingJob { space: owner, range: VaRange::ALL, arm: false };
            if mfoe_mut(layer).stop(job) {
                effects.wake(self.layer, Need::Arming);
            }
        }
    }

    /// The nodes of the table's frames; `None` for the thread's own choice.
    fn near(&self, layer: &Layer) -> Option<Near> {
        let only = match mfoe(layer).parameters.numa {
            Numa::PreferLocal => false,
            Numa::LocalOnly => true,
            Numa::Thread => return None,
        };
        Some(Near { cpu: self.table, only })
    }

    /// Allocates a frame, unless memory is short.
    fn allocate(&mut self, os: &mut Os, effects: &mut Effects, cpu: CpuId) -> RefillState {
        let context = KernelContext::on(cpu);
        let layer = &mut os.layers[self.layer];
        let (order, size) = (self.size.order(), self.size);
        let left = layer.memory.free_frames().saturating_sub(1 << order);
        let short = layer.memory.reclaim.as_ref().is_some_and(|reclaim| left < reclaim.marks.low);
        let near = self.near(layer);
        let mut memory = layer.memory_for(context);
        let frame = match near {
            _ if short => None,
            None => memory.take(order, FramePurpose::UserData),
            Some(near) => memory.take_near(order, FramePurpose::UserData, near),
        };
        let Some(frame) = frame else {
            mfoe_mut(layer).ready_mut(size).counters.no_frame += 1;
            // Reclaimed pages do not form a contiguous block, and may be on other nodes than the required one.
            if short || order == 0 && near.is_none_or(|near| !near.only) {
                effects.wake(self.layer, Need::Memory);
            }
            self.is_short = true;
            return self.pass(&os.layers[self.layer]);
        };
        mfoe_mut(layer).ready_mut(size).in_hand += 1;
        let effects = layer.last_effects();
        if effects.zone_locks.is_empty() {
            return RefillState::Zero { frame };
        }
        RefillState::Batch { frame, descriptors: effects.descriptors.clone() }
    }

    /// Frees the frame at the tail.
    fn free(&self, os: &mut Os, cpu: CpuId) {
        let context = KernelContext::on(cpu);
        let layer = &mut os.layers[self.layer];
        let (engine, contents) = with_memory(layer);
        if let Some(frame) = engine.ready_mut(self.size).withdraw(self.table, contents) {
            layer.memory_for(context).free(frame, self.size.order());
        }
    }

    /// Goes to the next table, or ends the pass.
    fn next_table(&mut self, os: &mut Os) -> Next {
        let layer = &mut os.layers[self.layer];
        mfoe_mut(layer).ready_mut(self.size).counters.passes += 1;
        let sizes = mfoe(layer).page_sizes();
        (self.state, self.filled, self.passed, self.is_short) = (RefillState::Lock, 0, 0, false);
        if let Some(&larger) = sizes.iter().find(|&&size| size > self.size) {
            self.size = larger;
            return Next::Continue;
        }
        self.size = sizes[0];
        let next = self.table.index() + self.threads;
        if next >= layer.data.cpus.len() {
            self.table = CpuId((self.table.index() % self.threads) as u32);
            return Next::Done;
        }
        self.table = CpuId(next as u32);
        Next::Continue
    }
}

/// Whether a process exceeds its share of its cgroup's limit, or of the layer's memory.
fn is_beyond_limit(layer: &Layer, owner: SpaceIx) -> bool {
    let percent = u64::from(mfoe(layer).parameters.limit_percent);
    let space = &layer.spaces[owner];
    let all = layer.memory_bytes() / FRAME_BYTES;
    let limit =
        layer.memory.reclaim.as_ref().map_or(all, |reclaim| reclaim.groups()[space.group].limit_frames.min(all));
    space.resident * 100 > limit * percent
}

impl EngineThread for Refill {
    fn new_in_layer(id: LayerId, layer: &Layer) -> Vec<Self> {
        let Some(mfoe) = engine_access::find(layer) else { return Vec::new() };
        let threads = (mfoe.parameters.threads as usize).min(layer.data.cpus.len());
        let thread = |first| Self {
            layer: id,
            table: first,
            size: PageSize::Size4K,
            cpu: first,
            threads,
            state: RefillState::Lock,
            filled: 0,
            passed: 0,
            replaces: false,
            is_short: false,
        };
        CpuId::all(threads).map(thread).collect()
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn delay(&self, layer: &Layer) -> Option<Delay> {
        let parameters = &mfoe(layer).parameters;
        let period = Cycles(parameters.period_cycles);
        Some(match parameters.late_pass {
            LatePass::Sleep => Delay::FromEnd(period),
            LatePass::AtOnce => Delay::FromBegin(period),
        })
    }

    fn wakes_for(&self, need: Need) -> bool {
        need == Need::ReadyFrames
    }

    fn begin(&mut self) {}

    fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[self.layer];
        let tables = &self.ready(layer).tables;
        let preset = |step: &mut Step, stage: Stage| {
            step.preset += os.costs.fault.all()[stage as usize].cost();
        };
        match &self.state {
            RefillState::Lock if mfoe(layer).is_idle() => {}
            RefillState::Lock => {
                step.kernel(RefKind::Locked, tables.header(self.table));
                step.note_lock(LockKind::Engine);
            }
            RefillState::Look => step.kernel(RefKind::Read, self.place(layer)),
            &RefillState::Account { owner, page, .. } => {
                step.preset += CodeCost::from_cycles(mfoe(layer).parameters.account_cycles);
                if layer.takes_in_faults() {
                    preset(step, Stage::Lru);
                    step.kernel(RefKind::Write, page_metadata(page.frame));
                    layer.plan_gather(self.cpu, layer.spaces[owner].group, os.costs.lru_batch, step);
                    return step.kernel(RefKind::Write, self.place(layer));
                }
                [Stage::Charge, Stage::Rmap, Stage::Lru].into_iter().for_each(|stage| preset(step, stage));
                let space = &layer.spaces[owner];
                let start = space.vmas.find(page.va).map_or(page.va, |vma| vma.start);
                step.kernel(RefKind::Read, space.lock_line());
                step.kernel(RefKind::Read, space.object_line(start.0));
                step.kernel(RefKind::Read, space.object_line(!start.0));
                step.kernel(RefKind::Write, space.counter_line());
                step.kernel(RefKind::Write, page_metadata(page.frame));
                layer.plan_charge(self.cpu, space.group, 1 << self.size.order(), step);
                layer.plan_gather(self.cpu, space.group, os.costs.lru_batch, step);
                step.kernel(RefKind::Write, self.place(layer));
            }
            RefillState::Allocate => {
                preset(step, Stage::Allocation);
                step.kernel(RefKind::Write, layer.data.cpu_line(self.cpu, CpuLine::FreeLists));
            }
            RefillState::Batch { descriptors, .. } => {
                step.kernel(RefKind::Locked, layer.data.zone_line());
                step.note_lock(LockKind::Zone);
                descriptors.iter().for_each(|&page| step.kernel(RefKind::Write, page_metadata(page)));
            }
            &RefillState::Zero { frame } => {
                preset(step, Stage::Zeroing);
                step.preset += CodeCost::from_cycles(mfoe(layer).parameters.prepare_cycles);
                step.kernel(RefKind::Write, page_metadata(frame));
                step.kernel(RefKind::Zero { bytes: self.size.bytes() }, frame.addr());
            }
            RefillState::Put { .. } => {
                step.kernel(RefKind::Write, tables.after_head(self.table, 0, &layer.memory.contents));
                step.kernel(RefKind::Write, tables.header(self.table));
            }
            RefillState::Free => {
                step.kernel(RefKind::Write, tables.tail(self.table, &layer.memory.contents));
                step.kernel(RefKind::Write, tables.header(self.table));
                step.kernel(RefKind::Write, layer.data.cpu_line(self.cpu, CpuLine::FreeLists));
            }
            RefillState::Unlock => step.kernel(RefKind::Write, tables.header(self.table)),
        }
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        let cpu = task.cpu;
        self.state = match std::mem::replace(&mut self.state, RefillState::Lock) {
            RefillState::Lock if mfoe(&os.layers[self.layer]).is_idle() => return Next::Done,
            RefillState::Lock => {
                if !os.locks.acquire(self.key(), task) {
                    return Next::Block(self.key());
                }
                self.cpu = cpu;
                mfoe_mut(&mut os.layers[self.layer]).ready_mut(self.size).adapt(self.table);
                RefillState::Look
            }
            RefillState::Look => match self.look(os) {
                Ok(state) => state,
                Err(key) => {
                    self.state = RefillState::Look;
                    return Next::Block(key);
                }
            },
            // The exit of the process has accounted for its pages.
            RefillState::Account { ended, .. } if ended != mfoe(&os.layers[self.layer]).ended => RefillState::Look,
            RefillState::Account { owner, page, .. } => {
                self.account(os, effects, owner, page);
                self.pass(&os.layers[self.layer])
            }
            RefillState::Allocate => self.allocate(os, effects, cpu),
            RefillState::Batch { frame, .. } => RefillState::Zero { frame },
            RefillState::Zero { frame } => RefillState::Put { frame },
            RefillState::Put { frame } => {
                let (engine, contents) = with_memory(&mut os.layers[self.layer]);
                let ready = engine.ready_mut(self.size);
                ready.put(self.table, frame, contents);
                let counters = &mut ready.counters;
                *if self.replaces { &mut counters.replaced } else { &mut counters.first_filled } += 1;
                self.filled += 1;
                RefillState::Look
            }
            RefillState::Free => {
                self.free(os, cpu);
                RefillState::Look
            }
            RefillState::Unlock => {
                os.locks.release(self.key(), task);
                return self.next_table(os);
            }
        };
        Next::Continue
    }

    fn charge(&self, os: &mut Os, cycles: Cycles) {
        let counters = &mut mfoe_mut(&mut os.layers[self.layer]).ready_mut(self.size).counters;
        *match self.state {
            RefillState::Lock | RefillState::Look | RefillState::Free | RefillState::Unlock => {
                &mut counters.pass_cycles
            }
            RefillState::Account { .. } => &mut counters.replace_cycles,
            RefillState::Allocate | RefillState::Batch { .. } | RefillState::Zero { .. } | RefillState::Put { .. } => {
                if self.replaces {
                    &mut counters.replace_cycles
                } else {
                    &mut counters.first_fill_cycles
                }
            }
        } += cycles;
    }
}
