//! A pool of identical units, each of which does one thing at a time: page walkers or fill buffers.
//!
//! Instructions request units in program order, not in time order: one waits for its data while a later one is ready at
//! once. So the pool records how many units are busy at each time. A request gets a unit from the first time on that
//! one is free, even before times that were already taken. If that unit is free for less than the request needs, the
//! remainder is taken from the next free times: in a processor, the work that was to begin there would begin later
//! instead. So no unit is idle while an instruction is ready, and in the long run no more is used than exists.

use pagelab_base::cycles::Cycles;

/// Number of steps that are kept.
const STEPS: usize = 256;

/// From `begin` until the next step, this many units are busy.
#[derive(Clone, Copy, Debug)]
struct Step {
    begin: Cycles,
    busy: u32,
}

/// A time at which a unit is free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub begin: Cycles,
    /// Index of the step that contains it.
    step: usize,
}

/// A pool of units and their busy times.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    units: u32,
    /// In time order. Times before the first step are over, and in the last step no unit is busy.
    steps: [Step; STEPS],
    /// Number of steps in use; there is always room for two more.
    count: usize,
    /// From this time on a unit is always free.
    full_until: Cycles,
}

impl Pool {
    pub fn new(units: u32) -> Self {
        Self { units, steps: [Step { begin: Cycles::ZERO, busy: 0 }; STEPS], count: 1, full_until: Cycles::ZERO }
    }

    /// The first time from `ready` on at which a unit is free.
    #[inline]
    pub fn first(&self, ready: Cycles) -> Free {
        let begin = ready.max(self.steps[0].begin);
        let step = self.step_of(begin);
        if begin >= self.full_until { Free { begin, step } } else { self.free_from(begin, step) }
    }

    #[inline]
    fn free_from(&self, mut begin: Cycles, mut step: usize) -> Free {
        // In the last step units are free.
        while self.steps[step].busy >= self.units {
            step += 1;
            begin = self.steps[step].begin;
        }
        Free { begin, step }
    }

    /// How much earlier than `found` a request that is ready at `before` would have had a unit for the whole of
    /// `length`.
    #[inline]
    pub fn earlier(&self, found: Free, before: Cycles, length: Cycles) -> Cycles {
        if before >= self.full_until {
            return found.begin - before;
        }
        let Free { mut begin, step } = self.first(before);
        for at in step + 1..self.count {
            let Step { begin: next, busy } = self.steps[at];
            if next >= found.begin.min(begin + length) {
                break;
            }
            if busy >= self.units {
                // In the last step units are free.
                begin = self.steps[at + 1].begin;
            }
        }
        found.begin.saturating_sub(begin)
    }

    /// `found`, or `time` if that is later.
    #[inline]
    pub fn from(&self, found: Free, time: Cycles) -> Free {
        if time > found.begin { Free { begin: time, step: self.step_of(time) } } else { found }
    }

    /// Occupies a unit until `end` from a time that was found free; nothing may have been occupied since.
    #[inline]
    pub fn occupy(&mut self, found: Free, end: Cycles) {
        if found.begin >= end {
            return;
        }
        if found.begin >= self.full_until {
            return self.occupy_whole(found, end);
        }
        let (mut free, mut left) = (found, end - found.begin);
        while left > Cycles::ZERO {
            // Occupying may have dropped older steps; times before the first are over.
            let begin = free.begin.max(self.steps[0].begin);
            free = self.free_from(begin, self.step_of(begin));
            let until = (free.step + 1..self.count).find(|&at| self.steps[at].busy >= self.units);
            let room = until.map_or(left, |at| left.min(self.steps[at].begin - free.begin));
            self.occupy_whole(free, free.begin + room);
            left -= room;
            free.begin += room;
        }
    }

    /// [`Self::occupy`] of a time that is free as a whole.
    #[inline]
    fn occupy_whole(&mut self, Free { begin, step }: Free, end: Cycles) {
        let (mut last, before) = (step, self.steps[step]);
        let mut most = before.busy + 1;
        while last + 1 < self.count && self.steps[last + 1].begin <= end {
            last += 1;
        }
        // Insert steps for begin and end, unless there are such steps.
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
            // An upper bound: the pool may be full for a shorter time.
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

    /// Index of the step that contains a time that is not over.
    #[inline]
    fn step_of(&self, time: Cycles) -> usize {
        // Most requests are for times near the end.
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

    /// Merges a step with the previous one if they have the same number of busy units.
    #[inline]
    fn join(&mut self, step: usize) {
        if step > 0 && self.steps[step].busy == self.steps[step - 1].busy {
            for at in step + 1..self.count {
                self.steps[at - 1] = self.steps[at];
            }
            self.count -= 1;
        }
    }

    /// Drops the older half of the steps.
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
        let free = pool.first(Cycles(ready));
        pool.occupy(free, free.begin + Cycles(length));
        free.begin.0
    }

    fn taken(pool: &mut Pool, wanted: &[(u64, u64)]) -> Vec<u64> {
        wanted.iter().map(|&(ready, length)| take(pool, ready, length)).collect()
    }

    #[test]
    fn a_pool_serves_at_most_its_size_at_a_time() {
        for units in [1, 2, 5] {
            let mut pool = Pool::new(units);
            let found = taken(&mut pool, &[(10, 30); 20]);
            let expected: Vec<u64> = (0..20).map(|n| 10 + n / u64::from(units) * 30).collect();
            assert_eq!(found, expected);
            assert!(pool.count < 4, "what touches is one");
        }
    }

    #[test]
    fn earlier_requests_use_gaps_before_reserved_times() {
        let mut pool = Pool::new(1);
        // The third finds 60 of its 80 cycles before the one that begins at 100, and gets the rest after it.
        assert_eq!(taken(&mut pool, &[(100, 50), (0, 40), (0, 80), (0, 61), (0, 1)]), [100, 0, 40, 170, 231]);
    }

    #[test]
    fn a_request_that_does_not_fit_a_gap_comes_later() {
        let mut pool = Pool::new(1);
        assert_eq!(taken(&mut pool, &[(50, 200), (320, 10)]), [50, 320]);
        let earlier = |length| pool.earlier(pool.first(Cycles(330)), Cycles(0), Cycles(length)).0;
        assert_eq!([earlier(50), earlier(51), earlier(71)], [330, 80, 0]);
    }

    #[test]
    fn a_late_request_leaves_the_time_before_it_free() {
        let mut pool = Pool::new(1);
        let free = pool.first(Cycles(0));
        pool.occupy(pool.from(free, Cycles(100)), Cycles(110));
        assert_eq!(taken(&mut pool, &[(0, 90), (0, 10), (0, 1)]), [0, 90, 110]);
        assert_eq!(pool.count, 2, "all is one");
    }

    #[test]
    fn it_does_not_matter_which_unit_is_free() {
        // One is busy before 200, and one from 250 on: a request at 100 needs one until 277.
        let mut pool = Pool::new(2);
        assert_eq!(taken(&mut pool, &[(0, 100), (0, 200), (250, 177), (100, 177)]), [0, 0, 250, 100]);
    }

    #[test]
    fn nothing_takes_no_time_and_old_times_are_over() {
        let mut pool = Pool::new(1);
        assert_eq!(taken(&mut pool, &[(5, 0), (5, 10), (7, 0)]), [5, 5, 15]);
        // Requests without overlap, with a gap after each.
        let apart: Vec<_> = (1..2000).map(|n| (20 * n, 10)).collect();
        assert!(taken(&mut pool, &apart).iter().zip(&apart).all(|(found, wanted)| *found == wanted.0));
        let first = taken(&mut pool, &[(0, 10)])[0];
        assert!((20 * 1800..20 * 1940).contains(&first) && first % 20 == 10, "{first}");
    }

    /// Long requests are served in many pieces, and old steps are dropped meanwhile.
    #[test]
    fn steps_may_be_forgotten_while_a_time_is_taken() {
        let mut draw = pagelab_trace::rng::Rng::new(1, "pool");
        for (units, span, longest) in [(6, 3000, 200), (12, 400, 60), (16, 400, 60)] {
            let (mut pool, mut now) = (Pool::new(units), 0);
            for round in 0..50_000 {
                let ready = now + draw.below(span);
                let length = 1 + if draw.below(40) == 0 { draw.below(longest) } else { draw.below(30) };
                now += draw.below(if round % 1000 < 500 { 3 } else { 40 });
                assert!(take(&mut pool, ready, length) >= ready);
            }
        }
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
                let free: Vec<u64> = (ready..8000).filter(|&cycle| busy[cycle as usize] < units).collect();
                assert_eq!(begin, free[0], "{ready} {length}");
                free[..length as usize].iter().for_each(|&cycle| busy[cycle as usize] += 1);
            }
        }
    }
}
