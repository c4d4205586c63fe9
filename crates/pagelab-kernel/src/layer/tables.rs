//! Memory for page tables: where a layer gets it from, and what becomes of it.

use crate::context::KernelContext;
use crate::frames::frame_alloc::FramePurpose;
use crate::layer::Layer;
use pagelab_base::addr::{PageSize, Pfn, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_tables::page_table::{Exhausted, NoTable, PageTable, TableBlock};

impl Layer {
    /// An empty page table of a space: the kernel's own is the first; of one that hosts a guest with its bytes of
    /// memory.
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

    /// An empty x86-64 tree; none if memory has run out.
    pub fn new_shadow_table(&mut self, context: KernelContext, levels: u8) -> Option<PageTable> {
        let cpu = context.cpu.0;
        let mut frames = |order| self.memory.frames.alloc(order, FramePurpose::PageTable, cpu);
        PageTable::x86_64(levels, &mut self.memory.contents, &mut frames).ok()
    }

    /// Takes memory for the next table that a page of `size` at `va` misses; none if it misses none.
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

    /// Links memory as that table. False if it is not missing any more: the memory is free again.
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

    /// Builds all tables that a page of `size` at `va` misses.
    pub fn build_tables(
        &mut self,
        context: KernelContext,
        index: u32,
        va: VirtAddr,
        size: PageSize,
    ) -> Result<(), EngineError> {
        // What a call that builds them moves is charged as little as what it writes.
        self.spaces.table_work.lines.clear();
        while let Some(block) = self.take_table(context, index, va, size)? {
            self.link_table(context, index, va, size, block);
        }
        Ok(())
    }

    /// Takes note of what a table did on the way, and frees what it has no use for.
    pub fn collect_table_work(&mut self, context: KernelContext, index: u32) {
        for block in self.spaces.collect_table_work(index) {
            self.free_table(context, block);
        }
    }

    /// Frees the memory of a table, by its first frame.
    fn free_table(&mut self, context: KernelContext, first: Pfn) {
        self.memory.frames.free_block(first, context.cpu.0);
    }
}
