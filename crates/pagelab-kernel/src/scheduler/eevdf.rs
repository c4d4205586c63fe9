//! Earliest Eligible Virtual Deadline First.
//!
//! Models: a thread is *eligible* if it has not run more than the average of the queue. Of the eligible threads, the
//! one whose deadline is earliest runs, to the end of its slice (`RUN_TO_PARITY`). A thread that waits keeps its lag,
//! the average less its own virtual run time, of at most two slices. A new thread's first slice is half as long.
//! Source: Linux 6.12 kernel/sched/fair.c: `pick_eevdf`, `update_deadline`, `place_entity`, `update_entity_lag`; I.
//! Stoica, H. Abdel-Wahab, "Earliest Eligible Virtual Deadline First", TR-95-22, Old Dominion University, 1995.
//! Parameters: `kernel.scheduler.tick_cycles`; the slice is `kernel.quantum_cycles` (`sched_base_slice_ns`).
//! Deviations: those of the module. A thread that begins to wait leaves the queue at once (in 6.12, one that has run
//! more than the average stays until it is eligible, `DELAY_DEQUEUE`), and all slices are equal.

use super::RunQueue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of EEVDF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EevdfConfig {
    /// Cycles between two ticks of the timer (`CONFIG_HZ`). With 0, a slice ends when it is used up (`HRTICK`).
    pub tick_cycles: u64,
}

impl EevdfConfig {
    /// Its numbers, with their keys.
    pub(super) fn numbers(&self) -> Vec<(&'static str, u64)> {
        vec![("tick_cycles", self.tick_cycles)]
    }
}

impl RunQueue {
    /// Sum of the virtual run times in the queue, and their number.
    fn sum(&self) -> (i128, i128) {
        self.queued().fold((0, 0), |(sum, n), at| (sum + i128::from(self.threads[at].vruntime), n + 1))
    }

    /// How much less a thread has run than the average (`update_entity_lag`).
    pub(super) fn lag(&self, at: usize) -> i64 {
        let (sum, n) = self.sum();
        let most = 2 * self.slice.max(self.tick as i64 / 2);
        let lag = if n == 0 { 0 } else { sum / n - i128::from(self.threads[at].vruntime) };
        lag.clamp(-i128::from(most), i128::from(most)) as i64
    }

    /// Places a thread that can run again, or is new (`place_entity`).
    pub(super) fn place_eevdf(&mut self, at: usize, is_new: bool) {
        let (sum, n) = self.sum();
        let average = if n == 0 { i128::from(self.least) } else { sum / n };
        // Its arrival moves the average by a share of its lag.
        let lag = if n == 0 { 0 } else { i128::from(self.threads[at].lag) * (n + 1) / n };
        let thread = &mut self.threads[at];
        thread.vruntime = (average - lag) as i64;
        thread.deadline = thread.vruntime + if is_new { self.slice / 2 } else { self.slice };
    }

    /// `update_deadline`.
    pub(super) fn slice_is_over_eevdf(&mut self, running: usize) -> bool {
        let slice = self.slice;
        let thread = &mut self.threads[running];
        if thread.vruntime < thread.deadline {
            return false;
        }
        thread.deadline = thread.vruntime + slice;
        thread.in_slice = false;
        true
    }

    /// `pick_eevdf`.
    pub(super) fn pick_eevdf(&self) -> Option<usize> {
        if let Some(running) = self.running.filter(|&running| self.threads[running].in_slice) {
            return Some(running);
        }
        let (sum, n) = self.sum();
        let eligible = self.queued().filter(|&at| i128::from(self.threads[at].vruntime) * n <= sum);
        eligible.min_by_key(|&at| (self.threads[at].deadline, self.running == Some(at), at))
    }
}

#[cfg(test)]
mod tests {
    use crate::scheduler::{EevdfConfig, RunQueue, SchedulerConfig};

    fn queue(tick_cycles: u64) -> RunQueue {
        SchedulerConfig::Eevdf(EevdfConfig { tick_cycles }).run_queue(3000).unwrap()
    }

    #[test]
    fn equal_threads_take_turns_of_a_slice_after_half_a_slice_each() {
        let mut queue = queue(0);
        queue.update(&[(0, 0), (0, 1), (1, 0)]);
        let (mut now, mut turns) = (0, vec![]);
        for _ in 0..9 {
            let thread = queue.pick().unwrap();
            let end = queue.next_look(now);
            turns.push((thread, end - now));
            queue.charge(end - now);
            now = end;
            assert!(queue.slice_is_over());
        }
        let half = [((0, 0), 1500), ((0, 1), 1500), ((1, 0), 1500)];
        let whole = [((0, 0), 3000), ((0, 1), 3000), ((1, 0), 3000)];
        assert_eq!(turns, [half, whole, whole].concat());
    }

    #[test]
    fn a_tick_that_comes_late_lengthens_the_turn() {
        let mut queue = queue(4000);
        queue.update(&[(0, 0), (0, 1)]);
        let mut order = vec![];
        for tick in 0..6 {
            order.push(queue.pick().unwrap().1);
            assert_eq!(queue.next_look(tick * 4000), (tick + 1) * 4000);
            queue.charge(4000);
            assert!(queue.slice_is_over());
        }
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn a_woken_thread_waits_for_the_running_ones_slice_and_keeps_its_lag() {
        let mut queue = queue(0);
        queue.update(&[(0, 0), (0, 1)]);
        assert_eq!(queue.pick(), Some((0, 0)));
        queue.charge(1500);
        assert!(queue.slice_is_over());
        // The average is 750: the first has a lag of -750 when it begins to wait.
        queue.update(&[(0, 1)]);
        assert_eq!(queue.threads[0].lag, -750);
        assert_eq!(queue.pick(), Some((0, 1)));
        queue.charge(1000);
        assert!(queue.update(&[(0, 0), (0, 1)]));
        assert!(!queue.is_preempted(), "it runs to parity");
        // Its lag is as before: (1000 + 2500) / 2 - 2500 = -750.
        assert_eq!(queue.threads[0].vruntime, 2500);
        queue.charge(500);
        assert!(queue.slice_is_over());
        assert_eq!(queue.pick(), Some((0, 1)), "only this one is eligible");
    }
}
