//! What the address spaces of a layer share of its hashed table: tags, and the slots that ended processes left.

use super::geometry::{Counter, Geometry};
use super::slot::{asid_of, is_used};
use super::{Hashed, chained, open, power};
use crate::base::addr::{Cycles, PhysAddr};
use crate::base::memory::PhysMem;
use crate::config::HashedKind;

/// What scans for the slots of ended processes did.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanCounters {
    pub scans: u64,
    pub lines: u64,
    /// Slots deleted.
    pub deleted: u64,
    pub cycles: Cycles,
}

/// See the module's text.
pub struct SharedTable {
    pub geometry: Geometry,
    pub scans: ScanCounters,
    exits_per_scan: usize,
    /// Tags that were given out at least once are below.
    next: u32,
    free: Vec<u16>,
    /// Tags whose slots are left in the table.
    ended: Vec<u16>,
}

impl SharedTable {
    pub fn new(geometry: Geometry, exits_per_scan: u32) -> Self {
        let scans = ScanCounters::default();
        Self { geometry, scans, exits_per_scan: exits_per_scan as usize, next: 0, free: Vec::new(), ended: Vec::new() }
    }

    fn take_tag(&mut self) -> Option<u16> {
        self.free.pop().or_else(|| {
            let tag = u16::try_from(self.next).ok()?;
            self.next += 1;
            Some(tag)
        })
    }

    /// A new address space; none if all tags are in use or wait for a scan.
    pub fn add_space(&mut self) -> Option<Hashed> {
        Some(Hashed::new(self.geometry, self.take_tag()?))
    }

    /// Ends an address space, which has no slot.
    pub fn remove_space(&mut self, space: &Hashed) {
        assert_eq!(space.slots, 0, "the space of tag {} still has slots", space.asid);
        self.free.push(space.asid);
    }

    /// Leaves the slots of a space to a later scan: the space goes on with another tag and maps nothing. False if there is no
    /// such tag.
    pub fn abandon(&mut self, mem: &mut PhysMem, space: &mut Hashed) -> bool {
        if space.slots == 0 {
            return true;
        }
        let Some(tag) = self.take_tag() else { return false };
        self.geometry.add_to_counter(mem, Counter::Stale, space.slots as i64);
        let old = std::mem::replace(space, Hashed::new(self.geometry, tag));
        self.ended.push(old.asid);
        true
    }

    /// Whether enough processes have ended.
    pub fn is_scan_due(&self) -> bool {
        self.ended.len() >= self.exits_per_scan
    }

    /// The tags that a scan is to delete the slots of, if enough processes have ended. They are the scan's from now on.
    pub fn begin_scan(&mut self) -> Option<Vec<u16>> {
        if !self.is_scan_due() {
            return None;
        }
        self.scans.scans += 1;
        Some(std::mem::take(&mut self.ended))
    }

    /// How full the table is, in words.
    pub fn occupation(&self, mem: &PhysMem) -> String {
        let [used, deleted, stale] =
            [Counter::Used, Counter::Deleted, Counter::Stale].map(|counter| self.geometry.counter(mem, counter));
        let slots = self.geometry.slots();
        format!("{used} of {slots} slots are in use ({stale} by ended processes) and {deleted} marked deleted")
    }

    /// The slots in a frame of the table, by its number, that have one of these tags.
    pub fn stale_in(&self, mem: &PhysMem, frame: u64, tags: &[u16]) -> Vec<PhysAddr> {
        let heads = self.geometry.slots_in(frame);
        let is_stale = |slot: &PhysAddr| is_stale(mem, *slot, tags);
        match self.geometry.kind {
            HashedKind::Chained => heads.flat_map(|head| chained::chain(mem, head)).filter(is_stale).collect(),
            _ => heads.filter(is_stale).collect(),
        }
    }

    /// Deletes those slots; chains are mended with their heads.
    pub fn delete_stale(&mut self, mem: &mut PhysMem, frame: u64, tags: &[u16]) {
        let geometry = self.geometry;
        let mut deleted = 0;
        if geometry.kind == HashedKind::Chained {
            for head in geometry.slots_in(frame) {
                // Mending moves slots, so that the chain is looked at anew each time.
                while let Some(slot) = stale_in_chain(mem, head, tags) {
                    chained::release(&geometry, mem, head, slot);
                    deleted += 1;
                }
            }
        } else {
            for slot in self.stale_in(mem, frame, tags) {
                match geometry.kind {
                    HashedKind::Power => power::release(&geometry, mem, slot),
                    _ => open::release(&geometry, mem, slot),
                }
                deleted += 1;
            }
        }
        geometry.add_to_counter(mem, Counter::Used, -deleted);
        geometry.add_to_counter(mem, Counter::Stale, -deleted);
        self.scans.deleted += deleted.unsigned_abs();
    }

    /// A scan has come to the end of the table: its tags may be used again.
    pub fn end_scan(&mut self, tags: &mut Vec<u16>) {
        self.free.append(tags);
    }
}

fn is_stale(mem: &PhysMem, slot: PhysAddr, tags: &[u16]) -> bool {
    let tag = mem.read_block(slot);
    is_used(tag) && tags.contains(&asid_of(tag))
}

fn stale_in_chain(mem: &PhysMem, head: PhysAddr, tags: &[u16]) -> Option<PhysAddr> {
    chained::chain(mem, head).find(|&slot| is_stale(mem, slot, tags))
}
