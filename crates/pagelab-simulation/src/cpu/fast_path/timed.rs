//! Accesses on machines whose requests have times: with prefetchers, or with memory that has more than a latency.
//!
//! A walk's references are made at their times, and the core model says when the data are asked for. So an access is
//! begun in the core model before it is translated, and made there before the next one: there are no rows. It is begun
//! only once it is known that the loop can make it.

use super::core::FastCore;
use super::machine::MachineShape;
use super::walker::Walker;
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::prefetch::ObservedAccess;
use pagelab_hardware::cache::{CoreCaches, Requester};
use pagelab_hardware::core_model::{CompiledCore, L1TlbMiss};
use pagelab_trace::{Access, Branches};
use pagelab_translate::tlb_arrays::TlbLookup;

/// Where an access finds its translation.
enum Place<F> {
    First(Translation),
    Second(Translation),
    Tables(F),
}

impl<'a, M: MachineShape, W: Walker<'a, M>, C: CompiledCore> FastCore<'a, M, W, C> {
    /// Makes an access, with the branches before it. `None` if the general code must make it; then only what that code
    /// changes first has changed.
    #[inline(always)]
    pub fn timed_access(&mut self, access: &Access, branches: Branches) -> Option<()> {
        self.begin(access)?;
        let (va, write) = (VirtAddr(access.vaddr), access.kind.writes());
        self.memory.caches.set_request_time(|| self.clock.now());
        let place = self.place(va, write)?;
        if let Place::First(held) = place
            && self.memory.caches.must_defer(held.address(va).line(), self.others)
        {
            return None;
        }
        if self.clock.models_dependencies() {
            self.clock.begin_access(access, branches, false);
        }
        let translation = match place {
            Place::First(held) => held,
            Place::Second(held) => self.translate_at_time(va, Cycles::ZERO, held),
            Place::Tables(found) => {
                let now = self.clock.now() + self.second_latency;
                self.memory.caches.begin_walk(now);
                let (translation, cycles) = self.walk(va, write, &found);
                self.second.insert(self.asid, va, translation);
                self.translate_at_time(va, cycles, translation)
            }
        };
        let line = translation.address(va).line();
        let outcome = self.memory.caches.access(line, write, Requester::Data);
        if let Some(traffic) = self.memory.caches.traffic() {
            self.clock.wait_for_traffic(outcome.cycles.into(), line.0, traffic);
        }
        self.memory.caches.prefetch_for(&ObservedAccess { pc: access.pc, va, translation });
        // Prefetchers observe each access, so the filter answers none.
        self.filter.learn(va, translation, 0);
        self.counted.writes += u64::from(write);
        self.clock.retire(access.gap.into());
        Some(())
    }

    /// Looks up the TLBs, and then the tables without references.
    #[inline(always)]
    fn place(&mut self, va: VirtAddr, write: bool) -> Option<Place<W::Found>> {
        if let Some(held) = self.filter.translation(va, write) {
            return Some(Place::First(held));
        }
        match self.first.look_up(self.asid, va, write) {
            TlbLookup::Fit(held) => return Some(Place::First(held)),
            TlbLookup::Unfit => return None,
            TlbLookup::Nothing => {}
        }
        match self.second.look_up(self.asid, va, write) {
            TlbLookup::Fit(held) => {
                self.counted.second_level_hits += 1;
                Some(Place::Second(held))
            }
            TlbLookup::Unfit => None,
            TlbLookup::Nothing => self.walker.find(va, write).map(Place::Tables),
        }
    }

    /// Makes the core wait for a translation beyond the first level, which it fills. Sets the times of what follows.
    #[inline(always)]
    fn translate_at_time(&mut self, va: VirtAddr, walk: Cycles, page: Translation) -> Translation {
        let look_up = self.second_latency;
        self.memory.caches.set_time(self.clock.now() + look_up + walk);
        self.clock.wait_for_translation(L1TlbMiss { look_up, walk, page: Some(page), fetches: false });
        self.first.insert(self.asid, va, page);
        if !self.clock.models_dependencies() {
            self.memory.caches.set_request_time(|| self.clock.now());
        }
        page
    }
}
