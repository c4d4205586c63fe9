//! What a source is to a run.

use crate::base::cycles::Cycles;

/// What a source is to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Main,
    /// By number.
    CoRunner(usize),
    Arrival {
        at: Cycles,
    },
}
