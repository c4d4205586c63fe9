//! The records of the stream between the Valgrind tool and the recorder; `capture/valgrind/README.md` describes them,
//! `capture/valgrind/stream.h` is the other side.

use std::sync::Arc;

use super::memory_files::FileId;

/// First word of a stream, `pglb`.
pub(super) const MAGIC: u32 = 0x626c_6770;
pub(super) const VERSION: u32 = 11;
/// Set in the first word of a control record, clear in a segment number.
pub(super) const CONTROL_BIT: u32 = 0x8000_0000;
/// Bytes of the segment number in a segment record.
pub(super) const SEGMENT_WORD_BYTES: usize = 4;
/// Bytes per address in a segment record.
pub(super) const ADDRESS_BYTES: usize = 6;
/// Exit code that the tool reports for a process that a signal ended.
pub(super) const EXIT_BY_SIGNAL: u32 = 0x7fff_ffff;
/// Wait status of a child whose status the program did not request.
pub(super) const WAIT_STATUS_UNKNOWN: u32 = 0xffff_ffff;

/// How an image was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// `execve`, or the start of the recording.
    Image,
    /// `fork` of another process.
    Fork,
}

/// What tells a process from all others of the recording: process ids repeat where there are several PID namespaces.
/// A forked child gets its key from its parent, and an executed program that of its process.
pub(super) type ProcessKey = u64;

/// A control record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Hello {
        version: u32,
        origin: Origin,
        key: ProcessKey,
        /// As the process itself sees it.
        pid: u32,
        path: Arc<str>,
    },
    Segment(SegmentRecord),
    Switch {
        tid: u32,
    },
    ThreadStart {
        tid: u32,
        os_tid: u32,
    },
    ThreadExit {
        tid: u32,
    },
    KernelAccess {
        writes: bool,
        addr: u64,
        len: u64,
    },
    Mmap {
        addr: u64,
        len: u64,
        prot: u32,
        flags: u32,
        file_offset: u64,
        file: Option<Arc<str>>,
        id: FileId,
    },
    Munmap {
        addr: u64,
        len: u64,
    },
    Mremap {
        old_addr: u64,
        old_len: u64,
        new_addr: u64,
        new_len: u64,
    },
    Mprotect {
        addr: u64,
        len: u64,
        prot: u32,
    },
    Madvise {
        addr: u64,
        len: u64,
        advice: u32,
    },
    Msync {
        addr: u64,
        len: u64,
        flags: u32,
    },
    Truncate {
        old_len: u64,
        new_len: u64,
        id: FileId,
        file: Arc<str>,
    },
    /// A file in memory holds data in the range.
    FileData {
        offset: u64,
        len: u64,
        id: FileId,
        file: Arc<str>,
    },
    /// The range of a file has become a hole.
    FileHole {
        offset: u64,
        len: u64,
        id: FileId,
        file: Arc<str>,
    },
    Brk {
        start: u64,
        end: u64,
    },
    /// The thread lets others continue; `number` counts from 1 in each image.
    Wake {
        number: u32,
    },
    /// The thread continues after the wake of this number.
    Woken {
        number: u32,
    },
    Fork {
        /// The child's id as its parent sees it.
        pid: u32,
        child: ProcessKey,
        /// The child shares the parent's memory (`CLONE_VM`).
        shares: bool,
    },
    ExecBegin {
        path: Arc<str>,
    },
    ExecFailed,
    /// The program of the current `execve` will run without the tool, for this reason.
    ExecNative {
        reason: Arc<str>,
    },
    Exit {
        code: u32,
    },
    Waited {
        pid: u32,
        status: u32,
    },
    /// The kernel reads or writes memory of another process for the thread.
    RemoteAccess {
        /// As this process sees it.
        pid: u32,
        writes: bool,
        addr: u64,
        len: u64,
    },
    /// The allocator has returned a block, from the call from which the program has just returned.
    Allocated {
        addr: u64,
        len: u64,
    },
    /// The block is freed.
    Freed {
        addr: u64,
    },
    /// A fault at `pc` interrupted a segment; `record` begins with what was written of it.
    Fault {
        pc: u64,
        record: Vec<u8>,
    },
    /// A segment was left after its instruction at `pc`; `record` begins with what was written of it.
    Left {
        pc: u64,
        record: Vec<u8>,
    },
}

/// The description of a segment, which is the same for all its executions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentRecord {
    pub number: u32,
    /// Instructions after the last access.
    pub tail: u32,
    pub pieces: Vec<Piece>,
    pub accesses: Vec<AccessRecord>,
    /// Registers whose values at the end depend on something else than their own value at the entry, and on what.
    pub registers: Vec<(u8, OriginRecord)>,
    pub branch: Option<BranchRecord>,
    pub transfer: Option<Transfer>,
}

/// How a segment can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// The last access stores the return address.
    Call,
    /// The last access loads it.
    Return,
}

/// Number of registers that are tracked, as the tool numbers them.
pub(super) const REGISTERS: usize = 33;

/// What a value depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OriginRecord {
    /// Distance to the load that it depends on, in accesses of the superblock: from the access itself, or from the
    /// segment's end; 0 without a load.
    pub back: u16,
    /// Whether that load's address depends on no other load, as far as the superblock shows.
    pub at_once: bool,
    /// Registers at the segment's entry, as a bitmap; none beside a load whose address is not known at once.
    pub registers: u64,
}

impl OriginRecord {
    /// Whether the registers may determine the time rather than the load.
    pub fn is_early(&self) -> bool {
        self.back == 0 || self.at_once
    }
}

/// A conditional branch at the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BranchRecord {
    /// Address of the instruction after it.
    pub fall_through: u64,
    /// What its condition depends on.
    pub origin: OriginRecord,
}

/// Consecutive code bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub start: u64,
    pub len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccessRecord {
    pub pc: u64,
    pub gap: u32,
    pub size_bytes: u16,
    pub kind: u8,
    /// Whether the access may not happen; its address is then 0.
    pub conditional: bool,
    /// What its address, and the value that it stores, depend on.
    pub origin: OriginRecord,
}

/// Reads numbers from the front of a payload; `None` once it is too short.
struct Payload<'a>(&'a [u8]);

impl<'a> Payload<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn file_id(&mut self) -> Option<FileId> {
        Some(FileId { device: self.u64()?, inode: self.u64()? })
    }

    fn text(&mut self) -> Option<Arc<str>> {
        let len = self.u32()? as usize;
        Some(String::from_utf8_lossy(self.bytes(len)?).into())
    }

    fn optional_text(&mut self) -> Option<Option<Arc<str>>> {
        Some(Some(self.text()?).filter(|text| !text.is_empty()))
    }
}

/// The control record that begins with the word `tag`; `None` if it is unknown or too short.
pub(super) fn parse_control(tag: u32, payload: &[u8]) -> Option<Control> {
    let mut p = Payload(payload);
    Some(match tag & !CONTROL_BIT {
        1 => {
            let (version, how) = (p.u32()?, p.u32()?);
            let origin = if how == 0 { Origin::Image } else { Origin::Fork };
            Control::Hello { version, origin, key: p.u64()?, pid: p.u32()?, path: p.text()? }
        }
        2 => Control::Segment(parse_segment(&mut p)?),
        4 => Control::Switch { tid: p.u32()? },
        5 => Control::ThreadStart { tid: p.u32()?, os_tid: p.u32()? },
        6 => Control::ThreadExit { tid: p.u32()? },
        7 => Control::KernelAccess { writes: p.u32()? != 0, addr: p.u64()?, len: p.u64()? },
        8 => Control::Mmap {
            addr: p.u64()?,
            len: p.u64()?,
            prot: p.u32()?,
            flags: p.u32()?,
            file_offset: p.u64()?,
            id: p.file_id()?,
            file: p.optional_text()?,
        },
        9 => Control::Munmap { addr: p.u64()?, len: p.u64()? },
        10 => Control::Mremap { old_addr: p.u64()?, old_len: p.u64()?, new_addr: p.u64()?, new_len: p.u64()? },
        11 => Control::Mprotect { addr: p.u64()?, len: p.u64()?, prot: p.u32()? },
        12 => Control::Madvise { addr: p.u64()?, len: p.u64()?, advice: p.u32()? },
        13 => Control::Brk { start: p.u64()?, end: p.u64()? },
        14 => Control::Fork { pid: p.u32()?, child: p.u64()?, shares: p.u32()? != 0 },
        15 => Control::ExecBegin { path: p.text()? },
        16 => Control::ExecFailed,
        17 => Control::Exit { code: p.u32()? },
        18 => Control::Waited { pid: p.u32()?, status: p.u32()? },
        19 => Control::Fault { pc: p.u64()?, record: p.0.to_vec() },
        20 => Control::ExecNative { reason: p.text()? },
        21 => Control::Msync { addr: p.u64()?, len: p.u64()?, flags: p.u32()? },
        22 => Control::Truncate { old_len: p.u64()?, new_len: p.u64()?, id: p.file_id()?, file: p.text()? },
        23 => Control::Wake { number: p.u32()? },
        24 => Control::Woken { number: p.u32()? },
        25 => Control::Allocated { addr: p.u64()?, len: p.u64()? },
        26 => Control::Freed { addr: p.u64()? },
        27 => Control::FileData { offset: p.u64()?, len: p.u64()?, id: p.file_id()?, file: p.text()? },
        28 => Control::FileHole { offset: p.u64()?, len: p.u64()?, id: p.file_id()?, file: p.text()? },
        29 => Control::RemoteAccess { pid: p.u32()?, writes: p.u32()? != 0, addr: p.u64()?, len: p.u64()? },
        30 => Control::Left { pc: p.u64()?, record: p.0.to_vec() },
        _ => return None,
    })
}

fn parse_segment(p: &mut Payload<'_>) -> Option<SegmentRecord> {
    let (number, tail, pieces, accesses) = (p.u32()?, p.u32()?, p.u16()?, p.u16()?);
    let pieces = (0..pieces).map(|_| Some(Piece { start: p.u64()?, len: p.u32()? })).collect::<Option<_>>()?;
    let accesses = (0..accesses)
        .map(|_| {
            Some(AccessRecord {
                pc: p.u64()?,
                gap: p.u32()?,
                size_bytes: p.u16()?,
                kind: p.u8()?,
                conditional: p.u8()? != 0,
                origin: parse_origin(p)?,
            })
        })
        .collect::<Option<_>>()?;
    let changed = p.u8()?;
    let registers = (0..changed)
        .map(|_| {
            let register = p.u8().filter(|register| usize::from(*register) < REGISTERS)?;
            Some((register, parse_origin(p)?))
        })
        .collect::<Option<_>>()?;
    let branch = match p.u8()? {
        0 => None,
        _ => Some(BranchRecord { fall_through: p.u64()?, origin: parse_origin(p)? }),
    };
    let transfer = match p.u8()? {
        0 => None,
        1 => Some(Transfer::Call),
        2 => Some(Transfer::Return),
        _ => return None,
    };
    Some(SegmentRecord { number, tail, pieces, accesses, registers, branch, transfer })
}

fn parse_origin(p: &mut Payload<'_>) -> Option<OriginRecord> {
    let origin = OriginRecord { back: p.u16()?, at_once: p.u8()? != 0, registers: p.u64()? };
    (origin.registers >> REGISTERS == 0 && (origin.registers == 0 || origin.is_early())).then_some(origin)
}

/// The canonical form of the address in the lower 6 bytes of `word`.
#[inline(always)]
pub(super) fn address(word: u64) -> u64 {
    ((word << 16) as i64 >> 16) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_canonical() {
        assert_eq!(address(0xabcd_7fff_1234_5678), 0x7fff_1234_5678);
        assert_eq!(address(0x0000_ffff_ff60_0000), 0xffff_ffff_ff60_0000);
    }

    #[test]
    fn short_or_unknown_records_are_refused() {
        let payload: Vec<u8> = [1u64, 2, 3, 4].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(
            parse_control(CONTROL_BIT | 10, &payload),
            Some(Control::Mremap { old_addr: 1, old_len: 2, new_addr: 3, new_len: 4 })
        );
        assert_eq!(parse_control(CONTROL_BIT | 10, &payload[..31]), None);
        assert_eq!(parse_control(CONTROL_BIT | 3, &payload), None);
        // A segment that announces more accesses than follow.
        let mut segment = 7u32.to_le_bytes().to_vec();
        segment.extend([0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(parse_control(CONTROL_BIT | 2, &segment), None);
    }
}
