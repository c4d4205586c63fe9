//! A recording that is read while the program runs, without a trace on disk.
//!
//! Batches go to all readers, each through a queue of its own. A full queue makes the program wait; a reader that is
//! gone gets no more. When all are gone, the caller should stop the recording
//! ([`Recording::stop`](super::Recording::stop)).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::output::Sink;
use crate::format::{FIRST_PART_ROWS, OpenPage};
use crate::{Access, Batch, Branches, Event, Source, SourceInfo, ThreadIx, TraceError};

/// Maximum number of accesses of a batch: 2 MiB.
const BATCH_ACCESSES: usize = 1 << 16;
/// Maximum number of events of a batch.
const BATCH_EVENTS: usize = 1 << 10;
/// Number of batches queued for a reader.
const QUEUED_BATCHES: usize = 8;

/// The writing end of a live recording.
pub struct LiveWriter {
    page: OpenPage,
    /// Number of accesses in the pages before.
    sent: u64,
    batch: Batch,
    events: usize,
    readers: Vec<SyncSender<Arc<Batch>>>,
}

/// The reading end of a live recording.
pub struct LiveSource {
    info: SourceInfo,
    batches: Receiver<Arc<Batch>>,
}

/// Creates a live recording for `readers` readers of a program described by `info`.
pub fn live(info: &SourceInfo, readers: usize) -> (LiveWriter, Vec<LiveSource>) {
    let queues = (0..readers).map(|_| sync_channel(QUEUED_BATCHES));
    let (readers, sources): (Vec<_>, Vec<_>) =
        queues.map(|(sender, batches)| (sender, LiveSource { info: info.clone(), batches })).unzip();
    let page = OpenPage::new(FIRST_PART_ROWS, info.dependencies);
    (LiveWriter { page, sent: 0, batch: Batch::default(), events: 0, readers }, sources)
}

impl Sink for LiveWriter {
    fn position(&self) -> u64 {
        self.sent + self.page.rows() as u64
    }

    fn append(&mut self, thread: ThreadIx, accesses: &[Access], branches: &[Branches]) -> Result<(), TraceError> {
        self.page.switch_to(thread);
        let mut done = 0;
        while done < accesses.len() {
            done += self.page.append(&accesses[done..], branches.get(done..).unwrap_or_default());
            if self.page.is_full() {
                self.take_page();
            }
        }
        Ok(())
    }

    fn page(&mut self) -> &mut OpenPage {
        &mut self.page
    }

    fn event(&mut self, event: Event) -> Result<(), TraceError> {
        self.take_page();
        self.batch.push_event(event);
        self.events += 1;
        if self.events == BATCH_EVENTS {
            self.send();
        }
        Ok(())
    }
}

impl LiveWriter {
    fn take_page(&mut self) {
        self.sent += self.page.rows() as u64;
        self.page.drain_into(&mut self.batch);
        if self.batch.accesses.len() >= BATCH_ACCESSES {
            self.send();
        }
    }

    fn send(&mut self) {
        if !self.batch.is_empty() {
            self.events = 0;
            let batch = Arc::new(std::mem::take(&mut self.batch));
            self.readers.retain(|reader| reader.send(batch.clone()).is_ok());
        }
    }
}

impl Drop for LiveWriter {
    /// Sends the remaining accesses; the readers then reach the end.
    fn drop(&mut self) {
        self.take_page();
        self.send();
    }
}

impl Source for LiveSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        let Ok(next) = self.batches.recv() else { return Ok(false) };
        match Arc::try_unwrap(next) {
            Ok(alone) => *batch = alone,
            Err(shared) => {
                batch.accesses.extend_from_slice(&shared.accesses);
                batch.branches.extend_from_slice(&shared.branches);
                batch.segments.extend_from_slice(&shared.segments);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessKind, EventKind, ProcessIx, Segment};

    fn info() -> SourceInfo {
        SourceInfo {
            name: "live".to_owned(),
            accesses: None,
            threads: 1,
            mappings_inferred: false,
            sampled: false,
            sampling: None,
            dependencies: false,
            branches: false,
            content_hash: None,
        }
    }

    fn access(n: u64) -> Access {
        Access { pc: 0x1000 + n % 7, gap: (n % 5) as u32, ..Access::new(AccessKind::Load, n * 8, 8) }
    }

    fn read(mut source: LiveSource) -> (Vec<Access>, Vec<(usize, Segment)>) {
        let (mut accesses, mut segments, mut batch) = (Vec::new(), Vec::new(), Batch::default());
        while source.next_batch(&mut batch).unwrap() {
            for segment in &batch.segments {
                segments.push((accesses.len(), segment.clone()));
            }
            accesses.extend_from_slice(&batch.accesses);
        }
        (accesses, segments)
    }

    #[test]
    fn all_readers_read_all_in_order() {
        let (mut writer, sources) = live(&info(), 3);
        let readers: Vec<_> = sources.into_iter().map(|source| std::thread::spawn(|| read(source))).collect();
        let all: Vec<Access> = (0..500_000).map(access).collect();
        for (n, part) in all.chunks(70_001).enumerate() {
            writer.append(ThreadIx(n as u32 % 2), part, &[]).unwrap();
            let position = writer.position();
            let kind = EventKind::Munmap { addr: n as u64, len: 4096 };
            writer.event(Event { position, process: ProcessIx(0), thread: ThreadIx(0), kind }).unwrap();
        }
        drop(writer);
        for reader in readers {
            let (accesses, segments) = reader.join().unwrap();
            assert_eq!(accesses, all);
            let events = segments.iter().filter(|(_, segment)| matches!(segment, Segment::Event(_)));
            assert_eq!(events.count(), all.len().div_ceil(70_001));
        }
    }

    #[test]
    fn a_batch_has_its_events_between_the_accesses() {
        let (mut writer, mut sources) = live(&info(), 1);
        let event = |position, at| Event {
            position,
            process: ProcessIx(0),
            thread: ThreadIx(1),
            kind: EventKind::Munmap { addr: at, len: 4096 },
        };
        writer.append(ThreadIx(0), &[access(1), access(2)], &[]).unwrap();
        writer.append(ThreadIx(1), &[access(3)], &[]).unwrap();
        writer.event(event(3, 1)).unwrap();
        writer.event(event(3, 2)).unwrap();
        writer.append(ThreadIx(1), &[access(4)], &[]).unwrap();
        drop(writer);
        let mut batch = Batch::default();
        assert!(sources[0].next_batch(&mut batch).unwrap());
        assert_eq!(batch.accesses, [1, 2, 3, 4].map(access));
        let run = |thread, end| Segment::Run { thread: ThreadIx(thread), end };
        let expected = [run(0, 2), run(1, 3), Segment::Event(event(3, 1)), Segment::Event(event(3, 2)), run(1, 4)];
        assert_eq!(batch.segments, expected);
        assert!(!sources[0].next_batch(&mut batch).unwrap());
        assert!(batch.is_empty());
    }

    #[test]
    fn a_dropped_reader_blocks_nobody() {
        let (mut writer, mut sources) = live(&info(), 2);
        let batch = vec![access(0); BATCH_ACCESSES];
        sources.pop();
        // More than the queue's capacity.
        let reader = sources.pop().map(|source| std::thread::spawn(|| read(source).0.len())).unwrap();
        (0..3 * QUEUED_BATCHES).for_each(|_| writer.append(ThreadIx(0), &batch, &[]).unwrap());
        drop(writer);
        assert_eq!(reader.join().unwrap(), 3 * QUEUED_BATCHES * BATCH_ACCESSES);
        let (mut writer, sources) = live(&info(), 1);
        drop(sources);
        (0..3 * QUEUED_BATCHES).for_each(|_| writer.append(ThreadIx(0), &batch, &[]).unwrap());
    }
}
