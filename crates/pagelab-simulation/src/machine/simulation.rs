//! The simulation: hardware, kernels, CPUs and inputs.

use crate::machine::agenda::Agenda;
use crate::machine::cpu::Cpu;
use crate::machine::pcids::{Generations, ShootdownCounters};
use crate::observe::page_faults::PageFaults;
use crate::observe::profile::Profile;
use crate::observe::windows::Windows;
use crate::programs::account::FaultCounts;
use crate::programs::input::Input;
use crate::programs::load::Load;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::CpuId;
use pagelab_hardware::core_model::Common;
use pagelab_kernel::os::Os;
use pagelab_kernel::threads::schedule::KernelThreads;
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

/// An access that no mapping covers, or that one forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// Virtual address of its first byte.
    pub vaddr: u64,
    /// Address of the instruction, as the trace gives it.
    pub pc: u64,
    /// Whether it writes; else it reads or fetches.
    pub write: bool,
}

/// Refused accesses that are kept as examples.
pub(crate) const REFUSED_EXAMPLES: usize = 8;

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

/// See the module's text. A copy goes on by itself: it ends with the same results, whatever becomes of the other.
#[derive(Clone)]
pub struct Simulation {
    /// TLBs, MMU caches, data caches, and what they count.
    pub hw: Hardware,
    /// The layers with their kernels.
    pub os: Os,
    /// The kernel threads of all layers.
    pub kthreads: KernelThreads,
    /// CPUs in use, each a hardware thread of the machine.
    pub cpus: Vec<Cpu>,
    /// Main sources first, then co-runners and arrivals. Places of arrivals that have ended are used again.
    pub inputs: Vec<Input>,
    /// The first accesses that were refused, as examples for a warning.
    pub refused: Vec<RefusedAccess>,
    /// Parts of the run that are counted apart, in accesses of the main sources.
    pub windows: Windows,
    /// The programs' page faults one by one, if they are wanted.
    pub page_faults: Option<PageFaults>,
    /// Where paging costs, if that is wanted. There is no fast path then.
    pub profile: Option<Box<Profile>>,
    /// What shootdowns and switches between address spaces did.
    pub shootdowns: ShootdownCounters,
    pub(crate) generations: Generations,
    /// The sources by role, and what was counted for those that have ended.
    pub load: Load,
    /// Accesses of the main sources that have been replayed; of the arrivals if there is none.
    pub(crate) replayed: u64,
    /// Accesses that took the fast path.
    pub fast_path_accesses: u64,
    /// What the kernels had counted of page faults when they were last looked at.
    pub(crate) counted: FaultCounts,
    /// What they have counted for no source: for kernel threads.
    pub(crate) own_faults: FaultCounts,
    /// Whether only an L1 hit proves that the next one to the line changes nothing.
    pub(crate) filter_hits_only: bool,
    pub(crate) lookahead: bool,
    /// The code for accesses that meet nothing unusual, if there is any for this system.
    pub(crate) fast_path: Option<FastPath>,
    pub(crate) quantum: Cycles,
    pub(crate) slice: Cycles,
    /// Of each source.
    pub(crate) max_accesses: Option<u64>,
    pub(crate) window: u64,
    /// More than one CPU or more than one lane on it, or something that runs beside them.
    pub(crate) many: bool,
    /// What is to happen at a time that is known.
    pub(crate) agenda: Agenda,
    /// By kernel thread, the CPU that it runs on.
    pub(crate) thread_cpus: Vec<CpuId>,
    /// What the hardware threads of a core have in common, by core; none if only one of it is in use, or while it has
    /// its turn. Empty if there is no such core.
    pub(crate) commons: Vec<Option<Box<Common>>>,
    /// The turn that an interrupted run goes on with.
    pub(crate) paused: Option<(CpuId, Cycles)>,
    /// Another CPU has become ready during this turn, or something is new on the agenda, so that its limit no longer
    /// holds.
    pub(crate) woke: bool,
}

impl Simulation {
    /// Whether some core looks at dependencies and branches.
    pub fn models_dependencies(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.clock.models_dependencies())
    }

    /// Assumed dependency of accesses recorded without one, if some core needs dependencies.
    pub fn dependency_assumption(&self) -> Option<&'static str> {
        self.cpus.iter().find_map(|cpu| cpu.clock.dependency_assumption())
    }

    /// Whether hardware threads of some core compete for what the core has once.
    pub fn shares_core(&self) -> bool {
        !self.commons.is_empty()
    }

    /// Whether some core predicts branches.
    pub fn predicts(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.clock.branches().is_some())
    }

    /// Notes where paging costs, from so many accesses of the main sources on.
    ///
    /// # Errors
    /// [`EngineError`] of a trace whose call stacks cannot be read.
    pub fn start_profile(&mut self, seed: u64, begins: u64) -> Result<(), EngineError> {
        let stacks = self.inputs.iter_mut().map(Input::tell_call_stacks).collect::<Result<_, _>>()?;
        self.profile = Some(Box::new(Profile::new(seed, begins, stacks)));
        self.fast_path = None;
        Ok(())
    }

    /// Whether what was counted is told by source: there is more than one, or may be.
    pub fn has_accounts(&self) -> bool {
        self.load.beside || self.load.mains > 1
    }
}
