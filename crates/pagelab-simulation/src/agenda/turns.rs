//! Which CPU runs next, and what it does in its turn.
//!
//! The CPU with the smallest clock goes next. Its turn lasts as long as it stays within `sync_quantum_cycles` of the
//! second and nothing on the agenda ([`crate::machine::agenda`]) is due. A CPU continues the topmost activity of its
//! task if there is one, otherwise its queue. With one CPU, only the loop over its queue remains.

use crate::machine::agenda::AgendaEntry;
use crate::machine::cpu::{Cpu, CpuState};
use crate::machine::simulation::{Simulation, StackOutcome};
use crate::machine::task::{LaneState, TaskSlot};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_base::step::BlockKey;
use pagelab_hardware::core_model::clock::Class;
use pagelab_run::programs::input::{Item, event_of};
use pagelab_trace::{EventKind, ThreadIx};
use std::sync::Arc;

/// Turns after which a run reports its progress even if no part of an input has ended.
const TURNS_PER_REPORT: u32 = 1 << 14;

impl Simulation {
    /// Replays all sources to their end. Calls `progress` now and then with the number of accesses dispatched so far.
    /// If it returns false, the run is interrupted; another call continues it.
    pub fn run(&mut self, progress: &mut dyn FnMut(u64) -> bool) -> Result<(), EngineError> {
        if self.scheduler.many {
            // What was counted while the machine booted belongs to no source.
            self.programs.charge_faults(None, &self.kernels.os);
            if let Some((cpu, limit)) = self.scheduler.paused.take() {
                self.accounted_turn(cpu, limit, progress)?;
            }
            let mut turns = 0_u32;
            while !self.programs.load.is_over() {
                // Memory may be so short that programs make no access for long.
                turns = turns.wrapping_add(1);
                if turns.is_multiple_of(TURNS_PER_REPORT) && !progress(self.programs.dispatched()) {
                    return Err(EngineError::Interrupted);
                }
                self.advance(progress)?;
            }
        } else if !self.scheduler.cpus.is_empty() {
            self.turn::<false>(CpuId(0), Cycles::MAX, progress)?;
            assert_eq!(self.scheduler.cpus[0].state, CpuState::Finished, "the only CPU waits for another");
        }
        let of_threads = self
            .kernels
            .os
            .locks
            .all_holders()
            .all(|holder| self.scheduler.cpus[holder.cpu].runs_thread(holder.number));
        assert!(self.programs.load.has_co_runners() || of_threads, "a lock is held after the end");
        self.hw.end_check()?;
        self.scheduler.cpus.iter_mut().for_each(|cpu| cpu.clock.drain());
        CpuId::all(self.scheduler.cpus.len()).for_each(|cpu| self.charge_account(cpu));
        let end = self.scheduler.elapsed();
        for cpu in &mut self.scheduler.cpus {
            cpu.clock.wait_until(Class::Idle, end);
        }
        Ok(())
    }

    /// Gives the next CPU its turn, or carries out what is next on the agenda.
    fn advance(&mut self, progress: &mut dyn FnMut(u64) -> bool) -> Result<(), EngineError> {
        debug_assert!(self.no_cpu_is_stuck(), "a CPU stands still though it could go on");
        match (self.scheduler.next_turn(), self.scheduler.agenda.next()) {
            (Some((cpu, others)), entry) if entry.is_none_or(|at| self.scheduler.cpus[cpu].clock.now() < at) => {
                self.scheduler.others = others;
                let limit = others.saturating_add(self.scheduler.quantum);
                self.accounted_turn(cpu, entry.map_or(limit, |at| limit.min(at)), progress)
            }
            (turn, _) => {
                assert!(turn.is_some() || self.scheduler.agenda.helps(), "CPUs wait for each other and none can go on");
                self.take_place().map(|_| ())
            }
        }
    }

    /// Lets kernels finish what they were doing when the last program ended, such as reading a page back. No thread
    /// wakes up by itself any more, since there need not be a time when all of them sleep. For checks of the state that
    /// they leave; [`Self::run`] ends with the programs.
    pub fn settle(&mut self) -> Result<(), EngineError> {
        while self.scheduler.cpus.iter().any(Cpu::has_activity) {
            self.scheduler.agenda.remove_alarms();
            self.advance(&mut |_| true)?;
        }
        Ok(())
    }

    /// Carries out the first entry of the agenda; false if there is none.
    pub(crate) fn take_place(&mut self) -> Result<bool, EngineError> {
        let Some((at, entry)) = self.scheduler.agenda.pop() else { return Ok(false) };
        match entry {
            AgendaEntry::Answer { request, stalls } => {
                self.scheduler.wake(BlockKey::Answer { request, stalls }, at, &self.kernels.os);
            }
            AgendaEntry::Alarm { thread } => self.handle_alarm(thread, at),
            AgendaEntry::Arrival { stream } => self.arrive(at, stream)?,
        }
        Ok(true)
    }

    /// Like [`Self::turn`]; charges what it counts to the source that it ran for.
    fn accounted_turn(
        &mut self,
        cpu: CpuId,
        limit: Cycles,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), EngineError> {
        self.begin_account(cpu);
        let until = self.scheduler.enter_core(cpu);
        let turn = self.turn::<true>(cpu, limit.min(until), progress);
        self.scheduler.detach_from_core(cpu);
        self.charge_account(cpu);
        turn
    }

    /// Lets a CPU run until its clock passes `limit`, it must wait, or it has finished.
    fn turn<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        limit: Cycles,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), EngineError> {
        self.scheduler.woke = false;
        if MANY {
            // Other CPUs may have invalidated a line or an entry since.
            self.scheduler.cpus[cpu].filter.forget_data();
        }
        loop {
            if MANY && !self.resume_task(cpu)? || self.run_stack::<MANY>(cpu, limit)? == StackOutcome::Yields {
                if MANY && self.scheduler.cpus[cpu].task.waits_for.is_some() && self.yield_cpu(cpu)? {
                    continue;
                }
                return Ok(());
            }
            if MANY && self.scheduler.turn_is_over(cpu, limit) {
                return Ok(());
            }
            if MANY && (self.run_thread(cpu)? || self.preempt(cpu)?)
                || self.scheduler.cpus[cpu].begin_exit_scan(&mut self.kernels)
            {
                continue;
            }
            if !self.choose_lane::<MANY>(cpu)? {
                return Ok(());
            }
            let this_cpu = &mut self.scheduler.cpus[cpu];
            if MANY && !this_cpu.task.stack.is_empty() {
                continue;
            }
            let lane = &mut this_cpu.lanes[this_cpu.lane];
            let (input, mut ended) = (lane.input, false);
            let item = lane.queue.get(lane.at).expect("a chosen lane has work").first_part();
            if MANY && self.waits_before(cpu, input, &item) {
                if self.yield_cpu(cpu)? {
                    continue;
                }
                return Ok(());
            }
            match item {
                Item::Run { batch, at, end, thread, more: _ } => {
                    let this_cpu = &mut self.scheduler.cpus[cpu];
                    this_cpu.lanes[this_cpu.lane].last = Some(thread);
                    self.switch_to(cpu, input, thread)?;
                    let limit = limit.min(self.scheduler.cpus[cpu].turn_end());
                    let mark = self.next_mark(input, at, end);
                    let done = self.replay_part::<MANY>((cpu, input), &batch, at..mark, limit)?;
                    self.hw.end_check()?;
                    let this_cpu = &mut self.scheduler.cpus[cpu];
                    if at + done == end {
                        ended = true;
                        this_cpu.pop_item();
                        self.programs.inputs[input].done_with(&batch);
                    } else {
                        this_cpu.advance(done);
                    }
                    self.note_marks(cpu, input, done);
                }
                Item::Event { batch, segment } => {
                    self.scheduler.cpus[cpu].pop_item();
                    self.programs.inputs[input].done_with(&batch);
                    self.carry_out(cpu, input, event_of(&batch, segment))?;
                }
                Item::Barrier { barrier } => self.reach(cpu, input, barrier)?,
                Item::Wake { wake } => self.pass_wake(cpu, input, wake),
                Item::Woken { wake } => self.scheduler.pass_woken(&mut self.programs, cpu, input, wake),
            }
            if MANY {
                self.wake_starved(cpu, input);
            }
            if ended && !progress(self.programs.dispatched()) {
                self.scheduler.paused = (!self.scheduler.woke).then_some((cpu, limit));
                return Err(EngineError::Interrupted);
            }
        }
    }

    /// Whether something prevents the event that a CPU has reached as the last of its participants; if so, the CPU
    /// waits.
    fn waits_before(&mut self, cpu: CpuId, input: usize, item: &Item) -> bool {
        let (batch, segment) = match item {
            Item::Run { .. } | Item::Wake { .. } | Item::Woken { .. } => return false,
            Item::Event { batch, segment } => (Arc::clone(batch), *segment),
            Item::Barrier { barrier } => {
                let at = &self.programs.inputs[input].barriers[barrier];
                if at.arrived + 1 < at.members.len() {
                    return false;
                }
                (Arc::clone(&at.batch), at.segment)
            }
        };
        let event = event_of(&batch, segment);
        let space = self.programs.inputs[input].space_of(event.process);
        space.is_some_and(|space| !self.may_carry_out(cpu, space, &event.kind))
    }

    /// Where the accesses `at..end` of an input reach the next mark; `end` if they do not.
    #[inline]
    fn next_mark(&self, input: usize, at: usize, end: usize) -> usize {
        match self.observers.windows.next() {
            Some(mark) if self.programs.is_counted_in_windows(input) => {
                end.min(at.saturating_add(usize::try_from(mark - self.programs.replayed).unwrap_or(usize::MAX)))
            }
            _ => end,
        }
    }

    /// Notes that an input has made `done` accesses; records the counts if that reaches a mark.
    #[inline]
    fn note_marks(&mut self, cpu: CpuId, input: usize, done: usize) {
        if !self.programs.is_counted_in_windows(input) {
            return;
        }
        self.programs.replayed += done as u64;
        while self.observers.windows.next() == Some(self.programs.replayed) {
            self.charge_account(cpu);
            let counted = self.statistics();
            self.observers.windows.note(counted);
            if let Some(profile) =
                self.observers.profile.as_mut().filter(|profile| profile.begins == self.programs.replayed)
            {
                profile.begin();
            }
        }
    }

    /// Makes a lane with work the current one. False if there is none; the CPU's state then says why.
    fn choose_lane<const MANY: bool>(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        loop {
            let chosen = self.scheduler.look_for_lane(&mut self.programs, cpu)?;
            if let Some(slot) = chosen.filter(|&slot| self.scheduler.cpus[cpu].slot != slot) {
                self.switch_task(cpu, slot)?;
            }
            // At the end of an input, a co-runner may restart.
            if !self.end_inputs(cpu)? || chosen.is_some() {
                match chosen {
                    Some(TaskSlot::Queue(_) | TaskSlot::Suspended { .. }) if MANY => {
                        self.assign_source(cpu, self.scheduler.cpus[cpu].lanes[self.scheduler.cpus[cpu].lane].input);
                    }
                    Some(_) => {}
                    None => self.rest(cpu),
                }
                return Ok(chosen.is_some());
            }
        }
    }

    /// After progress of an input: lets lanes continue that starved because its window was full.
    fn wake_starved(&mut self, by: CpuId, input: usize) {
        let now = self.scheduler.cpus[by].clock.now();
        for n in 0..self.programs.inputs[input].cpus.len() {
            let cpu = self.programs.inputs[input].cpus[n];
            let lane = self.scheduler.cpus[cpu]
                .lanes
                .iter_mut()
                .find(|lane| lane.input == input)
                .expect("the input runs there");
            if lane.state == LaneState::Starved {
                lane.state = LaneState::Ready;
                self.resume(cpu, input, Class::Idle, now);
            }
        }
    }

    /// A CPU arrives at a barrier. The last one to arrive lets all continue, after the owner has carried out the event.
    fn reach(&mut self, cpu: CpuId, input: usize, barrier: u64) -> Result<(), EngineError> {
        let at =
            self.programs.inputs[input].barriers.get_mut(&barrier).expect("a barrier stays until all have reached it");
        at.arrived += 1;
        if at.arrived < at.members.len() {
            let this_cpu = &mut self.scheduler.cpus[cpu];
            this_cpu.lanes[this_cpu.lane].state = LaneState::AtBarrier;
            return Ok(());
        }
        let at = self.programs.inputs[input].barriers.remove(&barrier).expect("looked up just now");
        self.programs.inputs[input].done_with(&at.batch);
        let time = self.scheduler.cpus[cpu].clock.now();
        for &member in &at.members {
            let member_cpu = &mut self.scheduler.cpus[member];
            let (class, time) = match at.event().kind {
                // For each CPU, the measured stretch ends when it arrives here.
                EventKind::Skip => (Class::Idle, member_cpu.clock.now()),
                // The program itself did not wait here.
                EventKind::Resume { .. } | EventKind::Measure => (Class::Idle, time),
                _ => (Class::Blocked, time),
            };
            let lane = member_cpu.lanes.iter_mut().find(|lane| lane.input == input).expect("the input runs there");
            lane.state = LaneState::Ready;
            debug_assert_eq!(lane.at, 0, "nobody overtakes at an event");
            lane.pop_part();
            self.resume(member, input, class, time);
        }
        self.carry_out(at.owner, input, at.event())?;
        // A call that goes on is work of the owner's lane. If the CPU spins for a lock as another task, it stops.
        self.scheduler.make_ready(at.owner, Class::LockWait, time, &self.kernels.os.locks);
        Ok(())
    }

    /// A CPU has reached a wake: lets those that wait for it continue.
    fn pass_wake(&mut self, cpu: CpuId, input: usize, wake: u64) {
        self.scheduler.cpus[cpu].pop_item();
        let time = self.scheduler.cpus[cpu].clock.now();
        for waiting in self.programs.inputs[input].pass_wake(wake) {
            self.scheduler.cpus[waiting].lane_of(input).state = LaneState::Ready;
            self.resume(waiting, input, Class::Blocked, time);
        }
    }

    /// Lets a CPU that waits for others continue at `time` at the earliest, on behalf of an input.
    fn resume(&mut self, cpu: CpuId, input: usize, class: Class, time: Cycles) {
        self.scheduler.cpus[cpu].preempt |= self.preempts_queued(cpu);
        if self.scheduler.make_ready(cpu, class, time, &self.kernels.os.locks) {
            self.scheduler.cpus[cpu].owner = Some(input);
            self.scheduler.cpus[cpu].exit_idle(&mut self.hw, &mut self.kernels);
        }
    }

    /// Makes a thread of an input the running one on a CPU.
    pub(crate) fn switch_to(&mut self, cpu: CpuId, input: usize, thread: ThreadIx) -> Result<(), EngineError> {
        if self.scheduler.cpus[cpu].thread == Some((input, thread)) {
            return Ok(());
        }
        let process = self.programs.inputs[input].process_of(thread);
        let space = self.programs.space_of(cpu, input, process, &mut self.kernels.os)?;
        let this_cpu = &mut self.scheduler.cpus[cpu];
        if this_cpu.thread.is_some() {
            this_cpu.counters.context_switches += 1;
            this_cpu.clock.spend(Class::Kernel, self.kernels.os.costs.context_switch_cycles.into());
        }
        this_cpu.thread = Some((input, thread));
        this_cpu.clock.has_dependencies = self.programs.inputs[input].info.dependencies;
        self.scheduler.cpus[cpu].load_space(&mut self.hw, &mut self.kernels, space);
        Ok(())
    }
}
