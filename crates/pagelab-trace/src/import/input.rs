//! The file to import, decompressed as it is read.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use liblzma::stream::{CONCATENATED, Stream};
use serde::Serialize;

use crate::TraceError;

/// How an input is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Recognised by the first bytes.
    Auto,
    None,
    Gzip,
    Xz,
    Zstd,
}

impl Compression {
    /// From `auto`, `none`, `gzip`, `xz` or `zstd`.
    ///
    /// # Errors
    /// [`TraceError::Usage`] that lists the names.
    pub fn from_name(name: &str) -> Result<Self, TraceError> {
        match name {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            "gzip" => Ok(Self::Gzip),
            "xz" => Ok(Self::Xz),
            "zstd" => Ok(Self::Zstd),
            _ => {
                Err(TraceError::usage(format!("unknown compression {name:?}; known are auto, none, gzip, xz and zstd")))
            }
        }
    }

    /// By the magic numbers of RFC 1952, the .xz file format (section 2.1.1.1) and RFC 8878.
    fn recognise(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Auto | Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }
}

/// Bytes read at once, of the file and of the decompressed data.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes by which the format is recognised.
const HEAD_BYTES: usize = 64 << 10;
/// An xz file that needs more memory than this is refused; `xz -9` needs 65 MiB.
const XZ_MEMORY_BYTES: u64 = 512 << 20;

/// A file to import.
pub struct Input {
    path: PathBuf,
    compression: Compression,
    total_bytes: Option<u64>,
    read_bytes: Arc<AtomicU64>,
    head: Vec<u8>,
    /// All data, the head included.
    data: BufReader<Box<dyn Read>>,
}

/// The begin of the data.
pub struct Head<'a> {
    pub bytes: &'a [u8],
    /// There is nothing after it.
    pub whole: bool,
}

impl Input {
    /// Opens the file at `path`; what it begins with says how it is compressed, unless `compression` does.
    ///
    /// # Errors
    /// [`TraceError::Io`]; [`TraceError::Corrupt`] for a folder.
    pub fn open(path: &Path, compression: Compression) -> Result<Self, TraceError> {
        let to_error = |e| TraceError::io(path, e);
        let file = File::open(path).map_err(to_error)?;
        let facts = file.metadata().map_err(to_error)?;
        if facts.is_dir() {
            return Err(TraceError::corrupt(path, "a folder; a foreign trace is a file"));
        }
        let read_bytes = Arc::new(AtomicU64::new(0));
        let mut file = Counted { inner: file, count: Arc::clone(&read_bytes) };
        let magic = take(&mut file, 6).map_err(to_error)?;
        let compression = match compression {
            Compression::Auto => Compression::recognise(&magic),
            given => given,
        };
        let file = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic).chain(file));
        let data: Box<dyn Read> = match compression {
            Compression::Auto | Compression::None => Box::new(file),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
            Compression::Xz => {
                // Concatenated streams, as `xz` and `cat` make them, are one input.
                let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES, CONCATENATED);
                Box::new(liblzma::bufread::XzDecoder::new_stream(file, stream.map_err(|e| to_error(e.into()))?))
            }
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(file).map_err(to_error)?),
        };
        let mut input = Self {
            path: path.to_path_buf(),
            compression,
            total_bytes: facts.is_file().then_some(facts.len()),
            read_bytes,
            head: Vec::new(),
            data: BufReader::new(Box::new(io::empty())),
        };
        let mut data = data;
        input.head = take(&mut data, HEAD_BYTES).map_err(|e| input.reading(e))?;
        let all = Cursor::new(input.head.clone()).chain(data);
        input.data = BufReader::with_capacity(BUFFER_BYTES, Box::new(all));
        Ok(input)
    }

    /// Never [`Compression::Auto`].
    pub(super) fn compression(&self) -> Compression {
        self.compression
    }

    /// Bytes of the file read so far.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the file; none for pipes.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    /// The begin of the data, read or not.
    pub fn head(&self) -> Head<'_> {
        Head { bytes: &self.head, whole: self.head.len() < HEAD_BYTES }
    }

    /// Appends the next line to `line`, its end included, but not more than `limit` bytes of it. Returns the number of
    /// bytes; 0 at the end of the data.
    ///
    /// # Errors
    /// [`TraceError::Io`]; [`TraceError::Corrupt`] if it cannot be decompressed.
    pub fn line(&mut self, line: &mut Vec<u8>, limit: u64) -> Result<usize, TraceError> {
        (&mut self.data).take(limit).read_until(b'\n', line).map_err(|e| self.reading(e))
    }

    /// Fills `record` and returns the number of bytes, less than asked for only at the end of the data.
    pub(super) fn record(&mut self, record: &mut [u8]) -> Result<usize, TraceError> {
        let mut filled = 0;
        while filled < record.len() {
            match self.data.read(&mut record[filled..]) {
                Ok(0) => break,
                Ok(len) => filled += len,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.reading(e)),
            }
        }
        Ok(filled)
    }

    /// The error that the content is malformed: `what` says where and how.
    pub fn corrupt(&self, what: impl Into<String>) -> TraceError {
        TraceError::corrupt(&self.path, what)
    }

    /// An error of the file stays one; what the decompressor says is about the content.
    fn reading(&self, error: io::Error) -> TraceError {
        if self.compression == Compression::None || error.raw_os_error().is_some() {
            return TraceError::io(&self.path, error);
        }
        let (name, at) = (self.compression.name(), self.read_bytes());
        self.corrupt(format!("damaged or cut-off {name} data within the first {at} bytes: {error}"))
    }
}

/// The next `count` bytes, less at the end.
fn take(reader: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    reader.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Counts what is read.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buffer)?;
        self.count.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}
