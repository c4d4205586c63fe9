//! Running the activities on a CPU's stack.

use crate::activity::{Activity, Next, Ref, RefKind, RefSpace, Step};
use crate::addr::{Cycles, FRAME_BYTES, MachineAddr, PhysAddr};
use crate::cache::Requester;
use crate::clock::Class;
use crate::cpu::CpuState;
use crate::error::EngineError;
use crate::layer::{DIRECT_MAP, SpaceId};
use crate::os::fault::Fault;
use crate::os::mapping::Invalidation;
use crate::os::reclaim::Requests;
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
                let Step { cycles, preset_cycles, instructions, io, .. } = frame.step;
                let layer = usize::from(frame.activity.layer());
                self.charge(cpu, cycles, preset_cycles, instructions);
                if io != Requests::default() {
                    self.wait_for_devices(cpu, layer, &io);
                }
            } else if frame.charged < frame.step.refs.len() {
                if self.charge_refs::<MANY>(cpu, limit) == Err(Faulted) {
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
                self.wake_kthreads(cpu);
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

    /// Makes requests to the devices of a layer and waits until they are done.
    fn wait_for_devices(&mut self, cpu: usize, layer: usize, io: &Requests) {
        let clock = &mut self.cpus[cpu].clock;
        let reclaim = self.os.layers[layer].reclaim.as_mut().expect("a layer without devices asks nothing of them");
        let swap = reclaim.swap.as_mut().map(|swap| &mut swap.device);
        let mut done = clock.now();
        for (device, requests) in [(swap, io.swap), (reclaim.storage.as_mut(), io.storage)] {
            if let Some(device) = device {
                done = done.max(device.submit(requests, clock.now()));
            }
        }
        clock.wait_until(Class::Blocked, done);
    }

    /// Carries out the invalidations that an activity asked for.
    #[inline]
    fn flush_invalid(&mut self, cpu: usize) {
        while let Some((space, ranges)) = self.os.invalid.pop() {
            let pages = ranges.len() as u64;
            self.invalidate(cpu, space, &Invalidation { ranges, pages, full: false }, false);
        }
    }

    fn end_activity(&mut self, cpu: usize) {
        let of = &mut self.cpus[cpu];
        let frame = of.stack.pop().expect("the activity was on the stack");
        match &frame.activity {
            // A fault below another activity is retried by it; one of the program's is told to the access.
            Activity::Fault(fault) if of.stack.is_empty() => of.outcome = Some(fault.outcome()),
            Activity::Fault(_) | Activity::Populate(_) | Activity::Kswapd(_) | Activity::Khugepaged(_) => {}
        }
        of.spare.push(frame);
    }

    /// Charges cycles of the activity under way to its stage and to the CPU.
    fn charge(&mut self, cpu: usize, cycles: Cycles, preset_cycles: Cycles, instructions: u64) {
        let of = &mut self.cpus[cpu];
        let activity = &of.stack.last().expect("an activity is under way").activity;
        let Some(stage) = activity.stage() else {
            self.os.kthreads.cycles += cycles;
            return of.clock.spend(Class::Kernel, cycles);
        };
        let counters = &mut self.os.faults[usize::from(activity.layer())];
        counters.cycles[stage as usize] += cycles;
        counters.preset_cycles[stage as usize] += preset_cycles;
        counters.instructions[stage as usize] += instructions;
        of.clock.spend(Class::Fault, cycles);
    }

    /// Makes the references of the step under way, with `MANY` until the clock passes `limit`. A fault of a host layer is
    /// returned; what was spent until then is charged, and the reference is made again afterwards.
    fn charge_refs<const MANY: bool>(&mut self, cpu: usize, limit: Cycles) -> Result<(), Faulted> {
        let frame = self.cpus[cpu].stack.last_mut().expect("an activity is under way");
        let layer = frame.activity.layer();
        let refs = std::mem::take(&mut frame.step.refs);
        let (mut charged, mut bytes_done, mut overlap) = (frame.charged, frame.bytes_done, frame.overlap);
        let (mut total, mut made) = (0, Ok(()));
        while let Some(reference) = refs.get(charged) {
            let mut cycles = 0;
            made = self.make_ref(cpu, layer, reference, &mut bytes_done, &mut cycles);
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
            if MANY && self.cpus[cpu].clock.now() + total > limit {
                break;
            }
        }
        let frame = self.cpus[cpu].stack.last_mut().expect("an activity is under way");
        frame.step.refs = refs;
        (frame.charged, frame.bytes_done, frame.overlap) = (charged, bytes_done, overlap);
        self.charge(cpu, total, 0, 0);
        made
    }

    #[inline(always)]
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
        let writes = reference.kind != RefKind::Read;
        let locked = reference.kind == RefKind::Locked;
        if let RefKind::Load { bytes } | RefKind::Zero { bytes } = reference.kind {
            return self.make_bulk_ref(core, layer, reference, bytes, done, cycles);
        }
        let (machine, _) = self.locate(core, layer, reference.space, reference.addr, writes, cycles)?;
        *cycles += self.hw.system_ref(core, machine, writes, locked, Requester::Kernel).cycles;
        Ok(())
    }

    /// A bulk reference goes translation by translation.
    fn make_bulk_ref(
        &mut self,
        core: usize,
        layer: u16,
        reference: &Ref,
        bytes: u64,
        done: &mut u64,
        cycles: &mut Cycles,
    ) -> Result<(), Faulted> {
        let writes = matches!(reference.kind, RefKind::Zero { .. });
        while *done < bytes {
            let addr = PhysAddr(reference.addr.0 + *done);
            let (machine, piece) = self.locate(core, layer, reference.space, addr, writes, cycles)?;
            let piece = piece.min(bytes - *done);
            *cycles += if writes { self.hw.zero(core, machine, piece) } else { self.hw.load(core, machine, piece) };
            *done += piece;
        }
        Ok(())
    }

    /// Where on the machine an address of a layer is, and how many bytes from there on lie in the same page.
    #[inline(always)]
    fn locate(
        &mut self,
        core: usize,
        layer: u16,
        space: RefSpace,
        addr: PhysAddr,
        writes: bool,
        cycles: &mut Cycles,
    ) -> Result<(MachineAddr, u64), Faulted> {
        let layers = &mut self.os.layers;
        match space {
            RefSpace::Kernel => {
                let va = layers[usize::from(layer)].direct(addr);
                let intent = if writes { Intent::Store } else { Intent::Load };
                let space = SpaceId { layer, index: DIRECT_MAP };
                let wanted = Wanted { core, space, va, intent, origin: Origin::Kernel };
                let found = self.hw.translate(layers, &wanted, cycles)?;
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
