//! The virtual memory areas of an address space: what is mapped where, with which protection, backed by what.
//!
//! [`VmaSet`] follows the memory-management events of a trace and answers a page fault's first question, whether the
//! address is mapped. It knows nothing of page tables: every operation returns the [`Change`]s by which page
//! tables and TLBs have to follow.
//!
//! # Models
//! Linux's VMAs: cut at the edges of a change, joined with equal neighbours, a stack that grows down on access, a heap
//! that follows `brk(2)`. Lengths are rounded up to whole pages as the system calls do.
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
//!   enforced, and a change of a range with holes applies to what is mapped there.
//! - Neighbours join if protection, flags, kind, advice and accounting are equal and, if a file or shared memory backs
//!   them, they continue each other in it. Linux also looks at `anon_vma` and, after a move, at the page offset, and
//!   may then keep apart what is joined here; it joins the heap with an equal anonymous mapping beside it, which stays
//!   apart here.
//! - Shared anonymous memory has no name, so two such mappings count as one object if their offsets continue; the
//!   kernel model gives each an offset of its own.

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
    /// The first byte behind the last page.
    pub end: VirtAddr,
}

impl VaRange {
    /// Whatever can be mapped.
    pub const ALL: Self = Self { start: VirtAddr(0), end: VirtAddr(!(FRAME_BYTES - 1)) };

    /// The pages of the `len_bytes` bytes from `addr`: `len_bytes` is rounded up to pages, as system calls do.
    /// Errors: `addr` is not page-aligned, or the range passes the end of the address space.
    pub fn of_bytes(addr: u64, len_bytes: u64) -> Result<Self, VmaError> {
        if !addr.is_multiple_of(FRAME_BYTES) {
            return Err(VmaError::Unaligned { addr });
        }
        let len = len_bytes.checked_next_multiple_of(FRAME_BYTES);
        let end = len.and_then(|len| addr.checked_add(len)).ok_or(VmaError::PastTheEnd { addr, len: len_bytes })?;
        Ok(Self { start: VirtAddr(addr), end: VirtAddr(end) })
    }

    /// Bytes of the range.
    pub fn len_bytes(self) -> u64 {
        self.end.0 - self.start.0
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

    /// The common part; empty ranges come out as `start == end`.
    fn intersection(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self { start, end: self.end.min(other.end).max(start) }
    }
}

/// What a VMA holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VmaKind {
    /// Memory of its own (with `MAP_SHARED`: shared with forked children).
    Anonymous,
    /// A file from `file_offset` on; stores go to it if the mapping is shared, else to copies.
    File,
    /// Grown and shrunk by `brk(2)`.
    Heap,
    /// Grows down on access.
    Stack,
    /// Provided by the kernel (`[vdso]`, `[vvar]`, `[vsyscall]`).
    Special,
}

/// What `madvise(2)` said about huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum HugeAdvice {
    /// Nothing was said: the system's setting decides.
    #[default]
    None,
    /// `MADV_HUGEPAGE`: large pages are welcome.
    Huge,
    /// `MADV_NOHUGEPAGE`: none are.
    NoHuge,
}

/// What `madvise(2)` said about the order of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OrderAdvice {
    /// `MADV_NORMAL`, also where nothing was said.
    #[default]
    Normal,
    /// `MADV_RANDOM`: reading ahead is no use.
    Random,
    /// `MADV_SEQUENTIAL`: pages are read once, in order.
    Sequential,
}

/// The advice that stays with a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct VmaAdvice {
    /// About huge pages.
    pub huge: HugeAdvice,
    /// About the order of accesses.
    pub order: OrderAdvice,
    /// Forked children do not get the mapping.
    pub dont_fork: bool,
    /// Forked children find the mapping empty.
    pub wipe_on_fork: bool,
    /// Translated by the direct segment, and not joined to what is not.
    pub direct_segment: bool,
}

/// One virtual memory area: `start..end` in whole pages, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    /// The first byte of the first page.
    pub start: VirtAddr,
    /// The first byte behind the last page.
    pub end: VirtAddr,
    /// The accesses that are allowed.
    pub prot: Protection,
    /// Of the bits passed to `mmap(2)` those that describe the mapping, not the call.
    pub flags: MapFlags,
    /// What the area holds.
    pub kind: VmaKind,
    /// `None` if the trace does not know the name, or there is no file.
    pub file: Option<Arc<str>>,
    /// Byte offset of `start` in the file or the shared memory; 0 for private memory without a file.
    pub file_offset: u64,
    /// What `madvise(2)` said about the area.
    pub advice: VmaAdvice,
    /// Memory was set aside for copies of all its pages, and stays so when it is no longer writable (`VM_ACCOUNT`).
    pub accounted: bool,
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

    /// Number in its file (or its object) of the page at an address of it.
    pub fn file_page(&self, va: VirtAddr) -> u64 {
        (self.file_offset + (va.0 - self.start.0)) >> FRAME_SHIFT
    }

    /// Numbers in its file of all its pages.
    pub fn file_pages(&self) -> Range<u64> {
        let first = self.file_page(self.start);
        first..first + self.pages()
    }

    /// Whether forked children, and others that map the file, see stores (`MAP_SHARED`).
    pub fn is_shared(&self) -> bool {
        self.flags.contains(MapFlags::SHARED)
    }

    /// Whether accesses below it may extend it (`MAP_GROWSDOWN`), as a stack.
    pub fn grows_down(&self) -> bool {
        self.flags.contains(MapFlags::GROWSDOWN)
    }

    /// Nothing was set aside for it (`MAP_NORESERVE`).
    pub fn reserves_nothing(&self) -> bool {
        self.flags.contains(apply::MAP_NORESERVE)
    }

    /// Sets memory aside if the mapping, as it now is, may come to need it (`accountable_mapping`, `mprotect_fixup`).
    fn account(&mut self) {
        let elsewhere = self.is_shared() || self.flags.contains(MapFlags::HUGETLB) || self.reserves_nothing();
        self.accounted |= self.prot.write && !elsewhere;
    }

    fn is_accessible(&self) -> bool {
        self.prot.read || self.prot.write || self.prot.execute
    }

    /// Whether a place in it is also a place in something that other mappings can see.
    fn has_offsets(&self) -> bool {
        self.kind == VmaKind::File || self.is_shared()
    }

    /// The same mapping over another range, which may begin before or end behind this one.
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
            // The heap is where brk says; what is moved out of it is ordinary memory.
            self.kind = VmaKind::Anonymous;
        }
        self
    }

    /// Whether `next` can be joined to the end of this VMA; see the deviations in the module's text.
    fn continues_in(&self, next: &Self) -> bool {
        let same = self.end == next.start
            && self.prot == next.prot
            && self.flags == next.flags
            && self.kind == next.kind
            && self.advice == next.advice
            && self.accounted == next.accounted;
        // Linux never joins VM_SPECIAL areas, which include those of huge-page files.
        let joinable = self.kind != VmaKind::Special && !self.flags.contains(MapFlags::HUGETLB);
        let expected_offset = self.file_offset.wrapping_add(self.range().len_bytes());
        let continuous = !self.has_offsets() || self.file == next.file && next.file_offset == expected_offset;
        same && joinable && continuous
    }
}

/// Advice on pages that leaves the VMAs as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageAdvice {
    /// `MADV_WILLNEED`: read ahead.
    WillNeed,
    /// `MADV_FREE`: the contents may be dropped when memory runs short, until the next write.
    Free,
    /// `MADV_REMOVE`: drop the contents and their backing store.
    Remove,
    /// `MADV_COLD`: first candidates of reclaim.
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

/// How page tables, TLBs and frames have to follow a change of the VMAs, to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Newly mapped, without translations; `populate` asks for them to be made at once.
    Mapped {
        /// The pages that are mapped.
        range: VaRange,
        /// Whether their translations are to be made at once.
        populate: bool,
    },
    /// Newly mapped by a kernel that is recorded: the pages are to be there at once.
    Recorded {
        /// The pages that are mapped.
        range: VaRange,
    },
    /// The piece is gone and its translations with it.
    Unmapped {
        /// The piece as it was.
        vma: Vma,
    },
    /// Translations stay but get another protection.
    Protected {
        /// The pages whose protection changes.
        range: VaRange,
        /// The protection before.
        from: Protection,
        /// The protection from now on.
        to: Protection,
    },
    /// Translations of `from` now belong at `to`, same length, which has none.
    Moved {
        /// Where the pages were.
        from: VaRange,
        /// Where the first of them is from now on.
        to: VirtAddr,
    },
    /// Still mapped, but the translations and private contents are gone (`MADV_DONTNEED`).
    Discarded {
        /// The pages that are empty now.
        range: VaRange,
    },
    /// Still mapped, translations are up to the kernel.
    Advised {
        /// The pages that the advice is about.
        range: VaRange,
        /// What the program said about them.
        advice: PageAdvice,
    },
}

/// An event that no kernel would have carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VmaError {
    /// An address that no page begins at.
    #[error("address {addr:#x} is not a multiple of the page size of 4096 bytes")]
    Unaligned {
        /// The address of the call.
        addr: u64,
    },
    /// A range that ends where no address is.
    #[error("{len} bytes from {addr:#x} pass the end of the address space")]
    PastTheEnd {
        /// The address of the call.
        addr: u64,
        /// Bytes that it asks for.
        len: u64,
    },
    /// An offset in a file that no page begins at.
    #[error("offset {offset:#x} in a file is not a multiple of the page size of 4096 bytes")]
    UnalignedOffset {
        /// The offset of the call, in bytes.
        offset: u64,
    },
    /// A range that ends where no file can reach.
    #[error("{len} bytes from offset {offset:#x} pass the end of any file")]
    PastTheEndOfFiles {
        /// The offset of the call, in bytes.
        offset: u64,
        /// Bytes that it asks for.
        len: u64,
    },
    #[error(
        "the mapping at {addr:#x} is that of a recorded kernel (flag {:#x}), which must be MAP_SHARED and of a file",
        MapFlags::RECORDED
    )]
    /// A mapping that a recorded kernel is said to have made, but of no file that it shares.
    RecordedWithoutFile {
        /// The address of the call.
        addr: u64,
    },
    /// A mapping without a page.
    #[error("a mapping of 0 bytes at {addr:#x}: at least one byte is needed")]
    Empty {
        /// The address of the call.
        addr: u64,
    },
    /// An mremap of nothing.
    #[error("address {addr:#x} cannot be remapped: nothing is mapped there")]
    NotMapped {
        /// The address of the call.
        addr: u64,
    },
    /// An mremap to a place that the old one overlaps.
    #[error("mappings cannot move from {old:#x} to {new:#x}: the two ranges overlap")]
    Overlap {
        /// Where the mappings are.
        old: u64,
        /// Where they are to be.
        new: u64,
    },
    /// A brk below the heap's start.
    #[error("the heap cannot end at {end:#x}, before its start {start:#x}")]
    HeapEndsBeforeStart {
        /// Where the heap begins.
        start: u64,
        /// Where the call wants it to end.
        end: u64,
    },
}

#[cfg(test)]
#[path = "vma_tests.rs"]
mod tests;
