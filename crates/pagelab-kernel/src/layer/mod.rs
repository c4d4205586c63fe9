//! Layers: kernels stacked on each other, each with its page tables, its frames and its address spaces.
//!
//! The bottom layer runs on the machine; every other is hosted by an address space of the layer below, in which its
//! physical memory is an ordinary mapping. Several layers may share a host. Nothing here knows how deep the stack is.

mod ahead;
mod backing;
mod batches;
mod boot;
pub mod contents;
mod contiguity;
pub mod engine;
mod out_of_memory;
mod page_cache;
mod recorded;
pub mod requests;
mod segments;
mod space;
mod stage_lines;
mod tables;
mod translation_caches;
mod user_pages;
pub mod words;

pub use backing::is_backed;
pub use space::{AddressSpace, AsidAllocator};

use pagelab_base::ids::{CpuId, DIRECT_MAP, SpaceId};
use std::collections::BTreeMap;

use crate::config::{Backing, InvalidationCause, LargePages};
use crate::direct_segment::SegmentMemory;
use crate::fault_engine::kernel_side::EngineState;
use crate::frames::contiguity::{Contiguity, Run};
use crate::frames::frame_alloc::{Aged, AllocEffects, FrameAllocator, FramePurpose};
use crate::frames::page_use::PageUse;
use crate::frames::supply::{FrameCounters, Frames};
use crate::layer::contents::Contents;
use crate::layer::requests::RequestMemory;
use crate::layer::stage_lines::LineMemory;
use crate::memory::{Memory, MemoryView, PAGE_METADATA_BYTES, page_metadata};
use crate::mmap_misses::MmapMisses;
use crate::placement::Placement;
use crate::reclaim::{GroupId, PageOf, Reclaim, Rmap};
use crate::shadows::Shadows;
use crate::speculative_table::SpeculativeTable;
use crate::translation_cache::{SpaceCaches, TranslationCaches};
use crate::vma::{BrkCounters, VaRange, VmaSet};
use pagelab_base::addr::{FRAME_SHIFT, LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_tables::page_table::{
    Exhausted, LayerTables, Leaf, Mapping, NoRoom, PageTable, PteFlags, Removed, TableWork, WalkList,
};
use pagelab_trace::quantity::Bytes;

/// Where the direct map begins (Linux x86-64 with four levels, Documentation/arch/x86/x86_64/mm.rst), cut to the bits
/// that page tables translate.
const DIRECT_MAP_BASE: u64 = 0x8880_0000_0000;

/// Memory cgroups whose lines fit the frame that all CPUs share, two each; those beyond share them.
const GROUPS_A_FRAME: u64 = 31;

/// Pages that [`Layer::next_mapped`] lists at a time.
const PAGES_AT_A_TIME: usize = 512;

/// What a CPU has of its own in a kernel.
#[derive(Clone)]
pub struct CpuData {
    /// The frame that its stack and its per-CPU lists stand in.
    frame: Pfn,
    /// Pages that it has gathered for the LRU lists.
    pub lru: Vec<Pfn>,
    /// Pages that it may still use of its last charge to a memory cgroup.
    pub charged: u32,
    /// The group that was charged.
    pub charged_to: GroupId,
}

/// Lines of a CPU's own data, by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuLine {
    /// Saved registers: 168 bytes from here on (`struct pt_regs`).
    Stack = 0,
    /// Lists of free pages.
    FreeLists = 4,
    /// Pages gathered for the LRU lists: two lines.
    Lru = 5,
    /// What is charged to the memory cgroup in advance.
    Charge = 8,
    /// Requests to devices (`struct request`): two lines.
    Requests = 10,
    /// Counters of a translation cache's hits.
    WalkCounters = 12,
    /// What taking a page from a ring writes: sixteen lines.
    Rings = 16,
}

/// A kernel and what it keeps.
#[derive(Clone)]
pub struct Layer {
    /// As in the configuration.
    pub name: String,
    /// The space that hosts this layer's physical memory; none for the machine's own.
    pub host: Option<SpaceId>,
    /// Contents of its physical memory, as far as they matter: page tables and what kernels keep.
    pub mem: PhysMem,
    /// Its frames: who has them, and which are free.
    pub frames: Frames,
    /// Largest page that anonymous memory is mapped with.
    pub page_size: PageSize,
    /// When its host finds frames for its memory.
    pub backing: Backing,
    /// Which mappings get pages above 4 KiB.
    pub large_pages: LargePages,
    /// What the ends of its programs' heaps are multiples of, if not of a page.
    pub brk_alignment: Option<Bytes>,
    /// What became of that.
    pub brk_counters: BrkCounters,
    /// Orders of the folios that anonymous memory may get beside single pages and large ones, or of the blocks of eager
    /// paging, ascending.
    pub folio_orders: Vec<u32>,
    /// Whether these are blocks that its placement policy maps ahead of any access.
    pub blocks_ahead: bool,
    /// The same of pages of files.
    pub file_folio_orders: Vec<u32>,
    /// By number: the direct map first, then processes and guests. The place of one that has ended goes to a later one.
    pub spaces: Vec<AddressSpace>,
    /// What the page tables of its address spaces have in common, but for the direct map's.
    pub tables: LayerTables,
    /// Frames of the page metadata, of what boot set aside for tables and of the segment, which the allocator knows
    /// nothing of.
    set_aside: u64,
    /// What is for direct segments of its address spaces.
    pub segment_memory: Option<SegmentMemory>,
    /// What its guests' cores go on with while they walk.
    pub speculative_table: Option<SpeculativeTable>,
    /// Frames of physical memory.
    frame_count: u64,
    /// The frame that stands for what all CPUs share: the allocator's lock and lists, the LRU lists, the cgroup's
    /// counter.
    zone: Pfn,
    /// One per CPU of the simulation.
    pub cpus: Vec<CpuData>,
    /// The CPU whose lists of free pages are used.
    pub acting_cpu: u32,
    /// The group that pages are charged to.
    pub acting_group: GroupId,
    /// What ageing brought the memory to.
    pub aged: Option<Aged>,
    /// Who uses the frames of programs.
    pub pages: PageUse,
    /// Whether its page tables are shadowed by its host (`pagelab_translate::scheme::shadow`).
    pub shadowed: bool,
    /// Shadow tables of its spaces, and what has changed since they were filled; empty in layers that are not shadowed.
    pub shadows: Shadows,
    /// What its requests to devices touch, if they cost it anything.
    pub requests: Option<RequestMemory>,
    /// What stages of page faults touch beside the lines above and those of the pages, in kernels that tell.
    stage_lines: Option<LineMemory>,
    /// What makes room for them, if anything does.
    pub reclaim: Option<Reclaim>,
    /// Which frames it gives to anonymous pages.
    pub placement: Placement,
    /// The hardware that maps pages before a kernel is asked, as far as it stands in the layer's memory.
    pub engine: Option<EngineState>,
    /// What its faults keep of their walks, if they keep anything.
    pub translation_caches: Option<TranslationCaches>,
    /// How the memory of spaces that have ended lay.
    pub ended_contiguity: Contiguity,
    /// Where their pages lay, if that is asked for.
    pub contiguity_map: Option<Vec<Run>>,
    /// Spaces that ended and may be used again.
    retired: Vec<u32>,
    /// What its page tables did on the way.
    pub table_work: TableWork,
    /// By address space, places where a call has taken words of large pages away: their parts are to be armed.
    pub cut: Vec<(u32, VaRange)>,
    check: bool,
    /// With `--check`, what frames and storage hold of files.
    pub contents: Option<Contents>,
}

impl Layer {
    /// Virtual address of a physical one in the kernel's direct map.
    #[inline]
    pub fn direct(&self, addr: PhysAddr) -> VirtAddr {
        VirtAddr(DIRECT_MAP_BASE + addr.0)
    }

    /// Bytes of physical memory.
    pub fn memory_bytes(&self) -> u64 {
        self.frame_count << FRAME_SHIFT
    }

    /// Address of the page metadata (`struct page`) of a frame.
    pub fn page_metadata(&self, pfn: Pfn) -> PhysAddr {
        page_metadata(pfn)
    }

    /// Address of the allocator's lock and free-list heads.
    pub fn zone_line(&self) -> PhysAddr {
        self.zone.addr()
    }

    /// Address of the lock and the heads of the LRU lists of a group.
    pub fn lru_line(&self, group: GroupId) -> PhysAddr {
        self.zone.addr() + LINE_BYTES * (1 + 2 * (u64::from(group.0) % GROUPS_A_FRAME))
    }

    /// Address of the counter of a memory cgroup.
    pub fn cgroup_line(&self, group: GroupId) -> PhysAddr {
        self.lru_line(group) + LINE_BYTES
    }

    /// Address of a line of a CPU's own data.
    pub fn cpu_line(&self, cpu: CpuId, line: CpuLine) -> PhysAddr {
        self.cpus[cpu].frame.addr() + line as u64 * LINE_BYTES
    }

    /// Gives a block of 2^`order` frames back, on behalf of the acting CPU.
    pub fn free_frames(&mut self, pfn: Pfn, order: u32) {
        self.frames.free(pfn, order, self.acting_cpu);
    }

    /// The allocator, to look at.
    pub fn frame_allocator(&self) -> &dyn FrameAllocator {
        &*self.frames.allocator
    }

    /// Frames that are free, in the CPUs' lists too.
    pub fn free_frame_count(&self) -> u64 {
        self.memory_view().free_frames()
    }

    /// Its memory, to look at.
    pub fn memory_view(&self) -> MemoryView<'_> {
        MemoryView {
            contents: &self.mem,
            frames: &self.frames,
            reclaim: self.reclaim.as_ref(),
            cpu: self.acting_cpu,
            group: self.acting_group,
            frame_count: self.frame_count,
        }
    }

    /// Its placement policy, with the memory that the policy works on.
    pub fn placing(&mut self) -> (&mut Placement, Memory<'_>) {
        let memory = Memory {
            contents: &mut self.mem,
            frames: &mut self.frames,
            reclaim: self.reclaim.as_mut(),
            cpu: self.acting_cpu,
            group: self.acting_group,
            frame_count: self.frame_count,
        };
        (&mut self.placement, memory)
    }

    /// The frame of the objects of a space.
    pub fn objects(&self, space: u32) -> Pfn {
        self.spaces[space as usize].objects
    }

    /// Frames of page tables, also those that were set aside for parts which are not in use.
    pub fn table_frames(&self) -> u64 {
        let untouched = self.spaces.iter().map(|space| space.table.untouched_frames());
        self.mem.frames_in_use() as u64 + untouched.sum::<u64>()
            - self.placement.table_frames()
            - self.engine.as_ref().map_or(0, EngineState::table_frames)
            - self.translation_cache_frames()
            - self.request_frames()
            - self.stage_line_frames()
    }

    /// What the allocator did for the last request.
    pub fn last_effects(&self) -> &AllocEffects {
        &self.frames.effects
    }

    /// What its frame allocator did in the whole run.
    pub fn frame_counters(&self) -> &FrameCounters {
        &self.frames.counters
    }

    /// One frame for the kernel itself; `what` names it for the error.
    pub fn take_frame(&mut self, purpose: FramePurpose, what: &str) -> Result<Pfn, EngineError> {
        self.frames.alloc(0, purpose, self.acting_cpu).ok_or_else(|| self.out_of_memory(what))
    }

    /// Frames that were set aside at boot, for page metadata, tables and a segment.
    pub fn frames_set_aside(&self) -> u64 {
        self.set_aside
    }

    /// A new, empty address space.
    pub fn add_space(&mut self, asids: &mut AsidAllocator) -> Result<u32, EngineError> {
        self.add_space_of(None, asids)
    }

    /// A new address space for a guest with `bytes` of memory, not more than the layer was told when it booted.
    pub fn add_guest_space(&mut self, bytes: u64, asids: &mut AsidAllocator) -> Result<u32, EngineError> {
        self.add_space_of(Some(bytes), asids)
    }

    fn add_space_of(&mut self, guest: Option<u64>, asids: &mut AsidAllocator) -> Result<u32, EngineError> {
        let objects = self.take_frame(FramePurpose::KernelObject, "an address space")?;
        let table = self.new_table(guest)?;
        let vmas = VmaSet::default().with_brk_alignment(self.brk_alignment);
        if let Some(index) = self.retired.pop() {
            let space = &mut self.spaces[index as usize];
            (space.table, space.objects) = (table, objects);
            space.vmas = vmas;
            return Ok(index);
        }
        let record = self.check.then(BTreeMap::new);
        self.spaces.push(AddressSpace {
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
            words_beside: BTreeMap::new(),
            objects,
            record,
        });
        Ok(self.spaces.len() as u32 - 1)
    }

    /// Ends a space in which nothing is mapped any more. Its tag may be used again, so the caller has flushed it.
    pub fn retire_space(&mut self, index: u32) {
        let placeholder = PageTable::x86_64(4, &mut PhysMem::default(), &mut |_| Some(Pfn(0)));
        let Ok(placeholder) = placeholder else { unreachable!("a frame was given") };
        let space = &mut self.spaces[index as usize];
        assert_eq!((space.words, space.words_beside.len()), (0, 0), "words of a space that ends");
        let table = std::mem::replace(&mut space.table, placeholder);
        self.tables.destroy(table, &mut self.mem, &mut |pfn| self.frames.free_block(pfn, self.acting_cpu));
        self.frames.free(space.objects, 0, self.acting_cpu);
        self.spaces[index as usize].reported = false;
        self.retired.push(index);
    }

    /// Enters the frames of a page in the reverse map or removes them, if there is one.
    fn note_mapped(&mut self, index: u32, va: VirtAddr, mapping: &Mapping, note: fn(&mut Rmap, Pfn, PageOf)) {
        if let Some(reclaim) = &mut self.reclaim
            && mapping.pfn != self.pages.zero_page()
        {
            for n in 0..1 << mapping.size.order() {
                note(&mut reclaim.rmap, mapping.pfn + n, (index, va.page_number() + n));
            }
        }
    }

    /// Maps a page and records it. All tables exist. Errors: the page table has no place for it.
    pub fn map(&mut self, index: u32, va: VirtAddr, mapping: Mapping) -> Result<(), EngineError> {
        self.note_mapped(index, va, &mapping, Rmap::add);
        self.map_unlisted(index, va, mapping)
    }

    /// Enters a page that is mapped in what the kernel keeps of pages.
    fn note_listed(&mut self, index: u32, va: VirtAddr, mapping: &Mapping) {
        self.note_mapped(index, va, mapping, Rmap::add);
        self.list_page(mapping);
    }

    /// [`Self::map`] of a page that the reverse map is to know later.
    fn map_unlisted(&mut self, index: u32, va: VirtAddr, mapping: Mapping) -> Result<(), EngineError> {
        if self.check {
            let range = VaRange { start: va, end: va + mapping.size.bytes() };
            assert!(!self.has_words(index, range), "{va:?} of space {index} is mapped where a word is");
        }
        self.spaces[index as usize].resident += self.counted_frames(&mapping);
        let space = &mut self.spaces[index as usize];
        if let Some(record) = &mut space.record {
            for page in 0..1 << mapping.size.order() {
                let frame = (mapping.pfn + page, mapping.flags.writable);
                let old = record.insert(va.page_number() + page, frame);
                assert!(old.is_none(), "{va:?} is mapped twice");
            }
        }
        let mapped = space.table.map(&mut self.mem, va, mapping);
        self.collect_table_work(index);
        mapped.map(|_| ()).map_err(|NoRoom| self.exhausted(Exhausted::Places(va)))
    }

    /// Frames of a page that count as its process's.
    fn counted_frames(&self, mapping: &Mapping) -> u64 {
        if mapping.pfn == self.pages.zero_page() { 0 } else { 1 << mapping.size.order() }
    }

    /// True if no page is mapped at `va`.
    pub fn is_unmapped(&self, index: u32, va: VirtAddr) -> bool {
        let mut list = WalkList::new();
        self.spaces[index as usize].table.walk(&self.mem, va, &mut list);
        matches!(list.leaf, Leaf::NotPresent { .. })
    }

    /// Puts another frame or other flags instead of a page that is mapped in the same size. Returns the entry's
    /// address.
    pub fn remap(&mut self, index: u32, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        let mut list = WalkList::new();
        self.spaces[index as usize].table.walk(&self.mem, va, &mut list);
        let Leaf::Present(old) = list.leaf else { unreachable!("the page is mapped") };
        let (less, more) = (self.counted_frames(&old), self.counted_frames(&mapping));
        let resident = &mut self.spaces[index as usize].resident;
        *resident = *resident + more - less;
        if self.reclaim.is_some() {
            self.note_mapped(index, va, &old, Rmap::remove);
            self.note_mapped(index, va, &mapping, Rmap::add);
        }
        let space = &mut self.spaces[index as usize];
        if let Some(record) = &mut space.record {
            for page in 0..1 << mapping.size.order() {
                let frame = (mapping.pfn + page, mapping.flags.writable);
                record.insert(va.page_number() + page, frame).expect("the page is mapped");
            }
        }
        space.table.replace(&mut self.mem, va, mapping)
    }

    /// Unmaps a page. The caller decides what becomes of its frames; tables stay, as reclaim and MADV_DONTNEED leave
    /// them.
    pub fn unmap(&mut self, index: u32, page: &Removed) {
        self.forget(index, page);
        self.spaces[index as usize].table.unmap(&mut self.mem, page.va);
    }

    /// A page is no longer mapped, as far as all is concerned but the page table.
    pub fn forget(&mut self, index: u32, page: &Removed) {
        let (placement, mut memory) = self.placing();
        placement.unmapped(index, page.va, &mut memory);
        self.note_mapped(index, page.va, &page.mapping, Rmap::remove);
        self.note_dirty(page);
        self.spaces[index as usize].resident -= self.counted_frames(&page.mapping);
        let space = &mut self.spaces[index as usize];
        if let Some(record) = &mut space.record {
            for n in 0..1 << page.mapping.size.order() {
                record.remove(&(page.va.page_number() + n));
            }
        }
    }

    /// Leaves what a space has in its page table to a later scan; nothing of it is mapped any more.
    pub fn abandon_table(&mut self, index: u32) -> Result<(), EngineError> {
        let abandoned = self.tables.abandon(&mut self.mem, &mut self.spaces[index as usize].table);
        if abandoned { Ok(()) } else { Err(self.exhausted(Exhausted::Tags)) }
    }

    /// Gives the tables of a range back that are empty (Linux `free_pgtables`).
    pub fn prune(&mut self, index: u32, start: VirtAddr, end: VirtAddr, cause: InvalidationCause) {
        let (cpu, before) = (self.acting_cpu, self.mem.destroyed());
        let table = &mut self.spaces[index as usize].table;
        table.prune(&mut self.mem, start, end, &mut |pfn| self.frames.free_block(pfn, cpu));
        if self.mem.destroyed() > before {
            self.forget_freed_tables(index, VaRange { start, end }, cause);
        }
    }

    /// Makes room for a page of 2 MiB where pages of 4 KiB were: their table goes, those above it stay (Linux
    /// `collapse_huge_page`).
    pub fn free_leaf_table(&mut self, index: u32, va: VirtAddr) {
        if let Some(table) = self.spaces[index as usize].table.unlink_leaf_table(&mut self.mem, va) {
            self.frames.free(table, 0, self.acting_cpu);
            self.forget_leaf_table(index);
        }
    }

    /// Changes the permissions of a mapped page.
    pub fn protect(&mut self, index: u32, page: &Removed, flags: PteFlags) {
        let space = &mut self.spaces[index as usize];
        if let Some(record) = &mut space.record {
            for n in 0..1 << page.mapping.size.order() {
                record.get_mut(&(page.va.page_number() + n)).expect("the page is mapped").1 = flags.writable;
            }
        }
        space.table.set_flags(&mut self.mem, page.va, flags);
    }

    /// The pages of a space that overlap `start..end`, all at once: for small ranges.
    pub fn mapped(&self, index: u32, start: VirtAddr, end: VirtAddr) -> Vec<Removed> {
        let mut out = Vec::new();
        self.spaces[index as usize].table.mapped(&self.mem, start, end, usize::MAX, &mut out);
        out
    }

    /// Does something to each page of a space that overlaps `start..end`, in ascending order; returns how many there
    /// were. Pages are listed a few at a time, so that a large range takes no memory.
    pub fn for_mapped<E>(
        &mut self,
        index: u32,
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

    /// Lists the next pages of a space that overlap `from..end` instead of those listed before; returns where to go on.
    pub fn next_mapped(&self, index: u32, from: VirtAddr, end: VirtAddr, pages: &mut Vec<Removed>) -> VirtAddr {
        pages.clear();
        self.spaces[index as usize].table.mapped(&self.mem, from, end, PAGES_AT_A_TIME, pages);
        match pages.last() {
            Some(last) if pages.len() == PAGES_AT_A_TIME => last.va + last.mapping.size.bytes(),
            _ => end,
        }
    }

    /// Splits large pages that `start..end` cuts, so that every page lies inside the range or outside; words of such
    /// pages go.
    pub fn split_at_edges(&mut self, index: u32, start: VirtAddr, end: VirtAddr) -> Result<(), EngineError> {
        self.cut_words(index, start, end);
        for edge in [start, end] {
            while let Some(page) = self.mapped(index, edge, edge + 1).first().copied() {
                if page.va == edge {
                    break;
                }
                let frame = self.take_frame(FramePurpose::PageTable, "the table of a page that is split")?;
                self.split_page(index, page.va, frame);
            }
        }
        Ok(())
    }

    /// Splits a large page into pages of the next smaller size, with `frame` as their table. Its frames stay one block.
    pub fn split_page(&mut self, index: u32, va: VirtAddr, frame: Pfn) {
        self.mem.create(frame);
        self.spaces[index as usize].table.split(&mut self.mem, va, frame);
    }

    /// What the kernel's own record says of a page: its frame and whether stores are allowed. Only with `--check`.
    pub fn recorded(&self, index: u32, va: VirtAddr) -> Option<(Pfn, bool)> {
        let page = va.page_number();
        if index == DIRECT_MAP {
            let pfn = page.checked_sub(DIRECT_MAP_BASE >> FRAME_SHIFT)?;
            return (pfn < self.frame_count).then_some((Pfn(pfn), true));
        }
        let space = &self.spaces[index as usize];
        let segment = space.segment.as_ref().and_then(|segment| segment.frame(va));
        segment.map(|frame| (frame, true)).or_else(|| space.record.as_ref()?.get(&page).copied())
    }
}
