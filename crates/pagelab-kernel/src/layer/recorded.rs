//! Pages that a recorded kernel has mapped: the trace has these mappings, and that kernel's work among its accesses.
//!
//! Models: a machine's memory as a file whose offsets are physical addresses. Kernel and programs of that machine map
//! it, shared, each at its own addresses, so all use the same frames. A mapping with MAP_HUGETLB has pages of 2 MiB,
//! for which the file gets its frames in blocks; other mappings map parts of these by pages of 4 KiB.
//! Source: Linux mm/shmem.c and mm/memory.c (`do_set_pmd`, `finish_fault`): a large folio of tmpfs is mapped by a PMD
//! if the mapping has room for all of it, otherwise by PTEs.
//! Parameters: none.
//! Deviations: none of this costs cycles or references, since that would count the recorded kernel's work twice. Page
//! tables are in memory of the simulator, so their lines are not those that the recorded kernel writes. Without such a
//! block (in fragmented memory, where frames may be reclaimed, or if parts came into the file one by one) pages are of
//! 4 KiB.

use crate::context::KernelContext;
use crate::frames::frame_alloc::FramePurpose;
use crate::layer::Layer;
use crate::vma::{VaRange, Vma};
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::ids::SpaceIx;
use pagelab_tables::page_table::{Leaf, Mapping, PteFlags, WalkList};
use pagelab_trace::MapFlags;

impl Layer {
    /// Maps a new mapping's pages of its file; returns the number of pages. A mapping without any access gets none.
    pub fn map_recorded(&mut self, context: KernelContext, index: SpaceIx, range: VaRange) -> Result<u64, EngineError> {
        let vma = self.spaces[index].vmas.find(range.start).expect("it has just been made").clone();
        if !(vma.prot.read || vma.prot.write || vma.prot.execute) {
            return Ok(0);
        }
        let file = self.memory.page_use.file(vma.file.as_ref().expect("only files are mapped so"));
        let (writable, executable) = (vma.prot.write, vma.prot.execute);
        let flags = PteFlags { writable, user: true, executable, accessed: true, dirty: writable };
        let (mut va, mut pages) = (range.start, 0);
        while va < range.end {
            let (pfn, size) = match self.recorded_block(context, index, &vma, file, va) {
                Some(first) => (first, PageSize::Size2M),
                None => (self.cached_page(context, file, vma.file_page(va), &vma.file_pages())?, PageSize::Size4K),
            };
            self.build_tables(context, index, va, size)?;
            self.map(context, index, va, Mapping { pfn, size, flags })?;
            va += size.bytes();
            pages += 1;
        }
        Ok(pages)
    }

    /// The block to which a page of 2 MiB is mapped at an address; `None` if it must be mapped in parts.
    fn recorded_block(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        vma: &Vma,
        file: u32,
        va: VirtAddr,
    ) -> Option<Pfn> {
        let size = PageSize::Size2M;
        let aligned = va.offset_in(size.bytes()) == 0 && vma.file_page(va) << FRAME_SHIFT & size.offset_mask() == 0;
        let inside = vma.end.0 - va.0 >= size.bytes();
        if !(vma.flags.contains(MapFlags::HUGETLB) && aligned && inside) || self.memory.reclaim.is_some() {
            return None;
        }
        let mut list = WalkList::new();
        self.spaces[index].table.walk(&self.memory.contents, va, &mut list);
        let Leaf::NotPresent { level, .. } = list.leaf else { unreachable!("nothing is mapped at {va:?} yet") };
        if PageSize::from_level(level) < size { None } else { self.file_block(context, file, vma.file_page(va)) }
    }

    /// The block that holds 2 MiB of a file from a page on; allocated if none of these pages is in memory.
    fn file_block(&mut self, context: KernelContext, file: u32, first: u64) -> Option<Pfn> {
        let order = PageSize::Size2M.order();
        let held = |n| self.memory.page_use.cached(file, first + n);
        let mut others = 1..1 << order;
        match held(0) {
            Some(pfn) => {
                let whole = pfn.is_aligned(1 << order) && others.all(|n| held(n) == Some(pfn + n));
                whole.then_some(pfn)
            }
            None if others.any(|n| held(n).is_some()) => None,
            None => {
                let pfn = self.memory.frames.alloc(order, FramePurpose::PageCache, context.cpu)?;
                self.memory.page_use.count_folio(order);
                for n in 0..1 << order {
                    self.note_read(file, first + n, pfn + n);
                    self.cache_page(file, first + n, pfn + n);
                }
                Some(pfn)
            }
        }
    }
}
