//! Mapping calls: what mmap, munmap, mremap, mprotect, madvise and brk, fork, exec and exit do to page tables and frames.
//!
//! Models: the effect on VMAs, page tables and frames, at once; which translations must leave the TLBs comes back as an
//! [`Invalidation`].
//! Source: Linux mm/mmap.c, mm/mremap.c, mm/mprotect.c, mm/madvise.c; arch/x86/mm/tlb.c for the full-flush ceiling.
//! Deviations: a forked child gets the parent's VMAs but none of its pages, and demands them anew; file pages have no cache
//! of their own; MAP_POPULATE and MADV_POPULATE_* populate nothing, MADV_FREE frees nothing.

use super::Os;
use super::vma::{Change, PageAdvice, VaRange};
use crate::addr::{FRAME_BYTES, VirtAddr};
use crate::error::EngineError;
use crate::layer::{Layer, SpaceId};
use crate::os::frame_alloc::FramePurpose;
use crate::page_table::{Mapping, Removed};
use pagelab_trace::{EventKind, Protection};

/// Above this many pages Linux flushes the whole address space (`tlb_single_page_flush_ceiling`, arch/x86/mm/tlb.c).
const FLUSH_CEILING_PAGES: u64 = 33;

/// What mapping calls did.
#[derive(Clone, Copy, Debug, Default)]
pub struct MappingCounters {
    pub calls: u64,
    /// Calls that no kernel would have carried out (overlapping mremap, unaligned addresses); they were skipped.
    pub impossible: u64,
    pub pages_unmapped: u64,
    pub shootdowns: u64,
    /// CPUs interrupted by shootdowns.
    pub interrupts: u64,
}

/// Translations that must leave the TLBs.
#[derive(Clone, Debug, Default)]
pub struct Invalidation {
    pub ranges: Vec<VaRange>,
    /// Pages in the ranges that were mapped.
    pub pages: u64,
    /// Flush the whole address space instead.
    pub full: bool,
}

impl Invalidation {
    fn add(&mut self, range: VaRange, pages: u64) {
        if pages > 0 {
            self.ranges.push(range);
            self.pages += pages;
            self.full |= self.pages > FLUSH_CEILING_PAGES;
        }
    }
}

impl Os {
    /// Carries a mapping call out.
    pub fn change_mappings(&mut self, space: SpaceId, kind: &EventKind) -> Result<Invalidation, EngineError> {
        self.mapping.calls += 1;
        let layer = &mut self.layers[usize::from(space.layer)];
        let mut gone = Invalidation::default();
        let Ok(changes) = layer.spaces[space.index as usize].vmas.apply(kind) else {
            self.mapping.impossible += 1;
            return Ok(gone);
        };
        for change in changes {
            match change {
                Change::Mapped { .. } => {}
                Change::Unmapped { vma } => {
                    let pages = remove_pages(layer, space.index, vma.range())?;
                    self.mapping.pages_unmapped += pages;
                    gone.add(vma.range(), pages);
                }
                Change::Discarded { range } => {
                    let pages = remove_pages(layer, space.index, range)?;
                    self.mapping.pages_unmapped += pages;
                    gone.add(range, pages);
                }
                Change::Protected { range, to, .. } => {
                    let pages = protect_pages(layer, space.index, range, to)?;
                    gone.add(range, pages);
                }
                Change::Moved { from, to } => {
                    let pages = move_pages(layer, space.index, from, to)?;
                    gone.add(from, pages);
                }
                Change::Advised { range, advice: PageAdvice::Remove } => {
                    let pages = remove_pages(layer, space.index, range)?;
                    self.mapping.pages_unmapped += pages;
                    gone.add(range, pages);
                }
                Change::Advised { .. } => {}
            }
        }
        Ok(gone)
    }

    /// Removes all mappings of a space, as exec and exit do.
    pub fn drop_mappings(&mut self, space: SpaceId) -> Result<Invalidation, EngineError> {
        let layer = &mut self.layers[usize::from(space.layer)];
        let of = &mut layer.spaces[space.index as usize];
        let everything = VaRange { start: VirtAddr(0), end: VirtAddr(1 << of.table.va_bits()) };
        of.vmas.clear();
        let pages = remove_pages(layer, space.index, everything)?;
        self.mapping.pages_unmapped += pages;
        Ok(Invalidation { ranges: vec![everything], pages, full: true })
    }

    /// Gives a child its parent's VMAs.
    pub fn fork(&mut self, parent: SpaceId, child: SpaceId) {
        let layer = &mut self.layers[usize::from(parent.layer)];
        let vmas = layer.spaces[parent.index as usize].vmas.fork();
        layer.spaces[child.index as usize].vmas = vmas;
    }

    /// Ends a space in which nothing is mapped any more and that no TLB knows.
    pub fn retire(&mut self, space: SpaceId) {
        self.layers[usize::from(space.layer)].retire_space(space.index);
    }
}

/// Unmaps the pages of a range and frees their frames; returns how many there were.
fn remove_pages(layer: &mut Layer, index: u32, range: VaRange) -> Result<u64, EngineError> {
    layer.split_at_edges(index, range.start, range.end)?;
    layer.for_mapped(index, range.start, range.end, |layer, page| {
        layer.unmap(index, page);
        layer.free_frames(page.mapping.pfn, page.mapping.size.order());
        Ok(())
    })
}

/// Gives the pages of a range new permissions; returns how many there were.
fn protect_pages(layer: &mut Layer, index: u32, range: VaRange, prot: Protection) -> Result<u64, EngineError> {
    layer.split_at_edges(index, range.start, range.end)?;
    layer.for_mapped(index, range.start, range.end, |layer, page| {
        let mut flags = page.mapping.flags;
        // A page that becomes writable is clean until the first store; one that ceases to be keeps its dirty bit.
        flags.writable = prot.write;
        flags.executable = prot.execute;
        layer.protect(index, page, flags);
        Ok(())
    })
}

/// Moves the pages of a range to another place; returns how many there were.
fn move_pages(layer: &mut Layer, index: u32, from: VaRange, to: VirtAddr) -> Result<u64, EngineError> {
    layer.split_at_edges(index, from.start, from.end)?;
    let offset = to.0.wrapping_sub(from.start.0);
    let pages = layer.for_mapped(index, from.start, from.end, |layer, page| {
        // A large page that would not be aligned at its new place moves as its parts.
        if offset.is_multiple_of(page.mapping.size.bytes()) { Ok(()) } else { split_wholly(layer, index, page) }
    })?;
    layer.for_mapped(index, from.start, from.end, |layer, page| {
        layer.unmap(index, page);
        let va = VirtAddr(page.va.0.wrapping_add(offset));
        build_tables(layer, index, va, &page.mapping)?;
        layer.map(index, va, page.mapping);
        Ok::<(), EngineError>(())
    })?;
    Ok(pages)
}

/// Splits a large page down to 4 KiB pages.
fn split_wholly(layer: &mut Layer, index: u32, page: &Removed) -> Result<(), EngineError> {
    let end = page.va.0 + page.mapping.size.bytes();
    let mut edge = page.va.0 + FRAME_BYTES;
    while edge < end {
        layer.split_at_edges(index, VirtAddr(edge), VirtAddr(edge))?;
        edge += 512 * FRAME_BYTES;
    }
    Ok(())
}

fn build_tables(layer: &mut Layer, index: u32, va: VirtAddr, mapping: &Mapping) -> Result<(), EngineError> {
    while layer.spaces[index as usize].table.missing_tables(&layer.mem, va, mapping.size) > 0 {
        let frame = layer.take_frame(FramePurpose::PageTable, "a page table")?;
        layer.mem.create(frame);
        layer.spaces[index as usize]
            .table
            .link_table(&mut layer.mem, va, mapping.size, frame)
            .expect("a table is missing");
    }
    Ok(())
}
