//! A statistic of a design: a number with its meaning, and a name within the design.

use crate::cycles::Cycles;

/// Kind of a statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatKind {
    /// Number of events.
    Count,
    /// A state at the end, in this unit.
    State(&'static str),
    /// Cycles that were spent.
    Cycles,
}

/// One statistic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Dotted name, relative to the design's owner.
    pub name: String,
    /// The number; see `nature`.
    pub value: u64,
    /// Kind of the number, and its unit.
    pub nature: StatKind,
    /// What the number means, for lists of statistics.
    pub text: String,
}

impl Measure {
    /// A number of events.
    pub fn count(name: impl Into<String>, value: u64, text: impl Into<String>) -> Self {
        Self { name: name.into(), value, nature: StatKind::Count, text: text.into() }
    }

    /// A state at the end, in `unit`.
    pub fn state(name: impl Into<String>, value: u64, unit: &'static str, text: impl Into<String>) -> Self {
        Self { name: name.into(), value, nature: StatKind::State(unit), text: text.into() }
    }

    /// Cycles that were spent.
    pub fn cycles(name: impl Into<String>, value: Cycles, text: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.0, nature: StatKind::Cycles, text: text.into() }
    }
}
