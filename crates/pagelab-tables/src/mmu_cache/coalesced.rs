//! Coalesced paging-structure caches.
//!
//! Models: paging-structure caches in which an entry of level 2 can represent several page-table entries. If
//! neighbouring entries of a line of the page table point to leaf tables in consecutive frames, one cache entry holds
//! them all, with a bit for each. The walker reads that line anyway when it reads one of them. Linux takes page-table
//! pages from blocks of unmovable memory, so those of a growing region are often consecutive.
//! Source: Bhattacharjee, MICRO 2013, as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.1. Its second proposal, a
//! cache of the same total size shared by the cores, is `machine.mmu_cache.shared_by_cores`, for this and every other
//! design.
//! Parameters: `machine.mmu_cache.paging_structure`.
//! Deviations: the operating system does not place page-table pages side by side on purpose. An entry covers at most a
//! line of the page table (8 entries); the paper merges more.

use super::paging_structure::{PagingStructureCache, PagingStructureConfig};
use super::{Asid, Design, MmuCacheGeometry, NO_UPPER_LEVELS, SparedRefs, cacheable, position, prefix};
use crate::page_table::{UpperEntries, WalkList, WalkRef, table_of};
use pagelab_base::addr::{PhysAddr, VirtAddr};
use pagelab_base::assoc::{AssocArray, array};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// The level whose entries are merged: they point to leaf tables.
const MERGED: u8 = 2;
/// log2 of the entries per line.
const GROUP_SHIFT: u32 = 3;
const GROUP: u64 = 1 << GROUP_SHIFT;

/// A run: entries of a line that point to consecutive frames.
#[derive(Clone, Copy)]
struct Run {
    /// Number of the line in the address space: the prefix without its lowest bits.
    group: u64,
    /// Index of the walk's own entry in the line.
    member: u64,
    /// Frame that the line's entry 0 points to if it belongs to the run.
    base: u64,
}

impl Run {
    /// The run of the walk's entry at `at`, by the table that the walk reads next.
    fn from_walk(va: VirtAddr, refs: &[WalkRef], at: usize) -> Self {
        let prefix = prefix(va, refs[at].shift.into());
        let member = prefix % GROUP;
        Self { group: prefix >> GROUP_SHIFT, member, base: refs[at + 1].addr.pfn().0.wrapping_sub(member) }
    }

    /// Runs of one line differ in their base frames; the lowest bits of those usually distinguish them.
    fn key(&self, asid: Asid) -> u64 {
        (self.base & 0x3fff) << 49 | self.group << 16 | u64::from(asid.0)
    }

    /// Value of the cache entry: base frame and bitmap of members.
    fn word(&self, members: u64) -> u64 {
        self.base << GROUP | members
    }

    fn is_in(&self, word: u64) -> bool {
        word >> GROUP == self.base & (u64::MAX >> GROUP) && word >> self.member & 1 != 0
    }
}

/// The coalesced paging-structure caches of a layer on a core.
#[derive(Clone)]
pub struct CoalescedCache {
    /// The array of the merged level, if the machine has one.
    merged: Option<AssocArray>,
    others: PagingStructureCache,
    latency_cycles: Cycles,
}

impl CoalescedCache {
    pub fn new(config: &PagingStructureConfig, rng: &Rng) -> Result<Self, EngineError> {
        let mut others = config.clone();
        let mut merged = None;
        if let Some(at) = others.arrays.iter().position(|array| array.level == MERGED) {
            let removed = others.arrays.remove(at);
            let path = format!("machine.mmu_cache.paging_structure.arrays.{at}");
            merged = Some(array(&path, removed.entries, removed.ways, removed.policy, rng)?);
        }
        let latency_cycles = config.latency_cycles.into();
        Ok(Self { merged, others: PagingStructureCache::new(&others, rng)?, latency_cycles })
    }
}

impl Design for CoalescedCache {
    fn new(geometry: &MmuCacheGeometry, rng: &Rng) -> Result<Self, EngineError> {
        Self::new(&geometry.paging_structure, rng)
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        PagingStructureCache::samples(geometry)
    }

    fn keeps(entries: UpperEntries) -> Result<(), &'static str> {
        match entries {
            UpperEntries::Levels(_) | UpperEntries::Nothing => Ok(()),
            UpperEntries::LargerTables => Err("no entries of level 2 that point to leaf tables of 4 KiB"),
            UpperEntries::Unfit => Err(NO_UPPER_LEVELS),
        }
    }

    fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> SparedRefs {
        let refs = list.refs();
        if let (Some(merged), Some(at)) = (&mut self.merged, position(&refs[..cacheable(list)], MERGED)) {
            let run = Run::from_walk(va, refs, at);
            if merged.lookup(run.group, run.key(asid)).is_some_and(|word| run.is_in(word)) {
                return SparedRefs { skip: (2 << at) - 1, by_entry: false, cycles: self.latency_cycles };
            }
        }
        self.others.look_up(asid, va, list)
    }

    fn fill(&mut self, asid: Asid, va: VirtAddr, list: &WalkList, read: usize, skip: u32, mem: &PhysMem) {
        let refs = list.refs();
        if let (Some(merged), Some(at)) = (&mut self.merged, position(&refs[..read], MERGED))
            && at >= skip.trailing_ones() as usize
        {
            let run = Run::from_walk(va, refs, at);
            let line = refs[at].addr.0 - 8 * run.member;
            let is_member = |n: &u64| {
                let table = table_of(mem, PhysAddr(line + 8 * n));
                table.is_some_and(|table| table.0.wrapping_sub(*n) == run.base)
            };
            let members = (0..GROUP).filter(is_member).fold(0, |members, n| members | 1 << n);
            merged.insert(run.group, run.key(asid), run.word(members));
        }
        self.others.fill(asid, va, list, read, skip, mem);
    }

    fn flush(&mut self, asid: Asid) {
        if let Some(merged) = &mut self.merged {
            merged.invalidate(|key, _| key & 0xffff == u64::from(asid.0));
        }
        self.others.flush(asid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmu_cache::paging_structure::PagingStructureArray;
    use crate::page_table::{PageTable, TableBlock};
    use pagelab_base::addr::{PageSize, Pfn};

    const BASE: u64 = 0x7f00_0000_0000;

    /// A table of leaf tables for eight regions of 2 MiB, in the given frames.
    fn table(frames: [u64; 8]) -> (PageTable, PhysMem) {
        let mut mem = PhysMem::default();
        let mut table = PageTable::x86_64(4, &mut mem, &mut |_| Some(Pfn(1))).unwrap();
        for (n, frame) in [2, 3].into_iter().chain(frames).enumerate() {
            mem.create(Pfn(frame));
            let region = VirtAddr(BASE + ((n.max(2) as u64 - 2) << 21));
            table
                .link_table(&mut mem, region, PageSize::Size4K, TableBlock::frame(Pfn(frame)))
                .expect("a table is missing");
        }
        (table, mem)
    }

    /// Walks each region once, after the first; returns which walks skipped the level-2 reference.
    fn spared(frames: [u64; 8], entries: u32) -> [bool; 8] {
        let (table, mem) = table(frames);
        let level2 = PagingStructureArray { level: 2, entries, ways: entries, policy: Default::default() };
        let config = PagingStructureConfig { arrays: vec![level2], latency_cycles: 2 };
        let mut cache = CoalescedCache::new(&config, &Rng::new(1, "test")).unwrap();
        std::array::from_fn(|n| {
            let va = VirtAddr(BASE + ((n as u64) << 21));
            let mut list = WalkList::new();
            table.walk(&mem, va, &mut list);
            let SparedRefs { skip, .. } = cache.look_up(Asid(1), va, &list);
            cache.fill(Asid(1), va, &list, 3, skip, &mem);
            let again = cache.look_up(Asid(1), va, &list).skip;
            assert_eq!(again, 0b111, "what has been read is held");
            skip == 0b111
        })
    }

    #[test]
    fn an_entry_stands_for_all_that_point_to_frames_in_a_row() {
        let in_a_row = spared([10, 11, 12, 13, 14, 15, 16, 17], 1);
        assert_eq!(in_a_row, [false, true, true, true, true, true, true, true]);
        let with_gaps = spared([10, 11, 99, 13, 50, 51, 52, 17], 4);
        assert_eq!(with_gaps, [false, true, false, true, false, true, true, true]);
        assert_eq!(spared([17, 16, 15, 14, 13, 12, 11, 10], 8), [false; 8], "the wrong way round");
    }

    #[test]
    fn a_flush_drops_what_an_address_space_has() {
        let (table, mem) = table([10, 11, 12, 13, 14, 15, 16, 17]);
        let mut list = WalkList::new();
        table.walk(&mem, VirtAddr(BASE), &mut list);
        let arrays =
            [2, 3].map(|level| PagingStructureArray { level, entries: 2, ways: 2, policy: Default::default() });
        let config = PagingStructureConfig { arrays: arrays.into(), latency_cycles: 2 };
        let mut cache = CoalescedCache::new(&config, &Rng::new(1, "test")).unwrap();
        cache.fill(Asid(1), VirtAddr(BASE), &list, 3, 0, &mem);
        cache.flush(Asid(2));
        assert_eq!(cache.look_up(Asid(1), VirtAddr(BASE), &list).skip, 0b111);
        assert_eq!(cache.look_up(Asid(1), VirtAddr(BASE + (9 << 21)), &list).skip, 0b11, "the same gigabyte");
        cache.flush(Asid(1));
        assert_eq!(cache.look_up(Asid(1), VirtAddr(BASE), &list).skip, 0);
    }
}
