//! Which translations the blocks of a second-level cache have. Whether the cache still has a block, it says itself.

use super::super::{Blocks, Entry, GROUP, VA_MASK};
use pagelab_base::addr::{PageSize, VirtAddr};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::{BlockCache, BlockPlace};
use pagelab_tables::mmu_cache::Asid;

/// Eight neighbouring pages of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockTag {
    pub asid: Asid,
    pub size: PageSize,
    /// Number of the first page, by eight.
    pub group: u64,
}

impl BlockTag {
    pub fn new(asid: Asid, size: PageSize, va: VirtAddr) -> Self {
        Self { asid, size, group: page(size, va) / GROUP }
    }
}

/// The number of a page.
fn page(size: PageSize, va: VirtAddr) -> u64 {
    (va.0 & VA_MASK) >> size.shift()
}

/// Which page of its block an address is in.
pub fn page_in_block(size: PageSize, va: VirtAddr) -> usize {
    (page(size, va) % GROUP) as usize
}

#[derive(Clone, Copy, Debug)]
struct Block {
    tag: BlockTag,
    pages: [Option<Translation>; GROUP as usize],
}

/// All blocks that have entered the cache, until others have their numbers.
#[derive(Clone, Debug, Default)]
pub struct KnownBlocks {
    /// By set and number; empty until the cache is known.
    blocks: Vec<Option<Block>>,
    sets: u64,
    /// Blocks of a set: one more than its ways.
    numbers: usize,
}

impl KnownBlocks {
    /// Learns the shape of the cache; true if it was not known.
    pub fn fit(&mut self, cache: BlockCache) -> bool {
        let is_new = self.blocks.is_empty();
        if is_new {
            (self.sets, self.numbers) = (cache.sets, cache.ways + 1);
            self.blocks = vec![None; cache.sets as usize * self.numbers];
        }
        is_new
    }

    /// Lines of the cache.
    pub fn cache_lines(&self) -> u64 {
        self.sets * (self.numbers as u64).saturating_sub(1)
    }

    fn index(&self, at: BlockPlace) -> usize {
        at.set * self.numbers + at.number
    }

    fn place(&self, index: usize) -> BlockPlace {
        BlockPlace { set: index / self.numbers, number: index % self.numbers }
    }

    /// The block with this tag.
    pub fn find(&self, tag: BlockTag) -> Option<BlockPlace> {
        let first = tag.group.checked_rem(self.sets)? as usize * self.numbers;
        let of_set = &self.blocks[first..][..self.numbers];
        let number = of_set.iter().position(|block| block.is_some_and(|block| block.tag == tag))?;
        Some(self.place(first + number))
    }

    /// The blocks with such a tag.
    pub fn with(&self, is_wanted: impl Fn(&BlockTag) -> bool) -> Vec<BlockPlace> {
        let blocks = self.blocks.iter().enumerate();
        let wanted = blocks.filter(|(_, block)| block.is_some_and(|block| is_wanted(&block.tag)));
        wanted.map(|(index, _)| self.place(index)).collect()
    }

    /// The translation of an address in a block.
    pub fn translation(&self, at: BlockPlace, size: PageSize, va: VirtAddr) -> Option<Translation> {
        self.blocks[self.index(at)].and_then(|block| block.pages[page_in_block(size, va)])
    }

    /// The page of an entry in its block.
    pub fn page_of(&mut self, at: BlockPlace, entry: &Entry) -> &mut Option<Translation> {
        let index = self.index(at);
        let block = self.blocks[index].as_mut().expect("a block was found there");
        &mut block.pages[page_in_block(entry.translation.size(), entry.va)]
    }

    /// The place for a block that the cache does not have: its old one, or one whose block has left the cache.
    pub fn place_for(&mut self, tag: BlockTag, cache: &dyn Blocks) -> BlockPlace {
        self.find(tag).unwrap_or_else(|| {
            let first = (tag.group % self.sets) as usize * self.numbers;
            let mut indices = first..first + self.numbers;
            let index = indices.find(|&index| !cache.holds(self.place(index))).expect("more numbers than ways");
            self.blocks[index] = Some(Block { tag, pages: [None; GROUP as usize] });
            self.place(index)
        })
    }

    /// Forgets a block.
    pub fn forget(&mut self, at: BlockPlace) {
        let index = self.index(at);
        self.blocks[index] = None;
    }
}

/// Groups of the pages of a range, whose tags have this space and size.
#[derive(Clone, Copy, Debug)]
pub struct BlockRange {
    asid: Asid,
    size: PageSize,
    first: u64,
    last: u64,
}

impl BlockRange {
    /// Most groups that are looked for one by one.
    const SHORT: u64 = 64;

    pub fn new(asid: Asid, size: PageSize, start: VirtAddr, end: VirtAddr) -> Self {
        let last = VirtAddr(end.0.wrapping_sub(1));
        Self { asid, size, first: page(size, start) / GROUP, last: page(size, last) / GROUP }
    }

    pub fn contains(&self, tag: &BlockTag) -> bool {
        (tag.asid, tag.size) == (self.asid, self.size) && (self.first..=self.last).contains(&tag.group)
    }

    /// The tags, if they are few.
    pub fn tags(&self) -> Option<impl Iterator<Item = BlockTag> + use<>> {
        let Self { asid, size, first, last } = *self;
        let is_short = last.checked_sub(first).is_some_and(|more| more < Self::SHORT);
        is_short.then(|| (first..=last).map(move |group| BlockTag { asid, size, group }))
    }
}
