//! Units after the TLBs: when they are looked up and filled, and when they prefetch.

use crate::hardware::{CoreUnits, Hardware};
use crate::translation_unit::{Entry, FillSource, PrefetchWalk, UnitLookUp};
use crate::walker::TranslationRequest;
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::translation::Translation;
use pagelab_kernel::layer::Layer;
use pagelab_tables::mmu_cache::Asid;

impl CoreUnits {
    /// Inserts a translation in the second-level TLB; see [`Tlb::insert`](crate::tlb::Tlb::insert).
    #[inline(always)]
    pub(super) fn enter_second(
        &mut self,
        asid: Asid,
        va: VirtAddr,
        translation: Translation,
        origin: Origin,
        missed: bool,
    ) {
        let evicted = self.l2.insert(asid, va, translation, origin, missed);
        if !self.stages.is_empty() {
            self.offer(evicted, FillSource::Eviction);
        }
    }

    /// Inserts a translation in the first-level TLB for this kind of access.
    #[inline(always)]
    pub(super) fn enter_first(
        &mut self,
        intent: Intent,
        asid: Asid,
        va: VirtAddr,
        translation: Translation,
        origin: Origin,
        missed: bool,
    ) {
        let evicted = self.first(intent).insert(asid, va, translation, origin, missed);
        if !self.stages.is_empty() {
            // For pages that the second level cannot hold, this is the last TLB.
            self.offer(evicted.filter(|entry| !self.l2.can_hold(entry.translation)), FillSource::Eviction);
        }
    }

    /// Offers an entry to all stages.
    #[cold]
    fn offer(&mut self, entry: Option<Entry>, source: FillSource) {
        if let Some(entry) = entry {
            self.stages.iter_mut().for_each(|stage| stage.fill(&entry, source));
        }
    }

    /// Drops all translations of a space from the TLBs and units of the core.
    pub(crate) fn flush_units(&mut self, asid: Asid) {
        let Self { l1d, l1i, l2, nested, guest, stages, tlb: _ } = self;
        [l1d, l1i, l2].into_iter().for_each(|tlb| tlb.flush(asid));
        nested.iter_mut().for_each(|unit| unit.flush(asid));
        guest.iter_mut().for_each(|unit| unit.flush(asid));
        stages.iter_mut().for_each(|unit| unit.flush(asid));
    }

    /// Drops the translations of `start..end` of a space from the TLBs and units of the core.
    pub(crate) fn invalidate_units(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        let Self { l1d, l1i, l2, nested, guest, stages, tlb: _ } = self;
        [l1d, l1i, l2].into_iter().for_each(|tlb| tlb.invalidate(asid, start, end));
        nested.iter_mut().for_each(|unit| unit.invalidate(asid, start, end));
        guest.iter_mut().for_each(|unit| unit.invalidate(asid, start, end));
        stages.iter_mut().for_each(|unit| unit.invalidate(asid, start, end));
    }
}

impl Hardware {
    fn stage_look_up(&self, asid: Asid, wanted: &TranslationRequest) -> UnitLookUp {
        let &TranslationRequest { va, intent, origin, .. } = wanted;
        UnitLookUp { asid, va, intent, origin, now: self.caches.time() }
    }

    /// Looks up a page that the TLBs do not hold in each stage of the core, in order. A hit fills the stages before.
    #[inline(always)]
    pub(super) fn look_up_in_stages(
        &mut self,
        asid: Asid,
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
    ) -> Option<Translation> {
        if self.units[wanted.core].stages.is_empty() {
            return None;
        }
        self.look_up_in_each(asid, wanted, cycles)
    }

    #[inline(never)]
    fn look_up_in_each(&mut self, asid: Asid, wanted: &TranslationRequest, cycles: &mut Cycles) -> Option<Translation> {
        for index in 0..self.units[wanted.core].stages.len() {
            let (look_up, mut spent) = (self.stage_look_up(asid, wanted), Cycles::ZERO);
            let held = self.units[wanted.core].stages[index].look_up(&look_up, &mut spent);
            *cycles += spent;
            self.caches.pass(spent);
            if let Some(translation) = held {
                let entry = Entry { asid, va: wanted.va, translation };
                let (before, _) = self.units[wanted.core].stages.split_at_mut(index);
                before.iter_mut().for_each(|stage| stage.fill(&entry, FillSource::Walk));
                return held;
            }
        }
        None
    }

    /// Offers the result of a walk to the stages.
    #[inline(always)]
    pub(super) fn fill_stages(&mut self, asid: Asid, wanted: &TranslationRequest, found: Translation) {
        let unit = &mut self.units[wanted.core];
        if !unit.stages.is_empty() {
            unit.offer(Some(Entry { asid, va: wanted.va, translation: found }), FillSource::Walk);
        }
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
            let unit = &mut self.units[wanted.core];
            let mut before = Cycles::ZERO;
            for va in unit.stages[index].next_walks(&look_up, found) {
                let unit = &self.units[wanted.core];
                let is_held = unit.stages.iter().any(|stage| stage.holds(asid, va));
                if !is_held && !unit.l2.holds(asid, va) && !unit.l1d.holds(asid, va) {
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
        let walked = self.walk_to_machine(layers, core, space, va, intent, &mut cycles);
        self.is_ahead = false;
        self.caches.set_time(begun);
        let refs = self.caches.take_walk_refs_since(core, refs);
        self.walks.log.truncate(logged);
        let unit = &mut self.units[core];
        unit.nested.iter_mut().zip(counts.0).for_each(|(tlb, counts)| tlb.counts = counts);
        unit.guest.iter_mut().zip(counts.1).for_each(|(tlb, counts)| tlb.counts = counts);
        *before += cycles;
        let stage = &mut unit.stages[stage];
        stage.count_walk(&PrefetchWalk { cycles, refs, is_mapped: walked.is_ok() });
        if let Ok(translation) = walked {
            stage.fill(&Entry { asid, va, translation }, FillSource::Prefetch { arrives: begun + *before });
        }
    }
}
