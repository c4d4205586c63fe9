//! Walks beside which an access may go on with a guess: when a speculation is asked, told and judged.

use crate::hardware::Hardware;
use crate::speculation::{FoundPage, Guess, MissedAccess, Outcome};
use crate::walker::{Faulted, TranslationRequest};
use pagelab_base::addr::{FRAME_SHIFT, MachineAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::hash_tiers::HashDomain;
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
        let frames = layers[wanted.space.layer].memory.frames.allocator.frames();
        let domain = HashDomain::new(wanted.space.index, frames);
        let missed = MissedAccess { asid, va, pc, intent, domain };
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
        let outcome = match found {
            None => Outcome::Faulted,
            Some(_) if guess.is_none() => Outcome::NoGuess,
            Some(found) if guess.frames().contains(&found.frame(&missed)) => Outcome::Right,
            Some(_) => Outcome::Wrong,
        };
        let found_frame = found.map(|found| found.frame(&missed));
        self.judge(&missed, core, (outcome, found_frame), &guess, (before, begun, walk));
        if let Some((unit, found)) = self.units[core].speculation.as_mut().zip(found) {
            unit.learn(&missed, &found);
        }
        walked
    }

    /// Counts a guess, and makes the references to its frames if it was in time. `before` are the cycles before the
    /// walk, which began at `begun`.
    fn judge(
        &mut self,
        missed: &MissedAccess,
        core: CoreId,
        (outcome, found): (Outcome, Option<u64>),
        guess: &Guess,
        (before, begun, walk): (Cycles, Cycles, Cycles),
    ) {
        let Some(unit) = &mut self.units[core].speculation else { return };
        self.guessed = unit.judge(outcome, before, walk);
        if !unit.is_in_time(walk) {
            return;
        }
        let (from, goes_on) = (begun + unit.timing.latency, unit.design.goes_on());
        let now = self.caches.time();
        self.caches.set_time(from);
        // Beyond the machine's memory there is no line. With the right frame, the access itself asks for its line.
        let asked = |&&frame: &&u64| frame < self.frames && !(goes_on && found == Some(frame));
        for &frame in guess.frames().iter().filter(asked) {
            let line = MachineAddr(frame << FRAME_SHIFT | missed.va.offset_in(1 << FRAME_SHIFT)).line();
            let served = match goes_on {
                true => Some(self.caches.access_for_nothing(core, line)),
                false => self.caches.prefetch_beside_walk(core, line),
            };
            if found != Some(frame)
                && let Some((served, unit)) = served.zip(self.units[core].speculation.as_mut())
            {
                unit.counts.lines += 1;
                unit.counts.lines_of_memory += u64::from(served == HitLevel::Dram);
            }
        }
        self.caches.set_time(now);
    }
}
