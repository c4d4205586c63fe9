//! Reclaim that a program asks for: `MADV_COLD` and `MADV_PAGEOUT`.
//!
//! Models: both look at pages that no other page table maps. MADV_COLD clears their accessed bits and moves them to the
//! inactive list. MADV_PAGEOUT takes them out of memory: anonymous pages go to the swap area, as far as it has room,
//! and clean pages of files leave. Dirty pages of files, and pages of files in memory, only lose their entries. Windows
//! of later read faults leave such a dirty page out until it is touched itself.
//! Source: Linux 6.18 mm/madvise.c (`madvise_cold_or_pageout_pte_range`), mm/vmscan.c (`reclaim_folio_list`,
//! `shrink_folio_list`: `folio_set_reclaim`, the same bit as `PG_readahead`), mm/filemap.c (`next_uptodate_folio`).
//! Deviations: large pages that the range cuts stay. Without storage, a clean page of a file loses its entry only. A
//! program waits for what MADV_PAGEOUT writes to the swap area.

use super::ReclaimScan;
use super::lru::LruEntry;
use crate::context::KernelContext;
use crate::layer::Layer;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{Pfn, VirtAddr};
use pagelab_base::ids::SpaceIx;
use pagelab_base::io::DeviceRequest;
use pagelab_tables::page_table::{PteFlags, Removed};

/// What MADV_PAGEOUT did.
#[derive(Debug, Default)]
pub struct PagedOut {
    /// Pages that are no longer mapped.
    pub pages: u64,
    /// What is to be written to the swap area.
    pub writes: Vec<DeviceRequest>,
    /// The frames that it is written from.
    pub outgoing: Vec<Pfn>,
}

impl Layer {
    /// Pages of a range that no other page table maps, and that lie inside it as a whole.
    fn own_pages(&self, index: SpaceIx, range: VaRange) -> Vec<Removed> {
        let Some(vma) = self.spaces[index].vmas.find(range.start) else { return Vec::new() };
        let zero = self.memory.page_use.zero_page();
        let others = self.other_mappings(index, vma);
        let own = |page: &Removed| {
            let inside = range.start <= page.va && page.va + page.mapping.size.bytes() <= range.end;
            inside && page.mapping.pfn != zero && !self.is_mapped_elsewhere(vma, page, &others)
        };
        let mut pages = self.mapped(index, range.start, range.end);
        pages.retain(own);
        pages
    }

    /// Other mappings of the file that a mapping shows, for kernels without a reverse map.
    fn other_mappings(&self, index: SpaceIx, vma: &Vma) -> Vec<(SpaceIx, VirtAddr)> {
        if self.memory.reclaim.is_some() || vma.file.is_none() && !vma.is_shared_anonymous() {
            return Vec::new();
        }
        let shows = |other: &Vma| other.file == vma.file && other.is_shared_anonymous() == vma.is_shared_anonymous();
        let of_space = |space: SpaceIx| {
            let others = self.spaces[space].vmas.iter().filter(move |other| shows(other));
            others
                .filter(move |other| (space, other.start) != (index, vma.start))
                .map(move |other| (space, other.start))
        };
        self.spaces.numbers().flat_map(of_space).collect()
    }

    fn is_mapped_elsewhere(&self, vma: &Vma, page: &Removed, others: &[(SpaceIx, VirtAddr)]) -> bool {
        let pfn = page.mapping.pfn;
        if let Some(reclaim) = &self.memory.reclaim {
            return reclaim.rmap.pages(pfn).nth(1).is_some();
        }
        if self.memory.page_use.is_anonymous(pfn) {
            return self.memory.page_use.users(pfn) > 1;
        }
        let number = vma.file_page(page.va);
        others.iter().any(|&(space, start)| {
            let other = self.spaces[space].vmas.find(start).expect("it is in the list of mappings");
            let place = other.range_of_pages(&(number..number + 1));
            place.is_some_and(|place| !self.mapped(space, place.start, place.end).is_empty())
        })
    }

    /// The entry of a page on the LRU lists.
    fn lru_entry(&self, page: &Removed) -> Option<LruEntry> {
        let (pfn, reclaim) = (page.mapping.pfn, self.memory.reclaim.as_ref()?);
        let entry = reclaim.group(reclaim.group_of(pfn)).lru.get(pfn)?;
        (entry.order == page.mapping.size.order()).then_some(entry)
    }

    /// Carries MADV_COLD out for a part of a mapping. Returns how many pages have lost their accessed bits.
    pub fn make_cold(&mut self, index: SpaceIx, range: VaRange) -> u64 {
        if self.memory.reclaim.is_none() {
            return 0;
        }
        let pages = self.own_pages(index, range);
        for page in &pages {
            self.protect(index, page, PteFlags { accessed: false, ..page.mapping.flags });
            if let Some(entry) = self.lru_entry(page).filter(LruEntry::is_active) {
                self.put_on_list(page.mapping.pfn, false);
                debug_assert!(!entry.lazy_free, "such pages are inactive");
            }
        }
        pages.len() as u64
    }

    fn put_on_list(&mut self, pfn: Pfn, active: bool) {
        let reclaim = self.memory.reclaim.as_mut().expect("it has lists");
        let id = reclaim.group_of(pfn);
        reclaim.group_mut(id).lru.put(pfn, active, false);
        reclaim.counters.deactivated += u64::from(!active);
    }

    /// Carries MADV_PAGEOUT out for a part of a mapping.
    pub fn page_out(&mut self, context: KernelContext, index: SpaceIx, range: VaRange) -> PagedOut {
        let mut scan = ReclaimScan::default();
        let mut pages = 0;
        for page in self.own_pages(index, range) {
            let gone = if self.memory.page_use.is_anonymous(page.mapping.pfn) {
                self.page_out_anonymous(context, &page, &mut scan)
            } else {
                self.page_out_of_file(context, index, &page, &mut scan);
                true
            };
            pages += u64::from(gone);
        }
        PagedOut { pages, writes: scan.io.swap, outgoing: scan.outgoing }
    }

    /// Whether the page has left.
    fn page_out_anonymous(&mut self, context: KernelContext, page: &Removed, scan: &mut ReclaimScan) -> bool {
        let Some(entry) = self.lru_entry(page) else { return false };
        let room = self.swap().map_or(0, |swap| swap.room());
        let leaves = if entry.lazy_free { !page.mapping.flags.dirty } else { room >= 1 << entry.order };
        if leaves {
            self.evict(context, page.mapping.pfn, &entry, scan);
        }
        leaves
    }

    fn page_out_of_file(&mut self, context: KernelContext, index: SpaceIx, page: &Removed, scan: &mut ReclaimScan) {
        let pfn = page.mapping.pfn;
        let page_use = &self.memory.page_use;
        let (in_memory, written) = (page_use.is_of_memory_file(pfn), page_use.write_of(pfn).is_some());
        let dirty = page.mapping.flags.dirty || page_use.is_dirty(pfn);
        match self.lru_entry(page) {
            Some(entry) if !(in_memory || dirty || written) => self.evict(context, pfn, &entry, scan),
            entry => {
                self.unmap(context, index, page);
                self.put_page(context, &page.mapping);
                if dirty && !in_memory {
                    self.memory.page_use.mark_for_reclaim(pfn);
                }
                if entry.is_some() {
                    self.put_on_list(pfn, true);
                }
            }
        }
    }
}
