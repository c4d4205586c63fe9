//! No MMU cache.
//!
//! Models: every walk reads every level.

use super::{Asid, Design, MmuCacheGeometry, RequiredReads, SparedRefs};
use crate::page_table::{UpperEntries, WalkList, WalkPath};
use pagelab_base::addr::VirtAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

/// The absence of an MMU cache.
#[derive(Clone)]
pub struct Nothing;

impl Design for Nothing {
    const KEEPS_ENTRIES: bool = false;

    fn new(_: &MmuCacheGeometry, _: &Rng) -> Result<Self, EngineError> {
        Ok(Self)
    }

    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry> {
        vec![geometry.clone()]
    }

    fn keeps(_: UpperEntries) -> Result<(), &'static str> {
        Ok(())
    }

    #[inline]
    fn look_up(&mut self, _: Asid, _: VirtAddr, _: &WalkList) -> SparedRefs {
        SparedRefs { skip: 0, by_entry: false, cycles: Cycles::ZERO }
    }

    #[inline]
    fn pass(&mut self, _: Asid, _: VirtAddr, way: &WalkPath, _: &PhysMem) -> RequiredReads {
        RequiredReads::below(way.root + 1, way, Cycles::ZERO)
    }

    fn flush(&mut self, _: Asid) {}
}
