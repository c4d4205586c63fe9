//! Addresses and frame numbers. Each kind has a type of its own, so that the compiler rejects a mix-up.
//!
//! A *layer* has the virtual addresses of its processes, and physical addresses. Only the physical addresses of the
//! bottom layer, the machine, reach the caches: they are [`MachineAddr`]s. A guest's physical address is also a virtual
//! address of the space that hosts the guest.

use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// Whether the number is a multiple of `step`.
            #[inline(always)]
            pub fn is_aligned(self, step: $inner) -> bool {
                self.0.is_multiple_of(step)
            }
        }

        impl Add<$inner> for $name {
            type Output = Self;

            #[inline(always)]
            fn add(self, other: $inner) -> Self {
                Self(self.0 + other)
            }
        }

        impl AddAssign<$inner> for $name {
            #[inline(always)]
            fn add_assign(&mut self, other: $inner) {
                self.0 += other;
            }
        }

        impl Sub<$inner> for $name {
            type Output = Self;

            #[inline(always)]
            fn sub(self, other: $inner) -> Self {
                Self(self.0 - other)
            }
        }

        impl Sub for $name {
            type Output = $inner;

            #[inline(always)]
            fn sub(self, other: Self) -> $inner {
                self.0 - other.0
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({:#x})", stringify!($name), self.0)
            }
        }
    };
}

number! {
    /// Virtual address of a process, or of the space that hosts a guest's physical memory.
    VirtAddr(u64)
}
number! {
    /// Physical address of one layer.
    PhysAddr(u64)
}
number! {
    /// Physical address of the machine: the address that the caches are indexed by.
    MachineAddr(u64)
}
number! {
    /// Number of a 4 KiB frame of one layer's physical memory.
    Pfn(u64)
}
number! {
    /// Machine address divided by the line size.
    LineAddr(u64)
}

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;
/// log2 of [`LINE_BYTES`].
pub const LINE_SHIFT: u32 = 6;
/// Bytes of a frame and of the smallest page.
pub const FRAME_BYTES: u64 = 4096;
/// log2 of [`FRAME_BYTES`].
pub const FRAME_SHIFT: u32 = 12;

/// Methods of byte addresses.
macro_rules! byte_address {
    ($($name:ident),*) => {
        $(impl $name {
            /// The address rounded down to a multiple of `bytes`, a power of two.
            #[inline(always)]
            pub fn align_down(self, bytes: u64) -> Self {
                Self(self.0 & !(bytes - 1))
            }

            /// Bytes between [`Self::align_down`] and the address.
            #[inline(always)]
            pub fn offset_in(self, bytes: u64) -> u64 {
                self.0 & (bytes - 1)
            }

            /// Number of the 4 KiB page or frame that contains the address.
            #[inline(always)]
            pub fn page_number(self) -> u64 {
                self.0 >> FRAME_SHIFT
            }
        })*
    };
}
byte_address!(VirtAddr, PhysAddr, MachineAddr);

impl VirtAddr {
    /// Start address of the 4 KiB page with this number.
    #[inline(always)]
    pub fn from_page_number(number: u64) -> Self {
        Self(number << FRAME_SHIFT)
    }
}

impl MachineAddr {
    /// The cache line that contains the address.
    #[inline(always)]
    pub fn line(self) -> LineAddr {
        LineAddr(self.0 >> LINE_SHIFT)
    }
}

impl PhysAddr {
    /// The frame that contains the address.
    #[inline(always)]
    pub fn pfn(self) -> Pfn {
        Pfn(self.0 >> FRAME_SHIFT)
    }
}

impl Pfn {
    /// Address of the frame's first byte.
    #[inline(always)]
    pub fn addr(self) -> PhysAddr {
        PhysAddr(self.0 << FRAME_SHIFT)
    }
}

/// Size of a page. It follows from the level of the x86-64 radix page table whose leaf entry maps the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub enum PageSize {
    /// 4 KiB: mapped by an entry of level 1.
    #[serde(rename = "4K")]
    Size4K,
    /// 2 MiB: mapped by an entry of level 2.
    #[serde(rename = "2M")]
    Size2M,
    /// 1 GiB: mapped by an entry of level 3.
    #[serde(rename = "1G")]
    Size1G,
}

impl PageSize {
    /// All sizes, the smallest first.
    pub const ALL: [Self; 3] = [Self::Size4K, Self::Size2M, Self::Size1G];

    /// Size of the pages that leaf entries of this level of an x86-64 page table map; 1 GiB for every level above 3.
    #[inline(always)]
    pub fn from_level(level: u8) -> Self {
        Self::ALL[usize::from(level.clamp(1, 3)) - 1]
    }

    /// log2 of the size in bytes.
    #[inline(always)]
    pub fn shift(self) -> u32 {
        FRAME_SHIFT + 9 * self as u32
    }

    /// The size in bytes.
    #[inline(always)]
    pub fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// Mask of the address bits that give the offset within a page.
    #[inline(always)]
    pub fn offset_mask(self) -> u64 {
        self.bytes() - 1
    }

    /// Buddy order of the block of 4 KiB frames that backs the page.
    pub fn order(self) -> u32 {
        self.shift() - FRAME_SHIFT
    }

    /// The size as configurations and results write it: `4K`, `2M` or `1G`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Size4K => "4K",
            Self::Size2M => "2M",
            Self::Size1G => "1G",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_agree_with_their_orders() {
        for size in PageSize::ALL {
            assert_eq!(size.bytes(), FRAME_BYTES << size.order());
        }
        assert_eq!(MachineAddr(0x1fff).line(), LineAddr(0x7f));
        assert_eq!(PhysAddr(0x5fff).pfn().addr(), PhysAddr(0x5000));
    }
}
