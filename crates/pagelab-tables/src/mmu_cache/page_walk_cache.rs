//! Page-walk cache.
//!
//! Models: one array of page-table entries of all levels except the leaf's, tagged by the entry's physical address. A
//! walk looks up its entries one after the other, as each contains the address of the next. With `page-walk-cache`,
//! each layer has its own array, tagged by that layer's addresses. With `shared-page-walk-cache`, the entries of guests
//! and hosts compete for one array, tagged by machine address. A guest's entry can then be found only after its address
//! has been translated, so a hit saves the reference to it but not the host's walk (24 references become 6 if all upper
//! entries are held).
//! Source: Barr, Cox, Rixner, ISCA 2010 (unified page table cache, AMD); Bhargava et al., ASPLOS 2008 (two-dimensional
//! page walk cache); Yaniv, Tsafrir, SIGMETRICS 2016, 3.2.
//! Parameters: `machine.mmu_cache.page_walk_cache`: entries, ways, policy, latency of one look-up.
//! Deviations: a layer's own cache is tagged by the layer's physical addresses, so guest entries need no translation to
//! be found; AMD's is the shared one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Asid, Design, Geometry, MmuCacheGeometry, SparedRefs, cacheable};
use crate::page_table::{UpperEntries, WalkList};
use pagelab_base::addr::{MachineAddr, VirtAddr};
use pagelab_base::assoc::{AssocArray, AssocPolicy, array};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// Page-walk cache: one array of page-table entries of all levels except the leaf's, tagged by physical address (AMD;
/// Barr, Cox, Rixner, "Translation caching", ISCA 2010, call it the unified page table cache).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageWalkCacheConfig {
    pub entries: u32,
    pub ways: u32,
    /// Cycles of one look-up; a walk makes one per level.
    pub latency_cycles: u32,
    #[serde(default)]
    pub policy: AssocPolicy,
}

impl Geometry for PageWalkCacheConfig {
    fn together(&mut self, cores: u32, extra_latency_cycles: u32) {
        self.entries = self.entries.saturating_mul(cores);
        self.latency_cycles = self.latency_cycles.saturating_add(extra_latency_cycles);
    }
}

/// What chooses the set of an entry. Compact entries begin at any byte, and the address of that byte is their key.
#[inline(always)]
pub(super) fn set_hash(addr: u64) -> u64 {
    addr >> 3
}

/// The page-walk cache of a layer on a core.
#[derive(Clone)]
pub struct PageWalkCache {
    array: AssocArray,
    latency_cycles: Cycles,
}

impl Design for PageWalkCache {
    fn new(geometry: &MmuCacheGeometry, rng: &Rng) -> Result<Self, EngineError> {
        let (path, config) = ("machine.mmu_cache.page_walk_cache", &geometry.page_walk_cache);
        let array = array(path, config.entries, config.ways, config.policy, rng)?;
        Ok(Self { array, latency_cycles: config.latency_cycles.into() })
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        let page_walk_cache =
            PageWalkCacheConfig { entries: 8, ways: 2, latency_cycles: 1, policy: AssocPolicy::Random };
        vec![geometry.clone(), MmuCacheGeometry { page_walk_cache, ..geometry.clone() }]
    }

    fn keeps(entries: UpperEntries) -> Result<(), &'static str> {
        entries.are_levels()
    }

    #[inline]
    fn look_up(&mut self, _: Asid, _: VirtAddr, list: &WalkList) -> SparedRefs {
        let mut skip = 0;
        for (n, reference) in list.refs()[..cacheable(list)].iter().enumerate() {
            if self.array.lookup(set_hash(reference.addr.0), reference.addr.0).is_some() {
                skip |= 1 << n;
            }
        }
        SparedRefs { skip, by_entry: false, cycles: self.latency_cycles * cacheable(list) as u64 }
    }

    fn fill(&mut self, _: Asid, _: VirtAddr, list: &WalkList, read: usize, skip: u32, _: &PhysMem) {
        for (n, reference) in list.refs()[..read].iter().enumerate() {
            if n >= 32 || skip >> n & 1 == 0 {
                self.array.insert(set_hash(reference.addr.0), reference.addr.0, 0);
            }
        }
    }

    /// Drops all entries, since they are not tagged by address space.
    fn flush(&mut self, _: Asid) {
        self.array.clear();
    }
}

/// The page-walk cache of all layers that choose it, tagged by machine address.
#[derive(Clone)]
pub struct SharedPageWalkCache(PageWalkCache);

impl Design for SharedPageWalkCache {
    const SHARED_BY_LAYERS: bool = true;
    const ASKED_BY_ENTRY: bool = true;

    fn new(geometry: &MmuCacheGeometry, rng: &Rng) -> Result<Self, EngineError> {
        PageWalkCache::new(geometry, rng).map(Self)
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        PageWalkCache::samples(geometry)
    }

    fn keeps(entries: UpperEntries) -> Result<(), &'static str> {
        PageWalkCache::keeps(entries)
    }

    #[inline]
    fn look_up(&mut self, _: Asid, _: VirtAddr, _: &WalkList) -> SparedRefs {
        SparedRefs { skip: 0, by_entry: true, cycles: Cycles::ZERO }
    }

    fn holds(&mut self, entry: MachineAddr, cycles: &mut Cycles) -> bool {
        let Self(cache) = self;
        *cycles += cache.latency_cycles;
        let set_hash = set_hash(entry.0);
        let found = cache.array.lookup(set_hash, entry.0).is_some();
        if !found {
            cache.array.insert_absent(set_hash, entry.0, 0);
        }
        found
    }

    fn flush(&mut self, asid: Asid) {
        self.0.flush(asid);
    }
}
