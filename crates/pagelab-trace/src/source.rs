//! Batches of accesses and events, and the trait of sources.

use std::ops::Range;
use std::sync::Arc;

use crate::{Access, Branches, Event, ThreadIx, calls::CallStacks, error::TraceError, sampling::Sampling};

/// A segment of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Accesses of one thread, from the end of the previous run (0 at first) up to `end` in `Batch::accesses`.
    Run {
        /// The thread.
        thread: ThreadIx,
        /// Index after the last access.
        end: usize,
    },
    /// Something that happened between two runs.
    Event(Event),
}

/// A piece of a source: accesses divided into runs of one thread, with events between them, in a legal order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// All accesses, in order.
    pub accesses: Vec<Access>,
    /// The branches before each access: as many elements as accesses, or none if unknown.
    pub branches: Vec<Branches>,
    /// The context of each access ([`Context`](crate::calls::Context)): as many elements as accesses; none if they are
    /// unknown or not requested.
    pub contexts: Vec<u32>,
    /// Allocations and frees, each with its position: the number of the batch's accesses before it. Only if contexts
    /// are requested.
    pub allocations: Vec<(usize, Event)>,
    /// The runs of the accesses, and the events between them.
    pub segments: Vec<Segment>,
}

impl Batch {
    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.branches.clear();
        self.contexts.clear();
        self.allocations.clear();
        self.segments.clear();
    }

    /// Ends the current run of `thread` after the accesses pushed so far, and merges it with a directly preceding run
    /// of the same thread. Does nothing if no access was pushed since the last segment.
    pub fn close_run(&mut self, thread: ThreadIx) {
        let end = self.accesses.len();
        let begin = self.segments.iter().rev().find_map(|s| match s {
            Segment::Run { end, .. } => Some(*end),
            Segment::Event(_) => None,
        });
        if end == begin.unwrap_or(0) {
            return;
        }
        if let Some(Segment::Run { thread: last, end: last_end }) = self.segments.last_mut()
            && *last == thread
        {
            *last_end = end;
            return;
        }
        self.segments.push(Segment::Run { thread, end });
    }

    /// Appends an event.
    pub fn push_event(&mut self, event: Event) {
        self.segments.push(Segment::Event(event));
    }

    /// Refuses a batch whose branches or contexts are too few or too many for its accesses.
    ///
    /// # Errors
    /// [`TraceError::Usage`], which begins with the name of the source.
    pub fn validate(&self, name: &str) -> Result<(), TraceError> {
        let accesses = self.accesses.len();
        for (what, count) in [("branches", self.branches.len()), ("contexts", self.contexts.len())] {
            if count != 0 && count != accesses {
                let what = format!(
                    "{name}: a batch has {what} for {count} of its {accesses} accesses; a source must have them for all \
                     accesses of a batch or for none"
                );
                return Err(TraceError::usage(what));
            }
        }
        Ok(())
    }

    /// True if it has neither accesses nor events.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty() && self.segments.is_empty()
    }
}

/// The elements of [`Batch::allocations`] within a range of the accesses.
pub fn allocations_within(all: &[(usize, Event)], part: Range<usize>) -> &[(usize, Event)] {
    let begin = all.partition_point(|(at, _)| *at < part.start);
    let end = begin + all[begin..].partition_point(|(at, _)| *at < part.end);
    &all[begin..end]
}

/// Information about a source before it is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// Workload spec or trace name, for tables and results.
    pub name: String,
    /// Number of accesses if known; for progress only.
    pub accesses: Option<u64>,
    /// Maximum number of threads that run at the same time, for the default placement on cores.
    pub threads: u32,
    /// True if the mappings were inferred from the accesses because the trace had no events.
    pub mappings_inferred: bool,
    /// True if the accesses are samples of those that the program made.
    pub sampled: bool,
    /// The windows of a sample; none if the source is not one.
    pub sampling: Option<Sampling>,
    /// True if accesses contain the load that their address depends on ([`Maker`](crate::Maker)).
    pub dependencies: bool,
    /// True if batches contain the branches between accesses.
    pub branches: bool,
    /// Hash of the trace's content, for results; none for synthetic workloads.
    pub content_hash: Option<String>,
}

/// A stream of accesses and events, in one legal order.
///
/// The order of accesses of one thread is binding, and so is the order of events relative to the accesses of their
/// process. A replay may interleave runs of different threads between two events differently.
pub trait Source: Send {
    /// Information about the source, available before its first batch.
    fn info(&self) -> &SourceInfo;

    /// Call it before the first batch if dependencies and branches are not needed; the source may then omit them, which
    /// saves time.
    fn omit_dependencies(&mut self) {}

    /// Requests, before the first batch, contexts of accesses and events of allocations. Returns the contexts; none if
    /// they are unknown. Without a request, a source omits all of that.
    ///
    /// # Errors
    /// [`TraceError::Io`] and [`TraceError::Corrupt`] of a trace whose contexts cannot be read.
    fn enable_call_stacks(&mut self) -> Result<Option<Arc<CallStacks>>, TraceError> {
        Ok(None)
    }

    /// Replaces `batch` by the next piece; false (and an empty batch) at the end. A batch contains at least one segment
    /// and at most a few hundred thousand accesses.
    ///
    /// # Errors
    /// [`TraceError::Io`] and [`TraceError::Corrupt`] of a trace that cannot be read or is damaged. Workloads have no
    /// errors.
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError>;
}
