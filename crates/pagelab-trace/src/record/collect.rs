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
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::follow::NOT_FOLLOWED;
use super::frame::Frame;
use super::life_line::LifeLines;
use super::output::Output;
use super::process::{DecodeError, Process, RemoteAccess, ThreadNumbers, Turn};
use super::protocol::{
    CONTROL_BIT, Control, EXIT_BY_SIGNAL, Origin, ProcessKey, VERSION, WAIT_STATUS_UNKNOWN, parse_control,
};
use super::ring::{Door, Filled, Ring, Visitor};
use crate::{EventKind, ProcessIx, TraceError};

/// The exit code of a process that a signal ended is this plus the signal's number, as in shells.
const SIGNAL_CODE_BASE: i32 = 128;
const SIGKILL: i32 = 9;
/// How long the stream of a process that has ended, or executed another program, may stay open and silent.
const SILENCE: Duration = Duration::from_secs(10);

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    /// Waits for its first frame, which identifies its process.
    New,
    /// Waits for its turn: a new image follows the old one only when the old one's stream has been read.
    Greeted,
    /// Waits for its parent's record of the fork.
    Held { key: ProcessKey, pid: u32 },
    /// The running stream of the process with this key.
    Running { key: ProcessKey },
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
            StreamState::Greeted => false,
            StreamState::Held { .. } => {
                !self.closed && self.backlog.iter().map(|frame| frame.len()).sum::<usize>() < BACKLOG_BYTES
            }
        }
    }
}

/// A process, and its stream if that is open.
struct ProcessStream {
    process: Process,
    /// The process's id as itself sees it.
    pid: u32,
    /// Keys of the children that it has not waited for, by their ids as it sees them.
    children: HashMap<u32, ProcessKey>,
    stream: Option<u64>,
    /// Whether its exit event has been written.
    finished: bool,
}

struct NewImage {
    stream: u64,
    key: ProcessKey,
    pid: u32,
    path: Arc<str>,
}

/// What a recording has to say about itself, a sentence each.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    pub notes: Vec<String>,
    /// What is missing although it was to be recorded.
    pub losses: Vec<String>,
}

pub(super) struct Collector<'a> {
    listener: UnixListener,
    /// Once the first process has brought it; none again when the last process has gone.
    door: Option<Door>,
    streams: HashMap<u64, Stream>,
    next_stream: u64,
    entries: HashMap<ProcessKey, ProcessStream>,
    /// Children whose fork has been recorded and that have not connected yet.
    unborn: HashMap<ProcessKey, Process>,
    processes: u32,
    numbers: ThreadNumbers,
    output: Output<'a>,
    /// Streams of new images that have sent their greeting, in order of arrival.
    images: VecDeque<NewImage>,
    /// Unused frames.
    spare: Vec<Frame>,
    /// The life lines of closed streams.
    life_lines: LifeLines,
    remarks: Remarks,
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
            door: None,
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
            remarks: Remarks::default(),
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

    /// True while a process is connected, or is between two programs.
    pub(super) fn is_connected(&self) -> bool {
        self.door.is_some() || self.streams.values().any(|stream| !stream.closed)
    }

    /// True while a stream waits for another, which should soon come.
    pub(super) fn is_waiting(&self) -> bool {
        self.streams.values().any(|stream| !stream.closed && !matches!(stream.state, StreamState::Running { .. }))
    }

    /// Ids of the processes that are connected, as this process sees them.
    pub(super) fn connected_pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.streams.values().filter_map(|stream| stream.ring.pid()).collect();
        pids.sort_unstable();
        pids.dedup();
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
        polled.extend(self.door.iter().map(|door| PollFd::new(door, PollFlags::IN)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(milliseconds) * 1_000_000 };
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(e) => return Err(CollectError::Stream(format!("waiting for the tool: {e}"))),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] || ready.len() > ids.len() + 1 && ready[ids.len() + 1] {
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
            if self.held(image.key).is_some() {
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
                    self.insert(Ring::new(socket));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => return Err(CollectError::Stream(format!("accepting a connection: {e}"))),
            }
        }
        while let Some(door) = &self.door {
            match door.accept().map_err(CollectError::Stream)? {
                Visitor::Process(ring) => self.insert(ring),
                Visitor::Nobody => break,
                Visitor::Closed => self.door = None,
            }
        }
        Ok(())
    }

    fn insert(&mut self, ring: Ring) {
        self.streams.insert(self.next_stream, Stream::new(ring));
        self.next_stream += 1;
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
            StreamState::New => {
                self.door = self.door.take().or(stream.ring.take_door());
                self.greet(id, frame.bytes())?;
            }
            StreamState::Greeted => unreachable!("a waiting stream is not read"),
            StreamState::Held { .. } => {
                stream.backlog.push(frame);
                return Ok(true);
            }
            StreamState::Running { key } => self.decode(key, &frame)?,
        }
        self.spare.push(frame);
        Ok(true)
    }

    /// Reads a stream to its end; the process has closed it or is about to.
    fn drain(&mut self, id: u64) -> Result<()> {
        let mut last = Instant::now();
        while let Some(stream) = self.streams.get(&id) {
            if self.output.is_full() || !stream.is_read() {
                return Ok(());
            }
            let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
            match poll(&mut [PollFd::new(&stream.ring, PollFlags::IN)], Some(&timeout)) {
                Ok(0) if last.elapsed() >= SILENCE => {
                    let pid = stream.ring.pid().map_or_else(String::new, |pid| format!(" {pid}"));
                    self.remarks
                        .losses
                        .push(format!("process{pid} was silent after its end was reported; it is cut off"));
                    return self.close(id);
                }
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => last = Instant::now(),
                Err(e) => return Err(CollectError::Stream(format!("waiting for the tool: {e}"))),
            }
            self.take_frame(id)?;
        }
        Ok(())
    }

    fn decode(&mut self, key: ProcessKey, frame: &Frame) -> Result<()> {
        let mut at = 0;
        loop {
            let Some(entry) = self.entries.get_mut(&key) else { return Ok(()) };
            match entry.process.decode(frame, &mut at, &mut self.numbers, &mut self.output)? {
                None => {
                    entry.finished |= entry.process.exited.is_some_and(|code| code != EXIT_BY_SIGNAL);
                    return Ok(());
                }
                Some(Turn::Forked { pid, child, shares }) => self.forked(key, pid, child, shares)?,
                Some(Turn::Waited { pid, status }) => self.waited(key, pid, status)?,
                Some(Turn::RemoteAccess { pid, access }) => self.remote_access(key, pid, access)?,
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
        let Some(Control::Hello { version: VERSION, origin, key, pid, path }) = hello else {
            return Err(CollectError::Stream("a stream does not begin with a greeting of this version".to_owned()));
        };
        match origin {
            Origin::Image => {
                self.set_state(id, StreamState::Greeted);
                self.images.push_back(NewImage { stream: id, key, pid, path });
                Ok(())
            }
            Origin::Fork => {
                self.set_state(id, StreamState::Held { key, pid });
                self.bind_child(key)
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
        let NewImage { stream, key, pid, path } = image;
        // The `execve` closed the old image's stream, but its last frames may not have been read yet.
        if let Some(old) = self.entries.get(&key).and_then(|entry| entry.stream) {
            self.drain(old)?;
        }
        self.set_state(stream, StreamState::Running { key });
        if let Some(entry) = self.entries.get_mut(&key).filter(|e| !e.finished && e.process.exec.is_some()) {
            entry.stream = Some(stream);
            self.followed += u32::from(entry.process.forked_from_first);
            entry.process.exec(path, &mut self.output)?;
            entry.process.follow_image(pid, &mut self.output);
            return Ok(());
        }
        let mut process = Process::new(ProcessIx(self.processes), self.numbers.next());
        self.processes += 1;
        self.output.event(process.ix, process.thread(), EventKind::ProcessStart { parent: None })?;
        process.follow_image(pid, &mut self.output);
        self.enter(key, pid, process, stream)
    }

    /// Assigns `process` to this key.
    fn enter(&mut self, key: ProcessKey, pid: u32, process: Process, stream: u64) -> Result<()> {
        self.finish(key, None)?;
        let (stream_of, children) = (Some(stream), HashMap::new());
        self.entries.insert(key, ProcessStream { process, pid, children, stream: stream_of, finished: false });
        self.set_state(stream, StreamState::Running { key });
        Ok(())
    }

    fn forked(&mut self, parent: ProcessKey, child_pid: u32, child_key: ProcessKey, shares: bool) -> Result<()> {
        let Some(parent) = self.entries.get_mut(&parent) else { return Ok(()) };
        parent.children.insert(child_pid, child_key);
        parent.process.share_pages();
        let child = parent.process.fork(ProcessIx(self.processes), self.numbers.next());
        self.processes += 1;
        let child_ix = child.ix;
        let event = if shares { EventKind::Vfork { child: child_ix } } else { EventKind::Fork { child: child_ix } };
        self.output.event(parent.process.ix, parent.process.thread(), event)?;
        child.write_context(&mut self.output);
        self.unborn.insert(child_key, child);
        self.bind_child(child_key)
    }

    /// Lets a forked child continue once its parent's fork is recorded and it has connected.
    fn bind_child(&mut self, key: ProcessKey) -> Result<()> {
        let Some((id, pid)) = self.held(key) else { return Ok(()) };
        let Some(process) = self.unborn.remove(&key) else { return Ok(()) };
        self.enter(key, pid, process, id)?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let (backlog, closed) = (std::mem::take(&mut stream.backlog), stream.closed);
        for frame in backlog {
            if !self.output.is_full() {
                self.decode(key, &frame)?;
            }
            self.spare.push(frame);
        }
        if closed { self.close(id) } else { Ok(()) }
    }

    /// The stream of a forked child that waits for its parent's record of the fork, and the child's id.
    fn held(&self, key: ProcessKey) -> Option<(u64, u32)> {
        self.streams.iter().find_map(|(id, stream)| match stream.state {
            StreamState::Held { key: held, pid } if held == key => Some((*id, pid)),
            StreamState::New | StreamState::Greeted | StreamState::Held { .. } | StreamState::Running { .. } => None,
        })
    }

    /// The process that `waiter` knows by this id is dead, and `waiter` knows: everything it did comes before what
    /// `waiter` does next. Its connections, made before it died, wait at the listener or the door at the latest.
    fn waited(&mut self, waiter: ProcessKey, pid: u32, status: u32) -> Result<()> {
        self.accept()?;
        let mut new: Vec<u64> =
            self.streams.iter().filter(|(_, s)| s.state == StreamState::New).map(|(id, _)| *id).collect();
        new.sort_unstable();
        for id in new {
            // Both messages of a dead process's greeting have arrived.
            self.take_frame(id)?;
        }
        let Some((key, is_child)) = self.dead_process(waiter, pid) else { return Ok(()) };
        while let Some(at) = self.images.iter().position(|image| image.key == key) {
            if let Some(image) = self.images.remove(at) {
                self.new_image(image)?;
            }
        }
        while let Some(id) = self.entries.get(&key).and_then(|entry| entry.stream) {
            if self.output.is_full() {
                return Ok(());
            }
            self.drain(id)?;
        }
        self.finish(key, status_code(status))?;
        self.unborn.remove(&key);
        let both = self.entries.get(&waiter).zip(self.entries.get(&key)).filter(|_| is_child);
        Ok(both.map_or(Ok(()), |(waiter, dead)| waiter.process.continue_after(dead.process.ix, &mut self.output))?)
    }

    /// The kernel has accessed a process for the process `by`, which knows it by this id. Nothing happens if it is not
    /// recorded.
    fn remote_access(&mut self, by: ProcessKey, pid: u32, access: RemoteAccess) -> Result<()> {
        let child = self.entries.get(&by).and_then(|entry| entry.children.get(&pid));
        let others = || self.entries.iter().filter(|(_, entry)| entry.pid == pid && !entry.finished);
        let other = || others().min_by_key(|(_, entry)| entry.process.ix).map(|(key, _)| *key);
        let Some(key) = child.copied().or_else(other) else { return Ok(()) };
        let process = match self.entries.get_mut(&key) {
            Some(entry) if entry.finished => return Ok(()),
            Some(entry) => &mut entry.process,
            None => match self.unborn.get_mut(&key) {
                Some(process) => process,
                None => return Ok(()),
            },
        };
        Ok(process.remote_access(access, &mut self.output)?)
    }

    /// Whom `waiter` has waited for: a child of its own (true), or an orphan with this id that came to it (false).
    fn dead_process(&mut self, waiter: ProcessKey, pid: u32) -> Option<(ProcessKey, bool)> {
        if let Some(key) = self.entries.get_mut(&waiter)?.children.remove(&pid) {
            return Some((key, true));
        }
        let orphans = self.entries.iter().filter(|(_, entry)| entry.pid == pid && !entry.finished);
        orphans.min_by_key(|(_, entry)| entry.process.ix).map(|(key, _)| (*key, false))
    }

    /// Handles the end of a stream: its process has ended, was killed, or executes another program.
    fn close(&mut self, id: u64) -> Result<()> {
        let Some(mut stream) = self.streams.remove(&id) else { return Ok(()) };
        if let Some(end) = stream.ring.take_life_line() {
            self.life_lines.hold(end);
        }
        if let StreamState::Running { key } = stream.state
            && let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.stream == Some(id))
        {
            entry.stream = None;
        }
        Ok(())
    }

    /// Writes the exit event of a process that did not report its end, or reported it without a code.
    fn finish(&mut self, key: ProcessKey, code: Option<i32>) -> Result<()> {
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| !entry.finished) else { return Ok(()) };
        entry.finished = true;
        let pid = entry.pid;
        if let Some(exec) = &entry.process.exec {
            if exec.native.as_deref() == Some(NOT_FOLLOWED) {
                self.not_followed += 1;
            } else {
                self.remarks.losses.push(match &exec.native {
                    Some(reason) => format!(
                        "process {pid} executed {}, which {reason}: it ran natively, and nothing of it is recorded",
                        exec.path
                    ),
                    None => format!("process {pid} executed {}, which did not start under Valgrind", exec.path),
                });
            }
        }
        // Only SIGKILL can end a process without its tool noticing. A tool that failed has exited instead.
        if let Some(code) = code
            && entry.process.exec.is_none()
            && entry.process.exited.is_none()
            && code != SIGNAL_CODE_BASE + SIGKILL
        {
            self.remarks.losses.push(format!(
                "process {pid}: Valgrind failed, and ended it with status {code}; what it did from then on is missing"
            ));
        }
        let unknown = if entry.process.exited.is_some() { SIGNAL_CODE_BASE } else { SIGNAL_CODE_BASE + SIGKILL };
        entry.process.exit(code.unwrap_or(unknown), &mut self.output)?;
        Ok(())
    }

    /// Ends the recording; `root_code` is the first process's exit code.
    pub(super) fn finish_all(mut self, root_code: Option<i32>) -> Result<(Output<'a>, Remarks)> {
        let mut keys: Vec<ProcessKey> = self.entries.keys().copied().collect();
        keys.sort_unstable_by_key(|key| self.entries[key].process.ix);
        // The first process comes last: it outlived those that it waited for.
        if !keys.is_empty() {
            keys.rotate_left(1);
        }
        for key in keys {
            let is_root = self.entries[&key].process.ix == ProcessIx(0);
            self.finish(key, root_code.filter(|_| is_root))?;
        }
        let held = self.streams.values().filter(|stream| matches!(stream.state, StreamState::Held { .. })).count();
        if self.not_followed > 0 {
            let all = self.followed + self.not_followed;
            self.remarks.notes.push(format!(
                "of {all} children of the first program that executed another, {} were followed; the others ran natively, and \
                 nothing of them is recorded",
                self.followed
            ));
        }
        if held > 0 {
            let why = "because their parents never told of the fork: they were killed in it";
            self.remarks.losses.push(format!("{held} child processes are missing {why}"));
        }
        Ok((self.output, self.remarks))
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
