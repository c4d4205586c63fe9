//! Layers: kernels stacked on each other, each with its page tables, its frames and its address spaces.
//!
//! The bottom layer runs on the machine. Every other layer is hosted by an address space of the layer below, in which
//! its physical memory is an ordinary mapping. Several layers may share a host. No code here knows how deep the stack
//! is.

mod ahead;
mod backing;
mod batches;
mod boot;
pub mod changed_entries;
pub mod code;
pub mod contents;
mod contiguity;
pub mod data;
pub mod engine;
mod fault_locks;
mod memory_files;
mod out_of_memory;
mod page_cache;
mod recorded;
mod regions;
pub mod requests;
mod segments;
mod shared_segments;
mod space;
mod spaces;
mod stage_lines;
mod tables;
mod translation_caches;
mod user_pages;
pub mod words;

pub use backing::is_backed;
pub use data::{CpuData, CpuLine, KernelData};
pub use shared_segments::{SharedSegmentCounters, SharedSegments};
pub use space::{AddressSpace, AsidAllocator};
pub use spaces::Spaces;

use pagelab_base::ids::{CpuId, DIRECT_MAP, SpaceId, SpaceIx};
use std::collections::BTreeMap;

use crate::ballooned::BalloonPages;
use crate::config::{Backing, InvalidationCause, LargePages};
use crate::context::KernelContext;
use crate::direct_segment::SegmentMemory;
use crate::dissolve::DissolvedCounters;
use crate::fault_engine::kernel_side::EngineState;
use crate::frame_tags::FrameTags;
use crate::frames::contiguity::{Contiguity, ContiguousRun};
use crate::frames::frame_alloc::{Aged, AllocEffects, FrameAllocator, FramePurpose};
use crate::frames::supply::FrameCounters;
use crate::inverted_table::InvertedTable;
use crate::memory::{LayerMemory, Memory};
use crate::mmap_misses::MmapMisses;
use crate::page_ranges::PageRanges;
use crate::placement::Placement;
use crate::reclaim::{GroupId, PageOf, Rmap};
use crate::shadows::Shadows;
use crate::table_blocks::{TableBlocks, free_table};
use crate::translation_cache::{SpaceCaches, TranslationCaches};
use crate::vma::{BrkCounters, VaRange, VmaSet};
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_tables::page_table::{Exhausted, Leaf, Mapping, NoRoom, PageTable, PteFlags, Removed, WalkList};
use pagelab_trace::quantity::Bytes;

/// Start of the direct map (Linux x86-64 with four levels, Documentation/arch/x86/x86_64/mm.rst), cut to the bits that
/// page tables translate.
const DIRECT_MAP_BASE: u64 = 0x8880_0000_0000;

/// Pages that [`Layer::next_mapped`] lists at a time.
const PAGES_AT_A_TIME: usize = 512;

/// A kernel, its memory, and the address spaces that it maps.
#[derive(Clone)]
pub struct Layer {
    /// Its name in the configuration.
    pub name: String,
    /// The address space that holds this layer's physical memory; none for the layer on the machine.
    pub host: Option<SpaceId>,
    /// Memory that its guests believe to have, in bytes; all of it, if they use it, must be in this layer's frames or
    /// on its swap device.
    pub guest_bytes: u64,
    /// Its physical memory.
    pub memory: LayerMemory,
    /// Its address spaces.
    pub spaces: Spaces,
    /// Addresses of the kernel's own objects.
    pub data: KernelData,
    /// How it maps memory.
    pub paging: PagingPolicy,
    /// The mechanisms that it runs with.
    pub mechanisms: Mechanisms,
    /// Counters that belong to none of the other parts.
    pub counters: LayerCounters,
}

/// How a layer maps memory, from its configuration.
#[derive(Clone, Debug)]
pub struct PagingPolicy {
    /// Largest page with which anonymous memory is mapped.
    pub page_size: PageSize,
    /// When the host allocates frames for this layer's memory.
    pub backing: Backing,
    /// Which mappings get pages above 4 KiB.
    pub large_pages: LargePages,
    /// Alignment of the ends of program heaps, if they are aligned to more than a page.
    pub brk_alignment: Option<Bytes>,
    /// Folio orders for anonymous memory besides single and large pages, or block orders of eager paging; ascending.
    pub folio_orders: Vec<u32>,
    /// Whether `folio_orders` are blocks that the placement policy maps before any access.
    pub blocks_ahead: bool,
    /// Folio orders for pages of files.
    pub file_folio_orders: Vec<u32>,
    /// Pages that a fault maps, if not as many as `kernel.pages_per_fault` says.
    pub pages_per_fault: Option<u32>,
    /// Whether the host keeps shadow page tables for it (`pagelab_translate::scheme::shadow`).
    pub shadowed: bool,
    /// Whether these are one inverted table, not one for each space (`pagelab_translate::scheme::inverted_shadow`).
    pub inverted: bool,
}

/// The mechanisms that a layer runs with, each with its state.
#[derive(Clone)]
pub struct Mechanisms {
    /// Placement policy for anonymous pages.
    pub placement: Placement,
    /// Fault engine; its state is in the layer's memory.
    pub engine: Option<EngineState>,
    /// Caches for the walks of faults.
    pub translation_caches: Option<TranslationCaches>,
    /// Memory for direct segments.
    pub segment_memory: Option<SegmentMemory>,
    /// Segments of the hashed table that spaces share.
    pub shared_segments: Option<SharedSegments>,
    /// The table in which guests look up their pages, speculatively or instead of walks.
    pub inverted_table: Option<InvertedTable>,
    /// Tags of the machine's frames.
    pub frame_tags: Option<FrameTags>,
    /// Shadow tables of its spaces, and changes since they were filled; empty without shadow paging.
    pub shadows: Shadows,
    /// Blocks for leaf tables.
    pub table_blocks: Option<TableBlocks>,
    /// Pages in the memory balloon of a guest.
    pub balloon: BalloonPages,
}

/// Counters that belong to none of a layer's parts.
#[derive(Clone, Default)]
pub struct LayerCounters {
    /// Counters of calls that move the end of a heap.
    pub brk: BrkCounters,
    /// State of the memory after ageing.
    pub aged: Option<Aged>,
    /// Contiguity of the memory of spaces that have ended.
    pub ended_contiguity: Contiguity,
    /// What reclaim took from late segments.
    pub dissolved: DissolvedCounters,
    /// Runs of adjacent frames of those spaces, if they are recorded.
    pub contiguity_map: Option<Vec<ContiguousRun>>,
}

impl Layer {
    /// Virtual address of a physical address in the kernel's direct map.
    #[inline]
    pub fn direct(&self, addr: PhysAddr) -> VirtAddr {
        VirtAddr(DIRECT_MAP_BASE + addr.0)
    }

    /// Bytes of physical memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.frame_count << FRAME_SHIFT
    }

    /// The allocator, for reading.
    pub fn frame_allocator(&self) -> &dyn FrameAllocator {
        &*self.memory.frames.allocator
    }

    /// The placement policy, with the memory that it works on.
    pub fn placing(&mut self, context: KernelContext) -> (&mut Placement, Memory<'_>) {
        (&mut self.mechanisms.placement, Memory { layer: &mut self.memory, context })
    }

    /// The memory, for changes in a context.
    pub fn memory_for(&mut self, context: KernelContext) -> Memory<'_> {
        Memory { layer: &mut self.memory, context }
    }

    /// The context of a kernel that runs on a CPU for a space.
    pub fn context(&self, cpu: CpuId, index: SpaceIx) -> KernelContext {
        KernelContext { cpu, group: self.spaces[index].group }
    }

    /// The frame of the objects of a space.
    pub fn objects(&self, space: SpaceIx) -> Pfn {
        self.spaces[space].objects
    }

    /// Frames of page tables, including reserved ones that are not in use.
    pub fn table_frames(&self) -> u64 {
        let untouched = self.spaces.iter().map(|space| space.table.untouched_frames());
        self.memory.contents.frames_in_use() as u64 + untouched.sum::<u64>()
            - self.mechanisms.placement.table_frames()
            - self.mechanisms.engine.as_ref().map_or(0, EngineState::table_frames)
            - self.translation_cache_frames()
            - self.request_frames()
            - self.stage_line_frames()
            - self.vma_lock_frames()
            - self.code_frames()
    }

    /// Effects of the allocator's last request.
    pub fn last_effects(&self) -> &AllocEffects {
        &self.memory.frames.effects
    }

    /// Counters of the frame allocator.
    pub fn frame_counters(&self) -> &FrameCounters {
        &self.memory.frames.counters
    }

    /// Allocates one frame for the kernel itself; `what` names it in the error.
    pub fn take_frame(
        &mut self,
        context: KernelContext,
        purpose: FramePurpose,
        what: &str,
    ) -> Result<Pfn, EngineError> {
        loop {
            if let Some(frame) = self.memory.frames.alloc(0, purpose, context.cpu) {
                return Ok(frame);
            }
            let found = self.give_back_table_frames(context)
                || self.free_unused_segment(context.cpu)
                || self.deflate_at_once(context);
            if !found {
                return Err(self.out_of_memory(what));
            }
        }
    }

    /// Frames that were reserved at boot, for page metadata, tables and a segment.
    pub fn boot_reserved_frames(&self) -> u64 {
        self.memory.set_aside
    }

    /// Creates an empty address space.
    pub fn add_space(&mut self, context: KernelContext, asids: &mut AsidAllocator) -> Result<SpaceIx, EngineError> {
        self.add_space_of(context, None, asids)
    }

    /// Creates an address space for a guest with `bytes` of memory, at most as many as announced at boot.
    pub fn add_guest_space(
        &mut self,
        context: KernelContext,
        bytes: u64,
        asids: &mut AsidAllocator,
    ) -> Result<SpaceIx, EngineError> {
        self.add_space_of(context, Some(bytes), asids)
    }

    fn add_space_of(
        &mut self,
        context: KernelContext,
        guest: Option<u64>,
        asids: &mut AsidAllocator,
    ) -> Result<SpaceIx, EngineError> {
        let objects = self.take_frame(context, FramePurpose::KernelObject, "an address space")?;
        let table = self.new_table(context, guest)?;
        let off = self.mechanisms.engine.as_ref().is_some_and(EngineState::is_off_at_start);
        let vmas = VmaSet::default().with_brk_alignment(self.paging.brk_alignment).with_engine_off(off);
        if let Some(index) = self.spaces.retired.pop() {
            let space = &mut self.spaces[index];
            (space.table, space.objects) = (table, objects);
            space.vmas = vmas;
            return Ok(index);
        }
        let record = self.spaces.check.then(BTreeMap::new);
        self.spaces.list.push(AddressSpace {
            asid: asids.take()?,
            table,
            caches: SpaceCaches::default(),
            vmas,
            group: GroupId::REST,
            uses_placement: true,
            uses_fault_engine: true,
            reported: false,
            segment: None,
            misses: MmapMisses::default(),
            resident: 0,
            words: 0,
            small_page_words: BTreeMap::new(),
            discarded: PageRanges::default(),
            objects,
            record,
        });
        Ok(SpaceIx::from(self.spaces.len() - 1))
    }

    /// Ends a space without mappings. Its tag may be reused, so the caller must have flushed it.
    pub fn retire_space(&mut self, context: KernelContext, index: SpaceIx) {
        let placeholder = PageTable::x86_64(4, &mut PhysMem::default(), &mut |_| Some(Pfn(0)));
        let Ok(placeholder) = placeholder else { unreachable!("a frame was given") };
        let space = &mut self.spaces[index];
        assert_eq!((space.words, space.small_page_words.len()), (0, 0), "words of a space that ends");
        let (table, objects) = (std::mem::replace(&mut space.table, placeholder), space.objects);
        self.spaces.tables.destroy(table, &mut self.memory.contents, &mut |pfn| {
            free_table(&mut self.mechanisms.table_blocks, &mut self.memory.frames, pfn, context.cpu);
        });
        self.memory.frames.free(objects, 0, context.cpu);
        self.spaces[index].reported = false;
        self.spaces.retired.push(index);
    }

    /// Adds the frames of a page to the reverse map or removes them, if there is one.
    fn note_mapped(&mut self, index: SpaceIx, va: VirtAddr, mapping: &Mapping, note: fn(&mut Rmap, Pfn, PageOf)) {
        if let Some(reclaim) = &mut self.memory.reclaim
            && mapping.pfn != self.memory.page_use.zero_page()
        {
            for n in 0..1 << mapping.size.order() {
                note(&mut reclaim.rmap, mapping.pfn + n, (index, va.page_number() + n));
            }
        }
    }

    /// Maps a page and records it. All tables must exist. Errors: the page table has no place for it.
    pub fn map(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        va: VirtAddr,
        mapping: Mapping,
    ) -> Result<(), EngineError> {
        self.note_mapped(index, va, &mapping, Rmap::add);
        self.map_unlisted(context, index, va, mapping)
    }

    /// Accounts for a mapped page: reverse map and LRU lists.
    fn note_listed(&mut self, index: SpaceIx, va: VirtAddr, mapping: &Mapping) {
        self.note_mapped(index, va, mapping, Rmap::add);
        self.list_page(mapping);
    }

    /// [`Self::map`] for a page that is added to the reverse map later.
    fn map_unlisted(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        va: VirtAddr,
        mapping: Mapping,
    ) -> Result<(), EngineError> {
        if self.spaces.check {
            let range = VaRange { start: va, end: va + mapping.size.bytes() };
            assert!(!self.has_words(index, range), "{va:?} of space {index} is mapped where a word is");
        }
        self.keep_out_of_shared(context, index, va)?;
        self.spaces[index].resident += self.counted_frames(&mapping);
        let space = &mut self.spaces[index];
        if let Some(record) = &mut space.record {
            for page in 0..1 << mapping.size.order() {
                let frame = (mapping.pfn + page, mapping.flags.writable);
                let old = record.insert(va.page_number() + page, frame);
                assert!(old.is_none(), "{va:?} is mapped twice");
            }
        }
        let mapped = space.table.map(&mut self.memory.contents, va, mapping);
        self.collect_table_work(context, index);
        mapped.map_err(|NoRoom| self.exhausted(Exhausted::Places(va)))?;
        self.map_elsewhere(index, va, &mapping);
        Ok(())
    }

    /// Frames of a page that count for its process.
    fn counted_frames(&self, mapping: &Mapping) -> u64 {
        if mapping.pfn == self.memory.page_use.zero_page() { 0 } else { 1 << mapping.size.order() }
    }

    /// Whether no page is mapped at `va`.
    pub fn is_unmapped(&self, index: SpaceIx, va: VirtAddr) -> bool {
        let mut list = WalkList::new();
        self.spaces[index].table.walk(&self.memory.contents, va, &mut list);
        matches!(list.leaf, Leaf::NotPresent { .. })
    }

    /// Replaces the frame or flags of a mapped page, with the same size. Returns the entry's address.
    pub fn remap(&mut self, index: SpaceIx, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        let mut list = WalkList::new();
        self.spaces[index].table.walk(&self.memory.contents, va, &mut list);
        let Leaf::Present(old) = list.leaf else { unreachable!("the page is mapped") };
        let (less, more) = (self.counted_frames(&old), self.counted_frames(&mapping));
        let resident = &mut self.spaces[index].resident;
        *resident = *resident + more - less;
        if self.memory.reclaim.is_some() {
            self.note_mapped(index, va, &old, Rmap::remove);
            self.note_mapped(index, va, &mapping, Rmap::add);
        }
        for (other, va) in self.elsewhere(index, va) {
            assert_eq!(old.pfn, mapping.pfn, "a page of a shared segment keeps its frame");
            self.record_access(other, va, &mapping);
        }
        let space = &mut self.spaces[index];
        if let Some(record) = &mut space.record {
            for page in 0..1 << mapping.size.order() {
                let frame = (mapping.pfn + page, mapping.flags.writable);
                record.insert(va.page_number() + page, frame).expect("the page is mapped");
            }
        }
        space.table.replace(&mut self.memory.contents, va, mapping)
    }

    /// Unmaps a page. The caller decides what happens to its frames. Tables stay, as after reclaim and MADV_DONTNEED.
    pub fn unmap(&mut self, context: KernelContext, index: SpaceIx, page: &Removed) {
        self.forget(context, index, page);
        self.take_entry(index, page.va);
    }

    /// Removes a page from everything except the page table.
    pub fn forget(&mut self, context: KernelContext, index: SpaceIx, page: &Removed) {
        let (placement, mut memory) = self.placing(context);
        placement.unmapped(index, page.va, &mut memory);
        self.note_mapped(index, page.va, &page.mapping, Rmap::remove);
        self.note_dirty(page);
        self.spaces[index].resident -= self.counted_frames(&page.mapping);
        let space = &mut self.spaces[index];
        if let Some(record) = &mut space.record {
            for n in 0..1 << page.mapping.size.order() {
                record.remove(&(page.va.page_number() + n));
            }
        }
    }

    /// Leaves the entries of a space without mappings in its page table to a later scan.
    pub fn abandon_table(&mut self, index: SpaceIx) -> Result<(), EngineError> {
        let abandoned = self.spaces.abandon_table(index, &mut self.memory.contents);
        if abandoned { Ok(()) } else { Err(self.exhausted(Exhausted::Tags)) }
    }

    /// Frees the empty tables of a range that cover nothing outside its room, which is that of no other mapping (Linux
    /// `free_pgtables`, `floor` and `ceiling`).
    pub fn prune(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        (range, room): (VaRange, VaRange),
        cause: InvalidationCause,
    ) {
        let (cpu, before) = (context.cpu, self.memory.contents.destroyed());
        let table = &mut self.spaces[index].table;
        let (parts, room) = ((range.start, range.end), (room.start, room.end));
        table.prune(&mut self.memory.contents, parts, room, &mut |pfn| {
            free_table(&mut self.mechanisms.table_blocks, &mut self.memory.frames, pfn, cpu);
        });
        if self.memory.contents.destroyed() > before {
            self.forget_freed_tables(index, range, cause);
        }
    }

    /// Frees the table of 4 KiB pages where a page of 2 MiB will be mapped; the tables above it stay (Linux
    /// `collapse_huge_page`).
    pub fn free_leaf_table(&mut self, context: KernelContext, index: SpaceIx, va: VirtAddr) {
        if let Some(table) = self.spaces[index].table.unlink_leaf_table(&mut self.memory.contents, va) {
            free_table(&mut self.mechanisms.table_blocks, &mut self.memory.frames, table, context.cpu);
            self.forget_leaf_table(index);
        }
    }

    /// Changes the permissions of a mapped page.
    pub fn protect(&mut self, index: SpaceIx, page: &Removed, flags: PteFlags) {
        let mapping = Mapping { flags, ..page.mapping };
        for (other, va) in self.elsewhere(index, page.va) {
            self.record_access(other, va, &mapping);
        }
        self.record_access(index, page.va, &mapping);
        self.spaces[index].table.set_flags(&mut self.memory.contents, page.va, flags);
    }

    /// Records whether stores to a mapped page are allowed.
    fn record_access(&mut self, index: SpaceIx, va: VirtAddr, mapping: &Mapping) {
        if let Some(record) = &mut self.spaces[index].record {
            for n in 0..1 << mapping.size.order() {
                record.get_mut(&(va.page_number() + n)).expect("the page is mapped").1 = mapping.flags.writable;
            }
        }
    }

    /// All pages of a space that overlap `start..end`; for small ranges.
    pub fn mapped(&self, index: SpaceIx, start: VirtAddr, end: VirtAddr) -> Vec<Removed> {
        let mut out = Vec::new();
        self.spaces[index].table.mapped(&self.memory.contents, start, end, usize::MAX, &mut out);
        out
    }

    /// Calls a function for each page of a space that overlaps `start..end`, in ascending order; returns the number of
    /// pages. Lists a few pages at a time, so that a large range takes no memory.
    pub fn for_mapped<E>(
        &mut self,
        index: SpaceIx,
        start: VirtAddr,
        end: VirtAddr,
        mut each: impl FnMut(&mut Self, &Removed) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut pages = Vec::with_capacity(PAGES_AT_A_TIME);
        let (mut from, mut count) = (start, 0);
        while from < end {
            from = self.next_mapped(index, from, end, &mut pages);
            for page in &pages {
                each(self, page)?;
            }
            count += pages.len() as u64;
        }
        Ok(count)
    }

    /// Lists the next pages of a space that overlap `from..end` in `pages`; returns where to continue.
    pub fn next_mapped(&self, index: SpaceIx, from: VirtAddr, end: VirtAddr, pages: &mut Vec<Removed>) -> VirtAddr {
        pages.clear();
        self.spaces[index].table.mapped(&self.memory.contents, from, end, PAGES_AT_A_TIME, pages);
        match pages.last() {
            Some(last) if pages.len() == PAGES_AT_A_TIME => last.va + last.mapping.size.bytes(),
            _ => end,
        }
    }

    /// Splits large pages across the edges of `start..end`, so that every page lies inside the range or outside. Words
    /// of such pages are removed.
    pub fn split_at_edges(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        start: VirtAddr,
        end: VirtAddr,
    ) -> Result<(), EngineError> {
        self.cut_words(context, index, start, end);
        for edge in [start, end] {
            while let Some(page) = self.mapped(index, edge, edge + 1).first().copied() {
                if page.va == edge {
                    break;
                }
                let frame = self.take_split_table(context, index)?;
                self.split_page(context, index, page.va, frame)?;
            }
        }
        Ok(())
    }

    /// The kernel's record of a page: its frame, and whether stores are allowed. Only with `--check`.
    pub fn recorded(&self, index: SpaceIx, va: VirtAddr) -> Option<(Pfn, bool)> {
        let page = va.page_number();
        if index == DIRECT_MAP {
            let pfn = page.checked_sub(DIRECT_MAP_BASE >> FRAME_SHIFT)?;
            return (pfn < self.memory.frame_count).then_some((Pfn(pfn), true));
        }
        let space = &self.spaces[index];
        let segment = space.segment.as_ref().and_then(|segment| segment.frame(va));
        segment.map(|frame| (frame, true)).or_else(|| space.record.as_ref()?.get(&page).copied())
    }
}
