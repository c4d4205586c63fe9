//! The virtual memory areas of an address space: mapped ranges with their protection and backing.
//!
//! [`VmaSet`] follows the memory-management events of a trace and answers the first question of a page fault: whether
//! the address is mapped. It does not know page tables: every operation returns the [`VmaChange`]s that page tables and
//! TLBs have to follow.
//!
//! # Models
//! Linux's VMAs: split at the edges of a change, merged with equal neighbours; a stack that grows down on access; a
//! heap that follows `brk(2)`. Lengths are rounded up to whole pages as by the system calls.
//!
//! # Source
//! Linux 6.1 `mm/mmap.c` (`mmap_region`, `do_mas_align_munmap`, `vma_merge`, `expand_downwards`, `brk`),
//! `mm/mprotect.c`, `mm/mremap.c`, `mm/madvise.c`.
//!
//! # Parameters
//! [`StackLimits`]: bytes, defaults of Linux. `brk_alignment_bytes` of a layer: see `heap.rs`.
//!
//! # Deviations from the source
//! - The events of a trace are calls that succeeded, so limits (map count, address-space size, overcommit) are not
//!   enforced, and a change of a range with holes applies to its mapped parts.
//! - Neighbours are merged if protection, flags, kind, advice and accounting are equal and, if a file or shared memory
//!   backs them, their offsets are contiguous. Linux also compares `anon_vma` and, after a move, the page offset, and
//!   may then keep VMAs separate that are merged here. It merges the heap with an equal adjacent anonymous mapping,
//!   which stays separate here.
//! - Shared anonymous memory has no name, so two such mappings count as one object if their offsets are contiguous; the
//!   kernel model gives each its own offset.

mod apply;
mod heap;
mod set;

use std::ops::Range;
use std::sync::Arc;

use pagelab_trace::event::{MapFlags, Protection};

use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, VirtAddr};

pub use heap::{BrkCounters, check_brk_alignment};
pub use set::{StackLimits, VmaSet};

/// A range of whole 4 KiB pages, its end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VaRange {
    /// The first byte of the first page.
    pub start: VirtAddr,
    /// The first byte after the last page.
    pub end: VirtAddr,
}

impl VaRange {
    /// All addresses that can be mapped.
    pub const ALL: Self = Self { start: VirtAddr(0), end: VirtAddr(!(FRAME_BYTES - 1)) };

    /// The pages of `len_bytes` bytes from `addr`; `len_bytes` is rounded up to pages, as by system calls. Errors:
    /// `addr` is not page-aligned, or the range exceeds the end of the address space.
    /// Errors: `addr` is not page-aligned, or the range passes the end of the address space.
    pub fn from_bytes(addr: u64, len_bytes: u64) -> Result<Self, VmaError> {
        if !addr.is_multiple_of(FRAME_BYTES) {
            return Err(VmaError::Unaligned { addr });
        }
        let len = len_bytes.checked_next_multiple_of(FRAME_BYTES);
        let end = len.and_then(|len| addr.checked_add(len)).ok_or(VmaError::PastTheEnd { addr, len: len_bytes })?;
        Ok(Self { start: VirtAddr(addr), end: VirtAddr(end) })
    }

    /// Bytes of the range.
    pub fn len_bytes(self) -> u64 {
        self.end - self.start
    }

    /// Pages of 4 KiB in the range.
    pub fn pages(self) -> u64 {
        self.len_bytes() >> FRAME_SHIFT
    }

    /// Whether the range has no page.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether the address is in the range.
    #[inline]
    pub fn contains(self, addr: VirtAddr) -> bool {
        self.start <= addr && addr < self.end
    }

    /// Whether two ranges, neither of them empty, have a page in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The intersection; an empty one has `start == end`.
    fn intersection(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }

    /// The part of a room around `range` that another mapping, which does not overlap the range, leaves.
    fn room_beside(self, range: Self, other: Self) -> Self {
        if range.end <= other.start {
            Self { end: self.end.min(other.start), ..self }
        } else {
            Self { start: self.start.max(other.end), ..self }
        }
    }
}

/// Kind of a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VmaKind {
    /// Private memory (with `MAP_SHARED`: shared with forked children).
    Anonymous,
    /// A file from `file_offset` on; stores go to the file if the mapping is shared, otherwise to copies.
    File,
    /// The heap, which grows and shrinks by `brk(2)`.
    Heap,
    /// A stack, which grows down on access.
    Stack,
    /// Provided by the kernel (`[vdso]`, `[vvar]`, `[vsyscall]`).
    Special,
}

/// Advice of `madvise(2)` about huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum HugeAdvice {
    /// No advice: the system's setting decides.
    #[default]
    None,
    /// `MADV_HUGEPAGE`: large pages are wanted.
    Huge,
    /// `MADV_NOHUGEPAGE`: no large pages.
    NoHuge,
}

/// Advice of `madvise(2)` about the order of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OrderAdvice {
    /// `MADV_NORMAL`, or no advice.
    #[default]
    Normal,
    /// `MADV_RANDOM`: read-ahead is useless.
    Random,
    /// `MADV_SEQUENTIAL`: pages are read once, in order.
    Sequential,
}

/// Advice that stays with a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct VmaAdvice {
    /// About huge pages.
    pub huge: HugeAdvice,
    /// About the order of accesses.
    pub order: OrderAdvice,
    /// Forked children do not inherit the mapping.
    pub dont_fork: bool,
    /// Forked children inherit an empty mapping.
    pub wipe_on_fork: bool,
    /// Translated by the direct segment, and not merged with other mappings.
    pub direct_segment: bool,
    /// Made while the process did not have the fault engine, which does not serve it (no `VM_MFOE`).
    pub unserved: bool,
}

/// One virtual memory area: `start..end` in whole pages, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    /// The first byte of the first page.
    pub start: VirtAddr,
    /// The first byte after the last page.
    pub end: VirtAddr,
    /// The accesses that are allowed.
    pub prot: Protection,
    /// The flags of `mmap(2)` that describe the mapping, not the call.
    pub flags: MapFlags,
    /// Kind of the area.
    pub kind: VmaKind,
    /// Name of the file; `None` if the trace does not know it, or if there is no file.
    pub file: Option<Arc<str>>,
    /// Byte offset of `start` in the file or the shared memory; 0 for private memory without a file.
    pub file_offset: u64,
    /// Advice of `madvise(2)` about the area.
    pub advice: VmaAdvice,
    /// Whether memory was reserved for copies of all its pages; this stays when the area is no longer writable
    /// (`VM_ACCOUNT`).
    pub accounted: bool,
    /// Whether a fault has mapped an anonymous page in it, so that it has the structure that finds the mappings of such
    /// pages (`anon_vma`). Noted with `kernel.vma_fallbacks`.
    pub anon_vma: bool,
}

impl Vma {
    /// From `start` to `end`.
    #[inline]
    pub fn range(&self) -> VaRange {
        VaRange { start: self.start, end: self.end }
    }

    /// Whether the address is in the area.
    #[inline]
    pub fn contains(&self, addr: VirtAddr) -> bool {
        self.range().contains(addr)
    }

    /// Pages of 4 KiB, mapped or not.
    pub fn pages(&self) -> u64 {
        self.range().pages()
    }

    /// Number of the page at an address, in its file or object.
    pub fn file_page(&self, va: VirtAddr) -> u64 {
        (self.file_offset + (va.0 - self.start.0)) >> FRAME_SHIFT
    }

    /// Numbers of all its pages in its file.
    pub fn file_pages(&self) -> Range<u64> {
        let first = self.file_page(self.start);
        first..first + self.pages()
    }

    /// Whether forked children, and others that map the file, see its stores (`MAP_SHARED`).
    pub fn is_shared(&self) -> bool {
        self.flags.contains(MapFlags::SHARED)
    }

    /// Whether accesses below it may extend it, as a stack (`MAP_GROWSDOWN`).
    pub fn grows_down(&self) -> bool {
        self.flags.contains(MapFlags::GROWSDOWN)
    }

    /// Whether its pages are private memory without a file (`vma_is_anonymous`).
    pub fn is_anonymous(&self) -> bool {
        !matches!(self.kind, VmaKind::File | VmaKind::Special) && !self.is_shared()
    }

    /// Whether no memory was reserved for it (`MAP_NORESERVE`).
    pub fn reserves_nothing(&self) -> bool {
        self.flags.contains(apply::MAP_NORESERVE)
    }

    /// Reserves memory if the mapping, in its current state, may need it (`accountable_mapping`, `mprotect_fixup`).
    fn account(&mut self) {
        let elsewhere = self.is_shared() || self.flags.contains(MapFlags::HUGETLB) || self.reserves_nothing();
        self.accounted |= self.prot.write && !elsewhere;
    }

    fn is_accessible(&self) -> bool {
        self.prot.read || self.prot.write || self.prot.execute
    }

    /// Whether its offsets refer to an object that other mappings can see.
    fn has_offsets(&self) -> bool {
        self.kind == VmaKind::File || self.is_shared()
    }

    /// The same mapping over another range, which may begin before or end after this one.
    fn over(&self, range: VaRange) -> Self {
        let moved = range.start.0.wrapping_sub(self.start.0);
        let file_offset = if self.has_offsets() { self.file_offset.wrapping_add(moved) } else { self.file_offset };
        Self { start: range.start, end: range.end, file_offset, ..self.clone() }
    }

    /// The same mapping at another address.
    fn moved_to(mut self, start: VirtAddr) -> Self {
        self.end = start + self.range().len_bytes();
        self.start = start;
        if self.kind == VmaKind::Heap {
            // The heap is where brk(2) says; what is moved out of it is ordinary memory.
            self.kind = VmaKind::Anonymous;
        }
        self
    }

    /// Whether `next` can be merged with this VMA; see the deviations in the module's text.
    fn continues_in(&self, next: &Self) -> bool {
        let same = self.end == next.start
            && self.prot == next.prot
            && self.flags == next.flags
            && self.kind == next.kind
            && self.advice == next.advice
            && self.accounted == next.accounted;
        // Linux never merges VM_SPECIAL areas, which include those of huge-page files.
        let joinable = self.kind != VmaKind::Special && !self.flags.contains(MapFlags::HUGETLB);
        let expected_offset = self.file_offset.wrapping_add(self.range().len_bytes());
        let continuous = !self.has_offsets() || self.file == next.file && next.file_offset == expected_offset;
        same && joinable && continuous
    }
}

/// Advice about pages that does not change the VMAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageAdvice {
    /// `MADV_WILLNEED`: read ahead.
    WillNeed,
    /// `MADV_FREE`: the contents may be dropped when memory runs short, until the next write.
    Free,
    /// `MADV_REMOVE`: drop the contents and their backing store.
    Remove,
    /// `MADV_COLD`: candidates for reclaim.
    Cold,
    /// `MADV_PAGEOUT`: reclaim now.
    PageOut,
    /// `MADV_POPULATE_READ`: fault the pages in for reading.
    PopulateRead,
    /// `MADV_POPULATE_WRITE`: fault the pages in for writing.
    PopulateWrite,
    /// `MADV_COLLAPSE`: make huge pages now.
    Collapse,
}

/// Change of the VMAs that page tables, TLBs and frames have to follow, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmaChange {
    /// Newly mapped, without translations; with `populate` they are to be created at once.
    Mapped {
        /// The mapped pages.
        range: VaRange,
        /// Whether their translations are to be created at once.
        populate: bool,
    },
    /// Newly mapped by a recorded kernel: the pages are to be present at once.
    Recorded {
        /// The mapped pages.
        range: VaRange,
    },
    /// Unmapped, together with its translations.
    Unmapped {
        /// The unmapped piece in its old state.
        vma: Vma,
        /// From the mapping before all that was unmapped with it to the mapping behind that: tables in between are of
        /// no use.
        room: VaRange,
    },
    /// Translations stay but get another protection.
    Protected {
        /// The pages whose protection changes.
        range: VaRange,
        /// The old protection.
        from: Protection,
        /// The new protection.
        to: Protection,
    },
    /// Translations of `from` move to `to`, a range of the same length without translations.
    Moved {
        /// Old range of the pages.
        from: VaRange,
        /// New address of the first page.
        to: VirtAddr,
        /// As in [`VmaChange::Unmapped`], at the old address.
        room: VaRange,
    },
    /// Still mapped, but translations and private contents are discarded (`MADV_DONTNEED`).
    Discarded {
        /// The pages that are now empty.
        range: VaRange,
    },
    /// Still mapped; the kernel decides about the translations.
    Advised {
        /// The pages that the advice concerns.
        range: VaRange,
        /// The advice.
        advice: PageAdvice,
    },
}

/// An event that no kernel would have carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VmaError {
    /// An address that is not page-aligned.
    #[error("address {addr:#x} is not a multiple of the page size of 4096 bytes")]
    Unaligned {
        /// The address of the call.
        addr: u64,
    },
    /// A range that exceeds the address space.
    #[error("{len} bytes from {addr:#x} pass the end of the address space")]
    PastTheEnd {
        /// The address of the call.
        addr: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// An offset in a file that is not page-aligned.
    #[error("offset {offset:#x} in a file is not a multiple of the page size of 4096 bytes")]
    UnalignedOffset {
        /// The offset of the call, in bytes.
        offset: u64,
    },
    /// A range that exceeds the largest possible file.
    #[error("{len} bytes from offset {offset:#x} pass the end of any file")]
    PastTheEndOfFiles {
        /// The offset of the call, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    #[error(
        "the mapping at {addr:#x} is that of a recorded kernel (flag {:#x}), which must be MAP_SHARED and of a file",
        MapFlags::RECORDED
    )]
    /// A mapping of a recorded kernel, but without a shared file.
    RecordedWithoutFile {
        /// The address of the call.
        addr: u64,
    },
    /// An empty mapping.
    #[error("a mapping of 0 bytes at {addr:#x}: at least one byte is needed")]
    Empty {
        /// The address of the call.
        addr: u64,
    },
    /// A mremap(2) of an unmapped range.
    #[error("address {addr:#x} cannot be remapped: nothing is mapped there")]
    NotMapped {
        /// The address of the call.
        addr: u64,
    },
    /// A mremap(2) to a range that overlaps the old one.
    #[error("mappings cannot move from {old:#x} to {new:#x}: the two ranges overlap")]
    Overlap {
        /// Old address of the mappings.
        old: u64,
        /// New address of the mappings.
        new: u64,
    },
    /// A brk(2) below the heap's start.
    #[error("the heap cannot end at {end:#x}, before its start {start:#x}")]
    HeapEndsBeforeStart {
        /// Start of the heap.
        start: u64,
        /// Requested end.
        end: u64,
    },
}

#[cfg(test)]
#[path = "vma_tests.rs"]
mod tests;
