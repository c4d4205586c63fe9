//! Page tables: pure state that says where a translation is found and which words one must read to find it.
//!
//! A page table lives in the simulated memory of its layer. [`PageTable::walk`] charges nothing and changes nothing: it
//! lists the references of a full walk, of every level even where an MMU cache will let the walker skip some, because
//! fault handlers need the entries' addresses. Only the walker turns references into cycles.
//!
//! A design is one file here, one variant of [`PageTable`] and one of [`PageTableConfig`].

pub mod elastic_cuckoo;
mod flattened;
pub mod hashed;
mod linear;
mod page_index;
mod paths;
mod radix;
mod walk_list;

pub use elastic_cuckoo::ElasticCuckoo;
pub use flattened::Flattened;
pub use hashed::Hashed;
pub use linear::Linear;
pub use radix::Radix;
pub use walk_list::{WalkList, WalkRef};

use arrayvec::ArrayVec;

use crate::base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use crate::base::memory::PhysMem;
use crate::config::PageTableConfig;

/// What a leaf entry says about its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PteFlags {
    pub writable: bool,
    pub user: bool,
    pub executable: bool,
    pub accessed: bool,
    pub dirty: bool,
}

/// A translation of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First frame of the page.
    pub pfn: Pfn,
    pub size: PageSize,
    pub flags: PteFlags,
}

/// What a walk finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    Present(Mapping),
    /// No translation; a radix walk ended at an entry of this level. 1 in designs without larger pages.
    NotPresent {
        level: u8,
    },
}

/// A page whose translation an operation removed or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    pub va: VirtAddr,
    pub mapping: Mapping,
}

/// A source of blocks of 2^order frames for tables; none when the layer's memory has no such block.
pub type TableFrames<'a> = &'a mut dyn FnMut(u32) -> Option<Pfn>;

/// Contiguous frames for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableBlock {
    pub first: Pfn,
    pub order: u32,
}

impl TableBlock {
    /// A frame alone.
    pub fn frame(first: Pfn) -> Self {
        Self { first, order: 0 }
    }

    /// Gives the frames contents, all zero.
    pub fn create(self, mem: &mut PhysMem) {
        self.frames().for_each(|frame| mem.create(frame));
    }

    /// Takes their contents away.
    pub fn destroy(self, mem: &mut PhysMem) {
        self.frames().for_each(|frame| mem.destroy(frame));
    }

    /// True if every word of it is zero.
    fn is_zero(self, mem: &PhysMem) -> bool {
        self.frames().all(|frame| mem.is_zero(frame))
    }

    fn frames(self) -> impl Iterator<Item = Pfn> {
        (self.first.0..self.first.0 + (1 << self.order)).map(Pfn)
    }
}

/// The layer has no frame left for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFrame;

/// The table has no place left for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Name and description of every design, for lists and error messages.
pub const DESIGNS: &[(&str, &str)] = &[
    ("radix", "x86-64 radix tree of 4 or 5 levels with leaves of 4 KiB, 2 MiB and 1 GiB (`levels`)"),
    (
        "hashed-chained",
        "one hashed table a layer, slots of 32 bytes, collisions in a chain table (Itanium, as Barr et al.)",
    ),
    ("hashed-open", "one hashed table a layer, slots of 16 bytes, linear probing"),
    ("hashed-clustered", "the same with the entries of `cluster` pages (2, 4, 8) beside one tag"),
    (
        "hashed-compact",
        "the same with a tag and 8 entries of 7 bytes a line; `cluster` up to 4096 keeps lines together for a host",
    ),
    ("hashed-power", "one hashed table a layer, two groups of 8 slots for each page, primary and secondary (POWER)"),
    (
        "elastic-cuckoo",
        "a hashed table a process: lines of 8 entries, three places each, probed at once; grows and shrinks step by step",
    ),
    (
        "flattened",
        "x86-64 radix tree whose levels 4 and 3, and 2 and 1, are tables of 2 MiB where there is memory for them (`merge`)",
    ),
    ("linear", "flat array indexed by page number, for the memory of guests: one reference a walk"),
];

/// A page table of any registered design.
pub enum PageTable {
    Radix(Radix),
    Hashed(Hashed),
    ElasticCuckoo(Box<ElasticCuckoo>),
    Flattened(Flattened),
    /// Of a host, for a guest's memory.
    Linear(Linear),
}

impl PageTable {
    /// An empty table of one address space; takes what it begins with from `frames`. Of a design with one table for all, a radix
    /// table of 4 levels.
    pub fn new(config: &PageTableConfig, mem: &mut PhysMem, frames: TableFrames) -> Result<Self, NoFrame> {
        match config {
            PageTableConfig::ElasticCuckoo(config) => {
                ElasticCuckoo::new(config, mem, frames).map(|table| Self::ElasticCuckoo(Box::new(table)))
            }
            &PageTableConfig::Flattened { merge } => Flattened::new(merge, mem, frames).map(Self::Flattened),
            &PageTableConfig::Radix { levels } => Radix::new(levels, mem, frames).map(Self::Radix),
            _ => Radix::new(4, mem, frames).map(Self::Radix),
        }
    }

    /// Lists the references of a walk for `va` in `list` (cleared first) and the leaf they end at.
    #[inline]
    pub fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        match self {
            Self::Radix(table) => table.walk(mem, va, list),
            Self::Hashed(table) => table.walk(mem, va, list),
            Self::ElasticCuckoo(table) => table.walk(mem, va, list),
            Self::Flattened(table) => table.walk(mem, va, list),
            Self::Linear(table) => table.walk(mem, va, list),
        }
    }

    /// Has the host fetch the leaf entry that a walk for `va` will end at, if the table knows where that is. Changes nothing.
    #[inline]
    pub fn hint(&self, mem: &PhysMem, va: VirtAddr) {
        match self {
            Self::Radix(table) => table.hint(mem, va),
            Self::Hashed(table) => table.hint(mem, va),
            Self::ElasticCuckoo(table) => table.hint(mem, va),
            Self::Flattened(table) => table.hint(mem, va),
            // Where it is needs no memory to be read.
            Self::Linear(_) => {}
        }
    }

    /// The leaf entry that a walk for `va` will end at and the first frame that it maps, if the table knows where that is;
    /// for look-ahead only.
    #[inline]
    pub fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        match self {
            Self::Radix(table) => table.peek(mem, va),
            Self::Hashed(table) => table.peek(mem, va),
            Self::ElasticCuckoo(table) => table.peek(mem, va),
            Self::Flattened(table) => table.peek(mem, va),
            Self::Linear(table) => table.peek(mem, va),
        }
    }

    /// The last entry that a walk for `va` reads, or where the page's is going to be.
    pub fn entry(&self, mem: &PhysMem, va: VirtAddr) -> PhysAddr {
        match self {
            Self::Hashed(table) => table.entry(mem, va),
            Self::Radix(_) | Self::ElasticCuckoo(_) | Self::Flattened(_) | Self::Linear(_) => {
                let mut list = WalkList::new();
                self.walk(mem, va, &mut list);
                list.refs().last().expect("a walk reads an entry at least").addr
            }
        }
    }

    /// Tables that must be built before a page of `size` at `va` can be mapped, top first; of a table that is to grow, the blocks
    /// for that.
    pub fn missing_tables(&self, mem: &PhysMem, va: VirtAddr, size: PageSize) -> usize {
        match self {
            Self::Radix(table) => table.missing_tables(mem, va, size),
            Self::Hashed(_) => 0,
            Self::ElasticCuckoo(table) => table.missing_blocks(),
            Self::Flattened(table) => table.missing_tables(mem, va),
            Self::Linear(_) => 0,
        }
    }

    /// Orders of the block that the topmost of them takes, the preferred one first.
    pub fn next_table_orders(&self, mem: &PhysMem, va: VirtAddr) -> ArrayVec<u32, 2> {
        let mut orders = ArrayVec::new();
        orders.push(self.next_table_order(mem, va));
        if matches!(self, Self::Flattened(_)) && orders[0] > 0 {
            orders.push(0);
        }
        orders
    }

    fn next_table_order(&self, mem: &PhysMem, va: VirtAddr) -> u32 {
        match self {
            Self::ElasticCuckoo(table) => table.wanted_order().unwrap_or(0),
            Self::Flattened(table) => table.next_table_order(mem, va),
            Self::Radix(_) | Self::Hashed(_) | Self::Linear(_) => 0,
        }
    }

    /// Links `block` (zeroed contents already created) as the topmost missing table on the way to a page of `size` at
    /// `va`. Returns the entry written, none if no such table is missing any more: the caller keeps its memory.
    pub fn link_table(
        &mut self,
        mem: &mut PhysMem,
        va: VirtAddr,
        size: PageSize,
        block: TableBlock,
    ) -> Option<PhysAddr> {
        match self {
            Self::Radix(table) => table.link_table(mem, va, size, block.first),
            Self::Hashed(_) => None,
            Self::ElasticCuckoo(table) => table.add_block(mem, block),
            Self::Flattened(table) => table.link_table(mem, va, block),
            Self::Linear(_) => None,
        }
    }

    /// Maps a page; all tables on its way exist and its entry is empty. Returns the entry's address.
    pub fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        match self {
            Self::Radix(table) => Ok(table.map(mem, va, mapping)),
            Self::Hashed(table) => table.map(mem, va, mapping),
            Self::ElasticCuckoo(table) => table.map(mem, va, mapping),
            Self::Flattened(table) => Ok(table.map(mem, va, mapping)),
            Self::Linear(table) => Ok(table.map(mem, va, mapping)),
        }
    }

    /// Replaces the flags of the page at `va`, which is mapped. Returns the entry's address.
    pub fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        match self {
            Self::Radix(table) => table.set_flags(mem, va, flags),
            Self::Hashed(table) => table.set_flags(mem, va, flags),
            Self::ElasticCuckoo(table) => table.set_flags(mem, va, flags),
            Self::Flattened(table) => table.set_flags(mem, va, flags),
            Self::Linear(table) => table.set_flags(mem, va, flags),
        }
    }

    /// Replaces the page at `va`, which is mapped, by another of its size. Returns the entry's address.
    pub fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        match self {
            Self::Radix(table) => table.replace(mem, va, mapping),
            Self::Hashed(table) => table.replace(mem, va, mapping),
            Self::ElasticCuckoo(table) => table.replace(mem, va, mapping),
            Self::Flattened(table) => table.replace(mem, va, mapping),
            Self::Linear(table) => table.replace(mem, va, mapping),
        }
    }

    /// Appends the pages that overlap `start..end` in ascending order, until `out` has `most`.
    pub fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        match self {
            Self::Radix(table) => table.mapped(mem, start, end, most, out),
            Self::Hashed(table) => table.mapped(mem, start, end, most, out),
            Self::ElasticCuckoo(table) => table.mapped(mem, start, end, most, out),
            Self::Flattened(table) => table.mapped(mem, start, end, most, out),
            Self::Linear(table) => table.mapped(mem, start, end, most, out),
        }
    }

    /// Removes the page at `va`, which is mapped; tables stay. Returns the entry's address.
    pub fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        match self {
            Self::Radix(table) => table.unmap(mem, va),
            Self::Hashed(table) => table.unmap(mem, va),
            Self::ElasticCuckoo(table) => table.unmap(mem, va),
            Self::Flattened(table) => table.unmap(mem, va),
            Self::Linear(table) => table.unmap(mem, va),
        }
    }

    /// Hands the tables that are empty and translate a part of `start..end` to `release`, each by its first frame.
    pub fn prune(&mut self, mem: &mut PhysMem, start: VirtAddr, end: VirtAddr, release: &mut dyn FnMut(Pfn)) {
        match self {
            Self::Radix(table) => table.prune(mem, start, end, release),
            Self::Flattened(table) => table.prune(mem, start, end, release),
            Self::Hashed(_) | Self::ElasticCuckoo(_) => {}
            Self::Linear(_) => {}
        }
    }

    /// Takes the table of level 1 that translates `va` away, if there is one; it is empty, and those above stay.
    pub fn unlink_leaf_table(&mut self, mem: &mut PhysMem, va: VirtAddr) -> Option<Pfn> {
        match self {
            Self::Radix(table) => table.unlink_leaf_table(mem, va),
            Self::Hashed(_) | Self::ElasticCuckoo(_) => unreachable!("a hashed table has no large pages"),
            Self::Flattened(_) | Self::Linear(_) => unreachable!("it has no large pages"),
        }
    }

    /// Replaces the large page at `va` by pages of the next smaller size over the same frames, linking `frame`
    /// (zeroed contents already created) as their table.
    pub fn split(&mut self, mem: &mut PhysMem, va: VirtAddr, frame: Pfn) {
        match self {
            Self::Radix(table) => table.split(mem, va, frame),
            Self::Hashed(_) | Self::ElasticCuckoo(_) => unreachable!("a hashed table has no large pages"),
            Self::Flattened(_) | Self::Linear(_) => unreachable!("it has no large pages"),
        }
    }

    /// Frees the table itself, if it is the space's own; nothing is mapped any more.
    pub fn destroy(self, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        match self {
            Self::Radix(table) => table.destroy(mem, release),
            Self::Hashed(_) => {}
            Self::ElasticCuckoo(table) => table.destroy(mem, release),
            Self::Flattened(table) => table.destroy(mem, release),
            Self::Linear(table) => table.destroy(mem),
        }
    }

    /// Whether insertions move the entries of other pages: no lock of a page-table page keeps them where they are.
    pub fn moves_entries(&self) -> bool {
        matches!(self, Self::ElasticCuckoo(_))
    }

    /// Levels of a radix tree; of others the levels of one that translates as much.
    pub fn levels(&self) -> u8 {
        (self.va_bits() - FRAME_SHIFT).div_ceil(9) as u8
    }

    /// Frames that it has from the start and that hold nothing yet.
    pub fn untouched_frames(&self) -> u64 {
        match self {
            Self::Radix(_) | Self::Hashed(_) | Self::ElasticCuckoo(_) | Self::Flattened(_) => 0,
            Self::Linear(table) => table.untouched_frames(),
        }
    }

    /// Bits of virtual address that it translates.
    pub fn va_bits(&self) -> u32 {
        match self {
            Self::Radix(table) => table.va_bits(),
            Self::Hashed(table) => table.va_bits(),
            Self::ElasticCuckoo(table) => table.va_bits(),
            Self::Flattened(table) => table.va_bits(),
            Self::Linear(table) => table.va_bits(),
        }
    }
}
