//! A software translation cache: what a kernel keeps of the walks that page faults trigger, so that later ones need not begin
//! at the root.
//!
//! Models: for each level of a radix page table above the last (pgd, p4d, pud, pmd) an array of tags and one of pointers to
//! entries, in kernel memory. A fault's walk looks its address up ([`Arrays`]), reads the pointer of the deepest level that hits,
//! and goes on from that entry; after the walk it fills the levels below, or all of them if none hit. A cache is a
//! mapping's, an address space's, or one of those that an address space has for each CPU; it is made by the first
//! walk that has something to fill. Whatever frees page-table pages, or changes whose they are, empties the caches that may
//! point to them ([`InvalidationCause`]).
//! In the form `mmu-assisted` there are no arrays: hardware gives the handler the last entry that it read, with the
//! address space's count of times that page-table pages were freed, and the handler begins there if the count is still the same.
//! Source: Wu, Patel, "Accelerating Fault-Triggered Page Table Walks Using Software Translation Caches" (Rutgers University),
//! for Linux 4.19.80 (`__handle_mm_fault`, mm/memory.c); the full prefix as a tag: Barr, Cox, Rixner, "Translation Caching: Skip,
//! Don't Walk (the Page Table)" (ISCA 2010).
//! Parameters: `kernel.translation_cache` (`form`, `entries`, `ways`, `per`, `cycles`, `level_cycles`, `fill_cycles` and the same of
//! instructions), `system.layers.NAME.translation_cache`.
//! Stats: `stc.*`.
//! Deviations: the published rule hits wrongly where two regions of 1 GiB lie in one mapping. Such hits are counted, and the
//! walk is made from the root beside what was paid for the look-up: no wrong entry is ever used. The paper says nothing of
//! invalidation. Invalidations cost nothing, as what else mapping calls write. With tables of four levels there is no array of
//! p4d, whose only entry the pgd's is (`p4d_offset`). A munmap that takes the first page of a mapping away takes the rest's cache
//! too. `prune` frees tables that have become empty whoever's range they lie in, where `free_pgtables` looks at the neighbours, so
//! theirs are emptied as well.

pub mod arrays;
mod slab;

use std::collections::BTreeMap;

pub use arrays::{Arrays, Hit, LOWEST, Lines, LookUp};
pub use slab::Slab;

use crate::base::addr::{PhysAddr, VirtAddr};
use crate::config::{CacheOwner, InvalidationCause, TranslationCacheConfig};
use crate::page_table::PageTableConfig;

/// Levels by number, 0 and 1 unused.
const LEVELS: usize = 6;

/// What the caches of a layer did.
#[derive(Clone, Copy, Debug, Default)]
pub struct TranslationCacheCounters {
    pub look_ups: u64,
    /// By level.
    pub hits: [u64; LEVELS],
    /// Hits among them that led to an entry of another address, by level.
    pub false_hits: [u64; LEVELS],
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
    pub config: TranslationCacheConfig,
    pub(crate) arrays: Option<Arrays>,
    pub slab: Slab,
    pub counters: TranslationCacheCounters,
}

/// Those of an address space.
#[derive(Clone, Debug, Default)]
pub struct SpaceCaches {
    /// By owner: where its mapping begins, a CPU, or 0.
    pub(crate) objects: BTreeMap<u64, Object>,
    /// Times that page-table pages were freed, as far as a handler is told.
    pub(crate) freed: u64,
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
    Root,
    /// At an entry that a cache, or hardware, knew.
    Entry(u8),
    /// At the root, since the cache gave another address's entry of this level.
    False(u8),
}

impl TranslationCaches {
    pub fn new(config: TranslationCacheConfig, table: &PageTableConfig) -> Option<Self> {
        let levels = table.levels()?;
        let arrays = Arrays::new(&config, levels);
        let slab = Slab::new(arrays.map_or(0, |arrays| arrays.bytes()));
        Some(Self { config, arrays, slab, counters: TranslationCacheCounters::default() })
    }

    pub(crate) fn invalidated(&mut self, cause: InvalidationCause) {
        self.counters.invalidations[cause as usize] += 1;
    }

    pub(crate) fn performs(&self, cause: InvalidationCause) -> bool {
        self.config.omitted() != Some(cause)
    }

    pub(crate) fn owner(&self) -> Option<CacheOwner> {
        self.config.arrays().map(|arrays| arrays.per)
    }
}
