//! Page faults over time: traces of natively running programs, synthetic fault processes, and a model that runs on
//! them.
//!
//! A trace of accesses records what a program accesses. A fault trace records when it faults, on which core, and how
//! long each fault takes. It is recorded at native speed, so it keeps the program's own timing. This crate does not
//! depend on the engine.
//!
//! | module | what it holds |
//! |---|---|
//! | [`catalogue`] | what there is to choose from |
//! | [`fault`] | one page fault |
//! | [`info`] | what a fault trace is, where it comes from, what its latencies rest on |
//! | [`format`](mod@format) | fault traces on disk: writer, reader |
//! | [`summary`] | what a fault trace holds, counted |
//! | [`import`] | a text becomes a fault trace |
//! | [`text`] | what `perf script` and ftrace print |
//! | [`process`] | synthetic faults at given rates, computed from a spec |
//! | [`timeline`] | the faults core by core, as a model takes them |
//! | [`mfoe`] | the event model of the minor-fault offload engine |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod catalogue;
pub mod fault;
pub mod format;
pub mod import;
pub mod info;
pub mod mfoe;
pub mod process;
pub mod summary;
pub mod text;
pub mod timeline;

pub use fault::{Fault, FaultAccess, FaultKind};
pub use format::{FaultTraceReader, FaultTraceWriter};
pub use info::{FaultTraceInfo, LatencyOrigin};
pub use timeline::Timeline;
