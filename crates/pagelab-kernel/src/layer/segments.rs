//! Assigning direct segments to spaces.

use crate::direct_segment::{DirectSegment, SegmentMemory};
use crate::layer::Layer;
use crate::vma::VaRange;
use pagelab_base::addr::VirtAddr;
use pagelab_base::ids::SpaceIx;

impl Layer {
    /// Gives the segment to a program's new mapping, if it is unused and the mapping is worth it.
    pub fn begin_segment(&mut self, index: SpaceIx, range: VaRange) {
        let find = |layer: &Self| layer.spaces[index].vmas.find(range.start).cloned();
        let Some(mut vma) = find(self) else { return };
        if vma.advice.direct_segment {
            // An existing mapping has grown and contains the new part.
            self.set_segment(index, self.spaces[index].segment);
            vma = find(self).expect("it is mapped");
        }
        let free = |memory: &&mut SegmentMemory| memory.owner.is_none() && memory.qualifies(&vma, range);
        let Some(memory) = self.mechanisms.segment_memory.as_mut().filter(free) else { return };
        memory.owner = Some(index);
        let end = VirtAddr(range.end.0.min(range.start.0 + memory.bytes));
        let segment = DirectSegment { range: VaRange { end, ..range }, first: memory.first };
        self.set_segment(index, Some(segment));
    }

    /// Gives a segment to the memory of a guest, as far as it reaches.
    pub fn begin_guest_segment(&mut self, index: SpaceIx, guest_bytes: u64) {
        let Some(memory) = self.mechanisms.segment_memory.as_mut().filter(|memory| memory.bytes > 0) else { return };
        let bytes = guest_bytes.min(memory.bytes);
        let range = VaRange { start: VirtAddr(0), end: VirtAddr(bytes) };
        let segment = DirectSegment { range, first: memory.first };
        (memory.first, memory.bytes) = (memory.first + range.pages(), memory.bytes - bytes);
        self.set_segment(index, Some(segment));
    }

    /// Removes a part of a space that changes from the segment. Returns everything that is removed.
    pub fn leave_segment(&mut self, index: SpaceIx, range: VaRange) -> Option<VaRange> {
        let segment = self.spaces[index].segment.filter(|segment| segment.range.overlaps(range))?;
        let rest = segment.without(range);
        self.set_segment(index, rest);
        let VaRange { start, end } = segment.range;
        Some(match rest {
            None => segment.range,
            Some(rest) if rest.range.start == start => VaRange { start: rest.range.end, end },
            Some(rest) => VaRange { start, end: rest.range.start },
        })
    }

    /// Clears the registers of a guest's segment, whose pages the page table maps.
    pub fn suspend_segment(&mut self, index: SpaceIx) {
        self.set_segment(index, None);
    }

    /// Makes a guest's segment again.
    pub fn resume_segment(&mut self, index: SpaceIx, segment: DirectSegment) {
        self.set_segment(index, Some(segment));
    }

    /// Sets a space's segment, and keeps its mapping from being merged with others.
    fn set_segment(&mut self, index: SpaceIx, segment: Option<DirectSegment>) {
        let space = &mut self.spaces[index];
        space.segment = segment;
        space.vmas.advise(VaRange::ALL, |advice| advice.direct_segment = false);
        match segment {
            Some(segment) => space.vmas.advise(segment.range, |advice| advice.direct_segment = true),
            None => self.mechanisms.segment_memory.iter_mut().for_each(|memory| memory.owner = None),
        }
    }

    /// The parts of a range that a kernel must populate: those outside the segment.
    pub fn outside_segment(&self, index: SpaceIx, range: VaRange) -> [VaRange; 2] {
        let nothing = VaRange { start: range.end, end: range.end };
        match self.spaces[index].segment {
            Some(segment) if segment.range.overlaps(range) => [
                VaRange { start: range.start, end: segment.range.start.max(range.start) },
                VaRange { start: segment.range.end.min(range.end), end: range.end },
            ],
            _ => [range, nothing],
        }
    }
}
