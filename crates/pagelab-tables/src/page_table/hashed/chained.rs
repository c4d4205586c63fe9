//! Chaining: pages whose home slot is taken are in a linked list of slots of a chain table.

use super::Probe;
use super::geometry::{Geometry, Key, line_of};
use super::slot::{self, EMPTY};
use pagelab_base::addr::PhysAddr;
use pagelab_base::memory::PhysMem;

/// Address of a slot's pointer to the next slot of its chain; the pointer is 0 in the last slot.
fn link(slot: PhysAddr) -> PhysAddr {
    slot + 16
}

fn next(mem: &PhysMem, slot: PhysAddr) -> Option<PhysAddr> {
    let next = mem.read_block(link(slot));
    (next != 0).then_some(PhysAddr(next))
}

/// Looks for a page's slot; calls `visit` with each line that is read. `room` is the last slot of the chain.
#[inline(always)]
pub fn probe(geometry: &Geometry, mem: &PhysMem, key: Key, mut visit: impl FnMut(PhysAddr)) -> Probe {
    let name = slot::name(geometry, key);
    let (mut at, mut line) = (geometry.slot(geometry.home(key), key.vpn), u64::MAX);
    for _ in 0..geometry.search_lines {
        if line_of(at) != line {
            line = line_of(at);
            visit(at);
        }
        if slot::is_named(mem.read_block(at), name) {
            return Probe { found: Some(at), room: None };
        }
        match next(mem, at) {
            Some(behind) => at = behind,
            None => return Probe { found: None, room: Some(at) },
        }
    }
    Probe { found: None, room: None }
}

/// Exchanges the tags and entries of two slots of a chain.
pub fn exchange(mem: &mut PhysMem, one: PhysAddr, other: PhysAddr) {
    for word in [0, 8] {
        let (first, second) = (mem.read_block(one + word), mem.read_block(other + word));
        mem.write_block(one + word, second);
        mem.write_block(other + word, first);
    }
}

/// Gives the page a slot: the head of its chain if that is empty, otherwise a new one linked behind the last slot
/// `room`.
pub fn occupy(geometry: &Geometry, mem: &mut PhysMem, key: Key, room: PhysAddr) -> Option<PhysAddr> {
    let mut at = room;
    if mem.read_block(room) != EMPTY {
        at = geometry.take_chain_slot(mem)?;
        mem.write_block(link(at), 0);
        mem.write_block(link(room), at.0);
    }
    mem.write_block(at, slot::name(geometry, key));
    Some(at)
}

/// Removes a slot from the chain that begins at `head`.
pub fn release(geometry: &Geometry, mem: &mut PhysMem, head: PhysAddr, at: PhysAddr) {
    let behind = next(mem, at);
    if at != head {
        let mut before = head;
        while let Some(next) = next(mem, before).filter(|&next| next != at) {
            before = next;
        }
        mem.write_block(link(before), behind.map_or(0, |slot| slot.0));
        return geometry.free_chain_slot(mem, at);
    }
    // Searches begin at the head, so the second slot's content moves there.
    let Some(second) = behind else { return slot::clear(geometry, mem, head, EMPTY) };
    for word in [0, 8, 16] {
        mem.write_block(head + word, mem.read_block(second + word));
    }
    geometry.free_chain_slot(mem, second);
}

/// The slots of the chain that begins at `head`.
pub fn chain(mem: &PhysMem, head: PhysAddr) -> impl Iterator<Item = PhysAddr> {
    std::iter::successors(Some(head), move |&slot| next(mem, slot))
}
