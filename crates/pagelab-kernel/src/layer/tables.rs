//! Memory for page tables: allocating and freeing it.

use crate::context::KernelContext;
use crate::frames::frame_alloc::FramePurpose;
use crate::layer::Layer;
use crate::memory::Memory;
use crate::table_blocks::free_table;
use pagelab_base::addr::{FRAME_SHIFT, LINE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::ids::{DIRECT_MAP, SpaceIx};
use pagelab_tables::page_table::{Exhausted, Leaf, Mapping, NoRoom, NoTable, PageTable, TableBlock};

/// Largest order for which Linux frees memory at any price (`PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY_ORDER: u32 = 3;

impl Layer {
    /// Creates an empty page table for a space. The first one is the kernel's own; `guest` is the memory of a hosted
    /// guest.
    pub fn new_table(&mut self, context: KernelContext, guest: Option<u64>) -> Result<PageTable, EngineError> {
        let cpu = context.cpu;
        let mut frames = |order| self.memory.frames.alloc(order, FramePurpose::PageTable, cpu);
        let table = if self.spaces.is_empty() {
            PageTable::x86_64(self.spaces.tables.direct_map_levels(), &mut self.memory.contents, &mut frames)
        } else {
            self.spaces.tables.create(&mut self.memory.contents, &mut frames, guest)
        };
        table.map_err(|why| match why {
            NoTable::Block { order } => self.out_of_blocks(order),
            NoTable::Tags => self.exhausted(Exhausted::Tags),
        })
    }

    /// Creates an empty x86-64 page table; `None` if memory is exhausted.
    pub fn new_shadow_table(&mut self, context: KernelContext, levels: u8) -> Option<PageTable> {
        let cpu = context.cpu;
        let mut frames = |order| self.memory.frames.alloc(order, FramePurpose::PageTable, cpu);
        PageTable::x86_64(levels, &mut self.memory.contents, &mut frames).ok()
    }

    /// Allocates memory for the next table that is missing for a page of `size` at `va`; `None` if none is missing.
    pub fn take_table(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        va: VirtAddr,
        size: PageSize,
    ) -> Result<Option<TableBlock>, EngineError> {
        let table = &self.spaces[index].table;
        let missing = table.missing_tables(&self.memory.contents, va, size);
        if missing == 0 {
            return Ok(None);
        }
        if missing == 1
            && size == PageSize::Size4K
            && let Some(first) = self.take_from_block(context, index, va)
        {
            return Ok(Some(TableBlock::frame(first)));
        }
        let orders = self.spaces[index].table.next_table_orders(&self.memory.contents, va, size);
        loop {
            for &order in &orders {
                if let Some(first) = self.memory.frames.alloc(order, FramePurpose::PageTable, context.cpu) {
                    return Ok(Some(TableBlock { first, order }));
                }
            }
            if !self.give_back_table_frames(context) {
                return Err(self.out_of_blocks(orders.last().copied().unwrap_or(0)));
            }
        }
    }

    /// The frame of a program's leaf table in a block, if the kernel places them so.
    fn take_from_block(&mut self, context: KernelContext, index: SpaceIx, va: VirtAddr) -> Option<Pfn> {
        let blocks = self.mechanisms.table_blocks.as_mut().filter(|_| index != DIRECT_MAP)?;
        blocks.take(index, va, &mut Memory { layer: &mut self.memory, context })
    }

    /// Gives back frames that are reserved for leaf tables; false if there are none.
    pub fn give_back_table_frames(&mut self, context: KernelContext) -> bool {
        let Some(blocks) = &mut self.mechanisms.table_blocks else { return false };
        blocks.give_back(&mut Memory { layer: &mut self.memory, context })
    }

    /// Takes pages back from the balloon for work that has no memory left, at no cost; false if there are none.
    pub fn deflate_at_once(&mut self, context: KernelContext) -> bool {
        let pages = self.mechanisms.balloon.deflate();
        pages.iter().for_each(|&frame| self.memory.frames.free(frame, 0, context.cpu));
        !pages.is_empty()
    }

    /// Whether a kernel without memory for the next table of a page takes pages back from its balloon: not for blocks
    /// that are too large for that (Linux `__alloc_pages_may_oom`).
    pub fn deflates_for_table(&self, index: SpaceIx, va: VirtAddr, size: PageSize) -> bool {
        let orders = self.spaces[index].table.next_table_orders(&self.memory.contents, va, size);
        orders.last().is_none_or(|&order| order <= COSTLY_ORDER)
    }

    /// Makes sure that the next page that is mapped in a space, which is this one, has room; false if there is none.
    pub fn has_room(&mut self, context: KernelContext, index: SpaceIx, va: VirtAddr, size: PageSize) -> bool {
        self.build_tables(context, index, va, size).is_ok()
            && self.spaces[index].table.reserve(&mut self.memory.contents, va, size)
    }

    /// A frame for the table of a large page that will be split; `None` if the page table needs none.
    pub fn take_split_table(&mut self, context: KernelContext, index: SpaceIx) -> Result<Option<Pfn>, EngineError> {
        if !self.spaces[index].table.has_table_per_large_page() {
            return Ok(None);
        }
        self.take_frame(context, FramePurpose::PageTable, "the table of a page that is split").map(Some)
    }

    /// Splits a large page into pages of the next smaller size, with `frame` as their table, if they have one. Its
    /// frames stay one block. Returns the lines of the entries written one by one.
    pub fn split_page(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        va: VirtAddr,
        frame: Option<Pfn>,
    ) -> Result<Vec<PhysAddr>, EngineError> {
        if let Some(frame) = frame {
            self.memory.contents.create(frame);
            self.spaces[index].table.split(&mut self.memory.contents, va, frame);
            return Ok(Vec::new());
        }
        let Leaf::Present(large) = self.leaf(index, va) else { unreachable!("{va:?} is mapped") };
        let size = PageSize::ALL[(large.size as usize).checked_sub(1).expect("a page of 4 KiB has no parts")];
        let mut lines = vec![self.spaces[index].table.unmap(&mut self.memory.contents, va).align_down(LINE_BYTES)];
        for part in (0..large.size.bytes()).step_by(size.bytes() as usize) {
            self.build_tables(context, index, va + part, size)?;
            let mapping = Mapping { pfn: Pfn(large.pfn.0 + (part >> FRAME_SHIFT)), size, ..large };
            let mapped = self.spaces[index].table.map(&mut self.memory.contents, va + part, mapping);
            self.collect_table_work(context, index);
            let entry = mapped.map_err(|NoRoom| self.exhausted(Exhausted::Places(va + part)))?;
            lines.append(&mut self.spaces.table_work.lines);
            lines.push(entry.align_down(LINE_BYTES));
        }
        lines.dedup();
        Ok(lines)
    }

    fn out_of_blocks(&self, order: u32) -> EngineError {
        if order == 0 {
            return self.out_of_memory("a page table");
        }
        self.exhausted(Exhausted::Block { order, free_frames: self.memory.free_frames() })
    }

    /// Links the memory as that table. If the table is no longer missing, frees the memory and returns false.
    pub fn link_table(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        va: VirtAddr,
        size: PageSize,
        block: TableBlock,
    ) -> bool {
        self.clear_above(context, index, va, size);
        block.create(&mut self.memory.contents);
        let linked = self.spaces[index].table.link_table(&mut self.memory.contents, va, size, block).is_some();
        if !linked {
            block.destroy(&mut self.memory.contents);
            self.free_table(context, block.first);
        }
        self.collect_table_work(context, index);
        linked
    }

    /// Builds all tables that are missing for a page of `size` at `va`.
    pub fn build_tables(
        &mut self,
        context: KernelContext,
        index: SpaceIx,
        va: VirtAddr,
        size: PageSize,
    ) -> Result<(), EngineError> {
        // Neither the entries that such a call writes nor the entries that it moves are charged.
        self.spaces.table_work.lines.clear();
        loop {
            match self.take_table(context, index, va, size) {
                Ok(Some(block)) => _ = self.link_table(context, index, va, size, block),
                Ok(None) => return Ok(()),
                Err(_) if self.deflates_for_table(index, va, size) && self.deflate_at_once(context) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Collects the work of a table, and frees blocks that it no longer needs.
    pub fn collect_table_work(&mut self, context: KernelContext, index: SpaceIx) {
        for block in self.spaces.collect_table_work(index) {
            self.free_table(context, block);
        }
    }

    /// Frees the memory of a table, given its first frame.
    fn free_table(&mut self, context: KernelContext, first: Pfn) {
        free_table(&mut self.mechanisms.table_blocks, &mut self.memory.frames, first, context.cpu);
    }
}
