//! Memory for page tables: where a layer gets it from, and what becomes of it.

use crate::frames::frame_alloc::FramePurpose;
use crate::layer::Layer;
use pagelab_base::addr::{PageSize, Pfn, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_tables::page_table::{Exhausted, NoTable, PageTable, TableBlock};

impl Layer {
    /// An empty page table of a space: the kernel's own is the first; of one that hosts a guest with its bytes of
    /// memory.
    pub fn new_table(&mut self, guest: Option<u64>) -> Result<PageTable, EngineError> {
        let cpu = self.acting_cpu;
        let mut frames = |order| self.frames.alloc(order, FramePurpose::PageTable, cpu);
        let table = if self.spaces.is_empty() {
            PageTable::x86_64(self.tables.direct_map_levels(), &mut self.mem, &mut frames)
        } else {
            self.tables.create(&mut self.mem, &mut frames, guest)
        };
        table.map_err(|why| match why {
            NoTable::Block { order } => self.out_of_blocks(order),
            NoTable::Tags => self.exhausted(Exhausted::Tags),
        })
    }

    /// An empty x86-64 tree; none if memory has run out.
    pub fn new_shadow_table(&mut self, levels: u8) -> Option<PageTable> {
        let cpu = self.acting_cpu;
        let mut frames = |order| self.frames.alloc(order, FramePurpose::PageTable, cpu);
        PageTable::x86_64(levels, &mut self.mem, &mut frames).ok()
    }

    /// Takes memory for the next table that a page of `size` at `va` misses; none if it misses none.
    pub fn take_table(&mut self, index: u32, va: VirtAddr, size: PageSize) -> Result<Option<TableBlock>, EngineError> {
        let table = &self.spaces[index as usize].table;
        if table.missing_tables(&self.mem, va, size) == 0 {
            return Ok(None);
        }
        let orders = table.next_table_orders(&self.mem, va);
        for &order in &orders {
            if let Some(first) = self.frames.alloc(order, FramePurpose::PageTable, self.acting_cpu) {
                return Ok(Some(TableBlock { first, order }));
            }
        }
        Err(self.out_of_blocks(orders.last().copied().unwrap_or(0)))
    }

    fn out_of_blocks(&self, order: u32) -> EngineError {
        if order == 0 {
            return self.out_of_memory("a page table");
        }
        self.exhausted(Exhausted::Block { order, free_frames: self.free_frame_count() })
    }

    /// Links memory as that table. False if it is not missing any more: the memory is free again.
    pub fn link_table(&mut self, index: u32, va: VirtAddr, size: PageSize, block: TableBlock) -> bool {
        self.clear_above(index, va, size);
        block.create(&mut self.mem);
        let linked = self.spaces[index as usize].table.link_table(&mut self.mem, va, size, block).is_some();
        if !linked {
            block.destroy(&mut self.mem);
            self.free_table(block.first);
        }
        self.collect_table_work(index);
        linked
    }

    /// Builds all tables that a page of `size` at `va` misses.
    pub fn build_tables(&mut self, index: u32, va: VirtAddr, size: PageSize) -> Result<(), EngineError> {
        // What a call that builds them moves is charged as little as what it writes.
        self.table_work.lines.clear();
        while let Some(block) = self.take_table(index, va, size)? {
            self.link_table(index, va, size, block);
        }
        Ok(())
    }

    /// Takes note of what a table did on the way, and frees what it has no use for.
    pub fn collect_table_work(&mut self, index: u32) {
        self.tables.report_work(&mut self.spaces[index as usize].table, &mut self.table_work);
        for block in std::mem::take(&mut self.table_work.released) {
            self.free_table(block);
        }
    }

    /// Frees the memory of a table, by its first frame.
    fn free_table(&mut self, first: Pfn) {
        self.frames.free_block(first, self.acting_cpu);
    }
}
