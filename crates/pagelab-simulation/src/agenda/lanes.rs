//! The lanes of CPUs: their queues, which are filled from the programs' inputs, and which of them can go on.

use crate::machine::activity::Activity;
use crate::machine::scheduler::Scheduler;
use crate::machine::task::{LaneState, NextItem, StackEntry, TaskSlot};
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_run::programs::Programs;
use pagelab_run::programs::input::Dispatch;

impl Scheduler {
    /// The next lane with work, or a suspended thread of it that can continue.
    pub(crate) fn look_for_lane(
        &mut self,
        programs: &mut Programs,
        cpu: CpuId,
    ) -> Result<Option<TaskSlot>, EngineError> {
        let this_cpu = &self.cpus[cpu];
        if this_cpu.takes_turns() {
            return self.pick_thread(programs, cpu);
        }
        let lanes = this_cpu.lanes.len();
        // An access that a fault interrupted is retried first.
        let over = lanes > 1
            && this_cpu.clock.now() >= this_cpu.slice_end
            && !this_cpu.task_at(TaskSlot::Queue(this_cpu.lane)).is_within_access();
        let first = this_cpu.lane + usize::from(over);
        for lane in (first..first + lanes).map(|lane| lane % lanes) {
            if let Some(slot) = self.next_in(programs, cpu, lane)? {
                let this_cpu = &mut self.cpus[cpu];
                if over && lane == this_cpu.lane {
                    this_cpu.slice_end = this_cpu.clock.now() + self.slice;
                }
                return Ok(Some(slot));
            }
        }
        // A suspended thread may continue although its lane's own task waits.
        Ok(self.cpus[cpu].first_resumable())
    }

    /// The task that runs if a lane continues; `None` if none of its tasks can.
    #[inline]
    fn next_in(&mut self, programs: &mut Programs, cpu: CpuId, lane: usize) -> Result<Option<TaskSlot>, EngineError> {
        self.refill(programs, cpu, lane)?;
        if self.cpus[cpu].lanes[lane].state != LaneState::Ready {
            return Ok(None);
        }
        let mut is_all = false;
        loop {
            match self.cpus[cpu].next_in(lane, is_all) {
                Ok(slot) => return Ok(Some(slot)),
                Err(NextItem::Unknown) if !is_all => {
                    is_all = self.dispatch_batch(programs, self.cpus[cpu].lanes[lane].input)? != Dispatch::Sent;
                }
                Err(_) => return Ok(None),
            }
        }
    }

    /// Fills a lane's queue from its input, if it is empty and the lane is ready.
    pub(super) fn refill(&mut self, programs: &mut Programs, cpu: CpuId, lane: usize) -> Result<(), EngineError> {
        let queue = &self.cpus[cpu].lanes[lane];
        // Activities of the last call must finish before the lane can end.
        let busy = !queue.queue.is_empty() || !self.cpus[cpu].task_at(TaskSlot::Queue(lane)).stack.is_empty();
        if queue.state != LaneState::Ready || busy {
            return Ok(());
        }
        let input = queue.input;
        while self.cpus[cpu].lanes[lane].queue.is_empty() {
            let dealt = self.dispatch_batch(programs, input)?;
            let lane = &mut self.cpus[cpu].lanes[lane];
            match dealt {
                Dispatch::Sent => {}
                Dispatch::WindowFull => {
                    lane.state = LaneState::Starved;
                    return Ok(());
                }
                Dispatch::Exhausted => {
                    lane.state = LaneState::Finished;
                    self.lane_ended(programs, input);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads on in an input, for the queues of all its CPUs.
    pub(super) fn dispatch_batch(&mut self, programs: &mut Programs, input: usize) -> Result<Dispatch, EngineError> {
        let cpus = &mut self.cpus;
        programs.inputs[input].dispatch_batch(&mut |to, item| {
            let by_thread = cpus[to].run_queue.is_some();
            let lane = cpus[to].lane_of(input);
            lane.enqueue(item, by_thread && lane.shared);
        })
    }

    /// Notes that a lane has ended.
    fn lane_ended(&mut self, programs: &mut Programs, input: usize) {
        if self.has_ended(input, &programs.inputs[input].cpus) {
            programs.load.ended.push(input);
        }
    }

    /// A CPU has reached a woken: it continues, or waits for the wake.
    pub(crate) fn pass_woken(&mut self, programs: &mut Programs, cpu: CpuId, input: usize, wake: Option<u64>) {
        if wake.is_some_and(|wake| programs.inputs[input].waits_for(wake, cpu)) {
            let this_cpu = &mut self.cpus[cpu];
            this_cpu.lanes[this_cpu.lane].state = LaneState::AtEdge;
        } else {
            self.cpus[cpu].pop_item();
        }
    }

    /// Whether a CPU is within an access of one thread while another thread of its lane can run. Reads on in the input
    /// until it finds one, reaches an event, or the window is full.
    pub(crate) fn has_sibling(&mut self, programs: &mut Programs, cpu: CpuId) -> Result<bool, EngineError> {
        loop {
            match self.sibling(programs, cpu) {
                Some((_, NextItem::At(_) | NextItem::Suspended(_))) => return Ok(true),
                Some((input, NextItem::Unknown)) if self.dispatch_batch(programs, input)? == Dispatch::Sent => {}
                Some((_, NextItem::Unknown | NextItem::Event)) | None => return Ok(false),
            }
        }
    }

    /// If a CPU is within an access of a thread: its input, and what its lane could continue with, as far as the queue
    /// shows.
    pub(crate) fn sibling(&self, programs: &Programs, cpu: CpuId) -> Option<(usize, NextItem)> {
        let cpu = &self.cpus[cpu];
        let (TaskSlot::Queue(lane), Some((input, thread))) = (cpu.slot, cpu.thread_of_task()) else { return None };
        let faults = matches!(cpu.task.stack.first(), Some(StackEntry { activity: Activity::Fault(_), .. }));
        (faults && programs.inputs[input].threads_share()).then(|| (input, cpu.lanes[lane].next(Some(thread), true)))
    }
}
