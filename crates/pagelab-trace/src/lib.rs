//! Traces of memory accesses and memory-management events.
//!
//! Everything the engine replays is a [`Source`]: a stream of [`Batch`]es, each a slice of accesses cut into
//! runs of one thread, with the [`Event`]s (mmap, fork, exit …) standing between the runs in the order in which
//! they happened. A recorded trace, an imported one and a synthetic workload are sources alike. This crate knows
//! nothing of the engine.
//!
//! | module | what it holds |
//! |---|---|
//! | [`access`] | one memory access |
//! | [`calls`] | call stacks of a trace |
//! | [`event`] | one change of an address space, a process or a thread |
//! | [`export`] | traces for other tools |
//! | [`format`](mod@format) | traces on disk: writer, reader, information |
//! | [`import`] | traces of other tools |
//! | `open` | sources by what users call them |
//! | [`quantity`] | sizes and counts as people write them |
//! | [`record`] | recording real programs under Valgrind |
//! | [`rng`] | random numbers, the engine's too |
//! | [`sample`] | windows of a source, and of the rest what page faults need |
//! | [`source`] | batches and the trait that yields them |
//! | [`spec`] | parameters, their limits, and the values that a spec gives them |
//! | [`suggestion`] | what an unknown name was probably meant to be |
//! | [`workload`] | synthetic programs whose accesses are computed from a spec |
//!
//! The accesses of a workload; those of a trace come from `TraceReader::open(path)?` in its place:
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
pub use cases::cases;
pub use error::TraceError;
pub use event::{Event, EventKind, MapFlags, ProcessIx, Protection, ThreadIx};
pub use format::{TraceMeta, TraceReader, TraceWriter};
pub use open::{Ending, Opened, names_trace, open};
pub use quantity::Bytes;
pub use source::{Batch, Segment, Source, SourceInfo};
pub use touched_pages::FirstTouches;
