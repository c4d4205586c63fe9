//! Groups (POWER): a page is in one of the eight slots of its primary group (by the hash) or its secondary group (by
//! the complement of the hash).
//!
//! If both are full, the kernel may evict an entry of the primary group to its record: a table with chains that
//! no walker reads. Linux chooses a slot by the time base (`native_hpte_remove` in
//! arch/powerpc/mm/book3s64/hash_native.c); here the choice is a hash of the number of evictions so far.

use super::Probe;
use super::chained;
use super::geometry::{Counter, Geometry, Key, line_of};
use super::slot::{self, EMPTY};
use pagelab_base::addr::PhysAddr;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::mix;

/// Looks for a page's slot in the primary group and then in the secondary; calls `visit` with each line that is read. A
/// new slot for the page is the first empty one.
#[inline(always)]
pub fn probe(geometry: &Geometry, mem: &PhysMem, key: Key, mut visit: impl FnMut(PhysAddr)) -> Probe {
    let name = slot::name(geometry, key);
    let primary = geometry.home(key);
    let (mut line, mut room) = (u64::MAX, None);
    for group in [primary, geometry.homes() - 1 - primary] {
        for at in geometry.group(group) {
            if line_of(at) != line {
                line = line_of(at);
                visit(at);
            }
            match mem.read_block(at) {
                tag if slot::is_named(tag, name) => return Probe { found: Some(at), room },
                EMPTY if room.is_none() => room = Some(at),
                _ => {}
            }
        }
    }
    Probe { found: None, room }
}

/// Frees a slot. It becomes empty at once, since searches read all slots of a group.
pub fn release(geometry: &Geometry, mem: &mut PhysMem, at: PhysAddr) {
    slot::clear(geometry, mem, at, EMPTY);
}

/// The slot of a page's primary group whose entry is evicted next.
pub fn victim(geometry: &Geometry, mem: &PhysMem, key: Key) -> PhysAddr {
    let mut slots = geometry.group(geometry.home(key));
    let number = mix(geometry.counter(mem, Counter::Evicted)) as usize % slots.size_hint().0;
    slots.nth(number).expect("a group has slots")
}

/// Moves the entry in a slot to the record, and empties the slot; `None` if the record is full.
pub fn evict(geometry: &Geometry, record: &Geometry, mem: &mut PhysMem, at: PhysAddr) -> Option<()> {
    let (tag, entry) = (mem.read_block(at), mem.read_block(at + 8));
    let key = Key { asid: slot::asid_of(tag), vpn: slot::number_of(tag), size: slot::base_of(tag) };
    let last = chained::probe(record, mem, key, |_| {}).room?;
    let room = chained::occupy(record, mem, key, last)?;
    mem.write_block(room, tag);
    mem.write_block(room + 8, entry);
    release(geometry, mem, at);
    geometry.add_to_counter(mem, Counter::Used, -1);
    geometry.add_to_counter(mem, Counter::Evicted, 1);
    record.add_to_counter(mem, Counter::Used, 1);
    Some(())
}

/// Moves a page's entry from the record to a slot of its groups, whose own entry takes its place there; `None` if the
/// record is full.
pub fn refill(
    geometry: &Geometry,
    record: &Geometry,
    mem: &mut PhysMem,
    key: Key,
    [to, from]: [PhysAddr; 2],
) -> Option<()> {
    let (tag, entry) = (mem.read_block(from), mem.read_block(from + 8));
    remove(record, mem, key, from);
    if mem.read_block(to) != EMPTY {
        evict(geometry, record, mem, to)?;
    }
    mem.write_block(to, tag);
    mem.write_block(to + 8, entry);
    geometry.add_to_counter(mem, Counter::Used, 1);
    Some(())
}

/// Removes a page's entry from the record.
pub fn remove(record: &Geometry, mem: &mut PhysMem, key: Key, at: PhysAddr) {
    record.add_to_counter(mem, Counter::Used, -1);
    chained::release(record, mem, record.slot(record.home(key), key.vpn), at);
}
