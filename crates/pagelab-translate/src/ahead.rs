//! Translations that nobody has asked for yet: when the buffers beside the TLBs are asked, and filled.

use crate::hardware::Hardware;
use crate::next_page::{NextPageCounts, PrefetchedTranslation};
use crate::walker::TranslationRequest;
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::translation::Translation;
use pagelab_kernel::layer::Layer;
use pagelab_tables::mmu_cache::Asid;

impl Hardware {
    /// The translation that a core's buffer holds for what missed its TLBs; adds the cycles that it is still to come.
    pub(super) fn take_prefetched(
        &mut self,
        asid: Asid,
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
    ) -> Option<Translation> {
        let &TranslationRequest { core, va, intent, origin, .. } = wanted;
        let buffer = self.units[core].next_page.as_mut().filter(|_| origin == Origin::Program)?;
        let (found, rest) = buffer.take(asid, va, intent == Intent::Store, self.caches.time())?;
        *cycles += rest;
        self.caches.pass(rest);
        Some(found)
    }

    /// Walks for the page behind the one that has just been translated, if data of a program were wanted.
    pub(super) fn prefetch_next_page(
        &mut self,
        layers: &mut [Layer],
        asid: Asid,
        wanted: &TranslationRequest,
        found: Translation,
    ) {
        let &TranslationRequest { core, space, va, intent, origin } = wanted;
        if origin != Origin::Program || intent == Intent::Fetch || self.units[core].next_page.is_none() {
            return;
        }
        let Some(first) = (va.0 | found.size().offset_mask()).checked_add(1).map(VirtAddr) else { return };
        let unit = &self.units[core];
        let is_held = unit.next_page.as_ref().is_some_and(|of| of.holds(asid, first));
        if is_held || unit.l2.holds(asid, first) || unit.l1d.holds(asid, first) {
            return;
        }
        // What the walk counts is set apart from what programs wait for.
        let (log, tlb, fault) = (std::mem::take(&mut self.walks.log), unit.tlb, self.fault);
        let (refs, begun) = (self.caches.walk_refs(core), self.caches.time());
        let mut cycles = Cycles::ZERO;
        self.is_ahead = true;
        let walked = self.walk_to_machine(layers, core, space, first, Intent::Load, &mut cycles);
        self.is_ahead = false;
        self.caches.set_time(begun);
        let refs = self.caches.take_walk_refs_since(core, refs);
        (self.walks.log, self.fault) = (log, fault);
        let unit = &mut self.units[core];
        unit.tlb = tlb;
        let Some(buffer) = &mut unit.next_page else { return };
        buffer.note_walk(cycles, refs, walked.is_ok());
        if let Ok(translation) = walked {
            let first = first.align_down(translation.size().bytes());
            buffer.enter(PrefetchedTranslation { asid, first, translation, arrives: begun + cycles });
        }
    }

    /// What the buffers of all cores have counted, if there are any.
    pub fn next_pages(&self) -> Option<NextPageCounts> {
        self.units.iter().filter_map(|unit| Some(unit.next_page.as_ref()?.counts())).reduce(|a, b| NextPageCounts {
            walks: a.walks + b.walks,
            cycles: a.cycles + b.cycles,
            refs: std::array::from_fn(|place| a.refs[place] + b.refs[place]),
            unmapped: a.unmapped + b.unmapped,
            entered: a.entered + b.entered,
            useful: a.useful + b.useful,
            late: a.late + b.late,
            late_cycles: a.late_cycles + b.late_cycles,
            useless: a.useless + b.useless,
            unused: a.unused + b.unused,
        })
    }
}
