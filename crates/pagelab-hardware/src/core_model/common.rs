//! What the hardware threads of a core have in common: fill buffers, page walkers, and the width at which instructions
//! enter.
//!
//! Models: each buffer, each walker and the width has a time line of when it is taken. Who asks first in the simulation
//! gets the first time that is free, also one before what another has taken already, for threads are simulated in turns
//! and one may be ahead of the other. No thread is later than it would be with its share alone (of F units and n active
//! threads, F/n): what it is ahead of the time line by is taken from that later, so that in the long run no more is
//! used than there is.
//! Source: Intel, Optimization Reference Manual 248966, "Intel Hyper-Threading Technology": the reorder buffer and the
//! load and store buffers are partitioned, caches and execution units shared, and instructions are taken from the
//! threads in turn unless one cannot go on; Marr et al., "Hyper-Threading Technology Architecture and
//! Microarchitecture" (Intel Technology Journal, 2002): what is partitioned is one again while only one thread is
//! active. That fill buffers and walkers are shared is an estimate.
//! Deviations: for as long as a turn (`engine.sync_quantum_cycles`) more may be in use than there is. A buffer that
//! waits for memory's channel is taken for the latency alone. A thread that wakes does not see what was begun while it
//! slept.

use std::collections::VecDeque;

use pagelab_base::cycles::Cycles;

/// The other hardware threads of a core, as one of them finds them when it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Siblings {
    /// Those that have something to run.
    pub active: u32,
    /// The least time that one of these has come to; [`Cycles::MAX`] if there is none.
    pub now: Cycles,
}

/// When something is taken: times that neither overlap nor touch, in their order.
#[derive(Clone, Debug, Default)]
struct BusyTimes(VecDeque<(Cycles, Cycles)>);

impl BusyTimes {
    /// Forgets what is over by a time that nobody will ask for anything before.
    fn forget(&mut self, until: Cycles) {
        while self.0.front().is_some_and(|taken| taken.1 <= until) {
            self.0.pop_front();
        }
    }

    /// From when on, but not before `from`, it is free for so long.
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

    /// When it has been free for so long since `from`, with breaks.
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

    /// Takes all of a time, be parts of it taken or not.
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

/// Buffers or walkers, each with its time line.
#[derive(Clone, Debug)]
struct Units(Vec<BusyTimes>);

impl Units {
    fn new(units: u32) -> Self {
        Self(vec![BusyTimes::default(); units as usize])
    }

    /// Takes a unit for so long from `from` on at the earliest, of which the thread has this share; when it gets it.
    /// Nobody will ask for one before `floor`.
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

/// What a thread has of units if each that is active has as much.
#[derive(Clone, Debug, Default)]
struct UnitShare {
    /// When each unit of it is free.
    free: Vec<Cycles>,
    /// For how long one is taken is this many times as long as it is needed, in parts of `of`: shares need not be whole
    /// units.
    times: u64,
    of: u64,
}

impl UnitShare {
    /// Each thread's part of the units.
    fn new(units: usize, threads: u32) -> Self {
        let (units, threads) = (units as u64, u64::from(threads));
        let whole = units.div_ceil(threads);
        Self { free: vec![Cycles::ZERO; whole as usize], times: threads * whole, of: units }
    }

    fn take(&mut self, from: Cycles, long: Cycles) -> Cycles {
        let free = self.free.iter_mut().min().expect("a share is a unit at least");
        let begin = from.max(*free);
        *free = begin + Cycles((long.0 * self.times).div_ceil(self.of));
        begin
    }
}

/// A line that one of the threads has asked for.
#[derive(Clone, Copy, Debug, Default)]
struct RequestedLine {
    number: u64,
    asked: Cycles,
    there: Cycles,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Common {
    fills: Units,
    walks: Units,
    width: BusyTimes,
    /// The last lines, as many as all threads' buffers hold, the oldest at `oldest`.
    lines: Vec<RequestedLine>,
    oldest: usize,
    last_there: Cycles,
}

impl Common {
    /// Of a core with so many fill buffers and page walkers.
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

    /// Lets instructions enter that take so long from `from` on where they are alone; by how much that takes longer,
    /// where one of `threads` is never slower than with its share.
    fn enter(&mut self, from: Cycles, long: Cycles, threads: u32, floor: Cycles) -> Cycles {
        self.width.forget(floor);
        let end = self.width.free_by(from, long);
        self.width.take(from, end);
        (end - from - long).min(u64::from(threads - 1) * long)
    }

    /// A thread has asked for a line, and when it is there.
    fn note_line(&mut self, number: u64, asked: Cycles, there: Cycles) {
        self.lines[self.oldest] = RequestedLine { number, asked, there };
        self.oldest = (self.oldest + 1) % self.lines.len();
        self.last_there = self.last_there.max(there);
    }

    /// When a line is there that a thread finds in the cache at `hit`. Who would have asked for it before the other
    /// did, which was simulated first, has it as much sooner.
    fn line_there(&self, number: u64, hit: Cycles) -> Cycles {
        if self.last_there <= hit {
            return hit;
        }
        let line = self.lines.iter().filter(|line| line.number == number).max_by_key(|line| line.there);
        line.map_or(hit, |line| hit.max(line.there.min(hit + (line.there - line.asked))))
    }
}

/// A hardware thread of a core beside the others; by default one that is alone.
#[derive(Clone, Debug, Default)]
pub struct SmtThread {
    /// What all have in common, while this one goes on.
    common: Option<Box<Common>>,
    /// Those of the others that have something to run.
    others: u32,
    /// The least time that one of these has come to.
    now: Cycles,
    fills: UnitShare,
    walks: UnitShare,
}

/// Of each request `now` is the time that the thread has come to: none that it makes later is for one before.
impl SmtThread {
    /// The thread goes on with what all have in common; whether there are more or fewer than when it did before.
    pub fn go_on(&mut self, common: Box<Common>, siblings: Siblings) -> bool {
        let differs = siblings.active != self.others;
        if differs {
            self.fills = UnitShare::new(common.fills.0.len(), siblings.active + 1);
            self.walks = UnitShare::new(common.walks.0.len(), siblings.active + 1);
        }
        *self = Self { common: Some(common), others: siblings.active, now: siblings.now, ..std::mem::take(self) };
        differs
    }

    /// It no longer does.
    pub fn pause(&mut self) -> Option<Box<Common>> {
        self.common.take()
    }

    /// Whether others have something to run.
    #[inline(always)]
    pub fn shares_core(&self) -> bool {
        self.others > 0
    }

    /// How long instructions wait for those of others that take so long from `from` on where they are alone.
    #[inline(never)]
    pub fn enter(&mut self, from: Cycles, long: Cycles, now: Cycles) -> Cycles {
        let Some(common) = &mut self.common else { return Cycles::ZERO };
        common.enter(from, long, self.others + 1, now.min(self.now))
    }

    /// When it has a fill buffer for so long that it needs from `from` on.
    #[inline]
    pub fn take_fill(&mut self, from: Cycles, long: Cycles, now: Cycles) -> Cycles {
        match &mut self.common {
            Some(common) if self.others > 0 => common.fills.take(&mut self.fills, from, long, now.min(self.now)),
            _ => from,
        }
    }

    /// When it has a page walker.
    #[inline]
    pub fn take_walk(&mut self, from: Cycles, long: Cycles, now: Cycles) -> Cycles {
        match &mut self.common {
            Some(common) if self.others > 0 => common.walks.take(&mut self.walks, from, long, now.min(self.now)),
            _ => from,
        }
    }

    /// It has asked for a line, which others may find under way.
    #[inline]
    pub fn note_line(&mut self, number: u64, asked: Cycles, there: Cycles) {
        if let Some(common) = self.common.as_mut().filter(|_| self.others > 0) {
            common.note_line(number, asked, there);
        }
    }

    /// When a line is there that it finds in the cache at `hit`, perhaps as another has asked for it.
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
        let of = timeline(&[(10, 20), (40, 50), (20, 25), (60, 70), (45, 62), (5, 5)]);
        assert_eq!(of.0, [(10, 25), (40, 70)].map(|(begin, end)| (Cycles(begin), Cycles(end))));
        for (from, long, begins) in [(0, 10, 0), (0, 11, 25), (12, 15, 25), (26, 15, 70), (30, 10, 30), (80, 9, 80)] {
            assert_eq!(of.free_for(Cycles(from), Cycles(long)), Cycles(begins), "{from} {long}");
        }
        for (from, long, end) in [(0, 10, 10), (0, 11, 26), (12, 15, 40), (12, 16, 71), (45, 1, 71), (80, 9, 89)] {
            assert_eq!(of.free_by(Cycles(from), Cycles(long)), Cycles(end), "{from} {long}");
        }
        let mut of = of;
        of.forget(Cycles(25));
        assert_eq!(of.0.len(), 1);
    }

    #[test]
    fn units_are_taken_in_the_gaps_before_what_another_has_taken() {
        let mut units = Units::new(1);
        // Both have had more than their share.
        let mut none = UnitShare { free: vec![Cycles(1 << 40)], times: 1, of: 1 };
        let mut take = |from| units.take(&mut none, Cycles(from), Cycles(100), Cycles::ZERO);
        assert_eq!(take(1000), Cycles(1000));
        assert_eq!(take(0), Cycles(0), "a time line that is only known from its end would say 1100");
    }

    #[test]
    fn a_thread_has_its_share_whatever_others_have_taken() {
        // One of two threads has taken all for long. The other has its share, which is 3/2 buffers.
        let mut units = Units::new(3);
        let mut shares = [UnitShare::new(3, 2), UnitShare::new(3, 2)];
        (0..300).for_each(|_| {
            units.take(&mut shares[0], Cycles::ZERO, Cycles(100), Cycles::ZERO);
        });
        let mut last = Cycles::ZERO;
        (0..200).for_each(|_| last = units.take(&mut shares[1], Cycles::ZERO, Cycles(100), Cycles::ZERO));
        // 100 rounds of two, each 4/3 as long.
        assert_eq!(last, Cycles(99 * 134));
        // What it had before its time is taken from the time behind: 500 times of 100 cycles by three.
        let mut none = UnitShare { free: vec![Cycles(1 << 40)], times: 1, of: 1 };
        assert_eq!(units.take(&mut none, Cycles::ZERO, Cycles(100), Cycles::ZERO), Cycles(16_600));
    }

    #[test]
    fn width_is_shared_by_who_enters_at_the_same_time() {
        let mut common = Common::new(1, 1);
        let mut enter = |from, long| common.enter(Cycles(from), Cycles(long), 2, Cycles::ZERO).0;
        // One enters for 100 cycles; the other may enter every other cycle meanwhile, and the first has to wait for
        // that later.
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
        let there = |line, hit| common.line_there(line, Cycles(hit)).0;
        assert_eq!([there(7, 1100), there(7, 1300), there(7, 500), there(8, 1100)], [1200, 1300, 700, 1100]);
    }
}
