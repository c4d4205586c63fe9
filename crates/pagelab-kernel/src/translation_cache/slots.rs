//! Slots with a tag, a generation and a pointer each, as pagelab's Linux caches the walks of faults
//! (`pagelab_linux/kernel/src/walk_cache.c`).

use super::arrays::{CacheHit, CacheLookUp, LOWEST, Lines, PUD, offset, prefix};
use crate::config::{SlotKind, TranslationCacheSlots};
use pagelab_base::addr::{LINE_BYTES, PhysAddr, VirtAddr};
use pagelab_base::memory::PhysMem;

/// Sequence count, tag, generation, pointer (`struct pagelab_walk_entry`).
const SLOT_BYTES: u64 = 32;
const TAG: u64 = 8;
const GENERATION: u64 = 16;
const POINTER: u64 = 24;
const ENTRY_BYTES: u64 = 8;

/// The layout of an object: slots of PMD entries, then of PUD entries; or only slots of PMD tables.
#[derive(Clone, Copy, Debug)]
pub struct CacheSlots {
    slots: u64,
    /// Whether slots have PMD tables, with the tag of a PUD entry.
    tables: bool,
}

impl CacheSlots {
    /// The layout for this kind of slots.
    pub fn new(config: &TranslationCacheSlots) -> Self {
        Self { slots: config.slots.into(), tables: config.kind == SlotKind::CpuTable }
    }

    /// The highest level at which a hit may start a walk.
    pub fn highest(&self) -> u8 {
        if self.tables { LOWEST } else { PUD }
    }

    /// Size of an object, in bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.highest() - LOWEST + 1) * self.slots * SLOT_BYTES
    }

    /// The lines of an object.
    pub fn lines(&self, object: PhysAddr) -> impl Iterator<Item = PhysAddr> + use<> {
        (object.0..object.0 + self.bytes()).step_by(LINE_BYTES as usize).map(PhysAddr)
    }

    /// All address bits above the range that the slot of a level serves.
    fn tag(&self, level: u8, va: VirtAddr) -> u64 {
        prefix(if self.tables { PUD } else { level }, va)
    }

    fn slot(&self, object: PhysAddr, level: u8, va: VirtAddr) -> PhysAddr {
        let index = self.tag(level, va) & (self.slots - 1);
        object + (u64::from(level - LOWEST) * self.slots + index) * SLOT_BYTES
    }

    /// Looks up an address, from the PMD entry upwards. A slot lies in one line, including its pointer.
    pub fn look_up(&self, mem: &PhysMem, object: PhysAddr, va: VirtAddr, generation: u64) -> CacheLookUp {
        let mut found = CacheLookUp::default();
        for level in LOWEST..=self.highest() {
            let slot = self.slot(object, level, va);
            found.tags.push(slot.align_down(LINE_BYTES));
            let word = |at: u64| mem.read(slot + at);
            // All words of an unused slot are 0, which is not a valid generation.
            if word(TAG) == self.tag(level, va) && word(GENERATION) == generation && generation > 0 {
                let within = if self.tables { ENTRY_BYTES * offset(LOWEST, va) } else { 0 };
                found.hit = Some(CacheHit { level, pointer: None, entry: PhysAddr(word(POINTER) + within) });
                break;
            }
        }
        found
    }

    /// The lines written by a fill of the levels `from` to `to`.
    pub fn fill_lines(&self, object: PhysAddr, from: u8, to: u8, va: VirtAddr) -> Lines {
        (from..=to.min(self.highest())).map(|level| self.slot(object, level, va).align_down(LINE_BYTES)).collect()
    }

    /// Enters the entry of an address at a level, or its table. False if there is no slot for it.
    pub fn fill(
        &self,
        mem: &mut PhysMem,
        object: PhysAddr,
        (level, entry): (u8, PhysAddr),
        va: VirtAddr,
        generation: u64,
    ) -> bool {
        if level > self.highest() {
            return false;
        }
        let slot = self.slot(object, level, va);
        let before = if self.tables { ENTRY_BYTES * offset(LOWEST, va) } else { 0 };
        for (at, word) in [(TAG, self.tag(level, va)), (GENERATION, generation), (POINTER, entry.0 - before)] {
            mem.write(slot + at, word);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_base::addr::Pfn;

    const GIB: u64 = 1 << 30;

    fn new_slots(kind: SlotKind) -> (CacheSlots, PhysMem) {
        let mut mem = PhysMem::default();
        mem.create(Pfn(0));
        (CacheSlots::new(&TranslationCacheSlots { kind, ..Default::default() }), mem)
    }

    #[test]
    fn a_slot_of_a_table_serves_a_gigabyte_and_one_of_an_entry_two_megabytes() {
        let entry = |va: u64| PhysAddr((1 << 20) | (8 * (va >> 21 & 511)));
        for (kind, levels, far) in
            [(SlotKind::Cpu, [Some(2), Some(3)], Some(3)), (SlotKind::CpuTable, [Some(2); 2], None)]
        {
            let (slots, mut mem) = new_slots(kind);
            let object = PhysAddr(0);
            let va = 5 * GIB + (7 << 21);
            assert!(slots.fill(&mut mem, object, (2, entry(va)), VirtAddr(va), 9));
            assert_eq!(slots.fill(&mut mem, object, (3, PhysAddr(64)), VirtAddr(va), 9), far.is_some());
            for (at, level) in [(va + 4096, levels[0]), (va + (3 << 21), levels[1]), (va + GIB, None)] {
                let hit = slots.look_up(&mem, object, VirtAddr(at), 9).hit;
                assert_eq!(hit.map(|hit| hit.level), level, "{kind:?} at {at:#x}");
                if level == Some(2) {
                    assert_eq!(hit.unwrap().entry, entry(at));
                }
            }
            // A tag of another generation, and of a space that has none yet.
            assert_eq!(slots.look_up(&mem, object, VirtAddr(va), 8).hit, None);
            assert_eq!(slots.look_up(&mem, object, VirtAddr(0), 0).hit, None);
        }
    }

    #[test]
    fn slots_of_a_level_are_direct_mapped_and_two_lie_in_a_line() {
        let (slots, mut mem) = new_slots(SlotKind::Vma);
        assert_eq!((slots.bytes(), slots.lines(PhysAddr(0)).count()), (1024, 16));
        assert_eq!(new_slots(SlotKind::CpuTable).0.bytes(), 512);
        let line = |n: u64| slots.fill_lines(PhysAddr(0), 2, 5, VirtAddr(n << 21)).to_vec();
        assert_eq!(line(0), [PhysAddr(0), PhysAddr(512)]);
        assert_eq!(line(1), line(0));
        assert_eq!(line(3), [PhysAddr(64), PhysAddr(512)]);
        assert_eq!(line(16)[0], line(0)[0]);
        for n in [1, 17] {
            slots.fill(&mut mem, PhysAddr(0), (2, PhysAddr(8 * n)), VirtAddr(n << 21), 1);
        }
        let hit = |n: u64| slots.look_up(&mem, PhysAddr(0), VirtAddr(n << 21), 1).hit.map(|hit| hit.entry.0);
        assert_eq!([1, 17].map(hit), [None, Some(8 * 17)]);
    }
}
