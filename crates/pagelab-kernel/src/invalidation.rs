//! Translations that mapping calls make invalid, and what such calls did.

use crate::vma::VaRange;
use pagelab_base::cycles::Cycles;

/// Above this many pages Linux flushes the whole address space (`tlb_single_page_flush_ceiling`, arch/x86/mm/tlb.c).
const FLUSH_CEILING_PAGES: u64 = 33;

/// What mapping calls did.
#[derive(Clone, Copy, Debug, Default)]
pub struct MappingCounters {
    /// Calls about mappings and mapped files, those that were skipped included.
    pub calls: u64,
    /// Pages that recorded kernels had mapped.
    pub pages_recorded: u64,
    /// Faults whose handlers are recorded.
    pub faults_recorded: u64,
    /// Faults whose handlers are recorded and for which there was a translation all the same.
    pub faults_recorded_amiss: u64,
    /// Calls that no kernel would have carried out (overlapping mremap, unaligned addresses); they were skipped.
    pub impossible: u64,
    /// Pages whose translations calls took away.
    pub pages_unmapped: u64,
    /// Pages that forked children share with their parents.
    pub pages_shared: u64,
    /// Pages that a fault engine had mapped and calls accounted for.
    pub pages_accounted: u64,
    /// Pages of files that left the page cache with the end of their file.
    pub pages_cut: u64,
    /// Pages of files that msync wrote.
    pub pages_synced: u64,
    /// Pages of files that got other blocks.
    pub pages_relocated: u64,
    /// Times that there was no room to move blocks to.
    pub relocations_refused: u64,
    /// Cycles of msync, devices apart.
    pub sync_cycles: Cycles,
    /// Cycles of writing the entries of new mappings for a fault engine, and of taking them back.
    pub fill_cycles: Cycles,
}

/// Translations that must leave the TLBs.
#[derive(Clone, Debug, Default)]
pub struct Invalidation {
    /// Their ranges, all of one address space.
    pub ranges: Vec<VaRange>,
    /// Pages in the ranges that were mapped.
    pub pages: u64,
    /// Flush the whole address space instead.
    pub full: bool,
    /// A kernel that is recorded did it: its own instructions are among the accesses.
    pub recorded: bool,
}

impl Invalidation {
    pub(crate) fn add(&mut self, range: VaRange, pages: u64) {
        if pages > 0 {
            self.ranges.push(range);
            self.pages += pages;
            self.full |= self.pages > FLUSH_CEILING_PAGES;
        }
    }
}
