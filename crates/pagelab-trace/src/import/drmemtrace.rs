//! DynamoRIO's memory traces, as `drcachesim -offline` leaves them after post-processing: a file per thread.
//!
//! Entries of 12 bytes, little-endian: type (2), size (2), address or value (8). Loads, stores and instructions become
//! what they say. Instructions of a bundle follow each other, with their lengths in the value. Prefetches, flushes and
//! encodings are left out and counted. Markers tell times, among others: a thread's entries up to its next time come
//! after those that other threads made before. A thread's file names it and its process. Source:
//! `clients/drcachesim/common/trace_entry.h` of DynamoRIO as of August 2026, trace versions 1 to 7.
//!
//! The kernel's instructions and their accesses are left out and counted: those of system calls, of context switches
//! and of interrupts, which markers enclose, and all others at addresses of the kernel's half.
//!
//! The file may be compressed, or a zip archive of chunks (see [`zip_members`](super::zip_members)), which follow each
//! other without a gap: the time and processor that each chunk says again change nothing.

use std::{cmp::Reverse, collections::BinaryHeap, ops::RangeInclusive};

use super::{
    Head, ImportOptions,
    input::Input,
    sink::{Problem, Sink},
};
use crate::{AccessKind, TraceError, format::MAX_ACCESS_BYTES};

const ENTRY_BYTES: usize = 12;
/// Versions of traces stay far below.
const MAX_VERSION: u64 = 1 << 16;
/// Versions whose entries are known.
const KNOWN_VERSIONS: RangeInclusive<u64> = 1..=7;

/// Bits of the file type: filtered (whole, instructions, data, at first), and without data.
const FILTERED: u64 = 0x1 | 0x80 | 0x100 | 0x2000;
const INSTRUCTIONS_ONLY: u64 = 0x4;

/// Types of markers.
mod marker {
    pub const TIME: u16 = 2;
    pub const FILE_TYPE: u16 = 9;
    pub const VERSION: u16 = 12;
    pub const SYSTEM_CALL_BEGIN: u16 = 27;
    pub const SYSTEM_CALL_END: u16 = 28;
    pub const CONTEXT_SWITCH_BEGIN: u16 = 34;
    pub const CONTEXT_SWITCH_END: u16 = 35;
    pub const INTERRUPT: u16 = 43;
    pub const INTERRUPT_RETURN: u16 = 44;
}

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
    kernel: KernelParts,
    file_type: u64,
}

/// Which parts of the kernel's execution a thread is in.
#[derive(Default)]
struct KernelParts {
    system_call: bool,
    context_switch: bool,
    /// Interrupts and exceptions within each other.
    interrupts: u32,
    /// The last instruction was at an address of the kernel's half.
    kernel_address: bool,
}

impl KernelParts {
    /// Whether an instruction is the kernel's, at an address of the kernel's half or not.
    #[inline]
    fn begin_instruction(&mut self, kernel_address: bool) -> bool {
        if self.interrupts > 0 && self.kernel_address && !kernel_address {
            // Not every way back to the program has a marker (x86's SYSRET has none).
            self.interrupts = 0;
        }
        self.kernel_address = kernel_address;
        kernel_address || self.by_markers()
    }

    #[inline]
    fn by_markers(&self) -> bool {
        self.system_call | self.context_switch | (self.interrupts > 0)
    }
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
            2..=9 | 18..=21 | 27 | 32..=46 => sink.skip_record(),
            22 => (self.thread, self.entered) = (value, false),
            23 => {
                self.enter(sink)?;
                sink.end_thread();
                self.entered = false;
            }
            24 => (self.process, self.entered) = (value, false),
            28 => return self.marker(size, value),
            // The begin of the file names its version.
            25 => check_version(value)?,
            // Its end, and the bytes of an instruction.
            26 | 47 => {}
            _ => {
                let (first, last) = (KNOWN_VERSIONS.start(), KNOWN_VERSIONS.end());
                let what = format!("an entry of type {kind}, which trace versions {first} to {last} do not have");
                return Err(what.into());
            }
        }
        Ok(false)
    }

    fn marker(&mut self, kind: u16, value: u64) -> Result<bool, Problem> {
        let kernel = &mut self.kernel;
        match kind {
            marker::TIME => return Ok(std::mem::replace(&mut self.time, value) != value),
            marker::FILE_TYPE => self.file_type |= value,
            marker::VERSION => check_version(value)?,
            marker::SYSTEM_CALL_BEGIN => kernel.system_call = true,
            marker::SYSTEM_CALL_END => kernel.system_call = false,
            marker::CONTEXT_SWITCH_BEGIN => kernel.context_switch = true,
            marker::CONTEXT_SWITCH_END => kernel.context_switch = false,
            marker::INTERRUPT => kernel.interrupts = kernel.interrupts.saturating_add(1),
            marker::INTERRUPT_RETURN => kernel.interrupts = kernel.interrupts.saturating_sub(1),
            _ => {}
        }
        Ok(false)
    }

    #[inline]
    fn enter(&mut self, sink: &mut Sink) -> Result<(), Problem> {
        if !self.entered {
            sink.enter(self.process, self.thread)?;
            self.entered = true;
        }
        Ok(())
    }

    /// Whether an instruction is the kernel's; the accesses that follow are then, too.
    #[inline]
    fn is_kernel(&mut self, pc: u64, sink: &Sink) -> bool {
        self.kernel.begin_instruction(sink.is_kernel(pc))
    }

    #[inline]
    fn access(&mut self, kind: u16, address: u64, size: u16, sink: &mut Sink) -> Result<(), Problem> {
        if self.kernel.kernel_address || self.kernel.by_markers() {
            sink.skip_kernel_record();
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
        if self.is_kernel(pc, sink) {
            sink.skip_kernel_record();
            // A bundle goes on behind it.
            self.next_pc = pc.wrapping_add(u64::from(size));
            return Ok(());
        }
        self.enter(sink)?;
        if size > MAX_ACCESS_BYTES {
            return Err(format!("an instruction of {size} bytes").into());
        }
        sink.instruction(pc, size)?;
        (self.pc, self.next_pc) = (pc, pc.wrapping_add(u64::from(size)));
        Ok(())
    }

    fn repeat(&mut self, pc: u64, size: u16, sink: &mut Sink) -> Result<(), Problem> {
        if self.is_kernel(pc, sink) {
            sink.skip_kernel_record();
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

#[cold]
fn check_version(version: u64) -> Result<(), Problem> {
    if KNOWN_VERSIONS.contains(&version) {
        return Ok(());
    }
    let (first, last) = (KNOWN_VERSIONS.start(), KNOWN_VERSIONS.end());
    Err(format!("version {version} of DynamoRIO's traces; {first} to {last} are known").into())
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
    fn read_entries(&mut self, sink: &mut Sink) -> Result<Stop, TraceError> {
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
        match stream.read_entries(sink)? {
            Stop::Time => turns.push(Reverse((stream.thread.time, index))),
            Stop::End => {}
            Stop::Full => break,
        }
    }
    let file_type = streams.iter().fold(0, |bits, stream| bits | stream.thread.file_type);
    if file_type & FILTERED != 0 {
        sink.note_loss("the trace was filtered when it was recorded, so that accesses are missing".to_owned());
    }
    if file_type & INSTRUCTIONS_ONLY != 0 {
        sink.note_loss("the trace was recorded without data accesses".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_recognised_by_their_first_entry() {
        let recognised = |bytes: &[u8]| looks_like(Head { bytes, whole: false });
        assert!(recognised(&[25, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 99]));
        assert!(!recognised(&[25, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0]));
        assert!(!recognised(&[25, 0, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0]));
        assert!(!recognised(&[25, 0, 0, 0, 5, 0, 0, 9, 0, 0, 0, 0]));
    }
}
