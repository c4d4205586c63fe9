//! How CPUs wait for locks and devices, and how they are woken.
//!
//! A CPU whose task waits for a lock spins while the lock's holder runs on another CPU. When the holder itself waits,
//! those that spin for it switch to other tasks. With `kernel.spin_locks = "queued"`, a released spin lock is reserved
//! for the task that has spun longest (kernel/locking/qspinlock.c). Deviation: tasks that do not spin, since the holder
//! did not run, get the lock when none spins. The references to the queue are in `pagelab-kernel`'s `table_lock.rs`.
//! `agenda/tasks.rs` says what is modelled, with its source.

use crate::machine::cpu::{Cpu, CpuState};
use crate::machine::scheduler::Scheduler;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CpuId;
use pagelab_base::lock_kind::WaitsByLock;
use pagelab_base::step::BlockKey;
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::config::SpinLocks;
use pagelab_kernel::locks::{Locks, TaskId};
use pagelab_kernel::os::Os;

/// Class of a CPU's cycles while its task waits for a key and nothing else can run.
fn class_of(key: BlockKey) -> Class {
    if key.waits_for_device() { Class::Io } else { Class::LockWait }
}

/// Lets a CPU that has waited for a key, with nothing else to run, go on at `time`. CPUs of kernel threads alone are
/// not counted, as in all cycles.
fn end_wait(cpu: &mut Cpu, waits: &mut WaitsByLock, key: BlockKey, time: Cycles) {
    let waited = cpu.clock.wait_until(class_of(key), time);
    if let (Some(lock), false) = (key.lock(), cpu.is_kernel_only) {
        waits.entry(lock).or_default().cycles += waited;
    }
}

impl Scheduler {
    /// Makes the current task of a CPU wait for a key.
    pub(crate) fn wait_for(&mut self, cpu: CpuId, key: BlockKey) {
        if let (Some(lock), false) = (key.lock(), self.cpus[cpu].is_kernel_only) {
            self.lock_waits.entry(lock).or_default().contended += 1;
        }
        self.waits_begun += 1;
        self.cpus[cpu].wait_for(key);
        self.cpus[cpu].waits_since = self.waits_begun;
    }

    /// Whether a CPU spins for a key instead of switching: the lock's holder runs on another CPU, and no suspended task
    /// of this CPU, which might hold a lock, can continue.
    pub(crate) fn spins(&self, cpu: CpuId, key: BlockKey, locks: &Locks) -> bool {
        let at_work = |holder: TaskId| {
            let holder_cpu = &self.cpus[holder.cpu];
            let goes_on = holder_cpu.task.waits_for.is_none() || matches!(holder_cpu.state, CpuState::Spins(_));
            holder_cpu.task.number == holder.number && goes_on
        };
        if key.stalls() {
            return true;
        }
        !key.waits_for_device() && locks.holders(key).all(at_work) && self.cpus[cpu].first_resumable().is_none()
    }

    /// Whether any CPU spins for a lock that the current task of `cpu` holds.
    pub(crate) fn is_spun_for(&self, cpu: CpuId, locks: &Locks) -> bool {
        let holder = TaskId { cpu, number: self.cpus[cpu].task.number };
        let spins_for = |key| locks.holders(key).any(|other| other == holder);
        self.cpus.iter().any(|cpu| matches!(cpu.state, CpuState::Spins(key) if spins_for(key)))
    }

    /// Whether a CPU spins for a holder that does not run.
    pub(crate) fn spins_needlessly(&self, cpu: CpuId, locks: &Locks) -> bool {
        matches!(self.cpus[cpu].state, CpuState::Spins(key) if !self.spins(cpu, key, locks))
    }

    /// A task of `by` waits and does not spin: CPUs that spin for its locks stop spinning.
    pub(crate) fn end_spins(&mut self, by: CpuId, locks: &Locks) {
        let now = self.cpus[by].clock.now();
        // A CPU that stops may itself hold a lock that another spins for.
        while let Some(cpu) = CpuId::all(self.cpus.len()).find(|&cpu| self.spins_needlessly(cpu, locks)) {
            self.make_ready(cpu, Class::LockWait, now, locks);
        }
    }

    /// Makes a CPU ready, since one of its tasks can run from `time` on. `class` is the class of its cycles until then
    /// if it had nothing to run at all. Returns whether that was so.
    pub(crate) fn make_ready(&mut self, cpu: CpuId, class: Class, time: Cycles, locks: &Locks) -> bool {
        let waits_for = match self.cpus[cpu].state {
            CpuState::Ready | CpuState::Finished => return false,
            CpuState::Waiting => None,
            CpuState::Spins(key) if self.spins(cpu, key, locks) => return false,
            CpuState::Spins(key) | CpuState::Blocked(key) => Some(key),
        };
        let Self { cpus, lock_waits, .. } = self;
        let cpu = &mut cpus[cpu];
        cpu.state = CpuState::Ready;
        if let Some(key) = waits_for {
            end_wait(cpu, lock_waits, key, time);
        } else {
            cpu.clock.wait_until(class, time);
        }
        self.woke = true;
        waits_for.is_none()
    }

    /// Lets the task that has spun longest for a key continue, and reserves the key for it. False if no task spins.
    fn hand_over(&mut self, key: BlockKey, time: Cycles, os: &mut Os) -> bool {
        let spinning = |cpu: &CpuId| self.cpus[*cpu].state == CpuState::Spins(key);
        let task = |cpu: CpuId| TaskId { cpu, number: self.cpus[cpu].task.number };
        // In the order of the lock's queue; tasks without a place in it follow.
        let order = |&cpu: &CpuId| (os.locks.ticket(key, task(cpu)).unwrap_or(u64::MAX), self.cpus[cpu].waits_since);
        let first = CpuId::all(self.cpus.len()).filter(spinning).min_by_key(order);
        let Some(cpu) = first else { return false };
        let Self { cpus, lock_waits, .. } = self;
        let waiter = &mut cpus[cpu];
        if os.locks.reserve(key, TaskId { cpu, number: waiter.task.number }) {
            (waiter.task.waits_for, waiter.state) = (None, CpuState::Ready);
            end_wait(waiter, lock_waits, key, time);
            self.woke = true;
        }
        true
    }

    /// Lets the tasks that wait for a key continue at `time` at the earliest.
    pub(crate) fn wake(&mut self, key: BlockKey, time: Cycles, os: &Os) {
        for cpu in CpuId::all(self.cpus.len()) {
            let waiter = &mut self.cpus[cpu];
            if waiter.task.waits_for == Some(key) {
                waiter.task.waits_for = None;
                if let CpuState::Spins(key) | CpuState::Blocked(key) = waiter.state {
                    waiter.state = CpuState::Ready;
                    end_wait(waiter, &mut self.lock_waits, key, time);
                    self.woke = true;
                }
            }
            if waiter.has_one_task() {
                continue;
            }
            let mut any = false;
            for task in waiter.left().filter(|task| task.waits_for == Some(key)) {
                task.waits_for = None;
                any = true;
            }
            if any {
                let may_preempt = key.waits_for_device() || waiter.takes_turns();
                waiter.preempt |= may_preempt && os.costs.wakeup_preemption.0;
                self.make_ready(cpu, Class::Idle, time, &os.locks);
            }
        }
    }

    /// Wakes the tasks that wait for keys that `by` has just released; without `MANY`, none waits.
    #[inline]
    pub(crate) fn wake_released<const MANY: bool>(&mut self, by: CpuId, os: &mut Os) {
        if !MANY {
            return os.locks.forget_released();
        }
        if os.locks.any_reserved() {
            // What was reserved for the task that has just run, it has taken or does not need.
            let task = TaskId { cpu: by, number: self.cpus[by].task.number };
            os.locks.end_reservation(task);
        }
        while let Some(key) = os.locks.take_released() {
            let now = self.cpus[by].clock.now();
            let queued = os.costs.spin_locks == SpinLocks::Queued && key.is_spin_lock();
            if !queued || !self.hand_over(key, now, os) {
                self.wake(key, now, os);
            }
        }
    }
}
