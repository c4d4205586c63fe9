//! Segments of the hashed table that processes share (POWER).
//!
//! Models: processes that map the same part of a file, or of shared memory, at the same places of a segment, with the
//! same permissions and nothing else there, point their effective segments to one virtual segment. Its pages have one
//! slot each. A page that one process maps is mapped in all of them, so the others have no fault for it. A process
//! leaves when a call changes a part of the mapping, or when another mapping uses the segment: its pages get slots of
//! their own. A process that unmaps all of it, or ends, takes its own segment away; the slots go with the last process.
//! Source: Yaniv and Tsafrir, SIGMETRICS 2016, 5.4 ("different effective segments to the same virtual segment"); Power
//! ISA, book III.
//! Parameters: `page_table.segments.shared`.
//! Stats: `layer.NAME.page_table.segments.shared.*`.
//! Deviations: keys of segments are not used, so different permissions mean different segments. A segment's entry is
//! written with its first page, in all processes that share it; the others pay for theirs at their next fault. TLBs
//! hold effective addresses with the process's tag, so processes share no entries there. The slots of a process that
//! ends last are removed at once, not by a scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::context::KernelContext;
use crate::layer::Layer;
use crate::reclaim::Rmap;
use crate::vma::{VaRange, Vma, VmaKind};
use pagelab_base::addr::{FRAME_BYTES, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::ids::SpaceIx;
use pagelab_tables::page_table::{Exhausted, Mapping, NoRoom, Removed, SegmentChange};
use pagelab_trace::MapFlags;

pagelab_base::counters! {
    /// What became of shared segments.
    pub struct SharedSegmentCounters {
        joined: u64 as count("joined", "Segments of processes that began to use a shared segment, the first one's included");
        left: u64 as count("left", "Segments that left a shared one, as a part of their mapping changed");
        pages: u64 as count("pages", "Pages that were mapped in a process by the fault of another one");
    }
}

/// What a segment shows. Segments that show the same may be one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SegmentContents {
    /// The file; none for shared anonymous memory.
    file: Option<Arc<str>>,
    in_memory: bool,
    /// Position of the segment's beginning in the file or the shared memory.
    position: u64,
    /// Bytes of the segment at which the mapping begins and ends.
    mapped: (u64, u64),
    /// Whether loads, stores and fetches are allowed.
    allowed: (bool, bool, bool),
}

impl SegmentContents {
    /// The contents of a segment with a single mapping, if processes may share it.
    fn new(vma: &Vma, segment: VaRange) -> Option<Self> {
        let refused = [MapFlags::HUGETLB, MapFlags::GROWSDOWN];
        let of_file = vma.kind == VmaKind::File && vma.file.is_some();
        let fits = vma.is_shared() && !refused.iter().any(|&flag| vma.flags.contains(flag));
        let anonymous = vma.kind == VmaKind::Anonymous && vma.is_shared_anonymous();
        (fits && (of_file || anonymous)).then(|| Self {
            file: vma.file.clone(),
            in_memory: vma.is_of_memory_file(),
            position: vma.file_offset.wrapping_add(segment.start.0).wrapping_sub(vma.start.0),
            mapped: (
                vma.start.0.max(segment.start.0) - segment.start.0,
                vma.end.0.min(segment.end.0) - segment.start.0,
            ),
            allowed: (vma.prot.read, vma.prot.write, vma.prot.execute),
        })
    }

    /// The part of a segment at this address that is mapped.
    fn part(&self, start: VirtAddr) -> VaRange {
        VaRange { start: start + self.mapped.0, end: start + self.mapped.1 }
    }
}

#[derive(Clone)]
struct SharedSegment {
    contents: SegmentContents,
    /// The spaces that use it, each with the address of its segment. All have the same pages.
    sharers: Vec<(SpaceIx, VirtAddr)>,
}

/// The shared segments of a layer.
#[derive(Clone)]
pub struct SharedSegments {
    /// log2 of their bytes.
    shift: u32,
    segments: BTreeMap<u32, SharedSegment>,
    by_contents: BTreeMap<SegmentContents, u32>,
    /// Ids below `unused` that no segment has.
    free: BTreeSet<u32>,
    /// The smallest id that no segment has had.
    unused: u32,
    /// Segments of spaces whose walks reach other slots than before, to be dropped from look-aside buffers.
    rewritten: Vec<(SpaceIx, VirtAddr)>,
    /// The shared segment of a space's segment, by its address.
    by_place: BTreeMap<(SpaceIx, VirtAddr), u32>,
    /// What became of them.
    pub counters: SharedSegmentCounters,
}

impl SharedSegments {
    /// None yet, of this size.
    pub fn new(shift: u32) -> Self {
        Self {
            shift,
            segments: BTreeMap::new(),
            by_contents: BTreeMap::new(),
            free: BTreeSet::new(),
            unused: 0,
            rewritten: Vec::new(),
            by_place: BTreeMap::new(),
            counters: SharedSegmentCounters::default(),
        }
    }

    fn segment(&self, va: VirtAddr) -> VaRange {
        let start = va.align_down(1 << self.shift);
        VaRange { start, end: start + (1 << self.shift) }
    }

    /// The segments of a space that are shared and mapped in a range: their addresses and mapped parts.
    fn places(&self, index: SpaceIx, range: VaRange) -> Vec<(VirtAddr, VaRange)> {
        let from = self.segment(range.start).start;
        let places = self.by_place.range((index, from)..(index, range.end));
        let parts = places.map(|(&(_, start), id)| (start, self.segments[id].contents.part(start)));
        parts.filter(|(_, part)| part.overlaps(range)).collect()
    }

    /// The same page in the other spaces that share its segment.
    fn elsewhere(&self, index: SpaceIx, va: VirtAddr) -> Vec<(SpaceIx, VirtAddr)> {
        let start = self.segment(va).start;
        let Some(id) = self.by_place.get(&(index, start)) else { return Vec::new() };
        let others = self.segments[id].sharers.iter().filter(|&&sharer| sharer != (index, start));
        others.map(|&(other, base)| (other, base + (va - start))).collect()
    }

    /// The id that the next shared segment gets: the smallest that is free.
    fn free_id(&self) -> u32 {
        self.free.first().copied().unwrap_or(self.unused)
    }

    /// Enters a space's segment; `id` is that of the shared segment.
    fn join(&mut self, id: u32, contents: SegmentContents, sharer: (SpaceIx, VirtAddr)) {
        self.free.remove(&id);
        self.unused = self.unused.max(id + 1);
        self.by_place.insert(sharer, id);
        self.by_contents.insert(contents.clone(), id);
        self.segments.entry(id).or_insert(SharedSegment { contents, sharers: Vec::new() }).sharers.push(sharer);
        self.counters.joined += 1;
    }

    /// Removes a space's segment, and the shared one with the last.
    fn remove(&mut self, sharer: (SpaceIx, VirtAddr)) {
        let id = self.by_place.remove(&sharer).expect("the segment is shared");
        let shared = self.segments.get_mut(&id).expect("the segment is shared");
        shared.sharers.retain(|&other| other != sharer);
        if shared.sharers.is_empty() {
            self.by_contents.remove(&shared.contents);
            self.segments.remove(&id);
            self.free.insert(id);
        }
    }
}

impl Layer {
    /// The same page in the other spaces that share its segment.
    pub(crate) fn elsewhere(&self, index: SpaceIx, va: VirtAddr) -> Vec<(SpaceIx, VirtAddr)> {
        self.mechanisms.shared_segments.as_ref().map_or(Vec::new(), |shared| shared.elsewhere(index, va))
    }

    fn shared_segments(&mut self) -> &mut SharedSegments {
        self.mechanisms.shared_segments.as_mut().expect("the layer has shared segments")
    }

    /// Lets the segments of a new mapping be shared, where nothing else is in them.
    pub fn share_segments(&mut self, index: SpaceIx, range: VaRange) {
        let Some(shared) = &self.mechanisms.shared_segments else { return };
        let mut segment = shared.segment(range.start);
        while segment.start < range.end {
            self.share_segment(index, segment);
            let bytes = segment.len_bytes();
            segment = VaRange { start: segment.end, end: segment.end + bytes };
        }
    }

    /// What a segment shows, if it has a single mapping that processes may share.
    fn contents_of_segment(&self, index: SpaceIx, segment: VaRange) -> Option<SegmentContents> {
        let mut vmas = self.spaces[index].vmas.iter().filter(|vma| vma.range().overlaps(segment));
        let vma = vmas.next()?;
        if vmas.next().is_some() { None } else { SegmentContents::new(vma, segment) }
    }

    fn share_segment(&mut self, index: SpaceIx, segment: VaRange) {
        let start = segment.start;
        let Some(contents) = self.contents_of_segment(index, segment) else { return };
        let shared = self.mechanisms.shared_segments.as_ref().expect("the layer has shared segments");
        if shared.by_place.contains_key(&(index, start)) || !self.mapped(index, start, segment.end).is_empty() {
            return;
        }
        let known = shared.by_contents.get(&contents).copied();
        let id = known.unwrap_or_else(|| shared.free_id());
        let model = known.map(|id| shared.segments[&id].sharers[0]);
        if !self.point_segment(index, start, Some(id)) {
            return;
        }
        let pages = model.map_or(Vec::new(), |(other, base)| self.mapped(other, base, base + segment.len_bytes()));
        if !pages.is_empty() && !self.spaces[index].table.reach_shared_segment(&mut self.memory.contents, start) {
            self.point_segment(index, start, None);
            return;
        }
        self.shared_segments().join(id, contents, (index, start));
        for page in pages {
            let (_, base) = model.expect("it has the pages");
            self.note_page_elsewhere((index, start + (page.va - base)), &page.mapping);
        }
    }

    /// Points a segment without pages to a shared one, or to the space's own slots. False if it cannot be shared.
    fn point_segment(&mut self, index: SpaceIx, start: VirtAddr, shared: Option<u32>) -> bool {
        let change = self.spaces[index].table.set_shared_segment(&mut self.memory.contents, start, shared);
        if change == SegmentChange::Rewritten {
            self.shared_segments().rewritten.push((index, start));
        }
        change != SegmentChange::Refused
    }

    /// The segments of a space that walks reach by other entries than before, since the last call. They are to be
    /// dropped from look-aside buffers (`slbie`), with what TLBs hold of them.
    pub fn take_rewritten_segments(&mut self, index: SpaceIx) -> Vec<VaRange> {
        let Some(shared) = &mut self.mechanisms.shared_segments else { return Vec::new() };
        let rewritten = std::mem::take(&mut shared.rewritten);
        assert!(rewritten.iter().all(|&(space, _)| space == index), "a call or fault changes the space's own segments");
        rewritten.into_iter().map(|(_, start)| shared.segment(start)).collect()
    }

    /// Notes a page of a shared segment that a fault has mapped in the other spaces. One whose segment table has no
    /// room for the segment leaves it.
    pub(super) fn map_elsewhere(&mut self, index: SpaceIx, va: VirtAddr, mapping: &Mapping) {
        for (other, va) in self.elsewhere(index, va) {
            if self.spaces[other].table.reach_shared_segment(&mut self.memory.contents, va) {
                self.note_page_elsewhere((other, va), mapping);
            } else {
                let start = self.shared_segments().segment(va).start;
                self.end_sharing(other, start);
                self.shared_segments().counters.left += 1;
            }
        }
    }

    /// Notes that a page of a shared segment has become mapped in a space without a fault of its own.
    fn note_page_elsewhere(&mut self, (index, va): (SpaceIx, VirtAddr), mapping: &Mapping) {
        self.note_mapped(index, va, mapping, Rmap::add);
        let frames = self.counted_frames(mapping);
        let space = &mut self.spaces[index];
        space.resident += frames;
        if let Some(record) = &mut space.record {
            let old = record.insert(va.page_number(), (mapping.pfn, mapping.flags.writable));
            assert!(old.is_none(), "{va:?} is mapped twice");
        }
        space.table.note_shared_page(va, true);
        self.shared_segments().counters.pages += 1;
    }

    /// Whether a page that leaves a space is still mapped in another one that has the same slot.
    pub(super) fn is_mapped_elsewhere_in_segment(&self, index: SpaceIx, va: VirtAddr) -> bool {
        let mut elsewhere = self.elsewhere(index, va).into_iter();
        elsewhere.any(|(other, va)| !self.mapped(other, va, va + FRAME_BYTES).is_empty())
    }

    /// Makes a page leave a shared segment that has no such page, before it is mapped.
    pub(super) fn keep_out_of_shared(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        va: VirtAddr,
    ) -> Result<(), EngineError> {
        let Some(shared) = &self.mechanisms.shared_segments else { return Ok(()) };
        let start = shared.segment(va).start;
        match shared.by_place.get(&(index, start)) {
            Some(id) if !shared.segments[id].contents.part(start).contains(va) => {
                self.leave_segment_at(context, index, start)
            }
            _ => Ok(()),
        }
    }

    /// Gives a space slots of its own for its shared segments in a range that changes. With `unmapped`, those that the
    /// range contains stay shared: all their pages will be unmapped.
    pub fn leave_shared_segments(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        range: VaRange,
        unmapped: bool,
    ) -> Result<(), EngineError> {
        let Some(shared) = &self.mechanisms.shared_segments else { return Ok(()) };
        let stays = |part: &VaRange| unmapped && range.start <= part.start && part.end <= range.end;
        let places: Vec<_> = shared.places(index, range).into_iter().filter(|(_, part)| !stays(part)).collect();
        places.into_iter().try_for_each(|(start, _)| self.leave_segment_at(context, index, start))
    }

    fn leave_segment_at(&mut self, context: KernelContext, index: SpaceIx, start: VirtAddr) -> Result<(), EngineError> {
        let segment = self.shared_segments().segment(start);
        let pages: Vec<Removed> = self.mapped(index, start, segment.end);
        for page in &pages {
            self.take_entry(index, page.va);
        }
        self.end_sharing(index, start);
        self.shared_segments().counters.left += 1;
        for page in &pages {
            let mapped = self.spaces[index].table.map(&mut self.memory.contents, page.va, page.mapping);
            self.collect_table_work(context, index);
            mapped.map_err(|NoRoom| self.exhausted(Exhausted::Places(page.va)))?;
        }
        Ok(())
    }

    /// Removes a page's entry, unless other spaces use it.
    pub(super) fn take_entry(&mut self, index: SpaceIx, va: VirtAddr) {
        if self.is_mapped_elsewhere_in_segment(index, va) {
            self.spaces[index].table.note_shared_page(va, false);
        } else {
            self.spaces[index].table.unmap(&mut self.memory.contents, va);
        }
    }

    /// Points a segment without pages to the space's own slots again.
    fn end_sharing(&mut self, index: SpaceIx, start: VirtAddr) {
        self.shared_segments().remove((index, start));
        let own = self.point_segment(index, start, None);
        assert!(own, "a space has all segments");
    }

    /// The mapped parts of a space's shared segments.
    pub fn shared_parts(&self, index: SpaceIx) -> Vec<VaRange> {
        let places = self.mechanisms.shared_segments.as_ref().map(|shared| shared.places(index, VaRange::ALL));
        places.into_iter().flatten().map(|(_, part)| part).collect()
    }

    /// Ends the sharing of segments in a range whose pages have been unmapped.
    pub fn detach_segments(&mut self, index: SpaceIx, range: VaRange) {
        let Some(shared) = &self.mechanisms.shared_segments else { return };
        for (start, _) in shared.places(index, range) {
            self.end_sharing(index, start);
        }
    }
}
