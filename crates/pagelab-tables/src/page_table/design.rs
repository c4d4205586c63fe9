//! The traits that a page-table design implements, and their types.
//!
//! [`Design`] is the table of one address space, with the properties of the design as a whole. [`Shared`] is the state
//! that the tables of a layer share; for most designs there is none: `()`. Nothing here names a design.

use arrayvec::ArrayVec;

use super::{AddrRange, Leaf, Mapping, PageGroup, PteFlags, Removed, TableBlock, TableFrames, WalkList, Ways, Word};
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;
use pagelab_trace::quantity::format_bytes;

/// What became of a segment that was to be pointed to other entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentChange {
    /// There is no such segment.
    Refused,
    /// No walk has reached the segment yet.
    Noted,
    /// Walks reach other entries than before, so what look-aside buffers hold of the segment is stale.
    Rewritten,
}

/// A page-table design: the table of one address space.
///
/// Requirements on an implementation:
///
/// - The table consists of words of `mem` in frames that it was given, and nothing else that a walk would need, so that
///   references have real addresses. Additional host-side state (a memo, an index) must never change what a walk lists.
/// - [`walk`](Self::walk) changes nothing and lists every reference of a full walk, from the root on: at least one. The
///   last reference is the leaf entry, or the entry at which the walk failed. References of the same dependency step
///   are consecutive. Levels count from the leaf, which is 1, up to 5; `shift` and `factor` say what an entry maps.
/// - [`ways`](Self::ways), if there are any, list the same as `walk`: the entries of all levels from the root to the
///   page's entry, one dependency step each.
/// - A walk finds a mapping with the same frame, size and flags until it is unmapped, replaced or split, or its flags
///   are set. [`mapped`](Self::mapped) lists exactly these mappings, in ascending order.
/// - A page can be mapped when [`missing_tables`](Self::missing_tables) is 0. Until then, each block that
///   [`next_table_orders`](Self::next_table_orders) requests and [`link_table`](Self::link_table) accepts reduces that
///   number.
/// - All memory is returned: after everything was unmapped and pruned, `destroy` leaves no frame with contents.
/// - Random choices come from a seed in the parameters, never from the host.
///
/// The default methods suit a table of fixed size for 4 KiB pages that needs no memory after its creation.
/// `tests/conformance` checks every registered design against these requirements.
pub trait Design: Sized {
    /// The design's part of the configuration.
    type Parameters: Clone;
    /// State that all tables of a layer share.
    type Shared: Shared<Self>;

    /// The page sizes that it maps, and why it maps no others.
    const PAGE_SIZES: PageSizes;
    /// Whether the smaller pages in the range of a large page have a table of their own, which [`Self::split`] needs a
    /// frame for and [`Self::unlink_leaf_table`] gives back. If not, the kernel splits a large page by unmapping it and
    /// mapping its parts.
    const TABLE_PER_LARGE_PAGE: bool = true;
    /// Set if only layers with guests can have the design: the reason, which an error completes with "…, and this layer
    /// hosts none".
    const HOSTS_ONLY: Option<&'static str> = None;
    /// The page sizes whose entries can hold a software word while they are not present, or why there are none.
    const WORDS: Result<&'static [PageSize], &'static str>;
    /// Whether entries have a bit that walks ignore and that kernel and engines may set, in leaves and in upper
    /// entries.
    const MARKS: bool = false;
    /// Whether insertions move the entries of other pages. Then the lock of a page-table page does not keep them in
    /// place.
    const MOVES_ENTRIES: bool = false;
    /// Whether it translates regions of an address space in another way ([`Self::begin_region`]).
    const REGIONS: bool = false;
    /// Whether it remembers paths of walks ([`Self::ways`]).
    const REMEMBERS_WAYS: bool = false;
    /// Whether a process exit leaves its entries in the table until a scan ([`Shared::begin_scan`]) deletes them.
    const CLEARS_LAZILY: bool = false;

    /// Parameters for tests: one of each kind, small enough that tables fill, grow and collide.
    fn samples() -> Vec<Self::Parameters>;

    /// The page sizes that a table with these parameters maps, in ascending order without gaps.
    fn page_sizes(_: &Self::Parameters) -> PageSizes {
        Self::PAGE_SIZES
    }

    /// Which of its entries an MMU cache can hold.
    fn upper_entries(parameters: &Self::Parameters) -> UpperEntries;

    /// Checks the parameters. Page sizes, MMU caches and hosting are checked by means of the constants above.
    fn validate(_: &Self::Parameters, _: &Context) -> Result<(), EngineError> {
        Ok(())
    }

    /// Whether the tables are in the kernel's virtual memory ([`Self::pinned`]).
    fn is_in_virtual_memory(_: &Self::Parameters) -> bool {
        false
    }

    /// log2 of the bytes of segments, if processes share those with the same contents ([`Self::set_shared_segment`]).
    fn shared_segments(_: &Self::Parameters) -> Option<u32> {
        None
    }

    /// Order of the largest block that a table needs.
    fn largest_block(_: &Self::Parameters) -> u32 {
        0
    }

    /// Order of the largest block that a table requests and can do without.
    fn optional_block(_: &Self::Parameters) -> u32 {
        0
    }

    /// Levels of the x86-64 tree for the direct map of a kernel whose programs use this table. The kernel itself uses
    /// large pages.
    fn direct_map_levels(_: &Self::Parameters) -> u8 {
        4
    }

    /// An empty table of one address space; `guest` is the memory size in bytes of the guest that the space hosts, if
    /// any.
    fn create(
        parameters: &Self::Parameters,
        shared: &mut Self::Shared,
        mem: &mut PhysMem,
        frames: TableFrames,
        guest: Option<u64>,
    ) -> Result<Self, NoTable>;

    /// Lists the references of a walk for `va` in `list`, which it clears first, and sets the walk's result.
    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList);

    /// Lists the references of a walk by hardware that may leave some pages to the kernel: for such a page
    /// ([`hidden_lines`](Self::hidden_lines)) it finds nothing.
    #[inline]
    fn walk_by_hardware(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        self.walk(mem, va, list);
    }

    /// The pages whose entries are in the line that a walk by hardware for `va` reads last.
    fn group(&self, mem: &PhysMem, va: VirtAddr) -> Option<PageGroup> {
        let remembered = self.ways(mem).and_then(|ways| ways.group(va));
        remembered.or_else(|| PageGroup::by_walks(va, |va, list| self.walk_by_hardware(mem, va, list)))
    }

    /// The lines that [`uncover`](Self::uncover) writes, if the page at `va` is mapped and hardware cannot find it.
    fn hidden_lines(&self, _: &PhysMem, _va: VirtAddr) -> Option<[PhysAddr; 2]> {
        None
    }

    /// Moves the entry of such a page to where hardware finds it. Error: there is no place for an entry that must make
    /// room.
    fn uncover(&mut self, _: &mut PhysMem, va: VirtAddr) -> Result<(), NoRoom> {
        unreachable!("hardware finds the page at {va:?}")
    }

    /// How references to the table are translated, if it is in the kernel's virtual memory.
    #[inline]
    fn pinned(&self) -> Option<PinnedTable> {
        None
    }

    /// Prefetches on the host what [`hint`](Self::hint) will read to find the leaf entry. Changes nothing.
    #[inline(always)]
    fn hint_way(&self, _: VirtAddr) {}

    /// Prefetches on the host the leaf entry at which a walk for `va` will end, if the table can find it quickly.
    /// Changes nothing.
    #[inline]
    fn hint(&self, _: &PhysMem, _: VirtAddr) {}

    /// The leaf entry at which a walk for `va` will end and the first frame that it maps, if the table can find them
    /// quickly. Use it for look-ahead only.
    #[inline]
    fn peek(&self, _: &PhysMem, _: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        None
    }

    /// The remembered paths of walks, if the design is a tree of 512-entry tables.
    #[inline(always)]
    fn ways<'a>(&'a self, _: &'a PhysMem) -> Option<Ways<'a>> {
        None
    }

    /// Address of the last entry that a walk for `va` reads, or of the entry that a page of `size` will get there.
    fn entry(&self, mem: &PhysMem, va: VirtAddr, _size: PageSize) -> PhysAddr {
        let mut list = WalkList::new();
        self.walk(mem, va, &mut list);
        list.refs().last().expect("a walk reads an entry at least").addr
    }

    /// The smallest new mapping in bytes for which [`begin_region`](Self::begin_region) is called; `None` without
    /// regions.
    fn least_region_bytes(&self) -> Option<u64> {
        None
    }

    /// Offers the design a new private mapping, in which nothing is mapped, to translate it in another way.
    fn begin_region(&mut self, _: &PhysMem, _start: VirtAddr, _end: VirtAddr) {}

    /// Ends the regions in which the kernel has no mapping any more; tables have been pruned.
    fn end_regions(&mut self, _is_mapped: &dyn Fn(VirtAddr, VirtAddr) -> bool) {}

    /// Gives the segment of an address, in which nothing is mapped, entries that other spaces use too, or its own ones
    /// again.
    fn set_shared_segment(&mut self, _: &mut PhysMem, _: VirtAddr, _shared: Option<u32>) -> SegmentChange {
        SegmentChange::Refused
    }

    /// Makes sure that the space's walks reach the entries of a shared segment, in which another space maps a page.
    /// False if there is no room for the segment.
    fn reach_shared_segment(&mut self, _: &mut PhysMem, _: VirtAddr) -> bool {
        false
    }

    /// Notes that the entry of a page in a shared segment is also this space's, or not any more; the entry stays.
    fn note_shared_page(&mut self, _: VirtAddr, _mapped: bool) {}

    /// Whether a region translates this address.
    fn translates_by_region(&self, _: VirtAddr) -> bool {
        false
    }

    /// The addresses that the page-table page with the entry of the 4 KiB page at `va` translates. Designs without such
    /// pages answer as x86-64 would.
    fn leaf_table_range(&self, va: VirtAddr) -> AddrRange {
        let start = VirtAddr(va.0 & !(PageSize::Size2M.bytes() - 1));
        (start, start + PageSize::Size2M.bytes())
    }

    /// Number of tables to build, from the top, before a page of `size` at `va` can be mapped. For a table that must
    /// grow: number of blocks that it needs.
    fn missing_tables(&self, _: &PhysMem, _: VirtAddr, _: PageSize) -> usize {
        0
    }

    /// Possible orders of the block for the topmost table that is missing for a page of `size` at `va`, the preferred
    /// one first.
    fn next_table_orders(&self, _: &PhysMem, _va: VirtAddr, _size: PageSize) -> ArrayVec<u32, 2> {
        ArrayVec::from_iter([0])
    }

    /// Links `block` (whose zeroed contents exist) as the topmost missing table above a page of `size` at `va`. Returns
    /// the address of the entry that it wrote. Returns `None` if no such table is missing any more; the caller then
    /// keeps the block.
    fn link_table(&mut self, _: &mut PhysMem, _: VirtAddr, _: PageSize, _: TableBlock) -> Option<PhysAddr> {
        None
    }

    /// Makes sure that the next page that is mapped, which is this one, has room. Returns false if that is not
    /// possible. All tables above its entry exist, and other pages may be unmapped before it is mapped.
    fn reserve(&mut self, _: &mut PhysMem, _va: VirtAddr, _size: PageSize) -> bool {
        true
    }

    /// Maps a page. All tables above its entry exist. The entry is not present and holds no software word any more.
    /// Returns the entry's address.
    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom>;

    /// Replaces the flags of the page at `va`, which is mapped. Returns the entry's address.
    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr;

    /// Replaces the page at `va`, which is mapped, by another of its size. Returns the entry's address.
    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr;

    /// Unmaps the page at `va`, which is mapped. Tables stay, and the entry holds no software word. Returns the entry's
    /// address.
    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr;

    /// Appends the mapped pages that overlap `start..end` in ascending order, until `out` has `most` elements.
    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>);

    /// Writes a software word of [`WORD_BITS`](super::WORD_BITS) bits to the entry of the page of `size` at `va`, which
    /// is not present; 0 removes it. All tables above the entry exist, and no table for smaller pages below it. A walk
    /// reports the word ([`Leaf::NotPresent`]), and prune keeps the table that contains it. Returns the entry's
    /// address.
    fn set_word(&mut self, _: &mut PhysMem, va: VirtAddr, _size: PageSize, _: u64) -> PhysAddr {
        unreachable!("a design without room for words is asked to keep one at {va:?}")
    }

    /// Appends the software words of pages that overlap `start..end` in ascending order, until `out` has `most`
    /// elements.
    fn words(&self, _: &PhysMem, _: VirtAddr, _: VirtAddr, _most: usize, _out: &mut Vec<Word>) {}

    /// Address of the entry of `level` for `va`, and whether it is marked; `None` if the tables end above that level.
    /// An entry keeps its mark as long as it stays present.
    fn mark(&self, _: &PhysMem, va: VirtAddr, _level: u8) -> Option<(PhysAddr, bool)> {
        unreachable!("a design without marks is asked for one at {va:?}")
    }

    /// Sets or clears the mark of that entry, which exists. Returns the entry's address.
    fn set_mark(&mut self, _: &mut PhysMem, va: VirtAddr, _level: u8, _on: bool) -> PhysAddr {
        unreachable!("a design without marks is to set one at {va:?}")
    }

    /// Frees the empty tables that translate a part of the first range and nothing outside the second one; passes the
    /// first frame of each to `release`.
    fn prune(&mut self, _: &mut PhysMem, _range: AddrRange, _room: AddrRange, _release: &mut dyn FnMut(Pfn)) {}

    /// Unlinks the empty level-1 table that translates `va`, if there is one; the tables above stay. Called only for
    /// designs with large pages; `None` without tables of their own.
    fn unlink_leaf_table(&mut self, _: &mut PhysMem, va: VirtAddr) -> Option<Pfn> {
        unreachable!("a design without large pages is to make room for one at {va:?}")
    }

    /// Splits the large page at `va` into pages of the next smaller size over the same frames. `frame` (whose zeroed
    /// contents exist) becomes their table. Called only for designs with a table per large page.
    fn split(&mut self, _: &mut PhysMem, va: VirtAddr, _: Pfn) {
        unreachable!("a design without large pages is to split one at {va:?}")
    }

    /// Reports work beyond the requested change of an entry, and resets it.
    fn report_work(&mut self, _: &mut Self::Shared, _: &mut TableWork) {}

    /// Leaves the table's entries, which no longer map anything, to a later scan. Returns false if the shared state has
    /// no tag left for the space. Called only for designs that clear lazily.
    fn abandon(&mut self, _: &mut Self::Shared, _: &mut PhysMem) -> bool {
        true
    }

    /// Frees the table's memory, if it is the space's own. Nothing is mapped any more.
    fn destroy(self, shared: &mut Self::Shared, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn));

    /// Frames that it was given at creation and does not use yet.
    fn untouched_frames(&self) -> u64 {
        0
    }

    /// Number of virtual-address bits that it translates.
    fn va_bits(&self) -> u32;

    /// The error message for a run that ran out of memory or tags: what is missing, and what to set.
    fn exhausted(_: &Self::Shared, _: &PhysMem, layer: &str, what: Exhausted) -> String {
        match what {
            Exhausted::Tags => format!("layer `{layer}` has no address-space tag left for its page table"),
            Exhausted::Places(va) => format!("layer `{layer}` has no place for {va:?} in its page table"),
            Exhausted::Block { order, free_frames } => format!(
                "layer `{layer}` has no {} of contiguous memory for a page table, though {} are free. Give it more by --set \
                 system.layers.{layer}.memory_bytes=SIZE, or memory that is less aged",
                format_bytes(FRAME_BYTES << order),
                format_bytes(FRAME_BYTES * free_frames),
            ),
        }
    }
}

/// State that the tables of a layer share: memory reserved at boot, tags of address spaces, counters.
pub trait Shared<D: Design>: Sized {
    /// Builds the state when a layer boots.
    fn boot(parameters: &D::Parameters, boot: &Boot, mem: &mut PhysMem) -> Result<(Self, SetAside), EngineError>;

    /// Statistics of the layer's page tables, named `layer.NAME.page_table.…`.
    fn statistics(&self, _: &PhysMem) -> Vec<Measure> {
        Vec::new()
    }

    /// Whether a scan for the entries of ended spaces is due.
    fn is_scan_due(&self) -> bool {
        false
    }

    /// Begins such a scan if one is due.
    fn begin_scan(&mut self) -> Option<TableScan> {
        None
    }

    /// The references of the scan's next step. Changes nothing.
    fn plan_scan(&self, _: &PhysMem, _: &TableScan) -> ScanStep {
        unreachable!("no scan was begun")
    }

    /// Executes the step; returns false if it was the last.
    fn commit_scan(&mut self, _: &mut PhysMem, _: &mut TableScan) -> bool {
        unreachable!("no scan was begun")
    }

    /// Adds the cycles of a scan to the statistics.
    fn charge_scan(&mut self, _: Cycles) {}
}

/// For designs whose tables share nothing.
impl<D: Design> Shared<D> for () {
    fn boot(_: &D::Parameters, boot: &Boot, _: &mut PhysMem) -> Result<(Self, SetAside), EngineError> {
        Ok(((), SetAside::nothing(boot)))
    }
}

/// The layer that a page table is validated for.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Its name.
    pub layer: &'a str,
    /// The design's name.
    pub design: &'a str,
    /// Its largest page size.
    pub page_size: PageSize,
    /// Whether it hosts guests.
    pub hosts: bool,
}

impl Context<'_> {
    /// An error at a key of the layer.
    pub fn refuse<T>(&self, part: &str, what: impl Into<String>) -> Result<T, EngineError> {
        Err(EngineError::config(format!("system.layers.{}.{part}", self.layer), what))
    }
}

/// The memory of a layer at boot.
#[derive(Clone, Copy, Debug)]
pub struct Boot<'a> {
    /// Name of the layer.
    pub layer: &'a str,
    /// Frames of 4 KiB of the layer's physical memory.
    pub frames: u64,
    /// Number of leading frames that are already reserved.
    pub taken: u64,
    /// Bytes of memory of each of its guests.
    pub guests: &'a [u64],
}

/// Memory reserved for page tables at boot.
#[derive(Clone, Copy, Debug)]
pub struct SetAside {
    /// The first frame after the reserved memory.
    pub end: u64,
    /// Number of the reserved frames that statistics attribute to the tables of spaces.
    pub of_spaces: u64,
    /// Name of the other reserved frames, if there are any.
    pub what: Option<&'static str>,
}

impl SetAside {
    /// Reserves nothing for page tables.
    pub fn nothing(boot: &Boot) -> Self {
        Self { end: boot.taken, of_spaces: 0, what: None }
    }
}

/// The page sizes that a design maps.
#[derive(Clone, Copy, Debug)]
pub struct PageSizes {
    /// The sizes in ascending order.
    pub sizes: &'static [PageSize],
    /// Why no other sizes are possible.
    pub why: &'static str,
}

impl PageSizes {
    /// All sizes of x86-64.
    pub const ALL: Self = Self { sizes: &PageSize::ALL, why: "" };

    /// 4 KiB pages only.
    pub const fn only_4k(why: &'static str) -> Self {
        Self { sizes: &[PageSize::Size4K], why }
    }
}

/// Which of a walk's references before the last an MMU cache can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpperEntries {
    /// Entries of 512-entry tables, one per level down to the leaf (x86-64), with this many levels.
    Levels(u8),
    /// Entries of some of these levels, in tables that may be larger.
    LargerTables,
    /// Entries of each level down to the leaf, in tables of a frame, which are not words of 8 bytes.
    Packed,
    /// None: every walk makes one reference.
    Nothing,
    /// Entries of a table of segments, which come first and map a segment each.
    Segments,
    /// Entries of 512-entry tables in the walks of some pages; other walks make one reference.
    OfSomePages,
    /// References that are not upper-level entries.
    Unfit,
}

/// A table in the kernel's virtual memory, at the addresses of the direct map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedTable {
    /// The physical memory that fixed TLB entries translate, of the table of each page size: its first address, and
    /// the first one behind it.
    pub fixed: [(PhysAddr, PhysAddr); PageSize::ALL.len()],
    /// Cycles of a handler when the TLBs do not hold a part of the rest.
    pub miss_cycles: Cycles,
}

impl PinnedTable {
    /// Whether a fixed TLB entry translates an address of a table.
    #[inline]
    pub fn is_fixed(&self, addr: PhysAddr) -> bool {
        self.fixed.iter().any(|&(start, end)| (start..end).contains(&addr))
    }
}

/// Why no table could be created for a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTable {
    /// The layer has no free block of this order.
    Block {
        /// log2 of the number of frames.
        order: u32,
    },
    /// All tags of address spaces are in use.
    Tags,
}

/// The table has no slot left for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// The resource that ran out.
#[derive(Clone, Copy, Debug)]
pub enum Exhausted {
    /// A tag for an address space.
    Tags,
    /// A slot for this page.
    Places(VirtAddr),
    /// A block of contiguous frames.
    Block {
        /// log2 of the number of frames.
        order: u32,
        /// Number of free 4 KiB frames in the layer.
        free_frames: u64,
    },
}

/// Work of tables beyond the entry that they were asked to write.
#[derive(Clone, Debug, Default)]
pub struct TableWork {
    /// Lines that the last insertions read and wrote; the caller charges them.
    pub lines: Vec<PhysAddr>,
    /// First frames of blocks that a table no longer uses; their contents are already removed.
    pub released: Vec<Pfn>,
}

/// A scan in progress that deletes the entries of ended spaces.
#[derive(Clone, Debug)]
pub struct TableScan {
    /// The tags of these spaces.
    pub tags: Vec<u16>,
    /// Number of the next step.
    pub at: u64,
}

/// The references of a step of a scan.
#[derive(Clone, Debug)]
pub struct ScanStep {
    /// The range that is read completely: start address and bytes.
    pub read: (PhysAddr, u64),
    /// Addresses that are written.
    pub written: Vec<PhysAddr>,
}

impl Leaf {
    /// Neither a translation nor a software word; the walk ended at an entry of this level.
    #[inline(always)]
    pub const fn nothing(level: u8) -> Self {
        Self::NotPresent { level, word: 0 }
    }
}
