//! Contiguity of the memory of a layer's spaces.

use crate::frames::contiguity::{Contiguity, ContiguousRun, LINE_ORDER, PageGroup};
use crate::layer::Layer;
use crate::vma::VmaKind;
use pagelab_base::ids::SpaceIx;

impl Layer {
    /// Contiguity of the anonymous memory of a space.
    pub fn contiguity(&self, space: SpaceIx) -> Contiguity {
        let (mut sum, mut group) = (Contiguity::default(), PageGroup::default());
        self.for_anonymous(space, |page, frame| {
            let number = page >> LINE_ORDER;
            if number != group.number {
                sum.add_group(&group);
                group = PageGroup { number, ..PageGroup::default() };
            }
            group.add(frame);
        });
        sum.add_group(&group);
        sum
    }

    /// The anonymous memory of a space as runs of adjacent pages in adjacent frames.
    pub fn contiguous_runs(&self, space: SpaceIx) -> Vec<ContiguousRun> {
        let mut runs: Vec<ContiguousRun> = Vec::new();
        self.for_anonymous(space, |page, frame| match runs.last_mut() {
            Some(ContiguousRun(first, at, pages)) if page == *first + *pages && frame == *at + *pages => *pages += 1,
            _ => runs.push(ContiguousRun(page, frame, 1)),
        });
        runs
    }

    /// Calls `each` with the page number and frame number of each 4 KiB page of the anonymous memory of a space, in
    /// ascending order.
    fn for_anonymous(&self, space: SpaceIx, mut each: impl FnMut(u64, u64)) {
        let mut pages = Vec::new();
        let vmas = self.spaces[space].vmas.iter();
        for vma in vmas.filter(|vma| vma.kind != VmaKind::File && !vma.is_shared()) {
            let mut from = vma.start;
            while from < vma.end {
                from = self.next_mapped(space, from, vma.end, &mut pages);
                for page in pages.iter().filter(|page| page.mapping.pfn != self.memory.page_use.zero_page()) {
                    for n in 0..1 << page.mapping.size.order() {
                        each(page.va.page_number() + n, page.mapping.pfn.0 + n);
                    }
                }
            }
        }
    }

    /// Records the contiguity of a space that ends, if it is reported.
    pub fn note_contiguity(&mut self, space: SpaceIx) {
        if self.spaces[space].reported {
            let contiguity = self.contiguity(space);
            self.counters.ended_contiguity.add(contiguity);
            let runs = self.counters.contiguity_map.is_some().then(|| self.contiguous_runs(space));
            self.counters.contiguity_map.iter_mut().for_each(|map| map.extend(runs.iter().flatten()));
        }
    }

    /// Sum over the reported spaces, including those that have ended.
    pub fn measured_contiguity(&self) -> Contiguity {
        let mut sum = self.counters.ended_contiguity;
        for index in self.spaces.numbers().filter(|&index| self.spaces[index].reported) {
            sum.add(self.contiguity(index));
        }
        sum
    }

    /// The contiguity map of the reported spaces, if it is recorded.
    pub fn measured_map(&self) -> Option<Vec<ContiguousRun>> {
        let mut map = self.counters.contiguity_map.clone()?;
        let live = self.spaces.numbers().filter(|&index| self.spaces[index].reported);
        live.for_each(|index| map.extend(self.contiguous_runs(index)));
        Some(map)
    }

    /// Thousandths of the free memory that are not available in blocks of an order (Linux `unusable_free_index`).
    pub fn unusable_free_permille(&self, order: u32) -> u64 {
        let allocator = self.frame_allocator();
        let free = allocator.free_frames();
        let usable: u64 = (order..=allocator.max_order()).map(|order| allocator.free_blocks(order) << order).sum();
        ((free - usable) * 1000).checked_div(free).unwrap_or(0)
    }
}
