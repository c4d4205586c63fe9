//! Writing a fault trace.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use pagelab_trace::TraceError;
use parquet::{
    basic::{Compression, Encoding, ZstdLevel},
    data_type::{Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::types::ColumnPath,
};
use xxhash_rust::xxh3::Xxh3;

use super::{
    FACTS_KEY, Facts, GROUP_ROWS,
    columns::{Columns, NARROW, SCHEMA, WIDE},
};
use crate::{Fault, FaultTraceInfo};

const ZSTD_LEVEL: i32 = 3;

/// Writes a fault trace, which gets its name when it is [finished](Self::finish). If dropped earlier, it leaves no
/// file.
pub struct FaultTraceWriter {
    path: PathBuf,
    temporary: PathBuf,
    /// None once finished.
    file: Option<SerializedFileWriter<Hashing<BufWriter<File>>>>,
    columns: Columns,
    /// One more than the highest core of a fault.
    cores: u32,
    last_ns: u64,
    faults: u64,
    threads: HashSet<u32>,
    processes: HashSet<u32>,
}

impl FaultTraceWriter {
    /// Begins a trace.
    ///
    /// # Errors
    /// [`TraceError::Usage`] if `path` exists; [`TraceError::Io`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref().to_path_buf();
        if path.symlink_metadata().is_ok() {
            return Err(TraceError::usage(format!("{}: exists; name another output", path.display())));
        }
        let mut name: OsString = path.as_os_str().to_owned();
        // A name that no other process uses.
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(name);
        let file = File::create(&temporary).map_err(|e| TraceError::io(&path, e))?;
        let file = Hashing { inner: BufWriter::new(file), hash: Box::default() };
        let file = SerializedFileWriter::new(file, SCHEMA.clone(), Arc::new(properties()));
        let file = file.map_err(|e| io_error(&path, e))?;
        Ok(Self {
            path,
            temporary,
            file: Some(file),
            columns: Columns::default(),
            cores: 0,
            last_ns: 0,
            faults: 0,
            threads: HashSet::new(),
            processes: HashSet::new(),
        })
    }

    /// Appends a fault. It must not be earlier than the previous one.
    ///
    /// # Errors
    /// [`TraceError::Usage`] if it is; [`TraceError::Io`].
    pub fn append(&mut self, fault: &Fault) -> Result<(), TraceError> {
        if fault.time_ns < self.last_ns {
            let (now, before) = (fault.time_ns, self.last_ns);
            let what = format!("a fault at {now} ns follows one at {before} ns; faults must be sorted by time");
            return Err(TraceError::usage(what));
        }
        self.cores = self.cores.max(u32::from(fault.core) + 1);
        self.last_ns = fault.time_ns;
        self.faults += 1;
        self.threads.insert(fault.thread);
        self.processes.insert(fault.process);
        self.columns.push(fault);
        if self.columns.len() == GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), TraceError> {
        let (file, columns) = (self.file.as_mut().expect("not finished"), &self.columns);
        let mut write = || -> Result<(), ParquetError> {
            let mut group = file.next_row_group()?;
            for place in 0..SCHEMA.get_fields().len() {
                let mut column = group.next_column()?.expect("a writer for each column of the schema");
                if let Some(wide) = WIDE.iter().position(|&at| at == place) {
                    column.typed::<Int64Type>().write_batch(&columns.wide[wide], None, None)?;
                } else if let Some(narrow) = NARROW.iter().position(|&at| at == place) {
                    column.typed::<Int32Type>().write_batch(&columns.narrow[narrow], None, None)?;
                }
                column.close()?;
            }
            group.close().map(|_| ())
        };
        write().map_err(|e| io_error(&self.path, e))?;
        self.columns.clear();
        Ok(())
    }

    /// Completes the trace with `info`, whose counts are set here. Duration and number of cores are increased if there
    /// are faults beyond them.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn finish(mut self, mut info: FaultTraceInfo) -> Result<FaultTraceInfo, TraceError> {
        if self.columns.len() > 0 {
            self.write_group()?;
        }
        info.cores = info.cores.max(self.cores);
        info.duration_ns = info.duration_ns.max(self.last_ns);
        (info.faults, info.threads) = (self.faults, self.threads.len() as u64);
        info.processes = self.processes.len() as u64;
        let mut file = self.file.take().expect("not finished");
        let info_json = info.clone();
        let close = || -> Result<(), ParquetError> {
            file.flush()?;
            let hash = format!("{:032x}", file.inner().hash.digest128());
            let json = serde_json::to_string(&Facts { info: info_json, hash }).expect("plain data with text keys");
            file.append_key_value_metadata(KeyValue::new(FACTS_KEY.to_owned(), json));
            file.into_inner()?.flush()?;
            Ok(())
        };
        close().map_err(|e| io_error(&self.path, e))?;
        fs::rename(&self.temporary, &self.path).map_err(|e| TraceError::io(&self.path, e))?;
        Ok(info)
    }
}

impl Drop for FaultTraceWriter {
    fn drop(&mut self) {
        // After the rename there is no temporary file, so the error is ignored.
        let _ = fs::remove_file(&self.temporary);
    }
}

fn properties() -> WriterProperties {
    let sorted = ColumnPath::from("time_ns");
    WriterProperties::builder()
        .set_created_by(format!("pagelab {}", env!("CARGO_PKG_VERSION")))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).expect("a valid level")))
        .set_column_dictionary_enabled(sorted.clone(), false)
        .set_column_encoding(sorted, Encoding::DELTA_BINARY_PACKED)
        .build()
}

fn io_error(path: &Path, error: ParquetError) -> TraceError {
    let error = match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other.to_string()),
        },
        other => io::Error::other(other.to_string()),
    };
    TraceError::io(path, error)
}

/// Hashes everything that is written.
struct Hashing<W> {
    inner: W,
    hash: Box<Xxh3>,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
