//! An event as a row of plain columns, for Parquet, JSON and people.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::{Event, EventKind, MapFlags, ProcessIx, Protection, ThreadIx};

/// An event as `events-*.parquet` and `trace head` show it: a column without meaning for the kind is null.
///
/// | kind | columns with values, in addition to position, process and thread |
/// |---|---|
/// | `process_start` | `other_process` (parent), if there is one |
/// | `mmap` | `addr`, `len`, `prot`, `flags`, `file_offset`, and `file` if it maps one |
/// | `munmap` | `addr`, `len` |
/// | `mremap` | `addr`, `len` (new), `old_addr`, `old_len` |
/// | `mprotect` | `addr`, `len`, `prot` |
/// | `madvise` | `addr`, `len`, `argument` (advice) |
/// | `allocated` | `addr`, `len`, `flags` (1 for a mapping, 0 for an allocator's block), `argument` (context) |
/// | `freed` | `addr` |
/// | `msync` | `addr`, `len`, `flags` |
/// | `truncate` | `file`, `len` (new), `old_len` |
/// | `file_data`, `file_hole`, `relocate` | `file`, `file_offset`, `len` |
/// | `engine_call` | `argument` (1 to enable the fault engine, 0 to disable it) |
/// | `fault` | `addr`, `argument` (1 for a store, otherwise 0) |
/// | `brk` | `addr` (start of the heap), `len` |
/// | `fork`, `vfork` | `other_process` (child) |
/// | `exec` | `file` (path) |
/// | `exit` | `argument` (code) |
/// | `thread_start` | `argument` (the operating system's thread id) |
/// | `wake`, `woken` | `argument` (number of the edge) |
/// | `thread_exit`, `skip`, `measure` | none |
/// | `resume` | `argument` (skipped instructions), `len` (omitted accesses) |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// Accesses of the whole trace before the event.
    pub position: u64,
    /// Dense process number.
    pub process: u32,
    /// Dense thread number.
    pub thread: u32,
    /// The format's name of the kind; see the table.
    pub kind: &'static str,
    /// First byte of the range, or the address of the fault.
    pub addr: Option<u64>,
    /// Bytes of the range or of the file; for `resume`, a number of accesses.
    pub len: Option<u64>,
    /// First byte of the old range of `mremap`.
    pub old_addr: Option<u64>,
    /// Old length of the range or the file, in bytes.
    pub old_len: Option<u64>,
    /// `PROT_*` bits.
    pub prot: Option<u32>,
    /// `MAP_*` bits, or `MS_*` bits.
    pub flags: Option<u32>,
    /// Path of the file that is mapped, changed or executed.
    #[serde(serialize_with = "as_text")]
    pub file: Option<Arc<str>>,
    /// File offset of the range's first byte.
    pub file_offset: Option<u64>,
    /// Dense number of the parent or the child.
    pub other_process: Option<u32>,
    /// Another value, depending on the kind; see the table.
    pub argument: Option<i64>,
}

fn as_text<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(serializer)
}

/// The names of all kinds; [`EventRow::kind`] refers to one of them.
const KINDS: [&str; 27] = [
    "process_start",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "allocated",
    "freed",
    "msync",
    "truncate",
    "file_data",
    "file_hole",
    "relocate",
    "engine_call",
    "fault",
    "brk",
    "fork",
    "vfork",
    "exec",
    "exit",
    "thread_start",
    "thread_exit",
    "wake",
    "woken",
    "skip",
    "resume",
    "measure",
];

impl EventRow {
    /// The format's name of a kind of event.
    pub(super) fn kind_of(kind: &EventKind) -> &'static str {
        match kind {
            EventKind::ProcessStart { .. } => "process_start",
            EventKind::Mmap { .. } => "mmap",
            EventKind::Munmap { .. } => "munmap",
            EventKind::Mremap { .. } => "mremap",
            EventKind::Mprotect { .. } => "mprotect",
            EventKind::Madvise { .. } => "madvise",
            EventKind::Allocated { .. } => "allocated",
            EventKind::Freed { .. } => "freed",
            EventKind::Msync { .. } => "msync",
            EventKind::Truncate { .. } => "truncate",
            EventKind::FileData { .. } => "file_data",
            EventKind::FileHole { .. } => "file_hole",
            EventKind::Relocate { .. } => "relocate",
            EventKind::EngineCall { .. } => "engine_call",
            EventKind::Fault { .. } => "fault",
            EventKind::Brk { .. } => "brk",
            EventKind::Fork { .. } => "fork",
            EventKind::Vfork { .. } => "vfork",
            EventKind::Exec { .. } => "exec",
            EventKind::Exit { .. } => "exit",
            EventKind::ThreadStart { .. } => "thread_start",
            EventKind::ThreadExit => "thread_exit",
            EventKind::Wake { .. } => "wake",
            EventKind::Woken { .. } => "woken",
            EventKind::Skip => "skip",
            EventKind::Resume { .. } => "resume",
            EventKind::Measure => "measure",
        }
    }

    /// The format's own copy of `name`; none if there is no such kind.
    pub(super) fn known_kind(name: &[u8]) -> Option<&'static str> {
        KINDS.into_iter().find(|kind| kind.as_bytes() == name)
    }

    /// The event of this row; on error, what is missing or out of range.
    pub(super) fn into_event(self) -> Result<Event, String> {
        let kind = self.kind;
        let missing = move |column: &str| format!("{kind} without {column}");
        let addr = self.addr.ok_or_else(|| missing("addr"));
        let len = self.len.ok_or_else(|| missing("len"));
        let flags = self.flags.ok_or_else(|| missing("flags"));
        let file = self.file.clone().ok_or_else(|| missing("file"));
        let file_offset = self.file_offset.ok_or_else(|| missing("file_offset"));
        let old_len = self.old_len.ok_or_else(|| missing("old_len"));
        let prot = self.prot.map(Protection::from_bits).ok_or_else(|| missing("prot"));
        let argument = self.argument.ok_or_else(|| missing("argument"));
        let out_of_range = move |value: i64| format!("{kind} with argument {value}");
        let unsigned = argument.clone().and_then(|v| u32::try_from(v).map_err(|_| out_of_range(v)));
        let flag = unsigned.clone().and_then(|v| match v {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(out_of_range(other.into())),
        });
        let edge = argument.clone().map(i64::cast_unsigned);
        let count = argument.clone().and_then(|v| u64::try_from(v).map_err(|_| out_of_range(v)));
        let signed = argument.and_then(|v| i32::try_from(v).map_err(|_| out_of_range(v)));
        let kind = match kind {
            "process_start" => EventKind::ProcessStart { parent: self.other_process.map(ProcessIx) },
            "mmap" => EventKind::Mmap {
                addr: addr?,
                len: len?,
                prot: prot?,
                flags: MapFlags(flags?),
                file: self.file,
                file_offset: file_offset?,
            },
            "munmap" => EventKind::Munmap { addr: addr?, len: len? },
            "mremap" => EventKind::Mremap {
                old_addr: self.old_addr.ok_or_else(|| missing("old_addr"))?,
                old_len: old_len?,
                new_addr: addr?,
                new_len: len?,
            },
            "mprotect" => EventKind::Mprotect { addr: addr?, len: len?, prot: prot? },
            "madvise" => EventKind::Madvise { addr: addr?, len: len?, advice: unsigned? },
            "allocated" => EventKind::Allocated {
                addr: addr?,
                len: len?,
                context: unsigned?,
                mapping: match flags? {
                    0 => false,
                    1 => true,
                    other => return Err(format!("{kind} with flags {other}")),
                },
            },
            "freed" => EventKind::Freed { addr: addr? },
            "msync" => EventKind::Msync { addr: addr?, len: len?, flags: flags? },
            "truncate" => EventKind::Truncate { file: file?, old_len: old_len?, new_len: len? },
            "file_data" => EventKind::FileData { file: file?, offset: file_offset?, len: len? },
            "file_hole" => EventKind::FileHole { file: file?, offset: file_offset?, len: len? },
            "relocate" => EventKind::Relocate { file: file?, offset: file_offset?, len: len? },
            "engine_call" => EventKind::EngineCall { enable: flag? },
            "fault" => EventKind::Fault { addr: addr?, write: flag? },
            "brk" => {
                let start = addr?;
                EventKind::Brk { start, end: start.wrapping_add(len?) }
            }
            "fork" => EventKind::Fork { child: ProcessIx(self.other_process.ok_or_else(|| missing("other_process"))?) },
            "vfork" => {
                EventKind::Vfork { child: ProcessIx(self.other_process.ok_or_else(|| missing("other_process"))?) }
            }
            "exec" => EventKind::Exec { path: file? },
            "exit" => EventKind::Exit { code: signed? },
            "thread_start" => EventKind::ThreadStart { os_tid: unsigned? },
            "thread_exit" => EventKind::ThreadExit,
            "wake" => EventKind::Wake { edge: edge? },
            "woken" => EventKind::Woken { edge: edge? },
            "skip" => EventKind::Skip,
            "resume" => EventKind::Resume { instructions: count?, accesses: len? },
            "measure" => EventKind::Measure,
            other => return Err(format!("unknown kind {other:?}")),
        };
        Ok(Event { position: self.position, process: ProcessIx(self.process), thread: ThreadIx(self.thread), kind })
    }
}

impl From<&Event> for EventRow {
    fn from(event: &Event) -> Self {
        let mut row = Self {
            position: event.position,
            process: event.process.0,
            thread: event.thread.0,
            kind: Self::kind_of(&event.kind),
            ..Self::default()
        };
        match &event.kind {
            EventKind::ProcessStart { parent } => row.other_process = parent.map(|p| p.0),
            EventKind::Mmap { addr, len, prot, flags, file, file_offset } => {
                (row.addr, row.len) = (Some(*addr), Some(*len));
                (row.prot, row.flags) = (Some(prot.bits()), Some(flags.0));
                (row.file, row.file_offset) = (file.clone(), Some(*file_offset));
            }
            EventKind::Munmap { addr, len } => (row.addr, row.len) = (Some(*addr), Some(*len)),
            EventKind::Mremap { old_addr, old_len, new_addr, new_len } => {
                (row.addr, row.len) = (Some(*new_addr), Some(*new_len));
                (row.old_addr, row.old_len) = (Some(*old_addr), Some(*old_len));
            }
            EventKind::Mprotect { addr, len, prot } => {
                (row.addr, row.len, row.prot) = (Some(*addr), Some(*len), Some(prot.bits()));
            }
            EventKind::Madvise { addr, len, advice } => {
                (row.addr, row.len, row.argument) = (Some(*addr), Some(*len), Some(i64::from(*advice)));
            }
            EventKind::Allocated { addr, len, context, mapping } => {
                (row.addr, row.len, row.flags) = (Some(*addr), Some(*len), Some(u32::from(*mapping)));
                row.argument = Some(i64::from(*context));
            }
            EventKind::Freed { addr } => row.addr = Some(*addr),
            EventKind::Msync { addr, len, flags } => {
                (row.addr, row.len, row.flags) = (Some(*addr), Some(*len), Some(*flags));
            }
            EventKind::Truncate { file, old_len, new_len } => {
                (row.file, row.len, row.old_len) = (Some(file.clone()), Some(*new_len), Some(*old_len));
            }
            EventKind::FileData { file, offset, len }
            | EventKind::FileHole { file, offset, len }
            | EventKind::Relocate { file, offset, len } => {
                (row.file, row.file_offset, row.len) = (Some(file.clone()), Some(*offset), Some(*len));
            }
            EventKind::EngineCall { enable } => row.argument = Some(i64::from(*enable)),
            EventKind::Fault { addr, write } => (row.addr, row.argument) = (Some(*addr), Some(i64::from(*write))),
            // Wrapping, so that even a nonsensical pair can be restored.
            EventKind::Brk { start, end } => (row.addr, row.len) = (Some(*start), Some(end.wrapping_sub(*start))),
            EventKind::Fork { child } | EventKind::Vfork { child } => row.other_process = Some(child.0),
            EventKind::Exec { path } => row.file = Some(path.clone()),
            EventKind::Exit { code } => row.argument = Some(i64::from(*code)),
            EventKind::ThreadStart { os_tid } => row.argument = Some(i64::from(*os_tid)),
            // All 64 bits, so that any number can be restored.
            EventKind::Wake { edge } | EventKind::Woken { edge } => row.argument = Some(edge.cast_signed()),
            EventKind::Resume { instructions, accesses } => {
                row.argument = Some(i64::try_from(*instructions).unwrap_or(i64::MAX));
                row.len = Some(*accesses);
            }
            EventKind::ThreadExit | EventKind::Skip | EventKind::Measure => {}
        }
        row
    }
}
