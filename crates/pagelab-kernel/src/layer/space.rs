//! Address spaces of a layer, and their tags.

use std::collections::BTreeMap;

use crate::direct_segment::DirectSegment;
use crate::entry_word::EntryWord;
use crate::memory::object_line;
use crate::mmap_misses::MmapMisses;
use crate::page_ranges::PageRanges;
use crate::reclaim::GroupId;
use crate::translation_cache::SpaceCaches;
use crate::vma::VmaSet;
use pagelab_base::addr::{LINE_BYTES, Pfn, PhysAddr};
use pagelab_base::error::EngineError;
use pagelab_tables::mmu_cache::Asid;
use pagelab_tables::page_table::PageTable;

/// An address space: what it maps and how.
#[derive(Clone)]
pub struct AddressSpace {
    /// Its tag in TLBs and MMU caches.
    pub asid: Asid,
    /// The page table that hardware walks.
    pub table: PageTable,
    /// Caches for the walks of faults, in kernels that have them.
    pub caches: SpaceCaches,
    /// Its mappings, as the kernel records them.
    pub vmas: VmaSet,
    /// The cgroup that its pages are charged to.
    pub group: GroupId,
    /// Whether the placement policy chooses the frames of its pages.
    pub uses_placement: bool,
    /// Whether the layer's fault engine serves it.
    pub uses_fault_engine: bool,
    /// Whether its memory is in the results.
    pub reported: bool,
    /// The part that is translated without a page table.
    pub segment: Option<DirectSegment>,
    /// Misses in its mappings of files.
    pub misses: MmapMisses,
    /// Frames that it maps, without the zero page (`get_mm_rss`).
    pub resident: u64,
    /// For a guest's memory that its host has backed before the run: the pages that the host has discarded since.
    pub discarded: PageRanges,
    /// Number of entries that are not present and hold a word.
    pub(super) words: u64,
    /// These words by 4 KiB page, if the page table has no room for them.
    pub(super) small_page_words: BTreeMap<u64, EntryWord>,
    /// The frame of the kernel's objects of this space (mm, VMAs).
    pub(super) objects: Pfn,
    /// With `--check`: 4 KiB page → frame and whether stores are allowed, as the kernel decided, independent of page
    /// tables.
    pub(super) record: Option<BTreeMap<u64, (Pfn, bool)>>,
}

impl AddressSpace {
    /// Address of the mm's lock.
    pub fn lock_line(&self) -> PhysAddr {
        self.objects.addr()
    }

    /// The frame whose metadata has the lock of an entry: its page-table page, or that of the space's objects if
    /// entries move (`mm->page_table_lock`).
    pub fn lock_frame(&self, entry: PhysAddr) -> Pfn {
        if self.table.moves_entries() { self.objects } else { entry.pfn() }
    }

    /// Address of the counters of its pages.
    pub fn counter_line(&self) -> PhysAddr {
        self.objects.addr() + LINE_BYTES
    }

    /// Address of a smaller object: one of the other lines of the objects' frame, chosen by `key`.
    pub fn object_line(&self, key: u64) -> PhysAddr {
        object_line(self.objects, key)
    }
}

/// Allocates address-space tags, unique over all layers, since TLBs distinguish spaces by these alone.
#[derive(Clone, Default)]
pub struct AsidAllocator {
    next: u16,
}

impl AsidAllocator {
    /// The next tag. Errors: all are in use.
    pub(super) fn take(&mut self) -> Result<Asid, EngineError> {
        let asid = Asid(self.next);
        self.next = self.next.checked_add(1).ok_or_else(|| EngineError::OutOfMemory {
            what: "more than 65535 address spaces live at once".to_owned(),
        })?;
        Ok(asid)
    }
}
