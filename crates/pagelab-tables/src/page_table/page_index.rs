//! The set of mapped pages of an address space, in order.
//!
//! A hashed table cannot list a range. Kernels that use one find pages through their VMAs and through structures of
//! their own. This set represents those. Like listing in other designs, it costs nothing.

use std::collections::BTreeMap;

use pagelab_base::addr::{PageSize, VirtAddr};

/// log2 of the pages per region.
const REGION_SHIFT: u32 = 9;
const WORDS: usize = (1 << REGION_SHIFT) / 64;

/// A set of page numbers.
#[derive(Clone, Default)]
pub(super) struct PageIndex {
    /// Region number → bitmap of its pages.
    regions: BTreeMap<u64, [u64; WORDS]>,
}

/// Index of the word, and mask of the bit, of a page in its region.
fn place(vpn: u64) -> (usize, u64) {
    ((vpn >> 6) as usize % WORDS, 1 << (vpn % 64))
}

impl PageIndex {
    pub fn insert(&mut self, vpn: u64) {
        let (word, bit) = place(vpn);
        self.regions.entry(vpn >> REGION_SHIFT).or_default()[word] |= bit;
    }

    pub fn remove(&mut self, vpn: u64) {
        let (word, bit) = place(vpn);
        let region = self.regions.get_mut(&(vpn >> REGION_SHIFT)).expect("the page is mapped");
        region[word] &= !bit;
        if *region == [0; WORDS] {
            self.regions.remove(&(vpn >> REGION_SHIFT));
        }
    }

    /// The pages in `first..end` in ascending order.
    pub fn range(&self, first: u64, end: u64) -> impl Iterator<Item = u64> {
        let (from, to) = (first >> REGION_SHIFT, end.div_ceil(1 << REGION_SHIFT));
        let pages = self.regions.range(from..to.max(from)).flat_map(|(&region, words)| {
            let used = words.iter().enumerate().filter(|(_, word)| **word != 0);
            used.flat_map(move |(at, &word)| {
                let pages = (0..64).filter(move |bit| word >> bit & 1 != 0);
                pages.map(move |bit| (region << REGION_SHIFT) + at as u64 * 64 + bit)
            })
        });
        pages.skip_while(move |&vpn| vpn < first).take_while(move |&vpn| vpn < end)
    }
}

/// The mapped pages of all sizes.
#[derive(Clone, Default)]
pub(super) struct SizedIndex {
    /// By size; numbers of pages of that size.
    sizes: [PageIndex; PageSize::ALL.len()],
}

impl SizedIndex {
    pub fn insert(&mut self, page: u64, size: PageSize) {
        self.sizes[size as usize].insert(page);
    }

    pub fn remove(&mut self, page: u64, size: PageSize) {
        self.sizes[size as usize].remove(page);
    }

    /// The pages that overlap `start..end`, in ascending order.
    pub fn range(&self, start: VirtAddr, end: VirtAddr) -> impl Iterator<Item = (VirtAddr, PageSize)> {
        let pages = |size: PageSize| {
            let (first, last) = (start.0 >> size.shift(), end.0.div_ceil(size.bytes()));
            let pages = self.sizes[size as usize].range(first, if start < end { last } else { first });
            pages.map(move |page| (VirtAddr(page << size.shift()), size)).peekable()
        };
        let mut all = PageSize::ALL.map(pages);
        std::iter::from_fn(move || {
            let next = all.iter_mut().filter_map(|pages| pages.peek().copied()).min_by_key(|&(va, _)| va)?;
            all[next.1 as usize].next()
        })
    }

    /// Level of the largest of these sizes, in ascending order, whose page at `va` overlaps no mapped page.
    pub fn free_level(&self, va: VirtAddr, sizes: &[PageSize]) -> u8 {
        let is_free = |size: &&PageSize| {
            let start = va.align_down(size.bytes());
            self.range(start, VirtAddr(start.0.saturating_add(size.bytes()))).next().is_none()
        };
        sizes.iter().take_while(is_free).last().map_or(1, |&size| size as u8 + 1)
    }
}
