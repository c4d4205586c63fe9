//! What a source is to a run.

use pagelab_base::cycles::Cycles;

/// What a source is to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The run lasts until all of these have ended.
    Main,
    /// By number.
    CoRunner(usize),
    /// A short-lived process, which the run waits for.
    Arrival {
        /// When it arrived.
        at: Cycles,
    },
}
