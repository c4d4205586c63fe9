//! An entry of a unit that holds pages of every size.

use pagelab_base::addr::{MachineAddr, VirtAddr};
use pagelab_base::translation::{Target, Translation};
use pagelab_tables::mmu_cache::Asid;

/// The bits of a virtual address that are translated: 57, as in five-level paging.
pub const VA_MASK: u64 = (1 << 57) - 1;

/// Bits of an entry in hardware, an estimate: 45 of the page's number, 12 of the tag of its space, 40 of the frame, 2
/// of the size, and one each for valid, writable and dirty.
pub const ENTRY_BITS: u64 = 45 + 12 + 40 + 2 + 3;

/// The translation of a page of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<A: Target = MachineAddr> {
    /// Tag of the address space.
    pub asid: Asid,
    /// An address in the page: the one that was walked for, or the first.
    pub va: VirtAddr,
    /// The translation of the page.
    pub translation: Translation<A>,
}

impl<A: Target> Entry<A> {
    /// First address of the page, masked to the translated bits.
    #[inline(always)]
    pub fn first(&self) -> u64 {
        self.va.0 & VA_MASK & !self.translation.size().offset_mask()
    }

    /// Whether the entry translates an address.
    #[inline(always)]
    pub fn covers(&self, asid: Asid, va: VirtAddr) -> bool {
        self.asid == asid && (va.0 ^ self.va.0) & VA_MASK & !self.translation.size().offset_mask() == 0
    }

    /// Whether the entry's page overlaps `start..end` of a space.
    pub fn overlaps(&self, asid: Asid, start: VirtAddr, end: VirtAddr) -> bool {
        let (start, end) = (start.0 & VA_MASK, end.0.wrapping_sub(1) & VA_MASK);
        self.asid == asid && self.first() <= end && self.first() + self.translation.size().offset_mask() >= start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::addr::PageSize;

    #[test]
    fn an_entry_knows_its_page() {
        let entry = |va, size| {
            let translation = Translation::new(MachineAddr(0x4000_0000), size, true, true);
            Entry { asid: Asid(1), va: VirtAddr(va), translation }
        };
        let small = entry(0x5678, PageSize::Size4K);
        assert!(small.covers(Asid(1), VirtAddr(0x5fff)) && !small.covers(Asid(1), VirtAddr(0x6000)));
        assert!(!small.covers(Asid(2), VirtAddr(0x5678)));
        let overlaps = |entry: &Entry, start, end| entry.overlaps(Asid(1), VirtAddr(start), VirtAddr(end));
        assert!(overlaps(&small, 0x5fff, 0x6000) && overlaps(&small, 0x4000, 0x5001));
        assert!(!overlaps(&small, 0x4000, 0x5000) && !overlaps(&small, 0x6000, 0x7000));
        let large = entry(0x5f_f000, PageSize::Size2M);
        assert!(overlaps(&large, 0x40_0000, 0x40_1000) && !overlaps(&large, 0x60_0000, 0x60_1000));
        let of_kernel = entry(0xffff_8880_0000_1000, PageSize::Size4K);
        assert!(of_kernel.covers(Asid(1), VirtAddr(0xffff_8880_0000_1008)));
        assert!(overlaps(&of_kernel, 0xffff_8880_0000_1000, 0xffff_8880_0000_2000));
    }
}
