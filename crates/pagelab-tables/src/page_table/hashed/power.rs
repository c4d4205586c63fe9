//! Groups (POWER): a page is in one of the eight slots of its primary group (by the hash) or its secondary group (by
//! the complement of the hash).

use super::Probe;
use super::geometry::{Geometry, Key, line_of};
use super::slot::{self, EMPTY};
use pagelab_base::addr::PhysAddr;
use pagelab_base::memory::PhysMem;

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
