//! Memory that a layer maps ahead of any access because its placement policy is that way.

use super::Layer;
use crate::vma::VaRange;

impl Layer {
    /// Whether the pages of a new mapping are to be mapped at once.
    pub fn maps_ahead(&self, space: u32, range: VaRange) -> bool {
        let of = &self.spaces[space as usize];
        let vma = of.vmas.find(range.start).filter(|_| of.uses_placement);
        vma.is_some_and(|vma| self.placement.maps_ahead(vma)) && self.may_map_ahead()
    }

    /// Whether there is memory enough to map more of it ahead.
    pub fn may_map_ahead(&self) -> bool {
        self.placement.may_map_ahead(self.page_size.order(), &self.memory_view())
    }
}
