//! Opens the folder of a trace: finds its parts and checks that they belong together.

use std::{
    fs,
    path::{Path, PathBuf},
};

use parquet::schema::types::TypePtr;

use super::{
    AccessCounts, EventCounts, TraceMeta, call_parts, columns, event_part,
    part::{ContentHash, Part, Table},
    tally::EventTally,
};
use crate::TraceError;

/// A trace whose parts were found and checked against each other; their content has not been read yet.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub path: PathBuf,
    pub meta: TraceMeta,
    pub accesses: Vec<Part>,
    pub events: Vec<Part>,
    pub counts: AccessCounts,
    /// Hash of the parts present; equals the hash in `trace.json` if the trace is complete.
    pub content_hash: String,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let kind = fs::metadata(path).map_err(|e| TraceError::io(path, e))?;
        if !kind.is_dir() {
            let what = "not a trace: a trace is a folder; other formats must be imported";
            return Err(TraceError::corrupt(path, what));
        }
        let meta = TraceMeta::read(path)?;
        let (accesses, access_hash) = parts(path, Table::Accesses, columns::schema(meta.dependencies))?;
        let (events, event_hash) = parts(path, Table::Events, &event_part::SCHEMA)?;
        let mut counts = AccessCounts::default();
        for part in &accesses {
            let in_part = part.facts.counts.ok_or_else(|| part.corrupt("its footer has no counts"))?;
            if in_part.checked_total() != Some(part.facts.rows) {
                return Err(part.corrupt("the counts in its footer do not add up to its rows"));
            }
            counts = counts.checked_add(&in_part).ok_or_else(|| part.corrupt("its counts exceed 64 bits"))?;
        }
        let content_hash = ContentHash::combine(&access_hash, &event_hash);
        let folder = Self { path: path.to_path_buf(), meta, accesses, events, counts, content_hash };
        folder.check_complete()?;
        Ok(folder)
    }

    /// Checks that a complete trace still contains what it contained when it was finished.
    fn check_complete(&self) -> Result<(), TraceError> {
        if !self.meta.complete {
            return Ok(());
        }
        let corrupt = |what: String| Err(TraceError::corrupt(&self.path, what));
        let rows = |parts: &[Part]| parts.last().map_or(0, |part| part.facts.first_row + part.facts.rows);
        let expected = [
            (Table::Accesses, self.meta.accesses.and_then(|c| c.checked_total()), &self.accesses),
            (Table::Events, self.meta.events.as_ref().map(EventCounts::total), &self.events),
        ];
        for (table, expected, parts) in expected {
            let (found, expected) = (rows(parts), expected.unwrap_or(0));
            if found < expected {
                let missing = table.file_name(parts.len());
                let name = table.name();
                return corrupt(format!("{missing} is missing: the trace has {found} of {expected} {name}"));
            }
        }
        let recorded = self.meta.content_hash.as_deref().unwrap_or_default();
        if !cfg!(fuzzing) && self.content_hash != recorded {
            let found = &self.content_hash;
            return corrupt(format!("its parts have changed since it was finished: hash {found}, recorded {recorded}"));
        }
        Ok(())
    }

    /// Counts of events, processes and threads; for an incomplete trace they are counted again.
    pub(super) fn event_counts(&self) -> Result<EventCounts, TraceError> {
        if let Some(counts) = &self.meta.events
            && self.meta.complete
        {
            return Ok(counts.clone());
        }
        let mut tally = EventTally::default();
        for part in &self.events {
            for event in event_part::decode(part)? {
                if event.position <= self.counts.total() {
                    tally.event(&event);
                }
            }
        }
        Ok(tally.counts())
    }

    /// Bytes of all parts, including those of call stacks.
    pub(super) fn size_bytes(&self) -> Result<u64, TraceError> {
        let stacks = call_parts::size_bytes(&self.path)?;
        Ok(stacks + self.accesses.iter().chain(&self.events).map(|part| part.size_bytes).sum::<u64>())
    }
}

/// The parts of a table in order, without gaps, and their hash.
pub(super) fn parts(folder: &Path, table: Table, schema: &TypePtr) -> Result<(Vec<Part>, ContentHash), TraceError> {
    let mut indices = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| TraceError::io(folder, e))? {
        let name = entry.map_err(|e| TraceError::io(folder, e))?.file_name();
        indices.extend(name.to_str().and_then(|name| table.index_of(name)));
    }
    indices.sort_unstable();
    let mut parts = Vec::with_capacity(indices.len());
    let mut hash = ContentHash::default();
    let mut rows = 0u64;
    for (expected, index) in indices.into_iter().enumerate() {
        if index != expected {
            let (missing, present) = (table.file_name(expected), table.file_name(index));
            return Err(TraceError::corrupt(folder, format!("{missing} is missing, but {present} is there")));
        }
        let part = Part::open(folder.join(table.file_name(index)), schema)?;
        if part.facts.first_row != rows {
            let what = format!("begins at row {}, expected {rows}: not the part of this place", part.facts.first_row);
            return Err(part.corrupt(what));
        }
        rows = rows.checked_add(part.facts.rows).ok_or_else(|| part.corrupt("more than 2^64 rows"))?;
        hash.add(&part.facts);
        parts.push(part);
    }
    Ok((parts, hash))
}
