//! Page-walk cache.
//!
//! Models: one array of page-table entries of all levels but the leaf's, tagged by the physical address of the entry; a
//! walk looks its entries up one after the other, as each gives the address of the next.
//! Source: Barr, Cox, Rixner, ISCA 2010 (unified page table cache, AMD); Bhargava et al., ASPLOS 2008.
//! Parameters: `machine.mmu_cache.page_walk_cache`: entries, ways, policy, latency of one look-up.
//! Deviations: tags are physical addresses of the layer that the cache belongs to, so that guest entries need no
//! translation to be found; each layer has its own array.

use super::{Spared, array, cacheable};
use crate::addr::Cycles;
use crate::assoc::AssocArray;
use crate::config::PageWalkCacheConfig;
use crate::error::EngineError;
use crate::page_table::WalkList;
use crate::rng::Rng;

/// See the module's text.
pub struct PageWalkCache {
    array: AssocArray,
    latency_cycles: Cycles,
}

impl PageWalkCache {
    pub fn new(config: &PageWalkCacheConfig, rng: &Rng) -> Result<Self, EngineError> {
        let path = "machine.mmu_cache.page_walk_cache";
        let array = array(path, config.entries, config.ways, config.policy, rng)?;
        Ok(Self { array, latency_cycles: config.latency_cycles.into() })
    }

    #[inline]
    pub fn look_up(&mut self, list: &WalkList) -> Spared {
        let mut skip = 0;
        for (n, reference) in list.refs()[..cacheable(list)].iter().enumerate() {
            let tag = reference.addr.0 >> 3;
            if self.array.lookup(tag, tag).is_some() {
                skip |= 1 << n;
            }
        }
        Spared { skip, cycles: self.latency_cycles * cacheable(list) as u64 }
    }

    pub fn fill(&mut self, list: &WalkList, read: usize, skip: u32) {
        for (n, reference) in list.refs()[..read].iter().enumerate() {
            if n >= 32 || skip >> n & 1 == 0 {
                let tag = reference.addr.0 >> 3;
                self.array.insert(tag, tag, 0);
            }
        }
    }

    pub fn flush(&mut self) {
        self.array.clear();
    }
}
