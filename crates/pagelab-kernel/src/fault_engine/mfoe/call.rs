//! The system calls by which a process enables and disables the engine.
//!
//! Models: the call takes the lock of the process's mm and sets its flag. The first process that enables the engine has
//! the enable bit of all CPUs' registers set, and the background thread begins to fill the tables. When the last one
//! disables it, the bits are cleared, and the call frees all ready frames, table by table, each under its lock. A call
//! that changes nothing returns at once.
//! Source: Tirumalasetty et al., 4.1, 4.1.1, 4.3 and 4.7.
//! Parameters: `fault_engine.enabled`, `fault_engine.call_cycles`.
//! Choices: CR9 is loaded with the context of a thread (4.4), so that its enable bit is that of the thread's process:
//! 4.1 has the kernel handle faults on armed entries of a process that has disabled the engine, also while others use
//! it. A child inherits the flag with its parent's mm. A new program begins as `enabled` says.
//! Deviations: the tables exist from the start, and `entries` is their size, whatever a call might ask for.

use crate::context::KernelContext;
use crate::effects::Effects;
use crate::fault_engine::kernel_side::KernelSide;
use crate::fault_engine::mfoe::engine_access::{find, mfoe, mfoe_mut, with_memory};
use crate::layer::{CpuLine, Layer};
use crate::locks::TaskId;
use crate::needs::Need;
use crate::os::Os;
use pagelab_base::addr::PageSize;
use pagelab_base::code_cost::CodeCost;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{BlockKey, Next, RefKind, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    /// Set or clear the process's flag.
    Flag,
    /// Take the lock of a table.
    Lock,
    /// Free the frame at the tail.
    Free,
    Unlock,
}

/// A call, see the module's text.
#[derive(Clone, Debug)]
pub struct EngineCall {
    space: SpaceId,
    enable: bool,
    state: CallState,
    /// The table whose frames are freed.
    table: (CpuId, PageSize),
    /// The CPU that carries out the call.
    cpu: CpuId,
}

impl EngineCall {
    /// The call of a process; `None` if its layer has no such engine, or has it for other sources.
    pub fn new(space: SpaceId, enable: bool, os: &Os) -> Option<Self> {
        let layer = &os.layers[space.layer];
        let has_call = find(layer).is_some() && layer.spaces[space.index].uses_fault_engine;
        let table = (CpuId(0), PageSize::Size4K);
        has_call.then_some(Self { space, enable, state: CallState::Flag, table, cpu: CpuId(0) })
    }

    /// The space of the process.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    fn key(&self) -> BlockKey {
        BlockKey::Engine { layer: self.space.layer, table: self.table }
    }

    /// Whether a frame of the current table is ready.
    fn has_frame(&self, layer: &Layer) -> bool {
        !mfoe(layer).ready(self.table.1).has_less_than(self.table.0, 1)
    }

    /// See `Activity::plan` of the simulation.
    pub fn plan(&self, os: &Os, step: &mut Step) {
        let layer = &os.layers[self.space.layer];
        let (engine, (cpu, size)) = (mfoe(layer), self.table);
        let tables = &engine.ready(size).tables;
        match self.state {
            CallState::Flag => {
                step.preset += CodeCost::from_cycles(engine.parameters.call_cycles);
                step.kernel(RefKind::Locked, layer.spaces[self.space.index].lock_line());
                step.note_lock(LockKind::MmapRead);
            }
            CallState::Lock => {
                step.kernel(RefKind::Locked, tables.header(cpu));
                step.note_lock(LockKind::Engine);
            }
            CallState::Free => {
                step.kernel(RefKind::Write, tables.tail(cpu, &layer.memory.contents));
                step.kernel(RefKind::Write, tables.header(cpu));
                step.kernel(RefKind::Write, layer.data.cpu_line(self.cpu, CpuLine::FreeLists));
            }
            CallState::Unlock => step.kernel(RefKind::Write, tables.header(cpu)),
        }
    }

    /// See `Activity::commit` of the simulation.
    pub fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        match self.state {
            CallState::Flag => {
                self.cpu = task.cpu;
                return self.set_flag(os, effects);
            }
            CallState::Lock => {
                if !os.locks.acquire(self.key(), task) {
                    return Next::Block(self.key());
                }
                let layer = &os.layers[self.space.layer];
                self.state = if self.has_frame(layer) { CallState::Free } else { CallState::Unlock };
            }
            CallState::Free => {
                let layer = &mut os.layers[self.space.layer];
                let (engine, contents) = with_memory(layer);
                let (cpu, size) = self.table;
                if let Some(frame) = engine.ready_mut(size).withdraw(cpu, contents) {
                    layer.memory_for(KernelContext::on(task.cpu)).free(frame, size.order());
                }
                self.state = if self.has_frame(layer) { CallState::Free } else { CallState::Unlock };
            }
            CallState::Unlock => {
                os.locks.release(self.key(), task);
                return self.next_table(&os.layers[self.space.layer]);
            }
        }
        Next::Continue
    }

    /// Changes the process's flag, unless it is as the call wants it.
    fn set_flag(&mut self, os: &mut Os, effects: &mut Effects) -> Next {
        let layer = &mut os.layers[self.space.layer];
        let vmas = &mut layer.spaces[self.space.index].vmas;
        let changes = vmas.engine_is_off() == self.enable;
        vmas.set_engine_off(!self.enable);
        let engine = mfoe_mut(layer);
        let calls = &mut engine.counters.calls;
        if !changes {
            calls.repeated += 1;
            return Next::Done;
        }
        *if self.enable { &mut calls.enabled } else { &mut calls.disabled } += 1;
        let was_on = engine.is_on();
        if self.enable {
            engine.begin_use(self.space.index);
        } else {
            engine.end_use(self.space.index);
        }
        if engine.is_on() == was_on {
            return Next::Done;
        }
        effects.engine_registers = true;
        if self.enable {
            effects.wake(self.space.layer, Need::ReadyFrames);
            return Next::Done;
        }
        self.state = CallState::Lock;
        Next::Continue
    }

    /// Goes to the next table, or ends the call.
    fn next_table(&mut self, layer: &Layer) -> Next {
        let (cpu, size) = self.table;
        self.state = CallState::Lock;
        let larger = mfoe(layer).page_sizes().iter().find(|&&other| other > size);
        self.table = larger.map_or((cpu.next(), PageSize::Size4K), |&larger| (cpu, larger));
        if self.table.0.index() < layer.data.cpus.len() { Next::Continue } else { Next::Done }
    }

    /// Counts cycles of a call.
    pub fn charge(&self, os: &mut Os, cycles: Cycles) {
        mfoe_mut(&mut os.layers[self.space.layer]).counters.calls.cycles += cycles;
    }
}
