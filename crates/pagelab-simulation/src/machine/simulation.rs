//! The simulation: hardware, kernels, CPUs and programs.

use crate::machine::kernels::Kernels;
use crate::machine::scheduler::Scheduler;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_run::observe::Observers;
use pagelab_run::observe::profile::Profile;
use pagelab_run::programs::Programs;
use pagelab_trace::quantity::Bytes;
use pagelab_trace::{Access, Branches, Source};
use pagelab_translate::hardware::Hardware;

/// A source and the CPUs that it runs on.
pub struct PlacedSource {
    /// Supplies accesses and events.
    pub source: Box<dyn Source>,
    /// CPUs (hardware threads, numbered core by core) that its threads are distributed over.
    pub cpus: Vec<usize>,
    /// Limit of a memory cgroup of its own.
    pub memory_limit: Option<Bytes>,
}

/// How running a CPU's activities ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackOutcome {
    /// All have ended.
    Empty,
    /// One blocks, or the turn is over.
    Yields,
}

/// The fast path: code that makes the accesses of a CPU's run up to the first that it cannot handle, and returns how
/// many it made.
#[derive(Clone, Copy)]
pub(crate) struct FastPath {
    pub alone: Replay,
    /// The same for several CPUs: it stops when the clock passes a limit.
    pub with_other_cpus: Replay,
}

/// Arguments: the accesses, the branches before each access (empty if unknown), and the limit of the clock.
pub(crate) type Replay = fn(&mut Simulation, CpuId, &[Access], &[Branches], Cycles) -> usize;

/// How accesses are replayed.
#[derive(Clone)]
pub struct ReplayOptions {
    /// The fast path, if there is one for this system (`engine.fast_path`).
    pub(crate) fast_path: Option<FastPath>,
    /// Number of accesses that took the fast path.
    pub fast_path_accesses: u64,
    /// Whether only an L1 hit proves that the next access to the line changes no state.
    pub(crate) filter_hits_only: bool,
    /// Whether programs of some layer make calls of a fault engine ahead of accesses.
    pub(crate) calls_ahead: bool,
    /// The configuration key of a design that predicts by the addresses of instructions, if there is one.
    pub(crate) needs_pc: Option<&'static str>,
    /// Whether the data of each access are looked at: requests have times, or accesses go on beside walks.
    pub(crate) watches_data: bool,
    /// Whether the simulator prefetches its own tables for the next accesses (`engine.lookahead`).
    pub(crate) lookahead: bool,
}

/// A simulation, see the module's text. A clone is independent: it ends with the same results.
///
/// An operation on one part is a method of that part, and is given a second part if it asks it. Methods of the
/// simulation steer several parts.
#[derive(Clone)]
pub struct Simulation {
    /// TLBs, MMU caches, data caches, and their counters.
    pub hw: Hardware,
    /// The kernels of all layers, with their threads.
    pub kernels: Kernels,
    /// The CPUs, and which of them runs next.
    pub scheduler: Scheduler,
    /// The sources that are replayed, and their accounts.
    pub programs: Programs,
    /// What is observed besides the counters.
    pub observers: Observers,
    /// How accesses are replayed.
    pub replay: ReplayOptions,
}

impl Simulation {
    /// Starts a profile of paging costs, which begins after `begins` accesses of the main sources.
    ///
    /// # Errors
    /// [`EngineError`] of a trace whose call stacks cannot be read.
    pub fn start_profile(&mut self, seed: u64, begins: u64) -> Result<(), EngineError> {
        let stacks = self.programs.enable_call_stacks()?;
        self.observers.profile = Some(Box::new(Profile::new(seed, begins, stacks)));
        self.replay.fast_path = None;
        Ok(())
    }
}
