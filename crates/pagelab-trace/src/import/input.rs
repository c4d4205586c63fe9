//! The file to import, decompressed as it is read.

use std::{
    fs::File,
    io::{self, Cursor, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

pub use super::compression::Compression;
use super::{compression::MAGIC_BYTES, members::TrailingData};
use crate::TraceError;

/// Bytes read at once, of the file and of the decompressed data.
pub(super) const BUFFER_BYTES: usize = 256 << 10;
/// The same of one file among many.
pub(super) const SMALL_BUFFER_BYTES: usize = 64 << 10;
/// Bytes by which the format is recognised.
const HEAD_BYTES: usize = 64 << 10;

/// A file to import.
pub struct Input {
    path: PathBuf,
    compression: Compression,
    total_bytes: Option<u64>,
    read_bytes: Arc<AtomicU64>,
    data: Box<dyn Read>,
    /// A stretch of the data: `buffer[begin..end]` is read and not consumed.
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    ended: bool,
    /// Bytes of the data consumed.
    consumed: u64,
}

/// The begin of the data.
pub struct Head<'a> {
    /// At most 64 KiB of it.
    pub bytes: &'a [u8],
    /// There is nothing after it.
    pub whole: bool,
}

impl Input {
    /// Opens the file at `path`; what it begins with says how it is compressed, unless `compression` does.
    ///
    /// # Errors
    /// [`TraceError::Io`]; [`TraceError::Corrupt`] for a folder, or if it cannot be decompressed.
    pub fn open(path: &Path, compression: Compression) -> Result<Self, TraceError> {
        Self::open_one_of(path, path, compression, Arc::default(), BUFFER_BYTES)
    }

    /// As [`open`](Self::open), with what messages call the file and a count of bytes that several files share.
    pub(super) fn open_one_of(
        path: &Path,
        name: &Path,
        compression: Compression,
        read_bytes: Arc<AtomicU64>,
        buffer_bytes: usize,
    ) -> Result<Self, TraceError> {
        let to_error = |e| TraceError::io(name, e);
        let file = File::open(path).map_err(to_error)?;
        let facts = file.metadata().map_err(to_error)?;
        if facts.is_dir() {
            return Err(TraceError::corrupt(name, "a folder; a foreign trace is a file"));
        }
        let mut file = Counted { inner: file, count: Arc::clone(&read_bytes) };
        let mut magic = Vec::with_capacity(MAGIC_BYTES);
        (&mut file).take(MAGIC_BYTES as u64).read_to_end(&mut magic).map_err(to_error)?;
        let compression = match compression {
            Compression::Auto => Compression::recognise(&magic),
            given => given,
        };
        let mut input = Self {
            path: name.to_path_buf(),
            compression,
            total_bytes: facts.is_file().then_some(facts.len()),
            read_bytes,
            data: Box::new(io::empty()),
            buffer: vec![0; buffer_bytes],
            begin: 0,
            end: 0,
            ended: false,
            consumed: 0,
        };
        let whole = Cursor::new(magic).chain(file);
        input.data = compression.decompress(whole, buffer_bytes).map_err(|e| input.reading(e))?;
        input.ahead(HEAD_BYTES)?;
        Ok(input)
    }

    /// What messages call it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the data that is left.
    pub(super) fn as_reader(&mut self) -> InputReader<'_> {
        InputReader(self)
    }

    /// Never [`Compression::Auto`].
    pub(super) fn compression(&self) -> Compression {
        self.compression
    }

    /// Bytes of the file read so far, and of those that share the count.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// The count behind [`read_bytes`](Self::read_bytes).
    pub(super) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read_bytes)
    }

    /// Bytes of the file; none for pipes.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    /// What comes next. Before anything is consumed, this is the begin of the data.
    pub fn head(&self) -> Head<'_> {
        let bytes = &self.buffer[self.begin..self.end];
        Head { bytes: &bytes[..bytes.len().min(HEAD_BYTES)], whole: self.ended && bytes.len() < HEAD_BYTES }
    }

    /// The offset of the next byte in the decompressed data.
    pub(super) fn offset(&self) -> u64 {
        self.consumed
    }

    /// The next bytes, `least` of them unless the data ends before.
    ///
    /// # Errors
    /// [`TraceError::Io`]; [`TraceError::Corrupt`] if it cannot be decompressed.
    #[inline]
    pub(super) fn ahead(&mut self, least: usize) -> Result<&[u8], TraceError> {
        if self.end - self.begin < least && !self.ended {
            self.fill(least)?;
        }
        Ok(&self.buffer[self.begin..self.end])
    }

    fn fill(&mut self, least: usize) -> Result<(), TraceError> {
        self.buffer.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        if self.buffer.len() < least {
            self.buffer.resize(least, 0);
        }
        while self.end < least {
            match self.data.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(len) => self.end += len,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.reading(e)),
            }
        }
        Ok(())
    }

    /// Passes by so many of the next bytes.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.begin += bytes;
        self.consumed += bytes as u64;
        debug_assert!(self.begin <= self.end, "only what is ahead can be consumed");
    }

    /// Appends the next line to `line`, its end included, but not more than `limit` bytes of it. Returns the number of
    /// bytes; 0 at the end of the data.
    ///
    /// # Errors
    /// [`TraceError::Io`]; [`TraceError::Corrupt`] if it cannot be decompressed.
    pub fn line(&mut self, line: &mut Vec<u8>, limit: u64) -> Result<usize, TraceError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let ahead = self.ahead(limit)?;
        let within = &ahead[..ahead.len().min(limit)];
        let len = memchr::memchr(b'\n', within).map_or(within.len(), |end| end + 1);
        line.extend_from_slice(&within[..len]);
        self.consume(len);
        Ok(len)
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
        self.corrupt(match self.compression {
            _ if error.get_ref().is_some_and(|inner| inner.is::<TrailingData>()) => format!(
                "the {name} data end within the first {at} bytes, and what follows is no {name} data; remove it, or \
                 decompress the file and import that"
            ),
            Compression::Zip => format!("a zip archive that cannot be read: {error}"),
            _ => format!("damaged or cut-off {name} data within the first {at} bytes: {error}"),
        })
    }
}

/// The data of an input, for readers that know nothing of it.
pub(super) struct InputReader<'a>(&'a mut Input);

impl Read for InputReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ahead = self.0.ahead(1).map_err(io::Error::other)?;
        let len = ahead.len().min(buffer.len());
        buffer[..len].copy_from_slice(&ahead[..len]);
        self.0.consume(len);
        Ok(len)
    }
}

/// Counts what is read.
pub(super) struct Counted<R> {
    pub(super) inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buffer)?;
        self.count.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}
