//! MMU caches, which let a walker skip references to the upper levels of a page table.
//!
//! Each layer's walks on a core use one ([`MmuCaches`]). The walker asks it once per walk which references it can skip
//! ([`MmuCache::look_up`]) and reports afterwards what it read ([`MmuCache::fill`]). A cache tagged by machine
//! addresses is asked for each entry once the entry's address is known ([`MmuCache::holds`]). MMU caches never hold
//! leaf entries: those belong to the TLBs. Since the list of references is made from the current page table, a cache
//! holds tags only and cannot return a stale pointer. The kernel flushes it nevertheless where it must flush a real
//! one, so that hit counts are right.
//!
//! A design is one file here that implements [`Design`], and one line below. `registry.rs` generates the enums
//! [`MmuCache`] and [`MmuCacheKind`] and the geometry of all designs ([`MmuCacheGeometry`]) from these lines.

mod assignment;
#[macro_use]
mod registry;

pub use assignment::MmuCaches;
pub use paging_structure::CommonArrays;
pub use segment_lookaside::SegmentCounts;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::page_table::{MAX_VA_BITS, UpperEntries, WalkList, WalkPath, WalkRef};
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
        /// Geometry for `paging-structure`, `coalesced` and `split-page-table-cache`: one array per level (Intel SDM
        /// vol. 3A, 4.10.3).
        paging_structure: paging_structure::PagingStructureConfig
    ] {
        PagingStructure(paging_structure::PagingStructureCache) = "paging-structure",
            "an array per level, tagged by virtual-address prefix, longest match (Intel)";
    }
    mod coalesced [
        /// What an entry of `coalesced` can represent, beside the geometry in `paging_structure`. Default: 8 entries.
        #[serde(default)]
        coalesced: coalesced::CoalescedConfig
    ] {
        Coalesced(coalesced::CoalescedCache) = "coalesced",
            "paging-structure caches whose entries cover several that point to adjacent leaf tables";
    }
    mod page_walk_cache [
        /// Geometry for `page-walk-cache` and `shared-page-walk-cache`: one array of entries of all levels except the
        /// leaf's, tagged by physical address (AMD; Barr, Cox, Rixner, "Translation caching", ISCA 2010).
        page_walk_cache: page_walk_cache::PageWalkCacheConfig
    ] {
        PageWalkCache(page_walk_cache::PageWalkCache) = "page-walk-cache",
            "one array of upper-level entries, tagged by their physical address (AMD)";
        SharedPageWalkCache(page_walk_cache::SharedPageWalkCache) = "shared-page-walk-cache",
            "one page-walk cache for all layers that choose it, tagged by machine address (AMD, nested)";
    }
    mod unified [
        /// Geometry for `unified`: one array of entries of all levels except the leaf's, tagged by virtual-address
        /// prefix (Barr, Cox, Rixner, "Translation caching", ISCA 2010).
        unified: unified::UnifiedTranslationCacheConfig
    ] {
        Unified(unified::UnifiedTranslationCache) = "unified",
            "one array of entries of all upper levels, tagged by virtual-address prefix, longest match";
    }
    mod split_page_table_cache {
        SplitPageTableCache(split_page_table_cache::SplitPageTableCache) = "split-page-table-cache",
            "an array per level, tagged by the physical address of the entry";
    }
    mod translation_path [
        /// Geometry for `translation-path-cache`: one array of whole paths (Barr, Cox, Rixner, "Translation caching",
        /// ISCA 2010). Default: 24 entries, 2 cycles.
        #[serde(default)]
        translation_path: translation_path::TranslationPathCacheConfig
    ] {
        TranslationPath(translation_path::TranslationPathCache) = "translation-path-cache",
            "one array of paths from the root to a leaf table, longest common part";
    }
    mod segment_lookaside [
        /// Geometry for `segment-lookaside-buffer`: one array of segments, whose table a walk reads first (POWER).
        /// Default: 32 entries.
        #[serde(default, skip_serializing_if = "segment_lookaside::SegmentLookasideConfig::is_default")]
        segment_lookaside: segment_lookaside::SegmentLookasideConfig
    ] {
        SegmentLookaside(segment_lookaside::SegmentLookaside) = "segment-lookaside-buffer",
            "one array of segments, filled by the kernel or by hardware (POWER)";
    }
    mod perfect {
        Perfect(perfect::Perfect) = "perfect", "unlimited and always hit: a walk reads its leaf only";
    }
}

/// Tag of an address space in TLBs and MMU caches (PCID and VPID together).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asid(pub u16);

/// References of a walk that an MMU cache hit makes unnecessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparedRefs {
    /// Bit n: the walk can skip its n-th reference.
    pub skip: u32,
    /// Whether the cache must be asked for each of the other entries ([`MmuCache::holds`]).
    pub by_entry: bool,
    /// Cycles of the look-up.
    pub cycles: Cycles,
}

/// The references that a walk along a [`WalkPath`] must make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequiredReads {
    /// Bit n: the walk must read the entry of level n.
    pub reads: u8,
    /// Cycles of the look-up.
    pub cycles: Cycles,
}

impl RequiredReads {
    /// Reads of all entries at levels below `level`.
    #[inline(always)]
    fn below(level: u8, way: &WalkPath, cycles: Cycles) -> Self {
        Self { reads: (1 << level) - (1 << way.leaf), cycles }
    }
}

/// An MMU cache design.
///
/// Requirements on an implementation:
///
/// - It holds tags, never translations, and never lets a walk skip its last reference.
/// - Every reference that [`look_up`](Self::look_up) lets a walk skip was read by an earlier walk of the same space (or
///   prefix, or address) and not flushed since, unless the design documents otherwise.
/// - After [`flush`](Self::flush) walks of the space skip nothing that was not read again.
/// - [`pass`](Self::pass) has the effect of a look-up followed by a fill.
/// - Nothing allocates after construction; random choices come from the given generator.
///
/// `tests/conformance` runs every registered design with every page table whose entries it can hold.
pub trait Design: Sized {
    /// Whether the layers of a core that choose this design share one cache.
    const SHARED_BY_LAYERS: bool = false;
    /// Whether it must be asked for each entry ([`holds`](Self::holds)); [`pass`](Self::pass) is then not possible.
    const ASKED_BY_ENTRY: bool = false;
    /// Whether the invalidation of a page drops the entries of its space, as `invlpg` does.
    const DROPPED_WITH_PAGES: bool = true;
    /// Whether it ever keeps an entry, or takes time to look for one.
    const KEEPS_ENTRIES: bool = true;

    /// An empty cache. Error: its part of the geometry is impossible.
    fn new(geometry: &MmuCacheGeometry, rng: &Rng) -> Result<Self, EngineError>;

    /// Geometries for tests on a machine like this one, small enough that entries are replaced.
    fn samples(geometry: &MmuCacheGeometry) -> Vec<MmuCacheGeometry>;

    /// Whether it can hold such entries of a page table. The error completes "a page table has …".
    fn keeps(entries: UpperEntries) -> Result<(), &'static str>;

    /// Which references of the walk `list` for `va` can be skipped.
    fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> SparedRefs;

    /// Whether it holds the entry at a machine address, if the design is asked by entry; adds the cycles of the
    /// look-up. A missing entry is inserted, since the walker reads it next.
    fn holds(&mut self, _: MachineAddr, _: &mut Cycles) -> bool {
        unreachable!("its look-up has told all it knows")
    }

    /// Inserts the entries that a walk has read: its first `read` references except the skipped ones. `mem` contains
    /// the page table.
    fn fill(&mut self, _: Asid, _: VirtAddr, _: &WalkList, _read: usize, _skip: u32, _: &PhysMem) {}

    /// Look-up and fill in one step, for a walk along a path that makes all references that it cannot skip. `mem`
    /// contains the page table.
    #[inline(always)]
    fn pass(&mut self, asid: Asid, va: VirtAddr, way: &WalkPath, mem: &PhysMem) -> RequiredReads {
        pass_by_list(self, asid, va, way, mem)
    }

    /// The arrays of the common shape, for code specialised for it; `None` for any other shape.
    #[inline(always)]
    fn common_arrays<V>(&mut self) -> Option<CommonArrays<'_, V>> {
        None
    }

    /// Drops the segments of a space in a range, if the design holds segments.
    fn invalidate_segments(&mut self, _: Asid, _start: VirtAddr, _end: VirtAddr) {}

    /// Counts of a design that holds segments.
    fn segment_counts(&self) -> Option<SegmentCounts> {
        None
    }

    /// Drops all entries of an address space, or all entries if they are not tagged by address space.
    fn flush(&mut self, asid: Asid);
}

/// A design's part of the geometry.
trait Geometry {
    /// Turns it into the geometry of one cache for `cores` cores, which has a longer latency.
    fn together(&mut self, cores: u32, extra_latency_cycles: u32);
}

/// An MMU cache outside the cores (Bhattacharjee, "Large-reach memory management unit caches", MICRO 2013).
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedMmuCacheConfig {
    /// Additional cycles of a look-up compared to a core's own cache.
    pub extra_latency_cycles: u32,
}

/// What [`Design::keeps`] returns for tables whose walks read no upper-level entries.
const NO_UPPER_LEVELS: &str = "no upper levels whose entries an MMU cache could keep";

impl UpperEntries {
    /// Whether the entries are of upper levels, or there are none. The error completes "a page table has …".
    fn are_levels(self) -> Result<(), &'static str> {
        match self {
            Self::Segments | Self::Unfit => Err(NO_UPPER_LEVELS),
            Self::Levels(_) | Self::LargerTables | Self::Packed | Self::Nothing | Self::OfSomePages => Ok(()),
        }
    }
}

impl MmuCacheKind {
    /// Checks that a layer's page table, a design with this name, has entries that the cache can hold.
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

/// Methods of [`Design`] for a cache of any design.
impl MmuCache {
    /// See [`Design::look_up`].
    #[inline]
    pub fn look_up(&mut self, asid: Asid, va: VirtAddr, list: &WalkList) -> SparedRefs {
        each_cache!(self, cache => cache.look_up(asid, va, list))
    }

    /// See [`Design::holds`].
    #[cold]
    pub fn holds(&mut self, entry: MachineAddr, cycles: &mut Cycles) -> bool {
        each_cache!(self, cache => cache.holds(entry, cycles))
    }

    /// [`Design::fill`], unless the walk skipped everything that could be inserted.
    #[inline(always)]
    pub fn fill(&mut self, asid: Asid, va: VirtAddr, list: &WalkList, read: usize, skip: u32, mem: &PhysMem) {
        let read = cacheable(list).min(read);
        // The usual case: the walk skipped all upper references.
        if skip.trailing_ones() as usize >= read {
            return;
        }
        each_cache!(self, cache => cache.fill(asid, va, list, read, skip, mem));
    }

    /// See [`Design::pass`].
    #[inline(always)]
    pub fn pass(&mut self, asid: Asid, va: VirtAddr, way: &WalkPath, mem: &PhysMem) -> RequiredReads {
        each_cache!(self, cache => cache.pass(asid, va, way, mem))
    }

    /// Whether it must be asked for each entry by machine address.
    pub fn is_asked_by_entry(&self) -> bool {
        fn asked<D: Design>(_: &D) -> bool {
            D::ASKED_BY_ENTRY
        }
        each_cache!(self, cache => asked(cache))
    }

    /// See [`Design::KEEPS_ENTRIES`].
    #[inline(always)]
    pub fn keeps_entries(&self) -> bool {
        fn keeps<D: Design>(_: &D) -> bool {
            D::KEEPS_ENTRIES
        }
        each_cache!(self, cache => keeps(cache))
    }

    #[inline(always)]
    fn common_arrays<V>(&mut self) -> Option<CommonArrays<'_, V>> {
        each_cache!(self, cache => cache.common_arrays())
    }

    /// See [`Design::invalidate_segments`].
    pub fn invalidate_segments(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        each_cache!(self, cache => cache.invalidate_segments(asid, start, end));
    }

    /// See [`Design::segment_counts`].
    pub fn segment_counts(&self) -> Option<SegmentCounts> {
        each_cache!(self, cache => cache.segment_counts())
    }

    /// Drops what the invalidation of a page of a space drops ([`Design::DROPPED_WITH_PAGES`]).
    pub fn flush_with_page(&mut self, asid: Asid) {
        fn dropped<D: Design>(_: &D) -> bool {
            D::DROPPED_WITH_PAGES
        }
        if each_cache!(self, cache => dropped(cache)) {
            self.flush(asid);
        }
    }

    /// See [`Design::flush`].
    pub fn flush(&mut self, asid: Asid) {
        each_cache!(self, cache => cache.flush(asid));
    }
}

/// An MMU cache of known or unknown shape that supports [`Design::pass`].
pub trait Pass {
    /// See [`Design::pass`].
    fn pass(&mut self, asid: Asid, va: VirtAddr, way: &WalkPath, mem: &PhysMem) -> RequiredReads;
}

/// A cache whose shape is checked once; the common shape uses specialised code with the vectors `V`.
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
        // Two calls, since the borrow of the first result would last until the function returns.
        if cache.common_arrays::<V>().is_none() {
            return Self::Other(cache);
        }
        Self::Common(cache.common_arrays().expect("it has just been of the common shape"))
    }
}

impl<V: Vectors> Pass for Upper<'_, V> {
    #[inline(always)]
    fn pass(&mut self, asid: Asid, va: VirtAddr, way: &WalkPath, mem: &PhysMem) -> RequiredReads {
        match self {
            Self::Common(arrays) => arrays.pass(asid, va, way, mem),
            Self::Other(cache) => cache.pass(asid, va, way, mem),
        }
    }
}

impl Pass for &mut MmuCache {
    #[inline(always)]
    fn pass(&mut self, asid: Asid, va: VirtAddr, way: &WalkPath, mem: &PhysMem) -> RequiredReads {
        MmuCache::pass(self, asid, va, way, mem)
    }
}

/// [`Design::pass`] as a look-up and a fill.
#[inline(never)]
fn pass_by_list<D: Design>(cache: &mut D, asid: Asid, va: VirtAddr, way: &WalkPath, mem: &PhysMem) -> RequiredReads {
    let list = way.list(va);
    let SparedRefs { skip, by_entry, cycles } = cache.look_up(asid, va, &list);
    assert!(!by_entry, "a cache that is asked by entry is not passed");
    let read = cacheable(&list);
    if (skip.trailing_ones() as usize) < read {
        cache.fill(asid, va, &list, read, skip, mem);
    }
    let made = list.refs().iter().enumerate().filter(|(n, _)| skip >> n & 1 == 0);
    RequiredReads { reads: made.fold(0, |reads, (_, r)| reads | 1 << r.level), cycles }
}

/// Number of references of a walk that an MMU cache can hold: all but the last.
fn cacheable(list: &WalkList) -> usize {
    list.refs().len() - 1
}

/// Virtual address without the lowest `shift` bits, which the levels below the entry translate.
#[inline(always)]
fn prefix(va: VirtAddr, shift: u32) -> u64 {
    (va.0 & ((1 << MAX_VA_BITS) - 1)) >> shift
}

/// Index of the reference to the entry of `level` in a radix walk, whose levels descend; walks of a flattened table
/// skip some levels.
#[inline(always)]
fn position(refs: &[WalkRef], level: u8) -> Option<usize> {
    let at = usize::from(refs.first()?.level.checked_sub(level)?);
    refs.iter().take(at + 1).rposition(|r| r.level == level)
}
