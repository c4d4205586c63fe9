//! MMU caches: what lets a walker skip references to the upper levels of a page table.
//!
//! A layer's walks on a core use one ([`MmuCaches`]). It is asked once a walk which of the walk's references it spares
//! ([`MmuCache::look_up`]) and told afterwards what was read ([`MmuCache::fill`]); one that is tagged by machine addresses
//! is asked for each entry when its address is known ([`MmuCache::holds`]). It never answers a leaf: leaves belong to the
//! TLBs. Since the list of references is drawn from the page table as it stands, a cache holds tags only and cannot return
//! a stale pointer; the kernel flushes it nevertheless where a real one must, so that its hit counts are right.
//!
//! A design is one file here, one variant of [`MmuCache`] and one of [`MmuCacheKind`].

mod assignment;
mod coalesced;
mod page_walk_cache;
mod paging_structure;
mod unified;

pub use assignment::MmuCaches;

use crate::base::addr::{Cycles, FRAME_SHIFT, MachineAddr, VirtAddr};
use crate::base::assoc::{AssocArray, AssocPolicy};
use crate::base::error::EngineError;
use crate::base::memory::PhysMem;
use crate::base::rng::Rng;
use crate::config::{MmuCacheGeometry, MmuCacheKind, TlbPolicy};
use crate::page_table::{WalkList, WalkRef};
use coalesced::CoalescedCache;
use page_walk_cache::PageWalkCache;
use paging_structure::PagingStructureCache;
use unified::UnifiedTranslationCache;

/// Tag of an address space in TLBs and MMU caches (PCID and VPID together).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asid(pub u16);

/// What an MMU cache spares a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spared {
    /// Bit n: the walk's n-th reference need not be made.
    pub skip: u32,
    /// Whether it is to be asked for each of the other entries ([`MmuCache::holds`]).
    pub by_entry: bool,
    /// Cycles of the look-up.
    pub cycles: Cycles,
}

/// Name and description of every design, for lists and error messages.
pub const DESIGNS: &[(&str, &str)] = &[
    ("none", "every walk reads every level"),
    ("paging-structure", "an array a level, tagged by virtual-address prefix, longest match (Intel)"),
    ("coalesced", "paging-structure caches whose entries stand for several that point to adjacent leaf tables"),
    ("page-walk-cache", "one array of upper-level entries, tagged by their physical address (AMD)"),
    (
        "shared-page-walk-cache",
        "one page-walk cache for all layers that choose it, tagged by machine address (AMD, nested)",
    ),
    ("unified", "one array of entries of all upper levels, tagged by virtual-address prefix, longest match"),
    ("perfect", "unlimited and always hit: a walk reads its leaf only"),
];

/// An MMU cache of any registered design.
pub enum MmuCache {
    None,
    PagingStructure(PagingStructureCache),
    Coalesced(CoalescedCache),
    PageWalkCache(PageWalkCache),
    /// The layers of a core that choose it refer to the same one.
    SharedPageWalkCache(PageWalkCache),
    Unified(UnifiedTranslationCache),
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
            MmuCacheKind::Coalesced => Self::Coalesced(CoalescedCache::new(paging_structure, rng)?),
            MmuCacheKind::PageWalkCache => Self::PageWalkCache(PageWalkCache::new(&geometry.page_walk_cache, rng)?),
            MmuCacheKind::SharedPageWalkCache => {
                Self::SharedPageWalkCache(PageWalkCache::new(&geometry.page_walk_cache, rng)?)
            }
            MmuCacheKind::Unified => Self::Unified(UnifiedTranslationCache::new(&geometry.unified, rng)?),
        })
    }

    /// Which references of the walk `list` for `va` need not be made.
    #[inline]
    pub fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> Spared {
        match self {
            Self::None => Spared { skip: 0, by_entry: false, cycles: 0 },
            Self::Perfect { latency_cycles } => {
                Spared { skip: (1 << (list.refs().len() - 1)) - 1, by_entry: false, cycles: *latency_cycles }
            }
            Self::PagingStructure(cache) => cache.look_up(asid, va, list),
            Self::Coalesced(cache) => cache.look_up(asid, va, list),
            Self::PageWalkCache(cache) => cache.look_up(list),
            Self::SharedPageWalkCache(_) => Spared { skip: 0, by_entry: true, cycles: 0 },
            Self::Unified(cache) => cache.look_up(asid, va, list),
        }
    }

    /// Whether it holds the entry at a machine address, if it is one to be asked by that; adds the cycles of the look-up. An
    /// entry that it does not hold is taken up, as the walker reads it next.
    #[cold]
    pub fn holds(&mut self, entry: MachineAddr, cycles: &mut Cycles) -> bool {
        match self {
            Self::SharedPageWalkCache(cache) => cache.holds(entry, cycles),
            _ => unreachable!("its look-up has told all it knows"),
        }
    }

    /// Takes up the entries that a walk has read: its first `read` references but for those that were spared. `mem` has the
    /// page table.
    #[inline(always)]
    pub fn fill(&mut self, asid: Asid, va: VirtAddr, list: &WalkList, read: usize, skip: u32, mem: &PhysMem) {
        let read = cacheable(list).min(read);
        // Mostly all that could be taken up was spared.
        if skip.trailing_ones() as usize >= read {
            return;
        }
        match self {
            Self::None | Self::Perfect { .. } | Self::SharedPageWalkCache(_) => {}
            Self::PagingStructure(cache) => cache.fill(asid, va, list, read, skip),
            Self::Coalesced(cache) => cache.fill(asid, va, list, read, skip, mem),
            Self::PageWalkCache(cache) => cache.fill(list, read, skip),
            Self::Unified(cache) => cache.fill(asid, va, list, read, skip),
        }
    }

    /// Drops what it holds of an address space (all of it where entries are not tagged by address space).
    pub fn flush(&mut self, asid: Asid) {
        match self {
            Self::None | Self::Perfect { .. } => {}
            Self::PagingStructure(cache) => cache.flush(asid),
            Self::PageWalkCache(cache) | Self::SharedPageWalkCache(cache) => cache.flush(),
            Self::Coalesced(cache) => cache.flush(asid),
            Self::Unified(cache) => cache.flush(asid),
        }
    }
}

/// References of a walk that may be cached: all but the leaf's, or all that were followed by another.
fn cacheable(list: &WalkList) -> usize {
    list.refs().len() - 1
}

/// Virtual address without the bits that an entry of `level` leaves to the levels below.
#[inline(always)]
fn prefix(va: VirtAddr, level: u8) -> u64 {
    (va.0 & ((1 << 57) - 1)) >> (FRAME_SHIFT + 9 * u32::from(level - 1))
}

/// Where the reference to an entry of `level` is among those of a radix walk, which go down level by level; those of a flattened
/// table pass over some.
#[inline(always)]
fn position(refs: &[WalkRef], level: u8) -> Option<usize> {
    let at = usize::from(refs.first()?.level.checked_sub(level)?);
    refs.iter().take(at + 1).rposition(|r| r.level == level)
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
