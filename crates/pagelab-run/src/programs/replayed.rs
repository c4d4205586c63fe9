//! The sources that a run replays: their accounts, and how far they have been replayed.

use crate::programs::account::{Account, FaultCounts, walk_account};
use crate::programs::input::Input;
use crate::programs::load::Load;
use crate::programs::role::Role;
use crate::programs::vforks::with_vfork_waits;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_hardware::core_model::clock::Class;
use pagelab_kernel::home::ProcessTarget;
use pagelab_kernel::os::Os;
use pagelab_trace::calls::CallStacks;
use pagelab_trace::{Access, ProcessIx, Source};
use pagelab_translate::counters::WalkCounters;
use std::sync::Arc;

/// Accesses of each part of a batch that must have an instruction's address, if a design needs it.
const ACCESSES_WITH_PC: usize = 16;

/// The programs of a run, see the module's text.
#[derive(Clone)]
pub struct Programs {
    /// Main sources first, then co-runners and arrivals. Indices of arrivals that have ended are reused.
    pub inputs: Vec<Input>,
    /// The sources by role, and the accounts of those that have ended.
    pub load: Load,
    /// Accesses of the main sources that have been replayed; of the arrivals if there is no main source.
    pub replayed: u64,
    /// The kernels' counts of page faults when they were last charged to a source or to kernel threads.
    seen_faults: FaultCounts,
    /// The counts of page faults for kernel threads.
    thread_faults: FaultCounts,
    /// Cycles by class of the programs' CPUs while they worked for no source.
    pub unowned: [Cycles; Class::ALL.len()],
    /// Maximum of accesses of each source.
    max_accesses: Option<u64>,
    /// Accesses of a source that may be buffered for threads that lag behind (`engine.input_window_accesses`).
    window: u64,
}

impl Programs {
    /// The sources of a run before its start. `max_accesses` and `window` also apply to sources that start later.
    pub fn new(inputs: Vec<Input>, load: Load, max_accesses: Option<u64>, window: u64) -> Self {
        let (seen_faults, thread_faults) = (FaultCounts::default(), FaultCounts::default());
        let unowned = [Cycles::ZERO; Class::ALL.len()];
        Self { inputs, load, replayed: 0, seen_faults, thread_faults, unowned, max_accesses, window }
    }

    /// Whether there are statistics by source: there is, or may be, more than one.
    pub fn has_accounts(&self) -> bool {
        self.load.has_background || self.load.mains > 1
    }

    /// The account of a source.
    pub fn account(&self, input: usize, walks: &WalkCounters) -> Account {
        Account { walks: walks.account(walk_account(input)), ..self.inputs[input].account.clone() }
    }

    /// The account of kernel threads, without cycles: these are counted with their CPUs.
    pub fn thread_account(&self, walks: &WalkCounters) -> Account {
        let faults = self.thread_faults.clone();
        Account { walks: walks.account(WalkCounters::NO_SOURCE), faults, ..Account::default() }
    }

    /// Charges the kernels' counts of page faults since the last call to a source, or to kernel threads.
    #[inline]
    pub fn charge_faults(&mut self, input: Option<usize>, os: &Os) {
        let faults = match input {
            Some(input) => &mut self.inputs[input].account.faults,
            None => &mut self.thread_faults,
        };
        faults.add_since(os, &mut self.seen_faults);
    }

    /// The space of a process; creates it if there is none.
    pub fn space_of(
        &mut self,
        cpu: CpuId,
        input: usize,
        process: ProcessIx,
        os: &mut Os,
    ) -> Result<SpaceId, EngineError> {
        if let Some(space) = self.inputs[input].space_of(process) {
            return Ok(space);
        }
        let space = os.add_space(cpu, self.inputs[input].home)?;
        self.inputs[input].set_space(process, Some(space));
        Ok(space)
    }

    /// Refuses a source whose instructions have no addresses, by which the design at `key` predicts. The first accesses
    /// of each part of a batch decide. Accesses that no instruction makes have no address in any source: those of
    /// kernels, and the touches that stand for skipped accesses, which retire no instructions.
    pub fn ensure_pc(&self, input: usize, key: &str, accesses: &[Access]) -> Result<(), EngineError> {
        let lacks_pc = |access: &Access| access.pc == 0 && access.gap > 0 && !access.maker.is_kernel();
        if !accesses.iter().take(ACCESSES_WITH_PC).any(lacks_pc) {
            return Ok(());
        }
        let what = format!(
            "it predicts by the addresses of instructions, which the source `{}` does not have; use a source that does, \
             such as a recording or a workload, or switch this off",
            self.inputs[input].info.name
        );
        Err(EngineError::config(key, what))
    }

    /// Makes all sources deliver call stacks; must be called before they are read.
    pub fn enable_call_stacks(&mut self) -> Result<Vec<Option<Arc<CallStacks>>>, EngineError> {
        self.inputs.iter_mut().map(Input::enable_call_stacks).collect()
    }

    /// Whether windows and the warm-up are counted in the accesses of this source.
    #[inline]
    pub fn is_counted_in_windows(&self, input: usize) -> bool {
        input < self.load.mains || self.load.mains == 0
    }

    /// Accesses of the main sources dispatched so far; of current arrivals if there is no main source.
    pub fn dispatched(&self) -> u64 {
        let mains = if self.load.mains > 0 { self.load.mains } else { self.inputs.len() };
        self.inputs[..mains].iter().map(|input| input.dispatched).sum()
    }

    /// Adds a process of a stream that arrives on a CPU. Returns its index among the sources.
    pub fn add_arrival(
        &mut self,
        stream: usize,
        at: Cycles,
        cpu: CpuId,
        models_dependencies: bool,
    ) -> Result<usize, EngineError> {
        let arrivals = &self.load.streams[stream];
        let (source, home) = ((arrivals.open)()?, arrivals.home);
        let input = self.open(source, models_dependencies, Role::Arrival { at }, home, vec![cpu]);
        self.load.live += 1;
        Ok(if let Some(index) = self.load.vacant.pop() {
            self.inputs[index] = input;
            index
        } else {
            self.inputs.push(input);
            self.inputs.len() - 1
        })
    }

    /// Restarts a co-runner that has ended. Returns its CPUs.
    pub fn restart(
        &mut self,
        input: usize,
        number: usize,
        models_dependencies: bool,
    ) -> Result<Vec<CpuId>, EngineError> {
        let old = &self.inputs[input];
        if old.dispatched == 0 {
            let what = format!("`{}` makes no access, so it cannot be a co-runner", old.info.name);
            return Err(EngineError::config("with", what));
        }
        let (home, cpus) = (old.home, old.cpus.clone());
        let source = (self.load.co_runners[number])()?;
        self.inputs[input] = self.open(source, models_dependencies, Role::CoRunner(number), home, cpus.clone());
        Ok(cpus)
    }

    fn open(
        &self,
        source: Box<dyn Source>,
        models_dependencies: bool,
        role: Role,
        home: ProcessTarget,
        cpus: Vec<CpuId>,
    ) -> Input {
        let source = with_vfork_waits(source);
        Input::new(source, models_dependencies, role, home, cpus, self.max_accesses, self.window)
    }
}
