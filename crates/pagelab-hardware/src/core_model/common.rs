//! Resources that the hardware threads of a core share: fill buffers, page walkers, and the issue width.
//!
//! Models: a timeline of busy times for each buffer, each walker and the issue width. Threads are simulated in turns,
//! so one may be ahead of another in time. A request, in order of simulation, gets the earliest free time, even before
//! times that were already taken. No thread is slower than with an equal share of its own (of F units among n active
//! threads, F/n). If a thread gets a unit earlier than the timeline is free, later requests pay for it, so in the long
//! run no more is used than exists.
//! Source: Intel, Optimization Reference Manual 248966, "Intel Hyper-Threading Technology": the reorder buffer and the
//! load and store buffers are partitioned, caches and execution units shared, and instructions are fetched from the
//! threads alternately unless one is stalled; Marr et al., "Hyper-Threading Technology Architecture and
//! Microarchitecture" (Intel Technology Journal, 2002): partitioned resources are recombined while only one thread is
//! active. That fill buffers and walkers are shared is an estimate.
//! Deviations: within a turn (`engine.sync_quantum_cycles`) more units may be in use than exist. A buffer whose line
//! waits for memory's channel is busy for the plain latency only. A thread that wakes does not see what began while it
//! slept.

use std::collections::VecDeque;

use pagelab_base::cycles::Cycles;

/// The other hardware threads of a core, at the moment when one of them resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Siblings {
    /// How many of them have something to run.
    pub active: u32,
    /// The earliest current time among these; [`Cycles::MAX`] if there are none.
    pub now: Cycles,
}

/// Busy times of a resource in order; they neither overlap nor touch.
#[derive(Clone, Debug, Default)]
struct BusyTimes(VecDeque<(Cycles, Cycles)>);

impl BusyTimes {
    /// Drops busy times that end by `until`; no later request is for an earlier time.
    fn forget(&mut self, until: Cycles) {
        while self.0.front().is_some_and(|taken| taken.1 <= until) {
            self.0.pop_front();
        }
    }

    /// The earliest start, from `from` on, of a free interval of this length.
    fn free_for(&self, from: Cycles, long: Cycles) -> Cycles {
        let mut begin = from;
        for &(taken, end) in self.0.iter().filter(|taken| taken.1 > from) {
            if begin + long <= taken {
                break;
            }
            begin = end;
        }
        begin
    }

    /// The time by which the resource has been free for this long in total since `from`.
    fn free_by(&self, from: Cycles, long: Cycles) -> Cycles {
        let (mut at, mut left) = (from, long);
        for &(taken, end) in self.0.iter().filter(|taken| taken.1 > from) {
            if at + left <= taken {
                break;
            }
            left -= taken.saturating_sub(at);
            at = end;
        }
        at + left
    }

    /// Marks an interval as busy, even where parts of it already are.
    fn take(&mut self, begin: Cycles, end: Cycles) {
        if begin == end {
            return;
        }
        let first = self.0.partition_point(|taken| taken.1 < begin);
        let behind = self.0.partition_point(|taken| taken.0 <= end);
        if first == behind {
            return self.0.insert(first, (begin, end));
        }
        self.0[first] = (self.0[first].0.min(begin), self.0[behind - 1].1.max(end));
        self.0.drain(first + 1..behind);
    }
}

/// Fill buffers or page walkers, each with its timeline.
#[derive(Clone, Debug)]
struct Units(Vec<BusyTimes>);

impl Units {
    fn new(units: u32) -> Self {
        Self(vec![BusyTimes::default(); units as usize])
    }

    /// Takes a unit for this long, from `from` on at the earliest; returns the start. With its own share of the units
    /// the thread could start at another time, and the earlier of both counts. No later request is for a time before
    /// `floor`.
    fn take(&mut self, share: &mut UnitShare, from: Cycles, long: Cycles, floor: Cycles) -> Cycles {
        let mut first = (Cycles::MAX, 0);
        for (number, unit) in self.0.iter_mut().enumerate() {
            unit.forget(floor);
            first = first.min((unit.free_for(from, long), number));
        }
        let (begin, number) = first;
        self.0[number].take(begin, begin + long);
        begin.min(share.take(from, long))
    }
}

/// A thread's equal share of the units.
#[derive(Clone, Debug, Default)]
struct UnitShare {
    /// When each unit of the share is free.
    free: Vec<Cycles>,
    /// A unit of the share stays busy for `times / of` times the duration of a use, since shares need not be whole
    /// units.
    times: u64,
    units: u64,
}

impl UnitShare {
    /// The share of one of `threads` threads.
    fn new(units: usize, threads: u32) -> Self {
        let (units, threads) = (units as u64, u64::from(threads));
        let whole = units.div_ceil(threads);
        Self { free: vec![Cycles::ZERO; whole as usize], times: threads * whole, units }
    }

    fn take(&mut self, from: Cycles, long: Cycles) -> Cycles {
        let free = self.free.iter_mut().min().expect("a share has at least one unit");
        let begin = from.max(*free);
        *free = begin + Cycles((long.0 * self.times).div_ceil(self.units));
        begin
    }
}

/// A line that one of the threads has requested.
#[derive(Clone, Copy, Debug, Default)]
struct RequestedLine {
    number: u64,
    requested_at: Cycles,
    arrival: Cycles,
}

/// The resources that the hardware threads of a core share.
#[derive(Clone, Debug)]
pub struct Common {
    fills: Units,
    walks: Units,
    width: BusyTimes,
    /// The most recent lines, as many as the threads' buffers can hold; the oldest is at `oldest`.
    lines: Vec<RequestedLine>,
    oldest: usize,
    last_there: Cycles,
}

impl Common {
    /// The shared resources of a core with this many fill buffers and page walkers.
    pub fn new(fill_buffers: u32, page_walkers: u32) -> Self {
        Self {
            fills: Units::new(fill_buffers),
            walks: Units::new(page_walkers),
            width: BusyTimes::default(),
            lines: vec![RequestedLine::default(); 2 * fill_buffers as usize],
            oldest: 0,
            last_there: Cycles::ZERO,
        }
    }

    /// Issues instructions that would take `long` alone, from `from` on; returns the additional time. It is limited to
    /// what the thread would wait with an equal share of the width among `threads`.
    fn enter(&mut self, from: Cycles, long: Cycles, threads: u32, floor: Cycles) -> Cycles {
        self.width.forget(floor);
        let end = self.width.free_by(from, long);
        self.width.take(from, end);
        (end - from - long).min(u64::from(threads - 1) * long)
    }

    /// Records that a thread has requested a line, and the line's arrival.
    fn note_line(&mut self, number: u64, requested_at: Cycles, arrival: Cycles) {
        self.lines[self.oldest] = RequestedLine { number, requested_at, arrival };
        self.oldest = (self.oldest + 1) % self.lines.len();
        self.last_there = self.last_there.max(arrival);
    }

    /// Arrival of a line that a thread finds in the cache at `hit`. If the thread, simulated later, requests the line
    /// earlier in time than the other thread did, the line arrives as much earlier.
    fn line_there(&self, number: u64, hit: Cycles) -> Cycles {
        if self.last_there <= hit {
            return hit;
        }
        let line = self.lines.iter().filter(|line| line.number == number).max_by_key(|line| line.arrival);
        line.map_or(hit, |line| hit.max(line.arrival.min(hit + (line.arrival - line.requested_at))))
    }
}

/// One hardware thread of a core; by default it is alone.
#[derive(Clone, Debug, Default)]
pub struct SmtThread {
    /// The shared resources, while this thread runs.
    common: Option<Box<Common>>,
    /// How many of the other threads have something to run.
    others: u32,
    /// The earliest current time among these.
    now: Cycles,
    fills: UnitShare,
    walks: UnitShare,
}

/// In each request `now` is the thread's current time: none of its later requests is for an earlier time.
impl SmtThread {
    /// Resumes the thread with the shared resources; returns whether the number of active threads has changed since it
    /// last ran.
    pub fn resume(&mut self, common: Box<Common>, siblings: Siblings) -> bool {
        let differs = siblings.active != self.others;
        if differs {
            self.fills = UnitShare::new(common.fills.0.len(), siblings.active + 1);
            self.walks = UnitShare::new(common.walks.0.len(), siblings.active + 1);
        }
        *self = Self { common: Some(common), others: siblings.active, now: siblings.now, ..std::mem::take(self) };
        differs
    }

    /// Pauses the thread and returns the shared resources.
    pub fn pause(&mut self) -> Option<Box<Common>> {
        self.common.take()
    }

    /// Whether other threads have something to run.
    #[inline(always)]
    pub fn shares_core(&self) -> bool {
        self.others > 0
    }

    /// How long instructions that would take `long` alone, from `from` on, wait for those of other threads.
    #[inline(never)]
    pub fn enter(&mut self, from: Cycles, long: Cycles, now: Cycles) -> Cycles {
        let Some(common) = &mut self.common else { return Cycles::ZERO };
        common.enter(from, long, self.others + 1, now.min(self.now))
    }

    /// Start of the use of a fill buffer that is needed for this long from `from` on.
    #[inline]
    pub fn take_fill(&mut self, from: Cycles, long: Cycles, now: Cycles) -> Cycles {
        match &mut self.common {
            Some(common) if self.others > 0 => common.fills.take(&mut self.fills, from, long, now.min(self.now)),
            _ => from,
        }
    }

    /// Start of the use of a page walker; see [`Self::take_fill`].
    #[inline]
    pub fn take_walk(&mut self, from: Cycles, long: Cycles, now: Cycles) -> Cycles {
        match &mut self.common {
            Some(common) if self.others > 0 => common.walks.take(&mut self.walks, from, long, now.min(self.now)),
            _ => from,
        }
    }

    /// Records a requested line, which other threads may find in flight.
    #[inline]
    pub fn note_line(&mut self, number: u64, requested_at: Cycles, arrival: Cycles) {
        if let Some(common) = self.common.as_mut().filter(|_| self.others > 0) {
            common.note_line(number, requested_at, arrival);
        }
    }

    /// Arrival of a line that the thread finds in the cache at `hit`; another thread may have requested it.
    #[inline]
    pub fn line_there(&self, number: u64, hit: Cycles) -> Cycles {
        match &self.common {
            Some(common) if self.others > 0 => common.line_there(number, hit),
            _ => hit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(taken: &[(u64, u64)]) -> BusyTimes {
        let mut timeline = BusyTimes::default();
        taken.iter().for_each(|&(begin, end)| timeline.take(Cycles(begin), Cycles(end)));
        timeline
    }

    #[test]
    fn times_that_are_taken_are_joined_and_gaps_between_them_found() {
        let busy = timeline(&[(10, 20), (40, 50), (20, 25), (60, 70), (45, 62), (5, 5)]);
        assert_eq!(busy.0, [(10, 25), (40, 70)].map(|(begin, end)| (Cycles(begin), Cycles(end))));
        for (from, long, begins) in [(0, 10, 0), (0, 11, 25), (12, 15, 25), (26, 15, 70), (30, 10, 30), (80, 9, 80)] {
            assert_eq!(busy.free_for(Cycles(from), Cycles(long)), Cycles(begins), "{from} {long}");
        }
        for (from, long, end) in [(0, 10, 10), (0, 11, 26), (12, 15, 40), (12, 16, 71), (45, 1, 71), (80, 9, 89)] {
            assert_eq!(busy.free_by(Cycles(from), Cycles(long)), Cycles(end), "{from} {long}");
        }
        let mut busy = busy;
        busy.forget(Cycles(25));
        assert_eq!(busy.0.len(), 1);
    }

    #[test]
    fn units_are_taken_in_the_gaps_before_what_another_has_taken() {
        let mut units = Units::new(1);
        // Both have used more than their share.
        let mut none = UnitShare { free: vec![Cycles(1 << 40)], times: 1, units: 1 };
        let mut take = |from| units.take(&mut none, Cycles(from), Cycles(100), Cycles::ZERO);
        assert_eq!(take(1000), Cycles(1000));
        assert_eq!(take(0), Cycles(0), "a time line that is only known from its end would say 1100");
    }

    #[test]
    fn a_thread_has_its_share_whatever_others_have_taken() {
        // One of two threads has used all buffers for long. The other gets its share, 3/2 buffers.
        let mut units = Units::new(3);
        let mut shares = [UnitShare::new(3, 2), UnitShare::new(3, 2)];
        (0..300).for_each(|_| {
            units.take(&mut shares[0], Cycles::ZERO, Cycles(100), Cycles::ZERO);
        });
        let mut last = Cycles::ZERO;
        (0..200).for_each(|_| last = units.take(&mut shares[1], Cycles::ZERO, Cycles(100), Cycles::ZERO));
        // 100 rounds of two requests, each 4/3 as long.
        assert_eq!(last, Cycles(99 * 134));
        // Without a share, a thread waits for all earlier requests: 500 of 100 cycles on three units.
        let mut none = UnitShare { free: vec![Cycles(1 << 40)], times: 1, units: 1 };
        assert_eq!(units.take(&mut none, Cycles::ZERO, Cycles(100), Cycles::ZERO), Cycles(16_600));
    }

    #[test]
    fn width_is_shared_by_who_enters_at_the_same_time() {
        let mut common = Common::new(1, 1);
        let mut enter = |from, long| common.enter(Cycles(from), Cycles(long), 2, Cycles::ZERO).0;
        // One enters for 100 cycles; meanwhile the other may enter every other cycle, for which the first has to wait
        // later.
        assert_eq!(enter(0, 100), 0);
        assert_eq!([enter(0, 10), enter(20, 10)], [10, 10]);
        assert_eq!(enter(100, 100), 20);
        // Alone again.
        assert_eq!(enter(500, 10), 0);
    }

    #[test]
    fn lines_of_others_are_waited_for_and_no_longer_than_ones_own() {
        let mut common = Common::new(1, 1);
        common.note_line(7, Cycles(1000), Cycles(1200));
        let arrival = |line, hit| common.line_there(line, Cycles(hit)).0;
        assert_eq!([arrival(7, 1100), arrival(7, 1300), arrival(7, 500), arrival(8, 1100)], [1200, 1300, 700, 1100]);
    }
}
