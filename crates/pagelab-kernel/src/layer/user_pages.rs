//! Pages of programs in a layer: allocating and freeing them.

use crate::context::KernelContext;
use crate::frames::page_use::FrameStatus;
use crate::layer::Layer;
use crate::reclaim::{LruPageKind, Swap};
use pagelab_base::addr::Pfn;
use pagelab_tables::page_table::Mapping;

impl Layer {
    /// Allocates a block for a page of a program.
    pub fn take_page(&mut self, context: KernelContext, order: u32) -> Option<Pfn> {
        self.memory_for(context).take_page(order)
    }

    /// Frees a block that was allocated for a program and is not mapped.
    pub fn free_block(&mut self, context: KernelContext, pfn: Pfn, order: u32) {
        self.free_uncharged(context, pfn, order);
        if let Some(reclaim) = &mut self.memory.reclaim {
            reclaim.uncharge(pfn, order);
        }
    }

    /// Frees a block that is charged to no cgroup.
    pub fn free_uncharged(&mut self, context: KernelContext, pfn: Pfn, order: u32) {
        match self.memory.frames.allocator.used_order(pfn) {
            Some(held) if held == order => self.memory.frames.free(pfn, order, context.cpu),
            // The former block has been split, or this is a part of one.
            _ => (0..1 << order).for_each(|n| self.memory_for(context).free_frame_of_block(pfn + n)),
        }
    }

    /// Removes one mapping of a program's page; frees those of its frames that have no other user.
    pub fn put_page(&mut self, context: KernelContext, mapping: &Mapping) {
        let (pfn, order) = (mapping.pfn, mapping.size.order());
        if order == 0 {
            return self.put_frame(context, pfn);
        }
        if self.memory.frames.allocator.used_order(pfn) == Some(order) && self.memory.page_use.are_exclusive(pfn, order)
        {
            self.free_block(context, pfn, order);
        } else {
            (0..1 << order).for_each(|n| self.put_frame(context, pfn + n));
        }
    }

    /// The same for one frame.
    pub fn put_frame(&mut self, context: KernelContext, pfn: Pfn) {
        if self.memory.page_use.unshare(pfn) == FrameStatus::Unused {
            self.free_block(context, pfn, 0);
        }
    }

    /// Adds a user to all frames of a page.
    pub fn share_page(&mut self, mapping: &Mapping) {
        (0..1 << mapping.size.order()).for_each(|n| self.memory.page_use.share(mapping.pfn + n));
    }

    /// The swap area, if the layer has one.
    pub fn swap(&mut self) -> Option<&mut Swap> {
        self.memory.reclaim.as_mut()?.swap.as_mut()
    }

    /// Whether memory must and can be reclaimed before a block of this order is allocated.
    pub fn is_short(&self, context: KernelContext, order: u32) -> bool {
        self.memory.pressure(order, context.group).is_some_and(|pressure| self.memory.can_reclaim(pressure))
    }

    /// Adds a page that a program maps to an LRU list, if it can be reclaimed.
    pub fn list_page(&mut self, mapping: &Mapping) {
        if let Some(reclaim) = &mut self.memory.reclaim
            && self.memory.page_use.is_anonymous(mapping.pfn)
        {
            reclaim.add(mapping.pfn, mapping.size.order(), LruPageKind::Anonymous);
        }
    }
}
