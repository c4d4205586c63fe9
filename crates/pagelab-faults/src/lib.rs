//! Page faults over time: traces of natively running programs, synthetic fault processes, and a model that runs on
//! them.
//!
//! A trace of accesses records what a program accesses. A fault trace records when it faults, on which core, and how
//! long each fault takes. It is recorded at native speed, so it keeps the program's own timing. This crate does not
//! depend on the engine.
//!
//! | module | contents |
//! |---|---|
//! | [`catalogue`] | the available fault processes and models |
//! | [`fault`] | one page fault |
//! | [`info`] | description of a fault trace: its source, and the origin of its latencies |
//! | [`format`](mod@format) | fault traces on disk: writer, reader |
//! | [`summary`] | counts of a fault trace |
//! | [`import`] | converts text to a fault trace |
//! | [`text`] | parsers of `perf script` and ftrace output |
//! | [`process`] | synthetic faults at given rates, computed from a spec |
//! | [`timeline`] | the faults per core, as input of a model |
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
