//! The entries that a mapping call changes, for what the call costs (`mapping_call`).

use crate::frames::frame_alloc::ZoneBatch;
use crate::frames::supply::FrameCounters;
use crate::layer::Layer;
use pagelab_base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::ids::SpaceIx;
use pagelab_tables::page_table::Removed;

/// An entry that a call has changed.
#[derive(Clone, Debug)]
pub struct ChangedEntry {
    /// Where the entry is, or was.
    pub entry: PhysAddr,
    /// Where the page was, and its size.
    pub page: (VirtAddr, PageSize),
    /// The page's frame.
    pub frame: Pfn,
    /// The entry that the page has moved to.
    pub moved_to: Option<PhysAddr>,
    /// Whether the page was unmapped and freed.
    pub is_freed: bool,
    /// Whether the page was unmapped.
    pub is_unmapped: bool,
    /// What was done under the zone's lock; `None` if it was not taken.
    pub under_zone_lock: Option<ZoneBatch>,
}

impl ChangedEntry {
    /// An entry whose page stays mapped.
    fn new(entry: PhysAddr, page: &Removed) -> Self {
        let (place, frame) = ((page.va, page.mapping.size), page.mapping.pfn);
        Self { entry, page: place, frame, moved_to: None, is_freed: false, is_unmapped: false, under_zone_lock: None }
    }
}

impl Layer {
    /// Where a call's change of a mapped page is recorded, if it is: the entry's address before the change.
    pub(crate) fn entry_to_change(&self, index: SpaceIx, page: &Removed) -> Option<PhysAddr> {
        self.spaces.changed.as_ref()?;
        Some(self.spaces[index].table.entry(&self.memory.contents, page.va, page.mapping.size))
    }

    /// Records that a call has changed the entry of a page.
    pub(crate) fn note_change(&mut self, entry: Option<PhysAddr>, page: &Removed) {
        if let (Some(entry), Some(changed)) = (entry, &mut self.spaces.changed) {
            changed.push(ChangedEntry::new(entry, page));
        }
    }

    /// Records where a call has moved the page whose change it has recorded last.
    pub(crate) fn note_move(&mut self, index: SpaceIx, to: VirtAddr, size: PageSize) {
        let Some(moved) = self.spaces.changed.as_ref().and_then(|changed| changed.len().checked_sub(1)) else { return };
        let entry = self.spaces[index].table.entry(&self.memory.contents, to, size);
        if let Some(changed) = &mut self.spaces.changed {
            changed[moved].moved_to = Some(entry);
        }
    }

    /// Records that a call has unmapped a page, after its frame was released.
    pub(crate) fn note_unmapping(&mut self, entry: Option<PhysAddr>, page: &Removed, before: &FrameCounters) {
        let Some(entry) = entry else { return };
        let is_freed = self.memory.frames.allocator.used_order(page.mapping.pfn).is_none();
        let under_zone_lock = self.under_zone_lock(before);
        let Some(changed) = &mut self.spaces.changed else { return };
        changed.push(ChangedEntry { is_freed, is_unmapped: true, under_zone_lock, ..ChangedEntry::new(entry, page) });
    }

    /// What has been done under the zone's lock since the counters had these values; `None` if it was not taken. Of
    /// several blocks, only the last one's descriptors are known.
    pub(crate) fn under_zone_lock(&self, before: &FrameCounters) -> Option<ZoneBatch> {
        let frames = &self.memory.frames;
        let batch = || ZoneBatch {
            descriptors: frames.effects.descriptors.clone(),
            moved: frames.counters.moved - before.moved,
        };
        (frames.counters.zone_locks > before.zone_locks).then(batch)
    }
}
