//! A page's translation in one word: the result of a walk and the content of a TLB entry.

use std::marker::PhantomData;

use crate::addr::{FRAME_BYTES, MachineAddr, PageSize, PhysAddr, VirtAddr};
use crate::mapping::Mapping;

/// Addresses that can be the result of a translation.
pub trait Target: Copy {
    /// The address with these 64 bits.
    fn from_bits(bits: u64) -> Self;
    /// The address as 64 bits.
    fn bits(self) -> u64;
}

impl Target for PhysAddr {
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.0
    }
}

impl Target for MachineAddr {
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.0
    }
}

/// A translation to a machine address (as in a TLB) or to a layer's physical memory (the result of a walk of that
/// layer's page table). The word is the address of the page's first byte, with size and permissions in its low bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Translation<A = MachineAddr>(u64, PhantomData<A>);

const WRITABLE: u64 = 1 << 0;
const DIRTY: u64 = 1 << 1;
const STORES: u64 = WRITABLE | DIRTY;
const SIZE_SHIFT: u32 = 2;

impl<A: Target> Translation<A> {
    /// Translation of the page of `size` that begins at `page`; `dirty` means that its entry's dirty bit is already
    /// set.
    #[inline(always)]
    pub fn new(page: A, size: PageSize, writable: bool, dirty: bool) -> Self {
        let flags = (u64::from(writable) * WRITABLE) | (u64::from(dirty) * DIRTY);
        Self(page.bits() | (size as u64) << SIZE_SHIFT | flags, PhantomData)
    }

    /// The translation as a word, to store in an array.
    #[inline(always)]
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// The inverse of [`Self::to_word`].
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self(word, PhantomData)
    }

    /// Address of the page's first byte.
    #[inline(always)]
    pub fn page(self) -> A {
        A::from_bits(self.0 & !(FRAME_BYTES - 1))
    }

    /// Size of the page.
    #[inline(always)]
    pub fn size(self) -> PageSize {
        PageSize::ALL[self.size_index()]
    }

    /// Index of the page's size in [`PageSize::ALL`].
    #[inline(always)]
    pub fn size_index(self) -> usize {
        (self.0 >> SIZE_SHIFT & 3) as usize
    }

    /// Stores are allowed.
    #[inline(always)]
    pub fn writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// True if a store needs no walk: it is allowed, and the dirty bit is set in every layer.
    #[inline(always)]
    pub fn stores(self) -> bool {
        self.0 & STORES == STORES
    }

    /// The target address of `va`, which lies in the page.
    #[inline(always)]
    pub fn address(self, va: VirtAddr) -> A {
        A::from_bits(self.0 & !(FRAME_BYTES - 1) | va.offset_in(self.size().bytes()))
    }

    /// The translation of only the part of size `size` around `va`; `size` is at most the page's size.
    #[inline(always)]
    pub fn fractured(self, va: VirtAddr, size: PageSize) -> Self {
        let page = self.address(va).bits() & !size.offset_mask();
        Self(page | (size as u64) << SIZE_SHIFT | self.0 & STORES, PhantomData)
    }
}

impl Translation<PhysAddr> {
    /// The translation of a page-table mapping.
    #[inline(always)]
    pub fn from_mapping(mapping: &Mapping) -> Self {
        Self::new(mapping.pfn.addr(), mapping.size, mapping.flags.writable, mapping.flags.dirty)
    }

    /// For a layer whose physical memory is the machine's memory.
    #[inline(always)]
    pub fn on_bare_machine(self) -> Translation {
        Translation(self.0, PhantomData)
    }

    /// For a guest: `host` translates the guest-physical address of `va`. The result has the smaller page size of the
    /// two and allows what both allow.
    #[inline(always)]
    pub fn through(self, va: VirtAddr, host: Translation) -> Translation {
        let size = self.size().min(host.size());
        let machine = host.address(VirtAddr(self.address(va).0)).0;
        let flags = self.0 & host.0 & STORES;
        Translation(machine & !size.offset_mask() | (size as u64) << SIZE_SHIFT | flags, PhantomData)
    }
}

impl<A: Target> std::fmt::Debug for Translation<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (writable, stores) = (self.writable(), self.stores());
        write!(f, "Translation({:#x}, {}, writable {writable}, ", self.page().bits(), self.size().name())?;
        write!(f, "stores without a walk {stores})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_compose_to_the_smaller_page_and_the_fewer_permissions() {
        let guest = Translation::new(PhysAddr(0x4020_0000), PageSize::Size2M, true, true);
        let host = Translation::new(MachineAddr(0x7_f000), PageSize::Size4K, true, false);
        let va = VirtAddr(0x8000_3123);
        assert_eq!(guest.address(va), PhysAddr(0x4020_3123));
        let both = guest.through(va, host);
        assert_eq!((both.page(), both.size()), (MachineAddr(0x7_f000), PageSize::Size4K));
        assert!(both.writable() && !both.stores());
        let host = Translation::new(MachineAddr(0x8000_0000), PageSize::Size1G, true, true);
        let both = guest.through(va, host);
        assert_eq!((both.page(), both.size()), (MachineAddr(0x8020_0000), PageSize::Size2M));
        assert_eq!(both.address(va), MachineAddr(0x8020_3123));
        assert!(both.stores());
        let piece = both.fractured(va, PageSize::Size4K);
        assert_eq!((piece.page(), piece.size()), (MachineAddr(0x8020_3000), PageSize::Size4K));
        assert!(
            piece.stores()
                && !guest.through(va, Translation::new(MachineAddr(0), PageSize::Size1G, false, true)).writable()
        );
    }
}
