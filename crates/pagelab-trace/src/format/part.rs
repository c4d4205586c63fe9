//! Parts: the Parquet files of a trace, written completely or not at all, each with its position and hash in the
//! footer.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use parquet::{
    file::{
        metadata::{KeyValue, PageIndexPolicy, ParquetMetaDataReader, RowGroupMetaData},
        properties::{EnabledStatistics, WriterProperties},
        reader::ChunkReader,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::types::TypePtr,
};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::{FORMAT_VERSION, meta::AccessCounts};
use crate::{TraceError, library_panics::as_errors};

/// Key of [`PartFacts`] in the Parquet footer.
const FACTS_KEY: &str = "pagelab";

/// The table of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Accesses,
    Events,
    Calls,
    Contexts,
    Symbols,
}

impl Table {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Accesses => "accesses",
            Self::Events => "events",
            Self::Calls => "calls",
            Self::Contexts => "contexts",
            Self::Symbols => "symbols",
        }
    }

    pub(super) fn file_name(self, index: usize) -> String {
        format!("{}-{index:06}.parquet", self.name())
    }

    /// The number in the name of a part of this table; none for other files.
    pub(super) fn index_of(self, file_name: &str) -> Option<usize> {
        let digits = file_name.strip_prefix(self.name())?.strip_prefix('-')?.strip_suffix(".parquet")?;
        let index = digits.parse().ok()?;
        (self.file_name(index) == file_name).then_some(index)
    }
}

/// Facts about a part, stored as JSON in its footer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartFacts {
    pub version: u32,
    /// Number of the table's rows in the parts before this one.
    pub first_row: u64,
    pub rows: u64,
    /// Hash of all bytes before the footer: 128-bit xxh3 in hexadecimal.
    pub hash: String,
    /// For parts of accesses only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<AccessCounts>,
}

/// Encodes a part with one row group, which `fill` writes; returns its bytes, in the memory of `into`, and its facts.
pub(super) fn encode(
    mut into: Vec<u8>,
    schema: &TypePtr,
    first_row: u64,
    rows: u64,
    counts: Option<AccessCounts>,
    fill: impl FnOnce(&mut SerializedRowGroupWriter<'_, Vec<u8>>) -> parquet::errors::Result<()>,
) -> parquet::errors::Result<(Vec<u8>, PartFacts)> {
    let properties = WriterProperties::builder()
        .set_created_by(format!("pagelab {}", env!("CARGO_PKG_VERSION")))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_compression(super::columns::compression())
        .build();
    into.clear();
    let mut file = SerializedFileWriter::new(into, schema.clone(), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    fill(&mut group)?;
    group.close()?;
    file.flush()?;
    let facts = PartFacts {
        version: FORMAT_VERSION,
        first_row,
        rows,
        hash: format!("{:032x}", xxh3_128(file.inner())),
        counts,
    };
    let json = serde_json::to_string(&facts).expect("plain data with text keys");
    file.append_key_value_metadata(KeyValue::new(FACTS_KEY.to_owned(), json));
    Ok((file.into_inner()?, facts))
}

/// Hash that identifies a trace: computed from the hashes of its parts.
#[derive(Clone, Default)]
pub(super) struct ContentHash(Xxh3);

impl ContentHash {
    pub(super) fn add(&mut self, facts: &PartFacts) {
        self.0.update(facts.hash.as_bytes());
    }

    /// Hash of `accesses`, then `events`, so that the order in which the parts were written does not matter.
    pub(super) fn combine(accesses: &Self, events: &Self) -> String {
        let mut both = Xxh3::new();
        both.update(&accesses.0.digest128().to_le_bytes());
        both.update(&events.0.digest128().to_le_bytes());
        format!("xxh3-128:{:032x}", both.digest128())
    }
}

/// Writes a file so that it gets its name only when it is complete.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), TraceError> {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path)).map_err(|e| {
        // A partial file is of no use; it would only occupy a disk that may be full.
        let _ = fs::remove_file(&temporary);
        TraceError::io(path, e)
    })
}

/// A part found in a folder, whose footer was read and checked.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub path: PathBuf,
    pub facts: PartFacts,
    pub size_bytes: u64,
}

impl Part {
    /// Reads the footer of the part at `path`, which must have `schema`.
    pub(super) fn open(path: PathBuf, schema: &TypePtr) -> Result<Self, TraceError> {
        let file = fs::File::open(&path).map_err(|e| TraceError::io(&path, e))?;
        let size_bytes = file.metadata().map_err(|e| TraceError::io(&path, e))?.len();
        let (facts, _) = footer(&file, schema).map_err(|what| TraceError::corrupt(&path, what))?;
        Ok(Self { path, facts, size_bytes })
    }

    /// The whole file after checking its hash, and its row group, whose columns lie within the file.
    pub(super) fn read(&self, schema: &TypePtr) -> Result<(Bytes, RowGroupMetaData), TraceError> {
        let content = Bytes::from(fs::read(&self.path).map_err(|e| TraceError::io(&self.path, e))?);
        let (facts, group) = footer(&content, schema).map_err(|what| self.corrupt(what))?;
        if facts != self.facts {
            return Err(self.corrupt("changed since the trace was opened"));
        }
        // The footer ends with its own length (4 bytes, little-endian) and the magic; it has been parsed, so both
        // exist.
        let tail = content.len() - 8;
        let footer_bytes = u32::from_le_bytes(content[tail..tail + 4].try_into().expect("4 bytes")) as usize;
        let data = &content[..tail - footer_bytes];
        // Fuzzing must get past the hash to reach the decoder.
        if !cfg!(fuzzing) && format!("{:032x}", xxh3_128(data)) != facts.hash {
            return Err(self.corrupt("damaged: its bytes differ from the hash in its footer"));
        }
        for column in group.columns() {
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            // Checked here because the parquet crate's own accessor panics on negative numbers.
            let end = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
            let end = end.and_then(|(start, len)| start.checked_add(len));
            if end.is_none_or(|end| end > data.len() as u64) {
                return Err(self.corrupt(format!("column {} lies outside the file", column.column_path())));
            }
        }
        Ok((content, group))
    }

    pub(super) fn corrupt(&self, what: impl Into<String>) -> TraceError {
        TraceError::corrupt(&self.path, what)
    }
}

/// The facts and the only row group of a part; on error, what is wrong.
fn footer<R: ChunkReader>(file: &R, schema: &TypePtr) -> Result<(PartFacts, RowGroupMetaData), String> {
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Skip);
    let metadata = as_errors(|| reader.parse_and_finish(file)).map_err(|e| format!("not a whole Parquet file: {e}"))?;
    let footer = metadata.file_metadata();
    let json = footer
        .key_value_metadata()
        .and_then(|all| all.iter().find(|kv| kv.key == FACTS_KEY))
        .and_then(|kv| kv.value.as_deref())
        .ok_or_else(|| format!("its footer has no key {FACTS_KEY:?}: not written by pagelab"))?;
    let facts: PartFacts = serde_json::from_str(json).map_err(|e| format!("key {FACTS_KEY:?} of its footer: {e}"))?;
    if facts.version != FORMAT_VERSION {
        return Err(format!("format version {}, expected {FORMAT_VERSION}", facts.version));
    }
    if footer.schema() != schema.as_ref() {
        return Err(format!("its columns are not those of {}", schema.name()));
    }
    let [group] = metadata.row_groups() else {
        return Err(format!("{} row groups, expected 1", metadata.num_row_groups()));
    };
    if u64::try_from(group.num_rows()).ok() != Some(facts.rows) || group.num_columns() != schema.get_fields().len() {
        return Err(format!("a row group of {} rows, expected {}", group.num_rows(), facts.rows));
    }
    Ok((facts, group.clone()))
}
