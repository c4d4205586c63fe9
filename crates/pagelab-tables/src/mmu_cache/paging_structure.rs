//! Paging-structure caches.
//!
//! Models: one array of entries per upper level, tagged by address space and virtual-address prefix, all looked up in
//! parallel. The longest match determines where the walk starts.
//! Source: Intel SDM vol. 3A, 4.10.3 (paging-structure caches); Barr, Cox, Rixner, ISCA 2010 (split translation cache).
//! `split_page_table_cache.rs` has the same arrays with another tag.
//! Parameters: `machine.mmu_cache.paging_structure`: entries, ways and policy per level, latency.
//! Deviations: if a longer prefix matches, shorter matching prefixes do not count as used.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Asid, Design, Geometry, MmuCacheGeometry, Pass, RequiredReads, SparedRefs, cacheable, position, prefix};
use crate::page_table::{UpperEntries, WalkList, WalkPath};
use pagelab_base::addr::VirtAddr;
use pagelab_base::assoc::{AssocArray, AssocPolicy, array};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::host::Vectors;
use pagelab_base::lru_sets::LruSets;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// Paging-structure caches (Intel SDM vol. 3A, 4.10.3): one array per level, tagged by virtual-address prefix.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PagingStructureConfig {
    /// One array per level of the entries that it holds: level 2 for PDEs, 3 for PDPTEs, 4 for PML4Es, 5 for PML5Es.
    pub arrays: Vec<PagingStructureArray>,
    /// Cycles of one look-up of all arrays in parallel.
    pub latency_cycles: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PagingStructureArray {
    /// Level of the page-table entries in this array; leaf entries (level 1) are never held.
    pub level: u8,
    pub entries: u32,
    pub ways: u32,
    #[serde(default)]
    pub policy: AssocPolicy,
}

impl Geometry for PagingStructureConfig {
    fn together(&mut self, cores: u32, extra_latency_cycles: u32) {
        self.arrays.iter_mut().for_each(|array| array.entries = array.entries.saturating_mul(cores));
        self.latency_cycles = self.latency_cycles.saturating_add(extra_latency_cycles);
    }
}

/// The array of one level.
#[derive(Clone)]
pub(super) struct Level {
    pub(super) level: u8,
    pub(super) array: AssocArray,
}

/// The paging-structure caches of a layer on a core.
#[derive(Clone)]
pub struct PagingStructureCache {
    /// In ascending order of level, so the longest prefix comes first.
    levels: Vec<Level>,
    latency_cycles: Cycles,
}

#[inline]
fn key(asid: Asid, prefix: u64) -> u64 {
    prefix << 16 | u64::from(asid.0)
}

impl PagingStructureCache {
    pub fn new(config: &PagingStructureConfig, rng: &Rng) -> Result<Self, EngineError> {
        Ok(Self { levels: Self::levels(config, rng)?, latency_cycles: config.latency_cycles.into() })
    }

    /// The empty arrays of a geometry, in ascending order of level.
    pub(super) fn levels(config: &PagingStructureConfig, rng: &Rng) -> Result<Vec<Level>, EngineError> {
        let mut levels = Vec::new();
        for (index, array_config) in config.arrays.iter().enumerate() {
            let path = format!("machine.mmu_cache.paging_structure.arrays.{index}");
            if !(2..=5).contains(&array_config.level) || levels.iter().any(|l: &Level| l.level == array_config.level) {
                let what = format!(
                    "level {} is not one of 2 to 5, each at most once (leaves have level 1)",
                    array_config.level
                );
                return Err(EngineError::config(path, what));
            }
            levels.push(Level {
                level: array_config.level,
                array: array(&path, array_config.entries, array_config.ways, array_config.policy, rng)?,
            });
        }
        levels.sort_by_key(|l| l.level);
        Ok(levels)
    }

    /// Geometries for tests of such arrays: few entries, for some levels and for all.
    pub(super) fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        let with = |levels: &[u8]| {
            let array = |&level| PagingStructureArray { level, entries: 4, ways: 2, policy: AssocPolicy::Lru };
            let arrays = levels.iter().map(array).collect();
            MmuCacheGeometry {
                paging_structure: PagingStructureConfig { arrays, latency_cycles: 1 },
                ..geometry.clone()
            }
        };
        vec![geometry.clone(), with(&[2]), with(&[2, 3, 4, 5])]
    }
}

impl Design for PagingStructureCache {
    fn new(geometry: &MmuCacheGeometry, rng: &Rng) -> Result<Self, EngineError> {
        Self::new(&geometry.paging_structure, rng)
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        Self::samples(geometry)
    }

    fn keeps(entries: UpperEntries) -> Result<(), &'static str> {
        entries.are_levels()
    }

    #[inline(always)]
    fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> SparedRefs {
        let refs = &list.refs()[..cacheable(list)];
        for level in &mut self.levels {
            // The arrays hold only entries above a leaf, but this walk's leaf may be at a higher level.
            let Some(at) = position(refs, level.level) else { continue };
            let prefix = refs[at].prefix(va);
            if level.array.lookup(prefix, key(asid, prefix)).is_some() {
                return SparedRefs { skip: (2 << at) - 1, by_entry: false, cycles: self.latency_cycles };
            }
        }
        SparedRefs { skip: 0, by_entry: false, cycles: self.latency_cycles }
    }

    #[inline(never)]
    fn fill(&mut self, asid: Asid, va: VirtAddr, list: &WalkList, read: usize, skip: u32, _: &PhysMem) {
        // After the longest match the walk read all the remaining references.
        let read = &list.refs()[skip.trailing_ones() as usize..read];
        for level in &mut self.levels {
            if let Some(at) = position(read, level.level) {
                let prefix = read[at].prefix(va);
                // The look-up has already missed this prefix.
                level.array.insert_absent(prefix, key(asid, prefix), 0);
            }
        }
    }

    #[inline(always)]
    fn pass(&mut self, asid: Asid, va: VirtAddr, way: &WalkPath, _: &PhysMem) -> RequiredReads {
        let mut from = way.root + 1;
        for level in self.levels.iter_mut().filter(|level| way.passes(level.level)) {
            let prefix = prefix(va, WalkPath::shift(level.level));
            if level.array.look_up_or_insert(prefix, key(asid, prefix), 0).is_some() {
                from = level.level;
                break;
            }
        }
        RequiredReads::below(from, way, self.latency_cycles)
    }

    #[inline(always)]
    fn common_arrays<V>(&mut self) -> Option<CommonArrays<'_, V>> {
        // Four different levels from 2 to 5 in ascending order are 2, 3, 4 and 5.
        let [pd, pdpt, pml4, pml5] = &mut self.levels[..] else { return None };
        Some(CommonArrays {
            pd: LruSets::from_array(&mut pd.array)?,
            pdpt: LruSets::from_array(&mut pdpt.array)?,
            pml4: LruSets::from_array(&mut pml4.array)?,
            pml5: LruSets::from_array(&mut pml5.array)?,
            latency_cycles: self.latency_cycles,
        })
    }

    fn flush(&mut self, asid: Asid) {
        for level in &mut self.levels {
            level.array.invalidate(|key, _| key & 0xffff == u64::from(asid.0));
        }
    }
}

/// Arrays of levels 2 to 5 in the most common shape: 32 entries in 4 ways, 4 in 4, 2 in 2, 2 in 2, with LRU.
pub struct CommonArrays<'a, V> {
    pd: LruSets<'a, V, 4, 8>,
    pdpt: LruSets<'a, V, 4, 1>,
    pml4: LruSets<'a, V, 2, 1>,
    pml5: LruSets<'a, V, 2, 1>,
    latency_cycles: Cycles,
}

impl<V: Vectors> Pass for CommonArrays<'_, V> {
    #[inline(always)]
    fn pass(&mut self, asid: Asid, va: VirtAddr, way: &WalkPath, _: &PhysMem) -> RequiredReads {
        // The values of these arrays are nothing.
        let from = if way.passes(2) && is_found(&mut self.pd, asid, prefix(va, WalkPath::shift(2))) {
            2
        } else if is_found(&mut self.pdpt, asid, prefix(va, WalkPath::shift(3))) {
            3
        } else if is_found(&mut self.pml4, asid, prefix(va, WalkPath::shift(4))) {
            4
        } else if way.passes(5) && is_found(&mut self.pml5, asid, prefix(va, WalkPath::shift(5))) {
            5
        } else {
            way.root + 1
        };
        RequiredReads::below(from, way, self.latency_cycles)
    }
}

/// Whether an array has the prefix; it does afterwards.
#[inline(always)]
fn is_found<V: Vectors, const N: usize, const SETS: usize>(
    sets: &mut LruSets<'_, V, N, SETS>,
    asid: Asid,
    prefix: u64,
) -> bool {
    sets.find_or_insert(prefix, key(asid, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmu_cache::unified::{UnifiedTranslationCache, UnifiedTranslationCacheConfig};
    use crate::page_table::WalkRef;
    use pagelab_base::addr::PhysAddr;

    /// Which walks to later addresses skip the level-2 reference of a first walk, in a table whose leaf tables cover
    /// 2^`shift` bytes.
    fn spared(cache: &mut impl Design, shift: u8, first: u64, later: &[u64]) -> Vec<bool> {
        let mut list = WalkList::new();
        list.set([
            WalkRef { addr: PhysAddr(8), level: 2, shift, factor: 1, step: 0 },
            WalkRef::to_leaf(PhysAddr(16), 1),
        ]);
        assert_eq!(cache.look_up(Asid(1), VirtAddr(first), &list).skip, 0);
        cache.fill(Asid(1), VirtAddr(first), &list, 1, 0, &PhysMem::default());
        let is_spared = |&va: &u64| cache.look_up(Asid(1), VirtAddr(va), &list).skip == 1;
        later.iter().map(is_spared).collect()
    }

    #[test]
    fn the_page_table_says_how_much_an_entry_translates() {
        let level2 = PagingStructureArray { level: 2, entries: 4, ways: 4, policy: AssocPolicy::Lru };
        let config = PagingStructureConfig { arrays: vec![level2], latency_cycles: 1 };
        let unified = UnifiedTranslationCacheConfig { entries: 4, ways: 4, latency_cycles: 1, level2_insertion: 0 };
        let first = 5 << 30;
        // In the same 2 MiB, the same 1 GiB, the next 1 GiB.
        let later = [first + 0x1f_ffff, first + 0x3fff_ffff, first + 0x4000_0000];
        for (shift, expected) in [(21, [true, false, false]), (30, [true, true, false])] {
            let mut arrays = PagingStructureCache::new(&config, &Rng::new(1, "test")).unwrap();
            assert_eq!(spared(&mut arrays, shift, first, &later), expected, "{shift}");
            let mut one = UnifiedTranslationCache::new(&unified, &Rng::new(1, "test")).unwrap();
            assert_eq!(spared(&mut one, shift, first, &later), expected, "{shift}");
        }
    }
}
