//! The pages of programs in a layer: who takes them and gives them back.

use crate::base::addr::Pfn;
use crate::kernel::frames::frame_alloc::FramePurpose;
use crate::kernel::frames::page_use::Left;
use crate::kernel::layer::Layer;
use crate::kernel::reclaim::{Kind, Pressure, Swap};
use crate::page_table::Mapping;

impl Layer {
    /// A block for a page of a program.
    pub fn take_page(&mut self, order: u32) -> Option<Pfn> {
        let pfn = self.frames.alloc(order, FramePurpose::UserData, self.acting_cpu)?;
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.charge(pfn, order, self.acting_group);
        }
        Some(pfn)
    }

    /// Exactly the block at `pfn`; false if it is not free.
    pub fn take_page_at(&mut self, pfn: Pfn, order: u32) -> bool {
        let taken = self.frames.alloc_at(pfn, order, FramePurpose::UserData, self.acting_cpu);
        if let Some(reclaim) = self.reclaim.as_mut().filter(|_| taken) {
            reclaim.charge(pfn, order, self.acting_group);
        }
        taken
    }

    /// A block that was taken for a program and that nobody maps is free again.
    pub fn free_block(&mut self, pfn: Pfn, order: u32) {
        match self.frames.allocator.used_order(pfn) {
            Some(held) if held == order => self.frames.free(pfn, order, self.acting_cpu),
            // What was one block is several, or this is a part of one.
            _ => (0..1 << order).for_each(|n| self.free_frame_of_block(Pfn(pfn.0 + n))),
        }
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.uncharge(pfn, order);
        }
    }

    /// Frees one frame, whether it is a block or a part of one that is in use.
    pub(crate) fn free_frame_of_block(&mut self, pfn: Pfn) {
        let allocator = &mut self.frames.allocator;
        let heads = (0..=allocator.max_order()).map(|order| (Pfn(pfn.0 >> order << order), order));
        let mut blocks = heads.filter(|&(head, order)| allocator.used_order(head) == Some(order));
        let (head, order) = blocks.next().expect("the frame is in use");
        if order > 0 {
            allocator.split_used(head, order, 0);
        }
        self.frames.free(pfn, 0, self.acting_cpu);
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
            (0..1 << order).for_each(|n| self.put_frame(Pfn(pfn.0 + n)));
        }
    }

    /// The same for one frame.
    pub fn put_frame(&mut self, pfn: Pfn) {
        if self.pages.unshare(pfn) == Left::Unused {
            self.free_block(pfn, 0);
        }
    }

    /// Others use all frames of a page too from now on.
    pub fn share_page(&mut self, mapping: &Mapping) {
        (0..1 << mapping.size.order()).for_each(|n| self.pages.share(Pfn(mapping.pfn.0 + n)));
    }

    /// The swap area, if the layer has one.
    pub fn swap(&mut self) -> Option<&mut Swap> {
        self.reclaim.as_mut()?.swap.as_mut()
    }

    /// What stands in the way of taking a block of this order.
    pub fn pressure(&self, order: u32) -> Option<Pressure> {
        self.reclaim.as_ref()?.pressure(self.free_frame_count(), 1 << order, self.acting_group)
    }

    /// Whether room is to be made before a block of this order is taken, and can be.
    pub fn is_short(&self, order: u32) -> bool {
        self.pressure(order).is_some_and(|pressure| self.can_reclaim(pressure))
    }

    /// Whether it is time for kswapd.
    pub fn is_low(&self) -> bool {
        self.reclaim.as_ref().is_some_and(|reclaim| self.free_frame_count() < reclaim.marks.low)
    }

    /// Whether a scan might find something.
    pub fn can_reclaim(&self, pressure: Pressure) -> bool {
        self.reclaim.as_ref().is_some_and(|reclaim| reclaim.has_pages(pressure))
    }

    /// A page that a program maps is on an LRU list from now on, if it can leave.
    pub fn list_page(&mut self, mapping: &Mapping) {
        if let Some(reclaim) = &mut self.reclaim
            && self.pages.is_anonymous(mapping.pfn)
            && !self.pages.is_object(mapping.pfn)
        {
            reclaim.add(mapping.pfn, mapping.size.order(), Kind::Anonymous);
        }
    }
}
