//! Address translation: TLBs, MMU caches and the page-table walker, over any number of layers.
//!
//! [`Hardware::translate`] is what a core does for one access. A walk of a space reads page-table entries at physical
//! addresses of its layer. The layer's host translates each of these addresses, and the address that the leaf gives;
//! this may take a walk of its own. With radix tables of L levels and no caches, d layers make (L+1)^d - 1 references.
//! The walk stops at the first translation that is missing in some layer. That layer's kernel handles the page fault,
//! and the access is translated again from the start, as hardware restarts an instruction.

use crate::counters::{TLB_DATA, TLB_FETCH, TLB_KERNEL, place_index};
use crate::hardware::Hardware;
use crate::scheme::segment::through_segments;
use crate::tlb_organisation::Run;
use crate::translation_unit::{Entry, FillSource, NoLines, UnitLookUp};
use pagelab_base::addr::{MachineAddr, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, CpuId, LayerId, SpaceId};
use pagelab_base::page_fault::{Intent, Origin, PageFault};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::{HitLevel, Requester};
use pagelab_kernel::layer::{Layer, is_backed};
use pagelab_tables::mmu_cache::Asid;
use pagelab_tables::page_table::{Leaf, Mapping, WalkList};

/// A translation that a core asks for.
#[derive(Clone, Copy, Debug)]
pub struct TranslationRequest {
    /// The hardware thread that makes the access.
    pub cpu: CpuId,
    /// Index of its core among the cores in use.
    pub core: CoreId,
    /// The address space.
    pub space: SpaceId,
    /// The virtual address.
    pub va: VirtAddr,
    /// Virtual address of the instruction that makes the access; 0 if unknown, as for kernels.
    pub pc: u64,
    /// Load, store or fetch.
    pub intent: Intent,
    /// Whether a program or a kernel makes the access.
    pub origin: Origin,
}

/// There is no translation: some layer's kernel must handle a page fault first. The fault is boxed, so that the result
/// of a translation fits into registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faulted(pub Box<PageFault>);

impl From<PageFault> for Faulted {
    #[cold]
    fn from(fault: PageFault) -> Self {
        Self(Box::new(fault))
    }
}

impl Hardware {
    /// Translates an address for a core and fills its TLBs. Adds the cycles beyond a first-level TLB hit, also for a
    /// fault.
    #[inline]
    pub fn translate(
        &mut self,
        layers: &mut [Layer],
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        let asid = layers[wanted.space.layer].spaces[wanted.space.index].asid;
        let held = self.units[wanted.core].first(wanted.intent).look_up(asid, wanted.va, wanted.origin);
        match held {
            Some(hit) if wanted.intent != Intent::Store || hit.stores() => Ok(hit),
            _ => self.translate_beyond_l1(layers, asid, wanted, held.is_none(), cycles),
        }
    }

    /// The rest of [`Self::translate`], after the first-level TLB; `missed` if that has no entry for the page at all.
    #[inline(never)]
    pub fn translate_beyond_l1(
        &mut self,
        layers: &mut [Layer],
        asid: Asid,
        wanted: &TranslationRequest,
        missed: bool,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        let &TranslationRequest { core, space, va, intent, origin, .. } = wanted;
        if self.segments
            && let Some(found) = through_segments(layers, space, va)
        {
            self.segment.translations += 1;
            return Ok(found);
        }
        *cycles += self.l2_tlb_latency;
        self.caches.pass(self.l2_tlb_latency);
        let unit = &mut self.units[core];
        unit.tlb.l1.count(kind(intent, origin), missed);
        let held = unit.l2.look_up(asid, va, origin);
        if unit.size_prediction.is_some() {
            self.judge_size(wanted, held, cycles);
        }
        let unit = &mut self.units[core];
        let mut run = Run::ALONE;
        let translation = match held {
            Some(hit) if intent != Intent::Store || hit.stores() => {
                if self.organised {
                    run = unit.l2.run(asid, va);
                }
                hit
            }
            _ => {
                unit.tlb.l2.count(kind(intent, origin), held.is_none());
                let translation = match self.look_up_in_stages(asid, wanted, cycles) {
                    Some(found) => found,
                    None => {
                        let is_guessed = held.is_none() && self.units[core].speculation.is_some();
                        let found = match is_guessed {
                            true => self.walk_beside_guess(layers, asid, wanted, cycles)?,
                            false => self.walk_all(layers, wanted, cycles)?,
                        };
                        if held.is_some() && origin == Origin::Program {
                            self.walks.dirty_walks += 1;
                        }
                        self.fill_stages(layers, asid, wanted, found);
                        if self.organised {
                            run = self.run(layers, space, va, found);
                        }
                        found
                    }
                };
                self.enter_second(core, asid, va, translation, run, origin, held.is_none());
                self.walk_for_stages(layers, asid, wanted, translation);
                translation
            }
        };
        self.enter_first(core, intent, asid, va, translation, run, origin, missed);
        if self.units[core].size_prediction.is_some() {
            self.learn_size(wanted, translation);
        }
        Ok(translation)
    }

    /// Tells the prediction of page sizes what the second level holds, and waits for its second attempt.
    #[cold]
    fn judge_size(&mut self, wanted: &TranslationRequest, held: Option<Translation>, cycles: &mut Cycles) {
        let unit = &mut self.units[wanted.core];
        let Some(predictor) = &mut unit.size_prediction else { return };
        self.second_attempt = predictor.judge(wanted.va, wanted.pc, unit.l2.sized(wanted.origin, held));
        *cycles += self.second_attempt;
        self.caches.pass(self.second_attempt);
    }

    /// Tells the prediction of page sizes what an access has found.
    #[cold]
    fn learn_size(&mut self, wanted: &TranslationRequest, found: Translation) {
        let unit = &mut self.units[wanted.core];
        if let (Some(predictor), Some(class)) = (&mut unit.size_prediction, unit.l2.class_of(found)) {
            predictor.learn(wanted.va, wanted.pc, class);
        }
    }

    /// A whole walk, from the space's root to the machine; counts it.
    #[inline]
    pub(super) fn walk_all(
        &mut self,
        layers: &mut [Layer],
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        (self.leaf_of, self.leaf) = (Some(wanted.space), None);
        let paging = &layers[wanted.space.layer].paging;
        if paging.shadowed {
            return match paging.inverted {
                true => self.walk_inverted(layers, wanted, cycles),
                false => self.walk_shadowed(layers, wanted, cycles),
            };
        }
        if let Some(machine) = self.speculative.filter(|&machine| machine != wanted.space.layer) {
            return self.walk_speculatively(layers, machine, wanted, cycles);
        }
        if self.walks_region(layers, wanted) {
            return self.walk_region(layers, wanted, cycles);
        }
        self.walks.log.clear();
        let mut spent = Cycles::ZERO;
        let walked = self.walk_to_machine(layers, wanted.core, wanted.space, wanted.va, wanted.intent, &mut spent);
        match &walked {
            Ok(found) => {
                self.walks.complete(wanted.origin, spent);
                if self.caches.follows_walks() {
                    self.follow_walk(layers, wanted, *found);
                }
            }
            // The host already had the page before the run, so this walk never happened.
            Err(Faulted(fault)) if is_backed(layers, fault) => return walked,
            Err(_) => self.walks.abort(wanted.origin, spent),
        }
        *cycles += spent;
        walked
    }

    /// Tells prefetchers that follow walks about one for a program's data whose last entry memory has served. That must
    /// be an entry of the machine's own layer: others do not say the frame.
    #[cold]
    fn follow_walk(&mut self, layers: &[Layer], wanted: &TranslationRequest, found: Translation) {
        let is_of_data = wanted.origin == Origin::Program && wanted.intent != Intent::Fetch;
        let Some(last) = self.walks.log.last().filter(|_| is_of_data) else { return };
        let says_frame = layers[last.layer()].host.is_none();
        if says_frame && last.place() == place_index(Some(HitLevel::Dram)) {
            self.caches.prefetch_after_walk(wanted.core, found.address(wanted.va).line());
        }
    }

    /// Walks the page table of a space and translates the result down to the machine.
    #[inline]
    pub fn walk_to_machine(
        &mut self,
        layers: &mut [Layer],
        core: CoreId,
        space: SpaceId,
        va: VirtAddr,
        intent: Intent,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        let Some(host) = layers[space.layer].host else {
            return self.walk(layers, core, space, va, intent, cycles).map(Translation::on_bare_machine);
        };
        let store = intent == Intent::Store;
        let found = match self.large_page_of_guest(layers, core, space, va, store, cycles) {
            Some(held) => held,
            None => {
                let found = self.walk(layers, core, space, va, intent, cycles)?;
                if let Some(guest) = self.units[core].guest.as_mut().filter(|_| !self.segments) {
                    let asid = layers[space.layer].spaces[space.index].asid;
                    guest.fill(&Entry { asid, va, translation: found }, FillSource::Walk, &mut NoLines);
                }
                found
            }
        };
        let below = self.through_host(layers, core, host, found.address(va), store, cycles)?;
        Ok(found.through(va, below))
    }

    /// Looks up a page of a guest in the TLB of guests' large pages.
    #[inline]
    fn large_page_of_guest(
        &mut self,
        layers: &[Layer],
        core: CoreId,
        space: SpaceId,
        va: VirtAddr,
        store: bool,
        cycles: &mut Cycles,
    ) -> Option<Translation<PhysAddr>> {
        // Not with direct segments: an address in a segment has no page.
        let guest = self.units[core].guest.as_mut().filter(|_| !self.segments)?;
        let asid = layers[space.layer].spaces[space.index].asid;
        let intent = if store { Intent::Store } else { Intent::Load };
        let mut spent = Cycles::ZERO;
        let look_up = UnitLookUp { asid, va, pc: 0, intent, origin: Origin::Program, now: self.caches.time() };
        let held = guest.look_up(&look_up, &mut NoLines, &mut spent);
        *cycles += spent;
        self.caches.pass(spent);
        held
    }

    /// Walks the page table of one space, unless its segment contains the address. The layer's host translates every
    /// reference.
    #[inline(never)]
    fn walk(
        &mut self,
        layers: &mut [Layer],
        core: CoreId,
        space: SpaceId,
        va: VirtAddr,
        intent: Intent,
        cycles: &mut Cycles,
    ) -> Result<Translation<PhysAddr>, Faulted> {
        if self.segments
            && let Some(found) = self.through_segment(layers, space, va)
        {
            return Ok(found);
        }
        let layer = &layers[space.layer];
        let (host, address_space) = (layer.host, &layer.spaces[space.index]);
        let asid = address_space.asid;
        let pinned = if self.virtual_tables { address_space.table.pinned() } else { None };
        let mut list = WalkList::new();
        address_space.table.walk_by_hardware(&layer.memory.contents, va, &mut list);
        let spared = self.mmu_caches.cache(core, space.layer).look_up(asid, va, &list);
        let mut total = list.lead_cycles + spared.cycles;
        // References of one dependency step overlap: a step costs as much as its slowest reference.
        let (mut step, mut step_cycles) = (u8::MAX, Cycles::ZERO);
        let mut leaf_entry = MachineAddr::default();
        let refs = list.refs();
        let begun = self.caches.time();
        for n in UnsparedRefs::new(refs.len(), spared.skip) {
            let r = &refs[n];
            let mut spent = Cycles::ZERO;
            let before = if r.step == step { Cycles::ZERO } else { step_cycles };
            self.caches.set_time(begun + total + before);
            let on_machine = match pinned {
                None => self.on_machine(layers, core, host, r.addr, &mut spent),
                Some(pinned) => self.through_direct_map(layers, core, (space.layer, pinned), r.addr, &mut spent),
            };
            leaf_entry = match on_machine {
                Ok(entry) => entry,
                Err(faulted) => {
                    *cycles += total + step_cycles + spent;
                    let mem = &layers[space.layer].memory.contents;
                    self.mmu_caches.cache(core, space.layer).fill(asid, va, &list, n, spared.skip, mem);
                    return Err(faulted);
                }
            };
            // The last reference is the leaf; MMU caches hold no leaves.
            let cached = spared.by_entry && n + 1 < refs.len();
            if !cached || !self.mmu_caches.cache(core, space.layer).holds(leaf_entry, &mut spent) {
                let done = self.system_ref(core, leaf_entry, false, false, Requester::Walk);
                spent += done.cycles;
                self.walks.note(space.layer, r.level, done.served, done.cycles);
            }
            if r.step == step {
                step_cycles = spent.max(step_cycles);
            } else {
                total += step_cycles;
                (step, step_cycles) = (r.step, spent);
            }
        }
        *cycles += total + step_cycles;
        self.caches.set_time(begun + total + step_cycles);
        if self.leaf_of == Some(space) {
            self.leaf = Some(leaf_entry.line());
        }
        let mem = &layers[space.layer].memory.contents;
        self.mmu_caches.cache(core, space.layer).fill(asid, va, &list, refs.len(), spared.skip, mem);
        let store = intent == Intent::Store;
        match list.leaf {
            Leaf::Present(mapping) if mapping.flags.writable || !store => {
                let marked = mapping.flags.accessed && (mapping.flags.dirty || !store);
                if self.is_ahead && !marked {
                    return Err(PageFault { space, va, intent, reached: None }.into());
                }
                let mapping = if marked {
                    mapping
                } else {
                    self.mark(layers, core, space, va, mapping, store, leaf_entry, cycles)
                };
                Ok(Translation::from_mapping(&mapping))
            }
            _ => {
                let reached = layers[space.layer].reached(space.index, &list);
                Err(PageFault { space, va, intent, reached }.into())
            }
        }
    }

    /// Sets the accessed bit of a page, and the dirty bit for a store.
    #[expect(clippy::too_many_arguments, reason = "the state of a walk at its end")]
    #[cold]
    pub(crate) fn mark(
        &mut self,
        layers: &mut [Layer],
        core: CoreId,
        space: SpaceId,
        va: VirtAddr,
        mut mapping: Mapping,
        store: bool,
        leaf_entry: MachineAddr,
        cycles: &mut Cycles,
    ) -> Mapping {
        mapping.flags.accessed = true;
        mapping.flags.dirty |= store;
        let layer = &mut layers[space.layer];
        layer.spaces[space.index].table.set_flags(&mut layer.memory.contents, va, mapping.flags);
        *cycles += self.system_ref(core, leaf_entry, true, true, Requester::Walk).cycles;
        self.walks.ad_updates += 1;
        mapping
    }

    /// Inserts a page that a fault engine has mapped in a core's TLBs, as its walker does. Skips a guest's page: the
    /// walk that follows also asks the host.
    pub fn fill(&mut self, layers: &[Layer], core: CoreId, fault: &PageFault, mapping: &Mapping) {
        let &PageFault { space, va, intent, .. } = fault;
        let layer = &layers[space.layer];
        if layer.host.is_some() {
            return;
        }
        let asid = layer.spaces[space.index].asid;
        let translation = Translation::from_mapping(mapping).on_bare_machine();
        let absent = self.units[core].l2.look_up(asid, va, Origin::Program).is_none();
        self.enter_second(core, asid, va, translation, Run::ALONE, Origin::Program, absent);
        let absent = self.units[core].first(intent).look_up(asid, va, Origin::Program).is_none();
        self.enter_first(core, intent, asid, va, translation, Run::ALONE, Origin::Program, absent);
    }

    /// Machine address of a read of a layer's physical address.
    #[inline(always)]
    pub(crate) fn on_machine(
        &mut self,
        layers: &mut [Layer],
        core: CoreId,
        host: Option<SpaceId>,
        addr: PhysAddr,
        cycles: &mut Cycles,
    ) -> Result<MachineAddr, Faulted> {
        match host {
            None => Ok(MachineAddr(addr.0)),
            Some(host) => {
                let page = self.through_host(layers, core, host, addr, false, cycles)?;
                Ok(page.address(VirtAddr(addr.0)))
            }
        }
    }

    /// Translates a guest-physical address, which is a virtual address of the space that hosts the guest.
    #[inline(never)]
    fn through_host(
        &mut self,
        layers: &mut [Layer],
        core: CoreId,
        host: SpaceId,
        addr: PhysAddr,
        store: bool,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        let asid = layers[host.layer].spaces[host.index].asid;
        let (va, intent) = (VirtAddr(addr.0), if store { Intent::Store } else { Intent::Load });
        if let Some(nested) = &mut self.units[core].nested {
            if self.segments
                && let Some(found) = through_segments(layers, host, va)
            {
                self.segment.walk_translations += 1;
                return Ok(found);
            }
            let mut spent = Cycles::ZERO;
            let look_up = UnitLookUp { asid, va, pc: 0, intent, origin: Origin::Program, now: self.caches.time() };
            let held = nested.look_up(&look_up, &mut NoLines, &mut spent);
            *cycles += spent;
            self.caches.pass(spent);
            if let Some(hit) = held {
                return Ok(hit);
            }
        }
        let found = self.walk_to_machine(layers, core, host, va, intent, cycles)?;
        if let Some(nested) = &mut self.units[core].nested {
            nested.fill(&Entry { asid, va, translation: found }, FillSource::Walk, &mut NoLines);
        }
        Ok(found)
    }

    /// Translates a physical address of a layer without a TLB, as fault engines do. Only hosts can fault.
    pub fn physical(
        &mut self,
        layers: &mut [Layer],
        core: CoreId,
        layer: LayerId,
        addr: PhysAddr,
        store: bool,
        cycles: &mut Cycles,
    ) -> Result<MachineAddr, Faulted> {
        let Some(host) = layers[layer].host else { return Ok(MachineAddr(addr.0)) };
        let page = self.through_host(layers, core, host, addr, store, cycles)?;
        Ok(page.address(VirtAddr(addr.0)))
    }
}

/// Indices of the references that a walk makes: all except those that MMU caches spare, which are among the first.
pub struct UnsparedRefs {
    count: usize,
    /// Bits of the references still to make, of the 64 after the first `passed`.
    left: u64,
    passed: usize,
}

impl UnsparedRefs {
    /// For `count` references; `skip` has a bit for each that is spared.
    #[inline(always)]
    pub fn new(count: usize, skip: u32) -> Self {
        Self { count, left: first_bits(count) & !u64::from(skip), passed: 0 }
    }
}

impl Iterator for UnsparedRefs {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            self.passed += u64::BITS as usize;
            if self.passed >= self.count {
                return None;
            }
            self.left = first_bits(self.count - self.passed);
        }
        let n = self.passed + self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        Some(n)
    }
}

/// The lowest `count` bits, `count` being at least 1; all bits if it is 64 or more.
#[inline(always)]
fn first_bits(count: usize) -> u64 {
    !0 >> (u64::BITS as usize).saturating_sub(count)
}

/// Index of a look-up in [`LevelCounters`](crate::counters::LevelCounters).
#[inline]
fn kind(intent: Intent, origin: Origin) -> usize {
    match (origin, intent) {
        (Origin::Kernel, _) => TLB_KERNEL,
        (_, Intent::Fetch) => TLB_FETCH,
        _ => TLB_DATA,
    }
}
