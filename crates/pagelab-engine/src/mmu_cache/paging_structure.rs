//! Paging-structure caches.
//!
//! Models: one array a level of upper-level entries, tagged by address space and virtual-address prefix, all looked up
//! at once; the longest match tells where the walk starts.
//! Source: Intel SDM vol. 3A, 4.10.3 (paging-structure caches); Barr, Cox, Rixner, ISCA 2010 (split translation cache).
//! Parameters: `machine.mmu_cache.paging_structure`: entries, ways and policy a level, latency.
//! Deviations: a look-up of a shorter prefix does not count as a use of it when a longer one matches, as only the
//! longest match is taken.

use super::{Asid, Spared, array, cacheable, position, prefix};
use crate::base::addr::{Cycles, VirtAddr};
use crate::base::assoc::AssocArray;
use crate::base::error::EngineError;
use crate::base::rng::Rng;
use crate::config::PagingStructureConfig;
use crate::page_table::WalkList;

struct Level {
    level: u8,
    array: AssocArray,
}

/// See the module's text.
pub struct PagingStructureCache {
    /// Ascending by level: the longest prefix first.
    levels: Vec<Level>,
    latency_cycles: Cycles,
}

#[inline]
fn key(asid: Asid, prefix: u64) -> u64 {
    prefix << 16 | u64::from(asid.0)
}

impl PagingStructureCache {
    pub fn new(config: &PagingStructureConfig, rng: &Rng) -> Result<Self, EngineError> {
        let mut levels = Vec::new();
        for (index, of) in config.arrays.iter().enumerate() {
            let path = format!("machine.mmu_cache.paging_structure.arrays.{index}");
            if !(2..=5).contains(&of.level) || levels.iter().any(|l: &Level| l.level == of.level) {
                let what = format!("level {} is not one of 2 to 5, each at most once (leaves have level 1)", of.level);
                return Err(EngineError::config(path, what));
            }
            levels.push(Level { level: of.level, array: array(&path, of.entries, of.ways, of.policy, rng)? });
        }
        levels.sort_by_key(|l| l.level);
        Ok(Self { levels, latency_cycles: config.latency_cycles.into() })
    }

    #[inline(always)]
    pub fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> Spared {
        let refs = &list.refs()[..cacheable(list)];
        for of in &mut self.levels {
            // Only entries that a walk has passed are held, but this one may end higher up.
            let Some(at) = position(refs, of.level) else { continue };
            let prefix = prefix(va, of.level);
            if of.array.lookup(prefix, key(asid, prefix)).is_some() {
                return Spared { skip: (2 << at) - 1, by_entry: false, cycles: self.latency_cycles };
            }
        }
        Spared { skip: 0, by_entry: false, cycles: self.latency_cycles }
    }

    #[inline(never)]
    pub fn fill(&mut self, asid: Asid, va: VirtAddr, list: &WalkList, read: usize, skip: u32) {
        // The longest match spares a walk's first references, so what was read is the rest.
        let read = &list.refs()[skip.trailing_ones() as usize..read];
        for of in &mut self.levels {
            if position(read, of.level).is_some() {
                let prefix = prefix(va, of.level);
                // A longer match would have been found by the look-up before.
                of.array.insert_absent(prefix, key(asid, prefix), 0);
            }
        }
    }

    pub fn flush(&mut self, asid: Asid) {
        for of in &mut self.levels {
            of.array.invalidate(|key, _| key & 0xffff == u64::from(asid.0));
        }
    }
}
