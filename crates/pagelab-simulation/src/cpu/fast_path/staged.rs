//! Units after the TLBs on the fast path: those that do not prefetch.

use super::core::FastCore;
use super::machine::MachineShape;
use super::stage_units::StageUnits;
use super::walker::Walker;
use pagelab_base::addr::VirtAddr;
use pagelab_base::assoc::Evicted;
use pagelab_base::cycles::Cycles;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::CoreCaches;
use pagelab_hardware::core_model::{CompiledCore, L1TlbMiss};
use pagelab_trace::Access;
use pagelab_translate::stages::Stages;
use pagelab_translate::tlb;
use pagelab_translate::translation_unit::{CoreLines, Entry, UnitLookUp};

impl<'a, M: MachineShape, W: Walker<'a, M>, C: CompiledCore> FastCore<'a, M, W, C> {
    /// The stages, if there are any, and the caches to which they refer.
    #[inline(always)]
    fn stages(&mut self) -> Option<(&mut Stages<'a>, CoreLines<'_>)> {
        let stages = self.stages.get()?;
        let (all, core) = self.memory.caches.hierarchy()?;
        Some((stages, CoreLines::new(all, core, None)))
    }

    /// Translates a page that the TLBs do not hold: a stage holds it, or a walk finds it.
    #[inline(always)]
    pub fn translate_after_tlbs(
        &mut self,
        access: &Access,
        write: bool,
        later: &mut Option<L1TlbMiss>,
    ) -> Option<Translation> {
        let (asid, va) = (self.asid, VirtAddr(access.vaddr));
        // Before the stages change: the general code must be able to make the access.
        let found = self.walker.find(va, write)?;
        let mut cycles = Cycles::ZERO;
        let translation = match self.look_up_in_stages(access, write, &mut cycles) {
            Some(held) => held,
            None => {
                let (translation, walk_cycles) = self.walk(va, write, &found);
                cycles += walk_cycles;
                if let Some((stages, mut lines)) = self.stages() {
                    stages.fill_first(usize::MAX, &Entry { asid, va, translation }, &mut lines);
                }
                translation
            }
        };
        self.wait_for_translation(cycles, translation, later);
        let evicted = self.second.insert(asid, va, translation);
        self.offer(evicted.map(tlb::entry));
        Some(translation)
    }

    #[inline(always)]
    fn look_up_in_stages(&mut self, access: &Access, write: bool, cycles: &mut Cycles) -> Option<Translation> {
        let asid = self.asid;
        let (stages, mut lines) = self.stages()?;
        let intent = if write { Intent::Store } else { Intent::Load };
        let (va, pc) = (VirtAddr(access.vaddr), access.pc);
        let look_up = UnitLookUp { asid, va, pc, intent, origin: Origin::Program, now: Cycles::ZERO };
        let held = stages.look_up(look_up, &mut lines, cycles);
        self.counted.stage_hits += u64::from(held.is_some());
        held
    }

    /// Offers what the first-level TLB has evicted to the stages, if it was the last TLB for the page.
    #[inline(always)]
    pub fn offer_from_first(&mut self, evicted: Option<Evicted>) {
        self.offer(evicted.map(tlb::entry).filter(|entry| !self.second.can_hold(entry.translation)));
    }

    /// Offers what a TLB has evicted to the stages.
    #[inline(always)]
    fn offer(&mut self, evicted: Option<Entry>) {
        if let (Some((stages, mut lines)), Some(entry)) = (self.stages(), evicted) {
            stages.offer_evicted(&entry, &mut lines);
        }
    }
}
