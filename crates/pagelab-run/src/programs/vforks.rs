//! A source whose vforking threads wait for their children.
//!
//! Models: `vfork(2)`, and `clone(2)` with `CLONE_VFORK`. The calling thread waits until its child executes a program
//! or ends (`wait_for_vfork_done`); until then the child borrows its memory. Edges say so to the replay.
//! Parameters: none.
//! Deviations: Linux lets the parent go when the child has left the old memory, here when the child's exec or exit is
//! done. A recorder may see the parent's next action before the child's exec. Then the parent waits for what the child
//! has done so far.

use std::sync::Arc;

use pagelab_trace::calls::CallStacks;
use pagelab_trace::{Batch, Event, EventKind, ProcessIx, Segment, Source, SourceInfo, ThreadIx, TraceError};

/// Edges of vforks; those of sources are below.
const FIRST_EDGE: u64 = 1 << 63;

/// A vfork whose thread has done nothing since.
struct Vfork {
    thread: ThreadIx,
    process: ProcessIx,
    child: ProcessIx,
    /// The child's last thread that began.
    runs: Option<ThreadIx>,
    /// The edge whose wake the child has passed.
    edge: Option<u64>,
}

/// A source with edges of vforks, see the module's text.
struct WithVforkWaits {
    source: Box<dyn Source>,
    open: Vec<Vfork>,
    edges: u64,
    /// Accesses before the next segment.
    position: u64,
}

/// A source whose vforks have edges. Those of one thread have none.
pub fn with_vfork_waits(source: Box<dyn Source>) -> Box<dyn Source> {
    if source.info().threads <= 1 { source } else { Box::new(WithVforkWaits::new(source)) }
}

impl WithVforkWaits {
    fn new(source: Box<dyn Source>) -> Self {
        Self { source, open: Vec::new(), edges: 0, position: 0 }
    }

    fn push(&self, to: &mut Vec<Segment>, process: ProcessIx, thread: ThreadIx, kind: EventKind) {
        to.push(Segment::Event(Event { position: self.position, process, thread, kind }));
    }

    /// The child has let its parent go.
    fn wake(&mut self, to: &mut Vec<Segment>, at: usize) {
        let (edge, child) = (FIRST_EDGE + self.edges, self.open[at].child);
        if let (None, Some(thread)) = (self.open[at].edge, self.open[at].runs) {
            self.push(to, child, thread, EventKind::Wake { edge });
            self.open[at].edge = Some(edge);
            self.edges += 1;
        }
    }

    /// A thread acts: if it has called vfork, it has waited.
    fn before(&mut self, to: &mut Vec<Segment>, thread: ThreadIx) {
        if let Some(at) = self.open.iter().position(|vfork| vfork.thread == thread) {
            self.wake(to, at);
            let Vfork { process, edge, .. } = self.open.remove(at);
            edge.into_iter().for_each(|edge| self.push(to, process, thread, EventKind::Woken { edge }));
        }
    }

    fn after(&mut self, to: &mut Vec<Segment>, event: &Event) {
        let Event { process, thread, ref kind, .. } = *event;
        let of_child = self.open.iter().position(|vfork| vfork.child == process);
        match (kind, of_child) {
            (&EventKind::Vfork { child }, _) => {
                self.open.push(Vfork { thread, process, child, runs: None, edge: None });
            }
            (EventKind::ThreadStart { .. }, Some(at)) => self.open[at].runs = Some(thread),
            (EventKind::Exec { .. } | EventKind::Exit { .. }, Some(at)) => self.wake(to, at),
            _ => {}
        }
    }

    /// The segments of a batch, with edges between them.
    fn with_edges(&mut self, segments: Vec<Segment>) -> Vec<Segment> {
        let (mut all, first) = (Vec::with_capacity(segments.len() + 2), self.position);
        for segment in segments {
            match segment {
                Segment::Run { thread, end } => {
                    self.before(&mut all, thread);
                    self.position = first + end as u64;
                    all.push(Segment::Run { thread, end });
                }
                Segment::Event(event) => {
                    self.before(&mut all, event.thread);
                    all.push(Segment::Event(event.clone()));
                    self.after(&mut all, &event);
                }
            }
        }
        all
    }
}

impl Source for WithVforkWaits {
    fn info(&self) -> &SourceInfo {
        self.source.info()
    }

    fn omit_dependencies(&mut self) {
        self.source.omit_dependencies();
    }

    fn enable_call_stacks(&mut self) -> Result<Option<Arc<CallStacks>>, TraceError> {
        self.source.enable_call_stacks()
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        let more = self.source.next_batch(batch)?;
        let vforks =
            |segment: &Segment| matches!(segment, Segment::Event(e) if matches!(e.kind, EventKind::Vfork { .. }));
        if !self.open.is_empty() || batch.segments.iter().any(vforks) {
            let first = self.position;
            batch.segments = self.with_edges(std::mem::take(&mut batch.segments));
            self.position = first;
        }
        self.position += batch.accesses.len() as u64;
        Ok(more)
    }
}
