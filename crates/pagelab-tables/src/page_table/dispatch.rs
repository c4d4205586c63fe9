//! Forwards every call to the design's variant: a branch that the processor predicts instead of a virtual call.

use arrayvec::ArrayVec;

use super::{
    AddrRange, Boot, Context, Design, Exhausted, LayerTables, Mapping, NoRoom, NoTable, PageGroup, PageTable,
    PageTableConfig, PinnedTable, PteFlags, Removed, ScanStep, SegmentChange, SetAside, Shared, TableBlock,
    TableFrames, TableScan, TableWork, UpperEntries, WalkList, Ways, Word,
};
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::measure::Measure;
use pagelab_base::memory::PhysMem;

impl PageTableConfig {
    /// Checks whether a layer can have this table.
    pub fn validate(&self, layer: &str, page_size: PageSize, hosts: bool) -> Result<(), EngineError> {
        fn check<D: Design>(parameters: &D::Parameters, context: &Context) -> Result<(), EngineError> {
            let Context { design, page_size, hosts, .. } = *context;
            if let Some(why) = D::HOSTS_ONLY.filter(|_| !hosts) {
                let what = format!("{why}, and this layer hosts none; allowed here are the other kinds");
                return context.refuse("page_table.kind", what);
            }
            D::validate(parameters, context)?;
            let sizes = D::page_sizes(parameters);
            if !sizes.sizes.contains(&page_size) {
                let allowed = sizes.sizes.iter().map(|size| size.name()).collect::<Vec<_>>().join(", ");
                let (size, why) = (page_size.name(), sizes.why);
                let what = format!("{size} pages are not possible with {design}: {why}; allowed is {allowed}");
                return context.refuse("page_size", what);
            }
            Ok(())
        }
        let context = Context { layer, design: self.name(), page_size, hosts };
        each_config!(self, parameters => check::<Table>(parameters, &context))
    }

    /// Which of its entries an MMU cache can hold.
    pub fn upper_entries(&self) -> UpperEntries {
        each_config!(self, parameters => Table::upper_entries(parameters))
    }

    /// Number of levels, if it is a tree of 512-entry tables.
    pub fn levels(&self) -> Option<u8> {
        match self.upper_entries() {
            UpperEntries::Levels(levels) => Some(levels),
            UpperEntries::LargerTables
            | UpperEntries::Packed
            | UpperEntries::Nothing
            | UpperEntries::Segments
            | UpperEntries::OfSomePages
            | UpperEntries::Unfit => None,
        }
    }

    /// Order of the largest block that a table needs.
    pub fn largest_block(&self) -> u32 {
        each_config!(self, parameters => Table::largest_block(parameters))
    }

    /// Order of the largest block that a table requests and can do without.
    pub fn optional_block(&self) -> u32 {
        each_config!(self, parameters => Table::optional_block(parameters))
    }

    /// See [`Design::is_in_virtual_memory`].
    pub fn is_in_virtual_memory(&self) -> bool {
        each_config!(self, parameters => Table::is_in_virtual_memory(parameters))
    }

    /// See [`Design::shared_segments`].
    pub fn shared_segments(&self) -> Option<u32> {
        each_config!(self, parameters => Table::shared_segments(parameters))
    }

    /// The page sizes that it maps.
    pub fn page_sizes(&self) -> &'static [PageSize] {
        each_config!(self, parameters => Table::page_sizes(parameters).sizes)
    }

    /// Whether only layers with guests can have it.
    pub fn is_for_hosts_only(&self) -> bool {
        each_config!(self, _parameters => Table::HOSTS_ONLY.is_some())
    }

    /// Whether it has regions that are translated in another way.
    pub fn has_regions(&self) -> bool {
        each_config!(self, _parameters => Table::REGIONS)
    }

    /// Whether it remembers paths of walks.
    pub fn remembers_ways(&self) -> bool {
        each_config!(self, _parameters => Table::REMEMBERS_WAYS)
    }

    /// Whether its entries can be marked.
    pub fn keeps_marks(&self) -> bool {
        each_config!(self, _parameters => Table::MARKS)
    }

    /// The page sizes whose entries can hold a software word while they are not present, or why there are none.
    pub fn keeps_words(&self) -> Result<&'static [PageSize], &'static str> {
        each_config!(self, _parameters => Table::WORDS)
    }
}

/// Methods of [`Design`] for a table of any design.
impl PageTable {
    /// See [`Design::walk`].
    #[inline]
    pub fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        each_table!(self, table => table.walk(mem, va, list))
    }

    /// See [`Design::walk_by_hardware`].
    #[inline]
    pub fn walk_by_hardware(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        each_table!(self, table => table.walk_by_hardware(mem, va, list))
    }

    /// See [`Design::group`].
    pub fn group(&self, mem: &PhysMem, va: VirtAddr) -> Option<PageGroup> {
        each_table!(self, table => table.group(mem, va))
    }

    /// See [`Design::hidden_lines`].
    pub fn hidden_lines(&self, mem: &PhysMem, va: VirtAddr) -> Option<[PhysAddr; 2]> {
        each_table!(self, table => table.hidden_lines(mem, va))
    }

    /// See [`Design::uncover`].
    pub fn uncover(&mut self, mem: &mut PhysMem, va: VirtAddr) -> Result<(), NoRoom> {
        each_table!(self, table => table.uncover(mem, va))
    }

    /// See [`Design::pinned`].
    #[inline]
    pub fn pinned(&self) -> Option<PinnedTable> {
        each_table!(self, table => table.pinned())
    }

    /// See [`Design::hint_way`].
    #[inline]
    pub fn hint_way(&self, va: VirtAddr) {
        each_table!(self, table => table.hint_way(va))
    }

    /// See [`Design::hint`].
    #[inline]
    pub fn hint(&self, mem: &PhysMem, va: VirtAddr) {
        each_table!(self, table => table.hint(mem, va))
    }

    /// See [`Design::peek`].
    #[inline]
    pub fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        each_table!(self, table => table.peek(mem, va))
    }

    /// See [`Design::ways`].
    #[inline(always)]
    pub fn ways<'a>(&'a self, mem: &'a PhysMem) -> Option<Ways<'a>> {
        each_table!(self, table => table.ways(mem))
    }

    /// See [`Design::entry`].
    pub fn entry(&self, mem: &PhysMem, va: VirtAddr, size: PageSize) -> PhysAddr {
        each_table!(self, table => table.entry(mem, va, size))
    }

    /// See [`Design::mark`].
    pub fn mark(&self, mem: &PhysMem, va: VirtAddr, level: u8) -> Option<(PhysAddr, bool)> {
        each_table!(self, table => table.mark(mem, va, level))
    }

    /// See [`Design::set_mark`].
    pub fn set_mark(&mut self, mem: &mut PhysMem, va: VirtAddr, level: u8, on: bool) -> PhysAddr {
        each_table!(self, table => table.set_mark(mem, va, level, on))
    }

    /// See [`Design::least_region_bytes`].
    pub fn least_region_bytes(&self) -> Option<u64> {
        each_table!(self, table => table.least_region_bytes())
    }

    /// See [`Design::begin_region`].
    pub fn begin_region(&mut self, mem: &PhysMem, start: VirtAddr, end: VirtAddr) {
        each_table!(self, table => table.begin_region(mem, start, end))
    }

    /// See [`Design::end_regions`].
    pub fn end_regions(&mut self, is_mapped: &dyn Fn(VirtAddr, VirtAddr) -> bool) {
        each_table!(self, table => table.end_regions(is_mapped))
    }

    /// See [`Design::set_shared_segment`].
    pub fn set_shared_segment(&mut self, mem: &mut PhysMem, va: VirtAddr, shared: Option<u32>) -> SegmentChange {
        each_table!(self, table => table.set_shared_segment(mem, va, shared))
    }

    /// See [`Design::reach_shared_segment`].
    pub fn reach_shared_segment(&mut self, mem: &mut PhysMem, va: VirtAddr) -> bool {
        each_table!(self, table => table.reach_shared_segment(mem, va))
    }

    /// See [`Design::note_shared_page`].
    pub fn note_shared_page(&mut self, va: VirtAddr, mapped: bool) {
        each_table!(self, table => table.note_shared_page(va, mapped))
    }

    /// See [`Design::translates_by_region`].
    #[inline]
    pub fn translates_by_region(&self, va: VirtAddr) -> bool {
        each_table!(self, table => table.translates_by_region(va))
    }

    /// See [`Design::leaf_table_range`].
    pub fn leaf_table_range(&self, va: VirtAddr) -> AddrRange {
        each_table!(self, table => table.leaf_table_range(va))
    }

    /// See [`Design::missing_tables`].
    pub fn missing_tables(&self, mem: &PhysMem, va: VirtAddr, size: PageSize) -> usize {
        each_table!(self, table => table.missing_tables(mem, va, size))
    }

    /// See [`Design::next_table_orders`].
    pub fn next_table_orders(&self, mem: &PhysMem, va: VirtAddr, size: PageSize) -> ArrayVec<u32, 2> {
        each_table!(self, table => table.next_table_orders(mem, va, size))
    }

    /// See [`Design::link_table`].
    pub fn link_table(
        &mut self,
        mem: &mut PhysMem,
        va: VirtAddr,
        size: PageSize,
        block: TableBlock,
    ) -> Option<PhysAddr> {
        each_table!(self, table => table.link_table(mem, va, size, block))
    }

    /// See [`Design::reserve`].
    pub fn reserve(&mut self, mem: &mut PhysMem, va: VirtAddr, size: PageSize) -> bool {
        each_table!(self, table => table.reserve(mem, va, size))
    }

    /// See [`Design::map`].
    pub fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        each_table!(self, table => table.map(mem, va, mapping))
    }

    /// See [`Design::set_flags`].
    pub fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        each_table!(self, table => table.set_flags(mem, va, flags))
    }

    /// See [`Design::replace`].
    pub fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        each_table!(self, table => table.replace(mem, va, mapping))
    }

    /// See [`Design::unmap`].
    pub fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        each_table!(self, table => table.unmap(mem, va))
    }

    /// See [`Design::mapped`].
    pub fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        each_table!(self, table => table.mapped(mem, start, end, most, out))
    }

    /// See [`Design::set_word`].
    pub fn set_word(&mut self, mem: &mut PhysMem, va: VirtAddr, size: PageSize, word: u64) -> PhysAddr {
        each_table!(self, table => table.set_word(mem, va, size, word))
    }

    /// See [`Design::words`].
    pub fn words(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Word>) {
        each_table!(self, table => table.words(mem, start, end, most, out))
    }

    /// See [`Design::prune`].
    pub fn prune(&mut self, mem: &mut PhysMem, range: AddrRange, room: AddrRange, release: &mut dyn FnMut(Pfn)) {
        each_table!(self, table => table.prune(mem, range, room, release))
    }

    /// See [`Design::unlink_leaf_table`].
    pub fn unlink_leaf_table(&mut self, mem: &mut PhysMem, va: VirtAddr) -> Option<Pfn> {
        each_table!(self, table => table.unlink_leaf_table(mem, va))
    }

    /// See [`Design::split`].
    pub fn split(&mut self, mem: &mut PhysMem, va: VirtAddr, frame: Pfn) {
        each_table!(self, table => table.split(mem, va, frame))
    }

    /// Whether smaller pages have a table of their own ([`Design::TABLE_PER_LARGE_PAGE`]).
    pub fn has_table_per_large_page(&self) -> bool {
        fn has<D: Design>(_: &D) -> bool {
            D::TABLE_PER_LARGE_PAGE
        }
        each_table!(self, table => has(table))
    }

    /// Whether insertions move the entries of other pages ([`Design::MOVES_ENTRIES`]).
    pub fn moves_entries(&self) -> bool {
        fn moves<D: Design>(_: &D) -> bool {
            D::MOVES_ENTRIES
        }
        each_table!(self, table => moves(table))
    }

    /// Whether entries that are not present can hold software words.
    pub fn keeps_words(&self) -> bool {
        fn keeps<D: Design>(_: &D) -> bool {
            D::WORDS.is_ok()
        }
        each_table!(self, table => keeps(table))
    }

    /// Whether a process exit leaves its entries to a later scan ([`Design::CLEARS_LAZILY`]).
    pub fn clears_lazily(&self) -> bool {
        fn lazily<D: Design>(_: &D) -> bool {
            D::CLEARS_LAZILY
        }
        each_table!(self, table => lazily(table))
    }

    /// See [`Design::untouched_frames`].
    pub fn untouched_frames(&self) -> u64 {
        each_table!(self, table => table.untouched_frames())
    }

    /// See [`Design::va_bits`].
    pub fn va_bits(&self) -> u32 {
        each_table!(self, table => table.va_bits())
    }

    /// Levels of the x86-64 tree that translates as many address bits.
    pub fn levels(&self) -> u8 {
        (self.va_bits() - FRAME_SHIFT).div_ceil(9) as u8
    }
}

/// The page tables of a layer, which all have the same design.
#[derive(Clone)]
pub struct OfLayer<D: Design> {
    parameters: D::Parameters,
    shared: D::Shared,
    set_aside: SetAside,
}

impl<D: Design> OfLayer<D> {
    pub(super) fn boot(parameters: &D::Parameters, boot: &Boot, mem: &mut PhysMem) -> Result<Self, EngineError> {
        let (shared, set_aside) = D::Shared::boot(parameters, boot, mem)?;
        Ok(Self { parameters: parameters.clone(), shared, set_aside })
    }

    fn create(&mut self, mem: &mut PhysMem, frames: TableFrames, guest: Option<u64>) -> Result<D, NoTable> {
        D::create(&self.parameters, &mut self.shared, mem, frames, guest)
    }

    fn direct_map_levels(&self) -> u8 {
        D::direct_map_levels(&self.parameters)
    }

    fn statistics(&self, mem: &PhysMem) -> Vec<Measure> {
        self.shared.statistics(mem)
    }

    fn is_scan_due(&self) -> bool {
        self.shared.is_scan_due()
    }

    fn begin_scan(&mut self) -> Option<TableScan> {
        self.shared.begin_scan()
    }

    fn plan_scan(&self, mem: &PhysMem, scan: &TableScan) -> ScanStep {
        self.shared.plan_scan(mem, scan)
    }

    fn commit_scan(&mut self, mem: &mut PhysMem, scan: &mut TableScan) -> bool {
        self.shared.commit_scan(mem, scan)
    }

    fn charge_scan(&mut self, cycles: Cycles) {
        self.shared.charge_scan(cycles);
    }

    fn exhausted(&self, mem: &PhysMem, layer: &str, what: Exhausted) -> String {
        D::exhausted(&self.shared, mem, layer, what)
    }
}

/// Methods of [`Design`] and [`Shared`]. A kernel's own table, such as the direct map's, may have another design than
/// the layer's spaces.
impl LayerTables {
    /// The memory that boot reserved for them.
    pub fn set_aside(&self) -> &SetAside {
        each_layer!(self, tables => &tables.set_aside)
    }

    /// An empty table for a space; `guest` is the memory size in bytes of the guest that the space hosts, if any.
    pub fn create(&mut self, mem: &mut PhysMem, frames: TableFrames, guest: Option<u64>) -> Result<PageTable, NoTable> {
        each_layer!(self, tables, wrap => tables.create(mem, frames, guest).map(wrap))
    }

    /// Levels of the direct map's tree ([`Design::direct_map_levels`]).
    pub fn direct_map_levels(&self) -> u8 {
        each_layer!(self, tables => tables.direct_map_levels())
    }

    /// [`Design::report_work`]; a table of another design than the layer's, such as the direct map's, reports nothing.
    pub fn report_work(&mut self, table: &mut PageTable, work: &mut TableWork) {
        each_pair!(self, tables, table => table.report_work(&mut tables.shared, work), else {});
    }

    /// See [`Design::abandon`].
    pub fn abandon(&mut self, mem: &mut PhysMem, table: &mut PageTable) -> bool {
        each_pair!(self, tables, table => table.abandon(&mut tables.shared, mem), else true)
    }

    /// Frees a table in which nothing is mapped any more.
    pub fn destroy(&mut self, table: PageTable, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        let kernels = "a kernel's own table lives as long as the kernel";
        each_pair!(self, tables, table => table.destroy(&mut tables.shared, mem, release), else unreachable!("{kernels}"));
    }

    /// See [`Shared::statistics`].
    pub fn statistics(&self, mem: &PhysMem) -> Vec<Measure> {
        each_layer!(self, tables => tables.statistics(mem))
    }

    /// See [`Shared::is_scan_due`].
    pub fn is_scan_due(&self) -> bool {
        each_layer!(self, tables => tables.is_scan_due())
    }

    /// See [`Shared::begin_scan`].
    pub fn begin_scan(&mut self) -> Option<TableScan> {
        each_layer!(self, tables => tables.begin_scan())
    }

    /// See [`Shared::plan_scan`].
    pub fn plan_scan(&self, mem: &PhysMem, scan: &TableScan) -> ScanStep {
        each_layer!(self, tables => tables.plan_scan(mem, scan))
    }

    /// See [`Shared::commit_scan`].
    pub fn commit_scan(&mut self, mem: &mut PhysMem, scan: &mut TableScan) -> bool {
        each_layer!(self, tables => tables.commit_scan(mem, scan))
    }

    /// See [`Shared::charge_scan`].
    pub fn charge_scan(&mut self, cycles: Cycles) {
        each_layer!(self, tables => tables.charge_scan(cycles));
    }

    /// See [`Design::exhausted`].
    pub fn exhausted(&self, mem: &PhysMem, layer: &str, what: Exhausted) -> String {
        each_layer!(self, tables => tables.exhausted(mem, layer, what))
    }
}
