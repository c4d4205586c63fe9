//! Translations that mapping calls invalidate, and counters of such calls.

use crate::vma::VaRange;
use pagelab_base::cycles::Cycles;

/// Above this many pages Linux flushes the whole address space (`tlb_single_page_flush_ceiling`, arch/x86/mm/tlb.c).
const FLUSH_CEILING_PAGES: u64 = 33;

/// Counters of mapping calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct MappingCounters {
    /// Calls about mappings and mapped files, including skipped ones.
    pub calls: u64,
    /// Pages that recorded kernels mapped.
    pub pages_recorded: u64,
    /// Faults whose handlers are recorded.
    pub faults_recorded: u64,
    /// Faults whose handlers are recorded, but for which the simulation had a translation.
    pub faults_recorded_amiss: u64,
    /// Calls that no kernel would have carried out (overlapping mremap, unaligned addresses); they were skipped.
    pub impossible: u64,
    /// Pages whose translations calls removed.
    pub pages_unmapped: u64,
    /// Pages that forked children share with their parents.
    pub pages_shared: u64,
    /// Pages that a fault engine had mapped and calls accounted for.
    pub pages_accounted: u64,
    /// Pages of files that left the page cache because their file was truncated.
    pub pages_cut: u64,
    /// Pages of files that msync wrote.
    pub pages_synced: u64,
    /// Pages of files whose blocks were moved.
    pub pages_relocated: u64,
    /// Times that storage had no room to move blocks to.
    pub relocations_refused: u64,
    /// Pages that MADV_PAGEOUT unmapped.
    pub pages_out: u64,
    /// Cycles of MADV_PAGEOUT for writes to the swap device, without those of devices.
    pub page_out_cycles: Cycles,
    /// Cycles of mapping calls themselves (`kernel.mapping_calls`).
    pub call_cycles: Cycles,
    /// Cycles of msync, without those of devices.
    pub sync_cycles: Cycles,
    /// Cycles of writing the entries of new mappings for a fault engine, and of removing them.
    pub fill_cycles: Cycles,
}

/// Translations to invalidate in the TLBs.
#[derive(Clone, Debug, Default)]
pub struct Invalidation {
    /// Their ranges, all in one address space.
    pub ranges: Vec<VaRange>,
    /// The segments among the ranges that walks reach by other entries than before.
    pub segments: Vec<VaRange>,
    /// Number of mapped pages in the ranges.
    pub pages: u64,
    /// Whether to flush the whole address space instead.
    pub full: bool,
    /// Whether a recorded kernel made the change: its own instructions are in the trace.
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
