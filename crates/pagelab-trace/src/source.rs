//! Batches of accesses and events, and the trait that yields them.

use std::ops::Range;
use std::sync::Arc;

use crate::{Access, Branches, Event, ThreadIx, calls::CallStacks, error::TraceError, sampling::Sampling};

/// A stretch of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Accesses of one thread, from the end of the previous run (0 at first) up to `end` in `Batch::accesses`.
    Run {
        /// Whose they are.
        thread: ThreadIx,
        /// Index behind the last one.
        end: usize,
    },
    /// Something that happened between two runs.
    Event(Event),
}

/// A piece of a source: accesses cut into runs of one thread, with events between them, in a legal order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// All accesses, in order.
    pub accesses: Vec<Access>,
    /// The branches before each access; empty if they are not known.
    pub branches: Vec<Branches>,
    /// The context of each access ([`Context`](crate::calls::Context)); empty if they are not known or not asked for.
    pub contexts: Vec<u32>,
    /// What was allocated and freed, each with its place: the number of accesses of the batch before it, fewer than
    /// there are. Only if contexts are asked for.
    pub allocations: Vec<(usize, Event)>,
    /// Whose they are, and what happened between them.
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

    /// Ends the current run of `thread` at the accesses pushed so far, joining it to a run of the same thread
    /// just before. Does nothing if no access was pushed since the last segment.
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

    /// True if it has neither accesses nor events.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty() && self.segments.is_empty()
    }
}

/// Those of [`Batch::allocations`] within a part of the accesses.
pub fn allocations_within(all: &[(usize, Event)], part: Range<usize>) -> &[(usize, Event)] {
    let begin = all.partition_point(|(at, _)| *at < part.start);
    let end = begin + all[begin..].partition_point(|(at, _)| *at < part.end);
    &all[begin..end]
}

/// What is known of a source before it is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// Workload spec or trace name, for tables and results.
    pub name: String,
    /// Accesses it will yield, if known; for progress only.
    pub accesses: Option<u64>,
    /// Threads that run at the same time at most, for the default placement on cores.
    pub threads: u32,
    /// True if the mappings were inferred from the accesses because the trace had no events.
    pub mappings_inferred: bool,
    /// True if the accesses are samples of those that the program made.
    pub sampled: bool,
    /// The windows that it passes on of what it is a sample of; none if it is none.
    pub sampling: Option<Sampling>,
    /// True if accesses tell the load that their address comes from ([`Maker`](crate::Maker)).
    pub dependencies: bool,
    /// True if batches tell the branches between accesses.
    pub branches: bool,
    /// Hash that identifies the trace's content, for results; none for synthetic workloads.
    pub content_hash: Option<String>,
}

/// A stream of accesses and events, in one legal order.
///
/// The order of accesses of one thread, and of events against the accesses of their process, is binding; runs of
/// different threads between two events may be interleaved anew by whoever replays them.
pub trait Source: Send {
    /// What is known of it before its first batch.
    fn info(&self) -> &SourceInfo;

    /// Says, before the first batch, that nobody will look at dependencies and branches: they may be left out, which
    /// saves time.
    fn leave_dependencies_out(&mut self) {}

    /// Asks, before the first batch, for the contexts of accesses and for events of allocations; returns the contexts,
    /// none if they are not known. Without being asked, a source leaves all of that out.
    ///
    /// # Errors
    /// [`TraceError::Io`] and [`TraceError::Corrupt`] of a trace whose contexts cannot be read.
    fn tell_call_stacks(&mut self) -> Result<Option<Arc<CallStacks>>, TraceError> {
        Ok(None)
    }

    /// Replaces `batch` by the next piece; false (and an empty batch) at the end. A batch holds at least one
    /// segment and at most a few hundred thousand accesses.
    ///
    /// # Errors
    /// [`TraceError::Io`] and [`TraceError::Corrupt`] of a trace that cannot be read or is damaged. Workloads have
    /// none.
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError>;
}
