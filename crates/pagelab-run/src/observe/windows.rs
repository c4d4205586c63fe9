//! Parts of a run that are counted separately.
//!
//! A part begins and ends at a mark: a number of accesses of the main sources. If the total number is not known in
//! advance, parts are short at first; whenever there are too many, neighbouring parts are merged in pairs, and later
//! parts are twice as long.

use crate::observe::statistics::Statistics;

/// Initial accesses per part, if the total number is not known.
const FIRST: u64 = 1 << 16;

/// Marks at equal distances, as far as the run goes.
#[derive(Clone, Copy, Debug)]
struct Growing {
    /// Most parts; even.
    most: usize,
    every: u64,
    next: u64,
}

/// The marks of a run, and the counts at those that have been reached.
#[derive(Clone, Default)]
pub struct Windows {
    /// Where counting begins, if not at the start.
    warm_up: Option<u64>,
    /// Marks still to come, the last one first.
    listed: Vec<u64>,
    growing: Option<Growing>,
    noted: Vec<Statistics>,
    /// Set if stretches of the program are skipped.
    stretches: Option<Stretches>,
}

/// State of a program with skipped stretches.
#[derive(Clone, Default)]
struct Stretches {
    /// Counts at the start of the measured stretch; `None` outside of one.
    begin: Option<Statistics>,
    /// Counts of the measured stretches that have ended.
    ended: Vec<Statistics>,
    /// Accesses replayed when the last skipped stretch ended.
    resumed: Option<u64>,
    /// Number of measured stretches that start right at the end of a skipped one.
    cold: u64,
}

impl Windows {
    /// Counting begins after `warm_up` accesses, and the rest is divided into `parts`: equal parts if `in_all`, the
    /// total number of accesses, is known; otherwise at least half as many parts.
    pub fn new(warm_up: u64, parts: Option<u32>, in_all: Option<u64>) -> Self {
        let counted = in_all.unwrap_or(warm_up).saturating_sub(warm_up);
        let parts = u64::from(parts.unwrap_or(1));
        let begin = |part: u64| warm_up + (u128::from(counted) * u128::from(part) / u128::from(parts)) as u64;
        let growing = (in_all.is_none() && parts > 1).then(|| Growing {
            most: (parts as usize).next_multiple_of(2),
            every: FIRST,
            next: warm_up + FIRST,
        });
        let listed = if growing.is_some() { 1 } else { parts };
        let listed = (0..listed).rev().map(begin).filter(|&mark| mark > 0).collect();
        Self { warm_up: (warm_up > 0).then_some(warm_up), listed, growing, noted: Vec::new(), stretches: None }
    }

    /// The next mark, if there is one.
    #[inline]
    pub fn next(&self) -> Option<u64> {
        self.listed.last().copied().or(self.growing.map(|growing| growing.next))
    }

    /// Records the counts at the next mark.
    pub fn note(&mut self, counted: Statistics) {
        self.noted.push(counted);
        if self.listed.pop().is_some() {
            return;
        }
        let Some(growing) = &mut self.growing else { return };
        growing.next += growing.every;
        let first = usize::from(self.warm_up.is_some());
        if self.noted.len() - first == growing.most {
            // Keep the end of every second part.
            let mut at = 0;
            self.noted.retain(|_| {
                at += 1;
                at <= first || (at - first).is_multiple_of(2)
            });
            growing.next += growing.every;
            growing.every *= 2;
        }
    }

    /// Begins a stretch that is measured or skipped, after `replayed` accesses. From the first call on, the measured
    /// stretches are the parts.
    pub fn stretch(&mut self, measured: bool, replayed: u64, counted: Statistics) {
        let stretches = self.stretches.get_or_insert_default();
        (self.listed, self.growing, self.noted) = (Vec::new(), None, Vec::new());
        stretches.ended.extend(stretches.begin.take().map(|begin| counted.clone().since(&begin)));
        stretches.cold += u64::from(measured && stretches.resumed == Some(replayed));
        stretches.begin = measured.then_some(counted);
    }

    /// Ends a skipped stretch.
    pub fn resume(&mut self, replayed: u64) {
        self.stretches.get_or_insert_default().resumed = Some(replayed);
    }

    /// Number of measured stretches that start right at the end of a skipped one, without a warm-up.
    pub fn cold_stretches(&self) -> u64 {
        self.stretches.as_ref().map_or(0, |stretches| stretches.cold)
    }

    /// Whether stretches of the program are skipped.
    pub fn has_stretches(&self) -> bool {
        self.stretches.is_some()
    }

    /// Whether the run is currently outside measured stretches.
    pub fn is_between(&self) -> bool {
        self.stretches.as_ref().is_some_and(|stretches| stretches.begin.is_none())
    }

    /// Whether counting begins later than the run.
    pub fn warms_up(&self) -> bool {
        self.warm_up.is_some()
    }

    /// Whether counting has begun: the warm-up, if any, is over, and not all of the program was skipped.
    pub fn has_begun(&self) -> bool {
        if let Some(stretches) = &self.stretches {
            return stretches.begin.is_some() || !stretches.ended.is_empty();
        }
        self.warm_up.is_none() || !self.noted.is_empty()
    }

    /// Counts since counting began; `end` are the counts at the end of the run.
    pub fn counted(&self, end: &Statistics) -> Statistics {
        if self.stretches.is_some() {
            let parts = self.parts(end).into_iter();
            return parts.reduce(Statistics::and_then).unwrap_or_default().with_whole_program(end);
        }
        match self.noted.first().filter(|_| self.warm_up.is_some()) {
            Some(begin) => end.clone().since(begin),
            None => end.clone(),
        }
    }

    /// Counts of each part; `end` are the counts at the end of the run. With skipped stretches, parts have no states.
    pub fn parts(&self, end: &Statistics) -> Vec<Statistics> {
        if let Some(stretches) = &self.stretches {
            let last = stretches.begin.as_ref().map(|begin| end.clone().since(begin).without_states());
            return stretches.ended.iter().cloned().chain(last).collect();
        }
        let before = self.warm_up.is_none().then(|| self.noted.first().unwrap_or(end).clone());
        let between = self.noted.iter().zip(self.noted.iter().skip(1).chain([end]));
        before.into_iter().chain(between.map(|(begin, end)| end.clone().since(begin))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The marks of a run with this many accesses, and the number of parts that are kept.
    fn marks(warm_up: u64, parts: u32, in_all: Option<u64>, accesses: u64) -> (Vec<u64>, usize) {
        let mut windows = Windows::new(warm_up, Some(parts), in_all);
        let mut passed = Vec::new();
        while let Some(mark) = windows.next().filter(|&mark| mark < accesses) {
            passed.push(mark);
            windows.note(Statistics::default());
        }
        (passed, windows.parts(&Statistics::default()).len())
    }

    /// Statistics with this many walks so far and this many free pages.
    fn counted(walks: u64, free: u64) -> Statistics {
        let mut counted = Statistics::default();
        counted.count("fault.minor.count", 10 * walks, "Faults");
        counted.count("walks", walks, "Walks");
        counted.state("free", free, "count", "Free pages");
        counted
    }

    #[test]
    fn measured_stretches_are_the_parts_and_are_summed() {
        let mut windows = Windows::new(0, Some(4), Some(1000));
        windows.stretch(false, 0, counted(0, 90).without_states());
        assert!(windows.has_stretches() && !windows.has_begun() && windows.next().is_none());
        windows.resume(10);
        windows.stretch(true, 10, counted(100, 80).without_states());
        windows.stretch(false, 20, counted(103, 70).without_states());
        windows.resume(30);
        windows.stretch(true, 40, counted(200, 60).without_states());
        let end = counted(205, 50);
        let values = |part: &Statistics| (part.values["walks"], part.values.get("free").copied());
        let parts = windows.parts(&end);
        assert_eq!((parts.len(), values(&parts[1])), (2, (5, None)), "states are as of the end");
        assert_eq!(parts[0].values["walks"], 3);
        let sum = windows.counted(&end);
        assert_eq!(values(&sum), (8, Some(50)));
        assert_eq!((sum.values["fault.minor.count"], sum.values["program.fault.minor.count"]), (80, 2050));
        assert_eq!(windows.cold_stretches(), 1, "the second one was warmed up");
    }

    #[test]
    fn known_runs_are_cut_evenly() {
        assert_eq!(marks(0, 4, Some(1000), 1000), (vec![250, 500, 750], 4));
        assert_eq!(marks(200, 4, Some(1000), 1000), (vec![200, 400, 600, 800], 4));
        assert_eq!(marks(0, 1, Some(1000), 1000), (vec![], 1));
    }

    #[test]
    fn runs_of_unknown_length_have_at_least_half_the_requested_parts() {
        for warm_up in [0, 1000] {
            for accesses in [FIRST * 9, FIRST * 16 + 1, FIRST * 100, FIRST * 1000] {
                let (passed, parts) = marks(warm_up, 8, None, accesses);
                assert!((4..=8).contains(&parts), "{parts} of {accesses}");
                assert!(passed.is_sorted(), "{passed:?}");
            }
        }
        let (passed, parts) = marks(0, 4, None, FIRST * 14);
        let in_parts: Vec<u64> = passed.iter().map(|mark| mark / FIRST).collect();
        // Four of length one: two of length two remain. Two more of length two: two of length four remain. One more of
        // length four.
        assert_eq!((in_parts, parts), (vec![1, 2, 3, 4, 6, 8, 12], 4));
    }
}
