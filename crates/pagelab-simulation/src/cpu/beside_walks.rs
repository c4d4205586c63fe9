//! Accesses that wait for their translation, or go on with a guess of it while the walk goes on beside them.

use crate::machine::simulation::Simulation;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CpuId;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::prefetch::ObservedAccess;
use pagelab_hardware::core_model::{DataLocation, L1TlbMiss};
use pagelab_translate::speculation::Guessed;

impl Simulation {
    /// Accounts for a translation that missed the first-level TLB and took `cycles`; `page` is its result, `None` for a
    /// fault.
    #[inline(always)]
    pub(super) fn wait_for_translation(
        &mut self,
        cpu: CpuId,
        cycles: Cycles,
        page: Option<Translation>,
        fetches: bool,
    ) {
        let translating = self.hw.translating(cycles, page, fetches);
        match self.hw.guessed.take() {
            None => self.scheduler.cpus[cpu].clock.wait_for_translation(translating),
            Some(guessed) => self.go_on(cpu, translating, guessed),
        }
    }

    #[inline(never)]
    fn go_on(&mut self, cpu: CpuId, translating: L1TlbMiss, guessed: Guessed) {
        let cpu = &mut self.scheduler.cpus[cpu];
        match guessed {
            Guessed::Right(at) => cpu.task.verified = Some(cpu.clock.wait_for_guess(translating, at)),
            Guessed::Wrong(flush) => {
                cpu.clock.wait_for_translation(translating);
                cpu.clock.drop_younger(flush);
            }
        }
    }

    /// Waits for data on a machine with prefetchers, with memory channels or with guesses, and passes the access to the
    /// prefetchers.
    #[inline(never)]
    pub(super) fn wait_for_watched_data(&mut self, cpu: CpuId, latency: u32, demanded: &ObservedAccess) {
        let (cpu, caches) = (&mut self.scheduler.cpus[cpu], &mut self.hw.caches);
        let (line, latency) = (demanded.translation.address(demanded.va).line(), latency.into());
        match (cpu.task.verified.take(), caches.traffic()) {
            (None, None) => cpu.clock.wait_for_data(latency, line.0),
            (None, Some(traffic)) => cpu.clock.wait_for_traffic(latency, line.0, traffic),
            (Some(verified), traffic) => {
                cpu.clock.wait_for_verified_data(DataLocation { latency, line: line.0 }, traffic, verified);
            }
        }
        caches.prefetch_for(demanded);
    }
}
