//! Traces of one thread whose accesses and mappings somebody else has put together.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    Access, AccessKind, Event, EventKind, MapFlags, ProcessIx, Protection, ThreadIx, TraceError, TraceMeta,
    TraceWriter, format::TraceSummary,
};

/// Bytes of an access in [`write()`]: address (8), pc (8), gap (4), size (2), kind (1), by the kernel (1); little-endian.
pub const ROW_BYTES: usize = 24;

/// What a trace says of itself, and its mappings.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// What was recorded.
    pub command: Vec<String>,
    /// Sentences for who reads results.
    pub notes: Vec<String>,
    /// All anonymous and private, readable and writable, from the start.
    pub mappings: Vec<Extent>,
}

/// A mapping.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extent {
    pub addr: u64,
    pub len: u64,
    /// Bits of mmap(2) besides MAP_PRIVATE and MAP_ANONYMOUS.
    pub flags: u32,
}

/// Writes a trace of these accesses.
///
/// # Errors
/// [`TraceError::Usage`] for an output that exists, and for rows that are no accesses; [`TraceError::Io`]. After an error
/// nothing is left at `output`.
pub fn write(output: &Path, facts: Facts, rows: &[u8]) -> Result<PathBuf, TraceError> {
    let mut meta = TraceMeta::new(facts.command);
    meta.mappings_inferred = true;
    meta.notes = facts.notes;
    let writer = TraceWriter::create(output, meta)?;
    let written = fill(writer, &facts.mappings, rows);
    if written.is_err() {
        // Only what the writer made is removed: it refuses a folder that is not empty.
        let _ = std::fs::remove_dir_all(output);
    }
    Ok(written?.path)
}

fn fill(mut writer: TraceWriter, mappings: &[Extent], rows: &[u8]) -> Result<TraceSummary, TraceError> {
    let (process, thread) = (ProcessIx(0), ThreadIx(0));
    let mut event = |kind| writer.event(Event { position: 0, process, thread, kind });
    event(EventKind::ProcessStart { parent: None })?;
    event(EventKind::ThreadStart { os_tid: 1 })?;
    for &Extent { addr, len, flags } in mappings {
        let (prot, flags) = (Protection::READ_WRITE, MapFlags(MapFlags::anonymous_private().0 | flags));
        event(EventKind::Mmap { addr, len, prot, flags, file: None, file_offset: 0 })?;
    }
    let all = rows.chunks_exact(ROW_BYTES);
    if !all.remainder().is_empty() {
        let what = format!("{} bytes of accesses: each takes {ROW_BYTES}", rows.len());
        return Err(TraceError::usage(what));
    }
    let mut accesses = Vec::with_capacity(4096);
    for (number, row) in all.enumerate() {
        let access = access(row).ok_or_else(|| {
            let what = "the kind must be 0 (load), 1 (store), 2 (both) or 3 (fetch), and the last byte 0 or 1";
            TraceError::usage(format!("access {number}: {what}"))
        })?;
        accesses.push(access);
        if accesses.len() == accesses.capacity() {
            writer.append(thread, &accesses)?;
            accesses.clear();
        }
    }
    writer.append(thread, &accesses)?;
    writer.finish()
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
        by_kernel: by_kernel == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceReader;

    fn row(vaddr: u64, gap: u32, size: u16, kind: u8, by_kernel: u8) -> Vec<u8> {
        [&vaddr.to_le_bytes()[..], &7u64.to_le_bytes(), &gap.to_le_bytes(), &size.to_le_bytes(), &[kind, by_kernel]]
            .concat()
    }

    fn facts() -> Facts {
        let mappings = vec![Extent { addr: 0x1000, len: 0x2000, flags: MapFlags::POPULATE }];
        Facts { command: vec!["touch".into()], notes: vec!["Of a machine.".into()], mappings }
    }

    #[test]
    fn rows_become_accesses() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.trace");
        let rows = [row(0x1008, 3, 8, 1, 0), row(0x2000, 5, 4, 0, 1)].concat();
        write(&output, facts(), &rows).unwrap();
        let meta = TraceReader::open(&output).unwrap().meta().clone();
        let accesses = meta.accesses.unwrap();
        assert_eq!((accesses.loads, accesses.stores, accesses.by_kernel, accesses.instructions), (1, 1, 1, 8));
        assert!(meta.complete && meta.mappings_inferred);
    }

    #[test]
    fn what_is_no_row_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.trace");
        for rows in [row(0x1000, 1, 8, 4, 0), row(0x1000, 1, 8, 0, 2), vec![0; 25], row(0x1000, 1, 0, 0, 0)] {
            write(&output, facts(), &rows).unwrap_err();
            assert!(!output.exists(), "{rows:?}");
        }
    }
}
