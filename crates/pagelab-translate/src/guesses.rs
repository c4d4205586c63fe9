//! Walks beside which an access may go on with a guess: when a speculation is asked, told and judged.

use crate::hardware::Hardware;
use crate::speculation::{FoundPage, MissedAccess, Outcome};
use crate::walker::{Faulted, TranslationRequest};
use pagelab_base::addr::{FRAME_SHIFT, MachineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::HitLevel;
use pagelab_kernel::layer::{Layer, is_backed};
use pagelab_tables::mmu_cache::Asid;

impl Hardware {
    /// A whole walk after a miss of the last TLB. A guess of a program's data is in [`Self::guessed`] until the core
    /// has been told.
    #[inline(never)]
    pub(super) fn walk_beside_guess(
        &mut self,
        layers: &mut [Layer],
        asid: Asid,
        wanted: &TranslationRequest,
        cycles: &mut Cycles,
    ) -> Result<Translation, Faulted> {
        let &TranslationRequest { core, va, pc, intent, origin, .. } = wanted;
        let is_guessed = origin == Origin::Program && intent != Intent::Fetch && !self.walks.are_by_kernel;
        let Some(unit) = self.units[core].speculation.as_ref().filter(|_| is_guessed) else {
            return self.walk_all(layers, wanted, cycles);
        };
        let missed = MissedAccess { asid, va, pc, intent };
        let (guess, run_pages) = (unit.design.guess(&missed), unit.design.run_pages());
        let (begun, mut walk) = (self.caches.time(), Cycles::ZERO);
        let walked = self.walk_all(layers, wanted, &mut walk);
        let before = *cycles;
        *cycles += walk;
        let found = match &walked {
            Ok(found) => {
                let is_in_run = run_pages.is_some_and(|pages| self.is_in_run(layers, wanted, *found, pages));
                Some(FoundPage { translation: *found, is_in_run })
            }
            // The host already had the page before the run, so this walk never happened.
            Err(Faulted(fault)) if is_backed(layers, fault) => return walked,
            Err(_) if guess.is_none() => return walked,
            Err(_) => None,
        };
        let outcome = match (guess, found) {
            (_, None) => Outcome::Faulted,
            (None, Some(_)) => Outcome::NoGuess,
            (Some(frame), Some(found)) if frame == found.frame(&missed) => Outcome::Right,
            (Some(_), Some(_)) => Outcome::Wrong,
        };
        self.judge(&missed, core, outcome, guess, (before, begun, walk));
        if let Some((unit, found)) = self.units[core].speculation.as_mut().zip(found) {
            unit.learn(&missed, &found);
        }
        walked
    }

    /// Counts a guess, and accesses its line if it was wrong and in time. `before` are the cycles before the walk,
    /// which began at `begun`.
    fn judge(
        &mut self,
        missed: &MissedAccess,
        core: CoreId,
        outcome: Outcome,
        guess: Option<u64>,
        (before, begun, walk): (Cycles, Cycles, Cycles),
    ) {
        let Some(unit) = &mut self.units[core].speculation else { return };
        self.guessed = unit.judge(outcome, before, walk);
        let is_wrong = matches!(outcome, Outcome::Wrong | Outcome::Faulted);
        // Beyond the machine's memory there is no line.
        let wrong = guess.filter(|&frame| is_wrong && unit.is_in_time(walk) && frame < self.frames);
        if let Some(frame) = wrong {
            let from = begun + unit.timing.latency;
            let served = self.access_wrongly(core, missed.va, frame, from);
            let counts = &mut self.units[core].speculation.as_mut().expect("it was just there").counts;
            counts.lines += 1;
            counts.lines_of_memory += u64::from(served == HitLevel::Dram);
        }
    }

    /// Accesses the line of an address in a wrong frame, which is no access of the program. Returns where it was.
    fn access_wrongly(&mut self, core: CoreId, va: VirtAddr, frame: u64, from: Cycles) -> HitLevel {
        let now = self.caches.time();
        let line = MachineAddr(frame << FRAME_SHIFT | va.offset_in(1 << FRAME_SHIFT)).line();
        self.caches.set_time(from);
        let served = self.caches.access_for_nothing(core, line);
        self.caches.set_time(now);
        served
    }
}
