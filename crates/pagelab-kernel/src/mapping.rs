//! Mapping calls: effects of mmap, munmap, mremap, mprotect, madvise and brk, fork, exec and exit on page tables and
//! frames.
//!
//! Models: the immediate effect on VMAs, page tables and frames. The translations to invalidate are returned as an
//! [`Invalidation`].
//! Source: Linux kernel/fork.c, mm/memory.c (`copy_page_range`), mm/mmap.c, mm/mremap.c, mm/mprotect.c, mm/madvise.c;
//! arch/x86/mm/tlb.c for the full-flush ceiling.
//! Deviations: after MADV_FREE, contents on the swap device are dropped only when the pages are read back and leave
//! memory again.

use crate::config::InvalidationCause;
use crate::context::KernelContext;
use crate::direct_segment::taken_by;
use crate::effects::Effects;
use crate::entry_word::EntryWord;
use crate::fault::Ahead;
use crate::fault_engine::kernel_side::FilledEntries;
use crate::invalidation::Invalidation;
use crate::layer::Layer;
use crate::layer::engine::ArmingMode;
use crate::needs::Need;
use crate::os::Os;
use crate::vma::{PageAdvice, VaRange, Vma, VmaChange, VmaKind};
use pagelab_base::addr::{FRAME_BYTES, Pfn, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CpuId, LayerId, SpaceId, SpaceIx};
use pagelab_base::io::DeviceRequest;
use pagelab_base::page_fault::Intent;
use pagelab_base::step::BlockKey;
use pagelab_tables::page_table::{PteFlags, Removed};
use pagelab_trace::{EventKind, MapFlags, Protection};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Consequences of a mapping call.
#[derive(Clone, Debug, Default)]
pub struct Consequences {
    /// Translations to invalidate in the TLBs.
    pub gone: Invalidation,
    /// Translations to invalidate of other address spaces.
    pub elsewhere: Vec<(SpaceId, Invalidation)>,
    /// Mappings that are gone.
    pub unmapped: Vec<Vma>,
    /// Writes to the swap area that the program waits for.
    pub writes: Vec<DeviceRequest>,
    /// Frames of those that a host has swapped out.
    pub absent: Vec<Pfn>,
    /// Ranges to populate, and why.
    pub populate: Vec<(VaRange, Ahead)>,
}

impl Os {
    /// Carries out a mapping call.
    pub fn change_mappings(
        &mut self,
        effects: &mut Effects,
        cpu: CpuId,
        space: SpaceId,
        kind: &EventKind,
    ) -> Result<Consequences, EngineError> {
        let recorded = is_recorded(kind);
        self.mapping.calls += u64::from(!recorded);
        let layer = &mut self.layers[space.layer];
        let context = layer.context(cpu, space.index);
        let mut outcome = Consequences::default();
        outcome.gone.recorded = recorded;
        let vmas = &mut layer.spaces[space.index].vmas;
        let changes = match kind {
            EventKind::Mmap { addr, len, prot, flags, file: None, .. } if is_shared_anonymous(*flags) => {
                // A new object, identified by its position among all shared memory; it does not adjoin the last one.
                let (addr, len, prot, flags, file_offset) = (*addr, *len, *prot, *flags, self.shared_bytes);
                self.shared_bytes += len.next_multiple_of(FRAME_BYTES) + FRAME_BYTES;
                vmas.apply(&EventKind::Mmap { addr, len, prot, flags, file: None, file_offset })
            }
            kind => vmas.apply(kind),
        };
        let Ok(changes) = changes else {
            self.mapping.impossible += 1;
            return Ok(outcome);
        };
        if matches!(kind, EventKind::Brk { .. }) {
            layer.counters.brk.count(vmas.brk_outcome());
        }
        for change in changes {
            self.follow(effects, context, space, change, &mut outcome)?;
        }
        let layer = &mut self.layers[space.layer];
        // Not before all entries are gone: several of these mappings may show one page.
        outcome.unmapped.drain(..).for_each(|vma| layer.release_memory_pages(context, &vma));
        layer.follow_mappings(context, space.index);
        for segment in layer.take_rewritten_segments(space.index) {
            outcome.gone.add(segment, 1);
            outcome.gone.segments.push(segment);
        }
        if let EventKind::Madvise { addr, len, .. } = *kind
            && let Ok(range) = VaRange::from_bytes(addr, len)
        {
            // Advice does not change the mappings, but may split pages.
            self.account_for_taken(space);
            let layer = &mut self.layers[space.layer];
            // Advice may have split a mapping in two (`vma_adjust_trans_huge`).
            for edge in [range.start, range.end] {
                if layer.spaces[space.index].vmas.find(edge).is_some_and(|vma| vma.start == edge) {
                    layer.split_at_edges(context, space.index, edge, edge)?;
                }
            }
            layer.cut_too_large_words(context, space.index, range);
            for place in layer.free_armed_tables(context, space.index, range) {
                outcome.gone.add(place, place.pages());
            }
        }
        self.request_arming_after_split(effects, context, space.layer);
        let layer = &mut self.layers[space.layer];
        let populate = std::mem::take(&mut outcome.populate)
            .into_iter()
            .flat_map(|(range, why)| layer.outside_segment(space.index, range).map(|part| (part, why)));
        outcome.populate = populate.filter(|(range, _)| !range.is_empty()).collect();
        Ok(outcome)
    }

    /// Updates page table and frames for a change of the mappings.
    fn follow(
        &mut self,
        effects: &mut Effects,
        context: KernelContext,
        space: SpaceId,
        change: VmaChange,
        outcome: &mut Consequences,
    ) -> Result<(), EngineError> {
        let Consequences { gone, unmapped, populate, .. } = outcome;
        if !matches!(change, VmaChange::Mapped { .. } | VmaChange::Recorded { .. }) {
            self.account_for_taken(space);
        }
        if let VmaChange::Mapped { range, .. } | VmaChange::Recorded { range } = change {
            self.layers[space.layer].lay_out(space.index, range)?;
            self.note_sharing(space, range, false)?;
        }
        let layer = &mut self.layers[space.layer];
        if let Some(range) = taken_by(&change) {
            let unmapped = matches!(change, VmaChange::Unmapped { .. });
            layer.leave_shared_segments(context, space.index, range, unmapped)?;
        }
        if let Some(range) = taken_by(&change)
            && let Some(left) = layer.leave_segment(space.index, range)
        {
            gone.add(left, left.pages());
        }
        match change {
            VmaChange::Mapped { range, populate: true } => {
                // For private writable mappings, the pages are copied at once (`populate_vma_page_range`).
                let vma = layer.spaces[space.index].vmas.find(range.start);
                let store = vma.is_some_and(|vma| vma.prot.write && !vma.is_shared());
                populate.push((range, Ahead::Asked(if store { Intent::Store } else { Intent::Load })));
                layer.begin_segment(space.index, range);
                layer.begin_region(space.index, range);
                layer.share_segments(space.index, range);
            }
            VmaChange::Mapped { range, populate: false } => {
                layer.begin_segment(space.index, range);
                layer.begin_region(space.index, range);
                layer.share_segments(space.index, range);
                if layer.maps_ahead(context, space.index, range) {
                    populate.push((range, Ahead::Policy));
                }
                self.request_arming(effects, context, space, range);
            }
            VmaChange::Recorded { range } => {
                self.mapping.pages_recorded += layer.map_recorded(context, space.index, range)?
            }
            VmaChange::Unmapped { vma, room } => {
                let pages = remove_pages(context, layer, space.index, vma.range())?;
                layer.detach_segments(space.index, vma.range());
                layer.drop_translation_caches(context, space.index, vma.range(), InvalidationCause::Unmap);
                layer.prune(context, space.index, (vma.range(), room), InvalidationCause::Unmap);
                layer.end_regions(space.index);
                layer.mechanisms.placement.mapping_gone(space.index, vma.range());
                self.mapping.pages_unmapped += pages;
                gone.add(vma.range(), pages);
                unmapped.push(vma);
            }
            VmaChange::Discarded { range } => {
                let pages = remove_pages(context, layer, space.index, range)?;
                self.mapping.pages_unmapped += pages;
                gone.add(range, pages);
            }
            VmaChange::Protected { range, from, to } => {
                let pages = protect_pages(context, layer, space.index, range, to)?;
                gone.add(range, pages);
                layer.protect_words(context, space.index, range)?;
                if !(from.read || from.write) {
                    self.request_arming(effects, context, space, range);
                }
            }
            VmaChange::Moved { from, to, room } => {
                let pages = move_pages(context, layer, space.index, (from, room), to)?;
                layer.mechanisms.placement.mapping_moved(space.index, from, to);
                gone.add(from, pages);
            }
            VmaChange::Advised { range, advice } => self.follow_advice(context, space, range, advice, outcome)?,
        }
        Ok(())
    }

    /// Carries out advice on pages.
    fn follow_advice(
        &mut self,
        context: KernelContext,
        space: SpaceId,
        range: VaRange,
        advice: PageAdvice,
        outcome: &mut Consequences,
    ) -> Result<(), EngineError> {
        let layer = &mut self.layers[space.layer];
        let Consequences { gone, elsewhere, writes, absent, populate, .. } = outcome;
        match advice {
            PageAdvice::PopulateRead => {
                populate.push((range, Ahead::Asked(Intent::Load)));
            }
            PageAdvice::PopulateWrite => {
                populate.push((range, Ahead::Asked(Intent::Store)));
            }
            PageAdvice::Remove => {
                for (owner, what) in self.punch_memory_file(context.cpu, space, range)? {
                    self.mapping.pages_unmapped += what.pages;
                    elsewhere.push((owner, what));
                }
                let layer = &mut self.layers[space.layer];
                let pages = remove_pages(context, layer, space.index, range)?;
                self.mapping.pages_unmapped += pages;
                gone.add(range, pages);
            }
            PageAdvice::Free => {
                let pages = free_lazily(context, layer, space.index, range)?;
                gone.add(range, pages);
            }
            PageAdvice::Cold => {
                let pages = layer.make_cold(space.index, range);
                gone.add(range, pages);
            }
            PageAdvice::PageOut => {
                let out = layer.page_out(context, space.index, range);
                self.mapping.pages_out += out.pages;
                gone.add(range, out.pages);
                writes.extend(out.writes);
                absent.extend(self.absent_in_host(space.layer, &out.outgoing));
            }
            PageAdvice::WillNeed | PageAdvice::Collapse => {}
        }
        Ok(())
    }

    /// Requests that the entries of a new mapping are armed, if the layer has an engine for it.
    pub fn request_arming(&mut self, effects: &mut Effects, context: KernelContext, space: SpaceId, range: VaRange) {
        match self.layers[space.layer].request_arming(context, space.index, range) {
            ArmingMode::Nothing => {}
            ArmingMode::Thread => effects.wake(space.layer, Need::Arming),
            ArmingMode::Filled(cycles) => self.mapping.fill_cycles += cycles,
            ArmingMode::FilledParts(each, parts) => self.fills.push(FilledEntries { space, each, parts }),
        }
    }

    /// Handles a new mapping of a file that may have other mappings.
    fn note_sharing(&mut self, space: SpaceId, range: VaRange, by_fork: bool) -> Result<(), EngineError> {
        let (accounted, taken_back) = self.layers[space.layer].note_sharing(space.index, range, by_fork)?;
        self.mapping.pages_accounted += accounted;
        self.mapping.fill_cycles += taken_back;
        Ok(())
    }

    /// Requests that entries are armed in another size where words of large pages were removed.
    pub fn request_arming_after_split(&mut self, effects: &mut Effects, context: KernelContext, layer: LayerId) {
        for (index, range) in std::mem::take(&mut self.layers[layer].spaces.cut) {
            self.request_arming_of_all(effects, context, SpaceId { layer, index }, range);
        }
    }

    /// [`Self::request_arming`] for all mappings in a range.
    fn request_arming_of_all(&mut self, effects: &mut Effects, context: KernelContext, space: SpaceId, range: VaRange) {
        let vmas = &self.layers[space.layer].spaces[space.index].vmas;
        let inside = |vma: &Vma| VaRange { start: vma.start.max(range.start), end: vma.end.min(range.end) };
        let parts: Vec<VaRange> = vmas.iter().map(inside).filter(|part| part.start < part.end).collect();
        parts.into_iter().for_each(|part| self.request_arming(effects, context, space, part));
    }

    /// The key that a mapping call must wait for, if any: the lock under which a kernel thread accounts for pages of
    /// the space.
    pub fn engine_block_key(&self, space: SpaceId) -> Option<BlockKey> {
        let layer = &self.layers[space.layer];
        let engine = layer.mechanisms.engine.as_ref()?;
        let tables =
            CpuId::all(layer.data.cpus.len()).flat_map(|cpu| engine.page_sizes().iter().map(move |&size| (cpu, size)));
        let keys = tables.map(|table| (table, BlockKey::Engine { layer: space.layer, table }));
        let mut held = keys.filter(|&(_, key)| self.locks.is_held(key));
        held.find(|&(table, _)| engine.is_used_at(table, space.index, &layer.memory.contents)).map(|(_, key)| key)
    }

    /// Accounts for all pages that the engine has mapped in a space whose mappings are about to change.
    pub fn account_for_taken(&mut self, space: SpaceId) {
        self.mapping.pages_accounted += self.layers[space.layer].account_for_taken(space.index);
    }

    /// Removes all mappings of a space, as exec and exit do.
    pub fn drop_mappings(&mut self, cpu: CpuId, space: SpaceId) -> Result<Invalidation, EngineError> {
        self.account_for_taken(space);
        let layer = &mut self.layers[space.layer];
        let context = layer.context(cpu, space.index);
        let va_bits = layer.spaces[space.index].table.va_bits();
        let everything = VaRange { start: VirtAddr(0), end: VirtAddr(1 << va_bits) };
        if let Some(engine) = &mut layer.mechanisms.engine {
            engine.space_ended(space.index);
        }
        layer.note_contiguity(space.index);
        let vmas = &layer.spaces[space.index].vmas;
        let in_memory = |vma: &&Vma| vma.is_of_memory_file() || vma.is_shared_anonymous();
        let in_memory: Vec<Vma> = vmas.iter().filter(in_memory).cloned().collect();
        let files: BTreeSet<Arc<str>> = vmas.iter().filter_map(|vma| vma.file.clone()).collect();
        layer.spaces[space.index].vmas.clear();
        layer.spaces[space.index].misses.clear();
        let (placement, mut memory) = layer.placing(context);
        placement.space_ended(space.index, &mut memory);
        layer.drop_all_translation_caches(context, space.index);
        layer.leave_segment(space.index, everything);
        let mut pages = 0;
        for part in layer.shared_parts(space.index) {
            pages += remove_pages(context, layer, space.index, part)?;
        }
        layer.detach_segments(space.index, everything);
        // The whole space is flushed.
        layer.take_rewritten_segments(space.index);
        pages += if layer.spaces[space.index].table.clears_lazily() {
            abandon_pages(context, layer, space.index, everything)?
        } else {
            remove_pages(context, layer, space.index, everything)?
        };
        layer.prune(context, space.index, (everything, VaRange::ALL), InvalidationCause::Exit);
        layer.end_regions(space.index);
        in_memory.iter().for_each(|vma| layer.release_memory_pages(context, vma));
        self.mapping.pages_unmapped += pages;
        for (index, range) in layer.resume_service(&files) {
            let (space, mut effects) = (SpaceId { layer: space.layer, index }, Effects::default());
            let context = self.layers[space.layer].context(cpu, index);
            self.request_arming(&mut effects, context, space, range);
            assert!(effects.wakeups.is_empty(), "the engine of files fills at once");
        }
        Ok(Invalidation { ranges: vec![everything], pages, full: true, ..Invalidation::default() })
    }

    /// Copies the parent's VMAs to a child, and shares the pages whose contents the child could not fault in again
    /// (Linux `dup_mmap`, `vma_needs_copy`). Private pages are write-protected in both until one of them writes.
    /// Returns the parent's translations that changed.
    pub fn fork(&mut self, cpu: CpuId, parent: SpaceId, child: SpaceId) -> Result<Invalidation, EngineError> {
        self.account_for_taken(parent);
        let layer = &mut self.layers[parent.layer];
        let context = layer.context(cpu, parent.index);
        let mut vmas = layer.spaces[parent.index].vmas.fork();
        let mut gone = Invalidation::default();
        if vmas.iter().any(|vma| vma.advice.direct_segment && !vma.advice.wipe_on_fork)
            && let Some(left) = layer.leave_segment(parent.index, VaRange::ALL)
        {
            gone.add(left, left.pages());
        }
        vmas.advise(VaRange::ALL, |advice| advice.direct_segment = false);
        for vma in vmas.iter().filter(|vma| !vma.advice.wipe_on_fork) {
            let (shared, pages) = share_pages(context, layer, parent.index, child.index, vma)?;
            self.mapping.pages_shared += shared;
            gone.add(vma.range(), pages);
            layer.copy_words(context, parent.index, child.index, vma.range())?;
        }
        let files: Vec<VaRange> = vmas.iter().filter(|vma| vma.file.is_some()).map(Vma::range).collect();
        let shared: Vec<VaRange> = vmas.iter().filter(|vma| vma.is_shared()).map(Vma::range).collect();
        layer.spaces[child.index].vmas = vmas;
        shared.into_iter().for_each(|range| layer.share_segments(child.index, range));
        layer.inherit_engine(parent.index, child.index);
        files.into_iter().try_for_each(|range| self.note_sharing(child, range, true))?;
        Ok(gone)
    }

    /// Ends a space without mappings that is in no TLB.
    pub fn retire(&mut self, cpu: CpuId, space: SpaceId) {
        self.layers[space.layer].retire_space(KernelContext::on(cpu), space.index);
    }
}

/// Whether a recorded kernel has made a mapping: its work is in the trace.
pub fn is_recorded(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Mmap { flags, .. } if flags.contains(MapFlags::RECORDED))
}

fn is_shared_anonymous(flags: MapFlags) -> bool {
    flags.contains(MapFlags::SHARED | MapFlags::ANONYMOUS)
}

/// Unmaps the pages of a range and frees their frames; returns the number of pages.
pub(super) fn remove_pages(
    context: KernelContext,
    layer: &mut Layer,
    index: SpaceIx,
    range: VaRange,
) -> Result<u64, EngineError> {
    layer.split_at_edges(context, index, range.start, range.end)?;
    let (placement, mut memory) = layer.placing(context);
    placement.unmapping(index, range, &mut memory);
    layer.drop_words(context, index, range);
    layer.for_mapped(index, range.start, range.end, |layer, page| {
        let entry = layer.entry_to_change(index, page);
        let before = layer.memory.frames.counters;
        layer.unmap(context, index, page);
        layer.put_page(context, &page.mapping);
        layer.note_unmapping(entry, page, &before);
        Ok(())
    })
}

/// Unmaps the page-cache pages of a range of a file's mapping; private copies stay. Returns the number of unmapped
/// pages.
pub(super) fn remove_pages_of_file(
    context: KernelContext,
    layer: &mut Layer,
    index: SpaceIx,
    range: VaRange,
) -> Result<u64, EngineError> {
    for entry in layer.words(index, range) {
        if !matches!(entry.word, EntryWord::Swap(_)) {
            layer.take_word(index, entry.va);
            layer.release_word(context, entry.word);
        }
    }
    let mut removed = 0;
    layer.for_mapped(index, range.start, range.end, |layer, page| {
        if !layer.memory.page_use.is_anonymous(page.mapping.pfn) {
            layer.unmap(context, index, page);
            layer.put_page(context, &page.mapping);
            removed += 1;
        }
        Ok::<(), EngineError>(())
    })?;
    Ok(removed)
}

/// Frees the frames of a whole space, but leaves its entries behind under a tag that is no longer used; returns the
/// number of pages.
fn abandon_pages(
    context: KernelContext,
    layer: &mut Layer,
    index: SpaceIx,
    everything: VaRange,
) -> Result<u64, EngineError> {
    layer.drop_words(context, index, everything);
    let pages = layer.for_mapped(index, everything.start, everything.end, |layer, page| {
        layer.forget(context, index, page);
        layer.put_page(context, &page.mapping);
        Ok::<(), EngineError>(())
    })?;
    layer.abandon_table(index)?;
    Ok(pages)
}

/// Gives up the contents of a range's own anonymous pages until they are written again (`madvise_free_pte_range`), if
/// memory is ever reclaimed; returns the number of pages.
fn free_lazily(context: KernelContext, layer: &mut Layer, index: SpaceIx, range: VaRange) -> Result<u64, EngineError> {
    if layer.memory.reclaim.is_none() {
        return Ok(0);
    }
    layer.split_at_edges(context, index, range.start, range.end)?;
    let mut pages = 0;
    layer.for_mapped(index, range.start, range.end, |layer, page| {
        let (pfn, order) = (page.mapping.pfn, page.mapping.size.order());
        let own = layer.memory.page_use.are_exclusive(pfn, order);
        if own && layer.memory.reclaim.as_mut().is_some_and(|reclaim| reclaim.free_lazily(pfn, order)) {
            layer.note_change(layer.entry_to_change(index, page), page);
            layer.protect(index, page, PteFlags { accessed: false, dirty: false, ..page.mapping.flags });
            pages += 1;
        }
        Ok::<(), EngineError>(())
    })?;
    Ok(pages)
}

/// Maps the parent's pages of a VMA in the child as well. Returns the number of pages, and how many of the parent's
/// were write-protected.
fn share_pages(
    context: KernelContext,
    layer: &mut Layer,
    parent: SpaceIx,
    child: SpaceIx,
    vma: &Vma,
) -> Result<(u64, u64), EngineError> {
    let file = vma.kind == VmaKind::File;
    if vma.is_shared() {
        return Ok((0, 0));
    }
    let mut anonymous = !file;
    if file {
        // In a mapping of a file, the child inherits pages only if there are copies.
        layer.for_mapped(parent, vma.start, vma.end, |layer, page| {
            anonymous |= layer.memory.page_use.is_anonymous(page.mapping.pfn);
            Ok::<(), EngineError>(())
        })?;
    }
    if !anonymous {
        return Ok((0, 0));
    }
    let (mut shared, mut protected) = (0, 0);
    layer.for_mapped(parent, vma.start, vma.end, |layer, page| {
        let mut mapping = page.mapping;
        if mapping.flags.writable {
            mapping.flags.writable = false;
            layer.protect(parent, page, mapping.flags);
            protected += 1;
        }
        layer.share_page(&mapping);
        // As in `copy_present_ptes`.
        mapping.flags.accessed = false;
        layer.build_tables(context, child, page.va, mapping.size)?;
        layer.map(context, child, page.va, mapping)?;
        shared += 1;
        Ok::<(), EngineError>(())
    })?;
    Ok((shared, protected))
}

/// Gives the pages of a range new permissions; returns the number of pages.
fn protect_pages(
    context: KernelContext,
    layer: &mut Layer,
    index: SpaceIx,
    range: VaRange,
    prot: Protection,
) -> Result<u64, EngineError> {
    layer.split_at_edges(context, index, range.start, range.end)?;
    let vma = layer.spaces[index].vmas.find(range.start);
    let (shared, notes) = vma.map_or((false, false), |vma| (vma.is_shared(), vma.notes_first_store()));
    layer.for_mapped(index, range.start, range.end, |layer, page| {
        let mut flags = page.mapping.flags;
        // A shared private page stays write-protected, and a page of a shared mapping until its first store
        // (`can_change_pte_writable`). A page that becomes writable is clean until then; one that becomes read-only
        // keeps its dirty bit.
        let own = if shared {
            flags.dirty || !notes
        } else {
            layer.memory.page_use.are_exclusive(page.mapping.pfn, page.mapping.size.order())
        };
        flags.writable = prot.write && own;
        flags.executable = prot.execute;
        layer.note_change(layer.entry_to_change(index, page), page);
        layer.protect(index, page, flags);
        Ok(())
    })
}

/// Moves the pages of a range to another address; returns the number of pages.
fn move_pages(
    context: KernelContext,
    layer: &mut Layer,
    index: SpaceIx,
    (from, room): (VaRange, VaRange),
    to: VirtAddr,
) -> Result<u64, EngineError> {
    layer.split_at_edges(context, index, from.start, from.end)?;
    let offset = to.0.wrapping_sub(from.start.0);
    let pages = layer.for_mapped(index, from.start, from.end, |layer, page| {
        // A large page that would not be aligned at its new address moves in parts.
        if offset.is_multiple_of(page.mapping.size.bytes()) {
            Ok(())
        } else {
            split_into_small_pages(context, layer, index, page)
        }
    })?;
    layer.move_words(context, index, from, to)?;
    layer.for_mapped(index, from.start, from.end, |layer, page| {
        layer.note_change(layer.entry_to_change(index, page), page);
        layer.unmap(context, index, page);
        let va = VirtAddr(page.va.0.wrapping_add(offset));
        layer.build_tables(context, index, va, page.mapping.size)?;
        layer.map(context, index, va, page.mapping)?;
        layer.note_move(index, va, page.mapping.size);
        Ok::<(), EngineError>(())
    })?;
    layer.drop_translation_caches(context, index, from, InvalidationCause::Move);
    layer.prune(context, index, (from, room), InvalidationCause::Move);
    layer.end_regions(index);
    Ok(pages)
}

/// Splits a large page into 4 KiB pages.
fn split_into_small_pages(
    context: KernelContext,
    layer: &mut Layer,
    index: SpaceIx,
    page: &Removed,
) -> Result<(), EngineError> {
    let end = page.va.0 + page.mapping.size.bytes();
    let mut edge = page.va.0 + FRAME_BYTES;
    while edge < end {
        layer.split_at_edges(context, index, VirtAddr(edge), VirtAddr(edge))?;
        edge += 512 * FRAME_BYTES;
    }
    Ok(())
}
