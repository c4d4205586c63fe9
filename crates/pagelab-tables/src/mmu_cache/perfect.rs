//! A perfect MMU cache.
//!
//! Models: it holds every entry except the leaf's, even of tables that no walk has read: a walk reads its leaf only.
//! Parameters: `latency_cycles` of `machine.mmu_cache.paging_structure`, the latency of a look-up.

use super::{Asid, Design, MmuCacheGeometry, RequiredReads, SparedRefs, cacheable};
use crate::page_table::{UpperEntries, WalkList, WalkPath};
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// A perfect MMU cache.
#[derive(Clone)]
pub struct Perfect {
    latency_cycles: Cycles,
}

impl Design for Perfect {
    fn new(geometry: &MmuCacheGeometry, _: &Rng) -> Result<Self, EngineError> {
        Ok(Self { latency_cycles: geometry.paging_structure.latency_cycles.into() })
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        vec![geometry.clone()]
    }

    fn keeps(entries: UpperEntries) -> Result<(), &'static str> {
        entries.are_levels()
    }

    #[inline]
    fn look_up(&mut self, _: Asid, _: VirtAddr, list: &WalkList) -> SparedRefs {
        SparedRefs { skip: (1 << cacheable(list)) - 1, by_entry: false, cycles: self.latency_cycles }
    }

    #[inline]
    fn pass(&mut self, _: Asid, _: VirtAddr, way: &WalkPath, _: &PhysMem) -> RequiredReads {
        RequiredReads::below(way.leaf + 1, way, self.latency_cycles)
    }

    fn flush(&mut self, _: Asid) {}
}
