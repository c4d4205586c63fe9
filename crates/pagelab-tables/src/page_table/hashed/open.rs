//! Open addressing with linear probing: a search begins at a page's home slot and ends at the page's slot or an empty
//! one.

use super::Probe;
use super::geometry::{Counter, Geometry, Key, line_of};
use super::slot::{self, DELETED, EMPTY};
use pagelab_base::addr::PhysAddr;
use pagelab_base::memory::PhysMem;

/// Looks for a page's slot; calls `visit` with each line that is read.
#[inline(always)]
pub fn probe(geometry: &Geometry, mem: &PhysMem, key: Key, mut visit: impl FnMut(PhysAddr)) -> Probe {
    let name = slot::name(geometry, key);
    let (mut home, mut line, mut lines) = (geometry.home(key), u64::MAX, 0);
    let mut room = None;
    for _ in 0..geometry.homes() {
        let at = geometry.slot(home, key.vpn);
        if line_of(at) != line {
            if lines == geometry.search_lines {
                break;
            }
            (line, lines) = (line_of(at), lines + 1);
            visit(at);
        }
        match mem.read_block(at) {
            tag if slot::is_named(tag, name) => return Probe { found: Some(at), room },
            EMPTY => return Probe { found: None, room: room.or(Some(at)) },
            DELETED if room.is_none() => room = Some(at),
            _ => {}
        }
        home = if home + 1 == geometry.homes() { 0 } else { home + 1 };
    }
    Probe { found: None, room }
}

/// Gives the free slot `room` to the page.
pub fn occupy(geometry: &Geometry, mem: &mut PhysMem, key: Key, room: PhysAddr) -> PhysAddr {
    if mem.read_block(room) == DELETED {
        geometry.add_to_counter(mem, Counter::Deleted, -1);
    }
    mem.write_block(room, slot::name(geometry, key));
    room
}

/// Frees a slot. It is marked as deleted instead of empty, so that searches for slots behind it continue.
pub fn release(geometry: &Geometry, mem: &mut PhysMem, at: PhysAddr) {
    slot::clear(geometry, mem, at, DELETED);
    geometry.add_to_counter(mem, Counter::Deleted, 1);
}
