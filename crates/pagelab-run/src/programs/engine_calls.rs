//! A source whose programs enable and disable the fault engine of their kernel in the middle of a run.
//!
//! Parameters: `engine.fault_engine_calls`, for traces and workloads that have no events of such calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pagelab_trace::calls::CallStacks;
use pagelab_trace::{Batch, Event, EventKind, ProcessIx, Segment, Source, SourceInfo, ThreadIx, TraceError};

use crate::config::EngineCallAt;

/// A source with calls, see the module's text.
pub struct WithEngineCalls {
    source: Box<dyn Source>,
    calls: VecDeque<EngineCallAt>,
    read: Batch,
    /// Accesses before the next segment.
    position: u64,
    process_of: BTreeMap<ThreadIx, ProcessIx>,
}

impl WithEngineCalls {
    /// Each call is made by the thread of the access that it follows; at 0, by the first thread when it begins. `calls`
    /// are in the order of their positions.
    pub fn new(source: Box<dyn Source>, calls: &[EngineCallAt]) -> Self {
        let calls = calls.iter().copied().collect();
        Self { source, calls, read: Batch::default(), position: 0, process_of: BTreeMap::new() }
    }

    /// Adds the calls that are due at this position to a batch.
    fn add_due(&mut self, thread: ThreadIx, batch: &mut Batch) {
        while let Some(&EngineCallAt { enable, .. }) = self.calls.front().filter(|call| call.after <= self.position) {
            self.calls.pop_front();
            let process = self.process_of.get(&thread).copied().unwrap_or_default();
            let kind = EventKind::EngineCall { enable };
            batch.push_event(Event { position: self.position, process, thread, kind });
        }
    }

    /// Passes on a run of accesses, cut where a call is due.
    fn add_run(&mut self, thread: ThreadIx, begin: usize, end: usize, batch: &mut Batch) {
        let mut at = begin;
        while at < end {
            let left = self.calls.front().map_or(u64::MAX, |call| call.after.saturating_sub(self.position));
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(end - at);
            at += now;
            self.position += now as u64;
            batch.segments.push(Segment::Run { thread, end: at });
            self.add_due(thread, batch);
        }
    }
}

impl Source for WithEngineCalls {
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
        batch.clear();
        if !self.source.next_batch(&mut self.read)? {
            return Ok(false);
        }
        // Calls are few, so that only the segments are written anew.
        std::mem::swap(batch, &mut self.read);
        let segments = std::mem::take(&mut batch.segments);
        let mut begin = 0;
        for segment in segments {
            match segment {
                Segment::Run { thread, end } => {
                    self.add_run(thread, begin, end, batch);
                    begin = end;
                }
                Segment::Event(event) => {
                    let (thread, begins) = (event.thread, matches!(event.kind, EventKind::ThreadStart { .. }));
                    self.process_of.insert(thread, event.process);
                    batch.push_event(event);
                    if begins {
                        self.add_due(thread, batch);
                    }
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_trace::workload;

    /// Positions of the calls in a source, and how many accesses it has.
    fn calls(spec: &str, at: &[(u64, bool)]) -> (Vec<(u64, bool)>, u64) {
        let calls: Vec<EngineCallAt> = at.iter().map(|&(after, enable)| EngineCallAt { after, enable }).collect();
        let mut source = WithEngineCalls::new(workload::parse(spec, 1).unwrap(), &calls);
        let (mut batch, mut seen, mut position) = (Batch::default(), Vec::new(), 0);
        let mut mapped = false;
        while source.next_batch(&mut batch).unwrap() {
            let mut begin = 0;
            for segment in &batch.segments {
                match segment {
                    Segment::Run { end, .. } => {
                        position += (end - begin) as u64;
                        begin = *end;
                    }
                    Segment::Event(Event { kind: EventKind::EngineCall { enable }, position: at, .. }) => {
                        assert_eq!(*at, position);
                        assert_eq!(mapped, position > 0, "a call at the start precedes all mappings");
                        seen.push((position, *enable));
                    }
                    Segment::Event(event) => mapped |= matches!(event.kind, EventKind::Mmap { .. }),
                }
            }
            assert_eq!(begin, batch.accesses.len());
        }
        (seen, position)
    }

    #[test]
    fn calls_come_after_their_accesses_and_those_at_zero_before_all_mappings() {
        let wanted = [(0, false), (1, true), (100_000, false), (100_000, true)];
        let (seen, accesses) = calls("seq:size=1MiB,threads=2,accesses=150K", &wanted);
        assert_eq!((&seen[..], accesses), (&wanted[..], 150_000));
        assert_eq!(calls("seq:size=64KiB,accesses=1000", &[(1001, true)]), (Vec::new(), 1000));
    }
}
