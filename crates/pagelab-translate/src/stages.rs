//! Units after the TLBs: when they are looked up and filled, and when they prefetch.

use crate::counters::place_index;
use crate::hardware::{CoreUnits, Hardware};
use crate::neighbours::Neighbour;
use crate::tlb_organisation::Run;
use crate::translation_unit::{CoreLines, Entry, FillSource, LeafRead, PrefetchWalk, Stage, UnitLookUp};
use crate::walker::TranslationRequest;
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::HitLevel;
use pagelab_kernel::layer::Layer;
use pagelab_tables::mmu_cache::Asid;

impl CoreUnits {
    /// Drops all translations of a space from the TLBs and units of the core.
    pub(crate) fn flush_units(&mut self, asid: Asid) {
        let Self { l1d, l1i, l2, size_prediction: _, nested, guest, stages, speculation, tlb: _ } = self;
        [l1d, l1i, l2].into_iter().for_each(|tlb| tlb.flush(asid));
        nested.iter_mut().for_each(|unit| unit.flush(asid));
        guest.iter_mut().for_each(|unit| unit.flush(asid));
        stages.iter_mut().for_each(|unit| unit.flush(asid));
        speculation.iter_mut().for_each(|unit| unit.design.flush(asid));
    }

    /// Drops the translations of `start..end` of a space from the TLBs and units of the core.
    pub(crate) fn invalidate_units(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr, lines: &mut CoreLines<'_>) {
        let Self { l1d, l1i, l2, size_prediction: _, nested, guest, stages, speculation, tlb: _ } = self;
        [l1d, l1i, l2].into_iter().for_each(|tlb| tlb.invalidate(asid, start, end));
        nested.iter_mut().for_each(|unit| unit.invalidate(asid, start, end, lines));
        guest.iter_mut().for_each(|unit| unit.invalidate(asid, start, end, lines));
        for unit in stages {
            unit.invalidate(asid, start, end, lines);
        }
        speculation.iter_mut().for_each(|unit| unit.design.invalidate(asid, start, end));
    }
}

/// The stages of a core, in the order of their look-ups, and those that all cores share.
#[derive(Debug)]
pub struct Stages<'a> {
    own: &'a mut [Stage],
    shared: &'a mut [Stage],
}

impl<'a> Stages<'a> {
    /// The stages of a core and those that all cores share.
    pub fn new(own: &'a mut [Stage], shared: &'a mut [Stage]) -> Self {
        Self { own, shared }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Stage> {
        self.own.iter_mut().chain(&mut *self.shared)
    }

    /// Looks up a page that the TLBs do not hold in each stage, in order; the time goes on. A hit fills the stages
    /// before.
    #[inline(never)]
    pub fn look_up(
        &mut self,
        mut look_up: UnitLookUp,
        lines: &mut CoreLines<'_>,
        cycles: &mut Cycles,
    ) -> Option<Translation> {
        let (mut held, mut before) = (None, 0);
        for stage in self.all() {
            let mut spent = Cycles::ZERO;
            held = stage.look_up(&look_up, lines, &mut spent);
            *cycles += spent;
            lines.set_time(look_up.now + spent);
            look_up.now = lines.time();
            if held.is_some() {
                break;
            }
            before += 1;
        }
        let translation = held?;
        self.fill_first(before, &Entry { asid: look_up.asid, va: look_up.va, translation }, lines);
        held
    }

    /// Offers the result of a walk, or of a later stage, to the first `count` stages.
    #[cold]
    pub fn fill_first(&mut self, count: usize, entry: &Entry, lines: &mut CoreLines<'_>) {
        self.all().take(count).for_each(|stage| stage.fill(entry, FillSource::Walk, lines));
    }

    /// Offers an evicted entry to the stages of the core. Those that all cores share take none.
    #[cold]
    pub fn offer_evicted(&mut self, entry: &Entry, lines: &mut CoreLines<'_>) {
        self.own.iter_mut().for_each(|stage| stage.fill(entry, FillSource::Eviction, lines));
    }
}

impl Hardware {
    /// The stages of a core, those that all cores share, and the caches that both refer to.
    pub(crate) fn stages_of(&mut self, core: CoreId) -> (&mut [Stage], &mut [Stage], CoreLines<'_>) {
        let bypass = (!self.kernel_refs).then_some(self.l1_latency);
        let lines = CoreLines::new(&mut self.caches, core, bypass);
        (&mut self.units[core].stages, &mut self.shared_stages, lines)
    }

    /// Whether a core looks up any stage, its own or a shared one.
    #[inline(always)]
    fn has_stages(&self, core: CoreId) -> bool {
        !self.units[core].stages.is_empty() || !self.shared_stages.is_empty()
    }

    /// Inserts a translation in the second-level TLB; see [`Tlb::insert`](crate::tlb::Tlb::insert).
    #[expect(clippy::too_many_arguments, reason = "a core and what is inserted")]
    #[inline(always)]
    pub(super) fn enter_second(
        &mut self,
        core: CoreId,
        asid: Asid,
        va: VirtAddr,
        translation: Translation,
        run: Run,
        origin: Origin,
        missed: bool,
    ) {
        let unit = &mut self.units[core];
        let evicted = unit.l2.insert(asid, va, translation, run, origin, missed);
        if !unit.stages.is_empty() {
            let more = unit.l2.take_evicted();
            self.offer_evicted(core, evicted.into_iter().chain(more));
        }
    }

    /// Inserts a translation in the first-level TLB for this kind of access.
    #[expect(clippy::too_many_arguments, reason = "a core and what is inserted")]
    #[inline(always)]
    pub(super) fn enter_first(
        &mut self,
        core: CoreId,
        intent: Intent,
        asid: Asid,
        va: VirtAddr,
        translation: Translation,
        run: Run,
        origin: Origin,
        missed: bool,
    ) {
        let unit = &mut self.units[core];
        let evicted = unit.first(intent).insert(asid, va, translation, run, origin, missed);
        if !unit.stages.is_empty() {
            let more = unit.first(intent).take_evicted();
            // For pages that the second level cannot hold, this is the last TLB.
            if let Some(entry) = evicted.filter(|entry| !unit.l2.can_hold(entry.translation)) {
                self.offer_evicted(core, [entry].into_iter().chain(more));
            }
        }
    }

    /// Offers the pages of an evicted entry to the stages of the core. Those that all cores share take none.
    #[cold]
    fn offer_evicted(&mut self, core: CoreId, evicted: impl Iterator<Item = Entry>) {
        let (own, _, mut lines) = self.stages_of(core);
        let mut stages = Stages::new(own, &mut []);
        for entry in evicted {
            stages.offer_evicted(&entry, &mut lines);
        }
    }

    fn stage_look_up(&self, asid: Asid, wanted: &TranslationRequest) -> UnitLookUp {
        let &TranslationRequest { va, pc, intent, origin, .. } = wanted;
        UnitLookUp { asid, va, pc, intent, origin, now: self.caches.time() }
    }

    /// Looks up a page that the TLBs do not hold in each stage of the core and in the shared ones, in order. A hit
    /// fills the stages before.
    #[inline(always)]
    pub(super) fn look_up_in_stages(
        &mut self,
        asid: Asid,
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
    ) -> Option<Translation> {
        if self.has_stages(wanted.core) { self.look_up_in_each(asid, wanted, cycles) } else { None }
    }

    #[inline(never)]
    fn look_up_in_each(&mut self, asid: Asid, wanted: &TranslationRequest, cycles: &mut Cycles) -> Option<Translation> {
        let look_up = self.stage_look_up(asid, wanted);
        let (own, shared, mut lines) = self.stages_of(wanted.core);
        Stages::new(own, shared).look_up(look_up, &mut lines, cycles)
    }

    /// Offers the result of a walk to the stages.
    #[inline(always)]
    pub(super) fn fill_stages(
        &mut self,
        layers: &[Layer],
        asid: Asid,
        wanted: &TranslationRequest,
        found: Translation,
    ) {
        if self.has_stages(wanted.core) {
            self.fill_all_stages(&Entry { asid, va: wanted.va, translation: found }, wanted.core);
            self.offer_neighbours(layers, asid, wanted);
        }
    }

    /// Offers the neighbours of a page of a program that a demand walk has found to the stages of the core, those of
    /// data or those of code.
    #[inline(never)]
    fn offer_neighbours(&mut self, layers: &[Layer], asid: Asid, wanted: &TranslationRequest) {
        if wanted.origin != Origin::Program {
            return;
        }
        for index in 0..self.units[wanted.core].stages.len() {
            if self.units[wanted.core].stages[index].is_for_code() == (wanted.intent == Intent::Fetch) {
                self.offer_free(layers, index, asid, wanted, self.caches.time());
            }
        }
    }

    /// Offers the neighbours of a page that a walk has just found to a stage, if it takes them. The walk ends at
    /// `arrives`.
    fn offer_free(&mut self, layers: &[Layer], stage: usize, asid: Asid, wanted: &TranslationRequest, arrives: Cycles) {
        let &TranslationRequest { core, space, va, .. } = wanted;
        if !self.units[core].stages[stage].takes_free() {
            return;
        }
        let for_code = self.units[core].stages[stage].is_for_code();
        for Neighbour { va, distance, translation } in self.neighbours(layers, core, space, va) {
            if !self.is_held(core, asid, va, for_code) {
                let (entry, source) = (Entry { asid, va, translation }, FillSource::Free { distance, arrives });
                let (own, _, mut lines) = self.stages_of(core);
                own[stage].fill(&entry, source, &mut lines);
            }
        }
    }

    /// Whether a TLB or a stage of a core holds a page; of the first-level TLBs, that of code or that of data.
    fn is_held(&self, core: CoreId, asid: Asid, va: VirtAddr, for_code: bool) -> bool {
        let unit = &self.units[core];
        let is_in_stage = unit.stages.iter().any(|stage| stage.holds(asid, va));
        let first = if for_code { &unit.l1i } else { &unit.l1d };
        is_in_stage || unit.l2.holds(asid, va) || first.holds(asid, va)
    }

    /// Offers the result of the last walk to all stages.
    #[cold]
    fn fill_all_stages(&mut self, entry: &Entry, core: CoreId) {
        let in_memory = place_index(Some(HitLevel::Dram));
        let from_memory = self.walks.log.iter().any(|made| made.place() == in_memory);
        let leaf = self.leaf.map(|line| LeafRead { line, from_memory });
        let (own, shared, lines) = self.stages_of(core);
        Stages::new(own, shared).fill_first(usize::MAX, entry, &mut lines.after_walk(leaf));
    }

    /// Makes the prefetch walks that the stages ask for after a miss of all TLBs; `found` is the translation of that
    /// miss.
    #[inline(always)]
    pub(super) fn walk_for_stages(
        &mut self,
        layers: &mut [Layer],
        asid: Asid,
        wanted: &TranslationRequest,
        found: Translation,
    ) {
        if !self.units[wanted.core].stages.is_empty() {
            self.walk_for_each(layers, asid, wanted, found);
        }
    }

    #[inline(never)]
    fn walk_for_each(&mut self, layers: &mut [Layer], asid: Asid, wanted: &TranslationRequest, found: Translation) {
        for index in 0..self.units[wanted.core].stages.len() {
            let look_up = self.stage_look_up(asid, wanted);
            let mut before = Cycles::ZERO;
            let (own, _, mut lines) = self.stages_of(wanted.core);
            let (walks_for_held, for_code) = (own[index].walks_for_held(), own[index].is_for_code());
            for va in own[index].next_walks(&look_up, found, &mut lines) {
                if walks_for_held || !self.is_held(wanted.core, asid, va, for_code) {
                    let wanted = TranslationRequest { va, intent: Intent::Load, ..*wanted };
                    self.walk_ahead(layers, index, asid, &wanted, &mut before);
                }
            }
        }
    }

    /// Makes a prefetch walk for a stage, after walks that take `before`; adds its cycles to them.
    fn walk_ahead(
        &mut self,
        layers: &mut [Layer],
        stage: usize,
        asid: Asid,
        wanted: &TranslationRequest,
        before: &mut Cycles,
    ) {
        let &TranslationRequest { core, space, va, intent, .. } = wanted;
        // Its counts are kept apart from those of walks that programs wait for.
        let unit = &self.units[core];
        let counts = (unit.nested.as_ref().map(|tlb| tlb.counts), unit.guest.as_ref().map(|tlb| tlb.counts));
        let logged = self.walks.log.len();
        let (refs, begun) = (self.caches.walk_refs(core), self.caches.time());
        let mut cycles = Cycles::ZERO;
        self.caches.set_time(begun + *before);
        self.is_ahead = true;
        (self.leaf_of, self.leaf) = (Some(space), None);
        let walked = self.walk_to_machine(layers, core, space, va, intent, &mut cycles);
        self.is_ahead = false;
        self.caches.set_time(begun);
        let refs = self.caches.take_walk_refs_since(core, refs);
        self.walks.log.truncate(logged);
        let unit = &mut self.units[core];
        unit.nested.iter_mut().zip(counts.0).for_each(|(tlb, counts)| tlb.counts = counts);
        unit.guest.iter_mut().zip(counts.1).for_each(|(tlb, counts)| tlb.counts = counts);
        *before += cycles;
        unit.stages[stage].count_walk(&PrefetchWalk { cycles, refs, is_mapped: walked.is_ok() });
        if let Ok(translation) = walked {
            let (entry, source) = (Entry { asid, va, translation }, FillSource::Prefetch { arrives: begun + *before });
            let from_memory = refs[HitLevel::Dram as usize] > 0;
            let leaf = self.leaf.map(|line| LeafRead { line, from_memory });
            let (own, _, lines) = self.stages_of(core);
            own[stage].fill(&entry, source, &mut lines.after_walk(leaf));
            self.offer_free(layers, stage, asid, wanted, begun + *before);
        }
    }
}
