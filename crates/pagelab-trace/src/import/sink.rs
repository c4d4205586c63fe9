//! Where importers put what they read: one thread of one process, instructions counted into gaps.

use std::ops::ControlFlow;

use super::{
    Progress,
    input::Input,
    mappings::{Extent, infer},
};
use crate::{
    Access, AccessKind, Event, EventKind, MapFlags, ProcessIx, Protection, ThreadIx, TraceError, TraceWriter,
    format::{MAX_ACCESS_BYTES, TraceSummary},
    touched_pages::TouchedPages,
};

/// Pages of the recorded machine: both formats come from x86-64.
pub(super) const PAGE_SHIFT: u32 = 12;
const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
/// The last page of the address space is left out, so that the end of a mapping is an address.
const END_OF_ADDRESSES: u64 = 0u64.wrapping_sub(PAGE_BYTES);
/// Accesses that go to the writer at once.
const BUFFER_ACCESSES: usize = 4096;
const THREAD: ThreadIx = ThreadIx(0);
const PROCESS: ProcessIx = ProcessIx(0);

/// Takes instructions and accesses in order.
pub(super) struct Sink {
    writer: TraceWriter,
    buffer: Vec<Access>,
    room: u64,
    /// Address and size of the current instruction.
    instruction: (u64, u16),
    instructions: u64,
    /// Instructions that no access has counted yet.
    pending: u64,
    touched: TouchedPages,
    executed: TouchedPages,
    /// Accesses of 0 bytes, left out.
    empty: u64,
    next_progress: u64,
}

impl Sink {
    pub(super) fn new(writer: TraceWriter, max_accesses: Option<u64>) -> Self {
        Self {
            writer,
            buffer: Vec::with_capacity(BUFFER_ACCESSES),
            room: max_accesses.unwrap_or(u64::MAX),
            instruction: (0, 0),
            instructions: 0,
            pending: 0,
            touched: TouchedPages::default(),
            executed: TouchedPages::default(),
            empty: 0,
            next_progress: 0,
        }
    }

    /// Instructions taken so far.
    pub(super) fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Accesses taken so far.
    pub(super) fn accesses(&self) -> u64 {
        self.writer.position() + self.buffer.len() as u64
    }

    /// Accesses of 0 bytes left out so far.
    pub(super) fn empty(&self) -> u64 {
        self.empty
    }

    /// As many accesses as wanted were taken; further ones are ignored.
    pub(super) fn is_full(&self) -> bool {
        self.room == 0
    }

    /// An instruction of `size_bytes` at `pc` is executed; the accesses that follow are its own. The first fetch from a
    /// page is an access. On error, what is wrong with the numbers.
    pub(super) fn instruction(&mut self, pc: u64, size_bytes: u16) -> Result<Result<(), String>, TraceError> {
        if let Err(what) = check(pc, u64::from(size_bytes)) {
            return Ok(Err(what));
        }
        if self.is_full() {
            return Ok(Ok(()));
        }
        self.instruction = (pc, size_bytes);
        self.instructions += 1;
        self.pending += 1;
        let mut new = false;
        for page in pc >> PAGE_SHIFT..=(pc + u64::from(size_bytes) - 1) >> PAGE_SHIFT {
            new |= self.executed.insert(0, page);
        }
        if new {
            self.put(AccessKind::Fetch, pc, size_bytes)?;
        }
        Ok(Ok(()))
    }

    /// The current instruction accesses `size_bytes` at `vaddr`; long accesses are cut. On error, what is wrong with
    /// the numbers.
    pub(super) fn access(
        &mut self,
        kind: AccessKind,
        vaddr: u64,
        size_bytes: u64,
    ) -> Result<Result<(), String>, TraceError> {
        if let Err(what) = check(vaddr, size_bytes) {
            return Ok(Err(what));
        }
        let mut done = 0;
        while done < size_bytes {
            let len = (size_bytes - done).min(u64::from(MAX_ACCESS_BYTES));
            self.put(kind, vaddr + done, len as u16)?;
            done += len;
        }
        Ok(Ok(()))
    }

    /// The current instruction accesses 0 bytes: nothing that a trace could hold.
    pub(super) fn skip_empty(&mut self) {
        self.empty += 1;
    }

    fn put(&mut self, kind: AccessKind, vaddr: u64, size_bytes: u16) -> Result<(), TraceError> {
        if self.is_full() {
            return Ok(());
        }
        self.room -= 1;
        for page in vaddr >> PAGE_SHIFT..=(vaddr + u64::from(size_bytes) - 1) >> PAGE_SHIFT {
            self.touched.insert(0, page);
        }
        let gap = u32::try_from(self.pending).unwrap_or(u32::MAX);
        self.pending -= u64::from(gap);
        self.buffer.push(Access { vaddr, pc: self.instruction.0, gap, size_bytes, kind, by_kernel: false });
        if self.buffer.len() == BUFFER_ACCESSES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        self.writer.append(THREAD, &self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Calls `progress` if a while has passed since the last time.
    pub(super) fn report(
        &mut self,
        input: &Input,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), TraceError> {
        let accesses = self.accesses();
        let now = Progress { read_bytes: input.read_bytes(), total_bytes: input.total_bytes(), accesses };
        if now.read_bytes < self.next_progress {
            return Ok(());
        }
        self.next_progress = now.read_bytes + 1;
        match progress(now) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(TraceError::usage("import interrupted; nothing was written")),
        }
    }

    /// Finishes the trace; returns it and the number of its mappings.
    pub(super) fn finish(mut self, merge_gap_bytes: u64) -> Result<(TraceSummary, u64), TraceError> {
        // Instructions after the last access are counted by fetches, so that all gaps add up to all instructions.
        self.room = u64::MAX;
        while self.pending > 0 {
            let (pc, size_bytes) = self.instruction;
            self.put(AccessKind::Fetch, pc, size_bytes)?;
        }
        self.flush()?;
        if self.empty > 0 {
            let note = format!("{} accesses of 0 bytes were left out", self.empty);
            self.writer.meta_mut().notes.push(note);
        }
        let event = |kind| Event { position: 0, process: PROCESS, thread: THREAD, kind };
        let mut events =
            vec![event(EventKind::ProcessStart { parent: None }), event(EventKind::ThreadStart { os_tid: 1 })];
        let extents = infer(self.touched, self.executed, merge_gap_bytes >> PAGE_SHIFT);
        events.extend(extents.iter().map(|extent: &Extent| {
            event(EventKind::Mmap {
                addr: extent.first_page << PAGE_SHIFT,
                len: extent.pages << PAGE_SHIFT,
                prot: Protection { execute: extent.executed, ..Protection::READ_WRITE },
                flags: MapFlags::anonymous_private(),
                file: None,
                file_offset: 0,
            })
        }));
        Ok((self.writer.finish_with_initial_events(&events)?, extents.len() as u64))
    }
}

fn check(address: u64, size_bytes: u64) -> Result<(), String> {
    if size_bytes == 0 {
        return Err("a size of 0 bytes, expected at least 1".to_owned());
    }
    match address.checked_add(size_bytes) {
        Some(end) if end <= END_OF_ADDRESSES => Ok(()),
        _ => Err(format!("{size_bytes} bytes at {address:#x} reach beyond {END_OF_ADDRESSES:#x}")),
    }
}
