//! Leaf tables of neighbouring regions, side by side in memory.
//!
//! Models: a kernel that takes the leaf tables of a group of 2 MiB regions from one block of frames. The first leaf
//! table of a group reserves the block, and each region has its place in it. So entries of level 2 that are side by
//! side point to tables that are side by side, and a coalesced MMU cache holds them as one entry. If no block is free,
//! or memory is below the watermark of reclaim, the table is a single frame, as without the policy. Frames of a block
//! that no table uses are given back when memory runs low, and the block ends with its last table.
//! Source: Bhattacharjee, MICRO 2013, as described by Yaniv, Tsafrir, SIGMETRICS 2016, 6.1.
//! Parameters: `system.layers.NAME.contiguous_tables`, the tables per block.
//! Stats: `layer.NAME.table_blocks.*`.
//! Deviations: the paper does not say how its kernel finds contiguous frames; reservations are this project's choice,
//! as PTEMagnet makes them for data. Giving frames back costs nothing, and neither does the record of the blocks. The
//! table of a large page that is split is a single frame, and so are the tables of the kernel's own space.

use std::collections::BTreeMap;

use crate::frames::frame_alloc::FramePurpose;
use crate::frames::supply::Frames;
use crate::memory::Memory;
use pagelab_base::addr::{PageSize, Pfn, VirtAddr};
use pagelab_base::error::LayerConfigError;
use pagelab_base::ids::{CpuId, SpaceIx};
use pagelab_tables::page_table::UpperEntries;

/// Most tables per block: a word has a bit for each.
const MOST: u32 = 64;

pagelab_base::counters! {
    /// What the policy did.
    pub struct TableBlockCounters {
        blocks: u64 as count("blocks", "Blocks that were reserved for leaf tables");
        placed: u64 as count("tables", "Leaf tables that got their place in a block");
        fallbacks: u64 as count("fallbacks", "Leaf tables that got a single frame, as no block was free or memory was low");
        given_back: u64 as count("given_back", "Reserved frames that were given back when memory was low");
    }
}

/// A group of regions: the space, and the number of the group in it.
type Group = (SpaceIx, u64);

/// A reserved block.
#[derive(Clone, Copy)]
struct Block {
    first: Pfn,
    /// Bit n: the n-th frame is a table.
    used: u64,
}

/// The blocks of a layer.
#[derive(Clone)]
pub struct TableBlocks {
    order: u32,
    blocks: BTreeMap<Group, Block>,
    /// The group of each block, by its first frame.
    groups: BTreeMap<Pfn, Group>,
    /// What it did.
    pub counters: TableBlockCounters,
}

impl TableBlocks {
    /// Checks `contiguous_tables` against the entries of the layer's page table.
    pub fn check(tables: u32, entries: UpperEntries) -> Result<(), LayerConfigError> {
        if !tables.is_power_of_two() || !(2..=MOST).contains(&tables) {
            let what = format!("{tables} is not possible; allowed are powers of two from 2 to {MOST}");
            return Err(LayerConfigError::new("contiguous_tables", what));
        }
        match entries {
            UpperEntries::Levels(_) => Ok(()),
            UpperEntries::LargerTables
            | UpperEntries::Packed
            | UpperEntries::Nothing
            | UpperEntries::Segments
            | UpperEntries::OfSomePages
            | UpperEntries::Unfit => {
                let what =
                    "the page table has no leaf tables of one frame for 2 MiB; remove it, or set page_table to radix";
                Err(LayerConfigError::new("contiguous_tables", what))
            }
        }
    }

    /// No blocks yet; `tables` is a power of two.
    pub fn new(tables: u32) -> Self {
        Self {
            order: tables.ilog2(),
            blocks: BTreeMap::new(),
            groups: BTreeMap::new(),
            counters: TableBlockCounters::default(),
        }
    }

    /// The frame for the missing leaf table above `va`; `None` if it is to be a single one.
    pub fn take(&mut self, space: SpaceIx, va: VirtAddr, memory: &mut Memory) -> Option<Pfn> {
        let region = va.0 >> PageSize::Size2M.shift();
        let (group, bit) = ((space, region >> self.order), 1 << (region & self.mask()));
        if !self.blocks.contains_key(&group) {
            let first = if memory.is_low() { None } else { memory.take(self.order, FramePurpose::PageTable) };
            let Some(first) = first else {
                self.counters.fallbacks += 1;
                return None;
            };
            self.blocks.insert(group, Block { first, used: 0 });
            self.groups.insert(first, group);
            self.counters.blocks += 1;
        }
        let block = self.blocks.get_mut(&group).expect("it has just been inserted");
        if block.used & bit != 0 {
            // Another handler builds the same table; one of both frees its frame.
            return None;
        }
        block.used |= bit;
        self.counters.placed += 1;
        Some(block.first + (region & self.mask()))
    }

    /// Frames of the blocks that no table uses.
    pub fn held_frames(&self) -> u64 {
        self.blocks.values().map(|block| (1 << self.order) - u64::from(block.used.count_ones())).sum()
    }

    fn mask(&self) -> u64 {
        (1 << self.order) - 1
    }

    /// Frees the frame of a table if it is in a block; false if it is not.
    fn free(&mut self, table: Pfn, frames: &mut Frames, cpu: CpuId) -> bool {
        let n = table.0 & self.mask();
        let first = Pfn(table.0 - n);
        let Some(&group) = self.groups.get(&first) else { return false };
        let block = self.blocks.get_mut(&group).expect("every block has a group");
        block.used &= !(1 << n);
        if block.used == 0 {
            self.blocks.remove(&group);
            self.groups.remove(&first);
            frames.free_block(first, cpu);
        }
        true
    }

    /// Gives back all frames that no table uses; false if there are none.
    pub fn give_back(&mut self, memory: &mut Memory) -> bool {
        let all = u64::MAX >> (u64::BITS - (1 << self.order));
        let before = self.counters.given_back;
        let (counters, groups, most) = (&mut self.counters, &mut self.groups, 1_u64 << self.order);
        self.blocks.retain(|_, block| {
            if block.used == all {
                return true;
            }
            groups.remove(&block.first);
            for n in (0..most).filter(|n| block.used >> n & 1 == 0) {
                memory.free_frame_of_block(block.first + n);
                counters.given_back += 1;
            }
            false
        });
        self.counters.given_back > before
    }
}

/// Frees the memory of a table, given its first frame, in a layer with or without the policy.
pub fn free_table(blocks: &mut Option<TableBlocks>, frames: &mut Frames, first: Pfn, cpu: CpuId) {
    if !blocks.as_mut().is_some_and(|blocks| blocks.free(first, frames, cpu)) {
        frames.free_block(first, cpu);
    }
}
