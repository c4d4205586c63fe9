//! Statistics: named plain counters with unit and description.
//!
//! Names are dotted and stable. Ratios are derived by whoever reads them. Each statistic says whether it is *robust* (what
//! was referenced, missed, faulted: it follows from the order of accesses) or depends on *timing* (cycles, contention).

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Whether a statistic depends on timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Robust,
    Timing,
}

/// What a statistic means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Meaning {
    pub unit: &'static str,
    pub description: String,
    pub kind: Kind,
}

/// Statistics by name.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    pub values: BTreeMap<String, u64>,
    pub meanings: BTreeMap<String, Meaning>,
    /// Those that say how things are, where the others count what has happened.
    pub(crate) states: BTreeSet<String>,
}
