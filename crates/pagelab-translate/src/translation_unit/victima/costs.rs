//! The counters in leaf entries that say which pages are costly to walk for.

use rustc_hash::FxHashMap;

use super::super::{Entry, GROUP};
use super::blocks::{BlockRange, BlockTag, page_in_block};
use pagelab_tables::mmu_cache::Asid;

/// End of the counter of walks: 4 bits.
pub const WALKS_END: u8 = 15;
/// End of the counter of walks that went to memory: 3 bits.
pub const COSTLY_END: u8 = 7;

/// The counters in the leaf entry of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WalkCost {
    walks: u8,
    costly: u8,
}

/// The counters of all pages.
#[derive(Clone, Debug)]
pub struct WalkCosts {
    pages: FxHashMap<BlockTag, [WalkCost; GROUP as usize]>,
    /// Up to which a page is costly.
    most: WalkCost,
}

impl WalkCosts {
    /// A page is costly after at least one walk and one that went to memory, and at most as many.
    pub fn new(walks: u8, costly: u8) -> Self {
        Self { pages: FxHashMap::default(), most: WalkCost { walks, costly } }
    }

    /// Counts a walk for a page; true if the entry changes.
    pub fn count(&mut self, tag: BlockTag, entry: &Entry, from_memory: bool) -> bool {
        let cost = &mut self.pages.entry(tag).or_default()[page_in_block(tag.size, entry.va)];
        let before = *cost;
        cost.walks = (cost.walks + 1).min(WALKS_END);
        cost.costly = (cost.costly + u8::from(from_memory)).min(COSTLY_END);
        *cost != before
    }

    /// Whether a page is costly.
    pub fn are_high(&self, tag: BlockTag, entry: &Entry) -> bool {
        let cost = self.pages.get(&tag).map_or(WalkCost::default(), |costs| costs[page_in_block(tag.size, entry.va)]);
        let is_between = |value: u8, most: u8| (1..=most).contains(&value);
        is_between(cost.walks, self.most.walks) && is_between(cost.costly, self.most.costly)
    }

    /// Forgets the pages of a range, and their neighbours.
    pub fn forget(&mut self, range: &BlockRange) {
        match range.tags() {
            Some(tags) => tags.for_each(|tag| _ = self.pages.remove(&tag)),
            None => self.pages.retain(|tag, _| !range.contains(tag)),
        }
    }

    /// Forgets the pages of a space.
    pub fn forget_space(&mut self, asid: Asid) {
        self.pages.retain(|tag, _| tag.asid != asid);
    }
}
