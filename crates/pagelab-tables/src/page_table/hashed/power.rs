//! Groups (POWER): a page is in one of the eight slots of either of two groups, which the hash and its complement name.

use super::Probe;
use super::geometry::{Geometry, Key, line_of};
use super::slot::{self, EMPTY};
use pagelab_base::addr::PhysAddr;
use pagelab_base::memory::PhysMem;

/// Looks for the slot of a page, in the primary group and then in the secondary; `visit` is told each line that is
/// read. A slot for the page can be made at the first empty one.
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

/// Gives a slot up. Searches look at all slots of a group, so it is empty at once.
pub fn release(geometry: &Geometry, mem: &mut PhysMem, at: PhysAddr) {
    slot::clear(geometry, mem, at, EMPTY);
}
