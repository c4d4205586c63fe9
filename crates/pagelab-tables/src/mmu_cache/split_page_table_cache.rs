//! Split page table cache.
//!
//! Models: one array of page-table entries per upper level, tagged by the entry's physical address. A walk looks up its
//! entries one after the other, as each contains the address of the next. So entries of level 2 cannot evict those of
//! higher levels, as they can in the page-walk cache; and unlike in paging-structure caches, an entry is looked up only
//! once the one above it is known.
//! Source: Barr, Cox, Rixner, ISCA 2010 (split page table cache), one of the three designs of theirs to which Yaniv,
//! Tsafrir, SIGMETRICS 2016, 6.1, refer. No processor is known to have it.
//! Parameters: `machine.mmu_cache.paging_structure`: entries, ways and policy per level, latency of one look-up. They
//! are those of the paging-structure caches, so that both differ in their tags only.
//! Stats: `walk.layer.NAME.levelN.refs`, the entries that it did not have.
//! Deviations: each layer has its own arrays, tagged by the layer's physical addresses, so guest entries need no
//! translation to be found. A level without an array costs no look-up.

use super::page_walk_cache::set_hash;
use super::paging_structure::{Level, PagingStructureCache};
use super::{Asid, Design, MmuCacheGeometry, SparedRefs, cacheable};
use crate::page_table::{UpperEntries, WalkList, WalkRef};
use pagelab_base::addr::VirtAddr;
use pagelab_base::assoc::AssocArray;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// The split page table cache of a layer on a core.
#[derive(Clone)]
pub struct SplitPageTableCache {
    levels: Vec<Level>,
    latency_cycles: Cycles,
}

impl SplitPageTableCache {
    /// The array that can hold an entry, if its level has one.
    fn array(&mut self, reference: &WalkRef) -> Option<&mut AssocArray> {
        self.levels.iter_mut().find(|level| level.level == reference.level).map(|level| &mut level.array)
    }
}

impl Design for SplitPageTableCache {
    fn new(geometry: &MmuCacheGeometry, rng: &Rng) -> Result<Self, EngineError> {
        let config = &geometry.paging_structure;
        let levels = PagingStructureCache::levels(config, rng)?;
        Ok(Self { levels, latency_cycles: config.latency_cycles.into() })
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        PagingStructureCache::samples(geometry)
    }

    fn keeps(entries: UpperEntries) -> Result<(), &'static str> {
        entries.are_levels()
    }

    fn look_up(&mut self, _: Asid, _: VirtAddr, list: &WalkList) -> SparedRefs {
        let (mut skip, mut cycles) = (0, Cycles::ZERO);
        let latency_cycles = self.latency_cycles;
        for (n, reference) in list.refs()[..cacheable(list)].iter().enumerate() {
            let Some(array) = self.array(reference) else { continue };
            cycles += latency_cycles;
            if array.lookup(set_hash(reference.addr.0), reference.addr.0).is_some() {
                skip |= 1 << n;
            }
        }
        SparedRefs { skip, by_entry: false, cycles }
    }

    fn fill(&mut self, _: Asid, _: VirtAddr, list: &WalkList, read: usize, skip: u32, _: &PhysMem) {
        for (n, reference) in list.refs()[..read].iter().enumerate() {
            if skip >> n & 1 == 0
                && let Some(array) = self.array(reference)
            {
                array.insert_absent(set_hash(reference.addr.0), reference.addr.0, 0);
            }
        }
    }

    /// Drops all entries, since they are not tagged by address space.
    fn flush(&mut self, _: Asid) {
        self.levels.iter_mut().for_each(|level| level.array.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmu_cache::paging_structure::{PagingStructureArray, PagingStructureConfig};
    use crate::page_table::WalkPath;
    use pagelab_base::addr::PhysAddr;

    fn cache(entries: [(u8, u32); 3]) -> SplitPageTableCache {
        let array =
            |(level, entries)| PagingStructureArray { level, entries, ways: entries, policy: Default::default() };
        let config = PagingStructureConfig { arrays: entries.map(array).into(), latency_cycles: 3 };
        let levels = PagingStructureCache::levels(&config, &Rng::new(1, "test")).unwrap();
        SplitPageTableCache { levels, latency_cycles: config.latency_cycles.into() }
    }

    /// A walk whose entries of levels 4 to 1 are at these addresses.
    fn list(addresses: [u64; 4]) -> WalkList {
        let mut list = WalkList::new();
        let entry = |n: usize| WalkRef {
            addr: PhysAddr(addresses[n]),
            level: 4 - n as u8,
            shift: WalkPath::shift(4 - n as u8) as u8,
            factor: 1,
            step: n as u8,
        };
        list.set([0, 1, 2, 3].map(entry));
        list
    }

    /// Walks once; returns which references were spared.
    fn walk(cache: &mut SplitPageTableCache, addresses: [u64; 4]) -> u32 {
        let list = list(addresses);
        let SparedRefs { skip, cycles, .. } = cache.look_up(Asid(1), VirtAddr(0), &list);
        assert_eq!(cycles, Cycles::from(9_u32), "a look-up per level");
        cache.fill(Asid(1), VirtAddr(0), &list, 3, skip, &PhysMem::default());
        skip
    }

    #[test]
    fn entries_of_level_2_do_not_evict_those_of_other_levels() {
        let mut cache = cache([(2, 1), (3, 1), (4, 1)]);
        assert_eq!(walk(&mut cache, [0x1000, 0x2000, 0x3000, 0x9000]), 0);
        assert_eq!(walk(&mut cache, [0x1000, 0x2000, 0x3008, 0x9000]), 0b011, "another entry of the same table");
        assert_eq!(walk(&mut cache, [0x1000, 0x2000, 0x3000, 0x9000]), 0b011, "level 2 has room for one");
        assert_eq!(walk(&mut cache, [0x1000, 0x2000, 0x3000, 0x9000]), 0b111);
    }

    #[test]
    fn an_entry_below_a_missing_one_is_found_by_its_address() {
        let mut cache = cache([(2, 4), (3, 1), (4, 4)]);
        walk(&mut cache, [0x1000, 0x2000, 0x3000, 0x9000]);
        walk(&mut cache, [0x1000, 0x2008, 0x4000, 0x9000]);
        assert_eq!(walk(&mut cache, [0x1000, 0x2000, 0x3000, 0x9000]), 0b101, "only the entry of level 3 was replaced");
        cache.flush(Asid(7));
        assert_eq!(walk(&mut cache, [0x1000, 0x2000, 0x3000, 0x9000]), 0, "entries have no address space");
    }
}
