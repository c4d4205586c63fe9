//! Reads a trace: a separate thread decodes parts, a few pages ahead of the reader.

use std::{
    collections::VecDeque,
    path::Path,
    sync::Arc,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use super::{
    AccessCounts, EventCounts, TraceMeta,
    call_parts::{CallsReader, read_stacks},
    decode::{Memory, PartDecoder, Run},
    event_part,
    folder::Folder,
    part::Part,
};
use crate::calls::CallStacks;
use crate::{Batch, Event, Segment, Source, SourceInfo, TraceError};

/// Number of batches decoded ahead: 1.5 MiB each.
const BATCHES_AHEAD: usize = 3;

/// A trace as a [`Source`]. Opening it reads the footers of all parts; decoding begins with the first batch.
pub struct TraceReader {
    folder: Folder,
    counts: EventCounts,
    info: SourceInfo,
    /// Whether dependencies and branches are needed.
    tells: bool,
    /// Number of contexts, if call stacks are needed.
    contexts: Option<usize>,
    state: MergerState,
}

enum MergerState {
    Opened,
    Reading(Connection),
    /// At the end, or after an error.
    Ended,
}

struct Connection {
    batches: Receiver<Result<Batch, TraceError>>,
    used: SyncSender<Batch>,
    thread: JoinHandle<()>,
}

impl TraceReader {
    /// Opens the trace at the folder `path`, complete or not.
    ///
    /// # Errors
    /// [`TraceError::Io`], or [`TraceError::Corrupt`] if it is not a trace, has another format version, is damaged,
    /// lacks one of its parts, or contains no access.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let folder = Folder::open(path.as_ref())?;
        if folder.accesses.is_empty() {
            let what = if folder.meta.complete {
                "an empty trace: it has no accesses"
            } else {
                "an empty trace: its recording ended before the first part of accesses was written"
            };
            return Err(TraceError::corrupt(folder.path, what));
        }
        let counts = folder.event_counts()?;
        let name = folder.path.file_stem().unwrap_or(folder.path.as_os_str()).to_string_lossy().into_owned();
        let info = SourceInfo {
            name,
            accesses: Some(folder.counts.total()),
            threads: counts.threads_at_once,
            mappings_inferred: folder.meta.mappings_inferred,
            sampled: folder.meta.sampled,
            sampling: folder.meta.sample,
            dependencies: folder.meta.dependencies,
            branches: folder.meta.dependencies,
            content_hash: Some(folder.content_hash.clone()),
        };
        Ok(Self { folder, counts, info, tells: true, contexts: None, state: MergerState::Opened })
    }

    /// Content of `trace.json`; `complete` tells whether the recording ended regularly.
    pub fn meta(&self) -> &TraceMeta {
        &self.folder.meta
    }

    /// Counts of the accesses present, whether the trace is complete or not.
    pub fn access_counts(&self) -> AccessCounts {
        self.folder.counts
    }

    /// Counts of the events present, whether the trace is complete or not.
    pub fn event_counts(&self) -> &EventCounts {
        &self.counts
    }

    fn start(&self) -> Result<Connection, TraceError> {
        let (to_reader, batches) = sync_channel(BATCHES_AHEAD);
        let (used, from_reader) = sync_channel::<Batch>(BATCHES_AHEAD + 2);
        let mut merger = Merger::new(&self.folder, self.tells);
        if let Some(contexts) = self.contexts {
            merger.calls = Some(CallsReader::new(&self.folder, contexts)?);
        }
        let decode = move || {
            loop {
                let mut batch = from_reader.try_recv().unwrap_or_default();
                let step = merger.next_batch(&mut batch);
                let last = !matches!(step, Ok(true));
                let message = match step {
                    Ok(true) => Ok(batch),
                    Ok(false) => return,
                    Err(error) => Err(error),
                };
                // The reader may have been dropped.
                if to_reader.send(message).is_err() || last {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("trace-decoder".to_owned())
            .spawn(decode)
            .map_err(|e| TraceError::io(&self.folder.path, e))?;
        Ok(Connection { batches, used, thread })
    }

    fn stop(&mut self) {
        if let MergerState::Reading(Connection { batches, used, thread }) =
            std::mem::replace(&mut self.state, MergerState::Ended)
        {
            drop((batches, used));
            if let Err(panic) = thread.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Source for TraceReader {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn omit_dependencies(&mut self) {
        self.tells = false;
        (self.info.dependencies, self.info.branches) = (false, false);
    }

    fn enable_call_stacks(&mut self) -> Result<Option<Arc<CallStacks>>, TraceError> {
        let stacks = read_stacks(&self.folder)?;
        self.contexts = stacks.as_ref().map(|stacks| stacks.contexts.len());
        Ok(stacks.map(Arc::new))
    }

    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        if matches!(self.state, MergerState::Opened) {
            self.state = MergerState::Reading(self.start()?);
        }
        if let MergerState::Reading(connection) = &self.state {
            match connection.batches.recv() {
                Ok(Ok(next)) => {
                    // Returned without emptying it: its content is overwritten, which costs less.
                    let used = std::mem::replace(batch, next);
                    // Only a batch with memory is worth returning; if the queue is full, it is freed.
                    if used.accesses.capacity() > 0 {
                        let _ = connection.used.try_send(used);
                    }
                    return Ok(true);
                }
                Ok(Err(error)) => {
                    batch.clear();
                    self.stop();
                    return Err(error);
                }
                Err(_) => self.stop(),
            }
        }
        batch.clear();
        Ok(false)
    }
}

impl Drop for TraceReader {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Decodes one page after the other and inserts the events between the runs.
pub(super) struct Merger {
    accesses: VecDeque<Part>,
    events: Events,
    decoder: Option<PartDecoder>,
    /// Present while there is no decoder.
    memory: Option<Memory>,
    position: u64,
    end: u64,
    runs: Vec<Run>,
    /// Whether the trace has dependencies, and whether they are needed.
    has_waits: bool,
    wants_waits: bool,
    /// Present if call stacks are needed.
    calls: Option<CallsReader>,
}

impl Merger {
    pub(super) fn new(folder: &Folder, wants_waits: bool) -> Self {
        Self {
            has_waits: folder.meta.dependencies,
            wants_waits,
            calls: None,
            accesses: folder.accesses.iter().cloned().collect(),
            events: Events {
                parts: folder.events.iter().cloned().collect(),
                loaded: VecDeque::new(),
                last_position: 0,
                complete: folder.meta.complete,
                end: folder.counts.total(),
            },
            decoder: None,
            memory: None,
            position: 0,
            end: folder.counts.total(),
            runs: Vec::new(),
        }
    }

    /// See [`Source::next_batch`].
    pub(super) fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.segments.clear();
        self.runs.clear();
        let mut read = false;
        while self.position < self.end {
            let decoder = match &mut self.decoder {
                Some(decoder) => decoder,
                None => match self.accesses.pop_front() {
                    Some(part) => {
                        let memory = self.memory.take().map_or_else(Memory::new, Ok);
                        let memory = memory.map_err(|e| TraceError::io(&part.path, e))?;
                        self.decoder.insert(PartDecoder::new(&part, memory, self.has_waits, self.wants_waits)?)
                    }
                    None => break,
                },
            };
            if decoder.next_page(&mut batch.accesses, &mut batch.branches, &mut self.runs)? {
                read = true;
                break;
            }
            self.memory = self.decoder.take().map(PartDecoder::into_memory);
        }
        if !read {
            batch.accesses.clear();
            batch.branches.clear();
        }
        let page_end = self.position + batch.accesses.len() as u64;
        let mut begin = 0;
        batch.allocations.clear();
        for run in &self.runs {
            while let Some(event) = self.events.next_before(self.position + run.end as u64)? {
                let at = (event.position - self.position) as usize;
                if event.kind.reports_allocation() {
                    if self.calls.is_some() {
                        batch.allocations.push((at, event));
                    }
                    continue;
                }
                if at > begin {
                    batch.segments.push(Segment::Run { thread: run.thread, end: at });
                    begin = at;
                }
                batch.push_event(event);
            }
            batch.segments.push(Segment::Run { thread: run.thread, end: run.end });
            begin = run.end;
        }
        match &mut self.calls {
            Some(calls) => calls.fill(self.position, &batch.segments, &mut batch.contexts)?,
            None => batch.contexts.clear(),
        }
        self.position = page_end;
        if batch.accesses.is_empty() {
            // After the last access there are only events, in small batches.
            while batch.segments.len() < event_part::MAX_ROWS
                && let Some(event) = self.events.next_before(u64::MAX)?
            {
                if !event.kind.reports_allocation() {
                    batch.push_event(event);
                }
            }
        }
        Ok(!batch.is_empty())
    }
}

/// The events in order; one part is in memory at a time.
struct Events {
    parts: VecDeque<Part>,
    loaded: VecDeque<Event>,
    last_position: u64,
    complete: bool,
    /// Number of accesses of the trace.
    end: u64,
}

impl Events {
    /// The next event if its position is below `limit`.
    fn next_before(&mut self, limit: u64) -> Result<Option<Event>, TraceError> {
        if self.loaded.is_empty() {
            match self.parts.pop_front() {
                Some(part) => self.load(&part)?,
                None => return Ok(None),
            }
        }
        if self.loaded.front().is_none_or(|event| event.position >= limit) {
            return Ok(None);
        }
        Ok(self.loaded.pop_front())
    }

    fn load(&mut self, part: &Part) -> Result<(), TraceError> {
        self.loaded = event_part::decode(part)?.into();
        for event in &self.loaded {
            if event.position < self.last_position {
                let what = format!("an event at position {} after one at {}", event.position, self.last_position);
                return Err(part.corrupt(what));
            }
            self.last_position = event.position;
        }
        if self.last_position > self.end {
            if self.complete {
                let what = format!("an event at position {} of {} accesses", self.last_position, self.end);
                return Err(part.corrupt(what));
            }
            // The accesses before these events were lost with the recorder.
            self.loaded.retain(|event| event.position <= self.end);
            self.parts.clear();
        }
        Ok(())
    }
}
