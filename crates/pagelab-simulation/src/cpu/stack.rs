//! Running the activities on a CPU's stack.

use crate::cpu::references::{DirectMapWindow, RefIssuer};
use crate::machine::activity::Activity;
use crate::machine::agenda::AgendaEntry;
use crate::machine::cpu::{Cpu, CpuState};
use crate::machine::kernels::Kernels;
use crate::machine::scheduler::Scheduler;
use crate::machine::simulation::{Simulation, StackOutcome};
use crate::machine::task::{StackEntry, Task};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, LayerId};
use pagelab_base::io::Answer;
use pagelab_base::step::{Next, Step};
use pagelab_hardware::core_model::clock::{Class, CpuClock};
use pagelab_hardware::core_model::kernel_branches::KernelBranches;
use pagelab_kernel::effects::Effects;
use pagelab_kernel::fault::stage::Stage;
use pagelab_kernel::layer::code::CODE_PATHS;
use pagelab_kernel::locks::TaskId;
use pagelab_run::observe::profile::Miss;

impl Simulation {
    /// Runs the top activity until the stack is empty, the CPU blocks, or its clock passes `limit`.
    pub(crate) fn run_stack<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        limit: Cycles,
    ) -> Result<StackOutcome, EngineError> {
        // Nothing else uses the core's TLBs until this returns.
        let (mut window, mut effects) = (DirectMapWindow::NONE, Effects::default());
        loop {
            let Self { hw, kernels, scheduler: Scheduler { cpus, woke, others, .. }, .. } = self;
            let Cpu { core, clock, task: Task { number, stack, miss, .. }, .. } = &mut cpus[cpu];
            let Some(entry) = stack.last_mut() else { return Ok(StackOutcome::Empty) };
            if !entry.planned {
                entry.plan(kernels);
            }
            if !entry.begun {
                entry.begun = true;
                charge_step(entry, clock, kernels, miss);
                if !entry.step.io.is_empty() {
                    let layer = entry.layer;
                    let yields = self.submit_to_devices::<MANY>(cpu, layer, limit)?;
                    if yields || MANY && self.scheduler.turn_is_over(cpu, limit) {
                        return Ok(StackOutcome::Yields);
                    }
                    continue;
                }
                if MANY && (*woke || clock.now() > limit) {
                    return Ok(StackOutcome::Yields);
                }
            }
            if entry.has_refs_left() {
                let (layers, others, now) = (&mut kernels.os.layers, *others, clock.now());
                let is_over = |spent: Cycles| MANY && now + spent > limit;
                let mut maker = RefIssuer { hw, layers, cpu, core: *core, clock, others, window: &mut window };
                let made = maker.make_for(miss, entry, &mut kernels.os.faults, is_over);
                charge(entry, clock, kernels, made.cycles);
                if let Some(fault) = made.fault {
                    self.raise(cpu, &fault);
                    if MANY && self.scheduler.turn_is_over(cpu, limit) {
                        return Ok(StackOutcome::Yields);
                    }
                    continue;
                }
                *woke |= made.deferred;
                if MANY && (*woke || clock.now() > limit) {
                    return Ok(StackOutcome::Yields);
                }
            }
            // Requests are left over if devices have answered them with errors. A fault engine is then told.
            let io_failed = !entry.step.io.is_empty();
            if io_failed && entry.activity.retries_request() {
                entry.begun = false;
                continue;
            }
            // Matched in place, since moving the result is expensive and its data is seldom needed.
            let blocked = match entry.activity.commit(kernels, &mut effects, TaskId { cpu, number: *number }, io_failed)
            {
                Ok(Next::Continue) => {
                    entry.reset();
                    None
                }
                Ok(Next::Block(key)) => {
                    suspend(entry, clock, kernels);
                    Some(key)
                }
                Ok(Next::Done) => {
                    self.end_activity(cpu);
                    None
                }
                Err(error) => return Err(error),
            };
            if self.carry_out_effects(cpu, &mut effects) {
                window = DirectMapWindow::NONE;
            }
            self.scheduler.wake_released::<MANY>(cpu, &mut self.kernels.os);
            self.wake_kthreads(cpu, &mut effects);
            if let Some(key) = blocked {
                self.scheduler.wait_for(cpu, key);
                return Ok(StackOutcome::Yields);
            }
            if MANY && self.scheduler.turn_is_over(cpu, limit) {
                return Ok(StackOutcome::Yields);
            }
        }
    }

    /// Runs a CPU's top activity to the end of its next step; false if there is none, or if it waits. For explorers of
    /// interleavings, which choose the CPU themselves; [`Self::run`] chooses by the clocks.
    pub fn step(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        if self.scheduler.cpus[cpu].state != CpuState::Ready || self.scheduler.cpus[cpu].task.stack.is_empty() {
            return Ok(false);
        }
        // The explorer decides the order.
        self.scheduler.others = Cycles::MAX;
        loop {
            let charged = self.scheduler.cpus[cpu].task.stack.last().map(|entry| entry.planned);
            // With a limit that has passed, it stops after each action.
            self.run_stack::<true>(cpu, Cycles::ZERO)?;
            // In explorations, devices answer at once.
            while self.take_place()? {}
            let now = self.scheduler.cpus[cpu].task.stack.last().map(|entry| entry.planned);
            if charged == Some(true) && now != Some(true) || self.scheduler.cpus[cpu].state != CpuState::Ready {
                return Ok(true);
            }
        }
    }

    /// Submits the requests of the current step to the devices of a layer; requests that will fail stay in the step. If
    /// nothing else could use the CPU until the answer, the clock advances to it; otherwise the task waits. Returns
    /// whether it waits.
    fn submit_to_devices<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        layer: LayerId,
        limit: Cycles,
    ) -> Result<bool, EngineError> {
        // CPUs that spin for this task do so only until here.
        let one_task = !MANY
            || self.scheduler.cpus[cpu].has_one_task()
                && !self.scheduler.has_sibling(&mut self.programs, cpu)?
                && !self.scheduler.is_spun_for(cpu, &self.kernels.os.locks);
        let Cpu { clock, task, .. } = &mut self.scheduler.cpus[cpu];
        let StackEntry { step: Step { io, switch, stalls, .. }, stage, activity, .. } =
            task.stack.last_mut().expect("a step of it asks");
        let reclaim = self.kernels.os.layers[layer]
            .memory
            .reclaim
            .as_mut()
            .expect("a layer without devices asks nothing of them");
        let swap = reclaim.swap.as_mut().map(|swap| &mut swap.device);
        let mut done = clock.now();
        let storage = reclaim.storage.as_mut().map(|storage| &mut storage.device);
        for (device, requests) in [(swap, &mut io.swap), (storage, &mut io.storage)] {
            if let Some(device) = device {
                requests.retain(|&request| {
                    let Answer { at, failed } = device.submit(request, clock.now());
                    done = done.max(at);
                    failed
                });
            }
        }
        let spent = (switch.cycles + clock.time(switch.timed_by_core)).min(done - clock.now());
        clock.spend(if stage.is_some() { Class::Fault } else { activity.class() }, spent);
        let counters = &mut self.kernels.os.faults[layer];
        counters.switch_cycles += spent;
        if stage.is_some() {
            counters.note_switch(switch, spent);
        }
        let waits = MANY && done > clock.now() && (done > limit || !one_task && !*stalls);
        if waits {
            let key = self.scheduler.agenda.enter_answer(done, *stalls);
            // Whatever runs next on this CPU must not pass the answer's time.
            self.scheduler.woke = true;
            self.scheduler.wait_for(cpu, key);
        } else {
            clock.wait_until(Class::Io, done);
        }
        Ok(waits)
    }

    /// Shoots down the translations that a step has invalidated, and drops the lines that devices have written; false
    /// if there is neither. Interrupts the other CPUs if the step writes their registers.
    #[inline]
    fn carry_out_effects(&mut self, cpu: CpuId, effects: &mut Effects) -> bool {
        if std::mem::take(&mut effects.engine_registers) {
            self.scheduler.interrupt_others(&self.kernels, cpu);
        }
        let any = !effects.invalidated.is_empty();
        while let Some((space, invalidation)) = effects.invalidated.pop() {
            self.invalidate(cpu, space, &invalidation, false);
        }
        if !effects.dma.is_empty() {
            self.hw.caches.set_time(self.scheduler.cpus[cpu].clock.now());
        }
        any | self.kernels.carry_out_dma(&mut self.hw.caches, effects)
    }

    fn end_activity(&mut self, cpu: CpuId) {
        let Cpu { clock, task, filter, .. } = &mut self.scheduler.cpus[cpu];
        if let Some(entry) = task.stack.last() {
            drain(entry, clock, &mut self.kernels);
        }
        let (now, entry) = (clock.now(), task.stack.pop());
        match &entry.activity {
            Activity::Engine(work) => {
                let work = work.clone();
                self.end_engine_work(cpu, &work);
            }
            Activity::Kernel { thread, .. } => {
                if let Some(at) = self.kernels.threads.end(*thread, now) {
                    let alarm = AgendaEntry::Alarm { thread: *thread };
                    self.scheduler.enter(at, alarm);
                }
            }
            // The activity below a fault retries its reference; with none below, the program retries its access.
            Activity::Fault(fault) => {
                let nested = !self.kernels.os.tops().contains(&entry.layer);
                let (outcome, major, service) = (fault.outcome(), fault.is_major(), fault.service(nested));
                if let Some(service) = service {
                    self.kernels.os.fault_latencies.note(service, now - entry.began);
                }
                if task.stack.is_empty() {
                    task.outcome = Some(outcome);
                    task.refetches = filter.fetches_lines();
                    self.note_end(cpu);
                    self.profile_miss_end(cpu, major);
                }
            }
            Activity::Ahead(call) => call.note_end(&mut self.kernels.os, now - entry.began),
            Activity::Populate(_)
            | Activity::Sync(_)
            | Activity::PageOut(_)
            | Activity::Mapping(_)
            | Activity::ExitScan(_)
            | Activity::EngineCall(_)
            | Activity::Fill(_) => {}
        }
    }
}

/// Charges the costs of the current step beyond its references, and records them if the access is profiled.
#[inline(always)]
fn charge_step(entry: &StackEntry, clock: &mut CpuClock, kernels: &mut Kernels, miss: &mut Option<Box<Miss>>) {
    let Step { preset, cycles, before_pte, fills, switch, .. } = entry.step;
    let timed = clock.time(preset.timed_by_core);
    let mut cycles = cycles + preset.cycles + timed;
    if let Some(branches) = kernels.branches {
        cycles += execute_branches(entry, clock, &branches);
    }
    let now = clock.now();
    if let Some(window) = clock.kernel_window() {
        cycles += window.enter(preset.instructions, cycles, now);
        if !entry.step.io.is_empty() {
            // The device's requests are written to it.
            cycles += window.drain(now + cycles);
        }
    }
    if let Some(stage) = entry.stage {
        let counters = &mut kernels.os.faults[entry.layer];
        counters.preset_cycles[stage as usize] += preset.cycles;
        counters.timed_cycles[stage as usize] += timed;
        counters.instructions[stage as usize] += preset.instructions - switch.instructions;
        counters.instructions[Stage::Switch as usize] += switch.instructions;
        if before_pte > 0 {
            counters.spend_before_pte(cycles, fills);
        }
    }
    charge(entry, clock, kernels, cycles);
    if let Some(miss) = miss {
        miss.note(entry.layer, entry.stage, cycles, [0; 5]);
    }
}

/// Executes the branches of the current step. Returns what mispredictions cost.
#[cold]
fn execute_branches(entry: &StackEntry, clock: &mut CpuClock, branches: &KernelBranches) -> Cycles {
    let Some(path) = entry.activity.code_path(entry.stage) else { return Cycles::ZERO };
    let path = entry.layer.index() * CODE_PATHS + path;
    clock.kernel_branches(&branches.run(path, entry.step.preset.instructions))
}

/// Ends a step that will be planned anew, once what it waits for has come.
fn suspend(entry: &mut StackEntry, clock: &mut CpuClock, kernels: &mut Kernels) {
    drain(entry, clock, kernels);
    entry.reset();
}

/// Waits for the references of kernel code that are outstanding.
#[inline(always)]
fn drain(entry: &StackEntry, clock: &mut CpuClock, kernels: &mut Kernels) {
    let cycles = clock.drain_kernel();
    if cycles > Cycles::ZERO {
        charge(entry, clock, kernels, cycles);
    }
}

/// Charges cycles of an activity to its stage and to its CPU.
#[inline(always)]
fn charge(entry: &StackEntry, clock: &mut CpuClock, kernels: &mut Kernels, cycles: Cycles) {
    let Some(stage) = entry.stage else {
        entry.activity.charge(kernels, cycles);
        return clock.spend(entry.activity.class(), cycles);
    };
    kernels.os.faults[entry.layer].cycles[stage as usize] += cycles;
    clock.spend(Class::Fault, cycles);
}
