//! What a kernel needs of its threads ([`crate::kernel::threads`]).

/// What a kernel thread may be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Free memory of its layer has come below the low watermark.
    Memory,
}
