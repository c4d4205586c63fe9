//! The statistics of a run, by name.

use pagelab_base::cycles::Cycles;
use pagelab_base::measure::{Meaning, Measure};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Statistics that stay exact despite skipped stretches, since the trace has their events and first touches.
const PROGRAM_COUNTS: [&str; 9] = [
    "fault.cached.count",
    "fault.copy.count",
    "fault.major.count",
    "fault.minor.count",
    "fault.reuse.count",
    "fault.zero_page.count",
    "fork.pages",
    "mapping.calls",
    "mapping.pages_unmapped",
];

/// Cycles of faults, calls and devices are known as well, since first touches and events cost them. They are not exact:
/// the caches hold what a skipped stretch used last, but not in its timing.
const PROGRAM_COSTS: [&str; 3] = ["cycles.fault", "cycles.io", "cycles.kernel"];

/// Suffix of per-layer counts that are exact as well.
const PROGRAM_COUNTS_OF_LAYERS: &str = ".fault.zeroed_bytes";

/// Statistics by name.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Values by dotted name.
    pub values: BTreeMap<String, u64>,
    /// Meanings, by the same names.
    pub meanings: BTreeMap<String, Meaning>,
    /// Collect counts only, without states and descriptions, since collecting often must be fast.
    pub brief: bool,
}

impl Statistics {
    /// Adds a statistic.
    ///
    /// # Panics
    /// If there is one of this name already.
    pub fn add(&mut self, Measure { name, value, meaning }: Measure) {
        if self.brief && meaning.is_state {
            return;
        }
        match self.values.entry(name) {
            Entry::Vacant(place) => {
                if !self.brief {
                    self.meanings.insert(place.key().clone(), meaning);
                }
                place.insert(value);
            }
            Entry::Occupied(place) => panic!("the statistic `{}` is defined twice", place.key()),
        }
    }

    /// Adds the statistics of a part, behind a prefix.
    pub fn add_all(&mut self, prefix: &str, measures: Vec<Measure>) {
        for measure in measures {
            self.add(Measure { name: format!("{prefix}.{}", measure.name), ..measure });
        }
    }

    /// Adds a state at the end of the run.
    pub fn state(&mut self, name: impl Into<String>, value: u64, unit: &'static str, text: impl Into<String>) {
        self.add(Measure::state(name, value, unit, text));
    }

    /// Adds a count of events.
    pub fn count(&mut self, name: impl Into<String>, value: u64, text: impl Into<String>) {
        self.add(Measure::count(name, value, text));
    }

    /// Adds a count that depends on timing.
    pub fn timed_count(&mut self, name: impl Into<String>, value: u64, text: impl Into<String>) {
        self.add(Measure::timed_count(name, value, text));
    }

    /// Adds cycles that were spent.
    pub fn cycles(&mut self, name: impl Into<String>, value: Cycles, text: impl Into<String>) {
        self.add(Measure::cycles(name, value, text));
    }

    /// Whether a statistic is a state.
    fn is_state(&self, name: &str) -> bool {
        self.meanings.get(name).is_some_and(|meaning| meaning.is_state)
    }

    /// Counts since `before` was collected; states as of now.
    pub fn since(mut self, before: &Self) -> Self {
        for (name, value) in &mut self.values {
            if !self.meanings.get(name).is_some_and(|meaning| meaning.is_state) {
                *value -= before.values.get(name).copied().unwrap_or(0);
            }
        }
        self
    }

    /// The counts, without states.
    pub fn without_states(mut self) -> Self {
        self.values.retain(|name, _| !self.meanings.get(name).is_some_and(|meaning| meaning.is_state));
        self
    }

    /// Sum of the counts in this part and in a later one; states are those of the later part.
    pub fn and_then(self, mut later: Self) -> Self {
        for (name, value) in self.values {
            if !later.is_state(&name)
                && let Some(sum) = later.values.get_mut(&name)
            {
                *sum += value;
            }
        }
        later
    }

    /// The statistics of the measured part of a program, plus those of the whole program that are exact despite skipped
    /// stretches.
    pub fn with_whole_program(mut self, whole: &Self) -> Self {
        self.meanings.clone_from(&whole.meanings);
        for (state, _) in whole.meanings.iter().filter(|(_, meaning)| meaning.is_state) {
            self.values.entry(state.clone()).or_insert(whole.values[state]);
        }
        let of_layers = whole.values.keys().filter(|name| name.ends_with(PROGRAM_COUNTS_OF_LAYERS)).map(String::as_str);
        for name in PROGRAM_COUNTS.into_iter().chain(PROGRAM_COSTS).chain(of_layers) {
            let Some(&value) = whole.values.get(name) else { continue };
            let mut meaning = whole.meanings[name].clone();
            meaning.description.push_str("; of the whole program, including skipped stretches");
            self.add(Measure { name: format!("program.{name}"), value, meaning });
        }
        self
    }
}

/// The smallest of the sorted values that at least `percent` % of them do not exceed; 0 if there are none.
pub fn nearest_rank(sorted: &[Cycles], percent: usize) -> Cycles {
    let rank = (sorted.len() * percent).div_ceil(100);
    rank.checked_sub(1).map_or(Cycles::ZERO, |at| sorted[at])
}

#[cfg(test)]
mod tests {
    use super::nearest_rank;
    use pagelab_base::cycles::Cycles;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<Cycles> = (1..=100).map(Cycles).collect();
        let percentiles = |sorted: &[Cycles]| [50, 99, 100].map(|percent| nearest_rank(sorted, percent).0);
        assert_eq!(percentiles(&hundred), [50, 99, 100]);
        assert_eq!(percentiles(&[7, 8, 9].map(Cycles)), [8, 9, 9]);
        assert_eq!(percentiles(&[1, 2].map(Cycles)), [1, 2, 2]);
        assert_eq!(percentiles(&[]), [0, 0, 0]);
    }
}
