//! Late segments: makes memory contiguous by compaction, and a direct segment of a running program's mapping.
//!
//! Models: a direct segment needs contiguous memory, which a kernel can reserve at boot, when it does not know what the
//! program needs. Or it makes room later: when it wakes up, the thread takes the largest private anonymous mapping that
//! qualifies for a segment, and looks for a contiguous region of frames for it, in steps of 2 MiB. It reads the
//! metadata of the frames and isolates those that are free. A frame that can be neither isolated nor moved ends the
//! attempt; the region then begins behind it. When the region has no other frames, pages of programs in it are moved:
//! each is copied to a frame elsewhere, its entry is written, and TLBs are shot down. The region then belongs to the
//! layer, as if it had been reserved at boot. The mapping's own pages are copied into it, 2 MiB at a time, their
//! entries are removed, and the segment's limit is raised. Pages that were never touched are zeroed.
//! Source: Yaniv, Tsafrir, SIGMETRICS 2016, 6.3: fragmentation can prevent direct segments, and compaction removes it.
//! How is left open there; the steps are those of Linux: mm/page_alloc.c (`alloc_contig_pages`, `alloc_contig_range`),
//! mm/page_isolation.c (`start_isolate_page_range`), mm/migrate.c (`migrate_pages`).
//! Parameters: `kernel.threads.late_segments` (`bytes`, `least_bytes`, `sleep_cycles`, `dissolve`).
//! Stats: `late_segments.*`, `segment.translations`.
//! Deviations: pages of 2 MiB, shared pages and pages of files are not moved, so regions with them are passed over.
//! CPUs' lists of free pages are drained before each step; Linux isolates a whole region first (`drain_all_pages`).
//! Draining costs nothing. Stores to a page between its copy and the change of its entry, a step of this thread, are
//! not copied again. A segment is made once; its memory stays reserved, for later programs, too, unless reclaim may
//! dissolve segments (`reclaim/segments.rs`).

use crate::config::InvalidationCause;
use crate::direct_segment::{DirectSegment, SegmentMemory, is_plain_memory};
use crate::dissolve::Dissolve;
use crate::effects::Effects;
use crate::frames::frame_alloc::FramePurpose;
use crate::layer::Layer;
use crate::locks::TaskId;
use crate::memory::page_metadata;
use crate::os::Os;
use crate::reclaim::{GroupId, Pressure};
use crate::threads::{Counter, Thread};
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CpuId, DIRECT_MAP, LayerId, SpaceId, SpaceIx};
use pagelab_base::step::{BlockKey, Next, RefKind, Step};
use pagelab_tables::page_table::{Mapping, Removed};
use parameters::Parameters;
use rustc_hash::FxHashMap;

/// Its configuration. This module is below the kernels and imports nothing from them.
pub mod parameters {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use crate::dissolve::Dissolve;
    use crate::threads::config::ThreadParameters;
    use pagelab_base::addr::FRAME_BYTES;
    use pagelab_base::error::EngineError;
    use pagelab_trace::quantity::Bytes;

    /// Parameters of late segments.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct Parameters {
        /// Largest segment; a smaller mapping gets a segment of its size.
        pub bytes: Bytes,
        /// Smallest mapping that gets a segment.
        pub least_bytes: Bytes,
        /// Cycles that the thread sleeps after an attempt to make the segment; its work adds to them.
        pub sleep_cycles: u64,
        /// When reclaim dissolves the segment and frees memory that no segment uses.
        #[serde(default)]
        pub dissolve: Dissolve,
    }

    impl ThreadParameters for Parameters {
        fn validate(&self, key: &str) -> Result<(), EngineError> {
            if self.bytes.0 == 0 || !self.bytes.0.is_multiple_of(FRAME_BYTES) {
                let what = format!("{} is not possible; allowed are multiples of 4096 from 4096 on", self.bytes);
                return Err(EngineError::config(format!("{key}.bytes"), what));
            }
            if self.least_bytes > self.bytes {
                let what = format!("{} is more than bytes, which is {}", self.least_bytes, self.bytes);
                return Err(EngineError::config(format!("{key}.least_bytes"), what));
            }
            if self.sleep_cycles == 0 {
                let what = "0 is not possible; allowed is 1 and more";
                return Err(EngineError::config(format!("{key}.sleep_cycles"), what));
            }
            Ok(())
        }

        fn samples() -> Vec<Self> {
            vec![
                Self {
                    bytes: Bytes(4 << 20),
                    least_bytes: Bytes(64 << 10),
                    sleep_cycles: 20_000,
                    dissolve: Dissolve::LastResort,
                },
                Self {
                    bytes: Bytes(1 << 30),
                    least_bytes: Bytes(1 << 20),
                    sleep_cycles: 200_000,
                    dissolve: Dissolve::Never,
                },
            ]
        }
    }
}

/// Frames that a step isolates, and pages that a step copies into the segment.
const FRAMES_PER_STEP: u64 = 512;
/// Pages that a step moves out of the region.
const MOVED_PER_STEP: usize = 32;
/// How often a place that a fault has locked is tried again.
const MOST_RETRIES: u32 = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
enum SegmentState {
    /// Choose a mapping.
    Choose,
    /// Isolate frames of the region from this one on.
    Isolate(Pfn),
    /// Move the pages of the batch.
    Move,
    /// Copy the mapping's pages from an address on, and extend the segment.
    Grow(VirtAddr),
}

/// A page to be moved out of the region.
#[derive(Clone, Copy, Debug)]
struct MovedPage {
    old: Pfn,
    space: SpaceIx,
    va: VirtAddr,
    new: Pfn,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default)]
struct SegmentCounts {
    made: u64,
    refused: u64,
    isolated: u64,
    passed_over: u64,
    moved: u64,
    copied: u64,
    bytes: u64,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct LateSegments {
    layer: LayerId,
    config: Parameters,
    counts: SegmentCounts,
    state: SegmentState,
    /// Whether the layer has its segment memory.
    over: bool,
    /// The space and the part of its mapping that gets the segment.
    space: SpaceIx,
    range: VaRange,
    /// First frame of the region.
    first: Pfn,
    /// Blocks of the region that are isolated, with their orders.
    held: Vec<(Pfn, u32)>,
    /// Pages of programs that can be moved, by frame.
    movable: FxHashMap<Pfn, (SpaceIx, VirtAddr)>,
    /// Frames of the region whose pages are to be moved.
    occupied: Vec<Pfn>,
    batch: Vec<MovedPage>,
    retries: u32,
    /// Lines of entries that the last commit wrote.
    lines: Vec<PhysAddr>,
}

impl LateSegments {
    fn new(layer: LayerId, config: Parameters) -> Self {
        let nothing = VaRange { start: VirtAddr(0), end: VirtAddr(0) };
        Self {
            layer,
            config,
            counts: SegmentCounts::default(),
            state: SegmentState::Choose,
            over: false,
            space: DIRECT_MAP,
            range: nothing,
            first: Pfn(0),
            held: Vec::new(),
            movable: FxHashMap::default(),
            occupied: Vec::new(),
            batch: Vec::new(),
            retries: 0,
            lines: Vec::new(),
        }
    }

    fn id(&self, space: SpaceIx) -> SpaceId {
        SpaceId { layer: self.layer, index: space }
    }

    /// The first frame behind the region.
    fn end(&self) -> Pfn {
        self.first + self.range.pages()
    }

    /// The end of the frames that a step from this one on isolates.
    fn end_of_step(&self, from: Pfn) -> Pfn {
        Pfn((from.0 + FRAMES_PER_STEP).min(self.end().0))
    }

    fn note_line(&mut self, layer: &Layer, space: SpaceIx, va: VirtAddr, size: PageSize) {
        let line = layer.spaces[space].table.entry(&layer.memory.contents, va, size).align_down(LINE_BYTES);
        if self.lines.last() != Some(&line) {
            self.lines.push(line);
        }
    }

    /// Chooses the largest mapping that qualifies, and the first region.
    fn choose(&mut self, layer: &mut Layer) -> Next {
        let mut best: Option<(SpaceIx, VaRange)> = None;
        for space in layer.spaces.numbers_from(DIRECT_MAP.next()) {
            let qualifies = |vma: &&Vma| is_plain_memory(vma) && vma.range().len_bytes() >= self.config.least_bytes.0;
            for vma in layer.spaces[space].vmas.iter().filter(qualifies) {
                let end = VirtAddr(vma.end.0.min(vma.start.0.saturating_add(self.config.bytes.0)));
                let range = VaRange { start: vma.start, end };
                if best.is_none_or(|(_, other)| other.pages() < range.pages()) {
                    best = Some((space, range));
                }
            }
        }
        let Some((space, range)) = best else { return Next::Done };
        (self.space, self.range, self.retries) = (space, range, 0);
        self.movable = movable(layer);
        // What was set aside at boot is not worth a look.
        self.begin_region(layer, Pfn(layer.memory.set_aside))
    }

    /// Begins with the first region at or behind a frame; gives up if there is none.
    fn begin_region(&mut self, layer: &Layer, from: Pfn) -> Next {
        self.first = Pfn(from.0.next_multiple_of(FRAMES_PER_STEP));
        if self.end() > layer.frame_allocator().frames().end {
            self.counts.refused += 1;
            self.state = SegmentState::Choose;
            return Next::Done;
        }
        self.state = SegmentState::Isolate(self.first);
        Next::Continue
    }

    /// Frees everything that is isolated.
    fn release(&mut self, layer: &mut Layer, cpu: CpuId) {
        for page in std::mem::take(&mut self.batch) {
            layer.free_block(layer.context(cpu, page.space), page.new, 0);
        }
        let context = layer.context(cpu, DIRECT_MAP);
        for (pfn, order) in std::mem::take(&mut self.held) {
            layer.free_block(context, pfn, order);
        }
        self.occupied.clear();
    }

    fn give_up(&mut self, layer: &mut Layer, cpu: CpuId) -> Next {
        self.release(layer, cpu);
        self.counts.refused += 1;
        self.state = SegmentState::Choose;
        Next::Done
    }

    /// Isolates the free frames of a step and notes the occupied ones.
    fn isolate(&mut self, layer: &mut Layer, cpu: CpuId, from: Pfn) -> Next {
        let end = self.end_of_step(from);
        let occupied = self.occupied.len();
        layer.memory.frames.drain_lists();
        let order = FRAMES_PER_STEP.ilog2().min(layer.frame_allocator().max_order());
        let mut at = from;
        while at < end {
            let most = order.min(at.0.trailing_zeros()).min((end.0 - at.0).ilog2());
            self.take_free(layer, cpu, at, most);
            at += 1 << most;
        }
        if self.occupied[occupied..].iter().any(|pfn| !self.movable.contains_key(pfn)) {
            self.counts.passed_over += 1;
            self.release(layer, cpu);
            return self.begin_region(layer, end);
        }
        if end < self.end() {
            self.state = SegmentState::Isolate(end);
            return Next::Continue;
        }
        self.next_batch(layer, cpu)
    }

    /// Isolates the free frames of a block; notes the others.
    fn take_free(&mut self, layer: &mut Layer, cpu: CpuId, pfn: Pfn, order: u32) {
        if layer.memory.frames.alloc_at(pfn, order, FramePurpose::UserData, cpu) {
            charge(layer, pfn, order);
            self.held.push((pfn, order));
            self.counts.isolated += 1 << order;
        } else if order == 0 {
            self.occupied.push(pfn);
        } else {
            self.take_free(layer, cpu, pfn, order - 1);
            self.take_free(layer, cpu, pfn + (1 << (order - 1)), order - 1);
        }
    }

    /// Allocates frames for the next pages that are to be moved. Behind the last one, the region is the segment's.
    fn next_batch(&mut self, layer: &mut Layer, cpu: CpuId) -> Next {
        while self.batch.len() < MOVED_PER_STEP
            && let Some(old) = self.occupied.pop()
        {
            let (space, va) = self.movable[&old];
            let context = layer.context(cpu, space);
            let limited = matches!(layer.memory.pressure(0, context.group), Some(Pressure::Limit(_)));
            let new = if limited { None } else { layer.take_page(context, 0) };
            match new {
                Some(new) if (self.first..self.end()).contains(&new) => {
                    // A program has freed it meanwhile; it belongs to the region.
                    hold(layer, new);
                    self.held.push((new, 0));
                    if new != old {
                        self.occupied.retain(|other| *other != new);
                        self.occupied.push(old);
                    }
                }
                Some(new) => self.batch.push(MovedPage { old, space, va, new }),
                None => return self.give_up(layer, cpu),
            }
        }
        if !self.batch.is_empty() {
            self.state = SegmentState::Move;
            return Next::Continue;
        }
        self.movable = FxHashMap::default();
        self.over = true;
        let bytes = self.range.len_bytes();
        let (first, owner) = (self.first, Some(self.space));
        // It is not dissolved before it is made.
        let late = Some(Dissolve::Never);
        layer.mechanisms.segment_memory = Some(SegmentMemory { first, bytes, owner, late });
        self.held.clear();
        self.counts.bytes += bytes;
        self.retries = 0;
        self.state = SegmentState::Grow(self.range.start);
        Next::Continue
    }

    /// Moves the pages of the batch.
    fn move_pages(&mut self, os: &mut Os, effects: &mut Effects, cpu: CpuId) -> Next {
        for page in std::mem::take(&mut self.batch) {
            let MovedPage { old, space, va, new } = page;
            let (id, range) = (self.id(space), VaRange { start: va, end: va + FRAME_BYTES });
            let free = is_free(os, id, range);
            let layer = &mut os.layers[self.layer];
            let context = layer.context(cpu, space);
            let found = present(layer, space, va).filter(|found| found.mapping.pfn == old && is_movable(layer, found));
            match found {
                Some(found) if free => {
                    layer.remap(space, va, Mapping { pfn: new, ..found.mapping });
                    layer.list_page(&Mapping { pfn: new, ..found.mapping });
                    self.note_line(layer, space, va, PageSize::Size4K);
                    layer.memory_for(context).split_off(old);
                    hold(layer, old);
                    self.held.push((old, 0));
                    effects.invalidate(id, range);
                    self.counts.moved += 1;
                }
                Some(_) => {
                    layer.free_block(context, new, 0);
                    self.occupied.push(old);
                    self.retries += 1;
                }
                None => {
                    layer.free_block(context, new, 0);
                    let before = self.occupied.len();
                    self.take_free(layer, cpu, old, 0);
                    // It is neither free nor where it was.
                    self.retries += if self.occupied.len() > before { MOST_RETRIES } else { 0 };
                }
            }
        }
        let layer = &mut os.layers[self.layer];
        if self.retries >= MOST_RETRIES {
            return self.give_up(layer, cpu);
        }
        self.next_batch(layer, cpu)
    }

    /// The part of the mapping from an address on that a step copies, with its pages; `None` if the segment ends there.
    fn part(&self, layer: &Layer, from: VirtAddr) -> Option<(VaRange, Vec<Removed>)> {
        let space = layer.spaces.numbers_from(self.space).next().filter(|space| *space == self.space)?;
        let vma = layer.spaces[space].vmas.find(from)?;
        let most = vma.end.min(self.range.end);
        let mut end = VirtAddr((from.0 + FRAMES_PER_STEP * FRAME_BYTES).min(most.0));
        let pages = layer.mapped(space, from, end);
        if let Some(last) = pages.last() {
            end = end.max(last.va + last.mapping.size.bytes());
        }
        let inside = pages.first().is_none_or(|page| page.va >= from) && end <= most;
        let zero = layer.memory.page_use.zero_page();
        let own = |page: &Removed| {
            let mapping = &page.mapping;
            mapping.pfn == zero || layer.memory.page_use.are_exclusive(mapping.pfn, mapping.size.order())
        };
        let range = VaRange { start: from, end };
        let plain = is_plain_memory(vma) && !layer.has_contents(space, range);
        (inside && plain && pages.iter().all(own)).then_some((range, pages))
    }

    /// Removes the entries of a part that has been copied, and extends the segment by it.
    fn grow(&mut self, os: &mut Os, effects: &mut Effects, cpu: CpuId, from: VirtAddr) -> Next {
        let id = self.id(self.space);
        let part = self.part(&os.layers[self.layer], from);
        let segment = os.layers[self.layer].spaces[self.space].segment;
        let expected = (from > self.range.start)
            .then_some(DirectSegment { range: VaRange { end: from, ..self.range }, first: self.first });
        let Some((range, pages)) = part.filter(|_| segment == expected) else { return self.finish(os) };
        if !is_free(os, id, range) {
            self.retries += 1;
            return if self.retries < MOST_RETRIES { Next::Continue } else { self.finish(os) };
        }
        os.account_for_taken(id);
        let layer = &mut os.layers[self.layer];
        let context = layer.context(cpu, self.space);
        layer.drop_words(context, self.space, range);
        for page in &pages {
            self.note_line(layer, self.space, page.va, page.mapping.size);
            layer.unmap(context, self.space, page);
            if page.mapping.pfn != layer.memory.page_use.zero_page() {
                layer.put_page(context, &page.mapping);
                self.counts.copied += 1 << page.mapping.size.order();
            }
        }
        let grown = VaRange { start: self.range.start, end: range.end };
        let room = layer.spaces[self.space].vmas.room_of(grown);
        layer.prune(context, self.space, (range, room), InvalidationCause::Unmap);
        layer.resume_segment(self.space, DirectSegment { range: grown, first: self.first });
        effects.invalidate(id, range).full = true;
        if range.end == self.range.end {
            return self.finish(os);
        }
        self.state = SegmentState::Grow(range.end);
        Next::Continue
    }

    /// Ends with the segment as it is. Without one, its memory is for the next program.
    fn finish(&mut self, os: &mut Os) -> Next {
        let layer = &mut os.layers[self.layer];
        let made = layer.spaces[self.space].segment.is_some();
        self.counts.made += u64::from(made);
        if let Some(memory) = &mut layer.mechanisms.segment_memory {
            memory.late = Some(self.config.dissolve);
            if !made && memory.owner == Some(self.space) {
                memory.owner = None;
            }
        }
        self.state = SegmentState::Choose;
        Next::Done
    }
}

impl Thread for LateSegments {
    type Parameters = Parameters;

    fn new_in_layer(id: LayerId, layer: &Layer, parameters: &Parameters) -> Option<Self> {
        layer.mechanisms.segment_memory.is_none().then(|| Self::new(id, *parameters))
    }

    fn layer(&self) -> LayerId {
        self.layer
    }

    fn sleep_cycles(&self) -> Option<Cycles> {
        (!self.over).then(|| self.config.sleep_cycles.into())
    }

    fn begin(&mut self) {
        self.state = SegmentState::Choose;
    }

    fn plan(&self, os: &Os, step: &mut Step) {
        self.lines.iter().for_each(|&line| step.kernel(RefKind::Write, line));
        let layer = &os.layers[self.layer];
        match self.state {
            SegmentState::Choose => {}
            SegmentState::Isolate(from) => {
                for pfn in from.0..self.end_of_step(from).0 {
                    step.kernel(RefKind::Read, page_metadata(Pfn(pfn)));
                }
            }
            SegmentState::Move => {
                for page in &self.batch {
                    step.kernel(RefKind::Read, page_metadata(page.old));
                    step.kernel(RefKind::Load { bytes: FRAME_BYTES }, page.old.addr());
                    step.kernel(RefKind::Zero { bytes: FRAME_BYTES }, page.new.addr());
                }
            }
            SegmentState::Grow(from) => {
                let Some((range, pages)) = self.part(layer, from) else { return };
                for page in &pages {
                    let bytes = page.mapping.size.bytes();
                    step.kernel(RefKind::Load { bytes }, page.mapping.pfn.addr());
                }
                let to = self.first + ((from.0 - self.range.start.0) >> FRAME_SHIFT);
                step.kernel(RefKind::Zero { bytes: range.len_bytes() }, to.addr());
            }
        }
    }

    fn commit(&mut self, os: &mut Os, effects: &mut Effects, task: TaskId) -> Next {
        self.lines.clear();
        let cpu = task.cpu;
        match self.state {
            SegmentState::Choose if self.over => Next::Done,
            SegmentState::Choose => self.choose(&mut os.layers[self.layer]),
            SegmentState::Isolate(from) => self.isolate(&mut os.layers[self.layer], cpu, from),
            SegmentState::Move => self.move_pages(os, effects, cpu),
            SegmentState::Grow(from) => self.grow(os, effects, cpu, from),
        }
    }

    fn held_frames(&self) -> u64 {
        self.held.iter().map(|(_, order)| 1 << order).sum::<u64>() + self.batch.len() as u64
    }

    fn counters() -> &'static [Counter<Self>] {
        &[
            ("late_segments.made", |thread| thread.counts.made, "Direct segments that were made of running programs"),
            (
                "late_segments.refused",
                |thread| thread.counts.refused,
                "Attempts that found no contiguous memory, or no memory for the pages in it",
            ),
            (
                "late_segments.isolated",
                |thread| thread.counts.isolated,
                "Free frames that were isolated in all attempts",
            ),
            (
                "late_segments.passed_over",
                |thread| thread.counts.passed_over,
                "Regions that were given up, as a frame could be neither isolated nor moved",
            ),
            ("late_segments.moved", |thread| thread.counts.moved, "Pages that were moved out of a region"),
            ("late_segments.copied", |thread| thread.counts.copied, "Pages of 4 KiB that were copied into segments"),
            ("late_segments.bytes", |thread| thread.counts.bytes, "Bytes of contiguous memory that were made"),
        ]
    }
}

/// Whether no fault works on a part of a space.
fn is_free(os: &Os, id: SpaceId, range: VaRange) -> bool {
    let held = |page: u64| os.locks.is_held(BlockKey::Page { space: id, page });
    let first = range.start.page_number();
    os.locks.may_change(id, Some(range), os.costs.fault_lock)
        && os.engine_block_key(id).is_none()
        && !(first..first + range.pages()).any(held)
}

/// The page at an address.
fn present(layer: &Layer, space: SpaceIx, va: VirtAddr) -> Option<Removed> {
    layer.spaces[space].vmas.find(va)?;
    layer.mapped(space, va, va + FRAME_BYTES).pop()
}

/// Whether a page can be moved: a page of 4 KiB of anonymous memory that one address space maps.
fn is_movable(layer: &Layer, page: &Removed) -> bool {
    page.mapping.size == PageSize::Size4K && layer.memory.page_use.are_exclusive(page.mapping.pfn, 0)
}

/// The pages of all programs that can be moved, by frame.
fn movable(layer: &Layer) -> FxHashMap<Pfn, (SpaceIx, VirtAddr)> {
    let mut all = FxHashMap::default();
    for space in layer.spaces.numbers_from(DIRECT_MAP.next()) {
        for vma in layer.spaces[space].vmas.iter().filter(|vma| !vma.is_shared()) {
            let pages = layer.mapped(space, vma.start, vma.end).into_iter().filter(|page| is_movable(layer, page));
            all.extend(pages.map(|page| (page.mapping.pfn, (space, page.va))));
        }
    }
    all
}

/// Charges an isolated block to no cgroup of a program.
fn charge(layer: &mut Layer, pfn: Pfn, order: u32) {
    if let Some(reclaim) = &mut layer.memory.reclaim {
        reclaim.charge(pfn, order, GroupId::REST);
    }
}

/// Charges a frame that was a program's to no cgroup of a program, and takes it off the LRU lists.
fn hold(layer: &mut Layer, pfn: Pfn) {
    if let Some(reclaim) = &mut layer.memory.reclaim {
        reclaim.uncharge(pfn, 0);
    }
    charge(layer, pfn, 0);
}
