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
    /// Protection of data.
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

/// Flags of a mapping: the `MAP_*` bits of x86-64 Linux as the program passed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MapFlags(pub u32);

impl MapFlags {
    /// Stores are visible to all processes that map the file.
    pub const SHARED: u32 = 0x01;
    /// Stores go to private copies.
    pub const PRIVATE: u32 = 0x02;
    /// At exactly the requested address, replacing existing mappings.
    pub const FIXED: u32 = 0x10;
    /// Not backed by a file.
    pub const ANONYMOUS: u32 = 0x20;
    /// A stack, which grows towards lower addresses.
    pub const GROWSDOWN: u32 = 0x100;
    /// All pages are mapped immediately.
    pub const POPULATE: u32 = 0x8000;
    /// Backed by reserved huge pages.
    pub const HUGETLB: u32 = 0x40000;
    /// Not a bit of mmap(2), which ignores it. The program asks for a mapping of a file that a storage management unit
    /// serves (fast mmap).
    pub const FAST: u32 = 1 << 22;
    /// Not a bit of mmap(2). The file exists in memory only (tmpfs, `memfd_create`, System V), so a hole of it has no
    /// page. [`EventKind::FileData`] says where it has pages.
    pub const MEMORY_FILE: u32 = 1 << 24;
    /// Not a bit of mmap(2). The mapping belongs to a trace that also records the kernel, so the kernel's work is among
    /// the accesses. The replay maps the pages at once at no cost. For shared mappings of files.
    pub const RECORDED: u32 = 1 << 25;
    /// Not a bit of mmap(2). Generated workloads set it on memory that a real program would have written before the
    /// replayed part: a page gets its own frame even if it is read first.
    pub const WRITTEN_BEFORE: u32 = 1 << 31;

    /// Flags of private anonymous memory.
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
    /// A process exists from here on: the first one of a source (`parent` none, empty address space), or one whose
    /// parent was not recorded. Forked children begin with [`EventKind::Fork`].
    ProcessStart {
        /// The process that made it.
        parent: Option<ProcessIx>,
    },
    /// A mapping is created, replacing all mappings that it overlaps. Mappings that existed when the recording began
    /// are events at position 0.
    Mmap {
        /// First address, in bytes.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// What accesses are allowed.
        prot: Protection,
        /// Its flags.
        flags: MapFlags,
        /// Path of the file; none for anonymous memory.
        file: Option<Arc<str>>,
        /// Start offset in the file, in bytes.
        file_offset: u64,
    },
    /// The range is unmapped.
    Munmap {
        /// First address, in bytes.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// `old_len` bytes at `old_addr` became `new_len` at `new_addr` (equal addresses: resized in place).
    Mremap {
        /// Old start address.
        old_addr: u64,
        /// Old length in bytes.
        old_len: u64,
        /// New start address.
        new_addr: u64,
        /// New length in bytes.
        new_len: u64,
    },
    /// The protection of the range changes.
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
    /// Memory was allocated, in a context of the trace's call stacks; only in traces that have them. Not page-aligned.
    Allocated {
        /// The first byte.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// The call that allocated it ([`Context`](crate::calls::Context)).
        context: u32,
        /// Whether it is a mapping, which begins at the same time, rather than an allocator's block.
        mapping: bool,
    },
    /// A block is freed.
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
    /// A file changes its length from `old_len` to `new_len` bytes (`truncate(2)`, `ftruncate(2)`); not page-aligned.
    Truncate {
        /// Path of the file.
        file: Arc<str>,
        /// Old length in bytes.
        old_len: u64,
        /// New length in bytes.
        new_len: u64,
    },
    /// A file in memory has pages for these bytes from here on, for example after `write(2)`, or when it is mapped.
    FileData {
        /// Path of the file.
        file: Arc<str>,
        /// Start offset in the file, in bytes; not page-aligned.
        offset: u64,
        /// Length in bytes; not page-aligned.
        len: u64,
    },
    /// The whole pages of the range become a hole of the file (`fallocate(2)` with `FALLOC_FL_PUNCH_HOLE`,
    /// `MADV_REMOVE`). Private copies of its pages stay.
    FileHole {
        /// Path of the file.
        file: Arc<str>,
        /// Start offset in the file, in bytes; not page-aligned.
        offset: u64,
        /// Length in bytes; not page-aligned.
        len: u64,
    },
    /// The file system has moved `len` bytes of a file from `offset` on to other blocks (`EXT4_IOC_MOVE_EXT`, the
    /// cleaner of a log-structured file system). Programs do not notice it.
    Relocate {
        /// Path of the file.
        file: Arc<str>,
        /// Start offset in the file, in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The process enables or disables the fault engine of its kernel (`MFOE_enable`, `MFOE_disable`). Kernels without
    /// such an engine ignore it.
    EngineCall {
        /// Whether it enables the engine; otherwise it disables it.
        enable: bool,
    },
    /// The thread's access to `addr` faulted. The following accesses of the recorded kernel are its handler; the access
    /// itself comes after them.
    Fault {
        /// The address, in bytes; not page-aligned.
        addr: u64,
        /// Whether it is a store.
        write: bool,
    },
    /// The heap now spans `start..end` (`end` need not be page-aligned).
    Brk {
        /// Start of the heap.
        start: u64,
        /// End of the heap, exclusive.
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
    /// The event's thread begins; the first event of every thread, including a process's first thread.
    ThreadStart {
        /// The thread's number, as the system gave it.
        os_tid: u32,
    },
    /// The event's thread ends.
    ThreadExit,
    /// The thread is about to let others continue: it creates a thread, ends, or wakes waiters of a futex. Its work so
    /// far precedes the work that the others do after the [`EventKind::Woken`] of the same edge. The others need not
    /// have waited.
    Wake {
        /// Number of the edge, unique in the source.
        edge: u64,
    },
    /// The thread continues after the [`EventKind::Wake`] of this edge.
    Woken {
        /// The edge of the wake.
        edge: u64,
    },
    /// From here on most accesses of all threads are omitted. The following ones are the first read and the first write
    /// of each page.
    Skip,
    /// A skipped stretch ends; its counts cover all threads.
    Resume {
        /// Instructions of the stretch.
        instructions: u64,
        /// Accesses of the stretch that were omitted.
        accesses: u64,
    },
    /// The following accesses are measured, up to the next [`EventKind::Skip`]; those since [`EventKind::Resume`] warm
    /// up.
    Measure,
}

impl EventKind {
    /// Whether it reports an allocation, which does not change an address space.
    pub const fn reports_allocation(&self) -> bool {
        matches!(self, Self::Allocated { .. } | Self::Freed { .. })
    }

    /// Whether a stretch of all processes and threads begins with it, whatever process it names: a skipped, warming or
    /// measured one.
    pub const fn begins_stretch(&self) -> bool {
        matches!(self, Self::Skip | Self::Resume { .. } | Self::Measure)
    }
}

/// An event with its position in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of accesses of the whole source before it.
    pub position: u64,
    /// The process concerned.
    pub process: ProcessIx,
    /// The thread that caused it.
    pub thread: ThreadIx,
    /// What happened.
    pub kind: EventKind,
}
