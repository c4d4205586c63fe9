//! Linear page table.
//!
//! Models: a flat array of 8-byte entries indexed by page number, in one piece of physical memory: a walk is one reference.
//! For the physical memory of a guest, which begins at 0 and whose size is known, so that the host sets the array aside when
//! it boots; with 4-level radix tables in the guest, 24 references become 9. The host's kernel itself runs on a radix
//! table.
//! Source: Ahn, Jin, Huh, ISCA 2012 (flat nested page table), as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.2; entries
//! as the leaves of `radix`.
//! Parameters: none; the array has an entry for each frame of the guest.
//! Deviations: pages of 4 KiB only. All of the array is set aside, but only the parts in use have contents here.

use super::radix::{PRESENT, decode, encode, leaf_of};
use super::{Leaf, Mapping, PteFlags, Removed, WalkList, WalkRef};
use crate::base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use crate::base::memory::{PhysMem, WORDS_PER_FRAME};

/// The level of all its entries.
const LEVEL: u8 = 1;

/// See the module's text.
pub struct Linear {
    first: Pfn,
    /// Of each frame of the array: whether it has contents.
    used: Vec<bool>,
}

impl Linear {
    /// Frames that the array for `bytes` of guest memory takes.
    pub fn frames_for(bytes: u64) -> u64 {
        (bytes >> FRAME_SHIFT).div_ceil(WORDS_PER_FRAME as u64)
    }

    /// An empty table for `bytes` from address 0 on, in the frames from `first` on.
    pub fn new(first: Pfn, bytes: u64) -> Self {
        Self { first, used: vec![false; Self::frames_for(bytes) as usize] }
    }

    #[inline]
    fn entry_addr(&self, va: VirtAddr) -> PhysAddr {
        PhysAddr(self.first.addr().0 + (va.0 >> FRAME_SHIFT) * 8)
    }

    #[inline]
    fn entry(&self, mem: &PhysMem, addr: PhysAddr) -> u64 {
        if self.used[(addr.pfn().0 - self.first.0) as usize] { mem.read(addr) } else { 0 }
    }

    /// The address of an entry in use and what it maps.
    fn present(&self, mem: &PhysMem, va: VirtAddr) -> (PhysAddr, Mapping) {
        let addr = self.entry_addr(va);
        let entry = self.entry(mem, addr);
        assert!(entry & PRESENT != 0, "{va:?} is not mapped");
        (addr, decode(LEVEL, entry))
    }

    #[inline]
    pub fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        let addr = self.entry_addr(va);
        list.set([WalkRef { addr, level: LEVEL, step: 0 }]);
        list.leaf = leaf_of(LEVEL, self.entry(mem, addr));
    }

    pub fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        let addr = self.entry_addr(va);
        match leaf_of(LEVEL, self.entry(mem, addr)) {
            Leaf::Present(mapping) => Some((addr, mapping.pfn)),
            Leaf::NotPresent { .. } => None,
        }
    }

    pub fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        assert_eq!(mapping.size, PageSize::Size4K, "{va:?} is to be mapped by a large page");
        let addr = self.entry_addr(va);
        if !std::mem::replace(&mut self.used[(addr.pfn().0 - self.first.0) as usize], true) {
            mem.create(addr.pfn());
        }
        assert_eq!(mem.read(addr), 0, "the entry of {va:?} is in use");
        mem.write(addr, encode(LEVEL, &mapping));
        addr
    }

    pub fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        let (addr, mapping) = self.present(mem, va);
        mem.write(addr, encode(LEVEL, &Mapping { flags, ..mapping }));
        addr
    }

    pub fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        let (addr, _) = self.present(mem, va);
        mem.write(addr, encode(LEVEL, &mapping));
        addr
    }

    pub fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        let pages = WORDS_PER_FRAME as u64;
        let end = end.0.div_ceil(1 << FRAME_SHIFT).min(self.used.len() as u64 * pages);
        let mut page = start.0 >> FRAME_SHIFT;
        while page < end && out.len() < most {
            if !self.used[(page / pages) as usize] {
                page = (page / pages + 1) * pages;
                continue;
            }
            let va = VirtAddr(page << FRAME_SHIFT);
            if let Leaf::Present(mapping) = leaf_of(LEVEL, mem.read(self.entry_addr(va))) {
                out.push(Removed { va, mapping });
            }
            page += 1;
        }
    }

    pub fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        let (addr, _) = self.present(mem, va);
        mem.write(addr, 0);
        addr
    }

    /// Frames of the array that have no contents yet.
    pub fn untouched_frames(&self) -> u64 {
        self.used.iter().filter(|used| !**used).count() as u64
    }

    /// Its memory stays set aside.
    pub fn destroy(self, mem: &mut PhysMem) {
        for (n, _) in self.used.iter().enumerate().filter(|(_, used)| **used) {
            let frame = Pfn(self.first.0 + n as u64);
            assert!(mem.is_zero(frame), "a page table that is destroyed maps nothing");
            mem.destroy(frame);
        }
    }

    pub fn va_bits(&self) -> u32 {
        FRAME_SHIFT + (self.used.len() * WORDS_PER_FRAME).next_power_of_two().ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_reads_the_entry_at_the_pages_number() {
        let mut mem = PhysMem::default();
        let mut table = Linear::new(Pfn(7), 8 << 20);
        assert_eq!((table.used.len(), table.va_bits()), (4, 23));
        let flags = PteFlags { writable: true, user: true, executable: true, accessed: false, dirty: false };
        let pages = [0, 1, 511, 512, 2047];
        for page in pages {
            let mapping = Mapping { pfn: Pfn(5000 + page), size: PageSize::Size4K, flags };
            let addr = table.map(&mut mem, VirtAddr(page << 12), mapping);
            assert_eq!(addr, PhysAddr((7 << 12) + 8 * page));
            let mut list = WalkList::new();
            table.walk(&mem, VirtAddr((page << 12) + 0xfff), &mut list);
            assert_eq!(list.refs(), [WalkRef { addr, level: 1, step: 0 }]);
            assert_eq!(list.leaf, Leaf::Present(mapping));
        }
        assert_eq!(mem.frames_in_use(), 3, "the third has no page");
        let mut found = Vec::new();
        table.mapped(&mem, VirtAddr(0x1fff), VirtAddr(1 << 40), 3, &mut found);
        assert_eq!(found.iter().map(|r| r.va.0 >> 12).collect::<Vec<_>>(), [1, 511, 512]);
        let mut list = WalkList::new();
        table.walk(&mem, VirtAddr(1025 << 12), &mut list);
        assert_eq!((list.refs().len(), list.leaf), (1, Leaf::NotPresent { level: 1 }));
        pages.iter().for_each(|page| _ = table.unmap(&mut mem, VirtAddr(page << 12)));
        table.destroy(&mut mem);
        assert_eq!(mem.frames_in_use(), 0);
    }
}
