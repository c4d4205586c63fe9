//! What the statistics of a simulation are collected in.

use pagelab_run::observe::statistics::Statistics;
use std::ops::{Deref, DerefMut};

/// Statistics while they are collected.
pub(crate) struct Collector(pub(super) Statistics);

impl Deref for Collector {
    type Target = Statistics;

    fn deref(&self) -> &Statistics {
        &self.0
    }
}

impl DerefMut for Collector {
    fn deref_mut(&mut self) -> &mut Statistics {
        &mut self.0
    }
}
