//! Words in page-table entries of pages that are not present.
//!
//! Models: the words that Linux calls swap entries, a kind and a number with a meaning for the word's owner; and words
//! that allow a fault engine to map the page.
//! Source: Linux include/linux/swapops.h (`swp_entry_t`, `swp_type`, `swp_offset`); for armed entries Tirumalasetty et
//! al., "Reducing Minor Page Fault Overheads through Enhanced Page Walker", 4.3; for stored pages Lee et al., "A Case
//! for Hardware-Based Demand Paging" (the LBA-augmented page table: 41 bits of address, and 3 of device and 3 of
//! socket).
//! Deviations: no bits for the page's former state (`pte_swp_exclusive`, `pte_swp_soft_dirty`). The bit with which
//! engines and kernels lock an entry is the page's key in [`Locks`](crate::locks::Locks), which also exists for entries
//! without a word.

use pagelab_base::ids::SpaceIx;
use pagelab_base::io::{Lba, NVME_UNITS};

/// Number of bits for the kind of a word.
const KIND_BITS: u32 = 3;
const SWAP: u64 = 1;
const ARMED: u64 = 2;
const STORED: u64 = 3;
/// Bits of armed entries and of entries of stored pages: permissions of the future page, and above them the number of
/// the owner.
const WRITABLE: u64 = 1 << KIND_BITS;
const EXECUTABLE: u64 = 1 << (KIND_BITS + 1);
const OWNER_SHIFT: u32 = KIND_BITS + 2;
/// Bits of entries of stored pages: the address of the block, in the 512-byte units of NVMe.
const LBA_SHIFT: u32 = KIND_BITS + 8;
const LBA_BITS: u32 = 41;
/// Above them: the device, and the socket that it is attached to.
const DEVICE_SHIFT: u32 = LBA_SHIFT + LBA_BITS;
const SOCKET_SHIFT: u32 = DEVICE_SHIFT + DEVICE_BITS;
const DEVICE_BITS: u32 = 3;
const SOCKET_BITS: u32 = 3;
/// Number of blocks that a word can address: those of 1 PiB.
pub const MOST_BLOCKS: u64 = (1 << LBA_BITS) / NVME_UNITS;
/// Number of owners that a word can name (22 bits, as `PID_MAX_LIMIT`).
pub const MOST_OWNERS: u32 = 1 << 22;

/// A slot of the swap area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwapSlot(pub u32);

impl SwapSlot {
    /// The slot's block on the swap device.
    pub fn lba(self) -> Lba {
        Lba(self.0.into())
    }
}

/// An armed entry: the layer's fault engine may map the page without the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    /// The address space, by its number.
    pub owner: SpaceIx,
    /// Whether the page may be written once it is mapped.
    pub writable: bool,
    /// Whether instructions may be fetched from it.
    pub executable: bool,
}

/// An entry of a stored page: the page is in a block of storage, and the layer's fault engine may read it from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Number of the socket that the drive is attached to; below 8.
    pub socket: u32,
    /// Number of the drive on its socket; below 8.
    pub device: u32,
    /// The block on that device; below [`MOST_BLOCKS`].
    pub lba: Lba,
    /// Whether the page may be written once it is mapped.
    pub writable: bool,
    /// Whether instructions may be fetched from it.
    pub executable: bool,
}

/// A word that replaces a translation. Each kind has an owner, which is notified of every entry that gets or loses such
/// a word. `layer/words.rs` decides for each kind what calls do to such entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryWord {
    /// The page's contents are in a slot of the swap area ([`Swap`](crate::reclaim::Swap)), which counts the entries
    /// that refer to it.
    Swap(SwapSlot),
    /// The page is untouched, and its attributes are known. The word may be removed and restored freely, since nothing
    /// else depends on it.
    Armed(Armed),
    /// The page's contents are on storage. This word may also be removed and restored freely: the kernel knows the same
    /// from the page's mapping.
    Stored(Stored),
}

impl EntryWord {
    /// The representation in page tables; never 0.
    pub fn to_bits(self) -> u64 {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        match self {
            Self::Swap(SwapSlot(slot)) => u64::from(slot) << KIND_BITS | SWAP,
            Self::Stored(Stored { socket, device, lba, writable, executable }) => {
                assert!(lba.0 < MOST_BLOCKS, "{lba:?} does not fit into an entry");
                assert!(socket >> SOCKET_BITS == 0 && device >> DEVICE_BITS == 0, "{socket}, {device} do not fit");
                let place = u64::from(socket) << SOCKET_SHIFT | u64::from(device) << DEVICE_SHIFT;
                let units = lba.0 * NVME_UNITS;
                place | units << LBA_SHIFT | flag(writable, WRITABLE) | flag(executable, EXECUTABLE) | STORED
            }
            Self::Armed(Armed { owner, writable, executable }) => {
                u64::from(owner.number()) << OWNER_SHIFT
                    | flag(writable, WRITABLE)
                    | flag(executable, EXECUTABLE)
                    | ARMED
            }
        }
    }

    /// The word of a representation in page tables; `None` for 0.
    pub fn from_bits(bits: u64) -> Option<Self> {
        match bits & ((1 << KIND_BITS) - 1) {
            0 if bits == 0 => None,
            SWAP => Some(Self::Swap(SwapSlot((bits >> KIND_BITS) as u32))),
            ARMED => Some(Self::Armed(Armed {
                owner: SpaceIx((bits >> OWNER_SHIFT) as u32),
                writable: bits & WRITABLE != 0,
                executable: bits & EXECUTABLE != 0,
            })),
            STORED => Some(Self::Stored(Stored {
                socket: (bits >> SOCKET_SHIFT & ((1 << SOCKET_BITS) - 1)) as u32,
                device: (bits >> DEVICE_SHIFT & ((1 << DEVICE_BITS) - 1)) as u32,
                lba: Lba((bits >> LBA_SHIFT & ((1 << LBA_BITS) - 1)) / NVME_UNITS),
                writable: bits & WRITABLE != 0,
                executable: bits & EXECUTABLE != 0,
            })),
            kind => unreachable!("the kernel writes no words of kind {kind}: {bits:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_tables::page_table::WORD_BITS;

    #[test]
    fn words_are_read_as_they_were_written() {
        for slot in [0, 1, 0x1234_5678, u32::MAX] {
            let word = EntryWord::Swap(SwapSlot(slot));
            assert_eq!(EntryWord::from_bits(word.to_bits()), Some(word));
            assert!(word.to_bits() != 0 && word.to_bits() >> WORD_BITS == 0, "it fits into an entry");
        }
        for (owner, writable, executable) in [(0, true, false), (MOST_OWNERS - 1, false, true), (7, true, true)] {
            let owner = SpaceIx(owner);
            let word = EntryWord::Armed(Armed { owner, writable, executable });
            assert_eq!(EntryWord::from_bits(word.to_bits()), Some(word));
            assert_eq!(word.to_bits() >> WORD_BITS, 0, "it fits into an entry");
        }
        let most = (7, 7, MOST_BLOCKS - 1, false, true);
        for (socket, device, lba, writable, executable) in [(0, 0, 0, true, false), most, (5, 2, 7, true, true)] {
            let word = EntryWord::Stored(Stored { socket, device, lba: Lba(lba), writable, executable });
            assert_eq!(EntryWord::from_bits(word.to_bits()), Some(word));
            assert_eq!(word.to_bits() >> WORD_BITS, 0, "it fits into an entry");
        }
        assert_eq!(EntryWord::from_bits(0), None);
    }
}
