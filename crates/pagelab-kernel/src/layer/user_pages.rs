//! The pages of programs in a layer: who takes them and gives them back.

use crate::frames::page_use::FrameStatus;
use crate::layer::Layer;
use crate::reclaim::{LruPageKind, Pressure, Swap};
use pagelab_base::addr::Pfn;
use pagelab_tables::page_table::Mapping;

impl Layer {
    /// A block for a page of a program.
    pub fn take_page(&mut self, order: u32) -> Option<Pfn> {
        self.placing().1.take_page(order)
    }

    /// A block that was taken for a program and that nobody maps is free again.
    pub fn free_block(&mut self, pfn: Pfn, order: u32) {
        self.free_uncharged(pfn, order);
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.uncharge(pfn, order);
        }
    }

    /// The same of one that nobody is charged for.
    pub fn free_uncharged(&mut self, pfn: Pfn, order: u32) {
        match self.frames.allocator.used_order(pfn) {
            Some(held) if held == order => self.frames.free(pfn, order, self.acting_cpu),
            // What was one block is several, or this is a part of one.
            _ => (0..1 << order).for_each(|n| self.placing().1.free_frame_of_block(pfn + n)),
        }
    }

    /// A program's page lost a mapping: frees the frames among its that nobody else uses.
    pub fn put_page(&mut self, mapping: &Mapping) {
        let (pfn, order) = (mapping.pfn, mapping.size.order());
        if order == 0 {
            return self.put_frame(pfn);
        }
        if self.frames.allocator.used_order(pfn) == Some(order) && self.pages.are_exclusive(pfn, order) {
            self.free_block(pfn, order);
        } else {
            (0..1 << order).for_each(|n| self.put_frame(pfn + n));
        }
    }

    /// The same for one frame.
    pub fn put_frame(&mut self, pfn: Pfn) {
        if self.pages.unshare(pfn) == FrameStatus::Unused {
            self.free_block(pfn, 0);
        }
    }

    /// Others use all frames of a page too from now on.
    pub fn share_page(&mut self, mapping: &Mapping) {
        (0..1 << mapping.size.order()).for_each(|n| self.pages.share(mapping.pfn + n));
    }

    /// The swap area, if the layer has one.
    pub fn swap(&mut self) -> Option<&mut Swap> {
        self.reclaim.as_mut()?.swap.as_mut()
    }

    /// What stands in the way of taking a block of this order.
    pub fn pressure(&self, order: u32) -> Option<Pressure> {
        self.memory_view().pressure(order)
    }

    /// Whether room is to be made before a block of this order is taken, and can be.
    pub fn is_short(&self, order: u32) -> bool {
        self.pressure(order).is_some_and(|pressure| self.can_reclaim(pressure))
    }

    /// Whether it is time for kswapd.
    pub fn is_low(&self) -> bool {
        self.memory_view().is_low()
    }

    /// Whether a scan might find something.
    pub fn can_reclaim(&self, pressure: Pressure) -> bool {
        self.memory_view().can_reclaim(pressure)
    }

    /// A page that a program maps is on an LRU list from now on, if it can leave.
    pub fn list_page(&mut self, mapping: &Mapping) {
        if let Some(reclaim) = &mut self.reclaim
            && self.pages.is_anonymous(mapping.pfn)
            && !self.pages.is_object(mapping.pfn)
        {
            reclaim.add(mapping.pfn, mapping.size.order(), LruPageKind::Anonymous);
        }
    }
}
