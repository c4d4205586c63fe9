//! Reading a fault trace.

use std::{
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use pagelab_trace::{TraceError, library_panics::as_errors};
use parquet::{
    column::reader::ColumnReader,
    errors::ParquetError,
    file::{
        metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader},
        reader::FileReader,
        serialized_reader::SerializedFileReader,
    },
};
use xxhash_rust::xxh3::Xxh3;

use super::{
    FACTS_KEY, Facts, GROUP_ROWS,
    columns::{Columns, NARROW, SCHEMA, WIDE},
};
use crate::{Fault, FaultTraceInfo};

/// Reads a fault trace row group by row group.
pub struct FaultTraceReader {
    path: PathBuf,
    file: SerializedFileReader<File>,
    info: FaultTraceInfo,
    next_group: usize,
    columns: Columns,
    last_ns: u64,
}

impl FaultTraceReader {
    /// True if the file at `path` begins like a Parquet file.
    pub fn recognises(path: &Path) -> bool {
        let mut magic = [0; 4];
        File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"PAR1"
    }

    /// Opens the trace at `path` and checks that it is complete.
    ///
    /// # Errors
    /// [`TraceError::Io`]; [`TraceError::Corrupt`] if it is not a fault trace, or damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref().to_path_buf();
        let to_error = |e| TraceError::io(&path, e);
        let mut file = File::open(&path).map_err(to_error)?;
        if file.metadata().map_err(to_error)?.is_dir() {
            return Err(TraceError::corrupt(&path, "a folder; a fault trace is a file"));
        }
        if !Self::recognises(&path) {
            let what = "not a fault trace, which is a Parquet file. `pagelab model` also reads text of perf and ftrace";
            return Err(TraceError::corrupt(&path, what));
        }
        let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Skip);
        let metadata = as_errors(|| reader.parse_and_finish(&file))
            .map_err(|e| TraceError::corrupt(&path, format!("not a whole Parquet file: {e}")))?;
        let facts = facts(&metadata).map_err(|what| TraceError::corrupt(&path, what))?;
        let (hash, data_bytes) = hash(&mut file).map_err(to_error)?;
        if hash != facts.hash {
            return Err(TraceError::corrupt(&path, "damaged: its bytes differ from the hash in its footer"));
        }
        columns_inside(&metadata, data_bytes).map_err(|what| TraceError::corrupt(&path, what))?;
        let file = as_errors(|| SerializedFileReader::new(file))
            .map_err(|e| TraceError::corrupt(&path, format!("not a whole Parquet file: {e}")))?;
        Ok(Self { path, file, info: facts.info, next_group: 0, columns: Columns::default(), last_ns: 0 })
    }

    /// The trace's information about itself.
    pub fn info(&self) -> &FaultTraceInfo {
        &self.info
    }

    /// Replaces the content of `faults` by the next faults. Returns false if there are none.
    ///
    /// # Errors
    /// [`TraceError::Corrupt`] with the fault and what is wrong with it.
    pub fn next(&mut self, faults: &mut Vec<Fault>) -> Result<bool, TraceError> {
        faults.clear();
        if self.next_group == self.file.num_row_groups() {
            return Ok(false);
        }
        let corrupt = |what: String| TraceError::corrupt(&self.path, what);
        let group = self.file.get_row_group(self.next_group).map_err(|e| corrupt(e.to_string()))?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
        self.columns.clear();
        for place in 0..SCHEMA.get_fields().len() {
            let name = SCHEMA.get_fields()[place].name();
            let columns = &mut self.columns;
            let read = as_errors(|| read_column(group.get_column_reader(place)?, place, rows, columns));
            let read = read.map_err(|e| corrupt(format!("column {name}: {e}")))?;
            if read != rows {
                return Err(corrupt(format!("column {name} has {read} of {rows} rows")));
            }
        }
        for row in 0..rows {
            let fault = self.columns.fault(row).ok_or_else(|| corrupt("a core or kind that there is not".into()))?;
            if u32::from(fault.core) >= self.info.cores {
                return Err(corrupt(format!("a fault on core {} of {} cores", fault.core, self.info.cores)));
            }
            if fault.time_ns < self.last_ns || fault.time_ns > self.info.duration_ns {
                return Err(corrupt(format!("a fault at {} ns is not in the order of time", fault.time_ns)));
            }
            self.last_ns = fault.time_ns;
            faults.push(fault);
        }
        self.next_group += 1;
        Ok(true)
    }
}

fn read_column(reader: ColumnReader, place: usize, rows: usize, columns: &mut Columns) -> Result<usize, ParquetError> {
    match reader {
        ColumnReader::Int64ColumnReader(mut reader) => {
            let wide = WIDE.iter().position(|&at| at == place).expect("the schema was checked");
            reader.read_records(rows, None, None, &mut columns.wide[wide]).map(|(records, _, _)| records)
        }
        ColumnReader::Int32ColumnReader(mut reader) => {
            let narrow = NARROW.iter().position(|&at| at == place).expect("the schema was checked");
            reader.read_records(rows, None, None, &mut columns.narrow[narrow]).map(|(records, _, _)| records)
        }
        _ => Err(ParquetError::General("not of whole numbers".to_owned())),
    }
}

/// The facts in the footer; on error, what is wrong.
fn facts(metadata: &ParquetMetaData) -> Result<Facts, String> {
    let footer = metadata.file_metadata();
    let json = footer
        .key_value_metadata()
        .and_then(|all| all.iter().find(|kv| kv.key == FACTS_KEY))
        .and_then(|kv| kv.value.as_deref())
        .ok_or_else(|| format!("its footer has no key {FACTS_KEY:?}: not a fault trace of pagelab"))?;
    let facts: Facts = serde_json::from_str(json).map_err(|e| format!("key {FACTS_KEY:?} of its footer: {e}"))?;
    if let Some(what) = facts.info.refusal() {
        return Err(what);
    }
    if footer.schema() != SCHEMA.as_ref() {
        return Err("its columns are not those of a fault trace".to_owned());
    }
    let mut rows = 0_u64;
    for group in metadata.row_groups() {
        let in_group = usize::try_from(group.num_rows()).ok().filter(|&rows| rows <= GROUP_ROWS);
        let in_group = in_group.ok_or_else(|| format!("a row group of {} rows", group.num_rows()))?;
        if group.num_columns() != SCHEMA.get_fields().len() {
            return Err(format!("a row group of {} columns", group.num_columns()));
        }
        rows += in_group as u64;
    }
    if rows != facts.info.faults {
        return Err(format!("it has {rows} faults, expected {}", facts.info.faults));
    }
    Ok(facts)
}

/// The hash of all bytes before the footer, and their number. The footer has been parsed already, so it exists.
fn hash(file: &mut File) -> std::io::Result<(String, u64)> {
    let len = file.seek(SeekFrom::End(-8))?;
    let mut footer_bytes = [0; 4];
    file.read_exact(&mut footer_bytes)?;
    let data_bytes = len.saturating_sub(u64::from(u32::from_le_bytes(footer_bytes)));
    file.seek(SeekFrom::Start(0))?;
    let mut hash = Xxh3::new();
    let mut reader = BufReader::new(file).take(data_bytes);
    let mut buffer = vec![0; 1 << 18];
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            return Ok((format!("{:032x}", hash.digest128()), data_bytes));
        }
        hash.update(&buffer[..read]);
    }
}

/// Checked here because the parquet crate's own accessor panics on negative numbers.
fn columns_inside(metadata: &ParquetMetaData, data_bytes: u64) -> Result<(), String> {
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let end = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
        let end = end.and_then(|(start, len)| start.checked_add(len));
        if end.is_none_or(|end| end > data_bytes) {
            return Err(format!("column {} lies outside the file", column.column_path()));
        }
    }
    Ok(())
}
