//! Running the activities on a CPU's stack.

use crate::base::addr::{FRAME_BYTES, MachineAddr, PhysAddr};
use crate::base::cycles::Cycles;
use crate::base::error::EngineError;
use crate::base::ids::{CpuId, DIRECT_MAP, LayerId, SpaceId};
use crate::base::io::Answer;
use crate::base::page_fault::{Intent, Origin};
use crate::base::step::{Next, Ref, RefKind, RefSpace, Step};
use crate::cache::Requester;
use crate::machine::activity::Activity;
use crate::machine::agenda::Entry;
use crate::machine::clock::Class;
use crate::machine::cpu::{Cpu, CpuState};
use crate::machine::simulation::{Simulation, Stack};
use crate::machine::task::{StackEntry, Task};
use crate::translate::walker::{Faulted, LastHit, Wanted};

impl Simulation {
    /// Runs the uppermost activity until the stack is empty, the CPU blocks, or its clock passes `limit`.
    pub(crate) fn run_stack<const MANY: bool>(&mut self, cpu: CpuId, limit: Cycles) -> Result<Stack, EngineError> {
        // Nobody else uses the core's TLBs until this returns.
        let mut last = LastHit::NONE;
        while let Some(entry) = self.cpus[cpu].task.stack.last_mut() {
            if !entry.planned {
                entry.activity.plan(&self.os, &self.kthreads, &mut entry.step);
                entry.stage = entry.activity.stage().map(|stage| stage as usize);
                entry.planned = true;
            }
            if !entry.begun {
                entry.begun = true;
                let (asks, layer) = (!entry.step.io.is_empty(), entry.layer);
                self.charge_step(cpu);
                if asks && self.ask_devices::<MANY>(cpu, layer, limit)? {
                    return Ok(Stack::Yields);
                }
                if MANY && self.turn_is_over(cpu, limit) {
                    return Ok(Stack::Yields);
                }
            }
            if self.cpus[cpu].task.stack.last().is_some_and(StackEntry::has_refs_left) {
                let made = self.charge_refs::<MANY>(cpu, limit, &mut last);
                if made.is_err() {
                    let fault = self.hw.fault;
                    self.raise(cpu, &fault);
                }
                if MANY && self.turn_is_over(cpu, limit) {
                    return Ok(Stack::Yields);
                }
                if made.is_err() {
                    continue;
                }
            }
            if self.asks_again(cpu) {
                continue;
            }
            let Task { number, stack, .. } = &mut self.cpus[cpu].task;
            let entry = stack.last_mut().expect("an activity is under way");
            self.os.locks.acting_task = *number;
            // Matched where it is: what it holds is seldom needed.
            let blocked = match entry.activity.commit(&mut self.os, &mut self.kthreads, cpu) {
                Ok(Next::Continue) => {
                    entry.reset();
                    None
                }
                Ok(Next::Block(key)) => {
                    entry.reset();
                    Some(key)
                }
                Ok(Next::Done) => {
                    self.end_activity(cpu);
                    None
                }
                Err(error) => return Err(error),
            };
            if self.flush_invalid(cpu) | self.note_arrivals() {
                last = LastHit::NONE;
            }
            self.wake_released(cpu);
            self.wake_kthreads(cpu);
            if let Some(key) = blocked {
                self.wait_for(cpu, key);
                return Ok(Stack::Yields);
            }
            if MANY && self.turn_is_over(cpu, limit) {
                return Ok(Stack::Yields);
            }
        }
        Ok(Stack::Empty)
    }

    /// Runs the uppermost activity of a CPU on to the end of its next step; false if there is none, or if it waits. This is
    /// how an explorer of interleavings drives what [`Self::run`] runs by the clock.
    pub fn step(&mut self, cpu: CpuId) -> Result<bool, EngineError> {
        if self.cpus[cpu].state != CpuState::Ready || self.cpus[cpu].task.stack.is_empty() {
            return Ok(false);
        }
        loop {
            let charged = self.cpus[cpu].task.stack.last().map(|entry| entry.planned);
            // A limit that has passed: one thing at a time.
            self.run_stack::<true>(cpu, Cycles::ZERO)?;
            // An explorer's devices answer at once.
            while self.take_place()? {}
            let now = self.cpus[cpu].task.stack.last().map(|entry| entry.planned);
            if charged == Some(true) && now != Some(true) || self.cpus[cpu].state != CpuState::Ready {
                return Ok(true);
            }
        }
    }

    /// Makes the requests of the step under way to the devices of a layer; those that will be answered with an error are left in
    /// it. Where nobody could do anything before they answer, the clock goes on to then;
    /// else the task waits. Returns whether it does.
    fn ask_devices<const MANY: bool>(
        &mut self,
        cpu: CpuId,
        layer: LayerId,
        limit: Cycles,
    ) -> Result<bool, EngineError> {
        // Who spins for this task does so only until here.
        let one_task = !MANY || self.cpus[cpu].has_one_task() && !self.has_sibling(cpu)? && !self.is_spun_for(cpu);
        let Cpu { clock, task, .. } = &mut self.cpus[cpu];
        let Step { io, switch, stalls, .. } = &mut task.stack.last_mut().expect("a step of it asks").step;
        let reclaim = self.os.layers[layer].reclaim.as_mut().expect("a layer without devices asks nothing of them");
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
        clock.spend(Class::Kernel, spent);
        self.os.faults[layer].switch_cycles += spent;
        let waits = MANY && done > clock.now() && (done > limit || !one_task && !*stalls);
        if waits {
            let key = self.agenda.enter_answer(done, *stalls);
            // Whoever goes on here is not to go beyond that.
            self.woke = true;
            self.wait_for(cpu, key);
        } else {
            clock.wait_until(Class::Io, done);
        }
        Ok(waits)
    }

    /// Whether the step under way is to ask the devices again, since they have answered with errors; if an engine asked, it is told.
    #[inline]
    fn asks_again(&mut self, cpu: CpuId) -> bool {
        let entry = self.cpus[cpu].task.stack.last_mut().expect("an activity is under way");
        self.os.io_failed = !entry.step.io.is_empty();
        let again = self.os.io_failed && entry.activity.asks_again();
        entry.begun &= !again;
        again
    }

    /// What devices have written leaves the caches; false if they have written nothing.
    #[inline]
    fn note_arrivals(&mut self) -> bool {
        let any = !self.os.arrived.is_empty();
        while let Some((layer, addr, lines)) = self.os.arrived.pop() {
            if let Some(frame) = self.os.machine_frame(layer, addr.pfn()) {
                let at = frame.addr().0 | addr.0 & (FRAME_BYTES - 1);
                self.hw.caches.dma_write(MachineAddr(at).line(), lines);
            }
        }
        any
    }

    /// Carries out the invalidations that an activity asked for; false if it asked for none.
    #[inline]
    fn flush_invalid(&mut self, cpu: CpuId) -> bool {
        let any = !self.os.invalid.is_empty();
        while let Some((space, what)) = self.os.invalid.pop() {
            self.invalidate(cpu, space, &what, false);
        }
        any
    }

    fn end_activity(&mut self, cpu: CpuId) {
        let of = &mut self.cpus[cpu];
        let entry = of.task.stack.pop().expect("the activity was on the stack");
        let now = of.clock.now();
        match &entry.activity {
            Activity::Engine(work) => self.end_engine_work(cpu, work),
            Activity::Kernel { thread, .. } => {
                if let Some(at) = self.kthreads.end(*thread, now) {
                    self.agenda.enter(at, Entry::Alarm { thread: *thread });
                    self.woke = true;
                }
            }
            // A fault below another activity is retried by it; one of the program's is told to the access.
            Activity::Fault(fault) if of.task.stack.is_empty() => {
                if fault.is_major() {
                    self.os.major_latencies.note(now - entry.began);
                }
                of.task.outcome = Some(fault.outcome());
                self.note_end(cpu);
            }
            Activity::Fault(_) | Activity::Populate(_) | Activity::Sync(_) | Activity::ExitScan(_) => {}
        }
        self.cpus[cpu].spare.push(entry);
    }

    /// Charges what the step under way costs beyond its references.
    #[inline(always)]
    fn charge_step(&mut self, cpu: CpuId) {
        let Cpu { clock, task, .. } = &mut self.cpus[cpu];
        let entry = task.stack.last().expect("an activity is under way");
        let Step { preset, cycles, before_pte, fills, .. } = entry.step;
        let timed = clock.time(preset.timed_by_core);
        let cycles = cycles + preset.cycles + timed;
        if let Some(stage) = entry.stage {
            let counters = &mut self.os.faults[entry.layer];
            counters.preset_cycles[stage] += preset.cycles;
            counters.timed_cycles[stage] += timed;
            counters.instructions[stage] += preset.instructions;
            if before_pte > 0 {
                counters.spend_before_pte(cycles, fills);
            }
        }
        self.charge(cpu, cycles);
    }

    /// Charges cycles of the activity under way to its stage and to the CPU.
    #[inline(always)]
    fn charge(&mut self, cpu: CpuId, cycles: Cycles) {
        let of = &mut self.cpus[cpu];
        let entry = of.task.stack.last().expect("an activity is under way");
        let Some(stage) = entry.stage else {
            entry.activity.charge(&mut self.os, &mut self.kthreads, cycles);
            let class = entry.activity.class();
            return of.clock.spend(class, cycles);
        };
        self.os.faults[entry.layer].cycles[stage] += cycles;
        of.clock.spend(Class::Fault, cycles);
    }

    /// Makes the references of the step under way, with `MANY` until the clock passes `limit`. A fault of a host layer is
    /// returned; what was spent until then is charged, and the reference is made again afterwards.
    #[inline(always)]
    fn charge_refs<const MANY: bool>(&mut self, cpu: CpuId, limit: Cycles, last: &mut LastHit) -> Result<(), Faulted> {
        let entry = self.cpus[cpu].task.stack.last_mut().expect("an activity is under way");
        let layer = entry.layer;
        let refs = std::mem::take(&mut entry.step.refs);
        let (mut charged, mut bytes_done, mut overlap) = (entry.charged, entry.bytes_done, entry.overlap);
        let (mut total, mut made) = (Cycles::ZERO, Ok(()));
        let (before_pte, mut total_before) = (entry.step.before_pte, Cycles::ZERO);
        let (stage, core) = (entry.stage, self.cpus[cpu].core);
        let found_before = self.hw.caches.kernel_lines(core);
        while let Some(reference) = refs.get(charged) {
            let mut cycles = Cycles::ZERO;
            made = self.make_ref(cpu, layer, reference, &mut bytes_done, last, &mut cycles);
            if made.is_err() {
                total += cycles;
                break;
            }
            let (step, most) = overlap;
            if charged > 0 && step == reference.step {
                total += cycles.saturating_sub(most);
                overlap.1 = most.max(cycles);
            } else {
                total += cycles;
                overlap = (reference.step, cycles);
            }
            (charged, bytes_done) = (charged + 1, 0);
            if charged <= before_pte {
                total_before = total;
            }
            if MANY && self.cpus[cpu].clock.now() + total > limit {
                break;
            }
        }
        let entry = self.cpus[cpu].task.stack.last_mut().expect("an activity is under way");
        entry.step.refs = refs;
        (entry.charged, entry.bytes_done, entry.overlap) = (charged, bytes_done, overlap);
        if before_pte > 0 {
            let cycles = if charged < before_pte { total } else { total_before };
            let fills = entry.step.fills;
            self.os.faults[layer].spend_before_pte(cycles, fills);
        }
        if let Some(stage) = stage {
            let found = self.hw.caches.kernel_lines(core).into_iter().zip(found_before);
            let counts = &mut self.os.faults[layer].lines[stage];
            counts.iter_mut().zip(found).for_each(|(count, (after, before))| *count += after - before);
        }
        self.charge(cpu, total);
        made
    }

    #[inline(always)]
    fn make_ref(
        &mut self,
        cpu: CpuId,
        layer: LayerId,
        reference: &Ref,
        done: &mut u64,
        last: &mut LastHit,
        cycles: &mut Cycles,
    ) -> Result<(), Faulted> {
        if !self.hw.kernel_refs {
            let is_free = matches!(reference.kind, RefKind::Touch { .. });
            *cycles += if is_free { Cycles::ZERO } else { self.hw.l1_latency };
            return Ok(());
        }
        let core = self.cpus[cpu].core;
        let writes = reference.kind != RefKind::Read;
        let locked = reference.kind == RefKind::Locked;
        match reference.kind {
            RefKind::Load { bytes } | RefKind::Zero { bytes } => {
                return self.make_bulk_ref(core, layer, reference, bytes, done, last, cycles);
            }
            RefKind::Touch { bytes } => {
                let mut spent_anyway = Cycles::ZERO;
                return self.make_bulk_ref(core, layer, reference, bytes, done, last, &mut spent_anyway);
            }
            RefKind::Read | RefKind::Write | RefKind::Locked => {}
        }
        let (machine, _) = self.locate(core, layer, reference.space, reference.addr, writes, last, cycles)?;
        let by = match reference.space {
            RefSpace::Kernel => Requester::Kernel,
            RefSpace::Physical => Requester::Walk,
        };
        *cycles += self.hw.system_ref(core, machine, writes, locked, by).cycles;
        Ok(())
    }

    /// A bulk reference goes translation by translation.
    #[expect(clippy::too_many_arguments, reason = "the state of a reference under way")]
    fn make_bulk_ref(
        &mut self,
        core: usize,
        layer: LayerId,
        reference: &Ref,
        bytes: u64,
        done: &mut u64,
        last: &mut LastHit,
        cycles: &mut Cycles,
    ) -> Result<(), Faulted> {
        let writes = matches!(reference.kind, RefKind::Zero { .. });
        while *done < bytes {
            let addr = PhysAddr(reference.addr.0 + *done);
            let (machine, piece) = self.locate(core, layer, reference.space, addr, writes, last, cycles)?;
            let piece = piece.min(bytes - *done);
            *cycles += if writes { self.hw.zero(core, machine, piece) } else { self.hw.load(core, machine, piece) };
            *done += piece;
        }
        Ok(())
    }

    /// Where on the machine an address of a layer is, and how many bytes from there on lie in the same page.
    #[expect(clippy::too_many_arguments, reason = "the state of a reference under way")]
    #[inline(always)]
    fn locate(
        &mut self,
        core: usize,
        layer: LayerId,
        space: RefSpace,
        addr: PhysAddr,
        writes: bool,
        last: &mut LastHit,
        cycles: &mut Cycles,
    ) -> Result<(MachineAddr, u64), Faulted> {
        let layers = &mut self.os.layers;
        match space {
            RefSpace::Kernel => {
                let va = layers[layer].direct(addr);
                let intent = if writes { Intent::Store } else { Intent::Load };
                let space = SpaceId { layer, index: DIRECT_MAP };
                let wanted = Wanted { core, space, va, intent, origin: Origin::Kernel };
                let found = self.hw.translate_direct(layers, &wanted, last, cycles)?;
                self.hw.check(layers, space, va, found);
                Ok((found.address(va), found.size().bytes() - (va.0 & found.size().offset_mask())))
            }
            RefSpace::Physical => {
                let machine = self.hw.physical(layers, core, layer, addr, writes, cycles)?;
                Ok((machine, FRAME_BYTES - (addr.0 & (FRAME_BYTES - 1))))
            }
        }
    }
}
