//! Parts of events, written and read with the parquet crate's own columns, since there are few events.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use parquet::{
    data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type},
    errors::Result as ParquetResult,
    schema::{parser::parse_message_type, types::TypePtr},
};

use super::{
    EventRow,
    part::{self, Part, PartFacts},
    row_columns::{RowsReader, optional, required, set},
};
use crate::{Event, TraceError};

/// Maximum number of events in a part.
pub(super) const MAX_ROWS: usize = 1 << 16;

pub(super) static SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| {
    let text = "message events {
        REQUIRED INT64 position (INTEGER(64, false));
        REQUIRED INT32 process (INTEGER(32, false));
        REQUIRED INT32 thread (INTEGER(32, false));
        REQUIRED BYTE_ARRAY kind (STRING);
        OPTIONAL INT64 addr (INTEGER(64, false));
        OPTIONAL INT64 len (INTEGER(64, false));
        OPTIONAL INT64 old_addr (INTEGER(64, false));
        OPTIONAL INT64 old_len (INTEGER(64, false));
        OPTIONAL INT32 prot (INTEGER(32, false));
        OPTIONAL INT32 flags (INTEGER(32, false));
        OPTIONAL BYTE_ARRAY file (STRING);
        OPTIONAL INT64 file_offset (INTEGER(64, false));
        OPTIONAL INT32 other_process (INTEGER(32, false));
        OPTIONAL INT64 argument;
    }";
    Arc::new(parse_message_type(text).expect("a valid schema"))
});

/// The part with `events`; `first_row` events of the trace come before them.
pub(super) fn encode(events: &[Event], first_row: u64) -> ParquetResult<(Vec<u8>, PartFacts)> {
    let rows: Vec<EventRow> = events.iter().map(EventRow::from).collect();
    let all = rows.as_slice();
    part::encode(Vec::new(), &SCHEMA, first_row, rows.len() as u64, None, |group| {
        required::<Int64Type, _>(group, all, |r| r.position as i64)?;
        required::<Int32Type, _>(group, all, |r| r.process as i32)?;
        required::<Int32Type, _>(group, all, |r| r.thread as i32)?;
        required::<ByteArrayType, _>(group, all, |r| ByteArray::from(r.kind))?;
        optional::<Int64Type, _>(group, all, |r| r.addr.map(|v| v as i64))?;
        optional::<Int64Type, _>(group, all, |r| r.len.map(|v| v as i64))?;
        optional::<Int64Type, _>(group, all, |r| r.old_addr.map(|v| v as i64))?;
        optional::<Int64Type, _>(group, all, |r| r.old_len.map(|v| v as i64))?;
        optional::<Int32Type, _>(group, all, |r| r.prot.map(|v| v as i32))?;
        optional::<Int32Type, _>(group, all, |r| r.flags.map(|v| v as i32))?;
        optional::<ByteArrayType, _>(group, all, |r| r.file.as_deref().map(ByteArray::from))?;
        optional::<Int64Type, _>(group, all, |r| r.file_offset.map(|v| v as i64))?;
        optional::<Int32Type, _>(group, all, |r| r.other_process.map(|v| v as i32))?;
        optional::<Int64Type, _>(group, all, |r| r.argument)
    })
}

/// All events of a part.
pub(super) fn decode(part: &Part) -> Result<Vec<Event>, TraceError> {
    if part.facts.rows > MAX_ROWS as u64 {
        return Err(part.corrupt(format!("{} rows, more than {MAX_ROWS}", part.facts.rows)));
    }
    let (content, _) = part.read(&SCHEMA)?;
    let rows = read_rows(content, part.facts.rows as usize).map_err(|what| part.corrupt(what))?;
    rows.into_iter()
        .enumerate()
        .map(|(row, event)| event.into_event().map_err(|what| part.corrupt(format!("row {row}: {what}"))))
        .collect()
}

fn read_rows(content: Bytes, count: usize) -> Result<Vec<EventRow>, String> {
    let mut rows = vec![EventRow::default(); count];
    let mut reader = RowsReader::new(content, &mut rows)?;
    reader.column::<Int64Type>(|row, v| set(&mut row.position, *v as u64))?;
    reader.column::<Int32Type>(|row, v| set(&mut row.process, *v as u32))?;
    reader.column::<Int32Type>(|row, v| set(&mut row.thread, *v as u32))?;
    reader.column::<ByteArrayType>(|row, v| {
        let unknown = || format!("unknown kind {:?}", String::from_utf8_lossy(v.data()));
        EventRow::known_kind(v.data()).map(|kind| row.kind = kind).ok_or_else(unknown)
    })?;
    reader.column::<Int64Type>(|row, v| set(&mut row.addr, Some(*v as u64)))?;
    reader.column::<Int64Type>(|row, v| set(&mut row.len, Some(*v as u64)))?;
    reader.column::<Int64Type>(|row, v| set(&mut row.old_addr, Some(*v as u64)))?;
    reader.column::<Int64Type>(|row, v| set(&mut row.old_len, Some(*v as u64)))?;
    reader.column::<Int32Type>(|row, v| set(&mut row.prot, Some(*v as u32)))?;
    reader.column::<Int32Type>(|row, v| set(&mut row.flags, Some(*v as u32)))?;
    reader.column::<ByteArrayType>(|row, v| {
        let file = std::str::from_utf8(v.data()).map_err(|e| e.to_string())?;
        set(&mut row.file, Some(Arc::from(file)))
    })?;
    reader.column::<Int64Type>(|row, v| set(&mut row.file_offset, Some(*v as u64)))?;
    reader.column::<Int32Type>(|row, v| set(&mut row.other_process, Some(*v as u32)))?;
    reader.column::<Int64Type>(|row, v| set(&mut row.argument, Some(*v)))?;
    Ok(rows)
}
