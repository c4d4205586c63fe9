//! Page-table entries in the x86-64 format, which most designs share.
//!
//! Source: Intel SDM vol. 3A, chapter 4 (entry formats of tables 4-15 to 4-20). An entry that is not present keeps a
//! software word in its other 63 bits, which the processor ignores.

use super::{Leaf, Mapping, PteFlags};
use pagelab_base::addr::{PageSize, Pfn, PhysAddr};
use pagelab_base::memory::PhysMem;

pub const PRESENT: u64 = 1 << 0;
pub const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
pub const ACCESSED: u64 = 1 << 5;
pub const DIRTY: u64 = 1 << 6;
pub const LARGE: u64 = 1 << 7;
/// A bit that the processor ignores in entries of all levels.
pub const MARK: u64 = 1 << 10;
const NO_EXECUTE: u64 = 1 << 63;
const FRAME_MASK: u64 = 0x000f_ffff_ffff_f000;
/// Flags that Linux sets in an entry that points to a table (`_PAGE_TABLE`).
pub const TABLE: u64 = PRESENT | WRITABLE | USER | ACCESSED | DIRTY;

/// log2 of the number of entries of a table.
pub const INDEX_BITS: u32 = 9;

/// Bits of the software word in an entry that is not present.
pub const WORD_BITS: u32 = 63;

/// The frame that an entry points to.
#[inline]
pub fn target(entry: u64) -> Pfn {
    PhysAddr(entry & FRAME_MASK).pfn()
}

pub fn encode(level: u8, mapping: &Mapping) -> u64 {
    let flag = |set: bool, bit: u64| if set { bit } else { 0 };
    let flags = &mapping.flags;
    mapping.pfn.addr().0
        | PRESENT
        | flag(flags.writable, WRITABLE)
        | flag(flags.user, USER)
        | flag(!flags.executable, NO_EXECUTE)
        | flag(flags.accessed, ACCESSED)
        | flag(flags.dirty, DIRTY)
        | flag(level > 1, LARGE)
}

#[inline]
pub fn decode(level: u8, entry: u64) -> Mapping {
    Mapping {
        pfn: target(entry),
        size: PageSize::from_level(level),
        flags: PteFlags {
            writable: entry & WRITABLE != 0,
            user: entry & USER != 0,
            executable: entry & NO_EXECUTE == 0,
            accessed: entry & ACCESSED != 0,
            dirty: entry & DIRTY != 0,
        },
    }
}

/// The result of a walk that ends at this entry.
#[inline]
pub fn leaf_of(level: u8, entry: u64) -> Leaf {
    if entry & PRESENT == 0 {
        Leaf::NotPresent { level, word: word_of(entry) }
    } else {
        Leaf::Present(decode(level, entry))
    }
}

/// The software word of an entry that is not present.
#[inline]
pub fn word_of(entry: u64) -> u64 {
    entry >> 1
}

/// Writes a software word to an entry that is not present.
pub fn write_word(mem: &mut PhysMem, entry: PhysAddr, word: u64) {
    assert_eq!(mem.read(entry) & PRESENT, 0, "the entry at {entry:?} is present and has no room for a word");
    assert_eq!(word >> WORD_BITS, 0, "a word has {WORD_BITS} bits");
    mem.write(entry, word << 1);
}

/// The table that the entry at `addr` points to; `None` if it points to none. The entry's level is above 1.
pub fn table_of(mem: &PhysMem, addr: PhysAddr) -> Option<Pfn> {
    let entry = mem.read(addr);
    (entry & (PRESENT | LARGE) == PRESENT).then(|| target(entry))
}
