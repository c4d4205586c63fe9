//! What a design measures of itself: a number with its meaning, named within the design.

use crate::cycles::Cycles;

/// How a number is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatKind {
    /// Counts what has happened.
    Count,
    /// Says how things are, in this unit.
    State(&'static str),
    /// Cycles that were spent.
    Cycles,
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Dotted, behind the name of whatever has the design.
    pub name: String,
    /// The number, read as `nature` says.
    pub value: u64,
    /// How the number is read, and its unit.
    pub nature: StatKind,
    /// What the number means, for lists of statistics.
    pub text: String,
}

impl Measure {
    /// A count of what has happened.
    pub fn count(name: impl Into<String>, value: u64, text: impl Into<String>) -> Self {
        Self { name: name.into(), value, nature: StatKind::Count, text: text.into() }
    }

    /// How things are at the end, in `unit`.
    pub fn state(name: impl Into<String>, value: u64, unit: &'static str, text: impl Into<String>) -> Self {
        Self { name: name.into(), value, nature: StatKind::State(unit), text: text.into() }
    }

    /// Cycles that were spent.
    pub fn cycles(name: impl Into<String>, value: Cycles, text: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.0, nature: StatKind::Cycles, text: text.into() }
    }
}
