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
    /// Fetches an instruction; recorded at least once per code page, so that its page fault is replayed.
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

/// Who makes an access, and which load of the same thread its address depends on.
///
/// One byte: a core's reorder window holds fewer accesses than its reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Maker(u8);

impl Maker {
    /// A program's access whose address depends on no known load in reach.
    pub const PROGRAM: Self = Self(0);
    /// The kernel, for the thread (system-call buffers, signal frames, exec).
    pub const KERNEL: Self = Self(u8::MAX);
    /// The largest recordable distance to the producer, in accesses of the thread.
    pub const REACH: u64 = 254;

    /// A program's access whose address depends on what the thread loaded `distance` accesses before (1: the previous
    /// access). [`Self::PROGRAM`] for 0, and beyond the reach.
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

    /// Distance to the load that the address depends on, in accesses of the thread; none without a dependency.
    #[inline]
    pub const fn producer(self) -> Option<u64> {
        if self.0 == 0 || self.is_kernel() { None } else { Some(self.0 as u64) }
    }
}

/// The conditional branches that a thread executed between its last access and this one: their outcomes, and the load
/// that the conditions depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Branches {
    /// One bit per branch, the last branch in the lowest bit, below a leading 1; 0 without branches.
    outcomes: u8,
    /// Distance to the producer in accesses of the thread, from this one; 0: none in reach.
    producer: u8,
}

impl Branches {
    /// No branches.
    pub const NONE: Self = Self { outcomes: 0, producer: 0 };
    /// Number of outcomes that are kept; of a longer sequence only the last ones are known.
    pub const MOST: u32 = 7;

    /// From the two bytes in a trace; every value is valid.
    #[inline]
    pub const fn from_bytes(outcomes: u8, producer: u8) -> Self {
        Self { outcomes, producer }
    }

    /// The outcomes as stored in a trace: one bit per branch (1: taken), the last branch in the lowest bit, below a
    /// leading 1; 0 without branches.
    #[inline]
    pub const fn outcome_byte(self) -> u8 {
        self.outcomes
    }

    /// Distance to the load that the conditions depend on, in accesses of the thread, counted from the access after the
    /// branches; none if unknown or out of reach.
    #[inline]
    pub const fn producer(self) -> Option<u64> {
        if self.producer == 0 { None } else { Some(self.producer as u64) }
    }

    /// Appends a branch.
    #[inline]
    pub const fn push(&mut self, taken: bool) {
        let full = self.outcomes & 0x80;
        let before = if self.outcomes == 0 { 1 } else { self.outcomes };
        self.outcomes = before << 1 | taken as u8 | full;
    }

    /// Makes the branches depend on what the thread loaded `distance` accesses before; beyond the reach, on nothing.
    #[inline]
    pub const fn wait_for(&mut self, distance: u64) {
        self.producer = if distance <= Maker::REACH { distance as u8 } else { 0 };
    }

    /// Number of branches.
    #[inline]
    pub const fn count(self) -> u32 {
        if self.outcomes == 0 { 0 } else { 7 - self.outcomes.leading_zeros() }
    }

    /// The outcomes in order: whether each branch was taken.
    #[inline]
    pub fn outcomes(self) -> impl Iterator<Item = bool> {
        (0..self.count()).rev().map(move |bit| self.outcomes >> bit & 1 != 0)
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
    /// Load, store, modify or fetch.
    pub kind: AccessKind,
    /// Program or kernel, and the load that it depends on.
    pub maker: Maker,
}

const _: () = assert!(size_of::<Access>() == 24);

impl Access {
    /// A user access of `size_bytes` with `gap` 1 and no program counter.
    #[inline]
    pub fn new(kind: AccessKind, vaddr: u64, size_bytes: u16) -> Self {
        Self { vaddr, pc: 0, gap: 1, size_bytes, kind, maker: Maker::PROGRAM }
    }

    /// The same access with an address that depends on what its thread loaded `distance` accesses before.
    #[inline]
    pub const fn after(self, distance: usize) -> Self {
        Self { maker: Maker::after(distance as u64), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_keep_the_last_outcomes_in_order() {
        let mut branches = Branches::NONE;
        assert_eq!((branches.count(), branches.outcomes().count()), (0, 0));
        let all = [true, false, false, true, true, false, true, false, false, true];
        for (n, taken) in all.into_iter().enumerate() {
            branches.push(taken);
            let kept = (n + 1).min(Branches::MOST as usize);
            assert_eq!(branches.count() as usize, kept);
            assert_eq!(branches.outcomes().collect::<Vec<_>>(), all[n + 1 - kept..=n]);
        }
        for (distance, known) in [(0, None), (1, Some(1)), (Maker::REACH, Some(254)), (255, None), (u64::MAX, None)] {
            branches.wait_for(distance);
            assert_eq!(branches.producer(), known);
        }
    }
}
