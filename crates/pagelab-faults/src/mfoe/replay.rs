//! Replays the faults of all cores in the order of their new times against the rings.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    outcome::{CoreOutcome, Misses, Outcome},
    parameters::{Config, InitialFill},
    refill::{Rings, Thread, Work},
};
use crate::timeline::{CoreFault, Timeline};

/// A core's progress through its faults.
struct Core<'t> {
    faults: &'t [CoreFault],
    /// Index of the next fault.
    at: usize,
    /// How much later its faults come than in the trace.
    shift_ps: i64,
    outcome: CoreOutcome,
}

impl Core<'_> {
    /// Time of the next fault; none if there is no other.
    fn next_ps(&self) -> Option<u64> {
        let fault = self.faults.get(self.at)?;
        let time = picoseconds(fault.time_ns).checked_add_signed(self.shift_ps);
        Some(time.expect("a fault is saved no more time than there is to the next"))
    }

    /// Handles the next fault.
    fn serve(&mut self, hit: bool, config: &Config) {
        let before = picoseconds(u64::from(self.faults[self.at].latency_ns));
        let after = if hit { config.hit_ps } else { before + config.miss_penalty_ps };
        self.at += 1;
        self.shift_ps += after.cast_signed() - before.cast_signed();
        self.outcome.faults += 1;
        self.outcome.hits += u64::from(hit);
        self.outcome.before_ps += before;
        self.outcome.after_ps += after;
    }
}

fn picoseconds(ns: u64) -> u64 {
    ns * 1000
}

/// Runs the model on `timeline`.
pub fn run(config: &Config, timeline: &Timeline) -> Outcome {
    run_with(config, timeline, &mut |_, _, _| {})
}

/// [`run`] with a callback: `each` gets core, new time in picoseconds and whether it was a hit, for every fault in the
/// new order.
pub fn run_with(config: &Config, timeline: &Timeline, each: &mut dyn FnMut(usize, u64, bool)) -> Outcome {
    let begin = |faults| Core { faults, at: 0, shift_ps: 0, outcome: CoreOutcome::default() };
    let mut cores: Vec<_> = timeline.cores.iter().map(|faults| begin(&faults[..])).collect();
    let full = config.initial_fill == InitialFill::Done;
    let pages = if full { config.ring_entries } else { 0 };
    let mut rings = Rings { pages: vec![pages; cores.len()], entries: config.ring_entries };
    let count = cores.len().min(config.background_threads as usize);
    let served = |thread| (thread..cores.len()).step_by(count).collect();
    let mut threads: Vec<_> = (0..count).map(|thread| Thread::new(served(thread), config)).collect();
    let mut misses = Misses::default();
    let first = |(core, state): (usize, &Core)| state.next_ps().map(|time| Reverse((time, core)));
    let mut next: BinaryHeap<_> = cores.iter().enumerate().filter_map(first).collect();
    while let Some(Reverse((now, core))) = next.pop() {
        let thread = &mut threads[core % count];
        thread.advance(now, &mut rings, config);
        let hit = rings.pages[core] > 0;
        if hit {
            rings.pages[core] -= 1;
        } else if thread.is_initial() {
            misses.initial += 1;
        } else if thread.is_busy() {
            misses.refilling += 1;
        } else {
            misses.waiting += 1;
        }
        each(core, now, hit);
        cores[core].serve(hit, config);
        next.extend(cores[core].next_ps().map(|time| Reverse((time, core))));
    }
    let work = threads.iter().fold(Work::default(), |sum, thread| sum.plus(&thread.work));
    let cores = cores.into_iter().map(|core| core.outcome).collect();
    Outcome::new(timeline, cores, misses, work)
}
