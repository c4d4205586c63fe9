//! Coalesced paging-structure caches.
//!
//! Models: paging-structure caches in which an entry of level 2 can represent several page-table entries. If
//! neighbouring entries of the page table point to leaf tables in consecutive frames, one cache entry holds them all,
//! with a bit for each. The walker reads a line of 8 entries when it reads one of them, and compares these 8. A cache
//! entry for a larger group collects what the walks read from each of its lines. Linux takes page-table pages from
//! blocks of unmovable memory, so those of a growing region are often consecutive;
//! `system.layers.NAME.contiguous_tables` makes a kernel that sees to it.
//! Source: Bhattacharjee, MICRO 2013, as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.1: dozens of leaf tables can
//! be coalesced on average. Its second proposal, a cache of the same total size shared by the cores, is
//! `machine.mmu_cache.shared_by_cores`, for this and every other design.
//! Parameters: `machine.mmu_cache.paging_structure`; `machine.mmu_cache.coalesced.group_entries`, the aligned group of
//! entries that one cache entry can represent.
//! Stats: `walk.layer.NAME.level2.refs`, the entries that it did not have.
//! Deviations: the description does not say how an entry knows its members: here by a bit for each of an aligned group.
//! Runs of one group with different base frames are entries of their own.

use super::paging_structure::{PagingStructureCache, PagingStructureConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Asid, Design, Geometry, MmuCacheGeometry, NO_UPPER_LEVELS, SparedRefs, cacheable, position};
use crate::page_table::{UpperEntries, WalkList, WalkRef, table_of};
use pagelab_base::addr::{PhysAddr, VirtAddr};
use pagelab_base::assoc::{AssocArray, array};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// The level whose entries are merged: they point to leaf tables.
const MERGED: u8 = 2;
/// Entries per line of the page table.
const LINE: u64 = 8;
/// Most entries per group: a word has a bit for each.
const MOST: u32 = 64;

/// What an entry of the coalesced caches can represent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoalescedConfig {
    /// Size of the aligned group of level-2 entries that one cache entry can represent: a power of two from 8, a line
    /// of the page table, to 64.
    pub group_entries: u32,
}

impl Default for CoalescedConfig {
    /// The entries of a line of the page table.
    fn default() -> Self {
        Self { group_entries: LINE as u32 }
    }
}

impl Geometry for CoalescedConfig {
    fn together(&mut self, _: u32, _: u32) {}
}

/// A run: entries of a group that point to consecutive frames.
#[derive(Clone, Copy)]
struct Run {
    /// Number of the group in the address space: the prefix without its lowest bits.
    group: u64,
    /// Index of the walk's own entry in the group.
    member: u64,
    /// Frame that the group's entry 0 points to if it belongs to the run.
    base: u64,
}

impl Run {
    /// The run of the walk's entry at `at` in its group of `size`, by the table that the walk reads next.
    fn from_walk(va: VirtAddr, refs: &[WalkRef], at: usize, size: u64) -> Self {
        let prefix = refs[at].prefix(va);
        let member = prefix % size;
        Self { group: prefix / size, member, base: refs[at + 1].addr.pfn().0.wrapping_sub(member) }
    }

    /// Runs of one group differ in their base frames; the lowest bits of those usually distinguish them.
    fn key(&self, asid: Asid) -> u64 {
        (self.base & 0x3fff) << 49 | self.group << 16 | u64::from(asid.0)
    }
}

/// What a cache entry represents.
#[derive(Clone, Copy, Default)]
struct Members {
    /// Base frame of the run.
    base: u64,
    /// Bit n: the group's entry n belongs to it.
    bits: u64,
}

/// The array of the merged level.
#[derive(Clone)]
struct Merged {
    /// Number of each run in `members`.
    array: AssocArray,
    members: Vec<Members>,
    /// Numbers that no entry has.
    free: Vec<u32>,
}

impl Merged {
    fn new(array: AssocArray) -> Self {
        let entries = array.sets() * array.ways();
        Self { array, members: vec![Members::default(); entries as usize], free: (0..entries).collect() }
    }

    /// Whether a run is held, with the walk's own entry.
    fn holds(&mut self, run: &Run, key: u64) -> bool {
        self.array.lookup(run.group, key).is_some_and(|number| {
            let members = self.members[number as usize];
            members.base == run.base && members.bits >> run.member & 1 != 0
        })
    }

    /// Adds what a line says of a run: of the members in `line`, those in `bits` belong to it.
    fn add(&mut self, run: &Run, key: u64, line: u64, bits: u64) {
        let number = match self.array.lookup(run.group, key) {
            Some(number) => number as usize,
            None => {
                // A full set gives the number of the entry that it evicts.
                let number = self.free.pop();
                let evicted = self.array.insert_absent(run.group, key, number.unwrap_or(0).into());
                match (evicted, number) {
                    (None, number) => number.expect("a set with room leaves numbers") as usize,
                    (Some(old), Some(number)) => {
                        self.free.push(old.value as u32);
                        number as usize
                    }
                    (Some(old), None) => {
                        self.array.insert(run.group, key, old.value);
                        old.value as usize
                    }
                }
            }
        };
        let old = self.members[number];
        let kept = if old.base == run.base { old.bits & !line } else { 0 };
        self.members[number] = Members { base: run.base, bits: kept | bits };
    }
}

/// The coalesced paging-structure caches of a layer on a core.
#[derive(Clone)]
pub struct CoalescedCache {
    /// The array of the merged level, if the machine has one.
    merged: Option<Merged>,
    /// Entries per group.
    group: u64,
    others: PagingStructureCache,
    latency_cycles: Cycles,
}

impl CoalescedCache {
    pub fn new(
        config: &PagingStructureConfig,
        &CoalescedConfig { group_entries }: &CoalescedConfig,
        rng: &Rng,
    ) -> Result<Self, EngineError> {
        if !group_entries.is_power_of_two() || !(LINE as u32..=MOST).contains(&group_entries) {
            let what = format!("{group_entries} is not possible; allowed are powers of two from {LINE} to {MOST}");
            return Err(EngineError::config("machine.mmu_cache.coalesced.group_entries", what));
        }
        let mut others = config.clone();
        let mut merged = None;
        if let Some(at) = others.arrays.iter().position(|array| array.level == MERGED) {
            let removed = others.arrays.remove(at);
            let path = format!("machine.mmu_cache.paging_structure.arrays.{at}");
            merged = Some(Merged::new(array(&path, removed.entries, removed.ways, removed.policy, rng)?));
        }
        let latency_cycles = config.latency_cycles.into();
        let others = PagingStructureCache::new(&others, rng)?;
        Ok(Self { merged, group: group_entries.into(), others, latency_cycles })
    }
}

impl Design for CoalescedCache {
    fn new(geometry: &MmuCacheGeometry, rng: &Rng) -> Result<Self, EngineError> {
        Self::new(&geometry.paging_structure, &geometry.coalesced, rng)
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        let small = PagingStructureCache::samples(geometry);
        let coalesced = CoalescedConfig { group_entries: MOST };
        let large = small.iter().map(|small| MmuCacheGeometry { coalesced: coalesced.clone(), ..small.clone() });
        large.chain(small.clone()).collect()
    }

    fn keeps(entries: UpperEntries) -> Result<(), &'static str> {
        match entries {
            UpperEntries::Levels(_) | UpperEntries::Nothing => Ok(()),
            UpperEntries::LargerTables => Err("no entries of level 2 that point to leaf tables of 4 KiB"),
            UpperEntries::OfSomePages => Err("pages that no leaf table translates"),
            UpperEntries::Packed => Err("entries that are not words of 8 bytes"),
            UpperEntries::Segments | UpperEntries::Unfit => Err(NO_UPPER_LEVELS),
        }
    }

    fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> SparedRefs {
        let refs = list.refs();
        if let (Some(merged), Some(at)) = (&mut self.merged, position(&refs[..cacheable(list)], MERGED)) {
            let run = Run::from_walk(va, refs, at, self.group);
            if merged.holds(&run, run.key(asid)) {
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
            let run = Run::from_walk(va, refs, at, self.group);
            let group = refs[at].addr.0 - 8 * run.member;
            let is_member = |n: &u64| {
                let table = table_of(mem, PhysAddr(group + 8 * n));
                table.is_some_and(|table| table.0.wrapping_sub(*n) == run.base)
            };
            let first = run.member / LINE * LINE;
            let bits = (first..first + LINE).filter(is_member).fold(0, |bits, n| bits | 1 << n);
            merged.add(&run, run.key(asid), ((1 << LINE) - 1) << first, bits);
        }
        self.others.fill(asid, va, list, read, skip, mem);
    }

    fn flush(&mut self, asid: Asid) {
        if let Some(merged) = &mut self.merged {
            let free = &mut merged.free;
            merged.array.invalidate(|key, number| {
                let is_dropped = key & 0xffff == u64::from(asid.0);
                if is_dropped {
                    free.push(number as u32);
                }
                is_dropped
            });
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

    /// A table of leaf tables for regions of 2 MiB, in the given frames.
    fn table<const N: usize>(frames: [u64; N]) -> (PageTable, PhysMem) {
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
        spared_by(frames, entries, LINE as u32)
    }

    fn spared_by<const N: usize>(frames: [u64; N], entries: u32, group_entries: u32) -> [bool; N] {
        let (table, mem) = table(frames);
        let level2 = PagingStructureArray { level: 2, entries, ways: entries, policy: Default::default() };
        let config = PagingStructureConfig { arrays: vec![level2], latency_cycles: 2 };
        let mut cache = CoalescedCache::new(&config, &CoalescedConfig { group_entries }, &Rng::new(1, "test")).unwrap();
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
    fn a_larger_group_collects_what_is_read_of_its_lines() {
        // One cache entry, 64 consecutive tables: the first walk to each line of 8 reads, the others do not.
        let consecutive: [u64; 64] = std::array::from_fn(|n| 100 + n as u64);
        let one_in_eight: [bool; 64] = std::array::from_fn(|n| n % 8 != 0);
        assert_eq!(spared_by(consecutive, 1, 64), one_in_eight);
        assert_eq!(spared_by(consecutive, 1, 8), one_in_eight, "each line anew in the same entry");
        // The lines of a group in turn: one entry holds all of them, or the last one only.
        let turns = |group_entries, entries| {
            let (table, mem) = table(consecutive);
            let level2 = PagingStructureArray { level: 2, entries, ways: entries, policy: Default::default() };
            let config = PagingStructureConfig { arrays: vec![level2], latency_cycles: 2 };
            let coalesced = CoalescedConfig { group_entries };
            let mut cache = CoalescedCache::new(&config, &coalesced, &Rng::new(1, "test")).unwrap();
            let mut read = 0;
            for n in (0..3).flat_map(|_| (0..64).step_by(8)) {
                let va = VirtAddr(BASE + (n << 21));
                let mut list = WalkList::new();
                table.walk(&mem, va, &mut list);
                let SparedRefs { skip, .. } = cache.look_up(Asid(1), va, &list);
                cache.fill(Asid(1), va, &list, 3, skip, &mem);
                read += u32::from(skip != 0b111);
            }
            read
        };
        assert_eq!([turns(64, 1), turns(32, 2), turns(16, 4), turns(8, 8)], [8; 4]);
        assert_eq!([turns(32, 1), turns(8, 1), turns(8, 7)], [24; 3]);
    }

    #[test]
    fn an_entry_is_replaced_in_a_full_set_while_others_have_room() {
        // Four entries in sets of one: tables of two groups that share a set, and of a third.
        let frames: [u64; 40] = std::array::from_fn(|n| 200 + n as u64);
        let (table, mem) = table(frames);
        let level2 = PagingStructureArray { level: 2, entries: 4, ways: 1, policy: Default::default() };
        let config = PagingStructureConfig { arrays: vec![level2], latency_cycles: 2 };
        let mut cache = CoalescedCache::new(&config, &CoalescedConfig::default(), &Rng::new(1, "test")).unwrap();
        let mut walk = |n: u64| {
            let va = VirtAddr(BASE + (n << 21));
            let mut list = WalkList::new();
            table.walk(&mem, va, &mut list);
            let SparedRefs { skip, .. } = cache.look_up(Asid(1), va, &list);
            cache.fill(Asid(1), va, &list, 3, skip, &mem);
            skip == 0b111
        };
        assert_eq!(
            [0, 8, 32, 9, 33, 0, 34, 1, 10].map(&mut walk),
            [false, false, false, true, true, false, false, false, true]
        );
        let [group_1, group_2, group_3] = [11, 16, 24].map(&mut walk);
        assert_eq!((group_1, group_2, group_3), (true, false, false));
        assert_eq!([35, 16, 24, 12, 36].map(&mut walk), [false, true, true, true, true]);
    }

    #[test]
    fn a_flush_drops_what_an_address_space_has() {
        let (table, mem) = table([10, 11, 12, 13, 14, 15, 16, 17]);
        let mut list = WalkList::new();
        table.walk(&mem, VirtAddr(BASE), &mut list);
        let arrays =
            [2, 3].map(|level| PagingStructureArray { level, entries: 2, ways: 2, policy: Default::default() });
        let config = PagingStructureConfig { arrays: arrays.into(), latency_cycles: 2 };
        let mut cache = CoalescedCache::new(&config, &CoalescedConfig::default(), &Rng::new(1, "test")).unwrap();
        cache.fill(Asid(1), VirtAddr(BASE), &list, 3, 0, &mem);
        cache.flush(Asid(2));
        assert_eq!(cache.look_up(Asid(1), VirtAddr(BASE), &list).skip, 0b111);
        assert_eq!(cache.look_up(Asid(1), VirtAddr(BASE + (9 << 21)), &list).skip, 0b11, "the same gigabyte");
        cache.flush(Asid(1));
        assert_eq!(cache.look_up(Asid(1), VirtAddr(BASE), &list).skip, 0);
    }
}
