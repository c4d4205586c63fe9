//! Units of a kind, each of which does one thing at a time: page walkers, fill buffers.
//!
//! Instructions ask in program order, and not in that of time: one waits for its data while another behind it is ready at once. So what
//! is kept is how many units are busy when, and who asks takes the first time that one is free for as long as needed, also before what
//! was taken already. Which of the units it is does not matter: times that overlap at most as often as there are units can always be
//! dealt out to them.

use crate::base::cycles::Cycles;

/// Steps that are kept.
const STEPS: usize = 256;

/// When units of a kind are busy.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    units: u32,
    /// In the order of time. What is before the first is over, and after the last none is busy.
    begins: [Cycles; STEPS],
    /// How many units are busy from a step's begin to the next one's.
    busy: [u32; STEPS],
    steps: usize,
}

impl Pool {
    pub fn new(units: u32) -> Self {
        Self { units, begins: [Cycles::ZERO; STEPS], busy: [0; STEPS], steps: 1 }
    }

    /// The first time from `ready` on that a unit is free for `length`.
    #[inline]
    pub fn first(&self, ready: Cycles, length: Cycles) -> Cycles {
        self.first_from(self.step_of(ready), ready, length)
    }

    /// Takes a unit from the [first time](Self::first) on for `length`; returns when that begins.
    #[inline]
    pub fn take(&mut self, ready: Cycles, length: Cycles) -> Cycles {
        let begin = self.first(ready, length);
        self.occupy(begin, begin + length);
        begin
    }

    /// Has a unit busy for a time.
    #[inline]
    pub fn occupy(&mut self, begin: Cycles, end: Cycles) {
        if begin >= end {
            return;
        }
        if self.steps + 2 > STEPS {
            self.forget();
        }
        let last = self.split(end);
        let first = self.split(begin);
        // A step for the begin moves that of the end on, unless there was one.
        let last = last + usize::from(self.begins[last] < end);
        self.busy[first..last].iter_mut().for_each(|busy| *busy += 1);
        self.join(last);
        self.join(first);
    }

    /// The step that a time lies in; the first, if it is over.
    #[inline]
    fn step_of(&self, time: Cycles) -> usize {
        // Most ask for what is near the end.
        (1..self.steps).rev().find(|&step| self.begins[step] <= time).unwrap_or(0)
    }

    #[inline]
    fn first_from(&self, step: usize, ready: Cycles, length: Cycles) -> Cycles {
        let mut begin = ready.max(self.begins[0]);
        for at in step..self.steps {
            if self.begins[at] >= begin + length && self.begins[at] > begin {
                break;
            }
            if self.busy[at] >= self.units {
                // The last step is free.
                begin = self.begins[at + 1];
            }
        }
        begin
    }

    /// The step that begins at a time, which is made if there is none. What is over is the first step's.
    #[inline]
    fn split(&mut self, time: Cycles) -> usize {
        let step = self.step_of(time);
        if self.begins[step] >= time {
            return step;
        }
        self.begins.copy_within(step + 1..self.steps, step + 2);
        self.busy.copy_within(step + 1..self.steps, step + 2);
        (self.begins[step + 1], self.busy[step + 1]) = (time, self.busy[step]);
        self.steps += 1;
        step + 1
    }

    /// Makes one of a step and the one before, if as many are busy.
    #[inline]
    fn join(&mut self, step: usize) {
        if step > 0 && self.busy[step] == self.busy[step - 1] {
            self.begins.copy_within(step + 1..self.steps, step);
            self.busy.copy_within(step + 1..self.steps, step);
            self.steps -= 1;
        }
    }

    /// Forgets the older half.
    #[cold]
    fn forget(&mut self) {
        let half = self.steps / 2;
        self.begins.copy_within(half..self.steps, 0);
        self.busy.copy_within(half..self.steps, 0);
        self.steps -= half;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pool: &mut Pool, wanted: &[(u64, u64)]) -> Vec<u64> {
        wanted.iter().map(|&(ready, length)| pool.take(Cycles(ready), Cycles(length)).0).collect()
    }

    #[test]
    fn so_many_are_served_at_a_time() {
        for units in [1, 2, 5] {
            let mut pool = Pool::new(units);
            let found = taken(&mut pool, &[(10, 30); 20]);
            let expected: Vec<u64> = (0..20).map(|n| 10 + n / u64::from(units) * 30).collect();
            assert_eq!(found, expected);
            assert!(pool.steps < 4, "what touches is one");
        }
    }

    #[test]
    fn what_is_ready_earlier_goes_before_what_was_taken_if_it_fits() {
        let mut pool = Pool::new(1);
        assert_eq!(taken(&mut pool, &[(100, 50), (0, 40), (0, 60), (0, 61), (0, 1)]), [100, 0, 40, 150, 211]);
    }

    #[test]
    fn it_does_not_matter_which_unit_is_free() {
        // One is busy before 200, and one from 250 on: whoever comes at 100 needs one until 277.
        let mut pool = Pool::new(2);
        assert_eq!(taken(&mut pool, &[(0, 100), (0, 200), (250, 177), (100, 177)]), [0, 0, 250, 100]);
    }

    #[test]
    fn nothing_takes_no_time_and_old_times_are_over() {
        let mut pool = Pool::new(1);
        assert_eq!(taken(&mut pool, &[(5, 0), (5, 10), (7, 0)]), [5, 5, 15]);
        // Nobody else is there, with a gap behind each.
        let apart: Vec<_> = (1..2000).map(|n| (20 * n, 10)).collect();
        assert!(taken(&mut pool, &apart).iter().zip(&apart).all(|(found, wanted)| *found == wanted.0));
        let first = taken(&mut pool, &[(0, 10)])[0];
        assert!((20 * 1800..20 * 2000).contains(&first) && first % 20 == 10, "{first}");
    }

    /// Compares with a record of each cycle.
    #[test]
    fn as_counted_cycle_by_cycle() {
        let mut draw = pagelab_trace::rng::Rng::new(3, "pool");
        for units in 1..=4 {
            let (mut pool, mut busy) = (Pool::new(units), vec![0; 8000]);
            for round in 0..150 {
                let (ready, length) = (round * 8 + draw.below(120), draw.below(60));
                let begin = pool.take(Cycles(ready), Cycles(length)).0;
                let fits = |at: u64| (at..at + length.max(1)).all(|cycle| busy[cycle as usize] < units);
                assert_eq!(Some(begin), (ready..).find(|&at| fits(at)), "{ready} {length}");
                (begin..begin + length).for_each(|cycle| busy[cycle as usize] += 1);
            }
        }
    }
}
