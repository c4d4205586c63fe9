//! Unified translation cache.
//!
//! Models: one array of entries of all levels except the leaf's, tagged by address space, level and virtual-address
//! prefix. The longest match determines where the walk starts. Unlike one array per level, it adapts to the number of
//! entries per level that a program uses. But the many entries of level 2, which are seldom reused, would evict the few
//! of higher levels. So they are inserted at a lower position in the recency order (variable insertion point) and move
//! to the front when they hit.
//! Source: Barr, Cox, Rixner, ISCA 2010 (unified translation cache, variable insertion-point LRU), as described by
//! Yaniv, Tsafrir, SIGMETRICS 2016, 6.1.
//! Parameters: `machine.mmu_cache.unified`: entries, ways, latency of a look-up, `level2_insertion` (0: plain LRU).
//! Deviations: the insertion point is a parameter and does not move while a program runs. If a longer prefix matches,
//! shorter matching prefixes do not count as used. Each layer has its own array.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Asid, Design, Geometry, MmuCacheGeometry, SparedRefs, cacheable, position};
use crate::page_table::{UpperEntries, WalkList};
use pagelab_base::addr::VirtAddr;
use pagelab_base::assoc::{AssocArray, AssocPolicy, array};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// Unified translation cache: one array of entries of all levels except the leaf's, tagged by virtual-address prefix
/// (Barr, Cox, Rixner, "Translation caching", ISCA 2010).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnifiedTranslationCacheConfig {
    pub entries: u32,
    pub ways: u32,
    /// Cycles of one look-up of all prefixes in parallel.
    pub latency_cycles: u32,
    /// Recency position at which entries of level 2, which are reused least, are inserted in their set: 0 for most
    /// recently used (plain LRU); must be below `ways`. Entries of higher levels are always inserted as most recently
    /// used.
    pub level2_insertion: u32,
}

impl Geometry for UnifiedTranslationCacheConfig {
    fn together(&mut self, cores: u32, extra_latency_cycles: u32) {
        self.entries = self.entries.saturating_mul(cores);
        self.latency_cycles = self.latency_cycles.saturating_add(extra_latency_cycles);
    }
}

/// The unified translation cache of a layer on a core.
#[derive(Clone)]
pub struct UnifiedTranslationCache {
    array: AssocArray,
    latency_cycles: Cycles,
    level2_insertion: usize,
}

#[inline]
fn key(asid: Asid, level: u8, prefix: u64) -> u64 {
    prefix << 19 | u64::from(level) << 16 | u64::from(asid.0)
}

impl UnifiedTranslationCache {
    pub fn new(config: &UnifiedTranslationCacheConfig, rng: &Rng) -> Result<Self, EngineError> {
        let path = "machine.mmu_cache.unified";
        let array = array(path, config.entries, config.ways, AssocPolicy::Lru, rng)?;
        if config.level2_insertion >= config.ways {
            let what = format!("{} is not below the {} ways", config.level2_insertion, config.ways);
            return Err(EngineError::config(format!("{path}.level2_insertion"), what));
        }
        let level2_insertion = config.level2_insertion as usize;
        Ok(Self { array, latency_cycles: config.latency_cycles.into(), level2_insertion })
    }
}

impl Design for UnifiedTranslationCache {
    fn new(geometry: &MmuCacheGeometry, rng: &Rng) -> Result<Self, EngineError> {
        Self::new(&geometry.unified, rng)
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        let unified = UnifiedTranslationCacheConfig { entries: 8, ways: 4, latency_cycles: 1, level2_insertion: 2 };
        vec![geometry.clone(), MmuCacheGeometry { unified, ..geometry.clone() }]
    }

    fn keeps(entries: UpperEntries) -> Result<(), &'static str> {
        entries.are_levels()
    }

    #[inline]
    fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> SparedRefs {
        let refs = &list.refs()[..cacheable(list)];
        let top = refs.first().map_or(0, |first| first.level);
        for level in 2..=top {
            let Some(at) = position(refs, level) else { continue };
            let prefix = refs[at].prefix(va);
            if self.array.lookup(prefix, key(asid, level, prefix)).is_some() {
                return SparedRefs { skip: (2 << at) - 1, by_entry: false, cycles: self.latency_cycles };
            }
        }
        SparedRefs { skip: 0, by_entry: false, cycles: self.latency_cycles }
    }

    #[inline(never)]
    fn fill(&mut self, asid: Asid, va: VirtAddr, list: &WalkList, read: usize, skip: u32, _: &PhysMem) {
        // After the longest match the walk read all the remaining references, and the array contains none of them.
        for reference in list.refs()[skip.trailing_ones() as usize..read].iter().filter(|r| r.level > 1) {
            let prefix = reference.prefix(va);
            let rank = if reference.level == 2 { self.level2_insertion } else { 0 };
            self.array.insert_absent_behind(prefix, key(asid, reference.level, prefix), 0, rank);
        }
    }

    fn flush(&mut self, asid: Asid) {
        self.array.invalidate(|key, _| key & 0xffff == u64::from(asid.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_table::{WalkPath, WalkRef};
    use pagelab_base::addr::PhysAddr;

    fn cache(ways: u32, level2_insertion: u32) -> UnifiedTranslationCache {
        let config = UnifiedTranslationCacheConfig { entries: ways, ways, latency_cycles: 2, level2_insertion };
        UnifiedTranslationCache::new(&config, &Rng::new(1, "test")).unwrap()
    }

    fn full_walk() -> WalkList {
        let mut list = WalkList::new();
        list.set([4, 3, 2, 1].map(|level| WalkRef {
            addr: PhysAddr(0),
            level,
            shift: WalkPath::shift(level) as u8,
            factor: 1,
            step: 5 - level,
        }));
        list
    }

    /// Numbers of walks that skip three, two, one and no reference, over `rounds` of the same addresses.
    fn spared(cache: &mut UnifiedTranslationCache, addresses: &[u64], rounds: usize) -> [usize; 4] {
        let (list, asid) = (full_walk(), Asid(1));
        let mut out = [0; 4];
        for &va in std::iter::repeat_n(addresses, rounds).flatten() {
            let SparedRefs { skip, .. } = cache.look_up(asid, VirtAddr(va), &list);
            out[3 - skip.trailing_ones() as usize] += 1;
            cache.fill(asid, VirtAddr(va), &list, 3, skip, &PhysMem::default());
        }
        out
    }

    #[test]
    fn the_longest_prefix_that_is_held_counts() {
        let mut cache = cache(8, 0);
        assert_eq!(spared(&mut cache, &[0x7f12_3456_7000], 1), [0, 0, 0, 1]);
        assert_eq!(spared(&mut cache, &[0x7f12_3456_8000], 1), [1, 0, 0, 0], "the same 2 MiB");
        assert_eq!(spared(&mut cache, &[0x7f12_0056_8000], 1), [0, 1, 0, 0], "the same 1 GiB");
        assert_eq!(spared(&mut cache, &[0x7f00_0056_8000], 1), [0, 0, 1, 0], "the same 512 GiB");
        cache.flush(Asid(2));
        assert_eq!(spared(&mut cache, &[0x7f12_3456_7000], 1), [1, 0, 0, 0], "of another address space");
        cache.flush(Asid(1));
        assert_eq!(spared(&mut cache, &[0x7f12_3456_7000], 1), [0, 0, 0, 1]);
    }

    #[test]
    fn a_lower_insertion_point_keeps_upper_levels_from_being_pushed_out() {
        // Ten regions of 2 MiB of one gigabyte, then ten of another: too many for eight entries.
        let addresses: Vec<u64> = (0..20).map(|n| 0x7f00_0000_0000 + ((n / 10) << 30) + ((n % 10) << 21)).collect();
        let lru = spared(&mut cache(8, 0), &addresses, 20);
        assert_eq!(lru, [0, 18 * 20, 0, 2 * 20], "coming back to a gigabyte, nothing of it is left");
        let lower = spared(&mut cache(8, 6), &addresses, 20);
        assert_eq!((lower[2], lower[3]), (1, 1), "only the first time: {lower:?}");
        assert!(lower[0] > 0, "and some entries of level 2 stay: {lower:?}");
    }
}
