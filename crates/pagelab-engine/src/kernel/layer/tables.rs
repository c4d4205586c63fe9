//! Memory for page tables: where a layer gets it from, and what becomes of it.

use crate::base::addr::{PageSize, Pfn, VirtAddr};
use crate::base::error::EngineError;
use crate::config::PageTableConfig;
use crate::kernel::frames::frame_alloc::FramePurpose;
use crate::kernel::layer::Layer;
use crate::page_table::{PageTable, TableBlock};

impl Layer {
    /// Whether its address spaces have elastic cuckoo tables.
    pub fn has_cuckoo_tables(&self) -> bool {
        matches!(self.table_config, PageTableConfig::ElasticCuckoo(_))
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
        match orders.last() {
            Some(0) => Err(self.out_of_memory("a page table")),
            _ => Err(self.out_of_contiguous_memory(orders[0])),
        }
    }

    /// Links memory as that table. False if it is not missing any more: the memory is free again.
    pub fn link_table(&mut self, index: u32, va: VirtAddr, size: PageSize, block: TableBlock) -> bool {
        block.create(&mut self.mem);
        let linked = self.spaces[index as usize].table.link_table(&mut self.mem, va, size, block).is_some();
        if !linked {
            block.destroy(&mut self.mem);
            self.free_table(block.first);
        }
        self.settle_table(index);
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
    pub fn settle_table(&mut self, index: u32) {
        let PageTable::ElasticCuckoo(table) = &mut self.spaces[index as usize].table else { return };
        self.table_work.lines.append(&mut table.work.lines);
        self.table_work.cuckoo.add(std::mem::take(&mut table.work.counters));
        for block in std::mem::take(&mut table.work.released) {
            self.free_table(block);
        }
    }

    /// Frees the memory of a table, by its first frame.
    fn free_table(&mut self, first: Pfn) {
        self.frames.free_block(first, self.acting_cpu);
    }
}
