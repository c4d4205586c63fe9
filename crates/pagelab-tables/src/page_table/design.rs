//! What a page-table design is: the traits that one implements, and the words that they speak in.
//!
//! [`Design`] is the table of one address space and all that is said of the design as a whole; [`Shared`] is what the
//! tables of a layer have in common, for most designs nothing: `()`. Nothing here knows a design by name.

use arrayvec::ArrayVec;

use super::{Leaf, Mapping, PteFlags, Removed, TableBlock, TableFrames, WalkList, Ways, Word};
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_trace::quantity::format_bytes;

/// A page-table design: the table of one address space.
///
/// What an implementor must uphold:
///
/// - The table is words of `mem` in frames that it was given, and nothing else that a walk would need: references have
///   real addresses. What the host remembers beside them (a memo, an index) must never change what a walk lists.
/// - [`walk`](Self::walk) changes nothing and lists every reference of a full walk, from the root on. It reads an entry
///   at least; the last reference is the leaf entry, or the one that the walk gave up at. The references of one
///   dependency step follow each other. Levels are 1 to 5, those of x86-64 with the same reach: 1 for an entry of a 4
///   KiB page.
/// - [`ways`](Self::ways), where there are any, say what `walk` would: the entries of all levels from the root down to
///   the page's, one dependency step each.
/// - A translation that was mapped is found with the same frame, size and flags until it is unmapped, replaced, split
///   or its flags are set; [`mapped`](Self::mapped) lists exactly those, in ascending order.
/// - A page can be mapped when [`missing_tables`](Self::missing_tables) is 0. Until then each block that
///   [`next_table_orders`](Self::next_table_orders) asks for and [`link_table`](Self::link_table) takes brings it
///   nearer.
/// - What was taken is given back: after everything was unmapped and pruned, `destroy` leaves no frame with contents.
/// - Choices come from a seed in the parameters, never from the host.
///
/// The defaults are those of a table of fixed places for pages of 4 KiB that needs no memory beyond what it begins
/// with. `tests/conformance` holds every registered design to this.
pub trait Design: Sized {
    /// What the configuration says of it.
    type Parameters: Clone;
    /// What all tables of a layer have in common.
    type Shared: Shared<Self>;

    /// The sizes of pages that it maps, and why no others.
    const PAGE_SIZES: PageSizes;
    /// Why only layers that host guests can have it, if that is so: what ends "…, and this layer hosts none".
    const HOSTS_ONLY: Option<&'static str> = None;
    /// The pages whose entries can hold words while they are not present, or why none can.
    const WORDS: Result<&'static [PageSize], &'static str>;
    /// Whether entries have a bit that walks ignore and that kernel and engines may set, in leaves and in the entries
    /// above.
    const MARKS: bool = false;
    /// Whether insertions move the entries of other pages: no lock of a page-table page keeps them where they are.
    const MOVES_ENTRIES: bool = false;
    /// Whether it remembers ways ([`Self::ways`]).
    const REMEMBERS_WAYS: bool = false;
    /// Whether an exit leaves its entries behind, for a scan by [`Shared::begin_scan`] to delete later.
    const CLEARS_LAZILY: bool = false;

    /// Parameters to test it with: each kind of them once, small enough that tables fill, grow and collide.
    fn samples() -> Vec<Self::Parameters>;

    /// What of its entries an MMU cache may keep.
    fn upper_entries(parameters: &Self::Parameters) -> UpperEntries;

    /// Checks the parameters. Sizes of pages, MMU caches and hosting are checked by what is said above.
    fn validate(_: &Self::Parameters, _: &Context) -> Result<(), EngineError> {
        Ok(())
    }

    /// Order of the largest block that a table asks for at once.
    fn largest_block(_: &Self::Parameters) -> u32 {
        0
    }

    /// Levels of the x86-64 tree that the direct map of a kernel is whose programs have this table: the kernel itself
    /// has large pages.
    fn direct_map_levels(_: &Self::Parameters) -> u8 {
        4
    }

    /// An empty table of one address space; of one that hosts a guest with its bytes of memory.
    fn create(
        parameters: &Self::Parameters,
        shared: &mut Self::Shared,
        mem: &mut PhysMem,
        frames: TableFrames,
        guest: Option<u64>,
    ) -> Result<Self, NoTable>;

    /// Lists the references of a walk for `va` in `list` (cleared first) and the leaf that they end at.
    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList);

    /// Has the host fetch what [`hint`](Self::hint) will look at to find the leaf entry. Changes nothing.
    #[inline(always)]
    fn hint_way(&self, _: VirtAddr) {}

    /// Has the host fetch the leaf entry that a walk for `va` will end at, if the table knows where that is. Changes
    /// nothing.
    #[inline]
    fn hint(&self, _: &PhysMem, _: VirtAddr) {}

    /// The leaf entry that a walk for `va` will end at and the first frame that it maps, if the table knows where that
    /// is; for look-ahead only.
    #[inline]
    fn peek(&self, _: &PhysMem, _: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        None
    }

    /// The ways of walks that it remembers, if it is a tree of tables of 512 entries.
    #[inline(always)]
    fn ways<'a>(&'a self, _: &'a PhysMem) -> Option<Ways<'a>> {
        None
    }

    /// The last entry that a walk for `va` reads, or where the page's is going to be.
    fn entry(&self, mem: &PhysMem, va: VirtAddr) -> PhysAddr {
        let mut list = WalkList::new();
        self.walk(mem, va, &mut list);
        list.refs().last().expect("a walk reads an entry at least").addr
    }

    /// Tables that must be built before a page of `size` at `va` can be mapped, top first; of a table that is to grow,
    /// the blocks for that.
    fn missing_tables(&self, _: &PhysMem, _: VirtAddr, _: PageSize) -> usize {
        0
    }

    /// Orders of the block that the topmost of them takes, the preferred one first.
    fn next_table_orders(&self, _: &PhysMem, _: VirtAddr) -> ArrayVec<u32, 2> {
        ArrayVec::from_iter([0])
    }

    /// Links `block` (zeroed contents already created) as the topmost missing table on the way to a page of `size` at
    /// `va`. Returns the entry written, none if no such table is missing any more: the caller keeps its memory.
    fn link_table(&mut self, _: &mut PhysMem, _: VirtAddr, _: PageSize, _: TableBlock) -> Option<PhysAddr> {
        None
    }

    /// Maps a page; all tables on its way exist and its entry is not present: a word in it is gone. Returns the entry's
    /// address.
    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom>;

    /// Replaces the flags of the page at `va`, which is mapped. Returns the entry's address.
    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr;

    /// Replaces the page at `va`, which is mapped, by another of its size. Returns the entry's address.
    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr;

    /// Removes the page at `va`, which is mapped; tables stay and the entry holds no word. Returns the entry's address.
    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr;

    /// Appends the pages that overlap `start..end` in ascending order, until `out` has `most`.
    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>);

    /// Puts a word in the entry of the page of `size` at `va`, which is not present; 0 for none. All tables on its way
    /// exist, and none for smaller pages. The word has [`WORD_BITS`](super::WORD_BITS) bits. A walk reports it
    /// ([`Leaf::NotPresent`]), and prune leaves the table that it is in. Returns the entry's address.
    fn set_word(&mut self, _: &mut PhysMem, va: VirtAddr, _size: PageSize, _: u64) -> PhysAddr {
        unreachable!("a design without room for words is asked to keep one at {va:?}")
    }

    /// Appends the words of the entries for pages that overlap `start..end` in ascending order, until `out` has `most`.
    fn words(&self, _: &PhysMem, _: VirtAddr, _: VirtAddr, _most: usize, _out: &mut Vec<Word>) {}

    /// Whether the entry of a level on the way to `va` is marked, and its address; none if the way ends above. What
    /// else is done to an entry that stays present leaves its mark.
    fn mark(&self, _: &PhysMem, va: VirtAddr, _level: u8) -> Option<(PhysAddr, bool)> {
        unreachable!("a design without marks is asked for one at {va:?}")
    }

    /// Marks that entry, which is there, or takes the mark away. Returns the entry's address.
    fn set_mark(&mut self, _: &mut PhysMem, va: VirtAddr, _level: u8, _on: bool) -> PhysAddr {
        unreachable!("a design without marks is to set one at {va:?}")
    }

    /// Hands the tables that are empty and translate a part of `start..end` to `release`, each by its first frame.
    fn prune(&mut self, _: &mut PhysMem, _start: VirtAddr, _end: VirtAddr, _release: &mut dyn FnMut(Pfn)) {}

    /// Takes the table of level 1 that translates `va` away, if there is one; it is empty, and those above stay. Asked
    /// of designs with large pages.
    fn unlink_leaf_table(&mut self, _: &mut PhysMem, va: VirtAddr) -> Option<Pfn> {
        unreachable!("a design without large pages is to make room for one at {va:?}")
    }

    /// Replaces the large page at `va` by pages of the next smaller size over the same frames, linking `frame` (zeroed
    /// contents already created) as their table. Asked of designs with large pages.
    fn split(&mut self, _: &mut PhysMem, va: VirtAddr, _: Pfn) {
        unreachable!("a design without large pages is to split one at {va:?}")
    }

    /// Hands over what was done besides what was asked for.
    fn report_work(&mut self, _: &mut Self::Shared, _: &mut TableWork) {}

    /// Leaves its entries, to which nobody has a claim any more, to a later scan: from now on it maps nothing. False if
    /// the layer's part has no tag left for it. Asked of designs that clear lazily.
    fn abandon(&mut self, _: &mut Self::Shared, _: &mut PhysMem) -> bool {
        true
    }

    /// Frees the table itself, if it is the space's own; nothing is mapped any more.
    fn destroy(self, shared: &mut Self::Shared, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn));

    /// Frames that it has from the start and that hold nothing yet.
    fn untouched_frames(&self) -> u64 {
        0
    }

    /// Bits of virtual address that it translates.
    fn va_bits(&self) -> u32;

    /// The error that a run ends with when something has run out: what that is, and what to set.
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

/// What the tables of a layer have in common: memory that boot set aside, tags of spaces, counters.
pub trait Shared<D: Design>: Sized {
    /// The part of a layer that boots.
    fn boot(parameters: &D::Parameters, boot: &Boot, mem: &mut PhysMem) -> Result<(Self, SetAside), EngineError>;

    /// What the layer's results say of its page tables, under `layer.NAME.page_table.`.
    fn statistics(&self, _: &PhysMem) -> Vec<Statistic> {
        Vec::new()
    }

    /// Whether a scan for what ended spaces left is due.
    fn is_scan_due(&self) -> bool {
        false
    }

    /// Begins such a scan, if one is due.
    fn begin_scan(&mut self) -> Option<Scan> {
        None
    }

    /// The references of its next step. Changes nothing.
    fn plan_scan(&self, _: &PhysMem, _: &Scan) -> ScanStep {
        unreachable!("no scan was begun")
    }

    /// Makes the step; false if it was the last.
    fn commit_scan(&mut self, _: &mut PhysMem, _: &mut Scan) -> bool {
        unreachable!("no scan was begun")
    }

    /// Cycles that scans took.
    fn charge_scan(&mut self, _: Cycles) {}
}

/// Each table is its space's own.
impl<D: Design> Shared<D> for () {
    fn boot(_: &D::Parameters, boot: &Boot, _: &mut PhysMem) -> Result<(Self, SetAside), EngineError> {
        Ok(((), SetAside::nothing(boot)))
    }
}

/// The layer that a table is validated for.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Its name.
    pub layer: &'a str,
    /// The design's name.
    pub design: &'a str,
    /// Its largest page.
    pub page_size: PageSize,
    /// Whether it hosts guests.
    pub hosts: bool,
}

impl Context<'_> {
    /// The error of a key of the layer.
    pub fn refuse<T>(&self, part: &str, what: impl Into<String>) -> Result<T, EngineError> {
        Err(EngineError::config(format!("system.layers.{}.{part}", self.layer), what))
    }
}

/// The memory of a layer that boots.
#[derive(Clone, Copy, Debug)]
pub struct Boot<'a> {
    /// Name of the layer.
    pub layer: &'a str,
    /// Frames of 4 KiB of the layer's physical memory.
    pub frames: u64,
    /// Frames that are set aside for something else: the first ones.
    pub taken: u64,
    /// Bytes of memory of each of its guests.
    pub guests: &'a [u64],
}

/// What is set aside for tables at boot.
#[derive(Clone, Copy, Debug)]
pub struct SetAside {
    /// The first frame behind it.
    pub end: u64,
    /// Frames of it that the spaces' tables count as theirs.
    pub of_spaces: u64,
    /// What the others are called, if there are any.
    pub what: Option<&'static str>,
}

impl SetAside {
    /// What was taken before stays taken, and the tables get none of it.
    pub fn nothing(boot: &Boot) -> Self {
        Self { end: boot.taken, of_spaces: 0, what: None }
    }
}

/// The sizes of pages that a design maps.
#[derive(Clone, Copy, Debug)]
pub struct PageSizes {
    /// The sizes, the smallest first.
    pub sizes: &'static [PageSize],
    /// Why no others.
    pub why: &'static str,
}

impl PageSizes {
    /// All sizes of x86-64.
    pub const ALL: Self = Self { sizes: &PageSize::ALL, why: "" };

    /// Pages of 4 KiB alone.
    pub const fn only_4k(why: &'static str) -> Self {
        Self { sizes: &[PageSize::Size4K], why }
    }
}

/// What of a table's references an MMU cache may keep: those before a walk's last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpperEntries {
    /// They read entries of tables of 512, one a level down to the leaf (x86-64): so many levels.
    Levels(u8),
    /// They read entries of some of these levels, in tables that may be larger.
    LargerTables,
    /// There are none: every walk makes one reference.
    Nothing,
    /// They are no entries of upper levels.
    Unfit,
}

/// Why there is no table for a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTable {
    /// The layer has no free block of this order.
    Block {
        /// log2 of the frames that were asked for.
        order: u32,
    },
    /// All tags are in use.
    Tags,
}

/// The table has no place left for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// What a table needed and did not get.
#[derive(Clone, Copy, Debug)]
pub enum Exhausted {
    /// A tag for an address space.
    Tags,
    /// A place for a page.
    Places(VirtAddr),
    /// A block of contiguous frames, of which so many are free one by one.
    Block {
        /// log2 of the frames that were asked for.
        order: u32,
        /// Free frames of 4 KiB in the layer.
        free_frames: u64,
    },
}

/// What tables did besides writing the entries that they were asked for.
#[derive(Clone, Debug, Default)]
pub struct TableWork {
    /// Lines that were read and written for the last insertions, to be charged by whoever asked for them.
    pub lines: Vec<PhysAddr>,
    /// Blocks that a table has no use for any more, without contents: their first frames.
    pub released: Vec<Pfn>,
}

/// A scan under way for what ended spaces left.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The tags of these spaces.
    pub tags: Vec<u16>,
    /// Number of the step that is next.
    pub at: u64,
}

/// The references of a step of a scan.
#[derive(Clone, Debug)]
pub struct ScanStep {
    /// What is read whole: where it begins, and its bytes.
    pub read: (PhysAddr, u64),
    /// What is written.
    pub written: Vec<PhysAddr>,
}

/// A statistic of a layer's page tables.
#[derive(Clone, Debug)]
pub struct Statistic {
    /// Its name behind `layer.NAME.page_table.`.
    pub name: &'static str,
    /// The number.
    pub value: u64,
    /// What the number counts or is measured in.
    pub unit: &'static str,
    /// Whether it says how things are, what has happened or how long it took.
    pub measure: Measure,
    /// What the number means, for lists of statistics.
    pub text: &'static str,
}

/// What a statistic says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// How things are.
    State,
    /// What has happened.
    Count,
    /// How long it took.
    Timing,
}

impl Leaf {
    /// No translation and no word: a walk ended at an entry of this level.
    #[inline(always)]
    pub const fn nothing(level: u8) -> Self {
        Self::NotPresent { level, word: 0 }
    }
}
