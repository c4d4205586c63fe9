//! Application of trace events to the VMAs.

use std::sync::Arc;

use pagelab_trace::event::{EventKind, MapFlags, Protection};

use pagelab_base::addr::FRAME_BYTES;

use super::{HugeAdvice, OrderAdvice, PageAdvice, VaRange, Vma, VmaChange, VmaError, VmaKind, VmaSet};

// More MAP_* bits of x86-64 Linux (include/uapi/linux/mman.h, asm-generic/mman.h).
const MAP_LOCKED: u32 = 0x2000;
pub(super) const MAP_NORESERVE: u32 = 0x4000;
const MAP_NONBLOCK: u32 = 0x1_0000;
const MAP_HUGE_SHIFT: u32 = 26;
const MAP_HUGE_MASK: u32 = 0x3f;
/// log2 of the huge-page size of `MAP_HUGETLB` without an explicit size.
const DEFAULT_HUGE_SHIFT: u32 = 21;

/// Flags that describe a mapping; the others (`MAP_FIXED`, `MAP_POPULATE` …) concern only the call.
const LASTING_FLAGS: u32 = MapFlags::SHARED
    | MapFlags::PRIVATE
    | MapFlags::ANONYMOUS
    | MapFlags::GROWSDOWN
    | MapFlags::HUGETLB
    | MapFlags::WRITTEN_BEFORE
    | MapFlags::MEMORY_FILE
    | MapFlags::FAST
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_HUGE_MASK << MAP_HUGE_SHIFT;

impl VmaSet {
    /// Carries out an event of the address space's process. Events that do not concern its VMAs change nothing: a fork
    /// leaves the parent as it is, and the child starts with [`VmaSet::fork`]. Errors leave the set unchanged.
    pub fn apply(&mut self, event: &EventKind) -> Result<Vec<VmaChange>, VmaError> {
        match event {
            EventKind::Mmap { addr, len, prot, flags, file, file_offset } => {
                self.apply_mmap(*addr, *len, *prot, *flags, file.as_ref(), *file_offset)
            }
            EventKind::Munmap { addr, len } => Ok(self.unmap(VaRange::from_bytes(*addr, *len)?)),
            EventKind::Mremap { old_addr, old_len, new_addr, new_len } => {
                self.remap(VaRange::from_bytes(*old_addr, *old_len)?, VaRange::from_bytes(*new_addr, *new_len)?)
            }
            EventKind::Mprotect { addr, len, prot } => Ok(self.protect(VaRange::from_bytes(*addr, *len)?, *prot)),
            EventKind::Madvise { addr, len, advice } => {
                Ok(self.apply_madvise(VaRange::from_bytes(*addr, *len)?, *advice))
            }
            EventKind::Brk { start, end } => self.set_brk(*start, *end),
            EventKind::Exec { .. } | EventKind::Exit { .. } => Ok(self.clear()),
            EventKind::ProcessStart { .. }
            | EventKind::Fork { .. }
            | EventKind::Vfork { .. }
            | EventKind::Allocated { .. }
            | EventKind::Freed { .. }
            | EventKind::Msync { .. }
            | EventKind::Truncate { .. }
            | EventKind::FileData { .. }
            | EventKind::FileHole { .. }
            | EventKind::Relocate { .. }
            | EventKind::EngineCall { .. }
            | EventKind::Fault { .. }
            | EventKind::ThreadStart { .. }
            | EventKind::ThreadExit
            | EventKind::Wake { .. }
            | EventKind::Woken { .. }
            | EventKind::Skip
            | EventKind::Resume { .. }
            | EventKind::Measure => Ok(Vec::new()),
        }
    }

    fn apply_mmap(
        &mut self,
        addr: u64,
        len: u64,
        prot: Protection,
        flags: MapFlags,
        file: Option<&Arc<str>>,
        file_offset: u64,
    ) -> Result<Vec<VmaChange>, VmaError> {
        let huge_len = if flags.contains(MapFlags::HUGETLB) {
            let size = 1_u64 << huge_page_shift(flags);
            len.checked_next_multiple_of(size).ok_or(VmaError::PastTheEnd { addr, len })?
        } else {
            len
        };
        let range = VaRange::from_bytes(addr, huge_len)?;
        if range.is_empty() {
            return Err(VmaError::Empty { addr });
        }
        let kind = kind_of(flags, file.map(|name| &**name));
        let is_file = kind == VmaKind::File;
        if is_file && !file_offset.is_multiple_of(FRAME_BYTES) {
            return Err(VmaError::UnalignedOffset { offset: file_offset });
        }
        // The limit of `loff_t` (EOVERFLOW).
        if is_file && file_offset.checked_add(huge_len).is_none_or(|end| end > i64::MAX as u64) {
            return Err(VmaError::PastTheEndOfFiles { offset: file_offset, len: huge_len });
        }
        let recorded = flags.contains(MapFlags::RECORDED);
        if recorded && !(is_file && file.is_some() && flags.contains(MapFlags::SHARED)) {
            return Err(VmaError::RecordedWithoutFile { addr });
        }
        let mut lasting = MapFlags(flags.0 & LASTING_FLAGS);
        if kind == VmaKind::Stack {
            // A main stack from /proc/PID/maps does not show that it grows.
            lasting.0 |= MapFlags::GROWSDOWN;
        }
        let has_offsets = is_file || flags.contains(MapFlags::SHARED);
        let mut vma = Vma {
            start: range.start,
            end: range.end,
            prot,
            flags: lasting,
            kind,
            file: if is_file || kind == VmaKind::Special { file.cloned() } else { None },
            file_offset: if has_offsets { file_offset } else { 0 },
            advice: self.advice_of_new(),
            accounted: false,
            anon_vma: false,
        };
        vma.account();
        if recorded {
            return Ok(self.put(vma, VmaChange::Recorded { range }));
        }
        // As in Linux, MAP_NONBLOCK cancels MAP_POPULATE, and locked memory is always populated.
        let populate = flags.0 & (MapFlags::POPULATE | MAP_NONBLOCK) == MapFlags::POPULATE;
        Ok(self.map(vma, populate || flags.contains(MAP_LOCKED)))
    }

    /// `advice` as in `madvise(2)` (include/uapi/asm-generic/mman-common.h). Advice that concerns neither translations
    /// nor later faults (core dumps, page merging, poisoning) is ignored.
    fn apply_madvise(&mut self, range: VaRange, advice: u32) -> Vec<VmaChange> {
        let page_advice = match advice {
            3 => PageAdvice::WillNeed,
            8 => PageAdvice::Free,
            9 => PageAdvice::Remove,
            20 => PageAdvice::Cold,
            21 => PageAdvice::PageOut,
            22 => PageAdvice::PopulateRead,
            23 => PageAdvice::PopulateWrite,
            25 => PageAdvice::Collapse,
            // MADV_DONTNEED, MADV_DONTNEED_LOCKED.
            4 | 24 => return self.mapped_parts(range).map(|range| VmaChange::Discarded { range }).collect(),
            _ => {
                self.advise(range, |kept| match advice {
                    0 => kept.order = OrderAdvice::Normal,
                    1 => kept.order = OrderAdvice::Random,
                    2 => kept.order = OrderAdvice::Sequential,
                    10 => kept.dont_fork = true,
                    11 => kept.dont_fork = false,
                    14 => kept.huge = HugeAdvice::Huge,
                    15 => kept.huge = HugeAdvice::NoHuge,
                    18 => kept.wipe_on_fork = true,
                    19 => kept.wipe_on_fork = false,
                    _ => {}
                });
                return Vec::new();
            }
        };
        self.mapped_parts(range).map(|range| VmaChange::Advised { range, advice: page_advice }).collect()
    }
}

fn huge_page_shift(flags: MapFlags) -> u32 {
    match flags.0 >> MAP_HUGE_SHIFT & MAP_HUGE_MASK {
        0 => DEFAULT_HUGE_SHIFT,
        shift => shift,
    }
}

/// Mappings from before the start of the recording have the bracketed names of `/proc/PID/maps`.
fn kind_of(flags: MapFlags, name: Option<&str>) -> VmaKind {
    match name {
        Some("[heap]") => VmaKind::Heap,
        Some("[stack]") => VmaKind::Stack,
        Some(name) if name.starts_with("[anon") => VmaKind::Anonymous,
        Some(name) if name.starts_with('[') => VmaKind::Special,
        _ if flags.contains(MapFlags::GROWSDOWN) => VmaKind::Stack,
        _ if flags.contains(MapFlags::ANONYMOUS) => VmaKind::Anonymous,
        _ => VmaKind::File,
    }
}
