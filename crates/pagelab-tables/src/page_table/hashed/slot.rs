//! The words of a slot: a tag and the entries of the pages that share it.
//!
//! The tag, from the top: a valid bit for each of up to eight entries, the address space's 16 bits, a mark for deleted
//! slots and the 36 bits or fewer of the pages' common number. An empty slot is zero. Entries are those of x86-64; in
//! seven bytes they keep the twelve low bits, forty of the frame number and the no-execute bit.

use super::geometry::{Geometry, Key};
use pagelab_base::addr::PhysAddr;
use pagelab_base::memory::PhysMem;

pub const EMPTY: u64 = 0;
/// The tag of a slot whose entries are gone: free to be used again, but searches go on behind it.
pub const DELETED: u64 = 1 << 36;
const ASID_SHIFT: u32 = 40;
const VALID_SHIFT: u32 = 56;
/// The bits of a tag that tell slots apart.
const NAME: u64 = ((1 << 36) - 1) | (0xffff << ASID_SHIFT);

const PACKED_BITS: u32 = 56;
const LOW_BITS: u64 = (1 << 52) - 1;
const NO_EXECUTE_SHIFT: u32 = 63;

/// What names the slot of a page in its tag.
#[inline(always)]
pub fn name(geometry: &Geometry, key: Key) -> u64 {
    geometry.block(key.vpn) | u64::from(key.asid) << ASID_SHIFT
}

/// Whether a tag is that of a slot in use with this name.
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

/// The bit of a tag that says that an entry is there.
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

/// The entry at a place of a slot, as x86-64 writes it.
#[inline]
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

/// Writes an entry at a place of a slot; its valid bit is apart.
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

/// Makes every word of a slot zero but its tag, which becomes `tag`.
pub fn clear(geometry: &Geometry, mem: &mut PhysMem, slot: PhysAddr, tag: u64) {
    mem.write_block(slot, tag);
    for word in 1..geometry.slot_bytes() / 8 {
        mem.write_block(slot + 8 * word, 0);
    }
}
