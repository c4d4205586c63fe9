//! Page faults in time: traces of natively running programs, and synthetic fault processes.
//!
//! A trace of accesses says what a program touches. A fault trace says when it faults, on which core, and how long that
//! takes. It is recorded at native speed, so it keeps the program's own time. This crate knows no engine.
//!
//! | module | what it holds |
//! |---|---|
//! | [`fault`] | one page fault |
//! | [`info`] | what a fault trace is, where it comes from, what its latencies rest on |
//! | [`format`](mod@format) | fault traces on disk: writer, reader |
//! | [`import`] | a text becomes a fault trace |
//! | [`text`] | what `perf script` and ftrace print |
//! | [`process`] | synthetic faults at given rates, computed from a spec |
#![forbid(unsafe_code)]

pub mod fault;
pub mod format;
pub mod import;
pub mod info;
pub mod process;
pub mod text;

pub use fault::{Fault, FaultAccess, FaultKind};
pub use format::{FaultTraceReader, FaultTraceWriter};
pub use info::{FaultTraceInfo, LatencyOrigin};
