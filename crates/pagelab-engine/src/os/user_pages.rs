//! The pages of programs in a layer: who takes and gives them back, and which of them can leave.

use crate::addr::{FRAME_BYTES, PageSize, Pfn, VirtAddr};
use crate::error::EngineError;
use crate::layer::Layer;
use crate::os::frame_alloc::FramePurpose;
use crate::os::page_use::Left;
use crate::os::reclaim::Verdict;
use crate::page_table::{Leaf, Mapping, PteFlags, WalkList};

impl Layer {
    /// A program's page lost a mapping: frees its frames if nobody else uses them.
    pub fn put_page(&mut self, mapping: &Mapping) {
        if self.pages.unshare(mapping.pfn) == Left::Unused {
            self.frames.free(mapping.pfn, mapping.size.order(), self.acting_cpu);
            if let Some(reclaim) = &mut self.reclaim {
                reclaim.forget(mapping.pfn);
                reclaim.used_frames -= 1 << mapping.size.order();
            }
        }
    }

    /// A page that was taken for a program is not used after all.
    pub fn drop_page(&mut self, pfn: Pfn) {
        self.frames.free(pfn, 0, self.acting_cpu);
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.used_frames -= 1;
        }
    }

    /// A block for a page of a program.
    pub fn take_page(&mut self, order: u32) -> Option<Pfn> {
        let pfn = self.frames.alloc(order, FramePurpose::UserData, self.acting_cpu)?;
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.used_frames += 1 << order;
        }
        Some(pfn)
    }

    /// Whether room is to be made before a block of this order is taken, and can be.
    pub fn is_short(&self, order: u32) -> bool {
        let free = self.free_frame_count();
        self.reclaim.as_ref().is_some_and(|reclaim| reclaim.is_short(free, 1 << order) && reclaim.has_pages())
    }

    /// A page was mapped in another place.
    pub fn moved(&mut self, index: u32, va: VirtAddr, mapping: &Mapping) {
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.forget(mapping.pfn);
        }
        self.list_page(index, va, mapping);
    }

    /// A page of its own that a program maps is on an LRU list from now on.
    pub fn list_page(&mut self, index: u32, va: VirtAddr, mapping: &Mapping) {
        if let Some(reclaim) = &mut self.reclaim
            && mapping.size == PageSize::Size4K
            && self.pages.is_exclusive(mapping.pfn)
            && !self.pages.is_object(mapping.pfn)
        {
            reclaim.add(mapping.pfn, index, va);
        }
    }

    /// Reads a page's accessed bit and clears it.
    fn take_accessed(&mut self, index: u32, va: VirtAddr) -> bool {
        let mut list = WalkList::new();
        self.spaces[index as usize].table.walk(&self.mem, va, &mut list);
        let Leaf::Present(mapping) = list.leaf else { unreachable!("pages on LRU lists are mapped") };
        if mapping.flags.accessed {
            let flags = PteFlags { accessed: false, ..mapping.flags };
            self.spaces[index as usize].table.set_flags(&mut self.mem, va, flags);
        }
        mapping.flags.accessed
    }

    /// Scans the oldest inactive pages once: those that were accessed become active, the others leave for the swap device
    /// as long as that has room. Returns the pages whose translations are gone.
    pub fn scan_pages(&mut self) -> Vec<(u32, VirtAddr)> {
        let Some(mut reclaim) = self.reclaim.take() else { return Vec::new() };
        reclaim.balance(|space, va| self.take_accessed(space, va));
        let mut gone = Vec::new();
        for (pfn, space, va) in reclaim.candidates().collect::<Vec<_>>() {
            if self.take_accessed(space, va) || !reclaim.swap.has_room() {
                reclaim.decide(pfn, Verdict::Keep);
            } else {
                reclaim.decide(pfn, Verdict::Evict);
                gone.push((space, va));
            }
        }
        self.reclaim = Some(reclaim);
        for &(space, va) in &gone {
            for page in self.mapped(space, va, VirtAddr(va.0 + FRAME_BYTES)) {
                self.unmap(space, &page);
                self.put_page(&page.mapping);
            }
        }
        gone
    }

    /// The frame that holds a page of a file, brought into the page cache if need be.
    pub fn cached_page(&mut self, file: u32, page: u64) -> Result<Pfn, EngineError> {
        if let Some(frame) = self.pages.cached(file, page) {
            return Ok(frame);
        }
        let frame = self.take_frame(FramePurpose::PageCache, "the page cache")?;
        self.pages.cache(file, page, frame);
        Ok(frame)
    }
}
