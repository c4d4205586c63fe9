//! Threads that share a CPU, in the order that the kernel's scheduler chooses.
//!
//! Models: the threads of all sources on a CPU are in one run queue ([`pagelab_kernel::scheduler`]). Between two of its
//! accesses, a thread gives way at the end of its slice, or to one that has woken up. A thread that waits for a device,
//! a lock or another thread leaves the queue.
//! Source: Linux kernel/sched/core.c (`__schedule`, `sched_tick`), kernel/sched/fair.c.
//! Parameters: `kernel.scheduler`, `kernel.quantum_cycles`, `kernel.wakeup_preemption`,
//! `engine.input_window_accesses`.
//! Deviations: no thread passes an event (a call, a fork, a wake) of its source before all that precedes it in the
//! recording is done; a thread that must wait for this leaves the queue. It also does when it is so far ahead of others
//! that the window is full (`cut_slices`).

use crate::machine::cpu::Cpu;
use crate::machine::scheduler::Scheduler;
use crate::machine::simulation::Simulation;
use crate::machine::task::{LaneState, NextItem, TaskSlot};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_kernel::scheduler::ThreadKey;
use pagelab_run::programs::Programs;
use pagelab_run::programs::input::{Dispatch, Item};
use pagelab_trace::ThreadIx;

/// A thread that can run on a CPU.
#[derive(Clone, Copy)]
struct AbleThread {
    key: ThreadKey,
    slot: TaskSlot,
    /// Where the lane goes on if its task is idle: an item, and the thread if it is a run.
    next: Option<(usize, Option<ThreadIx>)>,
}

impl Simulation {
    /// Whether a thread that can run again may take a CPU from another of the run queue.
    pub(super) fn preempts_queued(&self, cpu: CpuId) -> bool {
        self.kernels.os.costs.wakeup_preemption.0 && self.scheduler.cpus[cpu].takes_turns()
    }
}

impl Scheduler {
    /// The task that a CPU runs next by its run queue; `None` if no thread can run.
    pub(super) fn pick_thread(&mut self, programs: &mut Programs, cpu: CpuId) -> Result<Option<TaskSlot>, EngineError> {
        if self.goes_on(programs, cpu)? {
            return Ok(Some(self.cpus[cpu].slot));
        }
        let mut able = Vec::new();
        for lane in 0..self.cpus[cpu].lanes.len() {
            self.find_able(programs, cpu, lane, &mut able)?;
        }
        let this_cpu = &mut self.cpus[cpu];
        this_cpu.charge_thread();
        let (now, woken) = (this_cpu.clock.now(), std::mem::take(&mut this_cpu.preempt));
        let queue = this_cpu.run_queue.as_mut().expect("its threads take turns");
        let keys: Vec<ThreadKey> = able.iter().map(|thread| thread.key).collect();
        let before = queue.running();
        queue.update(&keys);
        let over = queue.running().is_none() || now >= this_cpu.slice_end && queue.slice_is_over();
        let next = if over || woken && queue.is_preempted() { queue.pick() } else { queue.running() };
        this_cpu.slice_end = Cycles(queue.next_look(now.0));
        let Some(next) = next else { return Ok(None) };
        let preempted = before.is_some_and(|before| before != next && keys.contains(&before));
        this_cpu.counters.preemptions += u64::from(preempted);
        let chosen = able.iter().find(|thread| thread.key == next).expect("the queue holds able threads");
        if let (TaskSlot::Queue(lane), Some((at, thread))) = (chosen.slot, chosen.next) {
            let lane = &mut this_cpu.lanes[lane];
            lane.at = at;
            lane.last = thread.or(lane.last);
        }
        Ok(Some(chosen.slot))
    }

    /// Whether the running thread goes on: it is within an access, or has more to do and its slice is not over. Reads
    /// on in its input to find more.
    fn goes_on(&mut self, programs: &mut Programs, cpu: CpuId) -> Result<bool, EngineError> {
        loop {
            let this_cpu = &mut self.cpus[cpu];
            let TaskSlot::Queue(lane) = this_cpu.slot else { return Ok(false) };
            let is_idle = this_cpu.task.is_idle();
            let Some(queue) = this_cpu.lanes.get_mut(lane) else { return Ok(false) };
            if !is_idle {
                return Ok(this_cpu.task.waits_for.is_none());
            }
            let Some(last) = queue.last.filter(|_| queue.state == LaneState::Ready) else { return Ok(false) };
            if this_cpu.preempt || this_cpu.clock.now() >= this_cpu.slice_end {
                return Ok(false);
            }
            match queue.run_of(last) {
                NextItem::At(at) if !queue.is_overtaken(last) => {
                    queue.at = at;
                    return Ok(true);
                }
                NextItem::Unknown => {}
                NextItem::At(_) | NextItem::Event | NextItem::Suspended(_) => return Ok(false),
            }
            let input = queue.input;
            match self.dispatch_batch(programs, input)? {
                Dispatch::Sent => {}
                Dispatch::WindowFull => {
                    self.cpus[cpu].counters.cut_slices += 1;
                    return Ok(false);
                }
                Dispatch::Exhausted => return Ok(false),
            }
        }
    }

    /// Adds the threads of a lane that can run. Reads on in its input up to the next event or until the window is full,
    /// so that the length of batches does not matter.
    fn find_able(
        &mut self,
        programs: &mut Programs,
        cpu: CpuId,
        lane: usize,
        able: &mut Vec<AbleThread>,
    ) -> Result<(), EngineError> {
        self.refill(programs, cpu, lane)?;
        let queue = &self.cpus[cpu].lanes[lane];
        if queue.state != LaneState::Ready {
            return Ok(());
        }
        let input = queue.input;
        while self.cpus[cpu].lanes[lane].is_open() && self.dispatch_batch(programs, input)? == Dispatch::Sent {}
        self.cpus[cpu].list_able(lane, able);
        Ok(())
    }
}

impl Cpu {
    /// Lists the threads of a lane that can run.
    fn list_able(&self, lane: usize, able: &mut Vec<AbleThread>) {
        let (queue, task) = (&self.lanes[lane], self.task_at(TaskSlot::Queue(lane)));
        let key = |thread: ThreadIx| (queue.input, thread.0);
        let last = queue.last.unwrap_or(ThreadIx(0));
        for suspended in queue.overtaken.iter().filter(|suspended| suspended.task.waits_for.is_none()) {
            let slot = TaskSlot::Suspended { lane, thread: suspended.thread };
            able.push(AbleThread { key: key(suspended.thread), slot, next: None });
        }
        let slot = TaskSlot::Queue(lane);
        if !task.is_idle() {
            if task.waits_for.is_none() {
                let thread = match queue.queue.get(queue.at) {
                    Some(Item::Run { thread, .. }) => *thread,
                    _ => last,
                };
                able.push(AbleThread { key: key(thread), slot, next: None });
            }
            return;
        }
        for (at, item) in queue.queue.iter().enumerate() {
            let Item::Run { thread, .. } = item else {
                if at == 0 {
                    able.push(AbleThread { key: key(last), slot, next: Some((0, None)) });
                }
                return;
            };
            if !queue.is_overtaken(*thread) {
                able.push(AbleThread { key: key(*thread), slot, next: Some((at, Some(*thread))) });
            }
        }
    }
}
