//! The role of a source in a run.

use pagelab_base::cycles::Cycles;

/// The role of a source in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A main source: the run lasts until all of these have ended.
    Main,
    /// A co-runner, by its number.
    CoRunner(usize),
    /// A short-lived process, which the run waits for.
    Arrival {
        /// Time of its arrival.
        at: Cycles,
    },
}
