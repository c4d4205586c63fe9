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
use crate::machine::task::{LaneState, NextItem, StackEntry, TaskSlot};
use crate::programs::input::Dispatch;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_base::step::BlockKey;
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::locks::Holder;

/// What a CPU's cycles are while its task waits for a key and nothing else can run.
fn class_of(key: BlockKey) -> Class {
    if key.is_of_device() { Class::Io } else { Class::LockWait }
}

impl Simulation {
    /// The task of a CPU waits from here on.
    pub(crate) fn wait_for(&mut self, cpu: CpuId, key: BlockKey) {
        let of = &mut self.cpus[cpu];
        of.task.waits_for = Some(key);
        of.state = CpuState::Blocked(key);
    }

    /// Whether a CPU waits for a lock rather than give itself away: its holder is at work on another, and nobody here
    /// who has begun something, and so may hold a lock himself, could go on.
    fn spins(&self, cpu: CpuId, key: BlockKey) -> bool {
        let at_work = |holder: Holder| {
            let of = &self.cpus[holder.cpu];
            let goes_on = of.task.waits_for.is_none() || matches!(of.state, CpuState::Spins(_));
            of.task.number == holder.task && goes_on
        };
        if key.stalls() {
            return true;
        }
        !key.is_of_device() && self.os.locks.holders(key).all(at_work) && self.first_left(cpu).is_none()
    }

    /// Whether a CPU spins for what the task of another holds.
    pub(crate) fn is_spun_for(&self, cpu: CpuId) -> bool {
        let holder = Holder { cpu, task: self.cpus[cpu].task.number };
        let spins_for = |key| self.os.locks.holders(key).any(|of| of == holder);
        self.cpus.iter().any(|cpu| matches!(cpu.state, CpuState::Spins(key) if spins_for(key)))
    }

    /// A task of a CPU waits and does not spin: those who have spun for what it holds do so no more.
    fn end_spins(&mut self, by: CpuId) {
        let now = self.cpus[by].clock.now();
        // Whoever ends may hold what another one spins for.
        while let Some(cpu) = CpuId::all(self.cpus.len()).find(|&cpu| self.spins_in_vain(cpu)) {
            self.stir(cpu, Class::LockWait, now);
        }
    }

    fn spins_in_vain(&self, cpu: CpuId) -> bool {
        matches!(self.cpus[cpu].state, CpuState::Spins(key) if !self.spins(cpu, key))
    }

    /// Whether no CPU spins for a holder that is not at work, or stands still beside a task that could go on.
    pub(crate) fn nobody_waits_in_vain(&self) -> bool {
        let could_go_on = |cpu| {
            let sibling = self.sibling(cpu).map(|(_, next)| next);
            self.first_left(cpu).is_some() || matches!(sibling, Some(NextItem::At(_) | NextItem::Suspended(_)))
        };
        CpuId::all(self.cpus.len()).all(|cpu| match self.cpus[cpu].state {
            CpuState::Ready | CpuState::Finished => true,
            CpuState::Spins(_) => !self.spins_in_vain(cpu),
            CpuState::Blocked(_) | CpuState::Waiting => !could_go_on(cpu),
        })
    }

    /// A task of a CPU that was left in the middle and can go on, kernel threads first.
    pub(super) fn first_left(&self, cpu: CpuId) -> Option<TaskSlot> {
        let of = &self.cpus[cpu];
        of.seats().find(|&seat| seat != of.seat && of.task_at(seat).can_go_on())
    }

    /// The task of a CPU waits: goes over to another. False if there is none, or if the wait is for another CPU's work.
    pub(crate) fn give_away(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        let key = self.cpus[cpu].task.waits_for.expect("its task waits");
        if self.spins(cpu, key) {
            self.cpus[cpu].state = CpuState::Spins(key);
            return Ok(false);
        }
        let overtakes = self.has_sibling(cpu)?;
        let gone = (overtakes || !self.cpus[cpu].has_one_task()) && self.leave(cpu, key, overtakes)?;
        if !gone {
            self.cpus[cpu].state = CpuState::Blocked(self.cpus[cpu].awaited().unwrap_or(key));
        }
        self.end_spins(cpu);
        Ok(gone)
    }

    /// Goes over from a task that waits for a key to another, if there is one; `overtakes` if it may be one of the same
    /// lane.
    fn leave(&mut self, cpu: CpuId, key: BlockKey, overtakes: bool) -> Result<bool, EngineError> {
        if overtakes {
            self.cpus[cpu].overtake();
        }
        loop {
            let next = self.first_left(cpu).or_else(|| self.awake_thread(cpu));
            let next = if next.is_some() { next } else { self.look_for_lane(cpu)? };
            self.cpus[cpu].state = if next.is_some() { CpuState::Ready } else { CpuState::Blocked(key) };
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
        let of = &self.cpus[cpu];
        let (TaskSlot::Queue(lane), Some((input, thread))) = (of.seat, of.thread_of_task()) else { return None };
        let faults = matches!(of.task.stack.first(), Some(StackEntry { activity: Activity::Fault(_), .. }));
        (faults && self.inputs[input].threads_share()).then(|| (input, of.lanes[lane].next(Some(thread), true)))
    }

    /// Goes over to a task that has waited for a device, if one can go on and is to go first.
    pub(crate) fn preempt(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        if !std::mem::take(&mut self.cpus[cpu].preempt) {
            return Ok(false);
        }
        let next = self.first_left(cpu);
        if let Some(seat) = next {
            // There may be more of them.
            self.cpus[cpu].preempt = true;
            self.go_over(cpu, seat)?;
        }
        Ok(next.is_some())
    }

    /// Leaves a CPU's task where it is and goes on with another.
    pub(crate) fn go_over(&mut self, cpu: CpuId, seat: TaskSlot) -> Result<(), EngineError> {
        self.charge_faults(cpu);
        let of = &mut self.cpus[cpu];
        let before = of.lane;
        of.go_over(seat);
        let seat = of.seat;
        let changes = matches!(seat, TaskSlot::Queue(lane) if lane != before);
        of.filter.forget_data();
        if changes {
            of.slice_end = of.clock.now() + self.slice;
        }
        self.begin_account(cpu);
        let of = &mut self.cpus[cpu];
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
        let waits = self.cpus[cpu].task.waits_for.is_some();
        if !waits {
            self.take_up_thread(cpu)?;
        }
        Ok(!waits)
    }

    /// A CPU goes on as the thread that the task in its hands was left as, if it is not that already.
    fn take_up_thread(&mut self, cpu: CpuId) -> Result<(), EngineError> {
        let left_as = self.cpus[cpu].task.thread.take();
        left_as.map_or(Ok(()), |(input, thread)| self.switch_to(cpu, input, thread))
    }

    /// Somebody can run on a CPU from `time` on; `class` is what the CPU's cycles were if it had nothing to run at all.
    /// Returns whether that was so.
    pub(crate) fn stir(&mut self, cpu: CpuId, class: Class, time: Cycles) -> bool {
        let waits_for = match self.cpus[cpu].state {
            CpuState::Ready | CpuState::Finished => return false,
            CpuState::Waiting => None,
            CpuState::Spins(key) if self.spins(cpu, key) => return false,
            CpuState::Spins(key) | CpuState::Blocked(key) => Some(key),
        };
        let of = &mut self.cpus[cpu];
        of.state = CpuState::Ready;
        of.clock.wait_until(waits_for.map_or(class, class_of), time);
        self.woke = true;
        waits_for.is_none()
    }

    /// Wakes those that wait for keys that `by` has just released; nobody does unless there are many.
    #[inline]
    pub(crate) fn wake_released<const MANY: bool>(&mut self, by: CpuId) {
        if !MANY {
            return self.os.locks.forget_released();
        }
        while let Some(key) = self.os.locks.take_released() {
            self.wake(key, self.cpus[by].clock.now());
        }
    }

    /// Lets those that wait for a key go on at `time` at the earliest.
    pub(crate) fn wake(&mut self, key: BlockKey, time: Cycles) {
        for cpu in CpuId::all(self.cpus.len()) {
            let of = &mut self.cpus[cpu];
            if of.task.waits_for == Some(key) {
                of.task.waits_for = None;
                if let CpuState::Spins(key) | CpuState::Blocked(key) = of.state {
                    of.state = CpuState::Ready;
                    of.clock.wait_until(class_of(key), time);
                    self.woke = true;
                }
            }
            if of.has_one_task() {
                continue;
            }
            let mut any = false;
            for task in of.left().filter(|task| task.waits_for == Some(key)) {
                task.waits_for = None;
                any = true;
            }
            if any {
                of.preempt |= key.is_of_device() && self.os.costs.wakeup_preemption.0;
                self.stir(cpu, Class::Idle, time);
            }
        }
    }

    /// What a CPU is while none of its lanes has work.
    pub(crate) fn rest(&mut self, cpu: CpuId) {
        let of = &mut self.cpus[cpu];
        if let Some(key) = of.awaited() {
            of.state = CpuState::Blocked(key);
            return;
        }
        let finished = of.lanes.iter().all(|lane| lane.state == LaneState::Finished);
        // Kernel threads wait for their work.
        of.state = if finished && of.threads.is_empty() { CpuState::Finished } else { CpuState::Waiting };
        self.disown(cpu);
        self.enter_idle(cpu);
    }
}
