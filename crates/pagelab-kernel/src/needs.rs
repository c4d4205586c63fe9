//! Needs of a kernel that its threads serve ([`crate::threads`]).

/// A reason to wake a kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Free memory of its layer is below the low watermark.
    Memory,
    /// Few ready frames of its fault engine are left.
    ReadyFrames,
    /// There are entries to arm or to disarm for its fault engine.
    Arming,
    /// Memory has become free that is to be reported to the host.
    Reporting,
}
