//! A software translation cache: what a kernel keeps of the walks that page faults trigger, so that later ones need not
//! begin at the root.
//!
//! Models: for each level of a radix page table above the last (pgd, p4d, pud, pmd) an array of tags and one of
//! pointers to entries, in kernel memory. A fault's walk looks its address up ([`Arrays`]), reads the pointer of the
//! deepest level that hits, and goes on from that entry; after the walk it fills the levels below, or all of them if
//! none hit. A cache is a mapping's, an address space's, or one of those that an address space has for each CPU; it is
//! made by the first walk that has something to fill. Whatever frees page-table pages, or changes whose they are,
//! empties the caches that may point to them ([`InvalidationCause`]). In the form `generations` there are slots
//! instead, as in pagelab's Linux ([`Slots`]): of mappings or of CPUs, of PMD and PUD entries or of PMD tables. Their
//! tags have the address space's generation beside the address. The first walk of a space gives it one; whenever a PMD
//! table is freed it gets another, and nothing has to be emptied. In the form `mmu-assisted` there are no arrays:
//! hardware gives the handler the last entry that it read, with the address space's count of times that page-table
//! pages were freed, and the handler begins there if the count is still the same.
//! Source: Wu, Patel, "Accelerating Fault-Triggered Page Table Walks Using Software Translation Caches" (Rutgers
//! University), for Linux 4.19.80 (`__handle_mm_fault`, mm/memory.c); the full prefix as a tag: Barr, Cox, Rixner,
//! "Translation Caching: Skip, Don't Walk (the Page Table)" (ISCA 2010). Slots:
//! `pagelab_linux/kernel/src/walk_cache.c`.
//! Parameters: `kernel.translation_cache` (`form`, `entries`, `ways`, `per`, `cycles`, `level_cycles`, `fill_cycles`
//! and the same of instructions; `kind`, `slots` and `costs` of slots), `system.layers.NAME.translation_cache`.
//! Stats: `stc.*`.
//! Deviations: the published rule hits wrongly where two regions of 1 GiB lie in one mapping. Such hits are counted,
//! and the walk is made from the root beside what was paid for the look-up: no wrong entry is ever used. The paper says
//! nothing of invalidation. Invalidations cost nothing, as what else mapping calls write. With tables of four levels
//! there is no array of p4d, whose only entry the pgd's is (`p4d_offset`). A munmap that takes the first page of a
//! mapping away takes the rest's cache too. `prune` frees tables that have become empty whoever's range they lie in,
//! where `free_pgtables` looks at the neighbours, so theirs are emptied as well. A munmap gives a space one generation,
//! whatever number of PMD tables it frees. The cache of a CPU takes memory with the first walk that has something to
//! keep, until the last process ends; in Linux it is always there.

pub mod arrays;
mod slab;
mod slots;

use std::collections::BTreeMap;

pub use arrays::{Arrays, Hit, LOWEST, Lines, LookUp};
pub use slab::Slab;
pub use slots::Slots;

use crate::config::{CacheOwner, InvalidationCause, SlotKind, TranslationCacheConfig};
use pagelab_base::addr::{PhysAddr, VirtAddr};
use pagelab_base::memory::PhysMem;
use pagelab_tables::page_table::PageTableConfig;

/// Levels by number, 0 and 1 unused.
const LEVELS: usize = 6;

/// What the caches of a layer did.
#[derive(Clone, Copy, Debug, Default)]
pub struct TranslationCacheCounters {
    /// Look-ups, one per walk of a fault that has a cache to ask.
    pub look_ups: u64,
    /// By level.
    pub hits: [u64; LEVELS],
    /// Hits among them that led to an entry of another address, by level.
    pub false_hits: [u64; LEVELS],
    /// Pointers that were written, one per level and walk.
    pub fills: u64,
    /// By [`InvalidationCause`].
    pub invalidations: [u64; 6],
    /// Walks that had something to keep, and no memory to keep it in.
    pub no_memory: u64,
    /// References of walks that hits spared.
    pub refs_spared: u64,
    /// References that look-ups made.
    pub refs_made: u64,
}

/// The translation caches of a layer.
#[derive(Clone)]
pub struct TranslationCaches {
    /// The form, and its parameters.
    pub config: TranslationCacheConfig,
    /// How an object lies in memory; none where a form has no objects.
    pub layout: Option<Layout>,
    /// The memory that its objects are in.
    pub slab: Slab,
    /// What was counted, of all objects together.
    pub counters: TranslationCacheCounters,
    /// Those that a CPU has for all address spaces.
    pub(crate) of_cpus: BTreeMap<u64, Object>,
    /// The last generation given out.
    pub(crate) generations: u64,
}

/// How an object is laid out, in forms that have some.
#[derive(Clone, Copy, Debug)]
pub enum Layout {
    /// Arrays of tags and pointers.
    Arrays(Arrays),
    /// Slots of a tag and a pointer each.
    Slots(Slots),
}

impl Layout {
    fn new(config: &TranslationCacheConfig, levels: u8) -> Option<Self> {
        let arrays = Arrays::new(config, levels).map(Self::Arrays);
        arrays.or_else(|| config.slots().map(|slots| Self::Slots(Slots::new(slots))))
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Arrays(arrays) => arrays.bytes(),
            Self::Slots(slots) => slots.bytes(),
        }
    }

    /// The highest level that is filled, in tables with this many levels.
    pub fn highest(&self, levels: u8) -> u8 {
        match self {
            Self::Arrays(_) => levels,
            Self::Slots(slots) => slots.highest(),
        }
    }

    /// Adds the lines that a new object is written to.
    pub fn new_lines(&self, object: PhysAddr, mut add: impl FnMut(PhysAddr)) {
        match self {
            Self::Arrays(arrays) => arrays.tag_lines(object).for_each(&mut add),
            Self::Slots(slots) => slots.lines(object).for_each(&mut add),
        }
    }

    /// Whether it is known where the pointer is before a tag was compared.
    pub fn is_direct_mapped(&self) -> bool {
        match self {
            Self::Arrays(arrays) => arrays.is_direct_mapped(),
            Self::Slots(_) => true,
        }
    }

    /// Looks an address of a space of this generation up.
    pub fn look_up(&self, mem: &PhysMem, object: PhysAddr, va: VirtAddr, generation: u64) -> LookUp {
        match self {
            Self::Arrays(arrays) => arrays.look_up(mem, object, va),
            Self::Slots(slots) => slots.look_up(mem, object, va, generation),
        }
    }

    /// The lines that filling the levels `from` to `to` writes: of tags, then of pointers that are not beside them.
    pub fn fill_lines(&self, object: PhysAddr, (from, to): (u8, u8), va: VirtAddr, add: impl FnMut(PhysAddr)) {
        match self {
            Self::Arrays(arrays) => {
                let tags = arrays.fill_tags(object, from, to, va);
                tags.into_iter().chain(arrays.fill_pointers(object, from, to, va)).for_each(add);
            }
            Self::Slots(slots) => slots.fill_lines(object, from, to, va).into_iter().for_each(add),
        }
    }

    /// Enters what a walk of a space of this generation read at a level; false if it is not kept.
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

/// Those of an address space.
#[derive(Clone, Debug, Default)]
pub struct SpaceCaches {
    /// By owner: where its mapping begins, a CPU, or 0.
    pub(crate) objects: BTreeMap<u64, Object>,
    /// Times that page-table pages were freed, as far as a handler is told.
    pub(crate) freed: u64,
    /// The space's generation; 0 until a walk has given it one.
    pub(crate) generation: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) at: PhysAddr,
    /// End of its mapping when it was last looked at.
    pub(crate) end: VirtAddr,
}

/// Where a fault's walk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the root, since no cache knew a way.
    Root,
    /// At an entry that a cache, or hardware, knew.
    Entry(u8),
    /// At the root, since the cache gave another address's entry of this level.
    False(u8),
}

impl TranslationCaches {
    /// Those of a layer whose spaces have such tables; none if they are no trees.
    pub fn new(config: TranslationCacheConfig, table: &PageTableConfig) -> Option<Self> {
        let levels = table.levels()?;
        let layout = Layout::new(&config, levels);
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

    /// Whose they are; those of a CPU are its address spaces', or one for all of them.
    pub(crate) fn owner(&self) -> Option<CacheOwner> {
        let slots = || {
            self.config.slots().map(|slots| match slots.kind {
                SlotKind::Vma => CacheOwner::Vma,
                SlotKind::Cpu | SlotKind::CpuTable => CacheOwner::Cpu,
            })
        };
        self.config.arrays().map(|arrays| arrays.per).or_else(slots)
    }

    /// Whether a CPU has one for all address spaces.
    pub(crate) fn is_shared(&self) -> bool {
        self.config.slots().is_some_and(|slots| slots.kind != SlotKind::Vma)
    }

    pub(crate) fn next_generation(&mut self) -> u64 {
        self.generations += 1;
        self.generations
    }
}
