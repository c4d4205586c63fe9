//! Where decoded accesses and events go: into runs of one thread, counted, cut at the wanted number.

use crate::{Access, Event, EventKind, ProcessIx, ThreadIx, TraceError};

/// Takes a recording in its order.
pub trait RecordSink {
    fn append(&mut self, thread: ThreadIx, accesses: &[Access]) -> Result<(), TraceError>;

    fn event(&mut self, event: Event) -> Result<(), TraceError>;
}

/// Accesses gathered before they are handed on; 96 KiB, so that the sink finds them in the second-level cache.
const BATCH: usize = 1 << 12;

pub(super) struct Output<'a> {
    sink: &'a mut dyn RecordSink,
    /// Accesses of `thread`, not yet handed on.
    batch: Vec<Access>,
    thread: ThreadIx,
    /// Accesses handed on.
    written: u64,
    limit: u64,
    full: bool,
}

impl<'a> Output<'a> {
    pub(super) fn new(sink: &'a mut dyn RecordSink, limit: Option<u64>) -> Self {
        Self {
            sink,
            batch: Vec::with_capacity(BATCH + 1024),
            thread: ThreadIx(0),
            written: 0,
            limit: limit.unwrap_or(u64::MAX),
            full: limit == Some(0),
        }
    }

    /// True once the wanted number of accesses is written; what comes later is dropped.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The batch to push accesses of `thread` to; [`settle`](Self::settle) after each few.
    pub(super) fn batch_of(&mut self, thread: ThreadIx) -> Result<&mut Vec<Access>, TraceError> {
        if thread != self.thread {
            self.flush()?;
            self.thread = thread;
        }
        Ok(&mut self.batch)
    }

    #[inline(always)]
    pub(super) fn batch(&mut self) -> &mut Vec<Access> {
        &mut self.batch
    }

    /// Hands on a full batch.
    #[inline(always)]
    pub(super) fn settle(&mut self) -> Result<(), TraceError> {
        if self.batch.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> Result<(), TraceError> {
        if self.full {
            self.batch.clear();
        }
        if self.batch.is_empty() {
            return Ok(());
        }
        let room = self.limit - self.written;
        if self.batch.len() as u64 >= room {
            self.batch.truncate(room as usize);
            self.full = true;
        }
        self.sink.append(self.thread, &self.batch)?;
        self.written += self.batch.len() as u64;
        self.batch.clear();
        Ok(())
    }

    pub(super) fn event(&mut self, process: ProcessIx, thread: ThreadIx, kind: EventKind) -> Result<(), TraceError> {
        self.flush()?;
        if self.full {
            return Ok(());
        }
        self.sink.event(Event { position: self.written, process, thread, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessKind;

    #[derive(Default)]
    struct Collected {
        runs: Vec<(ThreadIx, usize)>,
        events: Vec<u64>,
    }

    impl RecordSink for Collected {
        fn append(&mut self, thread: ThreadIx, accesses: &[Access]) -> Result<(), TraceError> {
            self.runs.push((thread, accesses.len()));
            Ok(())
        }

        fn event(&mut self, event: Event) -> Result<(), TraceError> {
            self.events.push(event.position);
            Ok(())
        }
    }

    #[test]
    fn the_limit_is_exact_and_final() {
        let mut sink = Collected::default();
        let mut output = Output::new(&mut sink, Some(5));
        let access = Access::new(AccessKind::Load, 0, 1);
        output.batch_of(ThreadIx(1)).unwrap().extend([access; 3]);
        output.event(ProcessIx(0), ThreadIx(1), EventKind::ThreadExit).unwrap();
        assert!(!output.is_full());
        output.batch_of(ThreadIx(2)).unwrap().extend([access; 3]);
        output.event(ProcessIx(0), ThreadIx(2), EventKind::ThreadExit).unwrap();
        assert!(output.is_full());
        output.batch_of(ThreadIx(3)).unwrap().extend([access; 3]);
        output.flush().unwrap();
        assert_eq!(output.written(), 5);
        assert_eq!(sink.runs, [(ThreadIx(1), 3), (ThreadIx(2), 2)]);
        assert_eq!(sink.events, [3]);
    }
}
