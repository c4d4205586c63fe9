//! Elastic cuckoo page table: a hashed table per address space with three candidate lines per page that is resized
//! gradually.
//!
//! Models: three *ways*, each contiguous, with a hash function of its own. A 64-byte line holds the entries of 8
//! neighbouring pages; their tag is spread over bits that entries leave unused. A walk reads the page's line in all
//! ways at once: three references of one dependency step. An insertion picks a random way and displaces the line there
//! to another of its ways, until a line was empty. Above `max_load`, a second table of twice the size is allocated, and
//! each insertion moves a few lines to it: in a random way, the line at the *rehash pointer*, which then advances. A
//! page whose position in the old way is below the pointer has its line in the new one, so a walk always reads three
//! lines. If the load reaches its limit again before all lines have moved, the rest moves at once. Below `min_load` the
//! table is halved in the same manner. A line without entries is freed at once. The table belongs to the process, whose
//! exit frees it.
//! Source: Skarlatos, Kokolis, Xu and Torrellas, "Elastic Cuckoo Page Tables: Rethinking Virtual Memory Translation for
//! Parallelism", ASPLOS 2020.
//! Parameters: `way_entries`, initial lines per way (128, as the contiguous 8 KiB of Stojkovic et al., HPCA 2023, for
//! this design); `max_load` (0.6) and `min_load` (0.2), as in the paper; `rehashes_per_insert`, lines (2, estimated:
//! with 1, the load reaches its limit again before all lines have moved, since some of the lines inserted meanwhile
//! must move too); `max_displacements` (32, estimated); `seed` (0).
//! Stats: `layer.NAME.page_table.*`.
//! `sizes` (4 KiB alone; [`super::sizes`]): as in the paper, a table per size, all probed at once.
//! Deviations: no cuckoo walk tables and caches, which tell which sizes and ways to probe: every walk probes all three
//! ways of all sizes. A way is one block of the allocator, up to 1 GiB; if memory is too
//! fragmented for it, the run ends with an error. Halving begins at an insertion, too. The lines that an insertion
//! moves are charged to its fault after the entry is written. They are not charged for fork and mremap, whose entries
//! are not charged either. The set of mapped pages is kept separately ([`super::page_index`]).

mod layer;
mod parameters;
mod table;
mod way;

use arrayvec::ArrayVec;

use super::entry::{PRESENT, decode, encode};
use super::page_index::SizedIndex;
use super::{
    Context, Design, Exhausted, Leaf, Mapping, NoRoom, NoTable, PageSizes, PteFlags, Removed, SizeProbes, SizeTables,
    SizesConfig, TableBlock, TableFrames, TableWork, UpperEntries, WalkList, WalkRef,
};
use layer::CuckooCounters;
use pagelab_base::addr::{FRAME_BYTES, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use pagelab_trace::quantity::format_bytes;
pub use parameters::ElasticCuckooConfig;
use table::CuckooTable;
use way::{Key, WAYS, has_tag, tag_part};

const VA_BITS: u32 = 48;

/// The elastic cuckoo page tables of one address space.
#[derive(Clone)]
pub struct ElasticCuckoo {
    tables: Vec<CuckooTable>,
    /// The page sizes in the order of serial probes, each with the index of its table.
    sizes: ArrayVec<(PageSize, usize), { PageSize::ALL.len() }>,
    /// Whether a walker probes for one size after another.
    serial: bool,
    pages: SizedIndex,
}

/// A page that was found: its size, the index of its table, its key, and the address of its entry.
struct Located {
    size: PageSize,
    table: usize,
    key: Key,
    addr: PhysAddr,
    mapping: Mapping,
}

impl ElasticCuckoo {
    /// Searches a table for the page of one size: the references, the last of which decides where the page is, and the
    /// mapping.
    #[inline(always)]
    fn search(
        &self,
        (size, table): (PageSize, usize),
        mem: &PhysMem,
        va: VirtAddr,
        step: u8,
    ) -> ([WalkRef; WAYS], Option<Mapping>) {
        let (table, key) = (&self.tables[table], Key::new(va, size));
        let lines: [PhysAddr; WAYS] = std::array::from_fn(|way| table.line(way, key.tag));
        let found = lines.iter().position(|&line| has_tag(mem.line(line), key.tag));
        let mut refs = lines
            .map(|line| WalkRef { shift: size.shift() as u8, ..WalkRef::to_leaf(line + 8 * key.index as u64, step) });
        refs.swap(found.unwrap_or_else(|| table.next_way()), WAYS - 1);
        let mapping = found.and_then(|_| mapping(mem.read(refs[WAYS - 1].addr), size));
        (refs, mapping)
    }

    /// Lists the references of a walk that probes for several sizes: all in one step, or a step per size.
    fn walk_sizes(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        let mut searches = ArrayVec::<[WalkRef; WAYS], { PageSize::ALL.len() }>::new();
        let mut hit = None;
        for (n, &size) in self.sizes.iter().enumerate() {
            let (refs, mapping) = self.search(size, mem, va, if self.serial { n as u8 } else { 0 });
            hit = hit.or(mapping.map(|mapping| (n, mapping)));
            searches.push(refs);
            if self.serial && hit.is_some() {
                break;
            }
        }
        list.clear();
        // The list ends with the reference that decides.
        let last = hit.map_or(searches.len() - 1, |(n, _)| n);
        let others = (0..searches.len()).filter(|&n| n != last);
        others.chain([last]).for_each(|n| searches[n].iter().for_each(|&reference| list.push(reference)));
        let sizes = &PageSize::ALL[..self.sizes.len()];
        let missing = || Leaf::nothing(self.pages.free_level(va, sizes));
        list.leaf = hit.map_or_else(missing, |(_, mapping)| Leaf::Present(mapping));
    }

    /// Index of the table for pages of a size.
    fn table_for(&self, size: PageSize) -> usize {
        let found = self.sizes.iter().find(|&&(held, _)| held == size);
        found.unwrap_or_else(|| panic!("the table has no pages of {}", size.name())).1
    }

    /// Finds a mapped page.
    #[inline]
    fn locate(&self, mem: &PhysMem, va: VirtAddr) -> Option<Located> {
        self.sizes.iter().find_map(|&(size, table)| {
            let key = Key::new(va, size);
            let addr = self.tables[table].find(mem, key.tag)? + 8 * key.index as u64;
            let mapping = mapping(mem.read(addr), size)?;
            Some(Located { size, table, key, addr, mapping })
        })
    }

    /// Finds a page that is mapped.
    fn present(&self, mem: &PhysMem, va: VirtAddr) -> Located {
        self.locate(mem, va).unwrap_or_else(|| panic!("{va:?} is not mapped"))
    }
}

/// The mapping in an entry of a page of a size, if there is one. If not, the entry holds tag bits at most.
#[inline(always)]
fn mapping(entry: u64, size: PageSize) -> Option<Mapping> {
    (entry & PRESENT != 0).then(|| decode(level(size), entry))
}

/// Writes the entry of a page.
fn write(mem: &mut PhysMem, addr: PhysAddr, key: Key, mapping: &Mapping) {
    mem.write(addr, encode(level(mapping.size), mapping) | tag_part(key.tag, key.index));
}

/// Level of the entries of pages of a size in a radix table.
fn level(size: PageSize) -> u8 {
    size as u8 + 1
}

impl Design for ElasticCuckoo {
    type Parameters = ElasticCuckooConfig;
    type Shared = CuckooCounters;

    const PAGE_SIZES: PageSizes = PageSizes::ALL;
    const TABLE_PER_LARGE_PAGE: bool = false;
    const WORDS: Result<&'static [PageSize], &'static str> =
        Err("the bits of an elastic-cuckoo entry that is not present hold a part of its line's tag");
    const MOVES_ENTRIES: bool = true;

    fn samples() -> Vec<ElasticCuckooConfig> {
        let small = ElasticCuckooConfig { way_entries: 64, ..ElasticCuckooConfig::default() };
        let sized = |order: &[PageSize], tables, probes| ElasticCuckooConfig {
            sizes: SizesConfig { order: order.to_vec(), tables, probes, shares: Vec::new() },
            ..small.clone()
        };
        let [size_4k, size_2m, size_1g] = PageSize::ALL;
        vec![
            ElasticCuckooConfig::default(),
            small.clone(),
            ElasticCuckooConfig { max_load: 0.3, min_load: 0.1, seed: 5, ..small.clone() },
            ElasticCuckooConfig { rehashes_per_insert: 1, ..small.clone() },
            sized(&[size_4k, size_2m], SizeTables::Separate, None),
            sized(&[size_4k, size_1g, size_2m], SizeTables::Shared, None),
            sized(&[size_4k, size_2m], SizeTables::Separate, Some(SizeProbes::Serial)),
        ]
    }

    fn page_sizes(parameters: &ElasticCuckooConfig) -> PageSizes {
        parameters.sizes.page_sizes()
    }

    fn upper_entries(_: &ElasticCuckooConfig) -> UpperEntries {
        UpperEntries::Unfit
    }

    fn validate(parameters: &ElasticCuckooConfig, context: &Context) -> Result<(), EngineError> {
        parameters.validate(context)
    }

    /// The largest way has 1 GiB.
    fn largest_block(_: &ElasticCuckooConfig) -> u32 {
        PageSize::Size1G.order()
    }

    fn create(
        config: &ElasticCuckooConfig,
        _: &mut CuckooCounters,
        mem: &mut PhysMem,
        frames: TableFrames,
        _: Option<u64>,
    ) -> Result<Self, NoTable> {
        let sizes: ArrayVec<_, { PageSize::ALL.len() }> = config.sizes.with_tables().collect();
        let count = 1 + sizes.iter().map(|&(_, table)| table).max().unwrap_or(0);
        let tables = (0..count).map(|_| CuckooTable::new(config, mem, frames)).collect::<Result<_, _>>()?;
        Ok(Self { tables, sizes, serial: config.sizes.are_probed_serially(), pages: SizedIndex::default() })
    }

    #[inline]
    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        let &[size] = self.sizes.as_slice() else { return self.walk_sizes(mem, va, list) };
        let (refs, mapping) = self.search(size, mem, va, 0);
        list.set(refs);
        list.leaf = mapping.map_or(Leaf::nothing(1), Leaf::Present);
    }

    #[inline]
    fn hint(&self, mem: &PhysMem, va: VirtAddr) {
        for &(size, table) in &self.sizes {
            let tag = Key::new(va, size).tag;
            (0..WAYS).for_each(|way| mem.hint(self.tables[table].line(way, tag)));
        }
    }

    #[inline]
    fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        self.locate(mem, va).map(|located| (located.addr, located.mapping.pfn))
    }

    fn entry(&self, mem: &PhysMem, va: VirtAddr, size: PageSize) -> PhysAddr {
        if let Some(located) = self.locate(mem, va) {
            return located.addr;
        }
        // A size that there is no table for is not mapped in the end.
        let sized = self.sizes.iter().find(|&&(held, _)| held == size).unwrap_or(&self.sizes[0]);
        let (refs, _) = self.search(*sized, mem, va, 0);
        refs[WAYS - 1].addr
    }

    /// Number of blocks that are missing for the next table.
    fn missing_tables(&self, _: &PhysMem, _: VirtAddr, size: PageSize) -> usize {
        self.tables[self.table_for(size)].missing_blocks()
    }

    fn next_table_orders(&self, _: &PhysMem, _: VirtAddr, size: PageSize) -> ArrayVec<u32, 2> {
        ArrayVec::from_iter([self.tables[self.table_for(size)].wanted_order().unwrap_or(0)])
    }

    fn link_table(&mut self, mem: &mut PhysMem, _: VirtAddr, size: PageSize, block: TableBlock) -> Option<PhysAddr> {
        let table = self.table_for(size);
        self.tables[table].accept(mem, block)
    }

    fn reserve(&mut self, mem: &mut PhysMem, va: VirtAddr, size: PageSize) -> bool {
        let (index, key) = (self.table_for(size), Key::new(va, size));
        let table = &mut self.tables[index];
        table.find(mem, key.tag).is_some() || table.place(mem, key.tag).is_ok()
    }

    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        let (index, key) = (self.table_for(mapping.size), Key::new(va, mapping.size));
        let table = &mut self.tables[index];
        if table.find(mem, key.tag).is_none() {
            table.place(mem, key.tag)?;
        }
        let line = table.find(mem, key.tag).expect("the line has a place");
        let addr = line + 8 * key.index as u64;
        assert_eq!(mem.read(addr) & PRESENT, 0, "the entry of {va:?} is in use");
        write(mem, addr, key, &mapping);
        self.pages.insert(key.page, mapping.size);
        Ok(addr)
    }

    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        let Located { key, addr, mapping, .. } = self.present(mem, va);
        write(mem, addr, key, &Mapping { flags, ..mapping });
        addr
    }

    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        let Located { key, size, addr, .. } = self.present(mem, va);
        assert_eq!(mapping.size, size, "{va:?} is mapped in another size");
        write(mem, addr, key, &mapping);
        addr
    }

    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        let Located { table, size, key, addr, .. } = self.present(mem, va);
        mem.write(addr, tag_part(key.tag, key.index));
        let line = PhysAddr(addr.0 - 8 * key.index as u64);
        if mem.line(line).iter().all(|entry| entry & PRESENT == 0) {
            self.tables[table].remove(mem, line);
        }
        self.pages.remove(key.page, size);
        addr
    }

    fn unlink_leaf_table(&mut self, _: &mut PhysMem, _: VirtAddr) -> Option<Pfn> {
        None
    }

    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        let left = most.saturating_sub(out.len());
        for (va, _) in self.pages.range(start, end).take(left) {
            out.push(Removed { va, mapping: self.present(mem, va).mapping });
        }
    }

    fn report_work(&mut self, all: &mut CuckooCounters, work: &mut TableWork) {
        for table in &mut self.tables {
            all.add(std::mem::take(&mut table.counters));
            work.lines.append(&mut table.work.lines);
            work.released.append(&mut table.work.released);
        }
    }

    fn destroy(self, _: &mut CuckooCounters, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        self.tables.into_iter().for_each(|table| table.into_blocks(mem, release));
    }

    fn va_bits(&self) -> u32 {
        VA_BITS
    }

    fn exhausted(_: &CuckooCounters, _: &PhysMem, layer: &str, what: Exhausted) -> String {
        match what {
            Exhausted::Tags => unreachable!("each table is a space's own"),
            Exhausted::Places(va) => format!(
                "layer `{layer}` has no place for {va:?} in its elastic-cuckoo page table, whatever it displaces; set a lower \
                 system.layers.{layer}.page_table.max_load or more max_displacements"
            ),
            Exhausted::Block { order, free_frames } => format!(
                "layer `{layer}` has no {} of contiguous memory for a way of an elastic-cuckoo page table, though {} are free: the \
                 design needs its ways whole. Give it more by --set system.layers.{layer}.memory_bytes=SIZE, or memory that is \
                 less aged",
                format_bytes(FRAME_BYTES << order),
                format_bytes(FRAME_BYTES * free_frames),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
