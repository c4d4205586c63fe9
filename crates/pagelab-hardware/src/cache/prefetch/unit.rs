//! The prefetchers of one level, their lines in flight, and statistics on the use of prefetched lines.

use rustc_hash::FxHashSet;

use super::{AnyPrefetcher, Demand, LevelPrefetchConfig, Proposals};
use crate::cache::Requester;
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;

/// Maximum number of lines that a level's prefetchers can have in flight.
pub const MAX_BUFFERS: u32 = 256;
/// Size of the table of lines that prefetches evicted; as in the pollution filter of Srinath, Mutlu, Kim, Patt,
/// "Feedback Directed Prefetching", HPCA 2007.
const DISPLACED: usize = 4096;

pagelab_base::counters! {
    /// Statistics of a level's prefetches. `issued` is the sum of `useful`, `late`, `useless` and `unused`.
    pub struct PrefetchCounts {
        issued: u64 as timed_count("issued", "Lines prefetched into this level");
        from_memory: u64 as timed_count("from_memory", "Those among them that memory served");
        useful: u64 as timed_count("useful", "Prefetched lines that were there when they were first asked for");
        late: u64 as timed_count("late", "Prefetched lines that were still under way when they were first asked for");
        late_cycles: Cycles as cycles("late_cycles", "Cycles that late lines came after the hit that they would have been");
        useless: u64 as timed_count("useless", "Prefetched lines that left the level before anyone asked for them");
        unused: u64 as number("unused", "Prefetched lines in this level that nobody has asked for");
        dropped_at_border: u64 as timed_count("dropped.border", "Times that its border cut a prefetcher off");
        dropped_busy: u64 as timed_count("dropped.busy", "Prefetches for which no buffer was free");
        used_by_walks: u64 as timed_count(
            "used_by_walks",
            "Useful and late lines that a page walk was the first to ask for"
        );
        walk_misses: u64 as timed_count(
            "walk_misses",
            "References of page walks that missed this level since a prefetch had taken the line's place; of the last victims alone"
        );
    }
}

/// A prefetched line, with the times of its request and its arrival.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    line: LineAddr,
    issued: Cycles,
    arrives: Cycles,
}

/// The prefetchers of one level with their state.
#[derive(Clone, Debug)]
pub(in crate::cache) struct Unit {
    prefetchers: Vec<AnyPrefetcher>,
    in_flight: Vec<Fetch>,
    /// Arrival of the last line in flight.
    last_arrival: Cycles,
    /// Lines of the level without any request so far. Never iterated, so their order does not matter.
    unused: FxHashSet<LineAddr>,
    /// Lines that prefetches evicted, indexed by hash.
    displaced: Vec<Option<LineAddr>>,
    counts: PrefetchCounts,
}

impl Unit {
    pub fn new(config: &LevelPrefetchConfig) -> Self {
        let none = Fetch { line: LineAddr(u64::MAX), issued: Cycles::ZERO, arrives: Cycles::ZERO };
        Self {
            prefetchers: AnyPrefetcher::from_config(config),
            in_flight: vec![none; config.buffers as usize],
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

    /// Replaces `proposals` by the lines to fetch for a request.
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

    /// Whether a buffer is free at a time; otherwise counts a dropped prefetch.
    pub fn has_room(&mut self, at: Cycles) -> bool {
        let free = self.in_flight.iter().any(|fetch| fetch.arrives <= at);
        self.counts.dropped_busy += u64::from(!free);
        free
    }

    /// Records that a line is fetched into the level.
    pub fn begin(&mut self, line: LineAddr, issued: Cycles, arrives: Cycles, from_memory: bool) {
        let place = self.in_flight.iter_mut().min_by_key(|fetch| fetch.arrives).expect("there is a buffer at least");
        *place = Fetch { line, issued, arrives };
        self.last_arrival = self.last_arrival.max(arrives);
        self.unused.insert(line);
        self.counts.issued += 1;
        self.counts.from_memory += u64::from(from_memory);
    }

    /// Arrival of a line that is requested at `from`; without the prefetch it would be `hit`. A core that overlaps
    /// accesses may simulate a request that is earlier than the prefetch; it waits as long as the prefetch takes.
    pub fn arrival(&self, line: LineAddr, from: Cycles, hit: Cycles) -> Cycles {
        if self.last_arrival <= hit {
            return hit;
        }
        let fetch = self.in_flight.iter().find(|fetch| fetch.line == line);
        fetch.map_or(hit, |fetch| hit.max(fetch.arrives - fetch.issued.saturating_sub(from)))
    }

    /// Whether this is the first request for a prefetched line; it then counts as used.
    pub fn take_unused(&mut self, line: LineAddr) -> bool {
        !self.unused.is_empty() && self.unused.remove(&line)
    }

    /// Counts the first use of a line, whose request waited `late` cycles longer than for a hit.
    pub fn count_use(&mut self, late: Cycles, by: Option<Requester>) {
        if late > Cycles::ZERO {
            self.counts.late += 1;
            self.counts.late_cycles += late;
        } else {
            self.counts.useful += 1;
        }
        self.counts.used_by_walks += u64::from(by == Some(Requester::Walk));
    }

    /// Records that a line has left the level, if it was there.
    pub fn lose(&mut self, line: LineAddr) {
        self.counts.useless += u64::from(self.take_unused(line));
    }

    /// Records that a prefetch has evicted this line.
    pub fn displace(&mut self, line: LineAddr) {
        self.displaced[place(line)] = Some(line);
    }

    /// Records that a line was filled into the level; `walk` if a page walk requested it.
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
        let mut prefetcher = unit(2);
        prefetcher.begin(LineAddr(1), Cycles(100), Cycles(300), true);
        let arrival = |from, hit| prefetcher.arrival(LineAddr(1), Cycles(from), Cycles(hit));
        assert_eq!([arrival(150, 160), arrival(299, 309), arrival(100, 110)], [300, 309, 300].map(Cycles));
        assert_eq!(arrival(40, 50), Cycles(240), "asked for 60 cycles before the prefetch");
        assert_eq!(prefetcher.arrival(LineAddr(2), Cycles(150), Cycles(160)), Cycles(160));
    }

    #[test]
    fn buffers_bound_what_is_under_way() {
        let mut prefetcher = unit(2);
        for line in 0..2 {
            assert!(prefetcher.has_room(Cycles(10)));
            prefetcher.begin(LineAddr(line), Cycles(10), Cycles(100 + line), false);
        }
        assert!(!prefetcher.has_room(Cycles(99)) && prefetcher.has_room(Cycles(100)));
        prefetcher.begin(LineAddr(7), Cycles(100), Cycles(200), false);
        assert_eq!(
            prefetcher.arrival(LineAddr(1), Cycles(20), Cycles(30)),
            Cycles(101),
            "the later one is still known"
        );
        assert_eq!(prefetcher.counts().dropped_busy, 1);
    }

    #[test]
    fn each_line_ends_in_one_count() {
        let mut prefetcher = unit(8);
        (0..6).for_each(|line| prefetcher.begin(LineAddr(line), Cycles::ZERO, Cycles(9), line % 2 == 0));
        assert!(
            prefetcher.take_unused(LineAddr(0))
                && !prefetcher.take_unused(LineAddr(0))
                && !prefetcher.take_unused(LineAddr(9))
        );
        prefetcher.count_use(Cycles::ZERO, Some(Requester::Walk));
        assert!(prefetcher.take_unused(LineAddr(1)));
        prefetcher.count_use(Cycles(5), Some(Requester::Data));
        [2, 2, 0, 1, 77].iter().for_each(|&line| prefetcher.lose(LineAddr(line)));
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
        assert_eq!(prefetcher.counts(), expected);
    }

    #[test]
    fn walks_count_what_prefetches_displaced_once() {
        let mut prefetcher = unit(1);
        prefetcher.displace(LineAddr(5));
        prefetcher.displace(LineAddr(6));
        prefetcher.note_fill(LineAddr(6), false);
        [5, 5, 6, 7].iter().for_each(|&line| prefetcher.note_fill(LineAddr(line), true));
        assert_eq!(prefetcher.counts().walk_misses, 1);
    }
}
