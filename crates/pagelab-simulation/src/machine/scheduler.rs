//! The scheduler: the CPUs, which of them runs next, and the agenda.
//!
//! How CPUs wait for each other is in `machine/waiting.rs`.

use crate::machine::agenda::{Agenda, AgendaEntry};
use crate::machine::cpu::{Cpu, CpuState};
use crate::machine::task::LaneState;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, CpuId};
use pagelab_base::lock_kind::WaitsByLock;
use pagelab_hardware::core_model::{BranchCounts, Common, Siblings};

/// The scheduler, see the module's text.
#[derive(Clone)]
pub struct Scheduler {
    /// The CPUs in use; each is a hardware thread of the machine.
    pub cpus: Vec<Cpu>,
    /// State that the hardware threads of a core share, by core. `None` if only one thread of the core is in use, and
    /// during the turn of one of them. Empty if no core shares anything.
    pub(crate) shared_by_threads: Vec<Option<Box<Common>>>,
    /// What happens at known times.
    pub(crate) agenda: Agenda,
    /// Cycles that a CPU may run ahead of the others (`engine.sync_quantum_cycles`).
    pub(crate) quantum: Cycles,
    /// Time slice of a source that shares a CPU (`kernel.quantum_cycles`).
    pub(crate) slice: Cycles,
    /// Whether there is more than one CPU, more than one queue on a CPU, or background load.
    pub(crate) many: bool,
    /// The turn that continues after an interruption of the run.
    pub(crate) paused: Option<(CpuId, Cycles)>,
    /// Whether, during this turn, another CPU has become ready or the agenda has a new entry, so that the limit of the
    /// turn is obsolete; or the next access is to a contended line, and must wait for CPUs whose clocks are behind.
    pub(crate) woke: bool,
    /// The smallest clock of the other CPUs that were ready when the turn began.
    pub(crate) others: Cycles,
    /// Number of waits of all tasks so far.
    pub(crate) waits_begun: u64,
    /// Waits for locks that other tasks hold.
    pub(crate) lock_waits: WaitsByLock,
}

impl Scheduler {
    /// A scheduler before the first turn; `cores` is the number of cores in use.
    pub(crate) fn new(cpus: Vec<Cpu>, cores: usize, agenda: Agenda, quantum: Cycles, slice: Cycles) -> Self {
        let shared_by_threads = shared_by_threads(&cpus, cores);
        let many = cpus.len() > 1 || cpus.iter().any(|cpu| cpu.lanes.len() > 1);
        Self {
            cpus,
            shared_by_threads,
            agenda,
            quantum,
            slice,
            many,
            paused: None,
            woke: false,
            others: Cycles::MAX,
            waits_begun: 0,
            lock_waits: WaitsByLock::new(),
        }
    }

    /// Whether any core model uses dependencies and branches.
    pub fn models_dependencies(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.clock.models_dependencies())
    }

    /// How some core model treats accesses recorded without dependencies; `None` if no core needs them.
    pub fn dependency_assumption(&self) -> Option<&'static str> {
        self.cpus.iter().find_map(|cpu| cpu.clock.dependency_assumption())
    }

    /// Whether hardware threads of any core compete for its resources.
    pub fn shares_core(&self) -> bool {
        !self.shared_by_threads.is_empty()
    }

    /// The branches of all CPUs; none if no core predicts any.
    pub fn branches(&self) -> Option<BranchCounts> {
        self.cpus.iter().filter_map(|cpu| cpu.clock.branches()).reduce(|sum, counts| sum + counts)
    }

    /// Whether any core predicts branches.
    pub fn predicts(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.clock.branches().is_some())
    }

    /// Whether the cores have instruction caches.
    pub fn fetches_lines(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.filter.fetches_lines())
    }

    /// The CPUs, except those that run kernel threads only.
    pub fn program_cpus(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| !cpu.is_kernel_only)
    }

    /// Cycles from the start to the end of the last CPU.
    pub fn elapsed(&self) -> Cycles {
        self.program_cpus().map(|cpu| cpu.clock.now()).max().unwrap_or_default()
    }

    /// The ready CPU with the smallest clock (the first of equals), and the smallest clock of the others.
    #[inline]
    pub(crate) fn next_turn(&self) -> Option<(CpuId, Cycles)> {
        let mut first: Option<(CpuId, Cycles)> = None;
        let mut second = Cycles::MAX;
        for (index, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.state == CpuState::Ready) {
            let now = cpu.clock.now();
            match first {
                Some((_, least)) if now >= least => second = second.min(now),
                _ => {
                    second = first.map_or(second, |(_, least)| least);
                    first = Some((CpuId::from(index), now));
                }
            }
        }
        first.map(|(cpu, _)| (cpu, second))
    }

    /// Whether a CPU's turn is over.
    #[inline]
    pub(crate) fn turn_is_over(&self, cpu: CpuId, limit: Cycles) -> bool {
        self.woke || self.cpus[cpu].clock.now() > limit
    }

    /// Gives a CPU the state that it shares with the other hardware threads of its core. Returns the time up to which
    /// its information about these threads is valid.
    #[inline]
    pub(crate) fn enter_core(&mut self, cpu: CpuId) -> Cycles {
        let (core, now) = (self.cpus[cpu].core, self.cpus[cpu].clock.now());
        let mut until = Cycles::MAX;
        let Some(common) = self.shared_by_threads.get_mut(core.index()).and_then(Option::take) else { return until };
        let mut siblings = Siblings { active: 0, now: Cycles::MAX };
        let others =
            self.cpus.iter().enumerate().filter(|(number, other)| other.core == core && CpuId::from(*number) != cpu);
        for (_, other) in others {
            let (goes_on, time) = (matches!(other.state, CpuState::Ready | CpuState::Spins(_)), other.clock.now());
            // A thread that has stopped at a later time was busy until then.
            if goes_on || time > now {
                siblings = Siblings { active: siblings.active + 1, now: siblings.now.min(time) };
            }
            if !goes_on && time > now {
                until = until.min(time);
            }
        }
        self.cpus[cpu].clock.resume(common, siblings);
        until
    }

    /// Takes back the state that a CPU shares with the other threads of its core, for the next turn of one of them.
    #[inline]
    pub(crate) fn detach_from_core(&mut self, cpu: CpuId) {
        if let Some(common) = self.cpus[cpu].clock.pause() {
            self.shared_by_threads[self.cpus[cpu].core] = Some(common);
        }
    }

    /// Adds an entry to the agenda that may be due before the limit of this turn.
    pub(crate) fn enter(&mut self, at: Cycles, entry: AgendaEntry) {
        self.agenda.enter(at, entry);
        self.woke = true;
    }

    /// Of these CPUs, the one with the fewest sources that have not ended.
    pub(crate) fn least_busy(&self, cpus: &[CpuId]) -> Option<CpuId> {
        let busy = |&cpu: &CpuId| self.cpus[cpu].lanes.iter().filter(|lane| lane.state != LaneState::Finished).count();
        cpus.iter().copied().min_by_key(busy)
    }

    /// Adds a queue to a CPU, for a source that arrives during the run.
    pub(crate) fn add_lane(&mut self, cpu: CpuId, input: usize, shared: bool) {
        let cpu = &mut self.cpus[cpu];
        cpu.add_lane(input, shared);
        if cpu.lanes.len() == 2 && cpu.run_queue.is_none() {
            // The source that had the CPU to itself had no time slice.
            cpu.slice_end = cpu.clock.now() + self.slice;
        }
    }

    /// Removes the queues of a source.
    pub(crate) fn drop_lanes(&mut self, input: usize) {
        for cpu in &mut self.cpus {
            cpu.remove_lane(input);
            cpu.run_queue.iter_mut().for_each(|queue| queue.forget(input));
            if cpu.owner == Some(input) {
                // The current task may be in the middle of something.
                cpu.owner = cpu.lanes.get(cpu.lane).filter(|_| !cpu.task.is_idle()).map(|lane| lane.input);
            }
        }
    }

    /// Whether the queues of a source have ended on all these CPUs.
    pub(crate) fn has_ended(&self, input: usize, cpus: &[CpuId]) -> bool {
        let mut lanes = cpus.iter().flat_map(|&cpu| &self.cpus[cpu].lanes);
        lanes.all(|lane| lane.input != input || lane.state == LaneState::Finished)
    }

    /// Removes the threads of a source as running threads from all CPUs.
    pub(crate) fn forget_threads(&mut self, input: usize) {
        for cpu in self.cpus.iter_mut().filter(|cpu| cpu.thread.is_some_and(|(running, _)| running == input)) {
            cpu.thread = None;
        }
    }
}

/// State that the CPUs of each core share; `None` for a core with one CPU. Empty if no core shares anything.
fn shared_by_threads(cpus: &[Cpu], cores: usize) -> Vec<Option<Box<Common>>> {
    let threads = |core: CoreId| cpus.iter().filter(move |cpu| cpu.core == core);
    let shared: Vec<_> =
        CoreId::all(cores).map(|core| threads(core).nth(1).and_then(|cpu| cpu.clock.common())).collect();
    if shared.iter().any(Option::is_some) { shared } else { Vec::new() }
}
