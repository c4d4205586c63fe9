//! Encodes pages of accesses, whose addresses are already compressed, to parts on disk.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::SyncSender,
    },
};

use super::{
    EventCounts, MAX_ACCESS_BYTES, columns,
    encode::PartEncoder,
    event_part,
    meta::AccessCounts,
    page::{Message, Page, PartDictionaries},
    part::{self, ContentHash, Table},
    tally::EventTally,
};
use crate::{Event, TraceError};

/// What was written in total.
pub(super) struct Encoded {
    pub accesses: AccessCounts,
    pub events: EventCounts,
    pub hash: String,
    pub bytes: u64,
}

/// An encoder's progress, for the thread that gives it work.
#[derive(Debug, Default)]
pub(super) struct EncoderProgress {
    /// Bytes of all parts on disk.
    pub bytes: AtomicU64,
    /// Accesses in them.
    pub accesses: AtomicU64,
}

/// Writes the parts of a trace.
pub(super) struct Encoder {
    folder: PathBuf,
    /// Whether there is a column of dependencies.
    dependencies: bool,
    part: PartEncoder,
    /// Memory for the next part's file: the allocator would return it to the system and request it again.
    file: Vec<u8>,
    pending_events: Vec<Event>,
    event_parts: usize,
    first_event_row: u64,
    access_parts: usize,
    tally: EventTally,
    counts: AccessCounts,
    access_hash: ContentHash,
    event_hash: ContentHash,
    bytes: u64,
    written: Arc<EncoderProgress>,
}

impl Encoder {
    pub(super) fn new(folder: PathBuf, dependencies: bool) -> Result<Self, TraceError> {
        Ok(Self {
            part: PartEncoder::new(dependencies).map_err(|e| TraceError::io(&folder, e))?,
            folder,
            dependencies,
            file: Vec::new(),
            pending_events: Vec::new(),
            event_parts: 0,
            first_event_row: 0,
            access_parts: 0,
            tally: EventTally::default(),
            counts: AccessCounts::default(),
            access_hash: ContentHash::default(),
            event_hash: ContentHash::default(),
            bytes: 0,
            written: Arc::default(),
        })
    }

    /// Its progress, updated after each part.
    pub(super) fn written(&self) -> Arc<EncoderProgress> {
        Arc::clone(&self.written)
    }

    fn report(&self) {
        self.written.accesses.store(self.counts.total(), Ordering::Relaxed);
        self.written.bytes.store(self.bytes, Ordering::Relaxed);
    }

    /// Processes messages with compressed addresses to their end, returning the empty pages, then writes the remaining
    /// events.
    pub(super) fn run(
        mut self,
        messages: impl IntoIterator<Item = Result<Message, io::Error>>,
        empty: &SyncSender<Page>,
    ) -> Result<Self, TraceError> {
        for message in messages {
            match message.map_err(|error| TraceError::cannot_encode(&self.folder, error))? {
                Message::Page(mut page) => {
                    self.page(&mut page)?;
                    page.clear();
                    // If the writer has enough empty pages or is gone, the page is freed.
                    let _ = empty.try_send(page);
                }
                Message::EndOfPart(dictionaries) => self.finish_part(&dictionaries)?,
            }
        }
        self.flush_events()?;
        Ok(self)
    }

    fn page(&mut self, page: &mut Page) -> Result<(), TraceError> {
        for event in page.events.drain(..) {
            self.tally.event(&event);
            self.pending_events.push(event);
            if self.pending_events.len() == event_part::MAX_ROWS {
                self.flush_events()?;
            }
        }
        if page.rows == 0 {
            return Ok(());
        }
        self.part.page(page).map_err(|e| self.cannot_encode(e))
    }

    fn cannot_encode(&self, error: parquet::errors::ParquetError) -> TraceError {
        TraceError::cannot_encode(&self.folder, error)
    }

    /// Writes the events, then the accesses that came with them.
    fn finish_part(&mut self, dictionaries: &PartDictionaries) -> Result<(), TraceError> {
        self.flush_events()?;
        let wrong = |size: &u16| *size == 0 || *size > MAX_ACCESS_BYTES;
        if let Some(size) = dictionaries.sites.iter().map(|site| site.size_bytes()).find(wrong) {
            return Err(TraceError::usage(format!("an access of {size} bytes: 1 to {MAX_ACCESS_BYTES} are allowed")));
        }
        dictionaries.threads.iter().for_each(|thread| self.tally.thread(*thread));
        let (rows, counts) = (self.part.rows(), self.part.counts());
        let memory = std::mem::take(&mut self.file);
        let (content, facts) = part::encode(
            memory,
            columns::schema(self.dependencies),
            self.counts.total(),
            rows,
            Some(counts),
            |group| self.part.finish_part(dictionaries, group),
        )
        .map_err(|e| self.cannot_encode(e))?;
        part::write_whole(&self.folder.join(Table::Accesses.file_name(self.access_parts)), &content)?;
        self.access_parts += 1;
        self.access_hash.add(&facts);
        self.counts = self.counts.checked_add(&counts).expect("less than 2^64 instructions");
        self.bytes += content.len() as u64;
        self.file = content;
        self.report();
        Ok(())
    }

    fn flush_events(&mut self) -> Result<(), TraceError> {
        if self.pending_events.is_empty() {
            return Ok(());
        }
        let (content, facts) =
            event_part::encode(&self.pending_events, self.first_event_row).map_err(|e| self.cannot_encode(e))?;
        part::write_whole(&self.folder.join(Table::Events.file_name(self.event_parts)), &content)?;
        self.event_parts += 1;
        self.first_event_row += self.pending_events.len() as u64;
        self.event_hash.add(&facts);
        self.bytes += content.len() as u64;
        self.report();
        self.pending_events.clear();
        Ok(())
    }

    /// Writes `events` of a trace that has none yet.
    pub(super) fn write_events(&mut self, events: &[Event]) -> Result<(), TraceError> {
        for chunk in events.chunks(event_part::MAX_ROWS) {
            chunk.iter().for_each(|event| self.tally.event(event));
            self.pending_events.extend_from_slice(chunk);
            self.flush_events()?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Encoded {
        Encoded {
            accesses: self.counts,
            events: self.tally.counts(),
            hash: ContentHash::combine(&self.access_hash, &self.event_hash),
            bytes: self.bytes,
        }
    }
}
