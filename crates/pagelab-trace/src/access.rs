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

/// Who makes an access, and which load of the same thread it waits for.
///
/// In one byte: a window of a core's reorder buffer holds fewer accesses than its reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Maker(u8);

impl Maker {
    /// The program, with an address that depends on no load in reach, or on none that is known.
    pub const PROGRAM: Self = Self(0);
    /// The kernel, for the thread (system-call buffers, signal frames, exec).
    pub const KERNEL: Self = Self(u8::MAX);
    /// The farthest producer, in accesses of the thread, that can be told.
    pub const REACH: u64 = 254;

    /// The program, with an address that comes from what the thread loaded `distance` of its accesses before (1: by the access just
    /// before). [`Self::PROGRAM`] for 0, and beyond the reach.
    #[inline]
    pub const fn after(distance: u64) -> Self {
        if distance <= Self::REACH { Self(distance as u8) } else { Self::PROGRAM }
    }

    /// The kernel or the program.
    #[inline]
    pub const fn kernel_if(by_kernel: bool) -> Self {
        if by_kernel { Self::KERNEL } else { Self::PROGRAM }
    }

    /// Whether the kernel makes the access.
    #[inline(always)]
    pub const fn is_kernel(self) -> bool {
        self.0 == Self::KERNEL.0
    }

    /// Accesses of the thread back to the load that the address comes from; none if it waits for none.
    #[inline]
    pub const fn producer(self) -> Option<u64> {
        if self.0 == 0 || self.is_kernel() { None } else { Some(self.0 as u64) }
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
    /// What it does.
    pub kind: AccessKind,
    /// Who makes it, and what it waits for.
    pub maker: Maker,
}

const _: () = assert!(size_of::<Access>() == 24);

impl Access {
    /// A user access of `size_bytes` with `gap` 1 and no program counter.
    #[inline]
    pub fn new(kind: AccessKind, vaddr: u64, size_bytes: u16) -> Self {
        Self { vaddr, pc: 0, gap: 1, size_bytes, kind, maker: Maker::PROGRAM }
    }

    /// The same, with an address that comes from what its thread loaded `distance` accesses before.
    #[inline]
    pub const fn after(self, distance: usize) -> Self {
        Self { maker: Maker::after(distance as u64), ..self }
    }
}
