//! Late direct segments when memory is short: their unused memory is freed, and segments are dissolved.
//!
//! Models: the memory of late segments ([`crate::threads::late_segments`]) is on no LRU list. When memory is short, the
//! kernel first frees the part of it that no segment uses. Then it dissolves the segment, from its end, in parts of up
//! to 2 MiB. For each page, it writes the entry of the page table, charges the program's cgroup, and adds the page to
//! an LRU list. Then it lowers the limit in the segment's registers and interrupts the CPUs that run the program, so
//! that they load the registers. Scans find the pages like any others.
//! Source: Yaniv, Tsafrir, SIGMETRICS 2016, 6.3: segments limit the overcommitment of memory. How a kernel could
//! dissolve them is not said. The order of the steps is that of Linux mm/huge_memory.c (`__split_huge_pmd_locked`):
//! entries first, then what they replace.
//! Parameters: `kernel.threads.late_segments.dissolve`.
//! Stats: `late_segments.dissolved`, `late_segments.freed`, `late_segments.kept`.
//! Deviations: a segment has no accessed and dirty bits. So its pages begin as dirty and not accessed, even if the
//! program never touched them. Entries are of 4 KiB. Zeroing of new page tables is charged as the entries' lines.

use crate::direct_segment::SegmentMemory;
use crate::dissolve::Dissolve;
use crate::effects::Effects;
use crate::frames::frame_alloc::Urgency;
use crate::layer::Layer;
use crate::memory::page_metadata;
use crate::vma::VaRange;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::ids::{CpuId, DIRECT_MAP, LayerId, SpaceId, SpaceIx};
use pagelab_base::lock_kind::LockKind;
use pagelab_base::step::{RefKind, Step};
use pagelab_tables::page_table::{Mapping, PteFlags};

/// Frames that a step frees.
const FRAMES_PER_STEP: u64 = 512;

/// Which part of late segments' memory is taken next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentPart {
    /// Frames that no segment uses.
    Unused {
        /// The first one.
        first: Pfn,
        /// How many.
        frames: u64,
    },
    /// The end of a program's segment.
    Used {
        /// The program's space.
        space: SpaceIx,
        /// Addresses of the part.
        range: VaRange,
    },
}

/// What remains to be done after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dissolved {
    /// Another step.
    Continues,
    /// Nothing: the part is free, or can be reclaimed.
    Ends,
    /// Nothing: there was no memory for page tables, so the part remains a segment.
    Keeps,
}

/// Work on a part, in two steps: the change, and the entries that it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dissolution {
    part: Option<SegmentPart>,
    /// Which need allowed it.
    need: Dissolve,
    /// Lines of entries that the last commit wrote.
    lines: Vec<PhysAddr>,
}

impl Dissolution {
    /// The next one that this need allows; `None` if there is nothing to take.
    pub fn next(layer: &Layer, need: Dissolve) -> Option<Self> {
        let part = layer.next_segment_part(need)?;
        Some(Self { part: Some(part), need, lines: Vec::new() })
    }

    /// Whether it frees memory, without work for a later scan.
    pub fn frees(&self) -> bool {
        matches!(self.part, Some(SegmentPart::Unused { .. }))
    }

    /// Lists the references of the next step.
    pub fn plan(&self, layer: &Layer, step: &mut Step) {
        self.lines.iter().for_each(|&line| step.kernel(RefKind::Write, line));
        let metadata = |first: Pfn, frames: u64, step: &mut Step| {
            (0..frames).for_each(|n| step.kernel(RefKind::Write, page_metadata(first + n)));
        };
        match self.part {
            Some(SegmentPart::Unused { first, frames }) => {
                step.take_lock(LockKind::Zone, layer.data.zone_line());
                metadata(first, frames, step);
            }
            Some(SegmentPart::Used { space, range }) => {
                let Some(first) = layer.spaces[space].segment.and_then(|segment| segment.frame(range.start)) else {
                    return;
                };
                step.take_lock(LockKind::Lru, layer.data.lru_line(layer.spaces[space].group));
                metadata(first, range.pages(), step);
            }
            None => {}
        }
    }

    /// Carries out the planned step. Others may have taken the part meanwhile; then nothing is left to do.
    pub fn commit(&mut self, layer: &mut Layer, effects: &mut Effects, id: LayerId, cpu: CpuId) -> Dissolved {
        self.lines.clear();
        let next = layer.next_segment_part(self.need);
        match self.part.take() {
            part if part.is_none() || part != next => Dissolved::Ends,
            Some(SegmentPart::Used { space, range }) => {
                let taken = layer.dissolve_part(cpu, space, range, &mut self.lines);
                if taken.is_empty() {
                    layer.counters.dissolved.kept += 1;
                    return Dissolved::Keeps;
                }
                effects.invalidate(SpaceId { layer: id, index: space }, taken);
                Dissolved::Continues
            }
            Some(SegmentPart::Unused { first, frames }) => {
                layer.free_unused_part(cpu, first, frames);
                Dissolved::Ends
            }
            None => Dissolved::Ends,
        }
    }
}

impl Layer {
    /// Frames of memory that was made contiguous for segments while programs ran.
    pub fn late_segment_frames(&self) -> u64 {
        self.late_memory().map_or(0, |memory| memory.bytes >> FRAME_SHIFT)
    }

    fn late_memory(&self) -> Option<&SegmentMemory> {
        self.mechanisms.segment_memory.as_ref().filter(|memory| memory.late.is_some())
    }

    /// The next part that this need allows to take. A segment stays if its pages could not be swapped out anyway.
    fn next_segment_part(&self, need: Dissolve) -> Option<SegmentPart> {
        let memory = self.late_memory().filter(|memory| memory.late.is_some_and(|from| need >= from))?;
        let unused = |from: Pfn, to: Pfn| {
            let frames = (to.0 - from.0).min(FRAMES_PER_STEP);
            // The memory stays in one piece.
            let first = if from == memory.first { from } else { Pfn(to.0 - frames) };
            (frames > 0).then_some(SegmentPart::Unused { first, frames })
        };
        let Some(space) = memory.owner else { return unused(memory.first, memory.end()) };
        let segment = self.spaces[space].segment?;
        let end = segment.first + segment.range.pages();
        if let Some(part) = unused(end, memory.end()).or_else(|| unused(memory.first, segment.first)) {
            return Some(part);
        }
        let has_room = self.memory.reclaim.as_ref()?.swap.as_ref().is_some_and(|swap| swap.room() > 0);
        let VaRange { start, end } = segment.range;
        let start = start.max(VirtAddr(end.0 - 1).align_down(PageSize::Size2M.bytes()));
        has_room.then_some(SegmentPart::Used { space, range: VaRange { start, end } })
    }

    /// Frees frames at an end of late segments' memory.
    fn free_unused_part(&mut self, cpu: CpuId, first: Pfn, frames: u64) {
        let context = self.context(cpu, DIRECT_MAP);
        (0..frames).for_each(|n| self.free_block(context, first + n, 0));
        self.counters.dissolved.freed += frames;
        self.shorten_late_memory(first, frames);
    }

    /// Frees late segments' memory that no segment uses, at no cost, for work that has no memory left; false if there
    /// is none.
    pub fn free_unused_segment(&mut self, cpu: CpuId) -> bool {
        let Some(SegmentPart::Unused { first, frames }) = self.next_segment_part(Dissolve::LastResort) else {
            return false;
        };
        self.free_unused_part(cpu, first, frames);
        true
    }

    /// Takes frames at an end of late segments' memory out of it.
    fn shorten_late_memory(&mut self, gone: Pfn, frames: u64) {
        let memory = &mut self.mechanisms.segment_memory;
        *memory = memory.take().and_then(|memory| {
            let bytes = memory.bytes - (frames << FRAME_SHIFT);
            let first = if gone == memory.first { gone + frames } else { memory.first };
            (bytes > 0).then_some(SegmentMemory { first, bytes, ..memory })
        });
    }

    /// Maps the pages at the end of a segment by the page table, from the last one on, as far as there is memory for
    /// tables. Returns what is no longer in the segment.
    fn dissolve_part(&mut self, cpu: CpuId, space: SpaceIx, range: VaRange, lines: &mut Vec<PhysAddr>) -> VaRange {
        let context = self.context(cpu, space);
        let segment = self.spaces[space].segment.expect("the part belongs to one");
        let vma = self.spaces[space].vmas.find(range.start).expect("a segment lies in a mapping");
        let executable = vma.prot.execute;
        let flags = PteFlags { writable: true, user: true, executable, accessed: false, dirty: true };
        let mut taken = VaRange { start: range.end, end: range.end };
        // Reclaim may take the last frames for its own work (Linux `PF_MEMALLOC`).
        self.memory.frames.urgency = Urgency::Reclaim;
        while taken.start > range.start {
            let va = VirtAddr(taken.start.0 - FRAME_BYTES);
            if !self.has_room(context, space, va, PageSize::Size4K) {
                break;
            }
            let pfn = segment.frame(va).expect("it lies in the segment");
            let mapping = Mapping { pfn, size: PageSize::Size4K, flags };
            self.map(context, space, va, mapping).expect("the table has room");
            let line = self.spaces[space].table.entry(&self.memory.contents, va, PageSize::Size4K);
            lines.push(line.align_down(LINE_BYTES));
            let reclaim = self.memory.reclaim.as_mut().expect("without a swap area, segments stay");
            reclaim.uncharge(pfn, 0);
            let mut memory = self.memory_for(context);
            memory.split_off(pfn);
            memory.charge(pfn, 0);
            self.list_page(&mapping);
            taken.start = va;
        }
        self.memory.frames.urgency = Urgency::Ordinary;
        lines.dedup();
        if !taken.is_empty() {
            self.leave_segment(space, taken);
            let first = segment.frame(taken.start).expect("it lay in the segment");
            self.shorten_late_memory(first, taken.pages());
            self.counters.dissolved.dissolved += taken.pages();
        }
        taken
    }
}
