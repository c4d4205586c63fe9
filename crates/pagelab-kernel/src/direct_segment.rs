//! Direct segments of address spaces: base, limit and offset, and the memory that a layer reserves for them
//! (`pagelab_translate::scheme::segment` says what they model).

use crate::config::LayerConfig;
use crate::dissolve::Dissolve;
use crate::vma::{PageAdvice, VaRange, Vma, VmaChange, VmaKind};
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::ids::SpaceIx;
use pagelab_base::translation::Translation;
use pagelab_trace::MapFlags;

/// Mappings of at least this size always get an unused segment.
const WORTH_BYTES: u64 = 2 << 20;

/// Memory that a layer keeps besides the reserved memory, for its direct map and its own objects.
const LEFT_BYTES: u64 = 1 << 20;

/// A segment of an address space: base, limit and first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectSegment {
    /// The virtual addresses from base to limit.
    pub range: VaRange,
    /// The frame of the first page.
    pub first: Pfn,
}

impl DirectSegment {
    /// The frame of an address, if it lies in the segment.
    pub fn frame(&self, va: VirtAddr) -> Option<Pfn> {
        self.range.contains(va).then(|| Pfn(self.first.0 + ((va.0 - self.range.start.0) >> FRAME_SHIFT)))
    }

    /// The translation of an address in the segment, as a page of the largest size that lies inside and is aligned on
    /// both sides.
    pub fn translate(&self, va: VirtAddr) -> Option<Translation<PhysAddr>> {
        let frame = self.frame(va)?;
        let offset = self.range.start.0 ^ self.first.addr().0;
        let fits = |size: &PageSize| {
            let page = va.0 & !size.offset_mask();
            let inside = self.range.start.0 <= page && page + size.bytes() <= self.range.end.0;
            inside && offset & size.offset_mask() == 0
        };
        let size = PageSize::ALL.into_iter().rev().find(fits).unwrap_or(PageSize::Size4K);
        Some(Translation::new(frame.addr().align_down(size.bytes()), size, true, true))
    }

    /// What remains of the segment without a range: the longer one of the parts before and after it.
    pub fn without(&self, gone: VaRange) -> Option<Self> {
        let VaRange { start, end } = self.range;
        let before = VaRange { start, end: end.min(gone.start).max(start) };
        let behind = VaRange { start: start.max(gone.end).min(end), end };
        let range = if before.len_bytes() >= behind.len_bytes() { before } else { behind };
        (!range.is_empty()).then(|| Self { range, first: self.first + VaRange { start, end: range.start }.pages() })
    }
}

/// The memory that a layer has reserved for segments.
#[derive(Clone, Copy, Debug)]
pub struct SegmentMemory {
    /// The first frame that no guest uses.
    pub first: Pfn,
    /// Bytes that no guest uses.
    pub bytes: u64,
    /// The program's space that uses it.
    pub owner: Option<SpaceIx>,
    /// When reclaim may take it, if it was made contiguous while programs ran; `None` if it was reserved at boot.
    pub late: Option<Dissolve>,
}

impl SegmentMemory {
    /// The memory that a layer's configuration reserves after its first `taken` of `frames` frames; `None` without a
    /// segment.
    pub fn set_aside(config: &LayerConfig, taken: u64, frames: u64) -> Result<Option<Self>, EngineError> {
        let Some(bytes) = config.direct_segment_bytes.map(|bytes| bytes.0) else { return Ok(None) };
        let first = taken.next_multiple_of(1 << PageSize::Size2M.order());
        let most = (frames - taken.min(frames)).saturating_sub(first - taken + (LEFT_BYTES >> FRAME_SHIFT));
        if bytes >> FRAME_SHIFT > most {
            let bytes = |frames: u64| pagelab_trace::quantity::format_bytes(frames << FRAME_SHIFT);
            let what = format!(
                "{} do not fit into the layer's memory of {}, of which the kernel needs some; allowed are up to {}",
                config.direct_segment_bytes.unwrap_or_default(),
                bytes(frames),
                bytes(most)
            );
            return Err(EngineError::config(format!("system.layers.{}.direct_segment_bytes", config.name), what));
        }
        Ok(Some(Self { first: Pfn(first), bytes, owner: None, late: None }))
    }

    /// The first frame after it.
    pub fn end(&self) -> Pfn {
        self.first + (self.bytes >> FRAME_SHIFT)
    }

    /// Whether a new mapping should get it. Small mappings do not: programs make many of them before the important
    /// ones.
    pub fn qualifies(&self, vma: &Vma, range: VaRange) -> bool {
        is_plain_memory(vma) && range.len_bytes() >= WORTH_BYTES.min(self.bytes / 16)
    }
}

/// Whether a mapping is private anonymous memory that may be read and written, and is neither a stack nor of explicit
/// large pages.
pub fn is_plain_memory(vma: &Vma) -> bool {
    let plain = vma.kind == VmaKind::Anonymous && vma.prot.read && vma.prot.write;
    let other = [MapFlags::SHARED, MapFlags::HUGETLB, MapFlags::GROWSDOWN];
    plain && !other.iter().any(|&flag| vma.flags.contains(flag))
}

/// The part of an address space that a change removes from a segment.
pub fn taken_by(change: &VmaChange) -> Option<VaRange> {
    match change {
        VmaChange::Unmapped { vma, .. } => Some(vma.range()),
        VmaChange::Protected { range, .. } | VmaChange::Discarded { range } | VmaChange::Moved { from: range, .. } => {
            Some(*range)
        }
        VmaChange::Advised { range, advice } => (*advice == PageAdvice::Remove).then_some(*range),
        VmaChange::Mapped { .. } | VmaChange::Recorded { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> VaRange {
        VaRange { start: VirtAddr(start), end: VirtAddr(end) }
    }

    #[test]
    fn a_segment_adds_its_offset_within_its_bounds() {
        let segment = DirectSegment { range: range(0x40_3000, 0xc0_0000), first: Pfn(0x1003) };
        assert_eq!(segment.translate(VirtAddr(0x40_2fff)), None);
        assert_eq!(segment.translate(VirtAddr(0xc0_0000)), None);
        let first = segment.translate(VirtAddr(0x40_3010)).unwrap();
        assert_eq!((first.address(VirtAddr(0x40_3010)), first.size()), (PhysAddr(0x100_3010), PageSize::Size4K));
        let large = segment.translate(VirtAddr(0x61_2345)).unwrap();
        assert_eq!((large.address(VirtAddr(0x61_2345)), large.size()), (PhysAddr(0x121_2345), PageSize::Size2M));
        assert!(large.stores());
        let crooked = DirectSegment { first: Pfn(0x1004), ..segment };
        let found = crooked.translate(VirtAddr(0x61_2345)).unwrap();
        assert_eq!((found.address(VirtAddr(0x61_2345)), found.size()), (PhysAddr(0x121_3345), PageSize::Size4K));
    }

    #[test]
    fn a_cut_segment_loses_its_shorter_side() {
        let segment = DirectSegment { range: range(0x10_0000, 0x20_0000), first: Pfn(0x500) };
        let left = |start, end| segment.without(range(start, end)).map(|rest| (rest.range, rest.first.0));
        assert_eq!(left(0x1f_0000, 0x30_0000), Some((range(0x10_0000, 0x1f_0000), 0x500)));
        assert_eq!(left(0, 0x10_1000), Some((range(0x10_1000, 0x20_0000), 0x501)));
        assert_eq!(left(0x11_0000, 0x12_0000), Some((range(0x12_0000, 0x20_0000), 0x520)));
        assert_eq!(left(0x1d_0000, 0x1e_0000), Some((range(0x10_0000, 0x1d_0000), 0x500)));
        assert_eq!(left(0, 0x40_0000), None);
    }
}
