//! Writes a trace.

use std::{
    fs, mem,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use super::{
    AccessCounts, EventCounts, MAX_PART_ROWS, TraceMeta, call_parts,
    encoder::Encoder,
    page::{FullPage, Message, OpenPage},
    pipeline::Pipeline,
};
use crate::{Access, Branches, Event, ThreadIx, TraceError};

/// Estimated bytes per access before the first part is written: recordings have 1 to 4.
const FIRST_BYTES_PER_ACCESS: f64 = 2.0;

/// Options for writing a trace.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Maximum number of accesses in a part, 1 to [`MAX_PART_ROWS`], which is the default. A recorder that is killed
    /// loses less than that. The first parts have at most a million, later ones more.
    pub rows_per_part: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { rows_per_part: MAX_PART_ROWS }
    }
}

/// The content of a finished trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSummary {
    /// Its folder.
    pub path: PathBuf,
    /// Accesses by kind, and their instructions.
    pub accesses: AccessCounts,
    /// Events by kind, and the processes and threads that they name.
    pub events: EventCounts,
    /// Bytes of all parts, including those of call stacks that have been written.
    pub size_bytes: u64,
    /// `xxh3-128:` and the hash of the hashes of all parts, as in `trace.json`.
    pub content_hash: String,
}

/// Writes a trace; two further threads encode and write it. About 4 MiB are buffered, at most 9.
///
/// If dropped without [`finish`](Self::finish), it writes what it was given and leaves an incomplete trace, which can
/// be opened. After an error the trace is incomplete and contains all parts finished before; the writer then refuses
/// further calls.
pub struct TraceWriter {
    path: PathBuf,
    meta: TraceMeta,
    page: OpenPage,
    /// Number of accesses in the pages before.
    sent: u64,
    events: u64,
    /// None after an error.
    pipeline: Option<Pipeline>,
}

impl TraceWriter {
    /// Creates the folder `path` with a `trace.json` that marks the trace as incomplete.
    ///
    /// # Errors
    /// [`TraceError::Usage`] if `path` exists and is not an empty folder; [`TraceError::Io`].
    pub fn create(path: impl AsRef<Path>, meta: TraceMeta) -> Result<Self, TraceError> {
        Self::with_options(path, meta, WriterOptions::default())
    }

    /// [`create`](Self::create) with options.
    ///
    /// # Errors
    /// Those of [`create`](Self::create), and [`TraceError::Usage`] if `rows_per_part` is out of range.
    pub fn with_options(
        path: impl AsRef<Path>,
        mut meta: TraceMeta,
        options: WriterOptions,
    ) -> Result<Self, TraceError> {
        let path = path.as_ref().to_path_buf();
        if !(1..=MAX_PART_ROWS).contains(&options.rows_per_part) {
            let what = format!("rows_per_part is {}, allowed are 1 to {MAX_PART_ROWS}", options.rows_per_part);
            return Err(TraceError::usage(what));
        }
        create_folder(&path)?;
        (meta.complete, meta.accesses, meta.events, meta.content_hash) = (false, None, None, None);
        meta.write(&path)?;
        let pipeline = Some(Pipeline::start(&path, meta.dependencies)?);
        let page = OpenPage::new(options.rows_per_part, meta.dependencies);
        Ok(Self { path, meta, page, sent: 0, events: 0, pipeline })
    }

    /// Creates a trace for `fill` to write and finish. If that fails, the trace is removed.
    ///
    /// # Errors
    /// Those of [`create`](Self::create) and `fill`.
    pub(crate) fn write_whole<T>(
        path: &Path,
        meta: TraceMeta,
        options: WriterOptions,
        fill: impl FnOnce(Self) -> Result<T, TraceError>,
    ) -> Result<T, TraceError> {
        let existed = path.exists();
        let written = fill(Self::with_options(path, meta, options)?);
        if written.is_err() {
            // Everything in the folder was made by the writer, which refuses a folder that is not empty.
            let _ = fs::remove_dir_all(path);
            if existed {
                let _ = fs::create_dir(path);
            }
        }
        written
    }

    /// Number of accesses appended so far: the position of an event that happens now.
    pub fn position(&self) -> u64 {
        self.sent + self.page.rows() as u64
    }

    /// Estimated size of the trace with all accesses so far; for buffered accesses it assumes the average size of those
    /// already written.
    pub fn estimated_bytes(&self) -> u64 {
        let Some(pipeline) = &self.pipeline else { return 0 };
        let bytes = pipeline.written.bytes.load(Ordering::Relaxed);
        let accesses = pipeline.written.accesses.load(Ordering::Relaxed);
        let per_access = if accesses == 0 { FIRST_BYTES_PER_ACCESS } else { bytes as f64 / accesses as f64 };
        bytes + (self.position().saturating_sub(accesses) as f64 * per_access) as u64
    }

    /// The meta data that [`finish`](Self::finish) will write, for facts that become known during recording.
    pub fn meta_mut(&mut self) -> &mut TraceMeta {
        &mut self.meta
    }

    /// Appends accesses of one thread, in order.
    ///
    /// # Errors
    /// Errors of the encoder, possibly about an earlier part: [`TraceError::Io`] (such as a full disk), or
    /// [`TraceError::Usage`] for an access of 0 or more than 4096 bytes.
    pub fn append(&mut self, thread: ThreadIx, accesses: &[Access]) -> Result<(), TraceError> {
        self.append_with_branches(thread, accesses, &[])
    }

    /// [`append`](Self::append) with the branches before each access.
    ///
    /// # Errors
    /// Those of [`append`](Self::append).
    pub fn append_with_branches(
        &mut self,
        thread: ThreadIx,
        accesses: &[Access],
        branches: &[Branches],
    ) -> Result<(), TraceError> {
        self.page.switch_to(thread);
        let mut done = 0;
        while done < accesses.len() {
            done += self.page.append(&accesses[done..], branches.get(done..).unwrap_or_default());
            if self.page.is_full() {
                self.send_page()?;
            }
        }
        Ok(())
    }

    /// The page that is being filled, for callers that append to it directly; they must leave room for an access.
    #[inline(always)]
    pub(crate) fn page(&mut self) -> &mut OpenPage {
        &mut self.page
    }

    /// Adds an event that happens now.
    ///
    /// # Errors
    /// Those of [`append`](Self::append), and [`TraceError::Usage`] if the event's position is not
    /// [`position`](Self::position).
    pub fn event(&mut self, event: Event) -> Result<(), TraceError> {
        if event.position != self.position() {
            let what = format!("an event at position {} after {} accesses", event.position, self.position());
            return Err(TraceError::usage(what));
        }
        self.events += 1;
        self.page.add_event(event);
        if self.page.events() == super::event_part::MAX_ROWS { self.send_page() } else { Ok(()) }
    }

    /// Writes the remaining accesses and marks the trace complete.
    ///
    /// # Errors
    /// Those of [`append`](Self::append); the trace is then incomplete.
    pub fn finish(self) -> Result<TraceSummary, TraceError> {
        self.finish_with(&[])
    }

    /// [`finish`](Self::finish) for a trace whose events become known only at its end: `events` are all of its events,
    /// in order of position.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish), and [`TraceError::Usage`] if there were events before, or if these are out of
    /// order or beyond the accesses.
    pub fn finish_with_events(self, events: &[Event]) -> Result<TraceSummary, TraceError> {
        let beyond = events.last().is_some_and(|event| event.position > self.position());
        if self.events > 0 || beyond || !events.is_sorted_by_key(|event| event.position) {
            let what =
                "events can only be added at the end to a trace without any, in order, and not beyond its accesses";
            return Err(TraceError::usage(what));
        }
        self.finish_with(events)
    }

    fn finish_with(mut self, initial_events: &[Event]) -> Result<TraceSummary, TraceError> {
        self.finish_pages()?;
        let mut encoder = self.stop().ok_or_else(stopped)??;
        encoder.write_events(initial_events)?;
        let encoded = encoder.finish();
        self.meta.complete = true;
        self.meta.accesses = Some(encoded.accesses);
        self.meta.events = Some(encoded.events.clone());
        self.meta.content_hash = Some(encoded.hash.clone());
        self.meta.write(&self.path)?;
        let size_bytes = encoded.bytes + call_parts::size_bytes(&self.path)?;
        Ok(TraceSummary {
            path: mem::take(&mut self.path),
            accesses: encoded.accesses,
            events: encoded.events,
            size_bytes,
            content_hash: encoded.hash,
        })
    }

    fn send_page(&mut self) -> Result<(), TraceError> {
        if self.page.is_empty() {
            return Ok(());
        }
        let next = self.pipeline.as_ref().ok_or_else(stopped)?.empty_page();
        let FullPage { ended_before, page, ended_after } = self.page.take(next);
        self.sent += page.rows as u64;
        for message in
            [ended_before.map(Message::EndOfPart), Some(Message::Page(page)), ended_after.map(Message::EndOfPart)]
                .into_iter()
                .flatten()
        {
            self.send(message)?;
        }
        Ok(())
    }

    fn finish_pages(&mut self) -> Result<(), TraceError> {
        self.send_page()?;
        match self.page.finish_part() {
            Some(dictionaries) => self.send(Message::EndOfPart(dictionaries)),
            None => Ok(()),
        }
    }

    fn send(&mut self, message: Message) -> Result<(), TraceError> {
        if self.pipeline.as_ref().ok_or_else(stopped)?.send(message) {
            return Ok(());
        }
        match self.stop() {
            Some(Err(error)) => Err(error),
            _ => Err(stopped()),
        }
    }

    /// Ends the threads and returns their result; none if they have already ended.
    fn stop(&mut self) -> Option<Result<Encoder, TraceError>> {
        self.pipeline.take().map(Pipeline::stop)
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        // A caller that drops the writer does not want its errors; the trace stays incomplete either way.
        if self.pipeline.is_some() {
            let _ = self.finish_pages();
            let _ = self.stop();
        }
    }
}

/// Creates the folder of a new trace.
///
/// # Errors
/// [`TraceError::Usage`] if `path` exists and is not an empty folder; [`TraceError::Io`].
pub(super) fn create_folder(path: &Path) -> Result<(), TraceError> {
    let taken = |what: &str| Err(TraceError::usage(format!("{}: {what}; name another output", path.display())));
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            Some(_) => taken("exists and is not empty"),
            None => Ok(()),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(path).map_err(|e| TraceError::io(path, e))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => taken("exists and is a file"),
        Err(e) => Err(TraceError::io(path, e)),
    }
}

fn stopped() -> TraceError {
    TraceError::usage("the trace cannot be continued after an error")
}
