//! Making the references of a step.

use crate::machine::task::StackEntry;
use pagelab_base::addr::{FRAME_BYTES, LINE_BYTES, MachineAddr, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, CpuId, DIRECT_MAP, LayerId, SpaceId};
use pagelab_base::lock_kind::LockQueues;
use pagelab_base::page_fault::{Intent, Origin, PageFault};
use pagelab_base::step::{Ref, RefKind, RefSpace};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::{CodeOwner, Requester};
use pagelab_hardware::core_model::clock::CpuClock;
use pagelab_hardware::core_model::{AddressOf, KernelRef};
use pagelab_kernel::fault::stage::FaultCounters;
use pagelab_kernel::layer::Layer;
use pagelab_run::observe::profile::Miss;
use pagelab_translate::hardware::Hardware;
use pagelab_translate::walker::{Faulted, TranslationRequest};

/// The page of the direct map that a CPU's last kernel reference hit in the first-level TLB. The next reference to it
/// would hit the same entry, which is the most recently used of its set, and would change no state, as long as nothing
/// else has used the TLB since. (A TLB that holds a part of a page besides the whole page would update the part; this
/// is ignored.)
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectMapWindow {
    layer: LayerId,
    /// Bits of an address that identify its page, and those of this page.
    mask: u64,
    page: u64,
    /// Machine address of the page.
    machine: u64,
    found: Translation,
}

impl DirectMapWindow {
    /// A window that holds no page.
    pub const NONE: Self =
        Self { layer: LayerId(u16::MAX), mask: 0, page: u64::MAX, machine: 0, found: Translation::from_word(0) };

    fn new(layer: LayerId, addr: PhysAddr, va: VirtAddr, found: Translation) -> Self {
        let offset = found.size().offset_mask();
        let (page, machine) = (addr.0 & !offset, found.address(va).0 & !offset);
        Self { layer, mask: !offset, page, machine, found }
    }

    /// Machine address of an address of the window's layer, if it is in the page.
    #[inline(always)]
    fn locate(&self, addr: PhysAddr, writes: bool) -> Option<MachineAddr> {
        let held = addr.0 & self.mask == self.page && (!writes || self.found.stores());
        held.then_some(MachineAddr(self.machine | addr.0 & !self.mask))
    }
}

/// What a core needs to make references.
pub(super) struct RefIssuer<'a> {
    pub hw: &'a mut Hardware,
    pub layers: &'a mut [Layer],
    pub cpu: CpuId,
    pub core: CoreId,
    pub clock: &'a mut CpuClock,
    /// The smallest clock of the other CPUs.
    pub others: Cycles,
    pub window: &'a mut DirectMapWindow,
}

/// Outcome of making references.
pub(super) struct RefOutcome {
    pub cycles: Cycles,
    /// The fault that a reference raised in a host layer; the reference must be retried.
    pub fault: Option<Box<PageFault>>,
    /// Whether the next reference is to a contended line and must wait for CPUs whose clocks are behind.
    pub deferred: bool,
}

/// Why a reference was not made.
enum Unmade {
    Faulted(Faulted),
    Deferred,
}

impl From<Faulted> for Unmade {
    fn from(faulted: Faulted) -> Self {
        Self::Faulted(faulted)
    }
}

impl RefIssuer<'_> {
    /// Makes the remaining references of the current step, or as many as there is time for: `is_over` decides that from
    /// the cycles so far. The first is made `after` the CPU's time. Adds them to the counts of the fault stage.
    #[inline(never)]
    pub fn make(
        &mut self,
        entry: &mut StackEntry,
        counters: &mut [FaultCounters],
        after: Cycles,
        is_over: impl Fn(Cycles) -> bool,
    ) -> RefOutcome {
        if self.window.layer != entry.layer {
            *self.window = DirectMapWindow::NONE;
        }
        let before_pte = entry.step.before_pte;
        let (mut charged, mut bytes_done, mut overlap) = (entry.charged, entry.bytes_done, entry.overlap);
        let (mut total, mut total_before) = (Cycles::ZERO, Cycles::ZERO);
        let (mut fault, mut deferred) = (None, false);
        let found_before = self.hw.caches.kernel_lines(self.core);
        let keeps_time = self.hw.caches.is_timed() || self.hw.caches.orders_transfers();
        let overlaps = self.clock.kernel_window().is_some();
        let begun = if keeps_time || overlaps { self.clock.now() + after } else { Cycles::ZERO };
        while let Some(reference) = entry.step.refs.get(charged) {
            let mut cycles = Cycles::ZERO;
            self.hw.caches.set_time(begun + total);
            self.hw.caches.set_request_time(begun + total);
            let queues = &mut counters[entry.layer].lock_queues;
            if let Err(unmade) = self.make_one(entry.layer, reference, &mut bytes_done, &mut cycles, queues) {
                total += cycles;
                match unmade {
                    Unmade::Faulted(Faulted(raised)) => {
                        total += self.clock.kernel_window().map_or(Cycles::ZERO, |window| window.drain(begun + total));
                        fault = Some(raised);
                    }
                    Unmade::Deferred => deferred = true,
                }
                break;
            }
            let (step, most) = overlap;
            if overlaps {
                let is_first = charged == 0 || step != reference.step;
                total += self.overlap(reference, is_first, cycles, begun + total);
                overlap = (reference.step, cycles);
            } else if charged > 0 && step == reference.step {
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
            if is_over(total) {
                break;
            }
        }
        (entry.charged, entry.bytes_done, entry.overlap) = (charged, bytes_done, overlap);
        let counters = &mut counters[entry.layer];
        if before_pte > 0 {
            counters.spend_before_pte(if charged < before_pte { total } else { total_before }, entry.step.fills);
        }
        if let Some(stage) = entry.stage {
            let found = self.hw.caches.kernel_lines(self.core).into_iter().zip(found_before);
            let counts = &mut counters.lines[stage as usize];
            counts.iter_mut().zip(found).for_each(|(count, (after, before))| *count += after - before);
        }
        RefOutcome { cycles: total, fault, deferred }
    }

    /// How long kernel code waits for a reference that it makes at `now`, if its references overlap.
    fn overlap(&mut self, reference: &Ref, is_first: bool, latency: Cycles, now: Cycles) -> Cycles {
        let Some(window) = self.clock.kernel_window() else { return latency };
        let kind = match (reference.space, reference.kind) {
            (RefSpace::Kernel, RefKind::Read) => KernelRef::Load,
            (RefSpace::Kernel, RefKind::Write) => KernelRef::Store,
            (RefSpace::Kernel, RefKind::Locked) => KernelRef::Locked,
            (RefSpace::Kernel | RefSpace::Physical, _) => KernelRef::Waited,
        };
        let address = match (reference.independent, is_first) {
            (true, _) => AddressOf::Known,
            (false, true) => AddressOf::Previous,
            (false, false) => AddressOf::Same,
        };
        window.refer(kind, address, latency, now)
    }

    /// [`Self::make`] for an access that may be profiled.
    #[inline(always)]
    pub fn make_for(
        &mut self,
        miss: &mut Option<Box<Miss>>,
        entry: &mut StackEntry,
        counters: &mut [FaultCounters],
        is_over: impl Fn(Cycles) -> bool,
    ) -> RefOutcome {
        match miss {
            None => self.make(entry, counters, Cycles::ZERO, is_over),
            Some(miss) => self.make_and_record(entry, counters, is_over, miss),
        }
    }

    /// [`Self::make`], one reference at a time; records how much each prolonged the step, and where its lines were.
    #[cold]
    fn make_and_record(
        &mut self,
        entry: &mut StackEntry,
        counters: &mut [FaultCounters],
        is_over: impl Fn(Cycles) -> bool,
        miss: &mut Miss,
    ) -> RefOutcome {
        let mut all = RefOutcome { cycles: Cycles::ZERO, fault: None, deferred: false };
        loop {
            let before = self.hw.caches.kernel_lines(self.core);
            let made = self.make(entry, counters, all.cycles, |_| true);
            let after = self.hw.caches.kernel_lines(self.core);
            let lines = std::array::from_fn(|place| after[place] - before[place]);
            miss.note(entry.layer, entry.stage, made.cycles, lines);
            all = RefOutcome { cycles: all.cycles + made.cycles, ..made };
            if all.fault.is_some() || all.deferred || !entry.has_refs_left() || is_over(all.cycles) {
                return all;
            }
        }
    }

    /// Makes one reference; continues a bulk reference at byte `done`.
    #[inline(always)]
    fn make_one(
        &mut self,
        layer: LayerId,
        reference: &Ref,
        done: &mut u64,
        cycles: &mut Cycles,
        queues: &mut LockQueues,
    ) -> Result<(), Unmade> {
        if !self.hw.kernel_refs {
            let is_free = matches!(reference.kind, RefKind::Touch { .. } | RefKind::Fetch { .. });
            *cycles += if is_free { Cycles::ZERO } else { self.hw.l1_latency };
            return Ok(());
        }
        let (writes, locked) = match reference.kind {
            RefKind::Read => (false, false),
            RefKind::Write => (true, false),
            RefKind::Locked => (true, true),
            RefKind::Load { bytes } | RefKind::Zero { bytes } | RefKind::Fetch { bytes } => {
                return Ok(self.make_bulk(layer, reference, bytes, done, cycles)?);
            }
            RefKind::Touch { bytes } => {
                let mut spent_anyway = Cycles::ZERO;
                return Ok(self.make_bulk(layer, reference, bytes, done, &mut spent_anyway)?);
            }
        };
        let (addr, core) = (reference.addr, self.core);
        let (machine, by) = match reference.space {
            RefSpace::Kernel => {
                let held = self.window.locate(addr, writes);
                let machine = match held {
                    Some(machine) => {
                        self.check(layer, addr);
                        machine
                    }
                    None => self.translate(layer, addr, writes, cycles)?.0,
                };
                (machine, Requester::Kernel)
            }
            RefSpace::Physical => (self.hw.physical(self.layers, core, layer, addr, writes, cycles)?, Requester::Walk),
        };
        let caches = &mut self.hw.caches;
        if caches.must_defer(machine.line(), self.others) {
            return Err(Unmade::Deferred);
        }
        let before = reference.lock.map(|lock| (lock, caches.kernel_queue(core)));
        let outcome = if locked {
            caches.access_locked(core, machine.line(), by)
        } else {
            caches.access(core, machine.line(), writes, by)
        };
        if let Some((lock, (queued, waited))) = before {
            let (queued_now, waited_now) = caches.kernel_queue(core);
            let queue = &mut queues[lock as usize];
            queue.queued += queued_now - queued;
            queue.cycles += Cycles(waited_now - waited);
        }
        *cycles += outcome.cycles.into();
        Ok(())
    }

    /// Makes a bulk reference, one translated piece at a time.
    fn make_bulk(
        &mut self,
        layer: LayerId,
        reference: &Ref,
        bytes: u64,
        done: &mut u64,
        cycles: &mut Cycles,
    ) -> Result<(), Faulted> {
        let writes = matches!(reference.kind, RefKind::Zero { .. });
        while *done < bytes {
            let addr = reference.addr + *done;
            let (machine, piece) = self.locate(layer, reference.space, addr, writes, cycles)?;
            let piece = piece.min(bytes - *done);
            let (hw, core) = (&mut *self.hw, self.core);
            *cycles += match reference.kind {
                RefKind::Zero { .. } => hw.zero(core, machine, piece, bytes),
                RefKind::Fetch { .. } => {
                    hw.caches.fetch_lines(core, machine.line(), piece / LINE_BYTES, CodeOwner::Kernel)
                }
                RefKind::Load { .. } | RefKind::Touch { .. } | RefKind::Read | RefKind::Write | RefKind::Locked => {
                    hw.load(core, machine, piece)
                }
            };
            *done += piece;
        }
        Ok(())
    }

    /// Machine address of an address of a layer, and the number of bytes from there to the end of the page.
    fn locate(
        &mut self,
        layer: LayerId,
        space: RefSpace,
        addr: PhysAddr,
        writes: bool,
        cycles: &mut Cycles,
    ) -> Result<(MachineAddr, u64), Faulted> {
        match space {
            RefSpace::Kernel => match self.window.locate(addr, writes) {
                Some(machine) => {
                    self.check(layer, addr);
                    Ok((machine, !self.window.mask + 1 - (addr.0 - self.window.page)))
                }
                None => self.translate(layer, addr, writes, cycles),
            },
            RefSpace::Physical => {
                let machine = self.hw.physical(self.layers, self.core, layer, addr, writes, cycles)?;
                Ok((machine, FRAME_BYTES - addr.offset_in(FRAME_BYTES)))
            }
        }
    }

    /// Compares the window's translation of an address with the kernels' records, if checking is on.
    #[inline(always)]
    fn check(&mut self, layer: LayerId, addr: PhysAddr) {
        if self.hw.check {
            let (space, va) = (SpaceId { layer, index: DIRECT_MAP }, self.layers[layer].direct(addr));
            self.hw.check(self.layers, space, va, self.window.found);
        }
    }

    /// [`Self::locate`] for an address in the direct map outside the window.
    #[inline(never)]
    fn translate(
        &mut self,
        layer: LayerId,
        addr: PhysAddr,
        writes: bool,
        cycles: &mut Cycles,
    ) -> Result<(MachineAddr, u64), Faulted> {
        let Self { hw, layers, cpu, core, .. } = self;
        let space = SpaceId { layer, index: DIRECT_MAP };
        let kernel = &layers[layer];
        let (va, asid) = (kernel.direct(addr), kernel.spaces[DIRECT_MAP].asid);
        let intent = if writes { Intent::Store } else { Intent::Load };
        let wanted = TranslationRequest { cpu: *cpu, core: *core, space, va, pc: 0, intent, origin: Origin::Kernel };
        let held = hw.units[*core].first(intent).look_up(asid, va, Origin::Kernel);
        *self.window = DirectMapWindow::NONE;
        let found = match held {
            Some(hit) if !writes || hit.stores() => {
                *self.window = DirectMapWindow::new(layer, addr, va, hit);
                hit
            }
            _ => hw.translate_beyond_l1(layers, asid, &wanted, held.is_none(), cycles)?,
        };
        hw.check(layers, space, va, found);
        Ok((found.address(va), found.size().bytes() - (va.offset_in(found.size().bytes()))))
    }
}
