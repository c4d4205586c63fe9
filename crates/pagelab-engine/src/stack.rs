//! Running the activities on a CPU's stack.

use crate::activity::{Activity, Next, Ref, RefKind, RefSpace, Step};
use crate::addr::Cycles;
use crate::cache::Requester;
use crate::clock::Class;
use crate::cpu::CpuState;
use crate::error::EngineError;
use crate::layer::{DIRECT_MAP, SpaceId};
use crate::os::fault::Fault;
use crate::os::mapping::Invalidation;
use crate::os::reclaim::DeviceRequests;
use crate::simulation::{Simulation, Stack};
use crate::walker::{Faulted, Intent, Origin, Wanted};

impl Simulation {
    /// Runs the uppermost activity until the stack is empty, the CPU blocks, or its clock passes `limit`.
    pub(crate) fn run_stack<const MANY: bool>(&mut self, cpu: usize, limit: Cycles) -> Result<Stack, EngineError> {
        while let Some(frame) = self.cpus[cpu].stack.last_mut() {
            if !frame.planned {
                frame.activity.plan(&self.os, &mut frame.step);
                frame.planned = true;
            }
            if !frame.begun {
                frame.begun = true;
                let Step { cycles, preset_cycles, instructions, device, .. } = frame.step;
                let layer = usize::from(frame.activity.layer());
                self.charge(cpu, cycles, preset_cycles, instructions);
                if device != DeviceRequests::default() {
                    self.wait_for_device(cpu, layer, device);
                }
            } else if let Some(&reference) = frame.step.refs.get(frame.charged) {
                if self.charge_ref(cpu, &reference) == Err(Faulted) {
                    self.cpus[cpu].begin(Activity::Fault(Fault::new(&self.hw.fault, cpu)));
                }
            } else {
                let next = frame.activity.commit(&mut self.os, cpu)?;
                match next {
                    Next::Continue | Next::Block(_) => frame.reset(),
                    Next::Done => self.end_activity(cpu),
                }
                self.flush_invalid(cpu);
                self.wake_released(cpu);
                if let Next::Block(key) = next {
                    self.cpus[cpu].state = CpuState::Blocked(key);
                    return Ok(Stack::Yields);
                }
            }
            if MANY && self.turn_is_over(cpu, limit) {
                return Ok(Stack::Yields);
            }
        }
        Ok(Stack::Empty)
    }

    /// Runs the uppermost activity of a CPU on to the end of its next step; false if there is none, or if it waits. This is
    /// how an explorer of interleavings drives what [`Self::run`] runs by the clock.
    pub fn step(&mut self, cpu: usize) -> Result<bool, EngineError> {
        if self.cpus[cpu].state != CpuState::Ready || self.cpus[cpu].stack.is_empty() {
            return Ok(false);
        }
        loop {
            let charged = self.cpus[cpu].stack.last().map(|frame| frame.planned);
            // A limit that has passed: one thing at a time.
            self.run_stack::<true>(cpu, 0)?;
            let now = self.cpus[cpu].stack.last().map(|frame| frame.planned);
            if charged == Some(true) && now != Some(true) || self.cpus[cpu].state != CpuState::Ready {
                return Ok(true);
            }
        }
    }

    /// Makes requests to the swap device of a layer and waits until they are done.
    fn wait_for_device(&mut self, cpu: usize, layer: usize, requests: DeviceRequests) {
        let clock = &mut self.cpus[cpu].clock;
        let reclaim = self.os.layers[layer].reclaim.as_mut().expect("a layer without a swap device asks nothing of it");
        let done = reclaim.swap.device.submit(requests, clock.now());
        clock.wait_until(Class::Blocked, done);
    }

    /// Carries out the invalidations that an activity asked for.
    #[inline]
    fn flush_invalid(&mut self, cpu: usize) {
        while let Some((space, ranges)) = self.os.invalid.pop() {
            let pages = ranges.len() as u64;
            self.invalidate(cpu, space, &Invalidation { ranges, pages, full: false });
        }
    }

    fn end_activity(&mut self, cpu: usize) {
        let of = &mut self.cpus[cpu];
        let frame = of.stack.pop().expect("the activity was on the stack");
        match &frame.activity {
            // A fault below another activity is retried by it; one of the program's is told to the access.
            Activity::Fault(fault) if of.stack.is_empty() => of.outcome = Some(fault.outcome()),
            Activity::Fault(_) | Activity::Populate(_) => {}
        }
        of.spare.push(frame);
    }

    /// Charges cycles of the activity under way to its stage and to the CPU.
    fn charge(&mut self, cpu: usize, cycles: Cycles, preset_cycles: Cycles, instructions: u64) {
        let of = &mut self.cpus[cpu];
        let activity = &of.stack.last().expect("an activity is under way").activity;
        let (layer, stage) = (usize::from(activity.layer()), activity.stage() as usize);
        let counters = &mut self.os.faults[layer];
        counters.cycles[stage] += cycles;
        counters.preset_cycles[stage] += preset_cycles;
        counters.instructions[stage] += instructions;
        of.clock.spend(Class::Fault, cycles);
    }

    /// Makes one reference of the step under way. A fault of a host layer is returned; what was spent until then is charged,
    /// and the reference is made again afterwards.
    fn charge_ref(&mut self, cpu: usize, reference: &Ref) -> Result<(), Faulted> {
        let frame = self.cpus[cpu].stack.last_mut().expect("an activity is under way");
        let layer = frame.activity.layer();
        let mut done = frame.bytes_done;
        let mut cycles = 0;
        let made = self.make_ref(cpu, layer, reference, &mut done, &mut cycles);
        let frame = self.cpus[cpu].stack.last_mut().expect("an activity is under way");
        let mut charged = cycles;
        if made.is_ok() {
            (frame.charged, frame.bytes_done) = (frame.charged + 1, 0);
            let (step, most) = frame.overlap;
            if frame.charged > 1 && step == reference.step {
                charged = cycles.saturating_sub(most);
                frame.overlap.1 = most.max(cycles);
            } else {
                frame.overlap = (reference.step, cycles);
            }
        } else {
            frame.bytes_done = done;
        }
        self.charge(cpu, charged, 0, 0);
        made
    }

    fn make_ref(
        &mut self,
        cpu: usize,
        layer: u16,
        reference: &Ref,
        done: &mut u64,
        cycles: &mut Cycles,
    ) -> Result<(), Faulted> {
        if !self.hw.kernel_refs {
            *cycles += self.hw.l1_latency;
            return Ok(());
        }
        let core = self.cpus[cpu].core;
        let writes = !matches!(reference.kind, RefKind::Read | RefKind::Load { .. });
        let bytes = if let RefKind::Zero { bytes } | RefKind::Load { bytes } = reference.kind { bytes } else { 1 };
        // A bulk reference goes translation by translation.
        while *done < bytes {
            let addr = crate::addr::PhysAddr(reference.addr.0 + *done);
            let layers = &mut self.os.layers;
            let (machine, piece) = match reference.space {
                RefSpace::Kernel => {
                    let va = layers[usize::from(layer)].direct(addr);
                    let intent = if writes { Intent::Store } else { Intent::Load };
                    let space = SpaceId { layer, index: DIRECT_MAP };
                    let wanted = Wanted { core, space, va, intent, origin: Origin::Kernel };
                    let found = self.hw.translate(layers, &wanted, cycles)?;
                    self.hw.check(layers, space, va, found);
                    (found.address(va), found.size().bytes() - (va.0 & found.size().offset_mask()))
                }
                RefSpace::Physical => {
                    let machine = self.hw.physical(layers, core, layer, addr, writes, cycles)?;
                    (machine, crate::addr::FRAME_BYTES - (addr.0 & (crate::addr::FRAME_BYTES - 1)))
                }
            };
            let piece = piece.min(bytes - *done);
            *cycles += match reference.kind {
                RefKind::Read => self.hw.system_ref(core, machine, false, false, Requester::Kernel).cycles,
                RefKind::Write => self.hw.system_ref(core, machine, true, false, Requester::Kernel).cycles,
                RefKind::Locked => self.hw.system_ref(core, machine, true, true, Requester::Kernel).cycles,
                RefKind::Load { .. } => self.hw.load(core, machine, piece),
                RefKind::Zero { .. } => self.hw.zero(core, machine, piece),
            };
            *done += piece;
        }
        Ok(())
    }
}
