//! The group of a page: the pages whose entries are in the line that a walk for it reads last.

use super::{Leaf, Mapping, WalkList};
use pagelab_base::addr::{FRAME_SHIFT, LINE_SHIFT, PageSize, VirtAddr};

/// Pages of a group: entries of 8 bytes in a line of 64.
pub const GROUP: u64 = 8;

/// A page, and those of the eight aligned pages around it whose entries a walk for it has at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageGroup {
    /// The page itself.
    pub own: Mapping,
    /// The pages of 4 KiB whose entries are in the line of its own, by page number modulo [`GROUP`], with the page
    /// itself. Empty for a large page.
    pub pages: [Option<Mapping>; GROUP as usize],
}

impl PageGroup {
    /// The group of a page without others.
    pub fn alone(own: Mapping) -> Self {
        Self { own, pages: [None; GROUP as usize] }
    }

    /// The group of the page at an address, by the last references of the walks of all eight pages, which `walk` lists.
    /// So it holds for every design. `None` if a walk finds no page there.
    pub fn by_walks(va: VirtAddr, mut walk: impl FnMut(VirtAddr, &mut WalkList)) -> Option<Self> {
        let mut list = WalkList::new();
        let mut leaf = |page: u64| {
            walk(VirtAddr(page << FRAME_SHIFT), &mut list);
            match (list.leaf, list.refs().last()) {
                (Leaf::Present(mapping), Some(last)) => Some((last.addr.0 >> LINE_SHIFT, mapping)),
                _ => None,
            }
        };
        let page = va.0 >> FRAME_SHIFT;
        let (line, own) = leaf(page)?;
        let mut group = Self::alone(own);
        if own.size == PageSize::Size4K {
            for (other, place) in (page & !(GROUP - 1)..).zip(&mut group.pages) {
                let found = leaf(other).filter(|(at, mapping)| *at == line && mapping.size == PageSize::Size4K);
                *place = found.map(|(_, mapping)| mapping);
            }
        }
        Some(group)
    }

    /// The page that is so many pages from the one at `va`, of which this is the group.
    pub fn at(&self, va: VirtAddr, distance: i64) -> Option<&Mapping> {
        let index = ((va.0 >> FRAME_SHIFT) % GROUP) as i64 + distance;
        self.pages.get(usize::try_from(index).ok()?)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::super::radix::Radix;
    use super::super::{Design, PteFlags, TableBlock};
    use super::*;
    use pagelab_base::addr::Pfn;
    use pagelab_base::memory::PhysMem;

    const FLAGS: PteFlags = PteFlags { writable: true, user: true, executable: false, accessed: true, dirty: false };

    /// A tree with these pages; page `n` maps frame `n + 1000`.
    fn tree(mem: &mut PhysMem, pages: &[(u64, PageSize)]) -> Radix {
        let mut frames = (10..).map(Pfn);
        let mut table = Radix::new(4, mem, &mut |_| frames.next()).expect("there is a frame");
        for &(page, size) in pages {
            let va = VirtAddr(page << FRAME_SHIFT);
            while table.missing_tables(mem, va, size) > 0 {
                let frame = frames.next().expect("frames do not end");
                mem.create(frame);
                table.link_table(mem, va, size, TableBlock::frame(frame)).expect("a table is missing");
            }
            table.map(mem, va, Mapping { pfn: Pfn(page + 1000), size, flags: FLAGS }).expect("there is room");
        }
        table
    }

    #[test]
    fn a_group_is_what_the_walks_of_its_pages_find() {
        let mut mem = PhysMem::default();
        let small = [8, 9, 15, 16, 511, 513].map(|page| (page, PageSize::Size4K));
        let mut table = tree(&mut mem, &[&small[..], &[(1024, PageSize::Size2M)]].concat());
        table.set_word(&mut mem, VirtAddr(10 << FRAME_SHIFT), PageSize::Size4K, 77);
        let group = |page: u64| table.group(&mem, VirtAddr(page << FRAME_SHIFT | 0x123));
        // Once without a remembered path, once with one.
        for _ in 0..2 {
            for page in (0..20).chain(505..520).chain([1023, 1024, 1500, 1536]) {
                let walk = |va: VirtAddr, list: &mut WalkList| table.walk(&mem, va, list);
                let by_walks = PageGroup::by_walks(VirtAddr(page << FRAME_SHIFT), walk);
                assert_eq!(group(page), by_walks, "page {page}");
            }
        }
        let of_eight = group(8).expect("it is mapped");
        let frames = of_eight.pages.map(|page| page.map_or(0, |page| page.pfn.0));
        assert_eq!(frames, [1008, 1009, 0, 0, 0, 0, 0, 1015]);
        let at = |distance| of_eight.at(VirtAddr(9 << FRAME_SHIFT), distance).map(|page| page.pfn.0);
        assert_eq!([-2, -1, 0, 1, 6, 7].map(at), [None, Some(1008), Some(1009), None, Some(1015), None]);
        assert_eq!(group(10), None, "a software word is no page");
        assert_eq!(group(1500).map(|group| group.pages), Some([None; 8]), "a large page");
    }
}
