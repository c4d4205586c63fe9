//! Tables of call stacks: the context of each thread's accesses, the contexts, and names of generated code.
//!
//! | table | columns |
//! |---|---|
//! | `calls` | `position`, `thread`, `context`: from this access on, the thread's accesses are in this context |
//! | `contexts` | by number: `parent` (null of number 0), `process`, `file`, `offset` ([`Context`]) |
//! | `symbols` | `process`, `start`, `len`, `name` ([`GeneratedCode`]) |

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use parquet::{
    data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type},
    schema::{parser::parse_message_type, types::TypePtr},
};

use super::folder::{Folder, parts};
use super::part::{self, Part, Table};
use super::row_columns::{RowsReader, optional, required, set};
use crate::calls::{CallStacks, Context, GeneratedCode};
use crate::{Segment, ThreadIx, TraceError};

/// Maximum number of rows of a part.
const MAX_ROWS: usize = 1 << 20;

/// Estimated bytes per row of `calls` before the first part is written: three programs had 1.4 to 2.5.
const FIRST_BYTES_PER_CALL: f64 = 2.0;
/// Bytes per context; the same programs had 4.1 to 6.6.
const BYTES_PER_CONTEXT: u64 = 5;

static CALLS: LazyLock<TypePtr> = LazyLock::new(|| {
    schema(
        "message calls {
            REQUIRED INT64 position (INTEGER(64, false));
            REQUIRED INT32 thread (INTEGER(32, false));
            REQUIRED INT32 context (INTEGER(32, false));
        }",
    )
});
static CONTEXTS: LazyLock<TypePtr> = LazyLock::new(|| {
    schema(
        "message contexts {
            OPTIONAL INT32 parent (INTEGER(32, false));
            REQUIRED INT32 process (INTEGER(32, false));
            OPTIONAL BYTE_ARRAY file (STRING);
            REQUIRED INT64 offset (INTEGER(64, false));
        }",
    )
});
static SYMBOLS: LazyLock<TypePtr> = LazyLock::new(|| {
    schema(
        "message symbols {
            REQUIRED INT32 process (INTEGER(32, false));
            REQUIRED INT64 start (INTEGER(64, false));
            REQUIRED INT64 len (INTEGER(64, false));
            REQUIRED BYTE_ARRAY name (STRING);
        }",
    )
});

fn schema(text: &str) -> TypePtr {
    Arc::new(parse_message_type(text).expect("a valid schema"))
}

/// From access `position` of the trace on, accesses of the thread are in the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallRow {
    pub position: u64,
    pub thread: u32,
    pub context: u32,
}

/// Writes the tables; contexts and symbols at the end.
#[derive(Debug)]
pub(crate) struct CallsWriter {
    folder: PathBuf,
    rows: Vec<CallRow>,
    parts: usize,
    written: u64,
    written_bytes: u64,
}

impl CallsWriter {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), rows: Vec::new(), parts: 0, written: 0, written_bytes: 0 }
    }

    /// Appends a row, in order of position. If several rows are for the same access of a thread, the last one counts.
    #[inline]
    pub(crate) fn push(&mut self, row: CallRow) {
        match self.rows.last_mut() {
            Some(last) if (last.position, last.thread) == (row.position, row.thread) => last.context = row.context,
            _ => self.rows.push(row),
        }
    }

    /// Estimated size of the tables with all rows so far, and with this many contexts.
    pub(crate) fn estimated_bytes(&self, contexts: usize) -> u64 {
        let per_row =
            if self.written == 0 { FIRST_BYTES_PER_CALL } else { self.written_bytes as f64 / self.written as f64 };
        self.written_bytes + (self.rows.len() as f64 * per_row) as u64 + contexts as u64 * BYTES_PER_CONTEXT
    }

    /// Rows that are not yet written.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> &[CallRow] {
        &self.rows
    }

    /// Writes the parts that are full.
    #[inline]
    pub(crate) fn write_full_parts(&mut self) -> Result<(), TraceError> {
        while self.rows.len() >= MAX_ROWS {
            self.write_part(MAX_ROWS)?;
        }
        Ok(())
    }

    /// Writes the first `count` rows as a part.
    fn write_part(&mut self, count: usize) -> Result<(), TraceError> {
        let rows = &self.rows[..count];
        let encoded = part::encode(Vec::new(), &CALLS, self.written, count as u64, None, |group| {
            required::<Int64Type, _>(group, rows, |row| row.position as i64)?;
            required::<Int32Type, _>(group, rows, |row| row.thread as i32)?;
            required::<Int32Type, _>(group, rows, |row| row.context as i32)
        });
        let (content, facts) = encoded.map_err(|e| TraceError::cannot_encode(&self.folder, e))?;
        part::write_whole(&self.folder.join(Table::Calls.file_name(self.parts)), &content)?;
        self.parts += 1;
        self.written += facts.rows;
        self.written_bytes += content.len() as u64;
        self.rows.drain(..count);
        Ok(())
    }

    /// Writes the remaining rows and the other tables.
    pub(crate) fn finish(mut self, stacks: &CallStacks) -> Result<(), TraceError> {
        self.write_full_parts()?;
        if !self.rows.is_empty() {
            self.write_part(self.rows.len())?;
        }
        write_stacks(&self.folder, stacks)
    }
}

/// Writes contexts and symbols.
pub(super) fn write_stacks(folder: &Path, stacks: &CallStacks) -> Result<(), TraceError> {
    let contexts = stacks.contexts.as_slice();
    let text = |text: &Arc<str>| ByteArray::from(&**text);
    let encoded = part::encode(Vec::new(), &CONTEXTS, 0, contexts.len() as u64, None, |group| {
        optional::<Int32Type, _>(group, contexts, |row| row.parent.map(|parent| parent as i32))?;
        required::<Int32Type, _>(group, contexts, |row| row.process as i32)?;
        optional::<ByteArrayType, _>(group, contexts, |row| row.file.as_ref().map(text))?;
        required::<Int64Type, _>(group, contexts, |row| row.offset as i64)
    });
    let (content, _) = encoded.map_err(|e| TraceError::cannot_encode(folder, e))?;
    part::write_whole(&folder.join(Table::Contexts.file_name(0)), &content)?;
    if stacks.generated.is_empty() {
        return Ok(());
    }
    let symbols = stacks.generated.as_slice();
    let encoded = part::encode(Vec::new(), &SYMBOLS, 0, symbols.len() as u64, None, |group| {
        required::<Int32Type, _>(group, symbols, |row| row.process as i32)?;
        required::<Int64Type, _>(group, symbols, |row| row.start as i64)?;
        required::<Int64Type, _>(group, symbols, |row| row.len as i64)?;
        required::<ByteArrayType, _>(group, symbols, |row| text(&row.name))
    });
    let (content, _) = encoded.map_err(|e| TraceError::cannot_encode(folder, e))?;
    part::write_whole(&folder.join(Table::Symbols.file_name(0)), &content)
}

/// Bytes of the tables of call stacks in a trace's folder; 0 if there are none.
pub(super) fn size_bytes(folder: &Path) -> Result<u64, TraceError> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(|e| TraceError::io(folder, e))? {
        let entry = entry.map_err(|e| TraceError::io(folder, e))?;
        let name = entry.file_name();
        let is_part = |table: Table| name.to_str().and_then(|name| table.index_of(name)).is_some();
        if [Table::Calls, Table::Contexts, Table::Symbols].into_iter().any(is_part) {
            bytes += entry.metadata().map_err(|e| TraceError::io(entry.path(), e))?.len();
        }
    }
    Ok(bytes)
}

/// The parts of the table of calls.
pub(super) fn parts_of_calls(folder: &Folder) -> Result<Vec<Part>, TraceError> {
    Ok(parts(&folder.path, Table::Calls, &CALLS)?.0)
}

/// Writes a part of the table of calls to another folder.
pub(super) fn copy_calls(part: &Part, index: usize, new: &Path) -> Result<(), TraceError> {
    let (content, _) = part.read(&CALLS)?;
    part::write_whole(&new.join(Table::Calls.file_name(index)), &content)
}

/// The contexts and symbols of a trace; none if it has none, or if its recording ended before they were written.
pub(super) fn read_stacks(folder: &Folder) -> Result<Option<CallStacks>, TraceError> {
    if !folder.meta.call_stacks {
        return Ok(None);
    }
    let (found, _) = parts(&folder.path, Table::Contexts, &CONTEXTS)?;
    let Some(part) = found.first() else {
        if folder.meta.complete {
            let what = format!("{} is missing", Table::Contexts.file_name(0));
            return Err(TraceError::corrupt(&folder.path, what));
        }
        return Ok(None);
    };
    let contexts = read_contexts(part).map_err(|what| part.corrupt(what))?;
    let mut generated = Vec::new();
    for part in parts(&folder.path, Table::Symbols, &SYMBOLS)?.0 {
        generated.extend(read_symbols(&part)?.map_err(|what| part.corrupt(what))?);
    }
    Ok(Some(CallStacks { contexts, generated }))
}

fn read_contexts(part: &Part) -> Result<Vec<Context>, String> {
    let (content, _) = part.read(&CONTEXTS).map_err(|e| e.to_string())?;
    let none = Context { parent: None, process: 0, file: None, offset: 0 };
    let mut rows = vec![none; part.facts.rows as usize];
    let mut reader = RowsReader::new(content, &mut rows)?;
    reader.column::<Int32Type>(|row, v| set(&mut row.parent, Some(*v as u32)))?;
    reader.column::<Int32Type>(|row, v| set(&mut row.process, *v as u32))?;
    // Many calls are in few files.
    let mut files: HashMap<Vec<u8>, Arc<str>> = HashMap::new();
    reader.column::<ByteArrayType>(|row, v| {
        let known = files.get(v.data()).cloned();
        let file = known.map_or_else(|| text(v), Ok)?;
        files.entry(v.data().to_vec()).or_insert_with(|| Arc::clone(&file));
        set(&mut row.file, Some(file))
    })?;
    reader.column::<Int64Type>(|row, v| set(&mut row.offset, *v as u64))?;
    for (number, row) in rows.iter().enumerate() {
        match row.parent {
            None if number > 0 => return Err(format!("row {number}: a context without a parent")),
            Some(parent) if parent as usize >= number => {
                return Err(format!("row {number}: its parent {parent} does not come before it"));
            }
            _ => {}
        }
    }
    if rows.is_empty() { Err("no context, not even the first".to_owned()) } else { Ok(rows) }
}

fn read_symbols(part: &Part) -> Result<Result<Vec<GeneratedCode>, String>, TraceError> {
    let (content, _) = part.read(&SYMBOLS)?;
    let none = GeneratedCode { process: 0, start: 0, len: 0, name: "".into() };
    let mut rows = vec![none; part.facts.rows as usize];
    let read = || {
        let mut reader = RowsReader::new(content, &mut rows)?;
        reader.column::<Int32Type>(|row, v| set(&mut row.process, *v as u32))?;
        reader.column::<Int64Type>(|row, v| set(&mut row.start, *v as u64))?;
        reader.column::<Int64Type>(|row, v| set(&mut row.len, *v as u64))?;
        reader.column::<ByteArrayType>(|row, v| set(&mut row.name, text(v)?))
    };
    let read = read();
    rows.sort_by_key(|row| (row.process, row.start));
    Ok(read.map(|()| rows))
}

fn text(bytes: &ByteArray) -> Result<Arc<str>, String> {
    std::str::from_utf8(bytes.data()).map(Arc::from).map_err(|e| e.to_string())
}

/// Provides the context of each access, batch by batch.
pub(super) struct CallsReader {
    parts: VecDeque<Part>,
    loaded: VecDeque<CallRow>,
    last_position: u64,
    contexts: u32,
    /// By thread, the context of its next access.
    current: Vec<u32>,
}

impl CallsReader {
    /// For a trace with this many contexts.
    pub(super) fn new(folder: &Folder, contexts: usize) -> Result<Self, TraceError> {
        let (parts, loaded, current) = (parts_of_calls(folder)?.into(), VecDeque::new(), Vec::new());
        Ok(Self { parts, loaded, last_position: 0, contexts: contexts as u32, current })
    }

    /// Sets `into` to the contexts of a batch's accesses; the first of them is number `position` in the trace.
    pub(super) fn fill(&mut self, position: u64, segments: &[Segment], into: &mut Vec<u32>) -> Result<(), TraceError> {
        into.clear();
        for segment in segments {
            let Segment::Run { thread, end } = *segment else { continue };
            while into.len() < end {
                let at = position + into.len() as u64;
                while let Some(row) = self.next_until(at)? {
                    let thread = row.thread as usize;
                    if thread >= self.current.len() {
                        self.current.resize(thread + 1, 0);
                    }
                    self.current[thread] = row.context;
                }
                let next = self.loaded.front().map_or(u64::MAX, |row| row.position);
                let until = end.min(usize::try_from(next - position).unwrap_or(usize::MAX));
                into.resize(until, self.context_of(thread));
            }
        }
        Ok(())
    }

    fn context_of(&self, thread: ThreadIx) -> u32 {
        self.current.get(thread.0 as usize).copied().unwrap_or(0)
    }

    /// Returns the next row if it applies to access `at` or an earlier one.
    fn next_until(&mut self, at: u64) -> Result<Option<CallRow>, TraceError> {
        while self.loaded.is_empty() {
            let Some(part) = self.parts.pop_front() else { return Ok(None) };
            self.load(&part)?;
        }
        if self.loaded.front().is_none_or(|row| row.position > at) { Ok(None) } else { Ok(self.loaded.pop_front()) }
    }

    fn load(&mut self, part: &Part) -> Result<(), TraceError> {
        if part.facts.rows > MAX_ROWS as u64 {
            return Err(part.corrupt(format!("{} rows, more than {MAX_ROWS}", part.facts.rows)));
        }
        let (content, _) = part.read(&CALLS)?;
        let mut rows = vec![CallRow::default(); part.facts.rows as usize];
        let read = (|| {
            let mut reader = RowsReader::new(content, &mut rows)?;
            reader.column::<Int64Type>(|row, v| set(&mut row.position, *v as u64))?;
            reader.column::<Int32Type>(|row, v| set(&mut row.thread, *v as u32))?;
            reader.column::<Int32Type>(|row, v| set(&mut row.context, *v as u32))
        })();
        read.map_err(|what| part.corrupt(what))?;
        for (number, row) in rows.iter().enumerate() {
            let wrong = if row.position < self.last_position {
                format!("position {} after {}", row.position, self.last_position)
            } else if row.context >= self.contexts {
                format!("context {} of {}", row.context, self.contexts)
            } else if row.thread > MAX_THREADS {
                format!("thread {}", row.thread)
            } else {
                self.last_position = row.position;
                continue;
            };
            return Err(part.corrupt(format!("row {number}: {wrong}")));
        }
        self.loaded = rows.into();
        Ok(())
    }
}

/// A higher number is a damaged row, which must not allocate memory.
const MAX_THREADS: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_part_is_not_full() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = CallsWriter::new(folder.path());
        for position in 0..MAX_ROWS as u64 + 5 {
            writer.push(CallRow { position, thread: 0, context: 0 });
        }
        writer.write_full_parts().unwrap();
        assert_eq!((writer.parts, writer.rows().len()), (1, 5));
        let written = size_bytes(folder.path()).unwrap();
        // The five rows take less space than a part.
        assert!(written > 0 && (written..written + 100).contains(&writer.estimated_bytes(0)), "{written} bytes");
        writer.push(CallRow { position: MAX_ROWS as u64 + 5, thread: 0, context: 0 });
        let root = Context { parent: None, process: 0, file: None, offset: 0 };
        writer.finish(&CallStacks { contexts: vec![root], generated: Vec::new() }).unwrap();
        let (parts, _) = parts(folder.path(), Table::Calls, &CALLS).unwrap();
        assert_eq!(parts.iter().map(|part| part.facts.rows).collect::<Vec<_>>(), [MAX_ROWS as u64, 6]);
    }
}
