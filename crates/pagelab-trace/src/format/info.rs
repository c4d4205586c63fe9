//! Information about a trace, and its first rows.

use std::path::Path;

use serde::Serialize;

use super::{
    AccessCounts, EventCounts, EventRow, TraceMeta,
    columns::{KINDS, kind_index},
    folder::Folder,
    reader::Merger,
};
use crate::{Batch, Segment, TraceError, touched_pages::NewPages};

/// The output of `trace info` for a trace, complete or not, even an empty one.
#[derive(Clone, Debug, Serialize)]
pub struct TraceInfo {
    /// Its folder, as the caller gave it.
    pub path: String,
    /// Content of `trace.json`.
    pub meta: TraceMeta,
    /// False if its recording did not end regularly, or lacks something (`losses` of `meta`).
    pub complete: bool,
    /// Number of accesses present.
    pub accesses: u64,
    /// Accesses by kind, and their instructions.
    pub access_counts: AccessCounts,
    /// Number of events present, without those beyond the last access of an incomplete trace.
    pub events: u64,
    /// Events by kind, and the processes and threads that they name.
    pub event_counts: EventCounts,
    /// Number of files `accesses-*.parquet`.
    pub access_parts: usize,
    /// Number of files `events-*.parquet`.
    pub event_parts: usize,
    /// Bytes of all parts, including those of call stacks.
    pub size_bytes: u64,
    /// `size_bytes` / `accesses`; none without accesses.
    pub bytes_per_access: Option<f64>,
    /// `xxh3-128:` and the hash of the hashes of the parts present.
    pub content_hash: String,
    /// Only on request, since it requires reading the whole trace.
    pub footprint: Option<Footprint>,
}

/// The memory that a trace accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Pages of `page_size_bytes` accessed in any process; the same address in two processes counts twice if the
    /// trace's events assign the threads to different processes.
    pub pages: u64,
    /// The smallest page of the recorded machine, in bytes.
    pub page_size_bytes: u64,
}

/// Information about the trace at `path` without reading its accesses.
///
/// # Errors
/// Those of [`TraceReader::open`](super::TraceReader::open), but an empty trace is not an error.
pub fn info(path: impl AsRef<Path>) -> Result<TraceInfo, TraceError> {
    let folder = Folder::open(path.as_ref())?;
    let event_counts = folder.event_counts()?;
    let (accesses, size_bytes) = (folder.counts.total(), folder.size_bytes()?);
    Ok(TraceInfo {
        path: folder.path.display().to_string(),
        complete: folder.meta.complete && folder.meta.losses.is_empty(),
        accesses,
        access_counts: folder.counts,
        events: event_counts.total(),
        event_counts,
        access_parts: folder.accesses.len(),
        event_parts: folder.events.len(),
        size_bytes,
        bytes_per_access: (accesses > 0).then(|| size_bytes as f64 / accesses as f64),
        content_hash: folder.content_hash,
        meta: folder.meta,
        footprint: None,
    })
}

/// Counts the pages that the trace at `path` accesses; reads all of it.
///
/// # Errors
/// Those of [`info`], and [`TraceError::Corrupt`] for damaged parts.
pub fn footprint(path: impl AsRef<Path>) -> Result<Footprint, TraceError> {
    let folder = Folder::open(path.as_ref())?;
    let page_size_bytes = folder.meta.page_size_bytes;
    if !page_size_bytes.is_power_of_two() {
        let what = format!("trace.json: page_size_bytes is {page_size_bytes}, expected a power of two");
        return Err(TraceError::corrupt(folder.path, what));
    }
    let mut merger = Merger::new(&folder, false);
    let mut batch = Batch::default();
    let mut new_pages = NewPages::new(page_size_bytes.trailing_zeros());
    let mut pages = 0;
    loop {
        batch.clear();
        if !merger.next_batch(&mut batch)? {
            return Ok(Footprint { pages, page_size_bytes });
        }
        new_pages.find_in(&batch, usize::MAX, &mut |_| pages += 1);
    }
}

/// A line of `trace head`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "row", rename_all = "snake_case")]
pub enum Row {
    /// An access; the columns of `accesses-*.parquet`.
    Access {
        /// Accesses of the whole trace before it.
        position: u64,
        /// Dense thread number.
        thread: u32,
        /// `load`, `store`, `modify` or `fetch`.
        kind: &'static str,
        /// Whether the kernel made it for the program.
        by_kernel: bool,
        /// Virtual address of the first byte.
        vaddr: u64,
        /// Bytes.
        size: u16,
        /// Virtual address of the instruction; 0 if unknown.
        pc: u64,
        /// Instructions since the thread's previous access, including its own; 0 if both belong to the same
        /// instruction.
        gap: u32,
        /// Distance to the load that the address depends on, in accesses of the thread; none without a known one.
        waits_for: Option<u64>,
        /// One letter per conditional branch since the last access: `T` if taken, `n` if not.
        branches: String,
    },
    /// An event.
    Event(EventRow),
}

/// The first `count` rows of the trace at `path`, accesses and events in order.
///
/// # Errors
/// Those of [`info`], and [`TraceError::Corrupt`] for damaged parts.
pub fn head(path: impl AsRef<Path>, count: usize) -> Result<Vec<Row>, TraceError> {
    const KIND_NAMES: [&str; KINDS.len() / 2] = ["load", "store", "modify", "fetch"];
    let folder = Folder::open(path.as_ref())?;
    let mut merger = Merger::new(&folder, true);
    let mut batch = Batch::default();
    let mut rows = Vec::new();
    let mut position = 0;
    while rows.len() < count {
        batch.clear();
        if !merger.next_batch(&mut batch)? {
            break;
        }
        let mut begin = 0;
        for segment in &batch.segments {
            match segment {
                Segment::Event(event) => rows.push(Row::Event(EventRow::from(event))),
                Segment::Run { thread, end } => {
                    let shown = count.saturating_sub(rows.len()).min(*end - begin);
                    for at in begin..begin + shown {
                        let access = &batch.accesses[at];
                        let branches = batch.branches.get(at).copied().unwrap_or_default();
                        rows.push(Row::Access {
                            position,
                            thread: thread.0,
                            kind: KIND_NAMES[usize::from(kind_index(access) & 3)],
                            by_kernel: access.maker.is_kernel(),
                            vaddr: access.vaddr,
                            size: access.size_bytes,
                            pc: access.pc,
                            gap: access.gap,
                            waits_for: access.maker.producer(),
                            branches: branches.outcomes().map(|taken| if taken { 'T' } else { 'n' }).collect(),
                        });
                        position += 1;
                    }
                    begin = *end;
                }
            }
            if rows.len() >= count {
                break;
            }
        }
    }
    Ok(rows)
}
