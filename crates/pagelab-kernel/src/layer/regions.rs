//! Regions that a program's own structures translate (`pagelab_tables`, `page_table/do_it_yourself.rs`).

use crate::direct_segment::is_plain_memory;
use crate::layer::Layer;
use crate::vma::VaRange;
use pagelab_base::ids::SpaceIx;

impl Layer {
    /// Offers a program's new mapping to its page table, if the design has regions and the mapping is large enough.
    pub fn begin_region(&mut self, index: SpaceIx, range: VaRange) {
        let space = &mut self.spaces[index];
        let Some(least) = space.table.least_region_bytes() else { return };
        let is_plain = space.vmas.find(range.start).is_some_and(is_plain_memory);
        let in_segment = space.segment.is_some_and(|segment| segment.range.overlaps(range));
        if is_plain && !in_segment && range.len_bytes() >= least {
            space.table.begin_region(&self.memory.contents, range.start, range.end);
        }
    }

    /// Ends the regions of a space in which nothing is mapped any more.
    pub fn end_regions(&mut self, index: SpaceIx) {
        let space = &mut self.spaces[index];
        if space.table.least_region_bytes().is_some() {
            let vmas = &space.vmas;
            space.table.end_regions(&|start, end| vmas.iter().any(|vma| vma.range().overlaps(VaRange { start, end })));
        }
    }
}
