//! The prefetchers of one level, what they have under way, and what became of what they fetched.

use rustc_hash::FxHashSet;

use super::{AnyPrefetcher, Demand, LevelPrefetchConfig, Proposals};
use crate::cache::Requester;
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;

/// Lines that a level's prefetchers may have under way at most.
pub const MAX_BUFFERS: u32 = 256;
/// Lines of which it is remembered that a prefetch took their place; as in the pollution filter of Srinath, Mutlu, Kim,
/// Patt, "Feedback Directed Prefetching", HPCA 2007.
const DISPLACED: usize = 4096;

/// What became of a level's prefetches. `issued` is the sum of `useful`, `late`, `useless` and `unused`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchCounts {
    /// Lines that were fetched into the level.
    pub issued: u64,
    /// Those among them that came from memory.
    pub from_memory: u64,
    /// Lines that were there when they were first asked for.
    pub useful: u64,
    /// Lines that were still under way then.
    pub late: u64,
    /// Cycles that whoever asked waited longer for those than for a hit.
    pub late_cycles: Cycles,
    /// Lines that left the level before anyone asked for them.
    pub useless: u64,
    /// Lines in the level that nobody has asked for.
    pub unused: u64,
    /// Times that a prefetcher was cut off by its border.
    pub dropped_at_border: u64,
    /// Lines for which no buffer was free.
    pub dropped_busy: u64,
    /// Useful and late lines that a page walk was the first to ask for.
    pub used_by_walks: u64,
    /// References of walks that missed the level since a prefetch had taken their line's place.
    pub walk_misses: u64,
}

impl PrefetchCounts {
    pub(in crate::cache) fn add(&mut self, other: &Self) {
        self.issued += other.issued;
        self.from_memory += other.from_memory;
        self.useful += other.useful;
        self.late += other.late;
        self.late_cycles += other.late_cycles;
        self.useless += other.useless;
        self.unused += other.unused;
        self.dropped_at_border += other.dropped_at_border;
        self.dropped_busy += other.dropped_busy;
        self.used_by_walks += other.used_by_walks;
        self.walk_misses += other.walk_misses;
    }
}

/// A line that was asked for at one time and comes at another.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    line: LineAddr,
    issued: Cycles,
    arrives: Cycles,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(in crate::cache) struct Unit {
    prefetchers: Vec<AnyPrefetcher>,
    under_way: Vec<Fetch>,
    /// When all of them are there.
    last_arrival: Cycles,
    /// Lines of the level that nobody has asked for. Never gone through, so that their order does not matter.
    unused: FxHashSet<LineAddr>,
    /// Victims of prefetches, each at the index of its hash.
    displaced: Vec<Option<LineAddr>>,
    counts: PrefetchCounts,
}

impl Unit {
    pub fn new(config: &LevelPrefetchConfig) -> Self {
        let none = Fetch { line: LineAddr(u64::MAX), issued: Cycles::ZERO, arrives: Cycles::ZERO };
        Self {
            prefetchers: AnyPrefetcher::of_level(config),
            under_way: vec![none; config.buffers as usize],
            last_arrival: Cycles::ZERO,
            unused: FxHashSet::default(),
            displaced: vec![None; DISPLACED],
            counts: PrefetchCounts::default(),
        }
    }

    pub fn counts(&self) -> PrefetchCounts {
        PrefetchCounts { unused: self.unused.len() as u64, ..self.counts }
    }

    pub fn is_on(&self) -> bool {
        !self.prefetchers.is_empty()
    }

    /// What to fetch for a request, instead of what `proposals` held.
    pub fn demand(&mut self, demand: &Demand, proposals: &mut Proposals) {
        proposals.lines.clear();
        proposals.beyond = 0;
        for prefetcher in &mut self.prefetchers {
            prefetcher.demand(demand, proposals);
        }
        self.counts.dropped_at_border += proposals.beyond;
    }

    #[cfg(test)]
    pub fn holds_only(&self, is_there: impl Fn(LineAddr) -> bool) -> bool {
        self.unused.iter().all(|&line| is_there(line))
    }

    /// Whether a buffer is free at a time; a prefetch that finds none is counted as dropped.
    pub fn has_room(&mut self, at: Cycles) -> bool {
        let free = self.under_way.iter().any(|fetch| fetch.arrives <= at);
        self.counts.dropped_busy += u64::from(!free);
        free
    }

    /// A line is fetched into the level.
    pub fn begin(&mut self, line: LineAddr, issued: Cycles, arrives: Cycles, from_memory: bool) {
        let place = self.under_way.iter_mut().min_by_key(|fetch| fetch.arrives).expect("there is a buffer at least");
        *place = Fetch { line, issued, arrives };
        self.last_arrival = self.last_arrival.max(arrives);
        self.unused.insert(line);
        self.counts.issued += 1;
        self.counts.from_memory += u64::from(from_memory);
    }

    /// When a line that is asked for at `from`, and would else be there at `hit`, is there. Who asks before the
    /// prefetch did (cores that overlap accesses issue them in another order) waits as long as that.
    pub fn arrival(&self, line: LineAddr, from: Cycles, hit: Cycles) -> Cycles {
        if self.last_arrival <= hit {
            return hit;
        }
        let fetch = self.under_way.iter().find(|fetch| fetch.line == line);
        fetch.map_or(hit, |of| hit.max(of.arrives - of.issued.saturating_sub(from)))
    }

    /// Whether a line has been prefetched and is asked for the first time, which it no longer is then.
    pub fn take_unused(&mut self, line: LineAddr) -> bool {
        !self.unused.is_empty() && self.unused.remove(&line)
    }

    /// Counts the first use of a line, for which somebody waited so much longer than for a hit.
    pub fn count_use(&mut self, late: Cycles, by: Option<Requester>) {
        if late > Cycles::ZERO {
            self.counts.late += 1;
            self.counts.late_cycles += late;
        } else {
            self.counts.useful += 1;
        }
        self.counts.used_by_walks += u64::from(by == Some(Requester::Walk));
    }

    /// A line has left the level, if it was there.
    pub fn lose(&mut self, line: LineAddr) {
        self.counts.useless += u64::from(self.take_unused(line));
    }

    /// A prefetch has taken this line's place.
    pub fn displace(&mut self, line: LineAddr) {
        self.displaced[place(line)] = Some(line);
    }

    /// A line has come to the level; `walk` if a page walk asked for it there.
    pub fn note_fill(&mut self, line: LineAddr, walk: bool) {
        let place = &mut self.displaced[place(line)];
        if *place == Some(line) {
            *place = None;
            self.counts.walk_misses += u64::from(walk);
        }
    }
}

fn place(line: LineAddr) -> usize {
    (line.0 ^ line.0 >> DISPLACED.ilog2()) as usize % DISPLACED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(buffers: u32) -> Unit {
        Unit::new(&LevelPrefetchConfig { buffers, ..LevelPrefetchConfig::default() })
    }

    #[test]
    fn a_line_under_way_is_waited_for_to_its_arrival() {
        let mut of = unit(2);
        of.begin(LineAddr(1), Cycles(100), Cycles(300), true);
        let arrival = |from, hit| of.arrival(LineAddr(1), Cycles(from), Cycles(hit));
        assert_eq!([arrival(150, 160), arrival(299, 309), arrival(100, 110)], [300, 309, 300].map(Cycles));
        assert_eq!(arrival(40, 50), Cycles(240), "asked for 60 cycles before the prefetch");
        assert_eq!(of.arrival(LineAddr(2), Cycles(150), Cycles(160)), Cycles(160));
    }

    #[test]
    fn buffers_bound_what_is_under_way() {
        let mut of = unit(2);
        for line in 0..2 {
            assert!(of.has_room(Cycles(10)));
            of.begin(LineAddr(line), Cycles(10), Cycles(100 + line), false);
        }
        assert!(!of.has_room(Cycles(99)) && of.has_room(Cycles(100)));
        of.begin(LineAddr(7), Cycles(100), Cycles(200), false);
        assert_eq!(of.arrival(LineAddr(1), Cycles(20), Cycles(30)), Cycles(101), "the later one is still known");
        assert_eq!(of.counts().dropped_busy, 1);
    }

    #[test]
    fn each_line_ends_in_one_count() {
        let mut of = unit(8);
        (0..6).for_each(|line| of.begin(LineAddr(line), Cycles::ZERO, Cycles(9), line % 2 == 0));
        assert!(of.take_unused(LineAddr(0)) && !of.take_unused(LineAddr(0)) && !of.take_unused(LineAddr(9)));
        of.count_use(Cycles::ZERO, Some(Requester::Walk));
        assert!(of.take_unused(LineAddr(1)));
        of.count_use(Cycles(5), Some(Requester::Data));
        [2, 2, 0, 1, 77].iter().for_each(|&line| of.lose(LineAddr(line)));
        let expected = PrefetchCounts {
            issued: 6,
            from_memory: 3,
            useful: 1,
            late: 1,
            late_cycles: Cycles(5),
            useless: 1,
            unused: 3,
            used_by_walks: 1,
            ..PrefetchCounts::default()
        };
        assert_eq!(of.counts(), expected);
    }

    #[test]
    fn walks_count_what_prefetches_displaced_once() {
        let mut of = unit(1);
        of.displace(LineAddr(5));
        of.displace(LineAddr(6));
        of.note_fill(LineAddr(6), false);
        [5, 5, 6, 7].iter().for_each(|&line| of.note_fill(LineAddr(line), true));
        assert_eq!(of.counts().walk_misses, 1);
    }
}
