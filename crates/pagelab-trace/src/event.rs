//! Changes of address spaces, processes and threads.

use std::sync::Arc;

/// A process of a source, numbered from 0 in order of appearance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessIx(pub u32);

/// A thread of a source, numbered from 0 in order of appearance over all its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadIx(pub u32);

/// Page protection, as in `mmap(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Protection {
    pub read: bool,
    pub write: bool,
    pub execute: bool,
}

impl Protection {
    pub const READ_WRITE: Self = Self { read: true, write: true, execute: false };

    /// From the `PROT_*` bits of Linux (read 1, write 2, execute 4); other bits are ignored.
    pub fn from_bits(bits: u32) -> Self {
        Self { read: bits & 1 != 0, write: bits & 2 != 0, execute: bits & 4 != 0 }
    }

    /// The `PROT_*` bits of Linux.
    pub fn bits(self) -> u32 {
        u32::from(self.read) | u32::from(self.write) << 1 | u32::from(self.execute) << 2
    }
}

/// How a mapping was made: the `MAP_*` bits of x86-64 Linux, kept as they were passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MapFlags(pub u32);

impl MapFlags {
    pub const SHARED: u32 = 0x01;
    pub const PRIVATE: u32 = 0x02;
    pub const FIXED: u32 = 0x10;
    pub const ANONYMOUS: u32 = 0x20;
    pub const GROWSDOWN: u32 = 0x100;
    pub const POPULATE: u32 = 0x8000;
    pub const HUGETLB: u32 = 0x40000;
    /// Not a bit of mmap(2): the kernel that makes the mapping is recorded, so what it does is among the accesses. Whoever
    /// replays it maps the pages at once, and spends nothing. For shared mappings of files.
    pub const RECORDED: u32 = 1 << 25;
    /// Not a bit of mmap(2). Generated workloads set it on memory that a real program would have written before the part
    /// that is replayed: a page gets a frame of its own even if it is read first.
    pub const WRITTEN_BEFORE: u32 = 1 << 31;

    pub fn anonymous_private() -> Self {
        Self(Self::PRIVATE | Self::ANONYMOUS)
    }

    pub fn contains(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

/// What happened. Addresses and lengths are in bytes and page-aligned unless stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A process exists from here on: the first one of a source (`parent` none, empty address space), or one
    /// whose parent was not recorded. Forked children come with [`EventKind::Fork`].
    ProcessStart {
        parent: Option<ProcessIx>,
    },
    /// A mapping appears, replacing whatever it overlaps. Mappings present when the recording began come as
    /// events at position 0.
    Mmap {
        addr: u64,
        len: u64,
        prot: Protection,
        flags: MapFlags,
        file: Option<Arc<str>>,
        file_offset: u64,
    },
    Munmap {
        addr: u64,
        len: u64,
    },
    /// `old_len` bytes at `old_addr` became `new_len` at `new_addr` (equal addresses: resized in place).
    Mremap {
        old_addr: u64,
        old_len: u64,
        new_addr: u64,
        new_len: u64,
    },
    Mprotect {
        addr: u64,
        len: u64,
        prot: Protection,
    },
    /// `advice` is the number passed to `madvise(2)`.
    Madvise {
        addr: u64,
        len: u64,
        advice: u32,
    },
    /// `flags` are the `MS_*` bits passed to `msync(2)`.
    Msync {
        addr: u64,
        len: u64,
        flags: u32,
    },
    /// A file has `new_len` bytes from here on, where it had `old_len` (`truncate(2)`, `ftruncate(2)`); not page-aligned.
    Truncate {
        file: Arc<str>,
        old_len: u64,
        new_len: u64,
    },
    /// The file system has moved `len` bytes of a file, from `offset` on, to other blocks (`EXT4_IOC_MOVE_EXT`, the cleaner of a
    /// log-structured file system). Programs do not see it.
    Relocate {
        file: Arc<str>,
        offset: u64,
        len: u64,
    },
    /// The thread's access to `addr` has met no translation that allows it, and the accesses of the recorded kernel that follow
    /// are its handler. The access itself comes after them.
    Fault {
        addr: u64,
        write: bool,
    },
    /// The heap now spans `start..end` (`end` need not be page-aligned).
    Brk {
        start: u64,
        end: u64,
    },
    /// `child` begins as a copy of the event's process.
    Fork {
        child: ProcessIx,
    },
    /// `child` begins in the address space of the event's process and shares it until one of them execs or exits
    /// (vfork(2), posix_spawn(3)).
    Vfork {
        child: ProcessIx,
    },
    /// The process dropped its address space; the mappings of the new image follow as `Mmap` events.
    Exec {
        path: Arc<str>,
    },
    /// The process ended.
    Exit {
        code: i32,
    },
    /// The event's thread begins; every thread's first event, the first thread's included.
    ThreadStart {
        os_tid: u32,
    },
    ThreadExit,
    /// The thread is about to let others go on: it makes one, ends, or wakes those that wait for a futex. What it has done
    /// comes before what those do after their [`EventKind::Woken`] of the same edge. Nobody need have waited.
    Wake {
        /// Its number, one of a kind in the source.
        edge: u64,
    },
    /// The thread goes on, let by the [`EventKind::Wake`] of this edge.
    Woken {
        edge: u64,
    },
    /// From here on most accesses of all threads are left out. Those that follow are the first read and the first write of each page.
    Skip,
    /// A skipped stretch of so many instructions ends, of all threads together, of which `accesses` were left out.
    Resume {
        instructions: u64,
        accesses: u64,
    },
    /// What follows is to be measured, up to the next [`EventKind::Skip`]; accesses since [`EventKind::Resume`] are for warming up.
    Measure,
}

/// An event at its place in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of accesses of the whole source that come before it.
    pub position: u64,
    pub process: ProcessIx,
    /// The thread that caused it.
    pub thread: ThreadIx,
    pub kind: EventKind,
}
