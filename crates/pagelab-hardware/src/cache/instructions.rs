//! Instruction caches: a fetch of a line of code by a core.
//!
//! Models: one cache per core, of lines by machine address. A line that it lacks is read from the L2, or from what is
//! next to it, and fills both. So code takes room from data there, and data from code.
//! Source: the first-level instruction caches of all processors of the presets; Intel 64 and IA-32 Optimization
//! Reference Manual, chapter 2.
//! Parameters: `machine.cache.l1i`: size, ways, latency, policy.
//! Stats: `instruction_cache.*`.
//! Deviations: there is no cache of decoded instructions and no prefetch of the next line, so the core waits for each
//! line that the cache lacks. Hits are hidden by the pipeline.

use super::array::LineState;
use super::request::LineSource;
use super::shape::{AnyCores, Anything, Shape};
use super::ways::AnyWays;
use super::{CodeOwner, Hierarchy, HitLevel, Private};
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;

impl Private {
    /// Removes a line from the instruction cache, if there is one.
    #[inline(always)]
    pub(super) fn remove_code(&mut self, line: LineAddr) {
        if let Some(l1i) = &mut self.l1i {
            l1i.remove_line::<AnyWays>(line);
        }
    }

    /// The state of a line in the instruction cache, if it is there.
    #[inline(always)]
    pub(super) fn code_state(&self, line: LineAddr) -> Option<LineState> {
        self.l1i.as_ref().and_then(|l1i| l1i.state_of::<AnyWays>(line))
    }
}

impl Hierarchy {
    /// Whether the cores have instruction caches.
    pub fn has_instruction_caches(&self) -> bool {
        self.private[CoreId::FIRST].l1i.is_some()
    }

    /// Fetches `lines` whole lines of code from `first` on, one after the other. Returns how long the core waits for
    /// them beyond hits; nothing without instruction caches.
    pub fn fetch_lines(&mut self, core: CoreId, first: LineAddr, lines: u64, owner: CodeOwner) -> Cycles {
        let mut waited = Cycles::ZERO;
        for line in (first.0..first.0 + lines).map(LineAddr) {
            let cycles = if self.private.len() == 1 {
                self.fetch_line::<AnyCores<false>>(core, line, owner)
            } else {
                self.fetch_line::<Anything>(core, line, owner)
            };
            self.pass(cycles);
            waited += cycles;
        }
        waited
    }

    fn fetch_line<S: Shape>(&mut self, core: CoreId, line: LineAddr, owner: CodeOwner) -> Cycles {
        let private = &mut self.private[core];
        let Some(l1i) = &mut private.l1i else { return Cycles::ZERO };
        let counts = &mut private.stats.fetched[owner as usize];
        if l1i.access_any(line, false) {
            counts[HitLevel::L1 as usize] += 1;
            return Cycles::ZERO;
        }
        self.begin_fetch(line);
        let LineSource { served, mut extra, moved: _ } = self.request::<S>(core, line, false, true, false);
        if S::COHERENT && served == HitLevel::Dram {
            extra += self.perturbation.draw();
        }
        let private = &mut self.private[core];
        private.stats.fetched[owner as usize][served as usize] += 1;
        if let Some(l1i) = &mut private.l1i {
            let at = l1i.place::<AnyWays>(line);
            l1i.fill::<AnyWays>(at, LineState::SHARED, 0);
        }
        let latency = self.fetch_latency(core, line, served, (self.latency[served as usize] + extra).into());
        latency.saturating_sub(self.l1i_latency.into())
    }
}
