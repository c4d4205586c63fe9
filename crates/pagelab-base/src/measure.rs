//! Statistics: a number with its name, its unit and what it means.
//!
//! A counter and its statistic are one line in [`counters!`](crate::counters). A statistic that is computed is made by
//! a constructor of [`Measure`] where its design or its part of the machine is measured.
//!
//! Names are dotted and stable. Ratios are derived by whoever reads them.

use crate::cycles::Cycles;
use serde::Serialize;

/// Whether a statistic depends on timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StatKind {
    /// It follows from the order of accesses alone: what was referenced, missed, faulted.
    Robust,
    /// It depends on cycles, and on which CPU came first.
    Timing,
}

/// What a statistic means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Meaning {
    /// What it counts or is measured in.
    pub unit: &'static str,
    /// What the number is, in a sentence.
    pub description: String,
    /// Whether it depends on timing.
    pub kind: StatKind,
    /// Whether it says how things are at the end. The others count what has happened, so that parts of a run add up.
    #[serde(skip)]
    pub is_state: bool,
}

/// A statistic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Dotted, behind the name of the part that is measured.
    pub name: String,
    /// The number.
    pub value: u64,
    /// Its unit, and what it means.
    pub meaning: Meaning,
}

impl Measure {
    fn new(name: impl Into<String>, value: u64, unit: &'static str, text: impl Into<String>) -> Self {
        let meaning = Meaning { unit, description: text.into(), kind: StatKind::Robust, is_state: false };
        Self { name: name.into(), value, meaning }
    }

    /// A count of what has happened.
    pub fn count(name: impl Into<String>, value: u64, text: impl Into<String>) -> Self {
        Self::new(name, value, "count", text)
    }

    /// A count of what has happened, which depends on timing.
    pub fn timed_count(name: impl Into<String>, value: u64, text: impl Into<String>) -> Self {
        Self::count(name, value, text).timed()
    }

    /// Bytes of what has happened.
    pub fn bytes(name: impl Into<String>, value: u64, text: impl Into<String>) -> Self {
        Self::new(name, value, "bytes", text)
    }

    /// Cycles that were spent.
    pub fn cycles(name: impl Into<String>, value: Cycles, text: impl Into<String>) -> Self {
        Self::new(name, value.0, "cycles", text).timed()
    }

    /// How things are at the end, in `unit`.
    pub fn state(name: impl Into<String>, value: u64, unit: &'static str, text: impl Into<String>) -> Self {
        let mut state = Self::new(name, value, unit, text);
        state.meaning.is_state = true;
        state
    }

    /// How many there are at the end.
    pub fn number(name: impl Into<String>, value: u64, text: impl Into<String>) -> Self {
        Self::state(name, value, "count", text)
    }

    /// The same statistic of another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: StatKind) -> Self {
        self.meaning.kind = kind;
        self
    }

    /// The same, as part of a design whose counts depend on timing; states stay as they are.
    #[must_use]
    pub fn timed(self) -> Self {
        if self.meaning.is_state { self } else { self.with_kind(StatKind::Timing) }
    }
}

/// Declares a struct of counters with the statistic of each.
///
/// A line has the counter's name and type, a constructor of [`Measure`](crate::measure::Measure), the name of the
/// statistic behind a prefix, and what it means, which is the counter's documentation, too. The struct has `add`, for
/// sums over cores or layers, and `measures`, which lists the statistics.
///
/// ```
/// pagelab_base::counters! {
///     /// What a queue did.
///     pub struct QueueCounts {
///         entered: u64 as count("entered", "Requests that were entered");
///         waited: Cycles as cycles("wait_cycles", "Cycles that they waited");
///     }
/// }
/// use pagelab_base::cycles::Cycles;
///
/// let counts = QueueCounts { entered: 3, ..QueueCounts::default() };
/// assert_eq!(counts.measures()[0].name, "entered");
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident {
            $($field:ident: $type:ty as $constructor:ident($statistic:literal, $text:literal);)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name {
            $(#[doc = $text] pub $field: $type,)*
        }

        impl $name {
            /// Adds what another one has counted.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// The statistic of each counter.
            pub fn measures(&self) -> ::std::vec::Vec<$crate::measure::Measure> {
                ::std::vec![$($crate::measure::Measure::$constructor($statistic, self.$field, $text)),*]
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::{Measure, StatKind};
    use crate::cycles::Cycles;

    crate::counters! {
        /// What a queue did.
        struct QueueCounts {
            entered: u64 as count("entered", "Requests that were entered");
            late: u64 as timed_count("late", "Requests that came too late");
            waited: Cycles as cycles("wait_cycles", "Cycles that requests waited");
            left: u64 as number("left", "Requests that are still there");
        }
    }

    #[test]
    fn a_counter_is_declared_with_its_statistic() {
        let mut counts = QueueCounts { entered: 3, late: 1, waited: Cycles(40), left: 2 };
        counts.add(&counts.clone());
        let measures = counts.measures();
        let read = |measure: &Measure| {
            (measure.name.clone(), measure.value, measure.meaning.unit, measure.meaning.kind, measure.meaning.is_state)
        };
        assert_eq!(
            measures.iter().map(read).collect::<Vec<_>>(),
            [
                ("entered".to_owned(), 6, "count", StatKind::Robust, false),
                ("late".to_owned(), 2, "count", StatKind::Timing, false),
                ("wait_cycles".to_owned(), 80, "cycles", StatKind::Timing, false),
                ("left".to_owned(), 4, "count", StatKind::Robust, true),
            ]
        );
        assert_eq!(measures[0].meaning.description, "Requests that were entered");
    }

    #[test]
    fn a_state_of_a_design_that_depends_on_timing_stays_robust() {
        assert_eq!(Measure::number("left", 1, "Requests").timed().meaning.kind, StatKind::Robust);
        assert_eq!(Measure::count("entered", 1, "Requests").timed().meaning.kind, StatKind::Timing);
    }
}
