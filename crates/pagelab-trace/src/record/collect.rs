//! Merges the streams of all processes into one legal order.
//!
//! The order within a process's stream is binding. Between processes, the program's own synchronisation determines the
//! order: a forked child's records come after its parent's fork, and an image's records after the `execve` that started
//! it. What a parent does after waiting for a child comes after everything that the child did. Beyond that, frames are
//! taken in order of arrival.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::follow::NOT_FOLLOWED;
use super::frame::Frame;
use super::life_line::LifeLines;
use super::output::Output;
use super::process::{DecodeError, Process, ThreadNumbers, Turn};
use super::protocol::{CONTROL_BIT, Control, EXIT_BY_SIGNAL, Origin, VERSION, WAIT_STATUS_UNKNOWN, parse_control};
use super::ring::{Filled, Ring};
use crate::{EventKind, ProcessIx, TraceError};

/// The exit code of a process that a signal ended is this plus the signal's number, as in shells.
const SIGNAL_CODE_BASE: i32 = 128;
const SIGKILL: i32 = 9;

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    /// Waits for its first frame, which identifies its process.
    New,
    /// Waits for its turn: a new image follows the old one only when the old one's stream has been read.
    Greeted { pid: u32 },
    /// Waits for its parent's record of the fork.
    Held { pid: u32, parent_pid: u32 },
    /// The running stream of the process with this id.
    Running { pid: u32 },
}

struct Stream {
    ring: Ring,
    state: StreamState,
    /// Frames of a held stream. Its parent may be suspended until the child has executed another program
    /// (`CLONE_VFORK`), so the child must not wait for room in its ring.
    backlog: Vec<Frame>,
    /// Whether the held process has closed its end.
    closed: bool,
}

/// Maximum number of bytes read from a held stream. Between fork and `execve` a child produces a few dozen small
/// frames.
const BACKLOG_BYTES: usize = 64 << 20;

impl Stream {
    fn new(ring: Ring) -> Self {
        Self { ring, state: StreamState::New, backlog: Vec::new(), closed: false }
    }

    fn is_read(&self) -> bool {
        match self.state {
            StreamState::New | StreamState::Running { .. } => true,
            StreamState::Greeted { .. } => false,
            StreamState::Held { .. } => {
                !self.closed && self.backlog.iter().map(|frame| frame.len()).sum::<usize>() < BACKLOG_BYTES
            }
        }
    }
}

/// A process, and its stream if that is open.
struct ProcessStream {
    process: Process,
    stream: Option<u64>,
    /// Whether its exit event has been written.
    finished: bool,
}

struct NewImage {
    stream: u64,
    pid: u32,
    parent_pid: u32,
    path: Arc<str>,
}

pub(super) struct Collector<'a> {
    listener: UnixListener,
    streams: HashMap<u64, Stream>,
    next_stream: u64,
    /// By process id; a finished entry stays until the id is reused.
    entries: HashMap<u32, ProcessStream>,
    /// Children whose fork has been recorded and that have not connected yet, by process id.
    unborn: HashMap<u32, Process>,
    processes: u32,
    numbers: ThreadNumbers,
    output: Output<'a>,
    /// Streams of new images that have sent their greeting, in order of arrival.
    images: VecDeque<NewImage>,
    /// Unused frames.
    spare: Vec<Frame>,
    /// The life lines of closed streams.
    life_lines: LifeLines,
    notes: Vec<String>,
    /// Of the first program's children that executed another program: how many were recorded, and how many ran natively
    /// because they were not followed.
    followed: u32,
    not_followed: u32,
}

/// Why collecting ended early.
pub(super) enum CollectError {
    /// The tool sent invalid data: a defect of the recorder.
    Stream(String),
    Output(TraceError),
}

impl From<TraceError> for CollectError {
    fn from(error: TraceError) -> Self {
        Self::Output(error)
    }
}

impl From<DecodeError> for CollectError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Stream(what) => Self::Stream(what),
            DecodeError::Output(error) => Self::Output(error),
        }
    }
}

type Result<T> = std::result::Result<T, CollectError>;

impl<'a> Collector<'a> {
    /// `listener` must be non-blocking.
    pub(super) fn new(listener: UnixListener, output: Output<'a>) -> Self {
        Self {
            listener,
            streams: HashMap::new(),
            next_stream: 0,
            entries: HashMap::new(),
            unborn: HashMap::new(),
            processes: 0,
            numbers: ThreadNumbers::default(),
            output,
            images: VecDeque::new(),
            spare: Vec::new(),
            life_lines: LifeLines::default(),
            notes: Vec::new(),
            followed: 0,
            not_followed: 0,
        }
    }

    pub(super) fn written(&self) -> u64 {
        self.output.written()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.output.bytes()
    }

    pub(super) fn is_full(&self) -> bool {
        self.output.is_full()
    }

    /// Handles a signal that starts or stops recording.
    pub(super) fn ask(&mut self, record: bool) {
        if let Some(schedule) = self.output.schedule() {
            schedule.ask(record);
        }
    }

    pub(super) fn processes(&self) -> u32 {
        self.processes
    }

    pub(super) fn threads(&self) -> u32 {
        self.numbers.count()
    }

    /// True while a process is connected.
    pub(super) fn is_connected(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Ids of the processes that are connected.
    pub(super) fn connected_pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self
            .streams
            .values()
            .filter_map(|stream| match stream.state {
                StreamState::New => None,
                StreamState::Greeted { pid } | StreamState::Held { pid, .. } | StreamState::Running { pid } => {
                    Some(pid)
                }
            })
            .collect();
        pids.sort_unstable();
        pids
    }

    /// The life lines of all processes; keep them until the processes have ended or are to be killed.
    pub(super) fn take_life_lines(&mut self) -> LifeLines {
        let mut lines = std::mem::take(&mut self.life_lines);
        lines.extend(self.streams.values_mut().filter_map(|stream| stream.ring.take_life_line()));
        lines
    }

    /// Waits up to `milliseconds` for data and processes it; returns false if there was none.
    pub(super) fn step(&mut self, milliseconds: u32) -> Result<bool> {
        let mut ids: Vec<u64> = self.streams.iter().filter(|(_, stream)| stream.is_read()).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
        polled.extend(ids.iter().map(|id| PollFd::new(&self.streams[id].ring, PollFlags::IN)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(milliseconds) * 1_000_000 };
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(e) => return Err(CollectError::Stream(format!("waiting for the tool: {e}"))),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            self.accept()?;
        }
        for (id, _) in ids.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            if self.output.is_full() {
                break;
            }
            self.take_frame(id)?;
        }
        for image in std::mem::take(&mut self.images) {
            // The records of its process up to the `execve` must come first.
            if self.held(image.pid).is_some() {
                self.images.push_back(image);
            } else {
                self.new_image(image)?;
            }
        }
        Ok(true)
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            match self.listener.accept() {
                Ok((socket, _)) => {
                    socket
                        .set_nonblocking(true)
                        .map_err(|e| CollectError::Stream(format!("setting up a connection: {e}")))?;
                    self.streams.insert(self.next_stream, Stream::new(Ring::new(socket)));
                    self.next_stream += 1;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => return Err(CollectError::Stream(format!("accepting a connection: {e}"))),
            }
        }
    }

    /// Takes the next frame of a stream; returns false if there is none now or ever.
    fn take_frame(&mut self, id: u64) -> Result<bool> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(false) };
        let state = stream.state;
        let mut frame = self.spare.pop().unwrap_or_default();
        match stream.ring.next_frame(&mut frame).map_err(CollectError::Stream)? {
            Filled::Nothing => return Ok(false),
            Filled::Closed if matches!(state, StreamState::Held { .. }) => {
                stream.closed = true;
                return Ok(false);
            }
            Filled::Closed => {
                self.close(id)?;
                return Ok(false);
            }
            Filled::Frame => {}
        }
        match state {
            StreamState::New => self.greet(id, frame.bytes())?,
            StreamState::Greeted { .. } => unreachable!("a waiting stream is not read"),
            StreamState::Held { .. } => {
                stream.backlog.push(frame);
                return Ok(true);
            }
            StreamState::Running { pid } => self.decode(pid, &frame)?,
        }
        self.spare.push(frame);
        Ok(true)
    }

    /// Reads a stream to its end; the process has closed it or is about to.
    fn drain(&mut self, id: u64) -> Result<()> {
        while let Some(stream) = self.streams.get(&id) {
            if self.output.is_full() || !stream.is_read() {
                return Ok(());
            }
            match poll(&mut [PollFd::new(&stream.ring, PollFlags::IN)], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(CollectError::Stream(format!("waiting for the tool: {e}"))),
            }
            self.take_frame(id)?;
        }
        Ok(())
    }

    fn decode(&mut self, pid: u32, frame: &Frame) -> Result<()> {
        let mut at = 0;
        loop {
            let Some(entry) = self.entries.get_mut(&pid) else { return Ok(()) };
            match entry.process.decode(frame, &mut at, &mut self.numbers, &mut self.output)? {
                None => {
                    entry.finished |= entry.process.exited.is_some_and(|code| code != EXIT_BY_SIGNAL);
                    return Ok(());
                }
                Some(Turn::Forked { child_pid, shares }) => self.forked(pid, child_pid, shares)?,
                Some(Turn::Waited { pid: child_pid, status }) => self.waited(child_pid, status)?,
            }
            if self.output.is_full() {
                return Ok(());
            }
        }
    }

    /// Handles the first frame of a stream, which identifies its process.
    fn greet(&mut self, id: u64, frame: &[u8]) -> Result<()> {
        let hello = (|| {
            let tag = u32::from_le_bytes(frame.get(..4)?.try_into().ok()?);
            parse_control(tag, frame.get(8..)?).filter(|_| tag & CONTROL_BIT != 0)
        })();
        let Some(Control::Hello { version: VERSION, origin, pid, parent_pid, path }) = hello else {
            return Err(CollectError::Stream("a stream does not begin with a greeting of this version".to_owned()));
        };
        match origin {
            Origin::Image => {
                self.set_state(id, StreamState::Greeted { pid });
                self.images.push_back(NewImage { stream: id, pid, parent_pid, path });
                Ok(())
            }
            Origin::Fork { parent_pid } => {
                self.set_state(id, StreamState::Held { pid, parent_pid });
                self.bind_child(pid)
            }
        }
    }

    fn set_state(&mut self, id: u64, state: StreamState) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.state = state;
        }
    }

    /// Handles a new program image: of a process after `execve`, or of a new process.
    fn new_image(&mut self, image: NewImage) -> Result<()> {
        let NewImage { stream, pid, parent_pid, path } = image;
        // The `execve` closed the old image's stream, but its last frames may not have been read yet.
        if let Some(old) = self.entries.get(&pid).and_then(|entry| entry.stream) {
            self.drain(old)?;
        }
        self.set_state(stream, StreamState::Running { pid });
        if let Some(entry) = self.entries.get_mut(&pid).filter(|e| !e.finished && e.process.exec.is_some()) {
            entry.stream = Some(stream);
            self.followed += u32::from(entry.process.forked_from_first);
            entry.process.exec(path, &mut self.output)?;
            entry.process.follow_image(pid, &mut self.output);
            return Ok(());
        }
        let parent = self.entries.get(&parent_pid).map(|entry| entry.process.ix);
        let mut process = Process::new(ProcessIx(self.processes), self.numbers.next());
        self.processes += 1;
        self.output.event(process.ix, process.thread(), EventKind::ProcessStart { parent })?;
        process.follow_image(pid, &mut self.output);
        self.enter(pid, process, stream)
    }

    /// Assigns `process` to this process id.
    fn enter(&mut self, pid: u32, process: Process, stream: u64) -> Result<()> {
        // An older process with the same id must have ended.
        self.finish(pid, None)?;
        self.entries.insert(pid, ProcessStream { process, stream: Some(stream), finished: false });
        self.set_state(stream, StreamState::Running { pid });
        Ok(())
    }

    fn forked(&mut self, parent_pid: u32, child_pid: u32, shares: bool) -> Result<()> {
        let Some(parent) = self.entries.get_mut(&parent_pid) else { return Ok(()) };
        parent.process.share_pages();
        let child = parent.process.fork(ProcessIx(self.processes), self.numbers.next());
        self.processes += 1;
        let child_ix = child.ix;
        let event = if shares { EventKind::Vfork { child: child_ix } } else { EventKind::Fork { child: child_ix } };
        self.output.event(parent.process.ix, parent.process.thread(), event)?;
        child.tell_context(&mut self.output);
        self.unborn.insert(child_pid, child);
        self.bind_child(child_pid)
    }

    /// Lets a forked child continue once its parent's fork is recorded and it has connected.
    fn bind_child(&mut self, pid: u32) -> Result<()> {
        let Some(id) = self.held(pid) else { return Ok(()) };
        let Some(process) = self.unborn.remove(&pid) else { return Ok(()) };
        self.enter(pid, process, id)?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let (backlog, closed) = (std::mem::take(&mut stream.backlog), stream.closed);
        for frame in backlog {
            if !self.output.is_full() {
                self.decode(pid, &frame)?;
            }
            self.spare.push(frame);
        }
        if closed { self.close(id) } else { Ok(()) }
    }

    /// The stream of a forked child that waits for its parent's record of the fork.
    fn held(&self, pid: u32) -> Option<u64> {
        let is_held = |stream: &Stream| matches!(stream.state, StreamState::Held { pid: held, .. } if held == pid);
        self.streams.iter().find(|(_, stream)| is_held(stream)).map(|(&id, _)| id)
    }

    /// The process with this id is dead and its parent knows: everything that it did comes before what the parent does
    /// next. All its connections were made before it died, so they wait at the listener at the latest.
    fn waited(&mut self, pid: u32, status: u32) -> Result<()> {
        self.accept()?;
        let mut new: Vec<u64> =
            self.streams.iter().filter(|(_, s)| s.state == StreamState::New).map(|(id, _)| *id).collect();
        new.sort_unstable();
        for id in new {
            // Both messages of a dead process's greeting have arrived.
            self.take_frame(id)?;
        }
        while let Some(at) = self.images.iter().position(|image| image.pid == pid) {
            if let Some(image) = self.images.remove(at) {
                self.new_image(image)?;
            }
        }
        while let Some(id) = self.entries.get(&pid).and_then(|entry| entry.stream) {
            if self.output.is_full() {
                return Ok(());
            }
            self.drain(id)?;
        }
        self.finish(pid, status_code(status))?;
        self.unborn.remove(&pid);
        Ok(())
    }

    /// Handles the end of a stream: its process has ended, was killed, or executes another program.
    fn close(&mut self, id: u64) -> Result<()> {
        let Some(mut stream) = self.streams.remove(&id) else { return Ok(()) };
        if let Some(end) = stream.ring.take_life_line() {
            self.life_lines.hold(end);
        }
        if let StreamState::Running { pid } = stream.state
            && let Some(entry) = self.entries.get_mut(&pid).filter(|entry| entry.stream == Some(id))
        {
            entry.stream = None;
        }
        Ok(())
    }

    /// Writes the exit event of a process that did not report its end, or reported it without a code.
    fn finish(&mut self, pid: u32, code: Option<i32>) -> Result<()> {
        let Some(entry) = self.entries.get_mut(&pid).filter(|entry| !entry.finished) else { return Ok(()) };
        entry.finished = true;
        if let Some(exec) = &entry.process.exec {
            if exec.native.as_deref() == Some(NOT_FOLLOWED) {
                self.not_followed += 1;
            } else {
                self.notes.push(match &exec.native {
                    Some(reason) => format!(
                        "process {pid} executed {}, which {reason}: it ran natively, and nothing of it is recorded",
                        exec.path
                    ),
                    None => format!("process {pid} executed {}, which did not start under Valgrind", exec.path),
                });
            }
        }
        // Only SIGKILL can end a process without its tool noticing.
        let unknown = if entry.process.exited.is_some() { SIGNAL_CODE_BASE } else { SIGNAL_CODE_BASE + SIGKILL };
        entry.process.exit(code.unwrap_or(unknown), &mut self.output)?;
        Ok(())
    }

    /// Ends the recording; `root_code` is the first process's exit code. Returns notes on what is missing.
    pub(super) fn finish_all(mut self, root_pid: u32, root_code: Option<i32>) -> Result<(Output<'a>, Vec<String>)> {
        let mut pids: Vec<u32> = self.entries.keys().copied().collect();
        pids.sort_unstable_by_key(|pid| self.entries[pid].process.ix);
        // The first process comes last: it outlived those that it waited for.
        pids.sort_by_key(|pid| *pid == root_pid);
        for pid in pids {
            self.finish(pid, root_code.filter(|_| pid == root_pid))?;
        }
        let held = self.streams.values().filter(|stream| matches!(stream.state, StreamState::Held { .. })).count();
        if self.not_followed > 0 {
            let all = self.followed + self.not_followed;
            self.notes.push(format!(
                "of {all} children of the first program that executed another, {} were followed; the others ran natively, and \
                 nothing of them is recorded",
                self.followed
            ));
        }
        if held > 0 {
            self.notes.push(format!("{held} child processes are missing because their parents were killed in fork"));
        }
        Ok((self.output, self.notes))
    }
}

/// Exit code from a status of `wait4`.
fn status_code(status: u32) -> Option<i32> {
    if status == WAIT_STATUS_UNKNOWN {
        return None;
    }
    let signal = (status & 0x7f) as i32;
    Some(if signal == 0 { (status >> 8 & 0xff) as i32 } else { SIGNAL_CODE_BASE + signal })
}

#[cfg(test)]
#[path = "collect_tests.rs"]
mod scripted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses() {
        assert_eq!(status_code(3 << 8), Some(3));
        assert_eq!(status_code(11), Some(139));
        assert_eq!(status_code(0x80 | 6), Some(134));
        assert_eq!(status_code(WAIT_STATUS_UNKNOWN), None);
    }
}
