//! Mapping memory ahead of any access, as the layer's placement policy asks.

use super::Layer;
use crate::context::KernelContext;
use crate::vma::VaRange;
use pagelab_base::ids::SpaceIx;

impl Layer {
    /// Whether the pages of a new mapping should be mapped at once.
    pub fn maps_ahead(&self, context: KernelContext, space: SpaceIx, range: VaRange) -> bool {
        let address_space = &self.spaces[space];
        let vma = address_space.vmas.find(range.start).filter(|_| address_space.uses_placement);
        vma.is_some_and(|vma| self.mechanisms.placement.maps_ahead(vma)) && self.may_map_ahead(context)
    }

    /// Whether there is enough memory to map more of it ahead.
    pub fn may_map_ahead(&self, context: KernelContext) -> bool {
        self.mechanisms.placement.may_map_ahead(self.paging.page_size.order(), &self.memory.view(context))
    }
}
