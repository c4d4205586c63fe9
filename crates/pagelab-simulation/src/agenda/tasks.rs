//! How a CPU chooses among its tasks.
//!
//! Models: a task that waits for a device leaves its CPU to another task that is ready. So does a task that waits for a
//! lock, unless the lock's holder runs on another CPU; then the task spins, as long as the holder runs. When the holder
//! waits for a device, or for a lock whose own holder does not run, all CPUs that spin for it switch to other tasks,
//! too. A task whose device has answered preempts the running task as soon as that is between two accesses
//! (`kernel.wakeup_preemption`); otherwise its turn comes by time slices. `agenda/fair.rs` has the threads that share a
//! CPU as the kernel's scheduler has it.
//! Source: Linux kernel/sched/fair.c (`check_preempt_wakeup_fair`), kernel/sched/core.c (`io_schedule`),
//! kernel/locking/mutex.c (`mutex_optimistic_spin`). Kernel code is not preempted (`CONFIG_PREEMPT_VOLUNTARY`).
//! Parameters: `kernel.wakeup_preemption`, `kernel.context_switch_cycles`, `kernel.quantum_cycles`.
//! Threads of one input that share a CPU run in recorded order. But a thread that waits within a fault is overtaken by
//! the next threads in the queue, up to the next event.
//! Deviations: a task that has left its CPU does not spin again when the holder resumes. Run times do not matter: a
//! task that wakes up always preempts, and a task that has run long is not put back. Switches to and from kernel
//! threads are free.

use crate::machine::cpu::CpuState;
use crate::machine::simulation::Simulation;
use crate::machine::task::{NextItem, TaskSlot};
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_base::step::BlockKey;

impl Simulation {
    /// Whether no CPU spins for a holder that does not run, and none is stuck although one of its tasks can run.
    pub(crate) fn no_cpu_is_stuck(&self) -> bool {
        let could_go_on = |cpu| {
            let sibling = self.scheduler.sibling(&self.programs, cpu).map(|(_, next)| next);
            self.scheduler.cpus[cpu].first_resumable().is_some()
                || matches!(sibling, Some(NextItem::At(_) | NextItem::Suspended(_)))
        };
        CpuId::all(self.scheduler.cpus.len()).all(|cpu| match self.scheduler.cpus[cpu].state {
            CpuState::Ready | CpuState::Finished => true,
            CpuState::Spins(_) => !self.scheduler.spins_needlessly(cpu, &self.kernels.os.locks),
            CpuState::Blocked(_) | CpuState::Waiting => !could_go_on(cpu),
        })
    }

    /// Switches a CPU whose task waits to another task. False if there is none, or if the task spins.
    pub(crate) fn yield_cpu(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        let key = self.scheduler.cpus[cpu].task.waits_for.expect("its task waits");
        if self.scheduler.spins(cpu, key, &self.kernels.os.locks) {
            self.scheduler.cpus[cpu].state = CpuState::Spins(key);
            return Ok(false);
        }
        let overtakes = self.scheduler.has_sibling(&mut self.programs, cpu)?;
        let gone = (overtakes || !self.scheduler.cpus[cpu].has_one_task()) && self.switch_from(cpu, key, overtakes)?;
        if !gone {
            self.scheduler.cpus[cpu].state = CpuState::Blocked(self.scheduler.cpus[cpu].awaited().unwrap_or(key));
        }
        self.scheduler.end_spins(cpu, &self.kernels.os.locks);
        Ok(gone)
    }

    /// Switches from a task that waits for a key to another one, if there is any; with `overtakes`, it may be a thread
    /// of the same lane.
    fn switch_from(&mut self, cpu: CpuId, key: BlockKey, overtakes: bool) -> Result<bool, EngineError> {
        if overtakes {
            self.scheduler.cpus[cpu].overtake();
        }
        loop {
            let next = self.scheduler.cpus[cpu]
                .first_unqueued()
                .or_else(|| self.scheduler.cpus[cpu].awake_thread(&self.kernels.threads));
            let next = if next.is_some() { next } else { self.scheduler.look_for_lane(&mut self.programs, cpu)? };
            self.scheduler.cpus[cpu].state = if next.is_some() { CpuState::Ready } else { CpuState::Blocked(key) };
            next.map_or(Ok(()), |slot| self.switch_task(cpu, slot))?;
            // At the end of an input, a co-runner may restart.
            if !self.end_inputs(cpu)? || next.is_some() {
                return Ok(next.is_some());
            }
        }
    }

    /// Switches to a task that has waited for a device, if one can continue and may preempt.
    pub(crate) fn preempt(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        if !std::mem::take(&mut self.scheduler.cpus[cpu].preempt) {
            return Ok(false);
        }
        let this_cpu = &mut self.scheduler.cpus[cpu];
        let next = this_cpu.first_unqueued();
        // There may be more such tasks, and the run queue decides about those in it.
        this_cpu.preempt = next.is_some() || this_cpu.takes_turns();
        if let Some(slot) = next {
            self.switch_task(cpu, slot)?;
        }
        Ok(next.is_some())
    }

    /// Suspends a CPU's task and switches to another.
    pub(crate) fn switch_task(&mut self, cpu: CpuId, slot: TaskSlot) -> Result<(), EngineError> {
        self.charge_faults(cpu);
        let this_cpu = &mut self.scheduler.cpus[cpu];
        this_cpu.charge_thread();
        let before = this_cpu.lane;
        this_cpu.switch_task(slot);
        let slot = this_cpu.slot;
        let changes = matches!(slot, TaskSlot::Queue(lane) if lane != before);
        this_cpu.filter.forget_data();
        this_cpu.filter.forget_code();
        if changes && this_cpu.run_queue.is_none() {
            this_cpu.slice_end = this_cpu.clock.now() + self.scheduler.slice;
        }
        self.begin_account(cpu);
        let this_cpu = &mut self.scheduler.cpus[cpu];
        match slot {
            TaskSlot::Queue(lane) if lane < this_cpu.lanes.len() => {
                let input = this_cpu.lanes[lane].input;
                self.assign_source(cpu, input);
                self.resume_thread(cpu)?;
            }
            // A CPU of kernel threads alone has no lane, and is idle between their steps.
            TaskSlot::Queue(_) => {}
            TaskSlot::Kernel(place) => self.scheduler.begin_thread(&mut self.kernels, cpu, place),
            TaskSlot::Suspended { .. } => unreachable!("recalling the thread turns this into its queue"),
        }
        Ok(())
    }

    /// Whether the current task of a CPU can continue; if so, the CPU runs as the task's thread.
    pub(crate) fn resume_task(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        let waits = self.scheduler.cpus[cpu].task.waits_for.is_some();
        if !waits {
            self.resume_thread(cpu)?;
        }
        Ok(!waits)
    }

    /// Makes a CPU run as the thread that its current task was suspended as, if it does not already.
    fn resume_thread(&mut self, cpu: CpuId) -> Result<(), EngineError> {
        let left_as = self.scheduler.cpus[cpu].task.thread.take();
        left_as.map_or(Ok(()), |(input, thread)| self.switch_to(cpu, input, thread))
    }

    /// Sets the state of a CPU none of whose queues has work.
    pub(crate) fn rest(&mut self, cpu: CpuId) {
        if self.scheduler.cpus[cpu].rest() {
            self.release_source(cpu);
            self.scheduler.cpus[cpu].enter_idle(&self.kernels);
        }
    }
}
