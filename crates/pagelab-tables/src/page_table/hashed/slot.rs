//! The words of a slot: a tag and the entries of the pages that share it.
//!
//! The tag, from the highest bit: a valid bit for each of up to eight entries, 16 bits for the address space, 2 bits
//! for the page size, a mark for deleted slots, and up to 36 bits for the number that the pages have in common. An
//! empty slot is zero. In the power design, which has one entry per slot, the bits above its valid bit hold the page's
//! own size, which may be larger than the base size of its segment. Entries have the x86-64 format. A 7-byte entry
//! keeps the twelve low bits, forty bits of the frame number and the no-execute bit.

use super::geometry::{Geometry, Key, size_bits};
use pagelab_base::addr::{PageSize, PhysAddr};
use pagelab_base::memory::PhysMem;

pub const EMPTY: u64 = 0;
/// Tag of a slot whose entries were removed: it can be reused, but does not end a search.
pub const DELETED: u64 = 1 << 36;
const ASID_SHIFT: u32 = 40;
const VALID_SHIFT: u32 = 56;
/// The bits of a tag that identify the slot.
const NAME: u64 = ((1 << 36) - 1) | (0b11 << 37) | (0xffff << ASID_SHIFT);

const PACKED_BITS: u32 = 56;
const LOW_BITS: u64 = (1 << 52) - 1;
const NO_EXECUTE_SHIFT: u32 = 63;

/// The identifying bits of a page's tag.
#[inline(always)]
pub fn name(geometry: &Geometry, key: Key) -> u64 {
    geometry.block(key.vpn) | size_bits(key.size) | u64::from(key.asid) << ASID_SHIFT
}

/// Whether this is the tag of a slot in use with these identifying bits.
#[inline(always)]
pub fn is_named(tag: u64, name: u64) -> bool {
    tag & NAME == name && is_used(tag)
}

#[inline(always)]
pub fn is_used(tag: u64) -> bool {
    tag >> VALID_SHIFT != 0
}

pub fn asid_of(tag: u64) -> u16 {
    (tag >> ASID_SHIFT) as u16
}

/// The number that the pages of a slot have in common.
pub fn number_of(tag: u64) -> u64 {
    tag & ((1 << 36) - 1)
}

/// The base page size in a tag.
pub fn base_of(tag: u64) -> PageSize {
    PageSize::ALL[(tag >> 37 & 0b11) as usize]
}

/// The size of the page itself in a tag of the power design.
#[inline(always)]
pub fn page_size_of(tag: u64) -> PageSize {
    PageSize::ALL[(tag >> (VALID_SHIFT + 1) & 0b11) as usize]
}

/// The bits of a tag of the power design that tell the size of the page itself.
pub fn page_size_bits(size: PageSize) -> u64 {
    (size as u64) << (VALID_SHIFT + 1)
}

/// Mask of an entry's valid bit in the tag.
#[inline(always)]
pub fn valid(index: u32) -> u64 {
    1 << (VALID_SHIFT + index)
}

/// Address of the word in which an entry begins.
#[inline(always)]
pub fn entry_addr(geometry: &Geometry, slot: PhysAddr, index: u32) -> PhysAddr {
    let word = if geometry.packed() { u64::from(index * PACKED_BITS / 64) } else { u64::from(index) };
    slot + 8 + 8 * word
}

/// The entry at an index of a slot, in the x86-64 format.
#[inline(always)]
pub fn read_entry(geometry: &Geometry, mem: &PhysMem, slot: PhysAddr, index: u32) -> u64 {
    let addr = entry_addr(geometry, slot, index);
    let low = mem.read_block(addr);
    if !geometry.packed() {
        return low;
    }
    let shift = index * PACKED_BITS % 64;
    let mut packed = low >> shift;
    if shift + PACKED_BITS > 64 {
        packed |= mem.read_block(addr + 8) << (64 - shift);
    }
    packed & LOW_BITS | (packed >> 52 & 1) << NO_EXECUTE_SHIFT
}

/// Writes the entry at an index of a slot, without its valid bit.
pub fn write_entry(geometry: &Geometry, mem: &mut PhysMem, slot: PhysAddr, index: u32, entry: u64) {
    let addr = entry_addr(geometry, slot, index);
    if !geometry.packed() {
        return mem.write_block(addr, entry);
    }
    let packed = entry & LOW_BITS | (entry >> NO_EXECUTE_SHIFT) << 52;
    let (shift, mask) = (index * PACKED_BITS % 64, (1_u64 << PACKED_BITS) - 1);
    mem.write_block(addr, mem.read_block(addr) & !(mask << shift) | packed << shift);
    if shift + PACKED_BITS > 64 {
        let (next, shift) = (addr + 8, 64 - shift);
        mem.write_block(next, mem.read_block(next) & !(mask >> shift) | packed >> shift);
    }
}

/// Sets a slot's tag to `tag` and all its other words to zero.
pub fn clear(geometry: &Geometry, mem: &mut PhysMem, slot: PhysAddr, tag: u64) {
    mem.write_block(slot, tag);
    for word in 1..geometry.slot_bytes() / 8 {
        mem.write_block(slot + 8 * word, 0);
    }
}
