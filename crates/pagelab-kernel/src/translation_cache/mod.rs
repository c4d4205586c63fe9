//! A software translation cache: the kernel caches results of the walks that page faults trigger, so that later walks
//! need not start at the root.
//!
//! Models: for each level of a radix page table above the last (pgd, p4d, pud, pmd), an array of tags and an array of
//! pointers to entries, in kernel memory. The walk of a fault looks up its address ([`CacheArrays`]), reads the pointer
//! of the deepest level that hits, and continues from that entry. After the walk, it fills the levels below, or all
//! levels if none hit. A cache belongs to a mapping, to an address space, or to a CPU within an address space. The
//! first walk that has something to fill creates it. Operations that free page-table pages, or change their owner,
//! empty the caches that may point to them ([`InvalidationCause`]). The form `generations` has slots instead, as in
//! pagelab's Linux ([`CacheSlots`]): per mapping or per CPU, for PMD and PUD entries or for PMD tables. Their tags have
//! the generation of the address space in addition to the address. The first walk of a space gives it a generation; it
//! gets a new one whenever a PMD table is freed, and nothing has to be emptied. The form `mmu-assisted` has no arrays:
//! hardware passes the last entry that it read to the handler, with the address space's counter of freed page-table
//! pages; the handler starts there if the counter is unchanged.
//! Source: Wu, Patel, "Accelerating Fault-Triggered Page Table Walks Using Software Translation Caches" (Rutgers
//! University), for Linux 4.19.80 (`__handle_mm_fault`, mm/memory.c); the full prefix as a tag: Barr, Cox, Rixner,
//! "Translation Caching: Skip, Don't Walk (the Page Table)" (ISCA 2010). Slots:
//! `pagelab_linux/kernel/src/walk_cache.c`.
//! Parameters: `kernel.translation_cache` (`form`, `entries`, `pud_entries`, `ways`, `per`, `cycles`, `level_cycles`,
//! `fill_cycles` and the same of instructions; `kind`, `slots` and `costs` of slots),
//! `system.layers.NAME.translation_cache`.
//! Stats: `stc.*`.
//! Deviations: the published rule hits wrongly if two regions of 1 GiB lie in one mapping. Such hits are counted; the
//! walk then starts from the root, in addition to the cost of the look-up, so no wrong entry is ever used. The paper
//! does not mention invalidation. Invalidations cost nothing, like the other writes of mapping calls. With tables of
//! four levels there is no array for p4d, whose only entry is that of the pgd (`p4d_offset`). A munmap that removes the
//! first page of a mapping also removes the cache of the rest. `prune` frees tables that have become empty, whatever
//! range they are in, while `free_pgtables` considers the neighbours; so the caches of those are emptied, too. A munmap
//! gives a space one new generation, whatever the number of PMD tables that it frees. The cache of a CPU allocates
//! memory at the first walk that has something to cache, and keeps it until the last process ends; in Linux it always
//! exists.

pub mod arrays;
mod slab;
mod slots;

use std::collections::BTreeMap;

pub use arrays::{CacheArrays, CacheHit, CacheLookUp, LOWEST, Lines};
pub use slab::Slab;
pub use slots::CacheSlots;

use crate::config::{CacheOwner, InvalidationCause, SlotKind, TranslationCacheConfig};
use pagelab_base::addr::{PhysAddr, VirtAddr};
use pagelab_base::memory::PhysMem;
use pagelab_tables::page_table::PageTableConfig;

/// Levels by number; 0 and 1 are unused.
const LEVELS: usize = 6;

/// Counters of a layer's caches.
#[derive(Clone, Copy, Debug, Default)]
pub struct TranslationCacheCounters {
    /// Look-ups, one per walk of a fault that has a cache.
    pub look_ups: u64,
    /// Hits by level.
    pub hits: [u64; LEVELS],
    /// By level: hits that led to an entry of another address.
    pub false_hits: [u64; LEVELS],
    /// Pointers written, one per level and walk.
    pub fills: u64,
    /// Invalidations by [`InvalidationCause`].
    pub invalidations: [u64; 6],
    /// Walks that had something to cache but found no memory for it.
    pub no_memory: u64,
    /// References of walks saved by hits.
    pub refs_spared: u64,
    /// References made by look-ups.
    pub refs_made: u64,
}

/// The translation caches of a layer.
#[derive(Clone)]
pub struct TranslationCaches {
    /// The form of the caches, with its parameters.
    pub config: TranslationCacheConfig,
    /// Layout of a cache object; `None` for a form without objects.
    pub layout: Option<CacheLayout>,
    /// Allocator of the objects' memory.
    pub slab: Slab,
    /// Counters over all objects.
    pub counters: TranslationCacheCounters,
    /// Objects that a CPU has for all address spaces.
    pub(crate) of_cpus: BTreeMap<u64, Object>,
    /// The last generation assigned.
    pub(crate) generations: u64,
}

/// Layout of an object, for forms that have objects.
#[derive(Clone, Copy, Debug)]
pub enum CacheLayout {
    /// Arrays of tags and pointers.
    Arrays(CacheArrays),
    /// Slots of a tag and a pointer each.
    Slots(CacheSlots),
}

impl CacheLayout {
    fn new(config: &TranslationCacheConfig, levels: u8) -> Option<Self> {
        let arrays = CacheArrays::new(config, levels).map(Self::Arrays);
        arrays.or_else(|| config.slots().map(|slots| Self::Slots(CacheSlots::new(slots))))
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Arrays(arrays) => arrays.bytes(),
            Self::Slots(slots) => slots.bytes(),
        }
    }

    /// The highest level that is filled, in tables of this many levels.
    pub fn highest(&self, levels: u8) -> u8 {
        match self {
            Self::Arrays(_) => levels,
            Self::Slots(slots) => slots.highest(),
        }
    }

    /// Adds the lines that the initialization of a new object writes.
    pub fn new_lines(&self, object: PhysAddr, mut add: impl FnMut(PhysAddr)) {
        match self {
            Self::Arrays(arrays) => arrays.tag_lines(object).for_each(&mut add),
            Self::Slots(slots) => slots.lines(object).for_each(&mut add),
        }
    }

    /// Whether the location of the pointer is known before a tag is compared.
    pub fn is_direct_mapped(&self) -> bool {
        match self {
            Self::Arrays(arrays) => arrays.is_direct_mapped(),
            Self::Slots(_) => true,
        }
    }

    /// Looks up an address of a space with this generation.
    pub fn look_up(&self, mem: &PhysMem, object: PhysAddr, va: VirtAddr, generation: u64) -> CacheLookUp {
        match self {
            Self::Arrays(arrays) => arrays.look_up(mem, object, va),
            Self::Slots(slots) => slots.look_up(mem, object, va, generation),
        }
    }

    /// Lines written by a fill of the levels `from` to `to`: those of tags, then those of pointers in other lines.
    pub fn fill_lines(&self, object: PhysAddr, (from, to): (u8, u8), va: VirtAddr, add: impl FnMut(PhysAddr)) {
        match self {
            Self::Arrays(arrays) => {
                let tags = arrays.fill_tags(object, from, to, va);
                tags.into_iter().chain(arrays.fill_pointers(object, from, to, va)).for_each(add);
            }
            Self::Slots(slots) => slots.fill_lines(object, from, to, va).into_iter().for_each(add),
        }
    }

    /// Enters the entry that a walk of a space with this generation read at a level; false if it is not cached.
    pub fn fill(
        &self,
        mem: &mut PhysMem,
        object: PhysAddr,
        (level, entry): (u8, PhysAddr),
        va: VirtAddr,
        generation: u64,
    ) -> bool {
        match self {
            Self::Arrays(arrays) => arrays.fill(mem, object, level, va, entry),
            Self::Slots(slots) => slots.fill(mem, object, (level, entry), va, generation),
        }
    }
}

/// The caches of an address space.
#[derive(Clone, Debug, Default)]
pub struct SpaceCaches {
    /// By owner: the start of its mapping, a CPU, or 0.
    pub(crate) objects: BTreeMap<u64, Object>,
    /// Number of times that page-table pages were freed, as a handler sees it.
    pub(crate) freed: u64,
    /// Generation of the space; 0 until a walk has assigned one.
    pub(crate) generation: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) at: PhysAddr,
    /// End of its mapping when the object was last used.
    pub(crate) end: VirtAddr,
}

/// Start of a fault's walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStart {
    /// At the root, since no cache hit.
    Root,
    /// At an entry of this level, from a cache or from the hardware.
    Entry(u8),
    /// At the root, since the cache returned an entry of this level that belongs to another address.
    False(u8),
}

impl TranslationCaches {
    /// The caches of a layer whose spaces have such tables; `None` if the tables are not trees.
    pub fn new(config: TranslationCacheConfig, table: &PageTableConfig) -> Option<Self> {
        let levels = table.levels()?;
        let layout = CacheLayout::new(&config, levels);
        let slab = Slab::new(layout.map_or(0, |layout| layout.bytes()));
        let (counters, of_cpus) = (TranslationCacheCounters::default(), BTreeMap::new());
        Some(Self { config, layout, slab, counters, of_cpus, generations: 0 })
    }

    pub(crate) fn invalidated(&mut self, cause: InvalidationCause) {
        self.counters.invalidations[cause as usize] += 1;
    }

    pub(crate) fn performs(&self, cause: InvalidationCause) -> bool {
        self.config.omitted() != Some(cause)
    }

    /// Owner of a cache. A cache of a CPU serves one address space or, in slot forms, all of them.
    pub(crate) fn owner(&self) -> Option<CacheOwner> {
        let slots = || {
            self.config.slots().map(|slots| match slots.kind {
                SlotKind::Vma => CacheOwner::Vma,
                SlotKind::Cpu | SlotKind::CpuTable => CacheOwner::Cpu,
            })
        };
        self.config.arrays().map(|arrays| arrays.per).or_else(slots)
    }

    /// Whether a CPU has one cache for all address spaces.
    pub(crate) fn is_shared(&self) -> bool {
        self.config.slots().is_some_and(|slots| slots.kind != SlotKind::Vma)
    }

    pub(crate) fn next_generation(&mut self) -> u64 {
        self.generations += 1;
        self.generations
    }
}
