//! Ways of a cuckoo table, and the lines of entries in them.
//!
//! A line holds the entries of eight neighbouring pages. Bits 52 to 56 of each entry, which x86-64 leaves to software,
//! hold five bits of the line's tag. The tag is the number of the eight pages plus one, so a line of zeros has no tag.
//! Its two highest bits are the page size.

use crate::page_table::TableBlock;
use pagelab_base::addr::{LINE_BYTES, PageSize, PhysAddr, VirtAddr};
use pagelab_base::memory::PhysMem;
use pagelab_base::rng::mix;

/// Number of ways.
pub const WAYS: usize = 3;
/// log2 of the pages per line.
pub const LINE_PAGES_SHIFT: u32 = 3;
/// log2 of the lines per frame.
pub const FRAME_LINES_SHIFT: u32 = 6;
const VA_BITS: u32 = 48;
/// Position of the page size in a tag of 40 bits.
const SIZE_SHIFT: u32 = 38;
const PART_SHIFT: u32 = 52;
const PART_BITS: u32 = 5;
const PART: u64 = (1 << PART_BITS) - 1;

/// The words of a line.
pub type Line = [u64; 8];

pub const EMPTY: Line = [0; 8];

/// What finds a page.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Number of the page among pages of its size.
    pub page: u64,
    /// Tag of its line.
    pub tag: u64,
    /// Index of its entry in the line.
    pub index: usize,
}

impl Key {
    /// The key of the page of a size that contains an address.
    #[inline(always)]
    pub fn new(va: VirtAddr, size: PageSize) -> Self {
        let page = (va.0 & ((1 << VA_BITS) - 1)) >> size.shift();
        let tag = (page >> LINE_PAGES_SHIFT) + 1 + ((size as u64) << SIZE_SHIFT);
        Self { page, tag, index: page as usize & ((1 << LINE_PAGES_SHIFT) - 1) }
    }
}

/// The tag bits that the entry at an index of its line holds.
#[inline(always)]
pub fn tag_part(tag: u64, index: usize) -> u64 {
    (tag >> (PART_BITS * index as u32) & PART) << PART_SHIFT
}

/// A line with a tag and no mapped page.
pub fn with_tag(tag: u64) -> Line {
    std::array::from_fn(|index| tag_part(tag, index))
}

#[inline(always)]
pub fn has_tag(line: &Line, tag: u64) -> bool {
    line.iter().enumerate().all(|(index, word)| word & PART << PART_SHIFT == tag_part(tag, index))
}

pub fn tag_of(line: &Line) -> u64 {
    let part = |(index, word): (usize, &u64)| (word >> PART_SHIFT & PART) << (PART_BITS * index as u32);
    line.iter().enumerate().map(part).sum()
}

/// A block of lines with a hash function of its own.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub block: TableBlock,
    seed: u64,
}

impl Way {
    /// The way with this number of a table, stored in a block. The hash function depends on both the number and the
    /// size.
    pub fn new(block: TableBlock, number: usize, seed: u64) -> Self {
        Self { block, seed: mix(seed ^ mix((number as u64) << 8 | u64::from(block.order))) }
    }

    /// Number of lines of the way.
    #[inline(always)]
    pub fn lines(&self) -> u64 {
        1 << (FRAME_LINES_SHIFT + self.block.order)
    }

    /// Position that a tag hashes to.
    #[inline(always)]
    pub fn place(&self, tag: u64) -> u64 {
        mix(tag ^ self.seed) >> (u64::BITS - FRAME_LINES_SHIFT - self.block.order)
    }

    /// Address of the line at a position.
    #[inline(always)]
    pub fn line(&self, place: u64) -> PhysAddr {
        self.block.first.addr() + place * LINE_BYTES
    }
}

/// Overwrites a line and returns its old content.
pub fn swap(mem: &mut PhysMem, at: PhysAddr, line: &Line) -> Line {
    let old = *mem.line(at);
    for (index, (&new, old)) in line.iter().zip(old).enumerate() {
        if new != old {
            mem.write(at + 8 * index as u64, new);
        }
    }
    old
}
