//! Memory for page tables: allocating and freeing it.

use crate::context::KernelContext;
use crate::frames::frame_alloc::FramePurpose;
use crate::layer::Layer;
use pagelab_base::addr::{PageSize, Pfn, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_tables::page_table::{Exhausted, NoTable, PageTable, TableBlock};

impl Layer {
    /// Creates an empty page table for a space. The first one is the kernel's own; `guest` is the memory of a hosted
    /// guest.
    pub fn new_table(&mut self, context: KernelContext, guest: Option<u64>) -> Result<PageTable, EngineError> {
        let cpu = context.cpu.0;
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
        let cpu = context.cpu.0;
        let mut frames = |order| self.memory.frames.alloc(order, FramePurpose::PageTable, cpu);
        PageTable::x86_64(levels, &mut self.memory.contents, &mut frames).ok()
    }

    /// Allocates memory for the next table that is missing for a page of `size` at `va`; `None` if none is missing.
    pub fn take_table(
        &mut self,
        context: KernelContext,
        index: u32,
        va: VirtAddr,
        size: PageSize,
    ) -> Result<Option<TableBlock>, EngineError> {
        let table = &self.spaces[index].table;
        if table.missing_tables(&self.memory.contents, va, size) == 0 {
            return Ok(None);
        }
        let orders = table.next_table_orders(&self.memory.contents, va);
        for &order in &orders {
            if let Some(first) = self.memory.frames.alloc(order, FramePurpose::PageTable, context.cpu.0) {
                return Ok(Some(TableBlock { first, order }));
            }
        }
        Err(self.out_of_blocks(orders.last().copied().unwrap_or(0)))
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
        index: u32,
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
        index: u32,
        va: VirtAddr,
        size: PageSize,
    ) -> Result<(), EngineError> {
        // Neither the entries that such a call writes nor the entries that it moves are charged.
        self.spaces.table_work.lines.clear();
        while let Some(block) = self.take_table(context, index, va, size)? {
            self.link_table(context, index, va, size, block);
        }
        Ok(())
    }

    /// Collects the work of a table, and frees blocks that it no longer needs.
    pub fn collect_table_work(&mut self, context: KernelContext, index: u32) {
        for block in self.spaces.collect_table_work(index) {
            self.free_table(context, block);
        }
    }

    /// Frees the memory of a table, given its first frame.
    fn free_table(&mut self, context: KernelContext, first: Pfn) {
        self.memory.frames.free_block(first, context.cpu.0);
    }
}
