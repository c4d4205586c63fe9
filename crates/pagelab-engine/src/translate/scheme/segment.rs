//! Direct segments: a contiguous part of an address space that is translated by adding an offset, without TLB and page table.
//!
//! Models: the registers base, limit and offset of an address space, which the hardware asks beside the first-level TLB, at no
//! cost. A layer sets contiguous memory aside when it boots. Of a layer that programs run on, the first private anonymous
//! mapping of some size that can be read and written gets it ([`SegmentMemory::is_worth`]), from its start on as far as the
//! memory goes; it takes no faults there. Of a layer that hosts others it is the memory of its guests, from address 0 on, in
//! the order of the layers. Where all layers have a segment at an address, it needs neither TLB nor walk: natively (direct
//! segment), or in a virtual machine (dual direct). With one in the host, a guest's walk makes the references of a native one
//! (VMM direct: 4), with one in the guest, the walk is the host's for the data alone (guest direct: 4); both fill the TLBs.
//! Outside its segment a space is paged.
//! Source: Basu et al., ISCA 2013; Gandhi et al., MICRO 2014; as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.3.
//! Parameters: `system.layers.NAME.direct_segment_bytes`.
//! Stats: `segment.translations`, `segment.walk_translations`.
//! Deviations: programs do not ask for a segment, and its memory is zeroed before they start, at no cost. What a call takes
//! out of it (munmap, mprotect, mremap, MADV_DONTNEED, MADV_REMOVE) leaves, with all on the shorter side of it; fork (unless
//! the child does not inherit the mapping), exec and exit end it. What has left is paged in anew where it is touched again: the
//! frame that is zeroed for it stands for the copy that a kernel would make. Segments are neither reclaimed nor charged to a
//! cgroup.

use crate::base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use crate::base::error::EngineError;
use crate::base::translation::Translation;
use crate::config::LayerConfig;
use crate::kernel::layer::{Layer, SpaceId};
use crate::kernel::vma::{Change, PageAdvice, VaRange, Vma, VmaKind};
use crate::translate::hardware::Hardware;
use pagelab_trace::MapFlags;

/// Mappings of so many bytes always get a segment that nobody has.
const WORTH_BYTES: u64 = 2 << 20;

/// Memory that a layer keeps beside what is set aside, for its direct map and its own objects.
const LEFT_BYTES: u64 = 1 << 20;

/// Base, limit and where they lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub range: VaRange,
    /// The frame of the first page.
    pub first: Pfn,
}

impl Segment {
    /// The frame of an address in it.
    pub fn frame(&self, va: VirtAddr) -> Option<Pfn> {
        self.range.contains(va).then(|| Pfn(self.first.0 + ((va.0 - self.range.start.0) >> FRAME_SHIFT)))
    }

    /// The translation of an address in it, as one of the largest page that lies in it and is aligned on both sides.
    fn translate(&self, va: VirtAddr) -> Option<Translation<PhysAddr>> {
        let frame = self.frame(va)?;
        let offset = self.range.start.0 ^ self.first.addr().0;
        let fits = |size: &PageSize| {
            let page = va.0 & !size.offset_mask();
            let inside = self.range.start.0 <= page && page + size.bytes() <= self.range.end.0;
            inside && offset & size.offset_mask() == 0
        };
        let size = PageSize::ALL.into_iter().rev().find(fits).unwrap_or(PageSize::Size4K);
        Some(Translation::new(PhysAddr(frame.addr().0 & !size.offset_mask()), size, true, true))
    }

    /// The longer of what is before a range and what is behind it.
    fn without(&self, gone: VaRange) -> Option<Self> {
        let VaRange { start, end } = self.range;
        let before = VaRange { start, end: end.min(gone.start).max(start) };
        let behind = VaRange { start: start.max(gone.end).min(end), end };
        let range = if before.len_bytes() >= behind.len_bytes() { before } else { behind };
        (!range.is_empty())
            .then(|| Self { range, first: Pfn(self.first.0 + VaRange { start, end: range.start }.pages()) })
    }
}

/// The memory that a layer has set aside.
#[derive(Clone, Copy, Debug)]
pub struct SegmentMemory {
    /// The first frame that no guest has.
    first: Pfn,
    /// Bytes that no guest has.
    bytes: u64,
    /// The program's space that has it.
    owner: Option<u32>,
}

impl SegmentMemory {
    /// The memory that a layer's configuration sets aside behind its first `taken` of `frames` frames; none if there is to be
    /// no segment.
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
        Ok(Some(Self { first: Pfn(first), bytes, owner: None }))
    }

    /// The first frame behind it.
    pub fn end(&self) -> Pfn {
        Pfn(self.first.0 + (self.bytes >> FRAME_SHIFT))
    }

    /// Whether a new mapping is to have it: not a small one, of which programs make many before those that matter.
    fn is_worth(&self, vma: &Vma, range: VaRange) -> bool {
        let plain = vma.kind == VmaKind::Anonymous && vma.prot.read && vma.prot.write;
        let other = [MapFlags::SHARED, MapFlags::HUGETLB, MapFlags::GROWSDOWN];
        let large = range.len_bytes() >= WORTH_BYTES.min(self.bytes / 16);
        plain && large && !other.iter().any(|&flag| vma.flags.contains(flag))
    }
}

impl Layer {
    /// Gives a program's new mapping the segment, if there is one, nobody has it and the mapping is worth it.
    pub fn begin_segment(&mut self, index: u32, range: VaRange) {
        let find = |layer: &Self| layer.spaces[index as usize].vmas.find(range.start).cloned();
        let Some(mut vma) = find(self) else { return };
        if vma.advice.direct_segment {
            // An old mapping has grown, and what is new is like it.
            self.set_segment(index, self.spaces[index as usize].segment);
            vma = find(self).expect("it is mapped");
        }
        let free = |memory: &&mut SegmentMemory| memory.owner.is_none() && memory.is_worth(&vma, range);
        let Some(memory) = self.segment_memory.as_mut().filter(free) else { return };
        memory.owner = Some(index);
        let end = VirtAddr(range.end.0.min(range.start.0 + memory.bytes));
        let segment = Segment { range: VaRange { end, ..range }, first: memory.first };
        self.set_segment(index, Some(segment));
    }

    /// Gives the memory of a guest the segment, as far as it goes.
    pub fn begin_guest_segment(&mut self, index: u32, guest_bytes: u64) {
        let Some(memory) = self.segment_memory.as_mut().filter(|memory| memory.bytes > 0) else { return };
        let bytes = guest_bytes.min(memory.bytes);
        let range = VaRange { start: VirtAddr(0), end: VirtAddr(bytes) };
        let segment = Segment { range, first: memory.first };
        (memory.first, memory.bytes) = (Pfn(memory.first.0 + range.pages()), memory.bytes - bytes);
        self.set_segment(index, Some(segment));
    }

    /// A part of a space changes: it leaves the segment. Returns all that leaves.
    pub fn leave_segment(&mut self, index: u32, range: VaRange) -> Option<VaRange> {
        let segment = self.spaces[index as usize].segment.filter(|segment| segment.range.overlaps(range))?;
        let rest = segment.without(range);
        self.set_segment(index, rest);
        let VaRange { start, end } = segment.range;
        Some(match rest {
            None => segment.range,
            Some(rest) if rest.range.start == start => VaRange { start: rest.range.end, end },
            Some(rest) => VaRange { start, end: rest.range.start },
        })
    }

    /// Loads the registers of a space, and keeps the segment apart from mappings that it could join.
    fn set_segment(&mut self, index: u32, segment: Option<Segment>) {
        let space = &mut self.spaces[index as usize];
        space.segment = segment;
        space.vmas.advise(VaRange::ALL, |advice| advice.direct_segment = false);
        match segment {
            Some(segment) => space.vmas.advise(segment.range, |advice| advice.direct_segment = true),
            None => self.segment_memory.iter_mut().for_each(|memory| memory.owner = None),
        }
    }

    /// What of a range a kernel has to populate: not what is in the segment.
    pub fn outside_segment(&self, index: u32, range: VaRange) -> [VaRange; 2] {
        let nothing = VaRange { start: range.end, end: range.end };
        match self.spaces[index as usize].segment {
            Some(segment) if segment.range.overlaps(range) => [
                VaRange { start: range.start, end: segment.range.start.max(range.start) },
                VaRange { start: segment.range.end.min(range.end), end: range.end },
            ],
            _ => [range, nothing],
        }
    }
}

/// The part of an address space that a change takes from a segment.
pub fn taken_by(change: &Change) -> Option<VaRange> {
    match change {
        Change::Unmapped { vma } => Some(vma.range()),
        Change::Protected { range, .. } | Change::Discarded { range } | Change::Moved { from: range, .. } => {
            Some(*range)
        }
        Change::Advised { range, advice } => (*advice == PageAdvice::Remove).then_some(*range),
        Change::Mapped { .. } => None,
    }
}

/// What segments translated.
#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentCounters {
    /// Look-ups that needed no TLB.
    pub translations: u64,
    /// Addresses that walks met on their way.
    pub walk_translations: u64,
}

/// The translation of an address that is in segments all the way down.
#[cold]
pub(crate) fn through_segments(layers: &[Layer], space: SpaceId, va: VirtAddr) -> Option<Translation> {
    let layer = &layers[usize::from(space.layer)];
    let found = layer.spaces[space.index as usize].segment?.translate(va)?;
    match layer.host {
        None => Some(found.on_bare_machine()),
        Some(host) => {
            let below = through_segments(layers, host, VirtAddr(found.address(va).0))?;
            Some(found.through(va, below))
        }
    }
}

impl Hardware {
    /// What the segment of a space says in place of a walk of its page table.
    #[cold]
    pub(crate) fn through_segment(
        &mut self,
        layers: &[Layer],
        space: SpaceId,
        va: VirtAddr,
    ) -> Option<Translation<PhysAddr>> {
        let found = layers[usize::from(space.layer)].spaces[space.index as usize].segment?.translate(va);
        self.segment.walk_translations += u64::from(found.is_some());
        found
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
        let segment = Segment { range: range(0x40_3000, 0xc0_0000), first: Pfn(0x1003) };
        assert_eq!(segment.translate(VirtAddr(0x40_2fff)), None);
        assert_eq!(segment.translate(VirtAddr(0xc0_0000)), None);
        let first = segment.translate(VirtAddr(0x40_3010)).unwrap();
        assert_eq!((first.address(VirtAddr(0x40_3010)), first.size()), (PhysAddr(0x100_3010), PageSize::Size4K));
        let large = segment.translate(VirtAddr(0x61_2345)).unwrap();
        assert_eq!((large.address(VirtAddr(0x61_2345)), large.size()), (PhysAddr(0x121_2345), PageSize::Size2M));
        assert!(large.stores());
        let crooked = Segment { first: Pfn(0x1004), ..segment };
        let found = crooked.translate(VirtAddr(0x61_2345)).unwrap();
        assert_eq!((found.address(VirtAddr(0x61_2345)), found.size()), (PhysAddr(0x121_3345), PageSize::Size4K));
    }

    #[test]
    fn what_is_taken_out_leaves_with_the_shorter_side() {
        let segment = Segment { range: range(0x10_0000, 0x20_0000), first: Pfn(0x500) };
        let left = |start, end| segment.without(range(start, end)).map(|rest| (rest.range, rest.first.0));
        assert_eq!(left(0x1f_0000, 0x30_0000), Some((range(0x10_0000, 0x1f_0000), 0x500)));
        assert_eq!(left(0, 0x10_1000), Some((range(0x10_1000, 0x20_0000), 0x501)));
        assert_eq!(left(0x11_0000, 0x12_0000), Some((range(0x12_0000, 0x20_0000), 0x520)));
        assert_eq!(left(0x1d_0000, 0x1e_0000), Some((range(0x10_0000, 0x1d_0000), 0x500)));
        assert_eq!(left(0, 0x40_0000), None);
    }
}
