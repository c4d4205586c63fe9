//! Page tables: pure state that says where a translation is found and which words one must read to find it.
//!
//! A page table lives in the simulated memory of its layer. [`PageTable::walk`] charges nothing and changes nothing: it
//! lists the references of a full walk, of every level even where an MMU cache will let the walker skip some, because
//! fault handlers need the entries' addresses. Only the walker turns references into cycles.
//!
//! A design is one file here that implements [`Design`], and one line below. `registry.rs` makes the enums
//! [`PageTable`], [`PageTableConfig`] and [`LayerTables`] of these lines, `dispatch.rs` asks them. What designs share:
//! `entry.rs`, entries as x86-64 writes them; `page_index.rs`, which pages are mapped; `paths.rs`, ways that the host
//! remembers.

mod design;
mod entry;
mod page_index;
mod paths;
#[macro_use]
mod registry;
mod walk_list;
mod way;

pub use design::{
    Boot, Context, Design, Exhausted, Measure, NoRoom, NoTable, PageSizes, Scan, ScanStep, SetAside, Shared, Statistic,
    TableWork, UpperEntries,
};
pub use entry::{WORD_BITS, table_of};
pub use walk_list::{WalkList, WalkRef};
pub use way::{Way, Ways};

pub use pagelab_base::mapping::{Mapping, PteFlags};

use pagelab_base::addr::{PageSize, Pfn, VirtAddr};
use pagelab_base::memory::PhysMem;

page_tables! {
    mod radix {
        Radix(radix::Radix) = "radix", "x86-64 radix tree of 4 or 5 levels with leaves of 4 KiB, 2 MiB and 1 GiB (`levels`)";
    }
    mod hashed {
        HashedChained(hashed::Hashed<hashed::Chained>) = "hashed-chained",
            "one hashed table per layer, slots of 32 bytes, collisions in a chain table (Itanium, as Barr et al.)";
        HashedOpen(hashed::Hashed<hashed::Open>) = "hashed-open",
            "one hashed table per layer, slots of 16 bytes, linear probing";
        HashedClustered(hashed::Hashed<hashed::Clustered>) = "hashed-clustered",
            "the same with the entries of `cluster` pages (2, 4, 8) beside one tag";
        HashedCompact(hashed::Hashed<hashed::Compact>) = "hashed-compact",
            "the same with a tag and 8 entries of 7 bytes per line; `cluster` up to 4096 keeps lines together for a host";
        HashedPower(hashed::Hashed<hashed::Power>) = "hashed-power",
            "one hashed table per layer, two groups of 8 slots for each page, primary and secondary (POWER)";
    }
    mod elastic_cuckoo {
        ElasticCuckoo(elastic_cuckoo::ElasticCuckoo) = "elastic-cuckoo",
            "a hashed table per process: lines of 8 entries, three places each, probed at once; grows and shrinks step by step";
    }
    mod flattened {
        Flattened(flattened::Flattened) = "flattened",
            "x86-64 radix tree whose levels 4 and 3, and 2 and 1, are tables of 2 MiB where there is memory for them (`merge`)";
    }
    mod linear {
        Linear(linear::Linear) = "linear", "flat array indexed by page number, for the memory of guests: one reference per walk";
    }
    mod two_level { TwoLevel(two_level::TwoLevel) = "two-level", "tree of tables of 2^18 entries, 2 MiB each: two references per walk"; }
}

mod dispatch;

/// What a walk finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// The page is mapped.
    Present(Mapping),
    /// No translation: the walk ended at an entry of this level, 1 in designs without larger pages. What the entry of a
    /// page holds instead of a translation; 0 for nothing.
    NotPresent {
        /// Level of the entry that the walk ended at.
        level: u8,
        /// What that entry holds instead of a translation; 0 for nothing.
        word: u64,
    },
}

/// A page whose translation an operation removed or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Where the page begins.
    pub va: VirtAddr,
    /// Its translation, as it was.
    pub mapping: Mapping,
}

/// What the entry of a page that is not present holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Where the page begins.
    pub va: VirtAddr,
    /// Size of the page that the entry would map.
    pub size: PageSize,
    /// Never 0.
    pub word: u64,
}

impl Word {
    /// That of a page of 4 KiB.
    pub const fn of_4k(va: VirtAddr, word: u64) -> Self {
        Self { va, size: PageSize::Size4K, word }
    }
}

/// A source of blocks of 2^order frames for tables; none when the layer's memory has no such block.
pub type TableFrames<'a> = &'a mut dyn FnMut(u32) -> Option<Pfn>;

/// Contiguous frames for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableBlock {
    /// The first of the frames.
    pub first: Pfn,
    /// log2 of the number of frames.
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
