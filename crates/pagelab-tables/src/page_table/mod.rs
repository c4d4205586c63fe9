//! Page tables: state without timing. A table says where a page's entry is and which words a walk reads to find it.
//!
//! A page table lives in the simulated memory of its layer. [`PageTable::walk`] costs nothing and changes nothing. It
//! lists the references of a full walk, including levels that an MMU cache may let the walker skip, because fault
//! handlers need the entries' addresses. Only the walker turns references into cycles.
//!
//! A design is one file here that implements [`Design`], and one line below. `registry.rs` generates the enums
//! [`PageTable`], [`PageTableConfig`] and [`LayerTables`] from these lines; `dispatch.rs` forwards calls to the
//! variant. Designs share `entry.rs` (x86-64 entries), `page_index.rs` (the set of mapped pages) and `paths.rs` (a memo
//! that makes walks fast on the host).

mod design;
mod entry;
mod page_group;
mod page_index;
mod paths;
#[macro_use]
mod registry;
mod sizes;
mod walk_list;
mod way;

pub use design::{
    Boot, Context, Design, Exhausted, NoRoom, NoTable, PageSizes, PinnedTable, ScanStep, SegmentChange, SetAside,
    Shared, TableScan, TableWork, UpperEntries,
};
pub use entry::{WORD_BITS, table_of};
pub use page_group::{GROUP, PageGroup};
pub use sizes::{SizeProbes, SizeTables, SizesConfig};
pub(crate) use walk_list::MAX_VA_BITS;
pub use walk_list::{WalkList, WalkRef};
pub use way::{WalkPath, Ways};

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
            "the same with the entries of `cluster` pages (2, 4, 8) per tag";
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
    mod radix_compact {
        RadixCompact(radix_compact::RadixCompact) = "radix-compact",
            "radix tree with up to 10 entries per line, 640 per table (`line_entries`); indices by division";
    }
    mod do_it_yourself {
        DoItYourself(do_it_yourself::DoItYourself) = "do-it-yourself",
            "arrays of a program for its large mappings, one reference per walk; a radix tree for the rest (`regions`)";
    }
    mod linear {
        Linear(linear::Linear) = "linear", "flat array indexed by page number, for the memory of guests: one reference per walk";
    }
    mod two_level { TwoLevel(two_level::TwoLevel) = "two-level", "tree of tables of 2^18 entries, 2 MiB each: two references per walk"; }
}

mod dispatch;

/// Result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// The page is mapped.
    Present(Mapping),
    /// No translation.
    NotPresent {
        /// Level of the entry at which the walk ended; 1 in designs without larger pages.
        level: u8,
        /// The software word that this entry holds instead of a translation; 0 for none.
        word: u64,
    },
}

/// A page whose translation an operation removed or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Start address of the page.
    pub va: VirtAddr,
    /// Its previous translation.
    pub mapping: Mapping,
}

/// The software word in the entry of a page that is not present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Start address of the page.
    pub va: VirtAddr,
    /// Size of the page that the entry would map.
    pub size: PageSize,
    /// The word, which is never 0.
    pub word: u64,
}

impl Word {
    /// The word of a 4 KiB page.
    pub const fn for_4k(va: VirtAddr, word: u64) -> Self {
        Self { va, size: PageSize::Size4K, word }
    }
}

/// Addresses from the first up to the second.
pub type AddrRange = (VirtAddr, VirtAddr);

/// Whether this many bytes from an address on lie in a range.
fn is_within((start, bytes): (u64, u64), room: AddrRange) -> bool {
    room.0.0 <= start && bytes <= room.1.0.saturating_sub(start)
}

/// Allocates a block of 2^order frames for a table; `None` if the layer's memory has no such block.
pub type TableFrames<'a> = &'a mut dyn FnMut(u32) -> Option<Pfn>;

/// Contiguous frames for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableBlock {
    /// The first frame.
    pub first: Pfn,
    /// log2 of the number of frames.
    pub order: u32,
}

impl TableBlock {
    /// A single frame.
    pub fn frame(first: Pfn) -> Self {
        Self { first, order: 0 }
    }

    /// Gives the frames contents, all zero.
    pub fn create(self, mem: &mut PhysMem) {
        self.frames().for_each(|frame| mem.create(frame));
    }

    /// Removes the frames' contents.
    pub fn destroy(self, mem: &mut PhysMem) {
        self.frames().for_each(|frame| mem.destroy(frame));
    }

    /// True if every word of the block is zero.
    fn is_zero(self, mem: &PhysMem) -> bool {
        self.frames().all(|frame| mem.is_zero(frame))
    }

    fn frames(self) -> impl Iterator<Item = Pfn> {
        (self.first.0..self.first.0 + (1 << self.order)).map(Pfn)
    }
}

#[cfg(test)]
mod tests {
    use super::radix::Radix;
    use super::{Design, PageSize, Pfn, PhysMem, TableBlock, VirtAddr};

    /// What a table covers must be within the room: its other pages may be those of a neighbour.
    #[test]
    fn tables_that_reach_beyond_the_room_stay() {
        let (mut mem, page) = (PhysMem::default(), VirtAddr(0x40_1000));
        let mut table = Radix::new(4, &mut mem, &mut |_| Some(Pfn(99))).unwrap();
        for frame in 100..103 {
            mem.create(Pfn(frame));
            table.link_table(&mut mem, page, PageSize::Size4K, TableBlock::frame(Pfn(frame))).expect("it is missing");
        }
        let mut prune = |from: u64, to: u64| {
            let mut released = Vec::new();
            let range = (page, page + 0x1000);
            table.prune(&mut mem, range, (VirtAddr(from), VirtAddr(to)), &mut |pfn| released.push(pfn.0));
            released
        };
        // Tables 102, 101 and 100 cover 2 MiB from 4 MiB on, 1 GiB and 512 GiB.
        for (from, to) in [(page.0, 1 << 48), (0x40_0001, 1 << 48), (0, 0x5f_ffff), (0, page.0 + 0x1000)] {
            assert_eq!(prune(from, to), [0; 0], "{from:#x} to {to:#x}");
        }
        assert_eq!(prune(0x40_0000, 0x60_0000), [102]);
        assert_eq!(prune(0x1000, 1 << 48), [0; 0]);
        assert_eq!(prune(0, 1 << 30), [101]);
        assert_eq!(prune(0, 1 << 39), [100]);
    }
}
