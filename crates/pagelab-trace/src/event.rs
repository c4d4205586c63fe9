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
    /// Loads are allowed.
    pub read: bool,
    /// Stores are allowed.
    pub write: bool,
    /// Fetches are allowed.
    pub execute: bool,
}

impl Protection {
    /// Of data.
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
    /// Stores are seen by all who map the file.
    pub const SHARED: u32 = 0x01;
    /// Stores go to copies.
    pub const PRIVATE: u32 = 0x02;
    /// At the address that was asked for, whatever is there.
    pub const FIXED: u32 = 0x10;
    /// Of no file.
    pub const ANONYMOUS: u32 = 0x20;
    /// A stack, which grows towards lower addresses.
    pub const GROWSDOWN: u32 = 0x100;
    /// All pages are mapped at once.
    pub const POPULATE: u32 = 0x8000;
    /// Of huge pages that are set aside.
    pub const HUGETLB: u32 = 0x40000;
    /// Not a bit of mmap(2): the kernel that makes the mapping is recorded, so what it does is among the accesses.
    /// Whoever replays it maps the pages at once, and spends nothing. For shared mappings of files.
    pub const RECORDED: u32 = 1 << 25;
    /// Not a bit of mmap(2). Generated workloads set it on memory that a real program would have written before the
    /// part that is replayed: a page gets a frame of its own even if it is read first.
    pub const WRITTEN_BEFORE: u32 = 1 << 31;

    /// Those of memory of the process's own.
    pub fn anonymous_private() -> Self {
        Self(Self::PRIVATE | Self::ANONYMOUS)
    }

    /// Whether all of these bits are set.
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
        /// The process that made it.
        parent: Option<ProcessIx>,
    },
    /// A mapping appears, replacing whatever it overlaps. Mappings present when the recording began come as
    /// events at position 0.
    Mmap {
        /// First address, in bytes.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// What accesses are allowed.
        prot: Protection,
        /// How it was made.
        flags: MapFlags,
        /// Path of the file; none of anonymous memory.
        file: Option<Arc<str>>,
        /// Where in the file it begins, in bytes.
        file_offset: u64,
    },
    /// What is mapped in the range is gone.
    Munmap {
        /// First address, in bytes.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// `old_len` bytes at `old_addr` became `new_len` at `new_addr` (equal addresses: resized in place).
    Mremap {
        /// Where it was.
        old_addr: u64,
        /// Its length until then, in bytes.
        old_len: u64,
        /// Where it is from here on.
        new_addr: u64,
        /// Its length from here on, in bytes.
        new_len: u64,
    },
    /// The protection of what is mapped in the range changes.
    Mprotect {
        /// First address, in bytes.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// What accesses are allowed.
        prot: Protection,
    },
    /// `advice` is the number passed to `madvise(2)`.
    Madvise {
        /// First address, in bytes.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// `MADV_*`.
        advice: u32,
    },
    /// Memory was allocated, in a context of the trace's call stacks; only of traces that have them. Not page-aligned.
    Allocated {
        /// The first byte.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// The call that allocated it ([`Context`](crate::calls::Context)).
        context: u32,
        /// It is a mapping, which begins at the same time, and no block of an allocator.
        mapping: bool,
    },
    /// A block goes back to its allocator.
    Freed {
        /// The first byte; not page-aligned.
        addr: u64,
    },
    /// `flags` are the `MS_*` bits passed to `msync(2)`.
    Msync {
        /// First address, in bytes.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// `MS_*`.
        flags: u32,
    },
    /// A file has `new_len` bytes from here on, where it had `old_len` (`truncate(2)`, `ftruncate(2)`); not
    /// page-aligned.
    Truncate {
        /// Path of the file.
        file: Arc<str>,
        /// Its length until then, in bytes.
        old_len: u64,
        /// Its length from here on, in bytes.
        new_len: u64,
    },
    /// The file system has moved `len` bytes of a file, from `offset` on, to other blocks (`EXT4_IOC_MOVE_EXT`, the
    /// cleaner of a log-structured file system). Programs do not see it.
    Relocate {
        /// Path of the file.
        file: Arc<str>,
        /// Where in the file it begins, in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The thread's access to `addr` has met no translation that allows it, and the accesses of the recorded kernel
    /// that follow are its handler. The access itself comes after them.
    Fault {
        /// The address, in bytes; not page-aligned.
        addr: u64,
        /// Whether it is a store.
        write: bool,
    },
    /// The heap now spans `start..end` (`end` need not be page-aligned).
    Brk {
        /// Where the heap begins.
        start: u64,
        /// Where it ends; not in it.
        end: u64,
    },
    /// `child` begins as a copy of the event's process.
    Fork {
        /// The process that begins.
        child: ProcessIx,
    },
    /// `child` begins in the address space of the event's process and shares it until one of them execs or exits
    /// (vfork(2), posix_spawn(3)).
    Vfork {
        /// The process that begins.
        child: ProcessIx,
    },
    /// The process dropped its address space; the mappings of the new image follow as `Mmap` events.
    Exec {
        /// Path of the program.
        path: Arc<str>,
    },
    /// The process ended.
    Exit {
        /// Its exit code.
        code: i32,
    },
    /// The event's thread begins; every thread's first event, the first thread's included.
    ThreadStart {
        /// The thread's number, as the system gave it.
        os_tid: u32,
    },
    /// The event's thread ends.
    ThreadExit,
    /// The thread is about to let others go on: it makes one, ends, or wakes those that wait for a futex. What it has
    /// done comes before what those do after their [`EventKind::Woken`] of the same edge. Nobody need have waited.
    Wake {
        /// Its number, one of a kind in the source.
        edge: u64,
    },
    /// The thread goes on, let by the [`EventKind::Wake`] of this edge.
    Woken {
        /// The number of its wake.
        edge: u64,
    },
    /// From here on most accesses of all threads are left out. Those that follow are the first read and the first write
    /// of each page.
    Skip,
    /// A skipped stretch with this many instructions ends, of all threads together, of which `accesses` were left out.
    Resume {
        /// Instructions of the stretch.
        instructions: u64,
        /// Accesses of it that were left out.
        accesses: u64,
    },
    /// What follows is to be measured, up to the next [`EventKind::Skip`]; accesses since [`EventKind::Resume`] are for
    /// warming up.
    Measure,
}

impl EventKind {
    /// Whether it tells of allocations, which changes nothing in an address space.
    pub const fn is_of_allocations(&self) -> bool {
        matches!(self, Self::Allocated { .. } | Self::Freed { .. })
    }

    /// Whether a stretch begins with it, of all processes and threads, whichever it names: one that is skipped, warms
    /// up or is measured.
    pub const fn begins_stretch(&self) -> bool {
        matches!(self, Self::Skip | Self::Resume { .. } | Self::Measure)
    }
}

/// An event at its place in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of accesses of the whole source that come before it.
    pub position: u64,
    /// The process that it happened to.
    pub process: ProcessIx,
    /// The thread that caused it.
    pub thread: ThreadIx,
    /// What happened.
    pub kind: EventKind,
}
