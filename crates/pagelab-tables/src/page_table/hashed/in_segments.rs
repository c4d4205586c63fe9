//! Tables with segments (POWER): searches, insertions and removals of pages whose segment has a base page size.
//!
//! All slots of a segment are hashed with its base page size, so a walker that knows the segment makes one search. A
//! larger page in a segment of smaller ones takes a slot for each of these, which contain its own size (mixed page
//! sizes in a segment). A segment gets the size of its first page. If a smaller page follows, the slots of all pages of
//! the segment are replaced. A segment that has become empty may get another size.
//! Source: Linux arch/powerpc/mm/book3s64/hash_hugepage.c (`__hash_page_thp`), hash_utils.c (`demote_segment_4k`).

use super::geometry::{Geometry, Key, VA_BITS};
use super::segments::{Segment, SegmentTable};
use super::{Hashed, Kind, power};
use crate::page_table::{Leaf, Mapping, NoRoom, PteFlags, SegmentChange, WalkList};
use pagelab_base::addr::{LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::memory::PhysMem;

/// The addresses of a page's pieces of a base size.
fn pieces(va: VirtAddr, size: PageSize, base: PageSize) -> impl Iterator<Item = VirtAddr> {
    let first = va.align_down(size.bytes());
    (0..size.bytes()).step_by(base.bytes() as usize).map(move |offset| first + offset)
}

/// Tables with segments.
impl<K: Kind> Hashed<K> {
    /// Lists the references of a walk: lines of the segment table, then those of one search.
    pub(super) fn walk_segment(
        &self,
        (segments, record): (&SegmentTable, Option<&Geometry>),
        mem: &PhysMem,
        va: VirtAddr,
        list: &mut WalkList,
    ) {
        let mut step = 0_u8;
        let mut next_step = || {
            step = step.wrapping_add(1);
            step - 1
        };
        let segment = segments.find(mem, va, |line| list.push(segments.reference(line, next_step())));
        let found = segment.and_then(|segment| {
            let part = &self.parts[self.part_for(segment.base)];
            let visit = |addr, _| list.push(super::reference(addr, part.size, next_step()));
            self.search((part, record), mem, segments.key(segment, va), visit)
        });
        let Some(mapping) = found else {
            list.leaf = Leaf::nothing(self.pages.free_level(va, &PageSize::ALL[..self.parts.len()]));
            return;
        };
        list.set_last_shift(mapping.size.shift() as u8);
        list.leaf = Leaf::Present(mapping);
    }

    /// The address that a page of this size, or a smaller one, will have an entry for, and its part and key there.
    pub(super) fn place_in_segment(
        &self,
        segments: &SegmentTable,
        mem: &PhysMem,
        va: VirtAddr,
        size: PageSize,
    ) -> (usize, Key) {
        let size = if self.parts.iter().any(|part| part.size == size) { size } else { PageSize::Size4K };
        let segment = self.segment_for(segments, mem, va, size);
        let base = segment.base.min(size);
        (self.part_for(base), segments.key(Segment { base, ..segment }, va.align_down(size.bytes())))
    }

    /// Points a segment of the space, in which nothing is mapped, to a virtual segment that spaces share, or to its
    /// own. Its entry is rewritten if it has one, and otherwise written with its first page. Refused is a number that
    /// is too large for a slot's tag.
    pub(super) fn point_segment(&mut self, mem: &mut PhysMem, va: VirtAddr, shared: Option<u32>) -> SegmentChange {
        let Some(segments) = &mut self.segments else { return SegmentChange::Refused };
        if shared.is_some_and(|id| u64::from(id) >= 1 << (VA_BITS - segments.shift)) {
            return SegmentChange::Refused;
        }
        segments.share(va, shared);
        if segments.find(mem, va, |_| {}).is_none() {
            return SegmentChange::Noted;
        }
        let segment = segments.pointed_to(self.asid, va, PageSize::Size4K);
        segments.write(mem, va, segment).expect("it has an entry");
        SegmentChange::Rewritten
    }

    /// Writes the entry of a shared segment if it has none. False if the segment table is full.
    pub(super) fn write_shared_segment(&mut self, mem: &mut PhysMem, va: VirtAddr) -> bool {
        let Some(segments) = &mut self.segments else { return false };
        let segment = segments.pointed_to(self.asid, va, PageSize::Size4K);
        segments.find(mem, va, |_| {}).is_some() || segments.write(mem, va, segment).is_ok()
    }

    /// The mapped pages of a segment.
    fn pages_of_segment(&self, segments: &SegmentTable, va: VirtAddr) -> impl Iterator<Item = (VirtAddr, PageSize)> {
        let start = VirtAddr(segments.effective(va) << segments.shift);
        self.pages.range(start, start + (1 << segments.shift))
    }

    /// The segment of a page that is to be mapped: one without pages has the page's size.
    fn segment_for(&self, segments: &SegmentTable, mem: &PhysMem, va: VirtAddr, size: PageSize) -> Segment {
        let is_empty = || self.pages_of_segment(segments, va).next().is_none();
        match segments.find(mem, va, |_| {}) {
            Some(segment) if is_empty() => Segment { base: size, ..segment },
            Some(segment) => segment,
            None => segments.pointed_to(self.asid, va, size),
        }
    }

    /// Maps a page, with a slot for each of its pieces. Returns the address of the first one's entry.
    pub(super) fn map_in_segment(
        &mut self,
        mem: &mut PhysMem,
        va: VirtAddr,
        mapping: &Mapping,
    ) -> Result<PhysAddr, NoRoom> {
        let mut segments = self.segments.take().expect("the table has segments");
        let old = self.segment_for(&segments, mem, va, mapping.size);
        let new = Segment { base: old.base.min(mapping.size), ..old };
        let known = segments.find(mem, va, |_| {});
        let written = match known {
            Some(known) if known.base == new.base => Ok(()),
            _ => segments.write(mem, va, new),
        };
        let mapped = written.and_then(|()| {
            let entry = self.insert_pieces(&mut segments, mem, new, va, mapping)?;
            self.demote(&mut segments, mem, va, [old, new]).map(|()| entry)
        });
        self.segments = Some(segments);
        mapped
    }

    /// Writes the slots of a page's pieces. Returns the address of the first one's entry.
    fn insert_pieces(
        &mut self,
        segments: &mut SegmentTable,
        mem: &mut PhysMem,
        segment: Segment,
        va: VirtAddr,
        mapping: &Mapping,
    ) -> Result<PhysAddr, NoRoom> {
        let part = self.part_for(segment.base);
        let mut first = None;
        for piece in pieces(va, mapping.size, segment.base) {
            let entry = self.insert(mem, part, segments.key(segment, piece), mapping)?;
            match first {
                None => first = Some(entry),
                Some(_) => segments.lines.push(entry.align_down(LINE_BYTES)),
            }
        }
        Ok(first.expect("a page has pieces"))
    }

    /// Replaces the slots of all pages of a segment whose base page size becomes smaller.
    fn demote(
        &mut self,
        segments: &mut SegmentTable,
        mem: &mut PhysMem,
        va: VirtAddr,
        [old, new]: [Segment; 2],
    ) -> Result<(), NoRoom> {
        if old.base == new.base {
            return Ok(());
        }
        segments.demoted += 1;
        for (page, size) in self.pages_of_segment(segments, va).collect::<Vec<_>>() {
            let (part, key) = (self.part_for(old.base), segments.key(old, page));
            let located = self.locate_key(mem, part, key).expect("a page of the segment has a slot");
            segments.lines.push(located.slot.align_down(LINE_BYTES));
            self.remove(mem, part, located.slot, key);
            let entry = self.insert_pieces(segments, mem, new, page, &Mapping { size, ..located.mapping })?;
            segments.lines.push(entry.align_down(LINE_BYTES));
        }
        segments.lines.dedup();
        Ok(())
    }

    /// The part and key of each of a mapped page's slots.
    fn slots_of_page(&self, mem: &PhysMem, va: VirtAddr, size: PageSize) -> Vec<(usize, Key)> {
        let segments = self.segments.as_ref().expect("the table has segments");
        let segment = segments.find(mem, va, |_| {}).expect("the segment has a page");
        let part = self.part_for(segment.base);
        pieces(va, size, segment.base).map(|piece| (part, segments.key(segment, piece))).collect()
    }

    /// Replaces the entries of a page of the same size.
    pub(super) fn replace_in_segment(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: &Mapping) {
        for (part, key) in self.slots_of_page(mem, va, mapping.size) {
            let located = self.locate_key(mem, part, key).expect("each piece has a slot");
            self.write(mem, part, located.slot, key, mapping);
        }
    }

    /// Removes the slots of a page. Returns the address of the first one's entry.
    pub(super) fn unmap_in_segment(&mut self, mem: &mut PhysMem, va: VirtAddr, size: PageSize) -> PhysAddr {
        let mut first = None;
        for (part, key) in self.slots_of_page(mem, va, size) {
            let located = self.locate_key(mem, part, key).expect("each piece has a slot");
            let entry = self.remove(mem, part, located.slot, key);
            first = first.or(Some(entry));
        }
        first.expect("a page has pieces")
    }

    /// Makes sure of slots for a page. A page that needs several inserts them all and removes them again.
    pub(super) fn reserve_in_segment(&mut self, mem: &mut PhysMem, va: VirtAddr, size: PageSize) -> bool {
        let segments = self.segments.as_ref().expect("the table has segments");
        let segment = self.segment_for(segments, mem, va, size);
        if segments.search(mem, va, |_| {}) == Err(None) {
            return false;
        }
        let base = segment.base.min(size);
        let (part, segment) = (self.part_for(base), Segment { base, ..segment });
        let keys: Vec<_> = pieces(va, size, base).map(|piece| segments.key(segment, piece)).collect();
        let flags = PteFlags { writable: false, user: false, executable: false, accessed: false, dirty: false };
        let mapping = Mapping { pfn: Pfn(0), size, flags };
        let mut inserted = Vec::new();
        let mut has_room = true;
        for key in keys {
            if self.locate_key(mem, part, key).is_some() {
                continue;
            }
            has_room &= self.insert(mem, part, key, &mapping).is_ok();
            if !has_room {
                break;
            }
            inserted.push(key);
        }
        for key in inserted {
            let located = self.locate_key(mem, part, key).expect("it was inserted");
            self.remove(mem, part, located.slot, key);
        }
        has_room
    }

    /// Address of the entry that a page will get in a slot of its groups.
    pub(super) fn entry_in_segment(
        &self,
        segments: &SegmentTable,
        mem: &PhysMem,
        va: VirtAddr,
        size: PageSize,
    ) -> PhysAddr {
        if let Some(located) = self.locate(mem, va) {
            return located.slot + 8;
        }
        let (part, key) = self.place_in_segment(segments, mem, va, size);
        let geometry = &self.parts[part].geometry;
        let mut last = PhysAddr(0);
        let room = Self::probe(geometry, mem, key, |line| last = line).room;
        let victim = || self.record.map(|_| power::victim(geometry, mem, key));
        room.or_else(victim).map_or(last, |slot| slot + 8)
    }
}
