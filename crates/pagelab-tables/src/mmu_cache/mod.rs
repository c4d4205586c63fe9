//! MMU caches: what lets a walker skip references to the upper levels of a page table.
//!
//! A layer's walks on a core use one ([`MmuCaches`]). It is asked once a walk which of the walk's references it spares
//! ([`MmuCache::look_up`]) and told afterwards what was read ([`MmuCache::fill`]); one that is tagged by machine
//! addresses is asked for each entry when its address is known ([`MmuCache::holds`]). It never answers a leaf: leaves
//! belong to the TLBs. Since the list of references is drawn from the page table as it stands, a cache holds tags only
//! and cannot return a stale pointer; the kernel flushes it nevertheless where a real one must, so that its hit counts
//! are right.
//!
//! A design is one file here that implements [`Design`], and one line below, of which `registry.rs` makes the enums
//! [`MmuCache`] and [`MmuCacheKind`] and the machine's geometry of all designs.

mod assignment;
#[macro_use]
mod registry;

pub use assignment::MmuCaches;
pub use paging_structure::CommonArrays;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::page_table::{UpperEntries, WalkList, WalkRef, Way};
use pagelab_base::addr::{MachineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::host::Vectors;
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::Rng;

mmu_caches! {
    mod none {
        None(none::Nothing) = "none", "every walk reads every level";
    }
    mod paging_structure [
        /// Of `paging-structure` and `coalesced`: one array a level, tagged by virtual-address prefix (Intel SDM vol.
        /// 3A, 4.10.3).
        paging_structure: paging_structure::PagingStructureConfig
    ] {
        PagingStructure(paging_structure::PagingStructureCache) = "paging-structure",
            "an array per level, tagged by virtual-address prefix, longest match (Intel)";
    }
    mod coalesced {
        Coalesced(coalesced::CoalescedCache) = "coalesced",
            "paging-structure caches whose entries stand for several that point to adjacent leaf tables";
    }
    mod page_walk_cache [
        /// Of `page-walk-cache` and `shared-page-walk-cache`: one array of entries of all levels but the leaf's, tagged
        /// by physical address (AMD; Barr, Cox, Rixner, "Translation caching", ISCA 2010).
        page_walk_cache: page_walk_cache::PageWalkCacheConfig
    ] {
        PageWalkCache(page_walk_cache::PageWalkCache) = "page-walk-cache",
            "one array of upper-level entries, tagged by their physical address (AMD)";
        SharedPageWalkCache(page_walk_cache::SharedPageWalkCache) = "shared-page-walk-cache",
            "one page-walk cache for all layers that choose it, tagged by machine address (AMD, nested)";
    }
    mod unified [
        /// Of `unified`: one array of entries of all levels but the leaf's, tagged by virtual-address prefix (Barr,
        /// Cox, Rixner, "Translation caching", ISCA 2010).
        unified: unified::UnifiedTranslationCacheConfig
    ] {
        Unified(unified::UnifiedTranslationCache) = "unified",
            "one array of entries of all upper levels, tagged by virtual-address prefix, longest match";
    }
    mod perfect {
        Perfect(perfect::Perfect) = "perfect", "unlimited and always hit: a walk reads its leaf only";
    }
}

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

/// What a walk down a [`Way`] must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequiredReads {
    /// Bit n: the entry of level n must be read.
    pub reads: u8,
    /// Cycles of the look-up.
    pub cycles: Cycles,
}

impl RequiredReads {
    /// All entries of the levels below `level`.
    #[inline(always)]
    fn below(level: u8, way: &Way, cycles: Cycles) -> Self {
        Self { reads: (1 << level) - (1 << way.leaf), cycles }
    }
}

/// An MMU cache design.
///
/// What an implementor must uphold:
///
/// - It holds tags, never translations, and never answers a walk's last reference.
/// - What [`look_up`](Self::look_up) spares was read by an earlier walk of the same space (or prefix, or address) and
///   not flushed since, unless the design says otherwise in its documentation.
/// - After [`flush`](Self::flush) nothing of the space is spared until it was read again.
/// - [`pass`](Self::pass) does what a look-up and the fill after it do.
/// - Nothing allocates after it was made; choices come from the generator that it is given.
///
/// `tests/conformance` runs every registered design with every page table whose entries it keeps.
pub trait Design: Sized {
    /// Whether the layers of a core that choose it refer to the same one.
    const SHARED_BY_LAYERS: bool = false;
    /// Whether it is to be asked for each entry ([`holds`](Self::holds)) and cannot be passed.
    const ASKED_BY_ENTRY: bool = false;

    /// An empty cache. Errors: its part of the geometry is impossible.
    fn new(geometry: &MmuCacheGeometry, rng: &Rng) -> Result<Self, EngineError>;

    /// Geometries to test it with, for a machine like this one: small enough that entries are replaced.
    fn samples(of: &MmuCacheGeometry) -> Vec<MmuCacheGeometry>;

    /// Whether it can keep such entries of a page table, or what it would miss: what ends "… has".
    fn keeps(entries: UpperEntries) -> Result<(), &'static str>;

    /// Which references of the walk `list` for `va` need not be made.
    fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> Spared;

    /// Whether it holds the entry at a machine address, if it is one to be asked by that; adds the cycles of the
    /// look-up. An entry that it does not hold is taken up, as the walker reads it next.
    fn holds(&mut self, _: MachineAddr, _: &mut Cycles) -> bool {
        unreachable!("its look-up has told all it knows")
    }

    /// Takes up the entries that a walk has read: its first `read` references but for those that were spared. `mem` has
    /// the page table.
    fn fill(&mut self, _: Asid, _: VirtAddr, _: &WalkList, _read: usize, _skip: u32, _: &PhysMem) {}

    /// Look-up and fill in one, for a walk down a way that reads all that it is not spared. `mem` has the page table.
    #[inline(always)]
    fn pass(&mut self, asid: Asid, va: VirtAddr, way: &Way, mem: &PhysMem) -> RequiredReads {
        pass_by_list(self, asid, va, way, mem)
    }

    /// Itself for code that knows its shape, if it is of the common one.
    #[inline(always)]
    fn common_arrays<V>(&mut self) -> Option<CommonArrays<'_, V>> {
        None
    }

    /// Drops what it holds of an address space (all of it where entries are not tagged by address space).
    fn flush(&mut self, asid: Asid);
}

/// A part of the geometry.
trait Geometry {
    /// Makes it that of one cache for `cores` cores, which is further away.
    fn together(&mut self, cores: u32, extra_latency_cycles: u32);
}

/// An MMU cache outside the cores (Bhattacharjee, "Large-reach memory management unit caches", MICRO 2013).
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedMmuCacheConfig {
    /// What a look-up takes beyond one of a core's own.
    pub extra_latency_cycles: u32,
}

/// What [`Design::keeps`] says of tables whose walks have no entries of upper levels.
const NO_UPPER_LEVELS: &str = "no upper levels whose entries an MMU cache could keep";

impl MmuCacheKind {
    /// Checks that a layer's page table, a design of this name, has entries for it.
    pub fn validate(self, layer: &str, design: &str, entries: UpperEntries) -> Result<(), EngineError> {
        let Err(lacks) = self.keeps(entries) else { return Ok(()) };
        let allowed: Vec<_> =
            Self::ALL.iter().filter(|kind| kind.keeps(entries).is_ok()).map(|kind| kind.name()).collect();
        let what = format!(
            "{} is not possible here: a {design} page table has {lacks}; allowed is {}",
            self.name(),
            allowed.join(", ")
        );
        Err(EngineError::config(format!("system.layers.{layer}.mmu_cache"), what))
    }
}

/// See [`Design`] for what each of these does.
impl MmuCache {
    /// See [`Design::look_up`].
    #[inline]
    pub fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> Spared {
        each_cache!(self, cache => cache.look_up(asid, va, list))
    }

    /// See [`Design::holds`].
    #[cold]
    pub fn holds(&mut self, entry: MachineAddr, cycles: &mut Cycles) -> bool {
        each_cache!(self, cache => cache.holds(entry, cycles))
    }

    /// As [`Design::fill`]; not passed on to a design if everything that it could take up was spared.
    #[inline(always)]
    pub fn fill(&mut self, asid: Asid, va: VirtAddr, list: &WalkList, read: usize, skip: u32, mem: &PhysMem) {
        let read = cacheable(list).min(read);
        // Mostly all that could be taken up was spared.
        if skip.trailing_ones() as usize >= read {
            return;
        }
        each_cache!(self, cache => cache.fill(asid, va, list, read, skip, mem));
    }

    /// See [`Design::pass`].
    #[inline(always)]
    pub fn pass(&mut self, asid: Asid, va: VirtAddr, way: &Way, mem: &PhysMem) -> RequiredReads {
        each_cache!(self, cache => cache.pass(asid, va, way, mem))
    }

    /// Whether it is to be asked for each entry by its machine address, and cannot be passed.
    pub fn is_asked_by_entry(&self) -> bool {
        fn asked<D: Design>(_: &D) -> bool {
            D::ASKED_BY_ENTRY
        }
        each_cache!(self, cache => asked(cache))
    }

    #[inline(always)]
    fn common_arrays<V>(&mut self) -> Option<CommonArrays<'_, V>> {
        each_cache!(self, cache => cache.common_arrays())
    }

    /// See [`Design::flush`].
    pub fn flush(&mut self, asid: Asid) {
        each_cache!(self, cache => cache.flush(asid));
    }
}

/// An MMU cache that walks pass, be its shape known or not: see [`Design::pass`].
pub trait Pass {
    /// See [`Design::pass`].
    fn pass(&mut self, asid: Asid, va: VirtAddr, way: &Way, mem: &PhysMem) -> RequiredReads;
}

/// One of which it is known while it is used whether it is of the common shape; it is worked on with `V`.
pub enum Upper<'a, V> {
    /// A cache of the common shape.
    Common(CommonArrays<'a, V>),
    /// Any other cache.
    Other(&'a mut MmuCache),
}

impl<'a, V: Vectors> Upper<'a, V> {
    /// Chooses the code for the cache.
    #[inline(always)]
    pub fn new(cache: &'a mut MmuCache) -> Self {
        // Asked twice, as the borrow of an answer lasts as long as what is returned.
        if cache.common_arrays::<V>().is_none() {
            return Self::Other(cache);
        }
        Self::Common(cache.common_arrays().expect("it has just been of the common shape"))
    }
}

impl<V: Vectors> Pass for Upper<'_, V> {
    #[inline(always)]
    fn pass(&mut self, asid: Asid, va: VirtAddr, way: &Way, mem: &PhysMem) -> RequiredReads {
        match self {
            Self::Common(arrays) => arrays.pass(asid, va, way, mem),
            Self::Other(cache) => cache.pass(asid, va, way, mem),
        }
    }
}

impl Pass for &mut MmuCache {
    #[inline(always)]
    fn pass(&mut self, asid: Asid, va: VirtAddr, way: &Way, mem: &PhysMem) -> RequiredReads {
        MmuCache::pass(self, asid, va, way, mem)
    }
}

/// [`Design::pass`] by its parts.
#[inline(never)]
fn pass_by_list<D: Design>(cache: &mut D, asid: Asid, va: VirtAddr, way: &Way, mem: &PhysMem) -> RequiredReads {
    let list = way.list(va);
    let Spared { skip, by_entry, cycles } = cache.look_up(asid, va, &list);
    assert!(!by_entry, "a cache that is asked by entry is not passed");
    let read = cacheable(&list);
    if (skip.trailing_ones() as usize) < read {
        cache.fill(asid, va, &list, read, skip, mem);
    }
    let made = list.refs().iter().enumerate().filter(|(n, _)| skip >> n & 1 == 0);
    RequiredReads { reads: made.fold(0, |reads, (_, r)| reads | 1 << r.level), cycles }
}

/// References of a walk that may be cached: all but the leaf's, or all that were followed by another.
fn cacheable(list: &WalkList) -> usize {
    list.refs().len() - 1
}

/// Virtual address without the bits that an entry leaves to the levels below: the lowest `shift` ones, as the page
/// table says.
#[inline(always)]
fn prefix(va: VirtAddr, shift: u32) -> u64 {
    (va.0 & ((1 << 57) - 1)) >> shift
}

/// Where the reference to an entry of `level` is among those of a radix walk, which go down level by level; those of a
/// flattened table pass over some.
#[inline(always)]
fn position(refs: &[WalkRef], level: u8) -> Option<usize> {
    let at = usize::from(refs.first()?.level.checked_sub(level)?);
    refs.iter().take(at + 1).rposition(|r| r.level == level)
}
