//! The simulation: hardware, kernels, CPUs and programs.

use crate::machine::kernels::Kernels;
use crate::machine::scheduler::Scheduler;
use crate::observe::Observers;
use crate::observe::profile::Profile;
use crate::programs::Programs;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_trace::quantity::Bytes;
use pagelab_trace::{Access, Branches, Source};
use pagelab_translate::hardware::Hardware;

/// A source and where it runs.
pub struct PlacedSource {
    /// Where the accesses and events come from.
    pub source: Box<dyn Source>,
    /// CPUs (hardware threads, numbered core by core) that its threads are spread over.
    pub cpus: Vec<usize>,
    /// Of a memory cgroup of its own.
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

/// Code that makes the accesses of a CPU's run up to the first that it is not for, and returns how many it made.
#[derive(Clone, Copy)]
pub(crate) struct FastPath {
    pub alone: Replay,
    /// The same where others run beside it: it stops when the clock passes a limit.
    pub among_others: Replay,
}

/// Accesses with the branches before each, empty if they are not known, and how far the clock may go.
pub(crate) type Replay = fn(&mut Simulation, CpuId, &[Access], &[Branches], Cycles) -> usize;

/// How the accesses of programs are replayed. No result depends on it.
#[derive(Clone)]
pub struct ReplayOptions {
    /// The code for accesses that meet nothing unusual, if there is any for this system (`engine.fast_path`).
    pub(crate) fast_path: Option<FastPath>,
    /// Accesses that took the fast path.
    pub fast_path_accesses: u64,
    /// Whether only an L1 hit proves that the next access to the line changes nothing.
    pub(crate) filter_hits_only: bool,
    /// Whether the simulator's own tables are prefetched for accesses to come (`engine.lookahead`).
    pub(crate) lookahead: bool,
}

/// See the module's text. A copy goes on by itself: it ends with the same results, whatever becomes of the other.
///
/// What needs one part is a method of that part. A method of the simulation needs several.
#[derive(Clone)]
pub struct Simulation {
    /// TLBs, MMU caches, data caches, and what they count.
    pub hw: Hardware,
    /// The kernels of all layers, with their threads.
    pub kernels: Kernels,
    /// The CPUs, and whose turn it is.
    pub scheduler: Scheduler,
    /// The sources that are replayed, and what was counted for each.
    pub programs: Programs,
    /// What is noted beside what is counted.
    pub observers: Observers,
    /// How accesses are replayed.
    pub replay: ReplayOptions,
}

impl Simulation {
    /// Notes where paging costs, from so many accesses of the main sources on.
    ///
    /// # Errors
    /// [`EngineError`] of a trace whose call stacks cannot be read.
    pub fn start_profile(&mut self, seed: u64, begins: u64) -> Result<(), EngineError> {
        let stacks = self.programs.tell_call_stacks()?;
        self.observers.profile = Some(Box::new(Profile::new(seed, begins, stacks)));
        self.replay.fast_path = None;
        Ok(())
    }
}
