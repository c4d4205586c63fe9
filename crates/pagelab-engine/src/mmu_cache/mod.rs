//! MMU caches: what lets a walker skip references to the upper levels of a page table.
//!
//! A layer has one a core. It is asked once a walk which of the walk's references it spares ([`MmuCache::look_up`]) and
//! told afterwards what was read ([`MmuCache::fill`]). It never answers a leaf: leaves belong to the TLBs. Since the list
//! of references is drawn from the page table as it stands, a cache holds tags only and cannot return a stale pointer;
//! the kernel flushes it nevertheless where a real one must, so that its hit counts are right.
//!
//! A design is one file here, one variant of [`MmuCache`] and one of [`MmuCacheKind`].

mod page_walk_cache;
mod paging_structure;

use crate::addr::{Cycles, VirtAddr};
use crate::assoc::{AssocArray, AssocPolicy};
use crate::config::{MmuCacheGeometry, MmuCacheKind, TlbPolicy};
use crate::error::EngineError;
use crate::page_table::WalkList;
use crate::rng::Rng;
use page_walk_cache::PageWalkCache;
use paging_structure::PagingStructureCache;

/// Tag of an address space in TLBs and MMU caches (PCID and VPID together).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asid(pub u16);

/// What an MMU cache spares a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spared {
    /// Bit n: the walk's n-th reference need not be made.
    pub skip: u32,
    /// Cycles of the look-up.
    pub cycles: Cycles,
}

/// Name and description of every design, for lists and error messages.
pub const DESIGNS: &[(&str, &str)] = &[
    ("none", "every walk reads every level"),
    ("paging-structure", "an array a level, tagged by virtual-address prefix, longest match (Intel)"),
    ("page-walk-cache", "one array of upper-level entries, tagged by their physical address (AMD)"),
    ("perfect", "unlimited and always hit: a walk reads its leaf only"),
];

/// An MMU cache of any registered design.
pub enum MmuCache {
    None,
    PagingStructure(PagingStructureCache),
    PageWalkCache(PageWalkCache),
    /// Unlimited and always hit, at the cost of a look-up.
    Perfect {
        latency_cycles: Cycles,
    },
}

impl MmuCache {
    pub fn new(kind: MmuCacheKind, geometry: &MmuCacheGeometry, rng: &Rng) -> Result<Self, EngineError> {
        let paging_structure = &geometry.paging_structure;
        Ok(match kind {
            MmuCacheKind::None => Self::None,
            MmuCacheKind::Perfect => Self::Perfect { latency_cycles: paging_structure.latency_cycles.into() },
            MmuCacheKind::PagingStructure => Self::PagingStructure(PagingStructureCache::new(paging_structure, rng)?),
            MmuCacheKind::PageWalkCache => Self::PageWalkCache(PageWalkCache::new(&geometry.page_walk_cache, rng)?),
        })
    }

    /// Which references of the walk `list` for `va` need not be made.
    #[inline]
    pub fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> Spared {
        match self {
            Self::None => Spared { skip: 0, cycles: 0 },
            Self::Perfect { latency_cycles } => {
                Spared { skip: (1 << (list.refs().len() - 1)) - 1, cycles: *latency_cycles }
            }
            Self::PagingStructure(cache) => cache.look_up(asid, va, list),
            Self::PageWalkCache(cache) => cache.look_up(list),
        }
    }

    /// Takes up the entries that a walk has read: its first `read` references but for those that were spared.
    #[inline(always)]
    pub fn fill(&mut self, asid: Asid, va: VirtAddr, list: &WalkList, read: usize, skip: u32) {
        let read = cacheable(list).min(read);
        // Mostly all that could be taken up was spared.
        if skip.trailing_ones() as usize >= read {
            return;
        }
        match self {
            Self::None | Self::Perfect { .. } => {}
            Self::PagingStructure(cache) => cache.fill(asid, va, list, read, skip),
            Self::PageWalkCache(cache) => cache.fill(list, read, skip),
        }
    }

    /// Drops what it holds of an address space (all of it where entries are not tagged by address space).
    pub fn flush(&mut self, asid: Asid) {
        match self {
            Self::None | Self::Perfect { .. } => {}
            Self::PagingStructure(cache) => cache.flush(asid),
            Self::PageWalkCache(cache) => cache.flush(),
        }
    }
}

/// References of a walk that may be cached: all but the leaf's, or all that were followed by another.
fn cacheable(list: &WalkList) -> usize {
    list.refs().len() - 1
}

pub(crate) fn array(
    key: &str,
    entries: u32,
    ways: u32,
    policy: TlbPolicy,
    rng: &Rng,
) -> Result<AssocArray, EngineError> {
    if entries == 0 || ways == 0 || !entries.is_multiple_of(ways) {
        let what = format!(
            "{entries} entries cannot be split into sets of {ways} ways; entries must be a multiple of ways, both at least 1"
        );
        return Err(EngineError::config(key, what));
    }
    let policy = match policy {
        TlbPolicy::Lru => AssocPolicy::Lru,
        TlbPolicy::TreePlru => AssocPolicy::TreePlru,
        TlbPolicy::Random => AssocPolicy::Random,
    };
    AssocArray::new(entries / ways, ways, policy, rng.clone()).map_err(|e| EngineError::config(key, e.to_string()))
}
