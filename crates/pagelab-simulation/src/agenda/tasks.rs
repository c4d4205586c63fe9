//! Which of its tasks a CPU runs.
//!
//! Models: a task that waits for a device gives its CPU to another that is ready; so does one that waits for a lock,
//! unless the lock's holder is at work on another CPU, which is then waited for. That lasts as long as the holder is at
//! work: when it waits for a device, or for a lock whose own holder is not at work, whoever has spun for it gives the
//! CPU away, too. A task whose device has answered goes before the one that runs, as soon as that one is between two
//! accesses (`kernel.wakeup_preemption`); else its turn comes by the time slices.
//! Source: Linux kernel/sched/fair.c (`check_preempt_wakeup_fair`), kernel/sched/core.c (`io_schedule`),
//! kernel/locking/mutex.c (`mutex_optimistic_spin`). Kernel code is not preempted (`CONFIG_PREEMPT_VOLUNTARY`).
//! Parameters: `kernel.wakeup_preemption`, `kernel.context_switch_cycles`, `kernel.quantum_cycles`.
//! Threads of one input that share a CPU run in recorded order, but one that waits within a fault is overtaken by those
//! that come next in the queue, up to the next event.
//! Deviations: who has given its CPU away does not spin again when the holder goes on. Run times do not count: who
//! wakes up goes first, and who runs the longest does not come later for it. Switches to and from kernel threads are
//! free.

use crate::machine::activity::Activity;
use crate::machine::cpu::CpuState;
use crate::machine::simulation::Simulation;
use crate::machine::task::{NextItem, StackEntry, TaskSlot};
use crate::programs::input::Dispatch;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_base::step::BlockKey;

impl Simulation {
    /// Whether no CPU spins for a holder that is not at work, or stands still beside a task that could go on.
    pub(crate) fn nobody_waits_in_vain(&self) -> bool {
        let could_go_on = |cpu| {
            let sibling = self.sibling(cpu).map(|(_, next)| next);
            self.scheduler.cpus[cpu].first_left().is_some()
                || matches!(sibling, Some(NextItem::At(_) | NextItem::Suspended(_)))
        };
        CpuId::all(self.scheduler.cpus.len()).all(|cpu| match self.scheduler.cpus[cpu].state {
            CpuState::Ready | CpuState::Finished => true,
            CpuState::Spins(_) => !self.scheduler.spins_in_vain(cpu, &self.kernels.os.locks),
            CpuState::Blocked(_) | CpuState::Waiting => !could_go_on(cpu),
        })
    }

    /// The task of a CPU waits: goes over to another. False if there is none, or if the wait is for another CPU's work.
    pub(crate) fn give_away(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        let key = self.scheduler.cpus[cpu].task.waits_for.expect("its task waits");
        if self.scheduler.spins(cpu, key, &self.kernels.os.locks) {
            self.scheduler.cpus[cpu].state = CpuState::Spins(key);
            return Ok(false);
        }
        let overtakes = self.has_sibling(cpu)?;
        let gone = (overtakes || !self.scheduler.cpus[cpu].has_one_task()) && self.leave(cpu, key, overtakes)?;
        if !gone {
            self.scheduler.cpus[cpu].state = CpuState::Blocked(self.scheduler.cpus[cpu].awaited().unwrap_or(key));
        }
        self.scheduler.end_spins(cpu, &self.kernels.os.locks);
        Ok(gone)
    }

    /// Goes over from a task that waits for a key to another, if there is one; `overtakes` if it may be one of the same
    /// lane.
    fn leave(&mut self, cpu: CpuId, key: BlockKey, overtakes: bool) -> Result<bool, EngineError> {
        if overtakes {
            self.scheduler.cpus[cpu].overtake();
        }
        loop {
            let next = self.scheduler.cpus[cpu]
                .first_left()
                .or_else(|| self.scheduler.cpus[cpu].awake_thread(&self.kernels.threads));
            let next = if next.is_some() { next } else { self.look_for_lane(cpu)? };
            self.scheduler.cpus[cpu].state = if next.is_some() { CpuState::Ready } else { CpuState::Blocked(key) };
            next.map_or(Ok(()), |seat| self.go_over(cpu, seat))?;
            // What follows the end of an input may be that it begins anew.
            if !self.end_inputs(cpu)? || next.is_some() {
                return Ok(next.is_some());
            }
        }
    }

    /// Whether a CPU runs a thread within an access, and another one of its lane could go on now: reads on in the input
    /// until it finds one, comes to an event, or the window is full.
    pub(crate) fn has_sibling(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        loop {
            match self.sibling(cpu) {
                Some((_, NextItem::At(_) | NextItem::Suspended(_))) => return Ok(true),
                Some((input, NextItem::Unknown)) if self.deal(input)? == Dispatch::Sent => {}
                Some((_, NextItem::Unknown | NextItem::Event)) | None => return Ok(false),
            }
        }
    }

    /// If a CPU runs a thread within an access: its input, and what its lane could go on with as far as the queue
    /// tells.
    fn sibling(&self, cpu: CpuId) -> Option<(usize, NextItem)> {
        let of = &self.scheduler.cpus[cpu];
        let (TaskSlot::Queue(lane), Some((input, thread))) = (of.seat, of.thread_of_task()) else { return None };
        let faults = matches!(of.task.stack.first(), Some(StackEntry { activity: Activity::Fault(_), .. }));
        (faults && self.programs.inputs[input].threads_share())
            .then(|| (input, of.lanes[lane].next(Some(thread), true)))
    }

    /// Goes over to a task that has waited for a device, if one can go on and is to go first.
    pub(crate) fn preempt(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        if !std::mem::take(&mut self.scheduler.cpus[cpu].preempt) {
            return Ok(false);
        }
        let next = self.scheduler.cpus[cpu].first_left();
        if let Some(seat) = next {
            // There may be more of them.
            self.scheduler.cpus[cpu].preempt = true;
            self.go_over(cpu, seat)?;
        }
        Ok(next.is_some())
    }

    /// Leaves a CPU's task where it is and goes on with another.
    pub(crate) fn go_over(&mut self, cpu: CpuId, seat: TaskSlot) -> Result<(), EngineError> {
        self.charge_faults(cpu);
        let of = &mut self.scheduler.cpus[cpu];
        let before = of.lane;
        of.go_over(seat);
        let seat = of.seat;
        let changes = matches!(seat, TaskSlot::Queue(lane) if lane != before);
        of.filter.forget_data();
        if changes {
            of.slice_end = of.clock.now() + self.scheduler.slice;
        }
        self.begin_account(cpu);
        let of = &mut self.scheduler.cpus[cpu];
        match seat {
            TaskSlot::Queue(lane) if lane < of.lanes.len() => {
                let input = of.lanes[lane].input;
                self.own(cpu, input);
                self.take_up_thread(cpu)?;
            }
            // A CPU apart has no lane, and nothing to do between the works of its kernel threads.
            TaskSlot::Queue(_) => {}
            TaskSlot::Kernel(place) => self.begin_thread(cpu, place),
            TaskSlot::Suspended { .. } => unreachable!("no CPU has this seat"),
        }
        Ok(())
    }

    /// Whether the task in a CPU's hands can go on; the CPU is its thread then.
    pub(crate) fn goes_on(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        let waits = self.scheduler.cpus[cpu].task.waits_for.is_some();
        if !waits {
            self.take_up_thread(cpu)?;
        }
        Ok(!waits)
    }

    /// A CPU goes on as the thread that the task in its hands was left as, if it is not that already.
    fn take_up_thread(&mut self, cpu: CpuId) -> Result<(), EngineError> {
        let left_as = self.scheduler.cpus[cpu].task.thread.take();
        left_as.map_or(Ok(()), |(input, thread)| self.switch_to(cpu, input, thread))
    }

    /// What a CPU does while none of its queues has work.
    pub(crate) fn rest(&mut self, cpu: CpuId) {
        if self.scheduler.cpus[cpu].rest() {
            self.disown(cpu);
            self.enter_idle(cpu);
        }
    }
}
