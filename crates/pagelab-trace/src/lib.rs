//! Traces of memory accesses and memory-management events.
//!
//! Everything that the engine replays is a [`Source`]: a stream of [`Batch`]es. A batch is a slice of accesses divided
//! into runs of one thread, with the [`Event`]s (mmap, fork, exit …) between the runs in the order in which they
//! happened. Recorded traces, imported traces and synthetic workloads are all sources. This crate does not depend on
//! the engine.
//!
//! | module | contents |
//! |---|---|
//! | [`access`] | one memory access |
//! | [`calls`] | call stacks of a trace |
//! | [`event`] | one change of an address space, a process or a thread |
//! | [`export`] | traces for other tools |
//! | [`format`](mod@format) | traces on disk: writer, reader, information |
//! | [`import`] | traces of other tools |
//! | `open` | opens sources by their names |
//! | [`quantity`] | parsing and printing of sizes and counts |
//! | [`record`] | recording real programs under Valgrind |
//! | [`rng`] | random numbers, also for the engine |
//! | [`sample`] | windows of a source, and the first touches between them |
//! | [`source`] | batches and the trait that yields them |
//! | [`spec`] | parameters, their limits, and their values in a spec |
//! | [`suggestion`] | suggestions for unknown names |
//! | [`workload`] | synthetic programs whose accesses are computed from a spec |
//!
//! This example reads the accesses of a workload; for a trace, use `TraceReader::open(path)?` instead:
//!
//! ```
//! use pagelab_trace::{Batch, workload};
//!
//! let mut source = workload::parse("seq:size=64KiB", 1)?;
//! let (mut batch, mut accesses) = (Batch::default(), 0);
//! while source.next_batch(&mut batch)? {
//!     accesses += batch.accesses.len();
//! }
//! assert_eq!(accesses, 8192, "one for each 8 bytes");
//! # Ok::<(), pagelab_trace::TraceError>(())
//! ```
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod access;
pub mod calls;
mod cases;
pub mod error;
pub mod event;
pub mod export;
pub mod format;
pub mod import;
pub mod library_panics;
mod open;
pub mod quantity;
pub mod record;
pub mod rng;
pub mod sample;
mod sampling;
pub mod source;
pub mod spec;
pub mod suggestion;
mod touched_pages;
pub mod workload;

pub use access::{Access, AccessKind, Branches, Maker};
#[doc(hidden)]
pub use cases::{case_seed, cases};
pub use error::TraceError;
pub use event::{Event, EventKind, MapFlags, ProcessIx, Protection, ThreadIx};
pub use format::{TraceMeta, TraceReader, TraceWriter};
pub use open::{Ending, Opened, names_trace, open};
pub use quantity::Bytes;
pub use source::{Batch, Segment, Source, SourceInfo};
pub use touched_pages::FirstTouches;
