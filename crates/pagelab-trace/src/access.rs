//! One memory access.

/// What an access does. The numbers are the trace format's (column `kind`) and never change meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AccessKind {
    /// Reads memory.
    Load = 0,
    /// Writes memory.
    Store = 1,
    /// Reads and writes the same bytes in one instruction (`add mem, reg`, atomics).
    Modify = 2,
    /// Fetches an instruction; recorded once a code page at least, so that its page fault is replayed.
    Fetch = 3,
}

impl AccessKind {
    /// The kind with this number in the trace format, `None` if there is none.
    #[inline]
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Load),
            1 => Some(Self::Store),
            2 => Some(Self::Modify),
            3 => Some(Self::Fetch),
            _ => None,
        }
    }

    /// True for accesses that need write permission.
    #[inline]
    pub fn writes(self) -> bool {
        matches!(self, Self::Store | Self::Modify)
    }
}

/// One memory access of one thread; 24 bytes, so that a batch stays in the host's caches.
///
/// An access may cross a cache line or a page; the engine splits it. `size_bytes` is 1 to 4096 (system-call
/// buffers are recorded page by page); importers cut longer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Access {
    /// Virtual address of the first byte.
    pub vaddr: u64,
    /// Virtual address of the instruction; 0 if unknown.
    pub pc: u64,
    /// Instructions that the thread retired since its last access, this access's own included: an instruction's
    /// second access has 0, so the sum over a thread is its instruction count.
    pub gap: u32,
    /// Bytes accessed.
    pub size_bytes: u16,
    pub kind: AccessKind,
    /// True if the kernel made the access for the thread (system-call buffers, signal frames, exec).
    pub by_kernel: bool,
}

const _: () = assert!(size_of::<Access>() == 24);

impl Access {
    /// A user access of `size_bytes` with `gap` 1 and no program counter.
    #[inline]
    pub fn new(kind: AccessKind, vaddr: u64, size_bytes: u16) -> Self {
        Self { vaddr, pc: 0, gap: 1, size_bytes, kind, by_kernel: false }
    }
}
