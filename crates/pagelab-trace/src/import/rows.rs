//! Traces of one thread whose accesses and events somebody else has put together.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    Access, AccessKind, Event, EventKind, Maker, MapFlags, ProcessIx, Protection, ThreadIx, TraceError, TraceMeta,
    TraceWriter,
    format::{TraceSummary, WriterOptions},
};

/// Bytes of an access in [`write()`]: address (8), pc (8), gap (4), size (2), kind (1), by the kernel (1);
/// little-endian.
pub const ROW_BYTES: usize = 24;

/// What a trace says of itself, and its events.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// What was recorded.
    pub command: Vec<String>,
    /// Sentences for who reads results.
    pub notes: Vec<String>,
    /// In the order of their positions.
    pub events: Vec<Positioned>,
}

/// An event, and the number of accesses before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Positioned {
    /// Accesses before it.
    pub position: u64,
    /// What happens.
    pub event: Change,
}

/// What may happen in such a trace; see [`EventKind`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// A mapping appears.
    Mmap {
        /// First address, in bytes.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// PROT_* and MAP_* bits of mmap(2).
        prot: u32,
        /// MAP_* bits of mmap(2).
        flags: u32,
        /// Path of the file; none of anonymous memory.
        file: Option<String>,
        /// Where in the file it begins, in bytes.
        file_offset: u64,
    },
    /// An access has met a fault.
    Fault {
        /// The address, in bytes.
        addr: u64,
        /// Whether it is a store.
        write: bool,
    },
}

impl From<Change> for EventKind {
    fn from(change: Change) -> Self {
        match change {
            Change::Mmap { addr, len, prot, flags, file, file_offset } => {
                let (prot, flags) = (Protection::from_bits(prot), MapFlags(flags));
                Self::Mmap { addr, len, prot, flags, file: file.map(Arc::from), file_offset }
            }
            Change::Fault { addr, write } => Self::Fault { addr, write },
        }
    }
}

/// Writes a trace of these accesses.
///
/// # Errors
/// [`TraceError::Usage`] for an output that exists, for rows that are no accesses, and for an event that is not at or
/// behind the one before it, up to the end; [`TraceError::Io`]. After an error nothing is left at `output`.
pub fn write(output: &Path, facts: Facts, rows: &[u8]) -> Result<PathBuf, TraceError> {
    let mut meta = TraceMeta::new(facts.command);
    meta.notes = facts.notes;
    let options = WriterOptions::default();
    let written = TraceWriter::write_whole(output, meta, options, |writer| fill(writer, facts.events, rows));
    Ok(written?.path)
}

fn fill(mut writer: TraceWriter, events: Vec<Positioned>, rows: &[u8]) -> Result<TraceSummary, TraceError> {
    let (process, thread) = (ProcessIx(0), ThreadIx(0));
    let event = |position, kind| Event { position, process, thread, kind };
    writer.event(event(0, EventKind::ProcessStart { parent: None }))?;
    writer.event(event(0, EventKind::ThreadStart { os_tid: 1 }))?;
    if !rows.len().is_multiple_of(ROW_BYTES) {
        let what = format!("{} bytes of accesses: each takes {ROW_BYTES}", rows.len());
        return Err(TraceError::usage(what));
    }
    let mut left = rows;
    for Positioned { position, event: change } in events {
        let until = position.checked_sub(writer.position()).map(|accesses| accesses as usize * ROW_BYTES);
        let Some((before, behind)) = until.and_then(|bytes| left.split_at_checked(bytes)) else {
            let all = rows.len() / ROW_BYTES;
            let what = format!(
                "an event at position {position} after one at {}: positions rise up to {all}, the number of accesses",
                writer.position()
            );
            return Err(TraceError::usage(what));
        };
        append(&mut writer, thread, before)?;
        left = behind;
        writer.event(event(position, change.into()))?;
    }
    append(&mut writer, thread, left)?;
    writer.finish()
}

fn append(writer: &mut TraceWriter, thread: ThreadIx, rows: &[u8]) -> Result<(), TraceError> {
    let mut accesses = Vec::with_capacity(4096);
    for row in rows.chunks_exact(ROW_BYTES) {
        let access = access(row).ok_or_else(|| {
            let number = writer.position() + accesses.len() as u64;
            let what = "the kind must be 0 (load), 1 (store), 2 (both) or 3 (fetch), and the last byte 0 or 1";
            TraceError::usage(format!("access {number}: {what}"))
        })?;
        accesses.push(access);
        if accesses.len() == accesses.capacity() {
            writer.append(thread, &accesses)?;
            accesses.clear();
        }
    }
    writer.append(thread, &accesses)
}

fn access(row: &[u8]) -> Option<Access> {
    let number = |from: usize| Some(u64::from_le_bytes(row.get(from..from + 8)?.try_into().ok()?));
    let gap = u32::from_le_bytes(row.get(16..20)?.try_into().ok()?);
    let size_bytes = u16::from_le_bytes(row.get(20..22)?.try_into().ok()?);
    let kind = AccessKind::from_code(*row.get(22)?)?;
    let by_kernel = *row.get(23)?;
    (by_kernel < 2).then_some(Access {
        vaddr: number(0)?,
        pc: number(8)?,
        gap,
        size_bytes,
        kind,
        maker: Maker::kernel_if(by_kernel == 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Segment, Source, TraceReader};

    fn row(vaddr: u64, gap: u32, size: u16, kind: u8, by_kernel: u8) -> Vec<u8> {
        [&vaddr.to_le_bytes()[..], &7u64.to_le_bytes(), &gap.to_le_bytes(), &size.to_le_bytes(), &[kind, by_kernel]]
            .concat()
    }

    fn facts(events: Vec<(u64, Change)>) -> Facts {
        let events = events.into_iter().map(|(position, event)| Positioned { position, event }).collect();
        Facts { command: vec!["touch".into()], notes: vec!["Of a machine.".into()], events }
    }

    fn mapped() -> Change {
        let flags = MapFlags::SHARED | MapFlags::RECORDED;
        Change::Mmap { addr: 0x1000, len: 0x2000, prot: 3, flags, file: Some("memory".into()), file_offset: 0x3000 }
    }

    #[test]
    fn rows_and_events_become_a_trace() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.trace");
        let rows = [row(0x1008, 3, 8, 1, 0), row(0x2000, 5, 4, 0, 1)].concat();
        let fault = Change::Fault { addr: 0x1008, write: true };
        write(&output, facts(vec![(0, fault), (1, mapped()), (2, mapped())]), &rows).unwrap();
        let mut reader = TraceReader::open(&output).unwrap();
        let meta = reader.meta().clone();
        let accesses = meta.accesses.unwrap();
        assert_eq!((accesses.loads, accesses.stores, accesses.by_kernel, accesses.instructions), (1, 1, 1, 8));
        assert!(meta.complete && !meta.mappings_inferred);
        let (mut batch, mut events) = (Batch::default(), Vec::new());
        while reader.next_batch(&mut batch).unwrap() {
            events.extend(batch.segments.iter().filter_map(|segment| match segment {
                Segment::Event(event) => Some((event.position, event.kind.clone())),
                Segment::Run { .. } => None,
            }));
        }
        let kinds: Vec<u64> = events.iter().map(|(position, _)| *position).collect();
        assert_eq!(kinds, [0, 0, 0, 1, 2]);
        assert_eq!(events[2].1, EventKind::Fault { addr: 0x1008, write: true });
        assert_eq!(events[3].1, mapped().into());
    }

    #[test]
    fn malformed_rows_are_refused_and_leave_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.trace");
        for rows in [row(0x1000, 1, 8, 4, 0), row(0x1000, 1, 8, 0, 2), vec![0; 25], row(0x1000, 1, 0, 0, 0)] {
            write(&output, facts(vec![(0, mapped())]), &rows).unwrap_err();
            assert!(!output.exists(), "{rows:?}");
        }
    }

    #[test]
    fn a_malformed_row_is_named_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        for number in [0, 1, 4095, 4096, 9000] {
            let mut rows = row(0x1000, 1, 8, 0, 0).repeat(number);
            rows.extend(row(0x1000, 1, 8, 4, 0));
            let error = write(&folder.path().join("a.trace"), facts(vec![(0, mapped())]), &rows).unwrap_err();
            assert!(error.to_string().contains(&format!("access {number}: the kind")), "{error}");
        }
    }

    #[test]
    fn events_out_of_order_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.trace");
        for (positions, which) in [([1, 0], "position 0 after one at 1"), ([1, 3], "position 3 after one at 1")] {
            let events = positions.map(|position| (position, mapped())).to_vec();
            let rows = [row(0x1000, 1, 8, 0, 0), row(0x1000, 1, 8, 0, 0)].concat();
            let error = write(&output, facts(events), &rows).unwrap_err().to_string();
            assert!(error.contains(which) && error.contains("up to 2"), "{error}");
        }
    }
}
