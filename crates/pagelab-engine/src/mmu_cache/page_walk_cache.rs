//! Page-walk cache.
//!
//! Models: one array of page-table entries of all levels but the leaf's, tagged by the physical address of the entry; a
//! walk looks its entries up one after the other, as each gives the address of the next. As `page-walk-cache` each layer has
//! its own, tagged by addresses of that layer; as `shared-page-walk-cache` the entries of guests and hosts compete for one
//! array, tagged by machine address: then a guest's entry is found after its address has been translated, so that a hit
//! spares the reference to it but not the walk of the host (24 references become 6 if all upper entries are held).
//! Source: Barr, Cox, Rixner, ISCA 2010 (unified page table cache, AMD); Bhargava et al., ASPLOS 2008 (two-dimensional page
//! walk cache); Yaniv, Tsafrir, SIGMETRICS 2016, 3.2.
//! Parameters: `machine.mmu_cache.page_walk_cache`: entries, ways, policy, latency of one look-up.
//! Deviations: a layer's own one is tagged by the layer's physical addresses, so that guest entries need no translation to
//! be found; AMD's is the shared one.

use super::{Spared, array, cacheable};
use crate::base::addr::{Cycles, MachineAddr};
use crate::base::assoc::AssocArray;
use crate::base::error::EngineError;
use crate::base::rng::Rng;
use crate::config::PageWalkCacheConfig;
use crate::page_table::WalkList;

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
        Spared { skip, by_entry: false, cycles: self.latency_cycles * cacheable(list) as u64 }
    }

    pub fn fill(&mut self, list: &WalkList, read: usize, skip: u32) {
        for (n, reference) in list.refs()[..read].iter().enumerate() {
            if n >= 32 || skip >> n & 1 == 0 {
                let tag = reference.addr.0 >> 3;
                self.array.insert(tag, tag, 0);
            }
        }
    }

    /// Looks the entry at a machine address up, and takes it up if it is not held.
    pub fn holds(&mut self, entry: MachineAddr, cycles: &mut Cycles) -> bool {
        *cycles += self.latency_cycles;
        let tag = entry.0 >> 3;
        let held = self.array.lookup(tag, tag).is_some();
        if !held {
            self.array.insert_absent(tag, tag, 0);
        }
        held
    }

    pub fn flush(&mut self) {
        self.array.clear();
    }
}
