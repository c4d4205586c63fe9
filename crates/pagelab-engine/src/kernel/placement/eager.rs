//! Eager paging: memory is taken and mapped when a program asks for it, in blocks as large as can be had.
//!
//! Models: of a private anonymous mapping that can be written, made by mmap or mremap or grown by brk, all pages are mapped before
//! the call returns, as MAP_POPULATE would, by 4 KiB PTEs: in each place the largest naturally aligned block of frames that lies
//! inside the mapping and that the allocator has. A layer whose pages may be large maps large ones where they fit. What is
//! discarded later is faulted in page by page. None of it is counted as a fault, but for what programs touch later.
//! Source: Karakostas, Gandhi, Ayar, Cristal, Hill, McKinley, Nemirovsky, Swift, Unsal, "Redundant memory mappings for fast access to
//! large memories" (ISCA 2015), its eager paging.
//! Parameters: `system.layers.NAME.placement` of kind `eager`: `largest_block`, `stop_above_percent`.
//! Stats: `populate.pages`, `layer.NAME.fault.zeroed_bytes`, `layer.NAME.folios.*` (blocks by size).
//! Deviations from the source: a block begins at a virtual address that is a multiple of its size, so that the PTEs of a line lead to
//! frames of a line; the paper's ranges may begin anywhere. The range table and the
//! range TLB are not modelled. Mappings that reserve nothing (MAP_NORESERVE, thread stacks among them), stacks and what mprotect makes
//! writable later stay on demand, and so does everything while more memory is in use than `stop_above_percent`, or while reclaim
//! would be needed. Each block pays for the stages of a fault without exception and return.

use crate::base::addr::FRAME_SHIFT;
use crate::kernel::layer::Layer;
use crate::kernel::vma::{VaRange, Vma, VmaKind};

impl Layer {
    /// Whether the pages of a new mapping are to be mapped at once.
    pub fn is_eager_about(&self, space: u32, range: VaRange) -> bool {
        let eager = |vma: &Vma| {
            let anonymous = matches!(vma.kind, VmaKind::Anonymous | VmaKind::Heap) && !vma.is_shared();
            anonymous && vma.prot.write && !vma.grows_down() && !vma.reserves_nothing()
        };
        self.eager.is_some() && self.spaces[space as usize].vmas.find(range.start).is_some_and(eager)
    }

    /// Whether there is memory enough to map more of it ahead of any access.
    pub fn can_be_eager(&self) -> bool {
        let Some(config) = &self.eager else { return false };
        let frames = self.memory_bytes() >> FRAME_SHIFT;
        let order = config.order().max(self.page_size.order());
        let used = frames - self.free_frame_count() + (1 << order);
        let room = used * 100 <= frames * u64::from(config.stop_above_percent);
        room && !self.is_low() && self.pressure(order).is_none()
    }
}
