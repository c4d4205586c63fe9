//! Which of the threads that share a CPU runs.
//!
//! Models: a run queue per CPU, as Linux's fair class has it. A thread's *virtual run time* grows by the cycles that it
//! runs. All threads have the same weight (nice 0), so these are cycles. The timer's tick looks whether the running
//! thread has had its slice. A thread that can run again, after it has waited, is placed in the queue, and may preempt
//! the running one.
//! Source: Linux kernel/sched/fair.c; each policy names its functions.
//! Parameters: `kernel.scheduler`, `kernel.quantum_cycles`, `kernel.wakeup_preemption`.
//! Deviations: no load balancing, groups (`CONFIG_FAIR_GROUP_SCHED`, autogroups) or weights. Threads do not wait in the
//! queue before the simulation asks for the next one, so a thread that slept is placed at that time. Kernel threads are
//! not in the queue.

mod cfs;
mod eevdf;

pub use cfs::CfsConfig;
pub use eevdf::EevdfConfig;

use pagelab_base::error::EngineError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the threads that share a CPU take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SchedulerConfig {
    /// Threads of a source run in the recorded order. Sources take turns of `kernel.quantum_cycles`.
    #[default]
    Recorded,
    /// Linux from 2.6.23 to 6.5: Completely Fair Scheduler.
    Cfs(CfsConfig),
    /// Linux since 6.6: Earliest Eligible Virtual Deadline First.
    Eevdf(EevdfConfig),
}

impl SchedulerConfig {
    /// Whether it is the default.
    pub fn is_recorded(&self) -> bool {
        *self == Self::Recorded
    }

    /// Checks the numbers; `slice` is `kernel.quantum_cycles`.
    pub fn validate(&self, slice: u64) -> Result<(), EngineError> {
        if slice == 0 {
            return Err(EngineError::config(
                "kernel.quantum_cycles",
                "0 is not possible: a time slice has at least 1 cycle",
            ));
        }
        let numbers = match self {
            Self::Recorded => vec![],
            Self::Cfs(cfs) => cfs.numbers(),
            Self::Eevdf(eevdf) => eevdf.numbers(),
        };
        let too_large = |number: u64| number > MOST_CYCLES;
        if let Some((key, number)) = numbers.into_iter().find(|&(_, number)| too_large(number)) {
            let what = format!("{number} is not possible; at most {MOST_CYCLES} cycles are");
            return Err(EngineError::config(format!("kernel.scheduler.{key}"), what));
        }
        match self {
            Self::Cfs(cfs) => cfs.validate(slice),
            Self::Recorded | Self::Eevdf(_) => Ok(()),
        }
    }

    /// The queue of a CPU; `None` if threads run in recorded order.
    pub fn run_queue(&self, slice: u64) -> Option<RunQueue> {
        let (policy, tick) = match *self {
            Self::Recorded => return None,
            Self::Cfs(cfs) => (Policy::Cfs(cfs), cfs.tick_cycles),
            Self::Eevdf(eevdf) => (Policy::Eevdf, eevdf.tick_cycles),
        };
        let slice = i64::try_from(slice.min(MOST_CYCLES)).expect("the bound fits");
        Some(RunQueue { policy, slice, tick, threads: Vec::new(), running: None, least: 0 })
    }
}

/// Most cycles of a scheduler's parameter: days of time, and far from the end of a virtual run time's range.
const MOST_CYCLES: u64 = 1 << 50;

#[derive(Clone, Copy, Debug)]
enum Policy {
    Cfs(CfsConfig),
    Eevdf,
}

/// A thread in all sources: its source's index, and its number there.
pub type ThreadKey = (usize, u32);

/// A thread that has run on the CPU.
#[derive(Clone, Debug)]
struct QueuedThread {
    key: ThreadKey,
    /// Whether it can run.
    queued: bool,
    /// Virtual run time, cycles.
    vruntime: i64,
    /// EEVDF: the virtual run time by which its slice is over.
    deadline: i64,
    /// EEVDF, when it left the queue: how much less it had run than the average.
    lag: i64,
    /// Cycles that it has run since it was last chosen.
    ran: i64,
    /// EEVDF: whether its slice has not ended since it was last chosen.
    in_slice: bool,
}

/// The run queue of a CPU, see the module's text.
#[derive(Clone, Debug)]
pub struct RunQueue {
    policy: Policy,
    slice: i64,
    tick: u64,
    threads: Vec<QueuedThread>,
    /// Index of the running thread.
    running: Option<usize>,
    /// The smallest virtual run time of the queue so far (`min_vruntime`).
    least: i64,
}

impl RunQueue {
    /// Adds cycles that the running thread has run.
    pub fn charge(&mut self, cycles: u64) {
        let Some(running) = self.running else { return };
        let cycles = i64::try_from(cycles).unwrap_or(i64::MAX >> 8);
        let thread = &mut self.threads[running];
        thread.vruntime += cycles;
        thread.ran += cycles;
        self.raise_least();
    }

    /// Which threads can run now. Those that could not before are placed in the queue. Returns whether there are any
    /// such, so that the running thread may have to be preempted.
    pub fn update(&mut self, able: &[ThreadKey]) -> bool {
        let mut woken = false;
        for at in 0..self.threads.len() {
            if self.threads[at].queued && !able.contains(&self.threads[at].key) {
                if let Policy::Eevdf = self.policy {
                    self.threads[at].lag = self.lag(at);
                }
                self.threads[at].queued = false;
                self.running = self.running.filter(|&running| running != at);
            }
        }
        for &key in able {
            let known = self.threads.iter().position(|thread| thread.key == key);
            if known.is_some_and(|at| self.threads[at].queued) {
                continue;
            }
            let at = known.unwrap_or_else(|| {
                let (vruntime, deadline, lag, ran) = (self.least, 0, 0, 0);
                let new = QueuedThread { key, queued: false, vruntime, deadline, lag, ran, in_slice: false };
                self.threads.push(new);
                self.threads.len() - 1
            });
            match self.policy {
                Policy::Cfs(cfs) => self.place_cfs(&cfs, at, known.is_none()),
                Policy::Eevdf => self.place_eevdf(at, known.is_none()),
            }
            self.threads[at].queued = true;
            woken = true;
        }
        self.raise_least();
        woken
    }

    /// At a tick: whether the running thread must give way, or look whether it must.
    pub fn slice_is_over(&mut self) -> bool {
        let Some(running) = self.running else { return true };
        match self.policy {
            Policy::Cfs(cfs) => self.slice_is_over_cfs(&cfs, running),
            Policy::Eevdf => self.slice_is_over_eevdf(running),
        }
    }

    /// Whether a thread that has woken up preempts the running one.
    pub fn is_preempted(&self) -> bool {
        let Some(running) = self.running else { return true };
        match self.policy {
            Policy::Cfs(cfs) => self.is_preempted_cfs(&cfs, running),
            Policy::Eevdf => self.pick_eevdf() != Some(running),
        }
    }

    /// Chooses the thread that runs next, and makes it the running one; `None` if no thread can run.
    pub fn pick(&mut self) -> Option<ThreadKey> {
        let next = match self.policy {
            Policy::Cfs(_) => self.pick_cfs(),
            Policy::Eevdf => self.pick_eevdf(),
        };
        if let Some(next) = next {
            let thread = &mut self.threads[next];
            if self.running != Some(next) || self.tick == 0 {
                thread.ran = 0;
            }
            thread.in_slice |= self.running != Some(next);
        }
        self.running = next;
        next.map(|next| self.threads[next].key)
    }

    /// The running thread.
    pub fn running(&self) -> Option<ThreadKey> {
        self.running.map(|running| self.threads[running].key)
    }

    /// The time of the next look at the slice, for a CPU whose clock is at `now`: the next tick, or without ticks the
    /// end of the slice.
    pub fn next_look(&self, now: u64) -> u64 {
        if let Some(ticks) = now.checked_div(self.tick) {
            return (ticks + 1) * self.tick;
        }
        let Some(running) = self.running else { return now + 1 };
        let rest = match self.policy {
            Policy::Cfs(cfs) => self.rest_cfs(&cfs, running),
            Policy::Eevdf => self.threads[running].deadline - self.threads[running].vruntime,
        };
        now + u64::try_from(rest.max(1)).expect("it is positive")
    }

    /// Forgets the threads of a source.
    pub fn forget(&mut self, source: usize) {
        let running = self.running();
        self.threads.retain(|thread| thread.key.0 != source);
        self.running = running.and_then(|key| self.threads.iter().position(|thread| thread.key == key));
    }

    /// Indices of the threads that can run.
    fn queued(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.threads.len()).filter(|&at| self.threads[at].queued)
    }

    /// The thread that can run and has the smallest virtual run time; the running one last among equals.
    fn leftmost(&self) -> Option<usize> {
        self.queued().min_by_key(|&at| (self.threads[at].vruntime, self.running == Some(at), at))
    }

    fn raise_least(&mut self) {
        if let Some(leftmost) = self.leftmost() {
            self.least = self.least.max(self.threads[leftmost].vruntime);
        }
    }
}
