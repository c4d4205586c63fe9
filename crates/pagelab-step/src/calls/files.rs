//! Lengths, holes and data of files that may be mapped.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use libc::pid_t;
use rustix::fs::{SeekFrom, seek, statfs};

use super::Call;
use crate::memory::Memory;
use crate::stream::{FileId, FilePart, Record, Stream};

const TMPFS_MAGIC: i64 = 0x0102_1994;
const SECRETMEM_MAGIC: i64 = 0x5345_434d;
/// No device of a file: that of System V segments.
const SYSTEM_V_DEVICE: u64 = u64::MAX;
const PAGE_BYTES: u64 = 4096;
/// Ranges that move what follows them reach to the end.
const END_OF_ALL_FILES: u64 = 1 << 62;
const RANGES_WITH_HOLES: u64 = (libc::FALLOC_FL_PUNCH_HOLE
    | libc::FALLOC_FL_ZERO_RANGE
    | libc::FALLOC_FL_COLLAPSE_RANGE
    | libc::FALLOC_FL_INSERT_RANGE) as u64;
const RANGES_THAT_MOVE: u64 = (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) as u64;

/// A file that a thread has open, or can open.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// Where this process reaches it.
    place: PathBuf,
    /// Its path in the trace.
    pub path: String,
    pub id: FileId,
    pub bytes: u64,
    is_regular: bool,
}

impl OpenFile {
    /// The file of a descriptor; none if it is not to be had.
    pub fn of_descriptor(tid: pid_t, descriptor: u64) -> Option<Self> {
        let place = PathBuf::from(format!("/proc/{tid}/fd/{}", descriptor as i32));
        let path = fs::read_link(&place).ok()?.to_string_lossy().into_owned();
        Self::at(place, path)
    }

    /// The file of a path, which may be relative to a descriptor's folder.
    fn of_path(tid: pid_t, memory: &Memory, folder: u64, path: u64) -> Option<Self> {
        let text = memory.text(path)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let place = if let Some(below) = text.strip_prefix('/') {
            PathBuf::from(format!("/proc/{tid}/root/{below}"))
        } else if folder as i32 == libc::AT_FDCWD {
            PathBuf::from(format!("/proc/{tid}/cwd/{text}"))
        } else {
            PathBuf::from(format!("/proc/{tid}/fd/{}/{text}", folder as i32))
        };
        let real = fs::canonicalize(&place).ok()?;
        Self::at(place, real.to_string_lossy().into_owned())
    }

    pub fn at(place: PathBuf, path: String) -> Option<Self> {
        let facts: Metadata = fs::metadata(&place).ok()?;
        let is_in_memory =
            facts.is_file() && statfs(&place).is_ok_and(|about| matches!(about.f_type, TMPFS_MAGIC | SECRETMEM_MAGIC));
        let id = if is_in_memory { FileId { device: facts.dev(), inode: facts.ino() } } else { FileId::default() };
        Some(Self { place, path, id, bytes: facts.len(), is_regular: facts.is_file() })
    }

    /// Bytes of a mapping of `length` bytes from `offset` on that are in the file, up to the end of its last page.
    pub fn bytes_from(&self, offset: u64, length: u64) -> u64 {
        if !self.is_regular {
            return length;
        }
        self.bytes.next_multiple_of(PAGE_BYTES).saturating_sub(offset).min(length)
    }

    fn part(&self, offset: u64, bytes: u64) -> FilePart<'_> {
        FilePart { offset, bytes, id: self.id, path: &self.path }
    }

    /// Tells which data a file in memory has in a range that is about to be mapped.
    pub fn send_data(&self, offset: u64, length: u64, stream: &mut Stream) {
        let end = self.bytes.min(offset.saturating_add(length));
        if !self.id.is_in_memory() || offset >= end {
            return;
        }
        let Ok(file) = File::open(&self.place) else {
            stream.send(&Record::FileData(self.part(offset, end - offset)));
            return;
        };
        let mut at = offset;
        while at < end {
            let begin = match seek(&file, SeekFrom::Data(at)) {
                Ok(begin) => begin,
                // No data behind it.
                Err(rustix::io::Errno::NXIO) => return,
                Err(_) => at,
            };
            let hole = seek(&file, SeekFrom::Hole(begin)).unwrap_or(end).min(end);
            if begin >= end || hole <= begin {
                return;
            }
            stream.send(&Record::FileData(self.part(begin, hole - begin)));
            at = hole;
        }
    }
}

/// A System V segment: its id and name.
pub fn system_v(segment: u64, key: u32) -> (FileId, String) {
    (FileId { device: SYSTEM_V_DEVICE, inode: u64::from(segment as u32) + 1 }, format!("/SYSV{key:08x} (deleted)"))
}

/// Notes what a call is about to change: the file that gets another length.
pub fn before(call: &mut Call, tid: pid_t, memory: &Memory) {
    let [first, second, third, ..] = call.arguments;
    let current = libc::AT_FDCWD as u64;
    let truncates = |flags: u64| flags & libc::O_TRUNC as u64 != 0;
    let file = match call.number {
        libc::SYS_ftruncate => OpenFile::of_descriptor(tid, first),
        libc::SYS_truncate => OpenFile::of_path(tid, memory, current, first),
        libc::SYS_creat => OpenFile::of_path(tid, memory, current, first),
        libc::SYS_open if truncates(second) => OpenFile::of_path(tid, memory, current, first),
        libc::SYS_openat if truncates(third) => OpenFile::of_path(tid, memory, first, second),
        _ => None,
    };
    let is_resized = matches!(call.number, libc::SYS_ftruncate | libc::SYS_truncate);
    // A file that is empty, or that the call creates, loses nothing.
    call.truncated = file.filter(|file| file.is_regular && (is_resized || file.bytes > 0));
}

/// Tells what a call that has succeeded has changed.
pub fn after(call: &Call, tid: pid_t, memory: &Memory, stream: &mut Stream) {
    let ([first, second, third, fourth, ..], result) = (call.arguments, call.result as u64);
    if let Some(file) = &call.truncated {
        let bytes = if matches!(call.number, libc::SYS_ftruncate | libc::SYS_truncate) { second } else { 0 };
        stream.send(&Record::Truncate { old_bytes: file.bytes, bytes, id: file.id, path: &file.path });
    }
    match call.number {
        libc::SYS_write | libc::SYS_writev | libc::SYS_sendfile => after_write(tid, first, None, result, stream),
        libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2 => {
            let end = fourth.checked_add(result).filter(|_| fourth as i64 >= 0);
            after_write(tid, first, end, result, stream);
        }
        libc::SYS_copy_file_range | libc::SYS_splice => {
            // A pointer to the place is moved behind what was written.
            let end = if fourth == 0 { None } else { memory.u64(fourth) };
            after_write(tid, third, end, result, stream);
        }
        libc::SYS_fallocate if second & RANGES_WITH_HOLES != 0 => {
            let bytes = if second & RANGES_THAT_MOVE != 0 { END_OF_ALL_FILES } else { fourth };
            if let Some(file) = OpenFile::of_descriptor(tid, first) {
                stream.send(&Record::FileHole(file.part(third, bytes)));
            }
        }
        _ => {}
    }
}

/// A call has written so many bytes to a file, up to `end`, or else up to the descriptor's place.
fn after_write(tid: pid_t, descriptor: u64, end: Option<u64>, bytes: u64, stream: &mut Stream) {
    if bytes == 0 {
        return;
    }
    let Some(file) = OpenFile::of_descriptor(tid, descriptor).filter(|file| file.id.is_in_memory()) else { return };
    let Some(end) = end.or_else(|| place_of_descriptor(tid, descriptor)) else { return };
    stream.send(&Record::FileData(file.part(end.saturating_sub(bytes), bytes)));
}

fn place_of_descriptor(tid: pid_t, descriptor: u64) -> Option<u64> {
    about_descriptor(tid, descriptor, "pos:")?.parse().ok()
}

/// Whether a descriptor can only be read.
pub fn is_read_only(tid: pid_t, descriptor: u64) -> bool {
    let flags = about_descriptor(tid, descriptor, "flags:").and_then(|octal| i32::from_str_radix(&octal, 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE == libc::O_RDONLY)
}

/// A line of what the kernel tells about a descriptor.
fn about_descriptor(tid: pid_t, descriptor: u64, name: &str) -> Option<String> {
    let about = fs::read_to_string(format!("/proc/{tid}/fdinfo/{}", descriptor as i32)).ok()?;
    about.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}
