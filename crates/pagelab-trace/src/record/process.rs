//! One process: the segments that its tool has described, its threads, and the decoding of its frames to accesses.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::calls::ProcessStacks;
use super::engine_call;
use super::flow::Steps;
use super::frame::Frame;
use super::functions::Mapped;
use super::output::Output;
use super::pages::{PAGE_SHIFT, Pages};
use super::protocol::{self, ADDRESS_BYTES, CONTROL_BIT, Control, EXIT_BY_SIGNAL, SEGMENT_WORD_BYTES, SegmentRecord};
use super::segment::{self, Expanding, KnownSegments, Segment, Slot, Validity};
use super::stretches::{Mode, Schedule};
use crate::{Access, Branches, EventKind, MapFlags, ProcessIx, Protection, ThreadIx, TraceError};

mod kernel_access;
mod partial;
mod threads;

pub(super) use kernel_access::RemoteAccess;
use threads::Thread;
pub(super) use threads::ThreadNumbers;

const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
/// Advice of madvise(2) that empties pages: `MADV_DONTNEED`, `MADV_FREE`, `MADV_REMOVE`.
const EMPTYING_ADVICE: [u32; 3] = [4, 8, 9];

/// An `execve` in progress.
#[derive(Debug)]
pub(super) struct Exec {
    pub path: Arc<str>,
    /// Why the new program runs without the tool, such as "is a 32-bit program"; `None` if it runs with it.
    pub native: Option<Arc<str>>,
}

/// Records that the collector must handle, since they concern other processes too.
#[derive(Debug)]
pub(super) enum Turn {
    Forked { pid: u32, child: protocol::ProcessKey, shares: bool },
    Waited { pid: u32, status: u32 },
    RemoteAccess { pid: u32, access: RemoteAccess },
}

#[derive(Debug)]
pub(super) struct Process {
    pub ix: ProcessIx,
    table: Vec<Slot>,
    threads: HashMap<u32, Thread>,
    /// The thread of the current records, and a copy of its entry.
    current_tid: u32,
    current: Thread,
    /// Code pages that were fetched since they were mapped.
    fetched: BTreeSet<u64>,
    /// Incremented when a fetched page is unmapped; starts above the slots' 0.
    fetch_epoch: u32,
    /// Pages touched in the current skipped stretch.
    pages: Pages,
    /// Accesses to pass to the output, and the branches before them.
    accesses: Vec<Access>,
    branches: Vec<Branches>,
    steps: Steps,
    heap_end: u64,
    /// Addresses of functions at which stretches begin or end, with their numbers.
    functions: Vec<(u64, usize)>,
    /// Call stacks of its threads, if recorded.
    stacks: ProcessStacks,
    /// The `execve` in progress.
    pub exec: Option<Exec>,
    /// Exit code, or [`EXIT_BY_SIGNAL`] if a signal ended the process.
    pub exited: Option<u32>,
    /// Offset of this image's wake numbers in the trace, and the last number.
    edges_from: u32,
    last_edge: u32,
    /// Whether it descends from the recording's first process by forks only.
    pub forked_from_first: bool,
    /// Accesses of other processes to this one that came before its first thread started.
    early_accesses: Vec<RemoteAccess>,
    /// Whether the main thread has had its start event (always true after `execve`).
    main_started: bool,
}

/// A damaged stream (what is wrong, without the trace's path, which the caller adds) or an error of the output.
pub(super) enum DecodeError {
    Stream(String),
    Output(TraceError),
}

impl From<TraceError> for DecodeError {
    fn from(error: TraceError) -> Self {
        Self::Output(error)
    }
}

impl Process {
    pub(super) fn new(ix: ProcessIx, main: ThreadIx) -> Self {
        Self {
            ix,
            table: Vec::new(),
            threads: HashMap::new(),
            current_tid: 0,
            current: Thread::new(main),
            fetched: BTreeSet::new(),
            fetch_epoch: 1,
            pages: Pages::default(),
            accesses: Vec::new(),
            branches: Vec::new(),
            steps: Steps::default(),
            heap_end: 0,
            functions: Vec::new(),
            stacks: ProcessStacks::default(),
            exec: None,
            exited: None,
            edges_from: 0,
            last_edge: 0,
            forked_from_first: false,
            early_accesses: Vec::new(),
            main_started: false,
        }
    }

    /// The process's forked child: it runs the same translated code with its own page tables.
    pub(super) fn fork(&self, ix: ProcessIx, main: ThreadIx) -> Self {
        let mut child = Self::new(ix, main);
        child.table = self.table.iter().map(Slot::fork).collect();
        child.functions.clone_from(&self.functions);
        child.stacks = self.stacks.fork(ix.0);
        child.heap_end = self.heap_end;
        child.forked_from_first = self.ix == ProcessIx(0) || self.forked_from_first;
        child
    }

    /// Records that the process has forked: its next write to a page makes a copy.
    pub(super) fn share_pages(&mut self) {
        self.pages.forget_writes();
    }

    /// Begins a new image: from here on its calls are tracked, if call stacks are recorded.
    pub(super) fn follow_image(&mut self, pid: u32, output: &mut Output<'_>) {
        if let Some(calls) = output.calls() {
            calls.image(self.ix.0, pid, &mut self.stacks);
        }
        self.write_context(output);
    }

    /// Writes the context of the current thread.
    pub(super) fn write_context(&self, output: &mut Output<'_>) {
        let position = output.written();
        if let Some(calls) = output.calls() {
            calls.write_resumption(&self.stacks, self.current.ix, position);
        }
    }

    /// The thread of the current records.
    pub(super) fn thread(&self) -> ThreadIx {
        self.current.ix
    }

    /// Begins a new image after `execve`: everything except the process and its thread is new. The other threads end.
    pub(super) fn exec(&mut self, path: Arc<str>, output: &mut Output<'_>) -> Result<(), TraceError> {
        let keep = self.current;
        self.end_threads(Some(keep.ix), output)?;
        *self = Self { edges_from: self.last_edge, last_edge: self.last_edge, ..Self::new(self.ix, keep.ix) };
        self.main_started = true;
        output.event(self.ix, keep.ix, EventKind::Exec { path })
    }

    /// Ends the process, after all its threads. The parent may continue when its memory has gone.
    pub(super) fn exit(&mut self, code: i32, output: &mut Output<'_>) -> Result<(), TraceError> {
        self.end_threads(None, output)?;
        output.event(self.ix, self.current.ix, EventKind::Exit { code })?;
        // The first process has no parent in the recording.
        if self.ix == ProcessIx(0) {
            return Ok(());
        }
        output.event(self.ix, self.current.ix, EventKind::Wake { edge: end_edge(self.ix) })
    }

    /// Its current thread continues, since the child that it waited for has ended.
    pub(super) fn continue_after(&self, child: ProcessIx, output: &mut Output<'_>) -> Result<(), TraceError> {
        output.event(self.ix, self.current.ix, EventKind::Woken { edge: end_edge(child) })
    }

    /// Decodes `frame` from `at` on, until its end or a record that also concerns other processes.
    pub(super) fn decode(
        &mut self,
        frame: &Frame,
        at: &mut usize,
        numbers: &mut ThreadNumbers,
        output: &mut Output<'_>,
    ) -> Result<Option<Turn>, DecodeError> {
        output.set_thread(self.ix, self.current.ix);
        loop {
            output.begin_due_stretch()?;
            self.known_segments(frame, at, output)?;
            if output.is_due() {
                continue;
            }
            let Some(word) = frame.word(*at) else { break };
            *at += SEGMENT_WORD_BYTES;
            if word & CONTROL_BIT == 0 {
                self.segment(word, frame, at, output)?;
                continue;
            }
            let control = take_control(word, frame.bytes(), at)?;
            if let Some(turn) = self.control(control, numbers, output)? {
                return Ok(Some(turn));
            }
            if output.is_full() {
                *at = frame.len();
                break;
            }
            output.set_thread(self.ix, self.current.ix);
        }
        if *at == frame.len() {
            Ok(None)
        } else {
            Err(DecodeError::Stream(format!("{} bytes too many at the end of a frame", frame.len() - *at)))
        }
    }

    /// Decodes executions of segments as long as everything but the addresses is known.
    fn known_segments(&mut self, frame: &Frame, at: &mut usize, output: &mut Output<'_>) -> Result<(), TraceError> {
        let mode = output.mode();
        if let Mode::Skipped { left, stretch } = mode {
            self.pages.begin(stretch);
            self.current.flow.forget();
            let (pages, touches) = (&mut self.pages, &mut self.accesses);
            let until = (left, output.calls().is_some());
            let skimmed = segment::skim_known(&self.table, self.fetch_epoch, frame, at, pages, until, touches);
            output.executed(skimmed.instructions, skimmed.left_out);
            return self.append(output);
        }
        let mut calls = output.take_calls();
        let before = output.written();
        let (page, end) = output.page();
        let before = before - page.rows() as u64;
        let (validity, tells) = (Validity::new(self.fetch_epoch, page), page.tells_dependencies());
        let Thread { pending, flow, ix, .. } = &mut self.current;
        let (table, run) = (&self.table, (pending, flow));
        let follows = calls.is_some();
        let mut transferred = |transfer, frame, rows: usize| {
            if let Some(calls) = &mut calls {
                calls.transfer(&mut self.stacks, transfer, frame, *ix, before + rows as u64);
            }
        };
        let (most, counted) = if let Mode::Recorded { left } = mode { (left, true) } else { (u64::MAX, false) };
        let (known, mut executed) = (KnownSegments { table, validity, end, most }, 0);
        let execute = match (counted, tells, follows) {
            (true, true, true) => segment::execute_known::<true, true, true>,
            (true, true, false) => segment::execute_known::<true, true, false>,
            (true, false, true) => segment::execute_known::<true, false, true>,
            (true, false, false) => segment::execute_known::<true, false, false>,
            (false, true, true) => segment::execute_known::<false, true, true>,
            (false, true, false) => segment::execute_known::<false, true, false>,
            (false, false, true) => segment::execute_known::<false, false, true>,
            (false, false, false) => segment::execute_known::<false, false, false>,
        };
        page.fill(|columns| execute(&known, frame, at, run, columns, &mut executed, &mut transferred));
        output.return_calls(calls)?;
        output.executed(executed, 0);
        Ok(())
    }

    fn append(&mut self, output: &mut Output<'_>) -> Result<(), TraceError> {
        if !self.accesses.is_empty() {
            output.append(&self.accesses, &self.branches)?;
            self.accesses.clear();
            self.branches.clear();
        }
        Ok(())
    }

    /// Decodes one execution of segment `number`, whose addresses are at `at`.
    fn segment(
        &mut self,
        number: u32,
        frame: &Frame,
        at: &mut usize,
        output: &mut Output<'_>,
    ) -> Result<(), DecodeError> {
        let slot = self.table.get_mut(number as usize);
        let Some((slot, segment)) = slot.and_then(|slot| slot.segment.clone().map(|segment| (slot, segment))) else {
            return Err(DecodeError::Stream(format!("segment {number} was executed but never described")));
        };
        if slot.fetch_epoch != self.fetch_epoch {
            slot.fetch_epoch = self.fetch_epoch;
            let mut fetches = Vec::new();
            segment.fetch_pages(&mut self.fetched, &mut fetches);
            self.current.flow.skip(fetches.len());
            output.append(&fetches, &[])?;
        }
        let accesses = segment.accesses.len();
        let end = *at + accesses * ADDRESS_BYTES;
        let Some(addresses) = frame.bytes().get(*at..end) else {
            return Err(DecodeError::Stream(format!("segment {number} is cut off by the end of its frame")));
        };
        let (skipped, follows) = (matches!(output.mode(), Mode::Skipped { .. }), output.calls().is_some());
        let (page, full) = output.page();
        if segment.entries.is_empty()
            && (skipped && !(segment.transfers() && follows)
                || !skipped
                    && page.rows() + accesses < full
                    && slot.learn(self.fetch_epoch, self.current.pending, page))
        {
            *at -= SEGMENT_WORD_BYTES;
            return Ok(());
        }
        *at = end;
        let mut from = 0;
        for entry in &segment.entries {
            if entry.access > from {
                self.part(&segment, from..entry.access, addresses, output)?;
                from = entry.access;
            }
            if let Some(schedule) = output.schedule()
                && let Some(record) = schedule.functions().called(entry.function)
            {
                schedule.ask(record);
                output.begin_due_stretch()?;
            }
        }
        Ok(self.part(&segment, from..accesses, addresses, output)?)
    }

    /// Handles a range of a segment's accesses and the instructions up to the last one; `addresses` are all of them.
    fn part(
        &mut self,
        segment: &Segment,
        part: Range<usize>,
        addresses: &[u8],
        output: &mut Output<'_>,
    ) -> Result<(), TraceError> {
        let instructions = segment.instructions_of(part.clone());
        let is_last = part.end == segment.accesses.len();
        let mut left_out = 0;
        if let Mode::Skipped { stretch, .. } = output.mode() {
            self.pages.begin(stretch);
            self.current.flow.forget();
            self.steps.skip(part.clone());
            left_out = segment.skim(part, addresses, &mut self.pages, &mut self.accesses);
        } else {
            let Thread { pending, flow, .. } = &mut self.current;
            let Self { steps, accesses, branches, .. } = self;
            segment.expand(part, addresses, &mut Expanding { pending, flow, steps, accesses, branches });
        }
        output.executed(instructions, left_out);
        self.append(output)?;
        let position = output.written();
        if is_last
            && let Some(calls) = output.calls()
            && let Some((transfer, frame)) = segment.transfer(addresses)
        {
            calls.transfer(&mut self.stacks, transfer, frame, self.current.ix, position);
            calls.write_full_parts()?;
        }
        Ok(())
    }

    fn control(
        &mut self,
        control: Control,
        numbers: &mut ThreadNumbers,
        output: &mut Output<'_>,
    ) -> Result<Option<Turn>, DecodeError> {
        let kind = match control {
            Control::Hello { .. } => {
                return Err(DecodeError::Stream("a second greeting in one stream".to_owned()));
            }
            Control::Segment(record) => return self.describe(record).map(|()| None),
            Control::Switch { tid } => {
                self.switch_to(tid, numbers);
                return Ok(None);
            }
            Control::ThreadStart { tid, os_tid } => return self.start_thread(tid, os_tid, numbers, output),
            Control::ThreadExit { tid } => return self.end_thread(tid, output),
            Control::KernelAccess { writes, addr, len } => {
                return self.kernel_access(writes, addr, len, output).map(|()| None);
            }
            Control::Fault { pc, record } => return Ok(self.fault(pc, &record, output).map(|()| None)?),
            Control::Left { pc, record } => return Ok(self.left(pc, &record, output).map(|()| None)?),
            Control::Fork { pid, child, shares } => return Ok(Some(Turn::Forked { pid, child, shares })),
            Control::Waited { pid, status } => return Ok(Some(Turn::Waited { pid, status })),
            Control::RemoteAccess { pid, writes, addr, len } => {
                return Ok(Some(Turn::RemoteAccess { pid, access: RemoteAccess { writes, addr, len } }));
            }
            Control::ExecBegin { path } => {
                self.exec = Some(Exec { path, native: None });
                return Ok(None);
            }
            Control::ExecNative { reason } => {
                self.exec.iter_mut().for_each(|exec| exec.native = Some(Arc::clone(&reason)));
                return Ok(None);
            }
            Control::ExecFailed => {
                self.exec = None;
                return Ok(None);
            }
            Control::Exit { code } => return Ok(self.end(code, output).map(|()| None)?),
            Control::Mmap { addr, len, prot, flags, file_offset, id, file } => {
                let (prot, mut flags) = (Protection::from_bits(prot), MapFlags(flags));
                self.forget_pages(addr, len);
                let code = file.as_ref().filter(|_| prot.execute);
                code.iter().for_each(|file| self.map_code(Mapped { file, addr, len, file_offset }, output));
                if id.is_in_memory() {
                    flags.0 |= MapFlags::MEMORY_FILE;
                }
                let file = file.map(|path| output.file_name(id, path));
                output.event(
                    self.ix,
                    self.current.ix,
                    EventKind::Mmap { addr, len, prot, flags, file, file_offset },
                )?;
                EventKind::Allocated { addr, len, context: self.stacks.context(), mapping: true }
            }
            Control::Allocated { addr, len } => {
                EventKind::Allocated { addr, len, context: self.stacks.returned(), mapping: false }
            }
            Control::Freed { addr } => EventKind::Freed { addr },
            Control::Munmap { addr, len } => {
                self.forget_pages(addr, len);
                EventKind::Munmap { addr, len }
            }
            Control::Mremap { old_addr, old_len, new_addr, new_len } => {
                self.forget_pages(old_addr, old_len);
                self.forget_pages(new_addr, new_len);
                EventKind::Mremap { old_addr, old_len, new_addr, new_len }
            }
            Control::Mprotect { addr, len, prot } => {
                self.pages.forget(addr, len);
                EventKind::Mprotect { addr, len, prot: Protection::from_bits(prot) }
            }
            Control::Madvise { addr, len, advice } => {
                engine_call::from_advice(addr, len, advice).unwrap_or_else(|| {
                    self.take_advice(addr, len, advice);
                    EventKind::Madvise { addr, len, advice }
                })
            }
            Control::Wake { number } => EventKind::Wake { edge: self.edge(number) },
            Control::Woken { number } => EventKind::Woken { edge: self.edge(number) },
            Control::Msync { addr, len, flags } => {
                // Writing back makes pages clean, so their next write faults.
                self.pages.forget(addr, len);
                EventKind::Msync { addr, len, flags }
            }
            Control::Truncate { old_len, new_len, id, file } => {
                output.schedule().into_iter().for_each(Schedule::forget_pages);
                let file = output.file_name(id, file);
                EventKind::Truncate { file, old_len, new_len }
            }
            Control::FileData { offset, len, id, file } => {
                EventKind::FileData { file: output.file_name(id, file), offset, len }
            }
            Control::FileHole { offset, len, id, file } => {
                output.schedule().into_iter().for_each(Schedule::forget_pages);
                EventKind::FileHole { file: output.file_name(id, file), offset, len }
            }
            Control::Brk { start, end } => {
                self.move_heap_end(end);
                EventKind::Brk { start, end }
            }
        };
        output.event(self.ix, self.current.ix, kind)?;
        Ok(None)
    }

    /// Handles mapped code, which may contain functions at which stretches begin or end.
    fn map_code(&mut self, mapped: Mapped<'_>, output: &mut Output<'_>) {
        self.stacks.map(mapped);
        if let Some(schedule) = output.schedule() {
            self.functions.extend(schedule.functions().in_mapping(mapped));
        }
    }

    /// Handles the process's report of its exit code.
    fn end(&mut self, code: u32, output: &mut Output<'_>) -> Result<(), TraceError> {
        self.exited = Some(code);
        if code == EXIT_BY_SIGNAL { Ok(()) } else { self.exit(code as i32, output) }
    }

    fn move_heap_end(&mut self, end: u64) {
        let before = std::mem::replace(&mut self.heap_end, end);
        self.pages.forget(end, before.saturating_sub(end));
    }

    fn take_advice(&mut self, addr: u64, len: u64, advice: u32) {
        if EMPTYING_ADVICE.contains(&advice) {
            self.forget_fetches(addr, len);
        }
        self.pages.forget(addr, len);
    }

    /// The number in the trace of a wake of this image.
    fn edge(&mut self, number: u32) -> u64 {
        let edge = self.edges_from.wrapping_add(number);
        self.last_edge = self.last_edge.max(edge);
        u64::from(self.ix.0) << 32 | u64::from(edge)
    }

    fn describe(&mut self, record: SegmentRecord) -> Result<(), DecodeError> {
        let number = record.number as usize;
        // The tool numbers segments consecutively; a far higher number is damage and must not allocate memory.
        if number > self.table.len() + (1 << 20) {
            return Err(DecodeError::Stream(format!("segment number {number} after {}", self.table.len())));
        }
        let Some(segment) = Segment::new(record, &self.functions) else {
            return Err(DecodeError::Stream(format!("segment {number} has an access of unknown kind")));
        };
        if number >= self.table.len() {
            self.table.resize_with(number + 1, Slot::default);
        }
        self.table[number] = Slot::new(segment);
        Ok(())
    }

    /// Forgets the content of pages that are no longer mapped.
    fn forget_pages(&mut self, addr: u64, len: u64) {
        self.forget_fetches(addr, len);
        self.pages.forget(addr, len);
        self.functions.retain(|(entry, _)| entry.wrapping_sub(addr) >= len);
        self.stacks.unmap(addr, len);
    }

    fn forget_fetches(&mut self, addr: u64, len: u64) {
        let pages = addr >> PAGE_SHIFT..addr.saturating_add(len).saturating_add(PAGE_BYTES - 1) >> PAGE_SHIFT;
        if pages.is_empty() || self.fetched.range(pages.clone()).next().is_none() {
            return;
        }
        self.fetched.retain(|page| !pages.contains(page));
        self.fetch_epoch += 1;
    }
}

/// The edge from a process's end to the parent that waited for it. Numbers of an image's wakes begin at 1.
fn end_edge(process: ProcessIx) -> u64 {
    u64::from(process.0) << 32
}

fn take_control(tag: u32, frame: &[u8], at: &mut usize) -> Result<Control, DecodeError> {
    let cut = || DecodeError::Stream(format!("control record {} is cut off", tag & !CONTROL_BIT));
    let len = frame.get(*at..*at + 4).ok_or_else(cut)?;
    let begin = *at + 4;
    let end = begin + u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
    let payload = frame.get(begin..end).ok_or_else(cut)?;
    *at = end;
    protocol::parse_control(tag, payload)
        .ok_or_else(|| DecodeError::Stream(format!("control record {} is damaged", tag & !CONTROL_BIT)))
}
