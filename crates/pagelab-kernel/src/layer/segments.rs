//! Who has a direct segment.

use crate::direct_segment::{DirectSegment, SegmentMemory};
use crate::layer::Layer;
use crate::vma::VaRange;
use pagelab_base::addr::VirtAddr;

impl Layer {
    /// Gives a program's new mapping the segment, if there is one, nobody has it and the mapping is worth it.
    pub fn begin_segment(&mut self, index: u32, range: VaRange) {
        let find = |layer: &Self| layer.spaces[index].vmas.find(range.start).cloned();
        let Some(mut vma) = find(self) else { return };
        if vma.advice.direct_segment {
            // An old mapping has grown, and what is new is like it.
            self.set_segment(index, self.spaces[index].segment);
            vma = find(self).expect("it is mapped");
        }
        let free = |memory: &&mut SegmentMemory| memory.owner.is_none() && memory.is_worth(&vma, range);
        let Some(memory) = self.mechanisms.segment_memory.as_mut().filter(free) else { return };
        memory.owner = Some(index);
        let end = VirtAddr(range.end.0.min(range.start.0 + memory.bytes));
        let segment = DirectSegment { range: VaRange { end, ..range }, first: memory.first };
        self.set_segment(index, Some(segment));
    }

    /// Gives the memory of a guest the segment, as far as it goes.
    pub fn begin_guest_segment(&mut self, index: u32, guest_bytes: u64) {
        let Some(memory) = self.mechanisms.segment_memory.as_mut().filter(|memory| memory.bytes > 0) else { return };
        let bytes = guest_bytes.min(memory.bytes);
        let range = VaRange { start: VirtAddr(0), end: VirtAddr(bytes) };
        let segment = DirectSegment { range, first: memory.first };
        (memory.first, memory.bytes) = (memory.first + range.pages(), memory.bytes - bytes);
        self.set_segment(index, Some(segment));
    }

    /// A part of a space changes: it leaves the segment. Returns all that leaves.
    pub fn leave_segment(&mut self, index: u32, range: VaRange) -> Option<VaRange> {
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

    /// Loads the registers of a space, and keeps the segment apart from mappings that it could join.
    fn set_segment(&mut self, index: u32, segment: Option<DirectSegment>) {
        let space = &mut self.spaces[index];
        space.segment = segment;
        space.vmas.advise(VaRange::ALL, |advice| advice.direct_segment = false);
        match segment {
            Some(segment) => space.vmas.advise(segment.range, |advice| advice.direct_segment = true),
            None => self.mechanisms.segment_memory.iter_mut().for_each(|memory| memory.owner = None),
        }
    }

    /// What of a range a kernel has to populate: not what is in the segment.
    pub fn outside_segment(&self, index: u32, range: VaRange) -> [VaRange; 2] {
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
