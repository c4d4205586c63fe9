//! Passes decoded accesses and events to a trace or to readers, up to the requested number.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::calls::Calls;
use super::memory_files::{FileId, MemoryFiles};
use super::stretches::{Mode, Schedule};
use crate::format::{FileNames, OpenPage, StretchTotals};
use crate::{Access, Branches, Event, EventKind, ProcessIx, ThreadIx, TraceError, TraceWriter};

/// The destination of a recording.
pub(super) trait Sink {
    /// Number of accesses appended so far: the position of an event that happens now.
    fn position(&self) -> u64;

    /// Estimated size of the trace with everything appended so far; 0 without a trace.
    fn bytes(&self) -> u64 {
        0
    }

    /// Appends accesses of one thread, in order. An empty `branches` means no branches.
    fn append(&mut self, thread: ThreadIx, accesses: &[Access], branches: &[Branches]) -> Result<(), TraceError>;

    /// The page that is being filled, for callers that append to it directly; they must leave room for an access.
    fn page(&mut self) -> &mut OpenPage;

    /// Adds an event that happens now.
    fn event(&mut self, event: Event) -> Result<(), TraceError>;
}

impl Sink for TraceWriter {
    fn position(&self) -> u64 {
        self.position()
    }

    fn bytes(&self) -> u64 {
        self.estimated_bytes()
    }

    fn append(&mut self, thread: ThreadIx, accesses: &[Access], branches: &[Branches]) -> Result<(), TraceError> {
        self.append_with_branches(thread, accesses, branches)
    }

    fn page(&mut self) -> &mut OpenPage {
        self.page()
    }

    fn event(&mut self, event: Event) -> Result<(), TraceError> {
        self.event(event)
    }
}

pub(super) struct Output<'a> {
    writer: &'a mut dyn Sink,
    thread: ThreadIx,
    limit: u64,
    /// Number of rows of the writer's page when it is full or the limit is reached.
    end: usize,
    /// None if everything is recorded.
    schedule: Option<Box<Schedule>>,
    /// Present if files get numbers instead of names.
    names: Option<FileNames>,
    memory_files: MemoryFiles,
    /// Present if call stacks are recorded.
    calls: Option<Box<Calls>>,
    /// Process and thread of the current records.
    now: Option<(ProcessIx, ThreadIx)>,
}

impl<'a> Output<'a> {
    /// `writer` must be new.
    pub(super) fn new(writer: &'a mut dyn Sink, limit: Option<u64>, schedule: Option<Schedule>) -> Self {
        let (limit, schedule) = (limit.unwrap_or(u64::MAX), schedule.map(Box::new));
        let mut output = Self {
            writer,
            thread: ThreadIx(0),
            limit,
            end: 0,
            schedule,
            names: None,
            memory_files: MemoryFiles::default(),
            calls: None,
            now: None,
        };
        output.look_at_page();
        output
    }

    /// Replaces names of files by numbers.
    pub(super) fn anonymous(mut self, wanted: bool) -> Self {
        self.names = wanted.then(FileNames::default);
        self
    }

    /// The name of a file in events.
    pub(super) fn file_name(&mut self, id: FileId, path: Arc<str>) -> Arc<str> {
        self.memory_files.name(id, path)
    }

    /// Records call stacks of a program that was started after `started`, and writes them to the trace in this folder.
    pub(super) fn with_calls(mut self, folder: Option<&Path>, started: SystemTime) -> Self {
        self.calls = folder.map(|folder| Box::new(Calls::new(folder, started)));
        self
    }

    pub(super) fn calls(&mut self) -> Option<&mut Calls> {
        self.calls.as_deref_mut()
    }

    /// Takes the call stacks, to track calls while the page is filled; they must be given back.
    #[inline]
    pub(super) fn take_calls(&mut self) -> Option<Box<Calls>> {
        self.calls.take()
    }

    #[inline]
    pub(super) fn return_calls(&mut self, mut calls: Option<Box<Calls>>) -> Result<(), TraceError> {
        let written = calls.as_mut().map_or(Ok(()), |calls| calls.write_full_parts());
        self.calls = calls;
        written
    }

    /// Writes the remaining data of call stacks; returns notes on what is missing, one sentence each.
    pub(super) fn finish_calls(&mut self) -> Result<Vec<String>, TraceError> {
        self.calls.take().map_or(Ok(Vec::new()), |calls| calls.finish(self.names.as_mut()))
    }

    /// True once the requested number of accesses is written; later ones are dropped.
    pub(super) fn is_full(&self) -> bool {
        self.written() >= self.limit
    }

    /// Estimated size of the trace so far.
    pub(super) fn bytes(&self) -> u64 {
        self.writer.bytes() + self.calls.as_ref().map_or(0, |calls| calls.bytes())
    }

    pub(super) fn written(&self) -> u64 {
        self.writer.position()
    }

    /// Sets the thread of the following accesses.
    pub(super) fn switch_to(&mut self, thread: ThreadIx) {
        self.thread = thread;
        self.writer.page().switch_to(thread);
    }

    /// Sets process and thread of the following records.
    pub(super) fn set_thread(&mut self, process: ProcessIx, thread: ThreadIx) {
        self.now = Some((process, thread));
        self.switch_to(thread);
    }

    /// What to record from here on.
    #[inline]
    pub(super) fn mode(&self) -> Mode {
        self.schedule.as_ref().map_or(Mode::All, |schedule| schedule.mode())
    }

    pub(super) fn schedule(&mut self) -> Option<&mut Schedule> {
        self.schedule.as_deref_mut()
    }

    /// Counts executed instructions, and accesses among them that were omitted.
    pub(super) fn executed(&mut self, instructions: u64, left_out: u64) {
        if let Some(schedule) = &mut self.schedule {
            schedule.executed(instructions, left_out);
        }
    }

    /// Whether the next stretch is due.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.schedule.as_ref().is_some_and(|schedule| schedule.is_due())
    }

    /// Begins the next stretch if it is due.
    #[inline]
    pub(super) fn begin_due_stretch(&mut self) -> Result<(), TraceError> {
        match &mut self.schedule {
            Some(schedule) if schedule.is_due() => {
                let Some((process, thread)) = self.now else { return Ok(()) };
                let events = schedule.enter_due_phase();
                events.into_iter().try_for_each(|kind| self.write_event(process, thread, kind))
            }
            _ => Ok(()),
        }
    }

    /// Totals of the stretches, and notes on what is missing.
    pub(super) fn stretch_totals(&self) -> Option<(StretchTotals, Vec<String>)> {
        self.schedule.as_ref().map(|schedule| (schedule.totals(), schedule.notes()))
    }

    /// The page for accesses of the current thread, and the number of rows up to which it may be filled.
    pub(super) fn page(&mut self) -> (&mut OpenPage, usize) {
        (self.writer.page(), self.end)
    }

    /// Appends accesses of the current thread with the branches before each; an empty `branches` means no branches.
    pub(super) fn append(&mut self, accesses: &[Access], branches: &[Branches]) -> Result<(), TraceError> {
        let room = self.limit - self.written();
        let wanted = usize::try_from(room).unwrap_or(usize::MAX).min(accesses.len());
        self.writer.append(self.thread, &accesses[..wanted], branches)?;
        self.look_at_page();
        Ok(())
    }

    /// Adds an event. The first event, a process's start, is followed by the event of the first stretch.
    pub(super) fn event(&mut self, process: ProcessIx, thread: ThreadIx, kind: EventKind) -> Result<(), TraceError> {
        self.write_event(process, thread, kind)?;
        self.now = Some((process, thread));
        if self.schedule.as_ref().is_some_and(|schedule| !schedule.is_announced()) {
            self.begin_due_stretch()
        } else {
            Ok(())
        }
    }

    fn write_event(&mut self, process: ProcessIx, thread: ThreadIx, kind: EventKind) -> Result<(), TraceError> {
        // Only traces with call stacks contain allocations.
        if self.is_full() || kind.reports_allocation() && self.calls.is_none() {
            return Ok(());
        }
        let kind = match &mut self.names {
            Some(names) => names.replace(kind),
            None => kind,
        };
        self.writer.event(Event { position: self.written(), process, thread, kind })?;
        self.look_at_page();
        Ok(())
    }

    fn look_at_page(&mut self) {
        let before = self.written() - self.writer.page().rows() as u64;
        let wanted = usize::try_from(self.limit - before).unwrap_or(usize::MAX);
        self.end = self.writer.page().capacity().min(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::calls::ProcessStacks;
    use crate::record::protocol::Transfer;
    use crate::{AccessKind, Batch, Segment, Source, TraceMeta, TraceReader};

    #[test]
    fn call_stacks_are_among_the_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = TraceWriter::create(folder.path(), TraceMeta::new(Vec::new())).unwrap();
        let mut output = Output::new(&mut writer, None, None).with_calls(Some(folder.path()), SystemTime::now());
        let before = output.bytes();
        let (calls, mut stacks) = (output.calls().unwrap(), ProcessStacks::default());
        calls.image(0, u32::MAX, &mut stacks);
        for number in 0..1000 {
            calls.transfer(&mut stacks, Transfer::Call, (0x7000, number), ThreadIx(0), number);
        }
        assert!(output.bytes() >= before + 1000, "{before}, then {}", output.bytes());
    }

    #[test]
    fn the_limit_is_exact_and_final() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = TraceWriter::create(folder.path(), TraceMeta::new(Vec::new())).unwrap();
        let mut output = Output::new(&mut writer, Some(5), None);
        let access = Access::new(AccessKind::Load, 0, 1);
        output.switch_to(ThreadIx(1));
        assert_eq!(output.page().1, 5);
        output.append(&[access; 3], &[]).unwrap();
        output.event(ProcessIx(0), ThreadIx(1), EventKind::ThreadExit).unwrap();
        assert!(!output.is_full());
        output.switch_to(ThreadIx(2));
        output.append(&[access; 3], &[]).unwrap();
        output.event(ProcessIx(0), ThreadIx(2), EventKind::ThreadExit).unwrap();
        assert!(output.is_full());
        output.switch_to(ThreadIx(3));
        output.append(&[access; 3], &[]).unwrap();
        assert_eq!(output.written(), 5);
        writer.finish().unwrap();
        let mut batch = Batch::default();
        assert!(TraceReader::open(folder.path()).unwrap().next_batch(&mut batch).unwrap());
        let exit = Event { position: 3, process: ProcessIx(0), thread: ThreadIx(1), kind: EventKind::ThreadExit };
        let [first, second] = [(1, 3), (2, 5)].map(|(thread, end)| Segment::Run { thread: ThreadIx(thread), end });
        assert_eq!(batch.segments, [first, Segment::Event(exit), second]);
    }
}
