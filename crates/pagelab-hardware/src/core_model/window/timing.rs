//! The window core's implementation of [`Timing`] and [`Core`](super::super::Core).

use super::config::{UnknownDependencies, WindowConfig};
use super::entered::{RecentAccesses, ThreadShare, Times, WindowProgress, wait};
use super::kernel::KernelWindow;
use super::lines::Lines;
use super::{CurrentAccess, PendingPages, Window, WindowState};
use crate::core_model::branch_unit::BranchUnit;
use crate::core_model::common::{Common, Siblings, SmtThread};
use crate::core_model::in_order::RetireRate;
use crate::core_model::kernel_branches::BranchRun;
use crate::core_model::pool::Pool;
use crate::core_model::{BranchCounts, Core, CoreTime, Data, IncomingAccess, L1TlbMiss, Row, Stall, Timing};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;

impl Core for Window {
    type Parameters = WindowConfig;

    fn new(config: &WindowConfig, l1_latency: Cycles) -> Self {
        Self(Box::new(WindowState {
            retire_rate: RetireRate::new(config.cycles_per_instruction),
            config: *config,
            smt_thread: SmtThread::default(),
            progress: WindowProgress::NONE,
            entered: RecentAccesses::new(config),
            walkers: Pool::new(config.page_walkers),
            lines: Lines::new(config.fill_buffers, l1_latency),
            pages: PendingPages::default(),
            branches: BranchUnit::new(config.branch_predictor, config.mispredict_penalty),
            kernel: config.kernel_overlap.0.then(|| Box::new(KernelWindow::new(config, l1_latency))),
            current: CurrentAccess::default(),
        }))
    }

    fn validate(config: &WindowConfig, key: &str) -> Result<(), EngineError> {
        config.check(key)
    }

    fn samples() -> Vec<WindowConfig> {
        WindowConfig::samples()
    }
}

impl Timing for Window {
    #[inline]
    fn base_cycles(&self, instructions: u64) -> Cycles {
        self.0.retire_rate.base_cycles(instructions)
    }

    /// Repeated accesses are treated like others.
    #[inline]
    fn repeat_stall(&self) -> Cycles {
        Cycles::ZERO
    }

    #[inline]
    fn models_dependencies(&self) -> bool {
        true
    }

    fn begin_access(&mut self, incoming: IncomingAccess, at: CoreTime) -> Stall {
        let state = &mut *self.0;
        if incoming.again {
            state.set_access(incoming.access, at);
            state.current.ready = at.now + state.current.enters;
            return Stall::default();
        }
        let missed = state.branches.as_mut().map_or(0, |unit| unit.predict(&incoming));
        state.enter_window(&incoming, missed, at)
    }

    fn data_stall(&mut self, data: Data, at: CoreTime) -> Stall {
        self.0.data_stall(data, at)
    }

    #[inline(always)]
    fn make_all(&mut self, row: &Row, at: CoreTime) -> Stall {
        self.0.make_all(row, at)
    }

    fn translation_stall(&mut self, of_translation: L1TlbMiss, at: CoreTime) -> Stall {
        let state = &mut *self.0;
        let L1TlbMiss { look_up, walk, page, fetches } = of_translation;
        let begin = if fetches { at.now } else { state.current.ready.max(at.now + state.current.enters) };
        let mut end = begin + look_up;
        if walk > Cycles::ZERO {
            let free = state.walkers.first(end);
            let from = state.smt_thread.take_walk(free.begin, walk, at.now);
            end = from + walk;
            state.walkers.occupy(state.walkers.from(free, from), end);
        }
        if fetches {
            // An instruction enters the window only after its fetch.
            state.current.ready = state.current.ready.max(end);
            return Stall { translation: end - at.now, ..Stall::default() };
        }
        if let Some(page) = page {
            state.pages.note(page, end);
        }
        if !state.current.is_translated {
            state.current.begin = begin;
        }
        (state.current.ready, state.current.is_translated) = (end, true);
        Stall::default()
    }

    /// The walker is occupied for the whole walk.
    fn guessed_translation_stall(&mut self, miss: L1TlbMiss, guessed: Cycles, at: CoreTime) -> (Stall, Cycles) {
        let state = &mut *self.0;
        let begin = state.current.ready.max(at.now + state.current.enters);
        let free = state.walkers.first(begin + miss.look_up);
        let from = state.smt_thread.take_walk(free.begin, miss.walk, at.now);
        let verified = from + miss.walk;
        state.walkers.occupy(state.walkers.from(free, from), verified);
        let end = begin + guessed;
        if let Some(page) = miss.page {
            state.pages.note(page, end);
        }
        if !state.current.is_translated {
            state.current.begin = begin;
        }
        (state.current.ready, state.current.is_translated) = (end, true);
        (Stall::default(), verified)
    }

    fn verified_data_stall(&mut self, data: Data, verified: Cycles, at: CoreTime) -> Stall {
        let state = &mut *self.0;
        state.access_until(data, verified, at);
        state.make_room(state.progress.entries + 1, state.current.gap, at)
    }

    /// What is younger enters the window again, after the translation.
    fn drop_younger(&mut self, penalty: Cycles, at: CoreTime) -> Stall {
        let current = &mut self.0.current;
        current.ready += penalty;
        Stall { translation: current.ready.saturating_sub(at.now + current.enters), ..Stall::default() }
    }

    /// No instruction enters the window until the line has arrived; those in it continue.
    fn fetch_stall(&mut self, latency: Cycles, at: CoreTime) -> Stall {
        let state = &mut *self.0;
        state.current.ready = state.current.ready.max(at.now + latency);
        Stall { fetch: latency, ..Stall::default() }
    }

    fn common(&self) -> Option<Box<Common>> {
        let WindowConfig { fill_buffers, page_walkers, .. } = self.0.config;
        Some(Box::new(Common::new(fill_buffers, page_walkers)))
    }

    fn resume(&mut self, common: Box<Common>, siblings: Siblings) {
        let state = &mut *self.0;
        if state.smt_thread.resume(common, siblings) {
            let room = ThreadShare::new(&state.config, siblings.active + 1);
            state.entered.divide(&mut state.progress, room);
        }
    }

    fn pause(&mut self) -> Option<Box<Common>> {
        self.0.smt_thread.pause()
    }

    fn kernel_branches(&mut self, run: &BranchRun) -> Cycles {
        self.0.branches.as_mut().map_or(Cycles::ZERO, |unit| unit.execute_kernel(run))
    }

    fn kernel_window(&mut self) -> Option<&mut KernelWindow> {
        self.0.kernel.as_deref_mut()
    }

    fn branches(&self) -> Option<BranchCounts> {
        self.0.branches.as_ref().map(|unit| unit.counts())
    }

    fn dependency_assumption(&self) -> Option<&'static str> {
        Some(match self.0.config.unknown_dependencies {
            UnknownDependencies::Independent => "independent of each other",
            UnknownDependencies::Serial => "dependent, each on the load before",
        })
    }

    fn drain(&mut self, at: CoreTime) -> Stall {
        let state = &mut *self.0;
        let current = state.current;
        // A translation without a data access ended in a fault: everything before its instruction has entered.
        let from = if current.is_translated { at.now + current.enters } else { at.now };
        let mut stall = Stall::default();
        while let Some(oldest) = state.entered.take(&mut state.progress) {
            stall += wait(from + stall.sum(), oldest.times);
        }
        if current.is_translated {
            let times = Times { complete: current.ready, translation: current.ready - current.begin };
            stall += wait(from + stall.sum(), times);
            state.current.is_translated = false;
        }
        stall
    }
}
