//! The statistics of a run, by name.

use pagelab_base::cycles::Cycles;
use pagelab_base::measure::{Meaning, Measure};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Statistics that skipped stretches leave exact, since their events and first touches are in the trace.
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

/// Cycles of faults, calls and devices are known as well, as first touches and events cost them. They are not exact:
/// caches hold what a skipped stretch used last, and not when.
const PROGRAM_COSTS: [&str; 3] = ["cycles.fault", "cycles.io", "cycles.kernel"];

/// How the counts of all layers end that are exact as well.
const PROGRAM_COUNTS_OF_LAYERS: &str = ".fault.zeroed_bytes";

/// Statistics by name.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Values by dotted name.
    pub values: BTreeMap<String, u64>,
    /// Meanings, by the same names.
    pub meanings: BTreeMap<String, Meaning>,
    /// Counts alone, without states and without what they mean, for collecting often.
    pub(crate) brief: bool,
}

impl Statistics {
    /// Adds a statistic.
    ///
    /// # Panics
    /// If there is one of this name already.
    pub(crate) fn add(&mut self, Measure { name, value, meaning }: Measure) {
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

    /// Adds what a part has measured of itself, behind a prefix.
    pub(crate) fn add_all(&mut self, prefix: &str, measures: Vec<Measure>) {
        for measure in measures {
            self.add(Measure { name: format!("{prefix}.{}", measure.name), ..measure });
        }
    }

    /// Adds how things are at the end.
    pub(crate) fn state(&mut self, name: impl Into<String>, value: u64, unit: &'static str, text: impl Into<String>) {
        self.add(Measure::state(name, value, unit, text));
    }

    /// Adds a count of what has happened.
    pub(crate) fn count(&mut self, name: impl Into<String>, value: u64, text: impl Into<String>) {
        self.add(Measure::count(name, value, text));
    }

    /// Adds a count that depends on timing.
    pub(crate) fn timed_count(&mut self, name: impl Into<String>, value: u64, text: impl Into<String>) {
        self.add(Measure::timed_count(name, value, text));
    }

    /// Adds cycles that were spent.
    pub(crate) fn cycles(&mut self, name: impl Into<String>, value: Cycles, text: impl Into<String>) {
        self.add(Measure::cycles(name, value, text));
    }

    /// Whether a statistic says how things are.
    fn is_state(&self, name: &str) -> bool {
        self.meanings.get(name).is_some_and(|meaning| meaning.is_state)
    }

    /// What has been counted since `before` was collected; states are those of now.
    pub fn since(mut self, before: &Self) -> Self {
        for (name, value) in &mut self.values {
            if !self.meanings.get(name).is_some_and(|meaning| meaning.is_state) {
                *value -= before.values.get(name).copied().unwrap_or(0);
            }
        }
        self
    }

    /// Its counts alone.
    pub fn without_states(mut self) -> Self {
        self.values.retain(|name, _| !self.meanings.get(name).is_some_and(|meaning| meaning.is_state));
        self
    }

    /// What was counted in this part and in a later one; states are those of the later.
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

    /// The statistics of what was measured of a program, with those of its whole that are exact all the same.
    pub fn of_a_part_of(mut self, whole: &Self) -> Self {
        self.meanings.clone_from(&whole.meanings);
        for (state, _) in whole.meanings.iter().filter(|(_, meaning)| meaning.is_state) {
            self.values.entry(state.clone()).or_insert(whole.values[state]);
        }
        let of_layers = whole.values.keys().filter(|name| name.ends_with(PROGRAM_COUNTS_OF_LAYERS)).map(String::as_str);
        for name in PROGRAM_COUNTS.into_iter().chain(PROGRAM_COSTS).chain(of_layers) {
            let Some(&value) = whole.values.get(name) else { continue };
            let mut meaning = whole.meanings[name].clone();
            meaning.description.push_str("; of the whole program, skipped stretches included");
            self.add(Measure { name: format!("program.{name}"), value, meaning });
        }
        self
    }
}
