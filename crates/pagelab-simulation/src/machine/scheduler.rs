//! The scheduler: the CPUs, whose turn it is, and what is to happen at a known time.
//!
//! How CPUs wait for each other is in `machine/waiting.rs`.

use crate::machine::agenda::{Agenda, AgendaEntry};
use crate::machine::cpu::{Cpu, CpuState};
use crate::machine::task::LaneState;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CpuId;
use pagelab_hardware::core_model::{Common, Siblings};

/// See the module's text.
#[derive(Clone)]
pub struct Scheduler {
    /// CPUs in use, each a hardware thread of the machine.
    pub cpus: Vec<Cpu>,
    /// What the hardware threads of a core share, by core. None if only one thread of the core is in use, and while one
    /// of them has its turn. Empty if no core has anything to share.
    pub(crate) shared_by_threads: Vec<Option<Box<Common>>>,
    /// What is to happen at a known time.
    pub(crate) agenda: Agenda,
    /// Cycles that a CPU may run ahead of the others (`engine.sync_quantum_cycles`).
    pub(crate) quantum: Cycles,
    /// Time slice of a source that shares a CPU (`kernel.quantum_cycles`).
    pub(crate) slice: Cycles,
    /// More than one CPU, more than one queue on it, or something that runs beside them.
    pub(crate) many: bool,
    /// The turn with which an interrupted run continues.
    pub(crate) paused: Option<(CpuId, Cycles)>,
    /// During this turn another CPU has become ready, or the agenda has got a new entry. The limit of the turn no
    /// longer holds.
    pub(crate) woke: bool,
}

impl Scheduler {
    /// A scheduler before the first turn, for CPUs of this many cores.
    pub(crate) fn new(cpus: Vec<Cpu>, cores: usize, agenda: Agenda, quantum: Cycles, slice: Cycles) -> Self {
        let shared_by_threads = shared_by_threads(&cpus, cores);
        let many = cpus.len() > 1 || cpus.iter().any(|cpu| cpu.lanes.len() > 1);
        Self { cpus, shared_by_threads, agenda, quantum, slice, many, paused: None, woke: false }
    }

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
        !self.shared_by_threads.is_empty()
    }

    /// Whether some core predicts branches.
    pub fn predicts(&self) -> bool {
        self.cpus.iter().any(|cpu| cpu.clock.branches().is_some())
    }

    /// The CPUs but for those that kernel threads have to themselves.
    pub fn program_cpus(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| !cpu.apart)
    }

    /// Cycles from the start to the end of the last CPU.
    pub fn elapsed(&self) -> Cycles {
        self.program_cpus().map(|cpu| cpu.clock.now()).max().unwrap_or_default()
    }

    /// The ready CPU with the smallest clock (the first of equals), and how far it may go.
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
        first.map(|(cpu, _)| (cpu, second.saturating_add(self.quantum)))
    }

    /// Whether a CPU has come to the end of its turn.
    #[inline]
    pub(crate) fn turn_is_over(&self, cpu: CpuId, limit: Cycles) -> bool {
        self.woke || self.cpus[cpu].clock.now() > limit
    }

    /// Gives a CPU what it shares with the other hardware threads of its core. Returns how far it may go with what it
    /// is told of these.
    #[inline]
    pub(crate) fn enter_core(&mut self, cpu: CpuId) -> Cycles {
        let (core, now) = (self.cpus[cpu].core, self.cpus[cpu].clock.now());
        let mut until = Cycles::MAX;
        let Some(common) = self.shared_by_threads.get_mut(core).and_then(Option::take) else { return until };
        let mut siblings = Siblings { active: 0, now: Cycles::MAX };
        let others = self.cpus.iter().enumerate().filter(|(number, of)| of.core == core && CpuId::from(*number) != cpu);
        for (_, of) in others {
            let (goes_on, time) = (matches!(of.state, CpuState::Ready | CpuState::Spins(_)), of.clock.now());
            // A thread that has stopped ahead of this CPU had something to run until then.
            if goes_on || time > now {
                siblings = Siblings { active: siblings.active + 1, now: siblings.now.min(time) };
            }
            if !goes_on && time > now {
                until = until.min(time);
            }
        }
        self.cpus[cpu].clock.go_on(common, siblings);
        until
    }

    /// Takes back what a CPU shares with its core's other threads, for the next turn of one of them.
    #[inline]
    pub(crate) fn leave_core(&mut self, cpu: CpuId) {
        if let Some(common) = self.cpus[cpu].clock.pause() {
            self.shared_by_threads[self.cpus[cpu].core] = Some(common);
        }
    }

    /// Enters something on the agenda that may happen before the limit of this turn.
    pub(crate) fn enter(&mut self, at: Cycles, entry: AgendaEntry) {
        self.agenda.enter(at, entry);
        self.woke = true;
    }

    /// Of some CPUs the one with the fewest sources that have not ended.
    pub(crate) fn least_busy(&self, cpus: &[CpuId]) -> Option<CpuId> {
        let busy = |&cpu: &CpuId| self.cpus[cpu].lanes.iter().filter(|lane| lane.state != LaneState::Finished).count();
        cpus.iter().copied().min_by_key(busy)
    }

    /// Gives a CPU a queue for a source that comes during the run.
    pub(crate) fn add_lane(&mut self, cpu: CpuId, input: usize) {
        let of = &mut self.cpus[cpu];
        of.add_lane(input);
        if of.lanes.len() == 2 {
            // The source that had the CPU alone had no time slice.
            of.slice_end = of.clock.now() + self.slice;
        }
    }

    /// Takes the queues of a source away.
    pub(crate) fn drop_lanes(&mut self, input: usize) {
        for of in &mut self.cpus {
            of.remove_lane(input);
            if of.owner == Some(input) {
                // The task that it holds now may be in the middle of something.
                of.owner = of.lanes.get(of.lane).filter(|_| !of.task.is_idle()).map(|lane| lane.input);
            }
        }
    }

    /// Whether the queues of a source have ended on all these CPUs.
    pub(crate) fn has_ended(&self, input: usize, cpus: &[CpuId]) -> bool {
        let mut lanes = cpus.iter().flat_map(|&cpu| &self.cpus[cpu].lanes);
        lanes.all(|lane| lane.input != input || lane.state == LaneState::Finished)
    }

    /// No CPU runs a thread of a source any more.
    pub(crate) fn forget_threads(&mut self, input: usize) {
        for of in self.cpus.iter_mut().filter(|of| of.thread.is_some_and(|(running, _)| running == input)) {
            of.thread = None;
        }
    }
}

/// What the CPUs of each core share; nothing where there is one. Empty if no core shares anything.
fn shared_by_threads(cpus: &[Cpu], cores: usize) -> Vec<Option<Box<Common>>> {
    let of = |core| cpus.iter().filter(move |cpu| cpu.core == core);
    let shared: Vec<_> = (0..cores).map(|core| of(core).nth(1).and_then(|cpu| cpu.clock.common())).collect();
    if shared.iter().any(Option::is_some) { shared } else { Vec::new() }
}
