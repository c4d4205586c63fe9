//! What a kernel needs of its threads ([`crate::threads`]).

/// What a kernel thread may be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Free memory of its layer has come below the low watermark.
    Memory,
    /// Few of the frames that its fault engine keeps ready are left.
    ReadyFrames,
    /// There are entries to be armed for its fault engine, or to be so no more.
    Arming,
}
