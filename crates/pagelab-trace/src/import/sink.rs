//! Where importers put what they read: threads of processes, instructions counted into gaps.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    ImportOptions, ImportProgress,
    addresses::{AddressRules, Place},
    input::Input,
    mappings::{Extent, infer},
};
use crate::{
    Access, AccessKind, Event, EventKind, Maker, MapFlags, ProcessIx, Protection, ThreadIx, TraceError, TraceWriter,
    format::{MAX_ACCESS_BYTES, TraceSummary},
    touched_pages::TouchedPages,
};

/// Pages of the recorded machine.
const PAGE_SHIFT: u32 = 12;
/// Accesses that go to the writer at once: few enough for the first-level cache.
const BUFFER_ACCESSES: usize = 512;
/// Threads, and processes, that one import may have.
const MAX_THREADS: usize = 1 << 20;
/// Regions of 64 pages that one import may touch: 4 TiB of memory that is used densely.
const MAX_REGIONS: usize = 1 << 24;
/// Records between two looks at the progress.
const RECORDS_PER_REPORT: u64 = 1 << 14;

/// What is wrong with a record, or with the import itself.
#[derive(Debug)]
pub(super) enum Problem {
    /// Of the record: to be told with its place.
    Data(String),
    Trace(TraceError),
}

impl From<TraceError> for Problem {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

impl From<String> for Problem {
    fn from(what: String) -> Self {
        Self::Data(what)
    }
}

impl Problem {
    /// The error, in which `place` says where in `input` the record is.
    pub(super) fn at(self, input: &Input, place: impl FnOnce(&str) -> String) -> TraceError {
        match self {
            Self::Data(what) => input.corrupt(place(&what)),
            Self::Trace(error) => error,
        }
    }
}

/// A thread of the origin.
#[derive(Clone, Copy)]
struct Thread {
    process: ProcessIx,
    os_tid: u32,
    /// Accesses before its first record and, once it has ended, before its end.
    began: u64,
    ended: Option<u64>,
    /// Address and size of the current instruction; a size of 0 if none is known.
    instruction: (u64, u16),
    /// Instructions that no access has counted yet.
    pending: u64,
    /// The page that the last instruction was on.
    code_page: u64,
}

/// What a sink was given in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub records: u64,
    pub instructions: u64,
    /// Accesses of 0 bytes, left out.
    pub empty: u64,
    /// Records that say nothing about the program's own accesses, left out.
    pub left_out: u64,
    /// Those among them that are instructions and accesses of the kernel.
    pub kernel: u64,
}

/// Takes records in order.
pub(super) struct Sink<'a> {
    writer: TraceWriter,
    buffer: Vec<Access>,
    room: u64,
    max_records: u64,
    processes: HashMap<u64, ProcessIx>,
    by_name: HashMap<(ProcessIx, u64), usize>,
    threads: Vec<Thread>,
    current: usize,
    rules: AddressRules,
    /// The current instruction is the kernel's; what it accesses is left out.
    kernel_code: bool,
    merged_processes: u64,
    totals: Totals,
    notes: Vec<String>,
    /// What the data lacks, one sentence each.
    losses: Vec<String>,
    touched: TouchedPages,
    executed: TouchedPages,
    read_bytes: Arc<AtomicU64>,
    total_bytes: Option<u64>,
    next_progress: u64,
    progress: &'a mut dyn FnMut(ImportProgress) -> ControlFlow<()>,
}

impl<'a> Sink<'a> {
    /// Progress is that of a file, or of several that share a count of bytes.
    pub(super) fn new(
        writer: TraceWriter,
        options: &ImportOptions,
        read_bytes: Arc<AtomicU64>,
        total_bytes: Option<u64>,
        progress: &'a mut dyn FnMut(ImportProgress) -> ControlFlow<()>,
    ) -> Self {
        Self {
            writer,
            buffer: Vec::with_capacity(BUFFER_ACCESSES),
            room: options.max_accesses.unwrap_or(u64::MAX),
            max_records: options.max_records.unwrap_or(u64::MAX),
            processes: HashMap::new(),
            by_name: HashMap::new(),
            threads: Vec::new(),
            current: 0,
            rules: AddressRules::new(options.remove_tags, options.leave_out_kernel),
            kernel_code: false,
            merged_processes: 1,
            totals: Totals::default(),
            notes: Vec::new(),
            losses: Vec::new(),
            touched: TouchedPages::default(),
            executed: TouchedPages::default(),
            read_bytes,
            total_bytes,
            next_progress: 0,
            progress,
        }
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Accesses taken so far.
    pub(super) fn accesses(&self) -> u64 {
        self.writer.position() + self.buffer.len() as u64
    }

    /// As many accesses or records as wanted were taken; further ones are ignored.
    pub(super) fn is_full(&self) -> bool {
        self.room == 0 || self.totals.records >= self.max_records
    }

    /// Another record of the input is to be read; false if no more are wanted.
    #[inline]
    pub(super) fn next_record(&mut self) -> Result<bool, TraceError> {
        if self.is_full() {
            return Ok(false);
        }
        self.totals.records += 1;
        if self.totals.records.is_multiple_of(RECORDS_PER_REPORT) {
            self.report()?;
        }
        Ok(true)
    }

    /// What follows is of this thread of this process, named as the origin names them. A thread that has not been named
    /// before begins.
    pub(super) fn enter(&mut self, process: u64, thread: u64) -> Result<(), Problem> {
        let next = ProcessIx(self.processes.len() as u32);
        let process = *self.processes.entry(process).or_insert(next);
        let known = self.by_name.get(&(process, thread)).copied();
        let index = match known {
            Some(index) => {
                // It goes on after all.
                self.threads[index].ended = None;
                index
            }
            None if self.threads.len() == MAX_THREADS => {
                return Err(format!("more than {MAX_THREADS} threads").into());
            }
            None => {
                let index = self.threads.len();
                self.by_name.insert((process, thread), index);
                let os_tid = u32::try_from(thread).unwrap_or(u32::MAX);
                let began = self.accesses();
                let (instruction, pending, ended, code_page) = ((0, 0), 0, None, u64::MAX);
                self.threads.push(Thread { process, os_tid, began, ended, instruction, pending, code_page });
                index
            }
        };
        if index != self.current {
            self.flush()?;
            self.current = index;
        }
        Ok(())
    }

    /// The current thread ends here.
    pub(super) fn end_thread(&mut self) {
        let ended = self.accesses();
        self.threads[self.current].ended = Some(ended);
    }

    /// An instruction of `size_bytes` at `pc` is executed; the accesses that follow are its own. The first fetch from a
    /// page is an access. Where `pc` is 0, it is unknown.
    #[inline]
    pub(super) fn instruction(&mut self, pc: u64, size_bytes: u16) -> Result<(), Problem> {
        let Some(pc) = self.code_address(pc, size_bytes)? else { return Ok(()) };
        self.threads[self.current].instruction = (pc, size_bytes);
        self.count(1);
        if pc == 0 {
            self.site(0);
            return Ok(());
        }
        let thread = &mut self.threads[self.current];
        let (first, last) = pages(pc, size_bytes);
        if first == last && first == thread.code_page {
            return Ok(());
        }
        thread.code_page = last;
        self.fetch_at(pc, size_bytes)
    }

    /// The accesses that follow are of an instruction at `pc` that was counted before.
    #[inline]
    pub(super) fn repeat(&mut self, pc: u64, size_bytes: u16) -> Result<(), Problem> {
        if let Some(pc) = self.code_address(pc, size_bytes)? {
            self.threads[self.current].instruction = (pc, size_bytes);
        }
        Ok(())
    }

    /// The address of an instruction, without its tag; none of the kernel's, which is left out.
    #[inline]
    fn code_address(&mut self, pc: u64, size_bytes: u16) -> Result<Option<u64>, Problem> {
        let place = self.rules.place(pc, u64::from(size_bytes))?;
        self.kernel_code = place == Place::Kernel;
        match place {
            Place::User(pc) => Ok(Some(pc)),
            Place::Kernel => {
                self.skip_kernel_record();
                Ok(None)
            }
        }
    }

    /// So many instructions were executed that nothing else is known of.
    #[inline]
    pub(super) fn count(&mut self, instructions: u64) {
        self.totals.instructions = self.totals.instructions.saturating_add(instructions);
        let pending = &mut self.threads[self.current].pending;
        *pending = pending.saturating_add(instructions);
    }

    /// The address of the instruction that the accesses which follow are of, where nothing is fetched from there.
    #[inline]
    pub(super) fn site(&mut self, pc: u64) {
        self.kernel_code = false;
        self.threads[self.current].instruction = (pc, 0);
    }

    /// Instructions are fetched; this is an access if it is the first one from a page.
    pub(super) fn fetch(&mut self, pc: u64, size_bytes: u16) -> Result<(), Problem> {
        match self.code_address(pc, size_bytes)? {
            Some(pc) => self.fetch_at(pc, size_bytes),
            None => Ok(()),
        }
    }

    fn fetch_at(&mut self, pc: u64, size_bytes: u16) -> Result<(), Problem> {
        let space = self.threads[self.current].process.0;
        let (first, last) = pages(pc, size_bytes);
        let mut new = false;
        for page in first..=last {
            new |= self.executed.insert(space, page);
        }
        if new { self.put(AccessKind::Fetch, pc, size_bytes, false) } else { Ok(()) }
    }

    /// The current instruction accesses `size_bytes` at `vaddr`; long accesses are cut.
    #[inline]
    pub(super) fn access(&mut self, kind: AccessKind, vaddr: u64, size_bytes: u64) -> Result<(), Problem> {
        self.access_by(kind, vaddr, size_bytes, false)
    }

    /// As [`access`](Self::access), or by the kernel for the program.
    #[inline]
    pub(super) fn access_by(
        &mut self,
        kind: AccessKind,
        vaddr: u64,
        size_bytes: u64,
        by_kernel: bool,
    ) -> Result<(), Problem> {
        let short = size_bytes <= u64::from(MAX_ACCESS_BYTES);
        if short && self.rules.is_plain(vaddr, size_bytes) && !self.kernel_code {
            return self.put(kind, vaddr, size_bytes as u16, by_kernel);
        }
        self.access_elsewhere(kind, vaddr, size_bytes, by_kernel)
    }

    /// A long access, or one at an address that needs a second look.
    #[cold]
    fn access_elsewhere(
        &mut self,
        kind: AccessKind,
        vaddr: u64,
        size_bytes: u64,
        by_kernel: bool,
    ) -> Result<(), Problem> {
        let vaddr = match self.rules.place(vaddr, size_bytes)? {
            Place::User(vaddr) if !self.kernel_code => vaddr,
            Place::User(_) | Place::Kernel => {
                self.skip_kernel_record();
                return Ok(());
            }
        };
        let mut done = 0;
        while done < size_bytes {
            let len = (size_bytes - done).min(u64::from(MAX_ACCESS_BYTES));
            self.put(kind, vaddr + done, len as u16, by_kernel)?;
            done += len;
        }
        Ok(())
    }

    /// The current instruction accesses 0 bytes: nothing that a trace could hold.
    pub(super) fn skip_empty(&mut self) {
        self.totals.empty += 1;
    }

    /// A record says nothing about the program's own accesses.
    #[inline]
    pub(super) fn skip_record(&mut self) {
        self.totals.left_out += 1;
    }

    /// An instruction or an access is the kernel's, and no part of the trace.
    #[inline]
    pub(super) fn skip_kernel_record(&mut self) {
        self.totals.kernel += 1;
        self.skip_record();
    }

    /// Whether an address is in the kernel's half.
    #[inline]
    pub(super) fn is_kernel(&self, address: u64) -> bool {
        self.rules.is_kernel(address)
    }

    #[inline(always)]
    fn put(&mut self, kind: AccessKind, vaddr: u64, size_bytes: u16, by_kernel: bool) -> Result<(), Problem> {
        if self.room == 0 {
            return Ok(());
        }
        self.room -= 1;
        let thread = &mut self.threads[self.current];
        let (first, last) = pages(vaddr, size_bytes);
        self.touched.insert(thread.process.0, first);
        // No access is longer than a page.
        if first != last {
            self.touched.insert(thread.process.0, last);
        }
        let gap = u32::try_from(thread.pending).unwrap_or(u32::MAX);
        thread.pending -= u64::from(gap);
        self.buffer.push(Access {
            vaddr,
            pc: thread.instruction.0,
            gap,
            size_bytes,
            kind,
            maker: Maker::kernel_if(by_kernel),
        });
        if self.buffer.len() == BUFFER_ACCESSES { Ok(self.flush()?) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        if !self.buffer.is_empty() {
            self.writer.append(ThreadIx(self.current as u32), &self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Calls `progress` if more of the file was read since the last time.
    pub(super) fn report(&mut self) -> Result<(), TraceError> {
        if self.touched.regions() > MAX_REGIONS {
            let what = format!(
                "more than {MAX_REGIONS} separate regions of memory are accessed: addresses at random, or another format"
            );
            return Err(TraceError::usage(what));
        }
        let read_bytes = self.read_bytes.load(Ordering::Relaxed);
        if read_bytes < self.next_progress {
            return Ok(());
        }
        self.next_progress = read_bytes + 1;
        let now = ImportProgress { read_bytes, total_bytes: self.total_bytes, accesses: self.accesses() };
        match (self.progress)(now) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(TraceError::usage("import interrupted; nothing was written")),
        }
    }

    /// Something that readers of results should know turned out.
    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// The data lacks something that a trace of the program would have.
    pub(super) fn note_loss(&mut self, loss: String) {
        self.losses.push(loss);
    }

    /// The data is of several processes, which it does not tell apart.
    pub(super) fn merge_processes(&mut self, processes: u64) {
        self.merged_processes = processes;
    }

    /// Processes that were taken for one.
    pub(super) fn merged_processes(&self) -> u64 {
        self.merged_processes
    }

    /// Threads and processes that were entered.
    pub(super) fn threads(&self) -> (u64, u64) {
        (self.threads.len() as u64, self.processes.len() as u64)
    }

    /// Finishes the trace; returns it, the notes and losses found while it was read, and the number of its mappings.
    /// The trace's notes are those known `before` it was read, those made meanwhile, and one about the `mappings`.
    pub(super) fn finish(
        mut self,
        merge_gap_bytes: u64,
        before: Vec<String>,
        mappings: String,
    ) -> Result<(TraceSummary, Vec<String>, u64), TraceError> {
        self.finish_gaps().map_err(|problem| match problem {
            Problem::Data(what) => TraceError::usage(what),
            Problem::Trace(error) => error,
        })?;
        if self.totals.empty > 0 {
            self.note(match self.totals.empty {
                1 => "1 access of 0 bytes was left out".to_owned(),
                several => format!("{several} accesses of 0 bytes were left out"),
            });
        }
        if self.totals.kernel > 0 {
            self.note(match self.totals.kernel {
                1 => "1 instruction or access of the kernel was left out".to_owned(),
                several => format!("{several} instructions and accesses of the kernel were left out"),
            });
        }
        if self.rules.removes_tags() {
            self.note("the highest byte of each address was taken for a tag and removed".to_owned());
        }
        let meta = self.writer.meta_mut();
        meta.notes.extend(before);
        meta.notes.extend(self.notes.iter().cloned());
        meta.notes.push(mappings);
        meta.losses.extend(self.losses.iter().cloned());
        self.notes.append(&mut self.losses);
        let processes = self.processes.len() as u32;
        let extents = infer(self.touched, self.executed, merge_gap_bytes >> PAGE_SHIFT);
        let events = events(&self.threads, processes, &extents);
        Ok((self.writer.finish_with_events(&events)?, self.notes, extents.len() as u64))
    }

    /// Instructions after the last access of a thread are counted by fetches, so that all gaps add up to all
    /// instructions.
    fn finish_gaps(&mut self) -> Result<(), Problem> {
        self.room = u64::MAX;
        for index in 0..self.threads.len() {
            if self.threads[index].pending > 0 {
                self.flush()?;
                self.current = index;
            }
            while let Thread { pending: 1.., instruction: (pc, size_bytes @ 1..), .. } = self.threads[index] {
                self.put(AccessKind::Fetch, pc, size_bytes, false)?;
                // Its end comes after this.
                let after = self.accesses();
                self.threads[index].ended = self.threads[index].ended.map(|_| after);
            }
            // Where no address is known, there is nothing to fetch.
            self.totals.instructions -= std::mem::take(&mut self.threads[index].pending);
        }
        Ok(self.flush()?)
    }
}

/// The pages that so many bytes are on.
#[inline]
fn pages(address: u64, size_bytes: u16) -> (u64, u64) {
    (address >> PAGE_SHIFT, (address + u64::from(size_bytes) - 1) >> PAGE_SHIFT)
}

/// The events of the trace: processes with their first threads and mappings, then the other threads as they came and
/// went.
fn events(threads: &[Thread], processes: u32, extents: &[Extent]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut first = vec![ThreadIx(0); processes as usize];
    for (index, thread) in threads.iter().enumerate().rev() {
        first[thread.process.0 as usize] = ThreadIx(index as u32);
    }
    let mut extents = extents.iter().peekable();
    for (process, &thread) in (0..).map(ProcessIx).zip(&first) {
        let event = |kind| Event { position: 0, process, thread, kind };
        let os_tid = threads[thread.0 as usize].os_tid;
        events.extend([event(EventKind::ProcessStart { parent: None }), event(EventKind::ThreadStart { os_tid })]);
        while let Some(extent) = extents.next_if(|extent| extent.space == process.0) {
            events.push(event(EventKind::Mmap {
                addr: extent.first_page << PAGE_SHIFT,
                len: extent.pages << PAGE_SHIFT,
                prot: Protection { execute: extent.executed, ..Protection::READ_WRITE },
                flags: MapFlags::anonymous_private(),
                file: None,
                file_offset: 0,
            }));
        }
    }
    let mut later = Vec::new();
    for (index, thread) in threads.iter().enumerate() {
        let (process, thread_ix) = (thread.process, ThreadIx(index as u32));
        let event = |position, kind| Event { position, process, thread: thread_ix, kind };
        if first[process.0 as usize] != thread_ix {
            later.push(event(thread.began, EventKind::ThreadStart { os_tid: thread.os_tid }));
        }
        later.extend(thread.ended.map(|position| event(position, EventKind::ThreadExit)));
    }
    later.sort_by_key(|event| event.position);
    events.extend(later);
    events
}
