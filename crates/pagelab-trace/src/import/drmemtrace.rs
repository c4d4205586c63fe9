//! DynamoRIO's memory traces, as `drcachesim -offline` leaves them after post-processing: a file per thread.
//!
//! Entries of 12 bytes, little-endian: type (2), size (2), address or value (8). Loads, stores and instructions become
//! what they say. Instructions of a bundle follow each other, with their lengths in the value. Prefetches, flushes and
//! encodings are left out and counted. Markers tell times, among others: a thread's entries up to its next time come
//! after those that other threads made before. A thread's file names it and its process. Source:
//! `clients/drcachesim/common/trace_entry.h` of DynamoRIO, trace versions 2 to 5.
//!
//! The file may be compressed, or a zip archive of chunks (see [`zip_members`](super::zip_members)), which follow each
//! other without a gap: the time and processor that each chunk says again change nothing.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    Head, ImportOptions,
    input::Input,
    sink::{Problem, Sink},
};
use crate::{AccessKind, TraceError, format::MAX_ACCESS_BYTES};

const ENTRY_BYTES: usize = 12;
/// Versions of traces stay far below.
const MAX_VERSION: u64 = 1 << 16;

/// Bits of the file type: filtered (whole, instructions, data, at first), and without data.
const FILTERED: u64 = 0x1 | 0x80 | 0x100 | 0x2000;
const INSTRUCTIONS_ONLY: u64 = 0x4;

pub(super) fn looks_like(head: Head<'_>) -> bool {
    // An entry that says where the file begins and of which version it is.
    match head.bytes.first_chunk::<ENTRY_BYTES>().map(DrmemtraceEntry::from_bytes) {
        Some(DrmemtraceEntry { kind, size, value }) => (kind, size) == (25, 0) && value < MAX_VERSION,
        None => false,
    }
}

#[derive(Clone, Copy)]
struct DrmemtraceEntry {
    kind: u16,
    size: u16,
    value: u64,
}

impl DrmemtraceEntry {
    #[inline]
    fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let [a, b, c, d, value @ ..] = *bytes;
        Self { kind: u16::from_le_bytes([a, b]), size: u16::from_le_bytes([c, d]), value: u64::from_le_bytes(value) }
    }
}

/// What is known of a thread between two entries.
#[derive(Default)]
struct Thread {
    process: u64,
    thread: u64,
    /// The sink is told of it.
    entered: bool,
    /// By which threads take turns.
    time: u64,
    pc: u64,
    /// Behind the last instruction, where a bundle begins.
    next_pc: u64,
    /// Within the trace of a system call, which is the kernel's.
    in_kernel: bool,
    file_type: u64,
}

impl Thread {
    /// True if the thread's time has changed.
    #[inline]
    fn take(&mut self, entry: DrmemtraceEntry, sink: &mut Sink) -> Result<bool, Problem> {
        let DrmemtraceEntry { kind, size, value } = entry;
        match kind {
            0 | 1 => self.access(kind, value, size, sink)?,
            10..=16 | 31 | 48 | 49 => self.instruction(value, size, sink)?,
            17 => self.bundle(size, value.to_le_bytes(), sink)?,
            // An instruction that is repeated, or may be.
            29 => self.repeat(value, size, sink)?,
            30 if value == self.pc => self.repeat(value, size, sink)?,
            30 => self.instruction(value, size, sink)?,
            // Prefetches and flushes.
            2..=9 | 18..=21 | 27 | 32..=46 => sink.leave_out(),
            22 => (self.thread, self.entered) = (value, false),
            23 => {
                self.enter(sink)?;
                sink.leave();
                self.entered = false;
            }
            24 => (self.process, self.entered) = (value, false),
            28 => return Ok(self.marker(size, value)),
            // Begin and end of the file, and the bytes of an instruction.
            25 | 26 | 47 => {}
            _ => return Err(format!("an entry of type {kind}, which trace versions up to 5 do not have").into()),
        }
        Ok(false)
    }

    fn marker(&mut self, kind: u16, value: u64) -> bool {
        match kind {
            2 => return std::mem::replace(&mut self.time, value) != value,
            9 => self.file_type |= value,
            27 => self.in_kernel = true,
            28 => self.in_kernel = false,
            _ => {}
        }
        false
    }

    #[inline]
    fn enter(&mut self, sink: &mut Sink) -> Result<(), Problem> {
        if !self.entered {
            sink.enter(self.process, self.thread)?;
            self.entered = true;
        }
        Ok(())
    }

    #[inline]
    fn access(&mut self, kind: u16, address: u64, size: u16, sink: &mut Sink) -> Result<(), Problem> {
        if self.in_kernel {
            sink.leave_out();
            return Ok(());
        }
        self.enter(sink)?;
        if size == 0 {
            sink.skip_empty();
            return Ok(());
        }
        let kind = if kind == 0 { AccessKind::Load } else { AccessKind::Store };
        sink.access(kind, address, u64::from(size))
    }

    #[inline]
    fn instruction(&mut self, pc: u64, size: u16, sink: &mut Sink) -> Result<(), Problem> {
        if self.in_kernel {
            return Ok(());
        }
        self.enter(sink)?;
        if size > MAX_ACCESS_BYTES {
            return Err(format!("an instruction of {size} bytes").into());
        }
        sink.instruction(pc, size)?;
        (self.pc, self.next_pc) = (pc, pc + u64::from(size));
        Ok(())
    }

    fn repeat(&mut self, pc: u64, size: u16, sink: &mut Sink) -> Result<(), Problem> {
        if self.in_kernel {
            return Ok(());
        }
        self.enter(sink)?;
        self.pc = pc;
        sink.repeat(pc, size)
    }

    fn bundle(&mut self, count: u16, lengths: [u8; 8], sink: &mut Sink) -> Result<(), Problem> {
        let lengths = lengths.get(..usize::from(count)).ok_or_else(|| format!("a bundle of {count} instructions"))?;
        lengths.iter().try_for_each(|&length| self.instruction(self.next_pc, u16::from(length), sink))
    }
}

/// A thread's file.
struct Stream<'a> {
    input: &'a mut Input,
    thread: Thread,
}

/// Why a stream stopped.
enum Stop {
    Time,
    End,
    /// No more is wanted.
    Full,
}

impl Stream<'_> {
    /// Takes entries up to the next time.
    fn go_on(&mut self, sink: &mut Sink) -> Result<Stop, TraceError> {
        self.thread.entered = false;
        loop {
            let begin = self.input.offset();
            let (entries, left) = self.input.ahead(ENTRY_BYTES)?.as_chunks::<ENTRY_BYTES>();
            let done = entries.as_flattened().len();
            if done == 0 {
                return match left.len() {
                    0 => Ok(Stop::End),
                    left => Err(self.input.corrupt(format!("offset {begin}: {left} bytes left, expected an entry"))),
                };
            }
            for (number, entry) in entries.iter().enumerate() {
                if !sink.next_record()? {
                    return Ok(Stop::Full);
                }
                match self.thread.take(DrmemtraceEntry::from_bytes(entry), sink) {
                    Ok(false) => {}
                    Ok(true) => {
                        self.input.consume((number + 1) * ENTRY_BYTES);
                        return Ok(Stop::Time);
                    }
                    Err(problem) => {
                        let offset = begin + (number * ENTRY_BYTES) as u64;
                        return Err(problem.at(self.input, |what| format!("offset {offset}: {what}")));
                    }
                }
            }
            self.input.consume(done);
        }
    }
}

/// Feeds the data of all files to `sink`, by time, and by the order of the files where times are the same.
pub(super) fn read(inputs: &mut [Input], sink: &mut Sink, _: &ImportOptions) -> Result<(), TraceError> {
    let mut streams: Vec<Stream> = inputs.iter_mut().map(|input| Stream { input, thread: Thread::default() }).collect();
    // A file says something of itself before its first time.
    let mut turns: BinaryHeap<_> = (0..streams.len()).map(|index| Reverse((0, index))).collect();
    while let Some(Reverse((_, index))) = turns.pop() {
        let stream = &mut streams[index];
        match stream.go_on(sink)? {
            Stop::Time => turns.push(Reverse((stream.thread.time, index))),
            Stop::End => {}
            Stop::Full => break,
        }
    }
    let file_type = streams.iter().fold(0, |bits, stream| bits | stream.thread.file_type);
    if file_type & FILTERED != 0 {
        sink.note("the trace was filtered when it was recorded, so that accesses are missing".to_owned());
    }
    if file_type & INSTRUCTIONS_ONLY != 0 {
        sink.note("the trace was recorded without data accesses".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_recognised_by_their_first_entry() {
        let of = |bytes: &[u8]| looks_like(Head { bytes, whole: false });
        assert!(of(&[25, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 99]));
        assert!(!of(&[25, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0]));
        assert!(!of(&[25, 0, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0]));
        assert!(!of(&[25, 0, 0, 0, 5, 0, 0, 9, 0, 0, 0, 0]));
    }
}
