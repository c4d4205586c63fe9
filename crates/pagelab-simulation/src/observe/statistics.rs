//! Statistics: named plain counters with unit and description.
//!
//! Names are dotted and stable. Ratios are derived by whoever reads them. Each statistic says whether it is *robust*
//! (what was referenced, missed, faulted: it follows from the order of accesses) or depends on *timing* (cycles,
//! contention).

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Whether a statistic depends on timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It follows from the order of accesses alone.
    Robust,
    /// It depends on cycles, and on who came first.
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
    pub kind: Kind,
}

/// Statistics by name.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Values by dotted name.
    pub values: BTreeMap<String, u64>,
    /// Meanings, by the same names.
    pub meanings: BTreeMap<String, Meaning>,
    /// Those that say how things are, where the others count what has happened.
    pub(crate) states: BTreeSet<String>,
    /// Counts alone, without what they mean: what is looked at often, and made up for by a look that is not.
    pub(crate) brief: bool,
}
