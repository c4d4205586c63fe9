//! Completely Fair Scheduler.
//!
//! Models: the thread with the smallest virtual run time runs. Its slice is its share of the latency period; with more
//! threads than the period has minimum granularities, it is the minimum granularity. A thread that wakes up has at most
//! half a period less than the smallest virtual run time, and preempts the running one if it is behind by more than the
//! wake-up granularity.
//! Source: Linux 4.9 to 6.5 kernel/sched/fair.c: `sched_slice`, `check_preempt_tick`, `place_entity`,
//! `wakeup_preempt_entity`, with `START_DEBIT` and `GENTLE_FAIR_SLEEPERS`.
//! Parameters: `kernel.scheduler.latency_cycles`, `kernel.scheduler.wakeup_granularity_cycles`,
//! `kernel.scheduler.tick_cycles`; the minimum granularity is `kernel.quantum_cycles`.
//! Deviations: those of the module, and no buddies (`LAST_BUDDY`, `NEXT_BUDDY`).

use super::RunQueue;
use pagelab_base::error::EngineError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of CFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CfsConfig {
    /// Cycles between two ticks of the timer (`CONFIG_HZ`). With 0, a slice ends when it is used up (`HRTICK`).
    pub tick_cycles: u64,
    /// Cycles in which each thread runs once (`sched_latency_ns`), at least `kernel.quantum_cycles`.
    pub latency_cycles: u64,
    /// Cycles by which a thread that wakes up must be behind to preempt the running one
    /// (`sched_wakeup_granularity_ns`).
    pub wakeup_granularity_cycles: u64,
}

impl CfsConfig {
    /// Its numbers, with their keys.
    pub(super) fn numbers(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("tick_cycles", self.tick_cycles),
            ("latency_cycles", self.latency_cycles),
            ("wakeup_granularity_cycles", self.wakeup_granularity_cycles),
        ]
    }

    pub(super) fn validate(&self, slice: u64) -> Result<(), EngineError> {
        if self.latency_cycles >= slice {
            return Ok(());
        }
        let what =
            format!("{} is less than the minimum granularity, kernel.quantum_cycles = {slice}", self.latency_cycles);
        Err(EngineError::config("kernel.scheduler.latency_cycles", what))
    }
}

impl RunQueue {
    /// The slice of each of `threads` threads (`sched_slice`).
    fn slice_cfs(&self, cfs: &CfsConfig, threads: usize) -> i64 {
        let threads = threads.max(1) as i64;
        let latency = cfs.latency_cycles as i64;
        if threads > latency / self.slice { self.slice } else { latency / threads }
    }

    /// Places a thread that can run again, or is new (`place_entity`).
    pub(super) fn place_cfs(&mut self, cfs: &CfsConfig, at: usize, is_new: bool) {
        let after = self.slice_cfs(cfs, self.queued().count() + 1);
        let others = self.queued().count() > 0;
        let thread = &mut self.threads[at];
        thread.vruntime = match (is_new, others) {
            (true, true) => self.least + after,
            (true, false) => self.least,
            (false, _) => thread.vruntime.max(self.least - cfs.latency_cycles as i64 / 2),
        };
    }

    /// `check_preempt_tick`.
    pub(super) fn slice_is_over_cfs(&self, cfs: &CfsConfig, running: usize) -> bool {
        let slice = self.slice_cfs(cfs, self.queued().count());
        let thread = &self.threads[running];
        let leftmost = self.queued().map(|at| self.threads[at].vruntime).min().unwrap_or(thread.vruntime);
        // Without ticks it is asked at the end of the slice itself.
        let used_up = if cfs.tick_cycles > 0 { thread.ran > slice } else { thread.ran >= slice };
        used_up || thread.ran >= self.slice && thread.vruntime - leftmost > slice
    }

    /// Cycles to the end of the slice.
    pub(super) fn rest_cfs(&self, cfs: &CfsConfig, running: usize) -> i64 {
        self.slice_cfs(cfs, self.queued().count()) - self.threads[running].ran
    }

    /// `wakeup_preempt_entity`.
    pub(super) fn is_preempted_cfs(&self, cfs: &CfsConfig, running: usize) -> bool {
        self.leftmost().is_some_and(|leftmost| {
            let behind = self.threads[running].vruntime - self.threads[leftmost].vruntime;
            behind > cfs.wakeup_granularity_cycles as i64
        })
    }

    /// `pick_next_entity`.
    pub(super) fn pick_cfs(&self) -> Option<usize> {
        self.leftmost()
    }
}

#[cfg(test)]
mod tests {
    use crate::scheduler::{CfsConfig, RunQueue, SchedulerConfig};

    fn queue(tick_cycles: u64) -> RunQueue {
        let cfs = CfsConfig { tick_cycles, latency_cycles: 2400, wakeup_granularity_cycles: 400 };
        SchedulerConfig::Cfs(cfs).run_queue(300).unwrap()
    }

    #[test]
    fn slices_share_the_period_until_they_reach_the_granularity() {
        let slice = |threads: u32| {
            let mut queue = queue(0);
            let able: Vec<_> = (0..threads).map(|thread| (0, thread)).collect();
            queue.update(&able);
            queue.pick();
            queue.next_look(0)
        };
        assert_eq!([1, 2, 3, 8, 9, 100].map(slice), [2400, 1200, 800, 300, 300, 300]);
    }

    #[test]
    fn two_threads_alternate_and_a_tick_comes_late() {
        let mut queue = queue(1000);
        queue.update(&[(0, 0), (0, 1)]);
        let mut order = vec![];
        for _ in 0..8 {
            order.push(queue.pick().unwrap().1);
            queue.charge(1000);
            assert!(!queue.slice_is_over());
            queue.charge(1000);
            assert!(queue.slice_is_over(), "1,200 cycles are over at the second tick");
        }
        assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn a_sleeper_is_half_a_period_ahead_and_preempts() {
        let mut queue = queue(0);
        queue.update(&[(0, 0), (0, 1)]);
        assert_eq!(queue.pick(), Some((0, 0)));
        queue.charge(100);
        queue.update(&[(0, 1)]);
        assert_eq!(queue.pick(), Some((0, 1)));
        queue.charge(100_000);
        assert!(queue.update(&[(0, 1), (0, 0)]));
        assert_eq!(queue.threads[1].vruntime - queue.threads[0].vruntime, 1200);
        assert!(queue.is_preempted());
        assert_eq!(queue.pick(), Some((0, 0)));
        // One that slept shortly keeps its own run time, and 400 cycles behind are not enough.
        queue.charge(800);
        queue.update(&[(0, 1)]);
        queue.pick();
        queue.update(&[(0, 0), (0, 1)]);
        assert!(!queue.is_preempted());
    }
}
