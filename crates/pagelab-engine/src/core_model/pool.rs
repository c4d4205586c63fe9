//! Units of a kind, each of which does one thing at a time: page walkers, fill buffers.
//!
//! Instructions ask in program order, and not in that of time: one waits for its data while another behind it is ready at once. So what
//! is kept is how many units are busy when, and who asks takes the first time that one is free for as long as needed, also before what
//! was taken already. Which of the units it is does not matter: times that overlap at most as often as there are units can always be
//! dealt out to them.

use crate::base::cycles::Cycles;

/// Steps that are kept.
const STEPS: usize = 256;

/// From when on so many units are busy, until the next step begins.
#[derive(Clone, Copy, Debug)]
struct Step {
    begin: Cycles,
    busy: u32,
}

/// A time from which on a unit is free for as long as was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub begin: Cycles,
    /// The step that it lies in.
    step: usize,
}

/// When units of a kind are busy.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    units: u32,
    /// In the order of time. What is before the first is over, and in the last none is busy.
    steps: [Step; STEPS],
    /// Steps there are. There is always room for two more.
    count: usize,
    /// From when on there is always one free, for all that is taken so far.
    full_until: Cycles,
}

impl Pool {
    pub fn new(units: u32) -> Self {
        Self { units, steps: [Step { begin: Cycles::ZERO, busy: 0 }; STEPS], count: 1, full_until: Cycles::ZERO }
    }

    /// The first time from `ready` on that a unit is free for `length`.
    #[inline]
    pub fn first(&self, ready: Cycles, length: Cycles) -> Free {
        let mut begin = ready.max(self.steps[0].begin);
        let mut step = self.step_of(begin);
        if begin >= self.full_until {
            return Free { begin, step };
        }
        let mut at = step;
        loop {
            if self.steps[at].busy >= self.units {
                // The last is free.
                (at, step) = (at + 1, at + 1);
                begin = self.steps[at].begin;
                continue;
            }
            at += 1;
            if at == self.count || self.steps[at].begin >= begin + length {
                return Free { begin, step };
            }
        }
    }

    /// How much earlier a unit is free for one that is ready at `before` than at what was found for a later one.
    #[inline]
    pub fn earlier(&self, found: Free, before: Cycles, length: Cycles) -> Cycles {
        if before >= self.full_until { found.begin - before } else { found.begin - self.first(before, length).begin }
    }

    /// What was found free, but not before another time.
    #[inline]
    pub fn from(&self, found: Free, time: Cycles) -> Free {
        if time > found.begin { Free { begin: time, step: self.step_of(time) } } else { found }
    }

    /// Has a unit busy from a time on that was found free, with nothing taken since.
    #[inline]
    pub fn occupy(&mut self, Free { begin, step }: Free, end: Cycles) {
        if begin >= end {
            return;
        }
        let (mut last, before) = (step, self.steps[step]);
        let mut most = before.busy + 1;
        while last + 1 < self.count && self.steps[last + 1].begin <= end {
            last += 1;
        }
        // Steps for the begin and for the end, unless there are such.
        let (splits, ends) = (before.begin < begin, self.steps[last].begin < end);
        let shift = usize::from(splits);
        for at in (last + 1..self.count).rev() {
            self.steps[at + shift + usize::from(ends)] = self.steps[at];
        }
        let free_again = Step { begin: end, busy: self.steps[last].busy };
        self.steps[last + shift + usize::from(ends)] = free_again;
        for at in (step + 1..last + usize::from(ends)).rev() {
            let Step { begin, busy } = self.steps[at];
            self.steps[at + shift] = Step { begin, busy: busy + 1 };
            most = most.max(busy + 1);
        }
        self.steps[step + shift] = Step { begin, busy: before.busy + 1 };
        if most >= self.units {
            // Perhaps not quite until then.
            self.full_until = self.full_until.max(end);
        }
        self.count += shift + usize::from(ends);
        if !ends {
            self.join(last + shift);
        }
        if !splits {
            self.join(step);
        }
        if self.count + 2 > STEPS {
            self.forget();
        }
    }

    /// The step that a time lies in that is not over.
    #[inline]
    fn step_of(&self, time: Cycles) -> usize {
        // Most ask for what is near the end.
        let near = self.count.saturating_sub(8);
        if self.steps[near].begin > time {
            return self.steps[..near].partition_point(|step| step.begin <= time) - 1;
        }
        let mut step = self.count - 1;
        while self.steps[step].begin > time {
            step -= 1;
        }
        step
    }

    /// Makes one of a step and the one before, if as many are busy.
    #[inline]
    fn join(&mut self, step: usize) {
        if step > 0 && self.steps[step].busy == self.steps[step - 1].busy {
            for at in step + 1..self.count {
                self.steps[at - 1] = self.steps[at];
            }
            self.count -= 1;
        }
    }

    /// Forgets the older half.
    #[cold]
    fn forget(&mut self) {
        let half = self.count / 2;
        self.steps.copy_within(half..self.count, 0);
        self.count -= half;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pool: &mut Pool, ready: u64, length: u64) -> u64 {
        let free = pool.first(Cycles(ready), Cycles(length));
        pool.occupy(free, free.begin + Cycles(length));
        free.begin.0
    }

    fn taken(pool: &mut Pool, wanted: &[(u64, u64)]) -> Vec<u64> {
        wanted.iter().map(|&(ready, length)| take(pool, ready, length)).collect()
    }

    #[test]
    fn so_many_are_served_at_a_time() {
        for units in [1, 2, 5] {
            let mut pool = Pool::new(units);
            let found = taken(&mut pool, &[(10, 30); 20]);
            let expected: Vec<u64> = (0..20).map(|n| 10 + n / u64::from(units) * 30).collect();
            assert_eq!(found, expected);
            assert!(pool.count < 4, "what touches is one");
        }
    }

    #[test]
    fn what_is_ready_earlier_goes_before_what_was_taken_if_it_fits() {
        let mut pool = Pool::new(1);
        assert_eq!(taken(&mut pool, &[(100, 50), (0, 40), (0, 60), (0, 61), (0, 1)]), [100, 0, 40, 150, 211]);
    }

    #[test]
    fn what_begins_later_than_it_could_leaves_the_time_before() {
        let mut pool = Pool::new(1);
        let free = pool.first(Cycles(0), Cycles(10));
        pool.occupy(pool.from(free, Cycles(100)), Cycles(110));
        assert_eq!(taken(&mut pool, &[(0, 90), (0, 10), (0, 1)]), [0, 90, 110]);
        assert_eq!(pool.count, 2, "all is one");
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
        assert!((20 * 1800..20 * 1940).contains(&first) && first % 20 == 10, "{first}");
    }

    /// Compares with a record of each cycle.
    #[test]
    fn as_counted_cycle_by_cycle() {
        let mut draw = pagelab_trace::rng::Rng::new(3, "pool");
        for units in 1..=4 {
            let (mut pool, mut busy) = (Pool::new(units), vec![0; 8000]);
            for round in 0..150 {
                let (ready, length) = (round * 8 + draw.below(120), draw.below(60));
                let begin = take(&mut pool, ready, length);
                let fits = |at: u64| (at..at + length.max(1)).all(|cycle| busy[cycle as usize] < units);
                assert_eq!(Some(begin), (ready..).find(|&at| fits(at)), "{ready} {length}");
                (begin..begin + length).for_each(|cycle| busy[cycle as usize] += 1);
            }
        }
    }
}
