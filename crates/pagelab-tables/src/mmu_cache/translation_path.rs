//! Translation path cache.
//!
//! Models: one fully associative array. An entry holds all upper entries of one walk: the index and the content of each
//! level, from the root to the entry that points to the leaf table. A look-up compares the address with every path at
//! every level in parallel; the walk starts below the lowest level that it has in common with a path. A walk that had
//! to read an upper entry stores its whole path, so entries that many paths share take room in each of them.
//! Source: Barr, Cox, Rixner, ISCA 2010 (translation path cache), one of the three designs of theirs to which Yaniv,
//! Tsafrir, SIGMETRICS 2016, 6.1, refer.
//! Parameters: `machine.mmu_cache.translation_path`: entries, latency of a look-up. LRU.
//! Stats: `walk.layer.NAME.levelN.refs`, the entries that it did not have.
//! Deviations: a path of a walk that ended early (at a large page, or at a missing table) is replaced in place by a
//! longer one that continues it. Of several paths that spare the same references, the most recently used one counts as
//! used. Each layer has its own array.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Asid, Design, Geometry, MmuCacheGeometry, SparedRefs, cacheable, position};
use crate::page_table::{UpperEntries, WalkList, WalkRef};
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// More paths than any walk should be compared with.
const MAX_ENTRIES: u32 = 1 << 16;

/// Translation path cache: one fully associative array of paths from the root to a leaf table (Barr, Cox, Rixner,
/// "Translation caching", ISCA 2010).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TranslationPathCacheConfig {
    /// Number of paths.
    pub entries: u32,
    /// Cycles of one look-up of all paths in parallel.
    pub latency_cycles: u32,
}

impl Default for TranslationPathCacheConfig {
    /// As many entries as the page-walk caches of the machines' presets, and their latency.
    fn default() -> Self {
        Self { entries: 24, latency_cycles: 2 }
    }
}

impl Geometry for TranslationPathCacheConfig {
    fn together(&mut self, cores: u32, extra_latency_cycles: u32) {
        self.entries = self.entries.saturating_mul(cores);
        self.latency_cycles = self.latency_cycles.saturating_add(extra_latency_cycles);
    }
}

/// The upper entries of a walk.
#[derive(Clone, Copy)]
struct Path {
    asid: Asid,
    va: VirtAddr,
    /// Level of the last entry that it has.
    lowest: u8,
}

impl Path {
    /// Whether it has the entry of a walk for `va`.
    fn has(&self, asid: Asid, va: VirtAddr, reference: &WalkRef) -> bool {
        self.asid == asid && self.lowest <= reference.level && reference.prefix(self.va) == reference.prefix(va)
    }
}

/// The translation path cache of a layer on a core.
#[derive(Clone)]
pub struct TranslationPathCache {
    /// The most recently used one first.
    paths: Vec<Path>,
    entries: usize,
    latency_cycles: Cycles,
}

impl TranslationPathCache {
    pub fn new(config: &TranslationPathCacheConfig) -> Result<Self, EngineError> {
        let entries = config.entries;
        if !(1..=MAX_ENTRIES).contains(&entries) {
            let what = format!("{entries} is not possible; allowed are 1 to {MAX_ENTRIES} paths");
            return Err(EngineError::config("machine.mmu_cache.translation_path.entries", what));
        }
        let entries = entries as usize;
        Ok(Self { paths: Vec::with_capacity(entries), entries, latency_cycles: config.latency_cycles.into() })
    }
}

impl Design for TranslationPathCache {
    fn new(geometry: &MmuCacheGeometry, _: &Rng) -> Result<Self, EngineError> {
        Self::new(&geometry.translation_path)
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        let translation_path = TranslationPathCacheConfig { entries: 3, latency_cycles: 1 };
        vec![geometry.clone(), MmuCacheGeometry { translation_path, ..geometry.clone() }]
    }

    fn keeps(entries: UpperEntries) -> Result<(), &'static str> {
        entries.are_levels()
    }

    fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> SparedRefs {
        let refs = &list.refs()[..cacheable(list)];
        let (mut spared, mut best) = (0, 0);
        for (n, path) in self.paths.iter().enumerate() {
            // The entries in common are the upper ones: a walk for another prefix reads other tables below.
            let common = refs.iter().take_while(|reference| path.has(asid, va, reference)).count();
            if common > spared {
                (spared, best) = (common, n);
            }
        }
        if spared > 0 {
            self.paths[..=best].rotate_right(1);
        }
        SparedRefs { skip: (1 << spared) - 1, by_entry: false, cycles: self.latency_cycles }
    }

    fn fill(&mut self, asid: Asid, va: VirtAddr, list: &WalkList, read: usize, _: u32, _: &PhysMem) {
        let refs = &list.refs()[..read];
        let new = Path { asid, va, lowest: refs[read - 1].level };
        // A path that ends where this one goes on.
        let ends_above = |path: &Path| position(refs, path.lowest).is_some_and(|at| path.has(asid, va, &refs[at]));
        let at = match self.paths.iter().position(ends_above) {
            Some(at) => at,
            None => {
                if self.paths.len() < self.entries {
                    self.paths.push(new);
                }
                self.paths.len() - 1
            }
        };
        self.paths[..=at].rotate_right(1);
        self.paths[0] = new;
    }

    fn flush(&mut self, asid: Asid) {
        self.paths.retain(|path| path.asid != asid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_table::WalkPath;
    use pagelab_base::addr::PhysAddr;

    fn cache(entries: u32) -> TranslationPathCache {
        TranslationPathCache::new(&TranslationPathCacheConfig { entries, latency_cycles: 2 }).unwrap()
    }

    /// Walks of four levels, of which `read` upper entries are read, once per address; returns how many each spared.
    fn spared<const N: usize>(cache: &mut TranslationPathCache, read: usize, addresses: [u64; N]) -> [u32; N] {
        let mut list = WalkList::new();
        list.set([4, 3, 2, 1].map(|level| WalkRef {
            addr: PhysAddr(0),
            level,
            shift: WalkPath::shift(level) as u8,
            factor: 1,
            step: 4 - level,
        }));
        addresses.map(|va| {
            let SparedRefs { skip, .. } = cache.look_up(Asid(1), VirtAddr(va), &list);
            let spared = skip.trailing_ones();
            if (spared as usize) < read {
                cache.fill(Asid(1), VirtAddr(va), &list, read, skip, &PhysMem::default());
            }
            spared
        })
    }

    const BASE: u64 = 0x7f00_0000_0000;
    const GIB: u64 = 1 << 30;
    const REGION: u64 = 2 << 20;

    #[test]
    fn the_longest_common_part_counts() {
        let mut cache = cache(4);
        assert_eq!(spared(&mut cache, 3, [BASE, BASE + 0x1000, BASE + REGION, BASE + GIB]), [0, 3, 2, 1]);
        // The first path spares most, though others were used later.
        assert_eq!(spared(&mut cache, 3, [BASE + 0x3000, BASE + GIB + REGION]), [3, 2]);
        cache.flush(Asid(2));
        assert_eq!(spared(&mut cache, 3, [BASE]), [3], "of another address space");
        cache.flush(Asid(1));
        assert_eq!(spared(&mut cache, 3, [BASE]), [0]);
    }

    #[test]
    fn a_path_takes_a_whole_entry_and_keeps_its_upper_levels() {
        // Regions of one gigabyte in turn: too many for the array, which yet always has the levels above.
        let regions: [u64; 6] = std::array::from_fn(|n| BASE + n as u64 * REGION);
        let mut small = cache(5);
        assert_eq!(spared(&mut small, 3, regions), [0, 2, 2, 2, 2, 2]);
        assert_eq!(spared(&mut small, 3, regions), [2; 6], "the least recently used one is always the next");
        let mut enough = cache(6);
        spared(&mut enough, 3, regions);
        assert_eq!(spared(&mut enough, 3, regions), [3; 6]);
        // With one entry, gigabytes in turn leave what they have in common: level 4.
        let mut single = cache(1);
        assert_eq!(spared(&mut single, 3, [BASE, BASE + GIB, BASE, BASE + GIB]), [0, 1, 1, 1]);
    }

    #[test]
    fn a_longer_path_takes_the_place_of_the_one_that_it_continues() {
        let mut cache = cache(2);
        assert_eq!(spared(&mut cache, 1, [BASE]), [0], "a walk that ended below level 4");
        assert_eq!(spared(&mut cache, 3, [BASE, BASE + GIB]), [1, 1]);
        assert_eq!(spared(&mut cache, 3, [BASE, BASE + GIB]), [3, 3], "two entries suffice");
    }
}
