//! Hashed page tables: one table per layer for all its address spaces, with a fixed size.
//!
//! Models: five designs. *Chained* (Itanium, as simulated by Barr et al.): slots of 32 bytes with tag, entry and a
//! pointer into a chain table. *Open*: slots of 16 bytes with linear probing. *Clustered*: a slot holds the entries of
//! 2, 4 or 8 neighbouring pages and one tag. *Compact*: a line holds a tag and the entries of 8 pages, 7 bytes each.
//! With a larger `cluster`, the lines of up to 4,096 pages lie next to each other in a super-slot, and each line keeps
//! its own tag; a guest's super-slot of 32 KiB is then one cluster of its host's table. *Power*: a page is in one of
//! the eight 16-byte slots of a group, which is two lines. The primary group is the page's number within its 256 MiB
//! segment XOR the segment's number; if it was full, the page is in the group with the complement of that number. A
//! 16-bit tag in each slot names the address space. A reference is a line: probing several slots of one line costs one
//! reference. Deleted slots do not end a search. A process exit leaves its slots in the table; a later scan of the
//! whole table (by the kernel's `exit_scan`) deletes them, and only then can another process get the tag.
//! Source: Yaniv and Tsafrir, "Hash, Don't Cache (the Page Table)", SIGMETRICS 2016, 4.1 to 4.4 and 5.4. Power: Power
//! ISA, book III (hashed page table translation); Linux arch/powerpc/mm/book3s64/hash_native.c (`native_hpte_insert`),
//! mmu-hash.h (`hpt_hash`).
//! Parameters: `load_factor`, share of slots in use when all memory is mapped in whole clusters (default: the paper's
//! value for each design: 1/2 chained, 1/4 open and clustered, 1/8 compact; 1/4 power, the maximum that the
//! architecture recommends); `cluster`, pages (clustered 4, compact 8); `hash` (`mix64`); `seed` (0); `table_bytes`
//! (default: from the load factor and the layer's memory; the chain table of a chained design comes in addition);
//! `search_lines`, lines (63, our own choice: at the paper's load factors, longer searches practically never happen);
//! `exits_per_scan`, processes (64, estimated: the paper says "lazily"); `collisions`, for the chained design (the
//! walker follows chains; on Itanium the kernel does); `full_groups`, for the power design (`error`); `sizes` (4 KiB
//! alone); `segments`, for the power design (none; [`segments`]); `pinned`, for the
//! others (none, the table has physical addresses).
//! Stats: `layer.NAME.page_table.*`.
//! Deviations: the tag contains the address space; the paper's tag does not, although its table is global. A search
//! ends after `search_lines` lines; if a page has no slot within them, the run ends with an error. The paper's tables
//! hold no pages above 4 KiB; these do if `sizes` says so ([`super::sizes`]). A shared page has a slot per process,
//! unless `segments` share theirs. The kernel's direct map has a radix table of its own with large pages (elsewhere:
//! "bolted" entries); the paper looks at programs only. Without `segments`, the walker of the power design knows each
//! segment, as if its look-aside buffer always hit. If both groups of a page are full, the run ends with an error,
//! unless `full_groups` is `evict`: then the kernel evicts a slot to a record with a chain per slot of the table;
//! Linux's record is a radix table. The set of mapped pages is kept separately ([`super::page_index`]), as kernels with
//! hashed tables keep it in structures of their own.

mod chained;
mod geometry;
mod in_segments;
mod open;
mod parameters;
mod power;
mod segments;
mod several_sizes;
mod shared;
mod slot;

use std::marker::PhantomData;

use arrayvec::ArrayVec;

use super::entry::{decode, encode, target};
use super::page_index::SizedIndex;
use super::{
    Context, Design, Exhausted, Leaf, Mapping, NoRoom, NoTable, PageSizes, PinnedTable, PteFlags, Removed,
    SegmentChange, TableFrames, TableWork, UpperEntries, WalkList, WalkRef,
};
use geometry::{Counter, Geometry, Key, VA_BITS, line_of};
use pagelab_base::addr::{PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use parameters::{HashedConfig, HashedKind, SegmentsConfig};
use segments::SegmentTable;
use shared::SharedTable;

/// Result of a search for a page's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    found: Option<PhysAddr>,
    /// A slot that the page could get.
    room: Option<PhysAddr>,
}

/// One of the five designs.
pub trait Kind {
    const KIND: HashedKind;
}

macro_rules! kinds {
    ($($Kind:ident)*) => {
        $(
            /// A marker type; see the module's description.
            #[derive(Clone)]
            pub struct $Kind;

            impl Kind for $Kind {
                const KIND: HashedKind = HashedKind::$Kind;
            }
        )*
    };
}

kinds! { Chained Open Clustered Compact Power }

/// Where the pages of one size are.
#[derive(Clone, Copy)]
struct PartOfSize {
    size: PageSize,
    geometry: Geometry,
    /// Number of slots of the space for pages of this size.
    slots: u64,
}

/// An address space in the tables of its layer.
#[derive(Clone)]
pub struct Hashed<K> {
    /// In the order of serial probes.
    parts: ArrayVec<PartOfSize, { PageSize::ALL.len() }>,
    /// Whether a walker probes for one size after another.
    serial: bool,
    /// Whether a walker looks at the head of a chain only.
    heads_only: bool,
    /// The kernel's record of entries that were evicted from full groups.
    record: Option<Geometry>,
    /// The space's segment table.
    segments: Option<SegmentTable>,
    pinned: Option<PinnedTable>,
    asid: u16,
    pages: SizedIndex,
    kind: PhantomData<K>,
}

/// A page that was found: its part, slot, key and mapping.
struct Located {
    part: usize,
    slot: PhysAddr,
    key: Key,
    mapping: Mapping,
}

impl<K: Kind> Hashed<K> {
    fn new(
        parts: ArrayVec<PartOfSize, { PageSize::ALL.len() }>,
        (serial, heads_only): (bool, bool),
        record: Option<Geometry>,
        asid: u16,
    ) -> Self {
        let pages = SizedIndex::default();
        Self { parts, serial, heads_only, record, segments: None, pinned: None, asid, pages, kind: PhantomData }
    }

    /// Number of slots of this space.
    fn slots(&self) -> u64 {
        self.parts.iter().map(|part| part.slots).sum()
    }

    #[inline(always)]
    fn key(&self, size: PageSize, va: VirtAddr) -> Key {
        Key { asid: self.asid, vpn: (va.0 & ((1 << VA_BITS) - 1)) >> size.shift(), size }
    }

    #[inline(always)]
    fn probe(geometry: &Geometry, mem: &PhysMem, key: Key, visit: impl FnMut(PhysAddr)) -> Probe {
        match K::KIND {
            HashedKind::Chained => chained::probe(geometry, mem, key, visit),
            HashedKind::Power => power::probe(geometry, mem, key, visit),
            HashedKind::Open | HashedKind::Clustered | HashedKind::Compact => open::probe(geometry, mem, key, visit),
        }
    }

    /// The mapping of a page in a slot, if the slot contains it.
    #[inline(always)]
    fn read(geometry: &Geometry, mem: &PhysMem, slot: PhysAddr, key: Key) -> Option<Mapping> {
        let index = geometry.index(key.vpn);
        let tag = mem.read_block(slot);
        let size = if K::KIND == HashedKind::Power { slot::page_size_of(tag) } else { key.size };
        (tag & slot::valid(index) != 0).then(|| decode(level(size), slot::read_entry(geometry, mem, slot, index)))
    }

    /// Searches for a page: calls `visit` with each line that is read, and with true for the line
    /// of the entry if its tag was in the line before.
    #[inline(always)]
    fn search(
        &self,
        (part, record): (&PartOfSize, Option<&Geometry>),
        mem: &PhysMem,
        key: Key,
        mut visit: impl FnMut(PhysAddr, bool),
    ) -> Option<Mapping> {
        let geometry = &part.geometry;
        let slot = match Self::probe(geometry, mem, key, |line| visit(line, false)).found {
            Some(slot) => slot,
            None => chained::probe(record?, mem, key, |line| visit(line, false)).found?,
        };
        let entry = slot::entry_addr(geometry, slot, geometry.index(key.vpn));
        if line_of(entry) != line_of(slot) {
            visit(entry, true);
        }
        Self::read(geometry, mem, slot, key)
    }

    /// Lists the references of a walk through these parts.
    #[inline(always)]
    fn walk_parts(
        &self,
        (parts, record): (&[PartOfSize], Option<&Geometry>),
        mem: &PhysMem,
        va: VirtAddr,
        list: &mut WalkList,
    ) {
        list.clear();
        if let Some(segments) = &self.segments {
            return self.walk_segment((segments, record), mem, va, list);
        }
        let [part] = parts else { return self.walk_sizes(parts, mem, va, list) };
        let mut step = 0;
        let mapping = self.search((part, record), mem, self.key(part.size, va), |addr, _| {
            list.push(reference(addr, part.size, step));
            step = u8::wrapping_add(step, 1);
        });
        list.leaf = mapping.map_or(Leaf::nothing(1), Leaf::Present);
    }

    /// Finds a mapped page.
    fn locate(&self, mem: &PhysMem, va: VirtAddr) -> Option<Located> {
        if let Some(segments) = &self.segments {
            let segment = segments.find(mem, va, |_| {})?;
            return self.locate_key(mem, self.part_for(segment.base), segments.key(segment, va));
        }
        self.parts.iter().enumerate().find_map(|(n, part)| self.locate_key(mem, n, self.key(part.size, va)))
    }

    /// Finds a mapped page by its key.
    fn locate_key(&self, mem: &PhysMem, part: usize, key: Key) -> Option<Located> {
        let geometry = &self.parts[part].geometry;
        let in_record = || chained::probe(self.record.as_ref()?, mem, key, |_| {}).found;
        let slot = Self::probe(geometry, mem, key, |_| {}).found.or_else(in_record)?;
        let mapping = Self::read(geometry, mem, slot, key)?;
        Some(Located { part, slot, key, mapping })
    }

    /// Writes a page's entry in its slot, and makes it valid.
    fn write(&self, mem: &mut PhysMem, part: usize, slot: PhysAddr, key: Key, mapping: &Mapping) -> PhysAddr {
        let geometry = &self.parts[part].geometry;
        let index = geometry.index(key.vpn);
        let size = if K::KIND == HashedKind::Power { slot::page_size_bits(mapping.size) } else { 0 };
        mem.write_block(slot, mem.read_block(slot) | slot::valid(index) | size);
        slot::write_entry(geometry, mem, slot, index, encode(level(mapping.size), mapping));
        slot::entry_addr(geometry, slot, index)
    }

    /// Inserts a page's entry. Returns its address.
    fn insert(&mut self, mem: &mut PhysMem, part: usize, key: Key, mapping: &Mapping) -> Result<PhysAddr, NoRoom> {
        let geometry = self.parts[part].geometry;
        let Probe { found, room } = Self::probe(&geometry, mem, key, |_| {});
        let slot = match (found, room, K::KIND) {
            (Some(slot), ..) => slot,
            (None, None, _) => {
                let record = self.record.as_ref().ok_or(NoRoom)?;
                let victim = power::victim(&geometry, mem, key);
                power::evict(&geometry, record, mem, victim).ok_or(NoRoom)?;
                open::occupy(&geometry, mem, key, victim)
            }
            (None, Some(room), HashedKind::Chained) => chained::occupy(&geometry, mem, key, room).ok_or(NoRoom)?,
            (None, Some(room), HashedKind::Open | HashedKind::Clustered | HashedKind::Compact | HashedKind::Power) => {
                open::occupy(&geometry, mem, key, room)
            }
        };
        if found.is_none() {
            // Slots of shared segments are no space's own.
            self.parts[part].slots += u64::from(key.asid == self.asid);
            geometry.add_to_counter(mem, Counter::Used, 1);
        }
        let valid = slot::valid(geometry.index(key.vpn));
        assert_eq!(mem.read_block(slot) & valid, 0, "the entry of {key:?} is in use");
        Ok(self.write(mem, part, slot, key, mapping))
    }

    /// Removes a page's entry from its slot, and frees a slot without entries. Returns the entry's address.
    fn remove(&mut self, mem: &mut PhysMem, part: usize, slot: PhysAddr, key: Key) -> PhysAddr {
        let geometry = self.parts[part].geometry;
        let index = geometry.index(key.vpn);
        slot::write_entry(&geometry, mem, slot, index, 0);
        let power = K::KIND == HashedKind::Power;
        let tag = if power { slot::EMPTY } else { mem.read_block(slot) & !slot::valid(index) };
        mem.write_block(slot, tag);
        if !slot::is_used(tag) {
            self.parts[part].slots -= u64::from(key.asid == self.asid);
            if let Some(record) = self.record.filter(|record| record.contains(slot)) {
                power::remove(&record, mem, key, slot);
                return slot + 8;
            }
            geometry.add_to_counter(mem, Counter::Used, -1);
            match K::KIND {
                HashedKind::Chained => {
                    chained::release(&geometry, mem, geometry.slot(geometry.home(key), key.vpn), slot);
                }
                HashedKind::Power => power::release(&geometry, mem, slot),
                HashedKind::Open | HashedKind::Clustered | HashedKind::Compact => open::release(&geometry, mem, slot),
            }
        }
        slot::entry_addr(&geometry, slot, index)
    }

    /// Finds a page that is mapped.
    fn found(&self, mem: &PhysMem, va: VirtAddr) -> Located {
        self.locate(mem, va).unwrap_or_else(|| panic!("{va:?} is not mapped"))
    }

    /// Index of the part for pages of a size.
    fn part_for(&self, size: PageSize) -> usize {
        let part = self.parts.iter().position(|part| part.size == size);
        part.unwrap_or_else(|| panic!("the table has no pages of {}", size.name()))
    }
}

/// Level of the entries of pages of a size in a radix table.
#[inline(always)]
fn level(size: PageSize) -> u8 {
    size as u8 + 1
}

/// A reference of the search for a page of a size.
#[inline(always)]
fn reference(addr: PhysAddr, size: PageSize, step: u8) -> WalkRef {
    WalkRef { shift: size.shift() as u8, ..WalkRef::to_leaf(addr, step) }
}

impl<K: Kind> Design for Hashed<K> {
    type Parameters = HashedConfig;
    type Shared = SharedTable;

    const PAGE_SIZES: PageSizes = PageSizes::ALL;
    const WORDS: Result<&'static [PageSize], &'static str> =
        Err("a slot of a hashed table is there for pages that are mapped only");
    const CLEARS_LAZILY: bool = true;
    const TABLE_PER_LARGE_PAGE: bool = false;

    fn samples() -> Vec<HashedConfig> {
        HashedConfig::samples(K::KIND)
    }

    fn page_sizes(parameters: &HashedConfig) -> PageSizes {
        match K::KIND {
            HashedKind::Power if parameters.segments.is_none() => {
                PageSizes::only_4k("without page_table.segments its groups are those of pages of 4 KiB")
            }
            HashedKind::Power
            | HashedKind::Chained
            | HashedKind::Open
            | HashedKind::Clustered
            | HashedKind::Compact => parameters.sizes.page_sizes(),
        }
    }

    fn upper_entries(parameters: &HashedConfig) -> UpperEntries {
        if parameters.segments.is_some() { UpperEntries::Segments } else { UpperEntries::Unfit }
    }

    fn is_in_virtual_memory(parameters: &HashedConfig) -> bool {
        parameters.pinned.is_some()
    }

    fn shared_segments(parameters: &HashedConfig) -> Option<u32> {
        parameters.segments.as_ref().filter(|segments| segments.shared).map(SegmentsConfig::shift)
    }

    fn largest_block(parameters: &HashedConfig) -> u32 {
        parameters.segments.as_ref().map_or(0, SegmentsConfig::table_order)
    }

    fn validate(parameters: &HashedConfig, context: &Context) -> Result<(), EngineError> {
        parameters.validate(K::KIND, context)
    }

    fn create(
        config: &HashedConfig,
        shared: &mut SharedTable,
        mem: &mut PhysMem,
        frames: TableFrames,
        _: Option<u64>,
    ) -> Result<Self, NoTable> {
        let mut space = shared.add_space().ok_or(NoTable::Tags)?;
        if let Some(segments) = &config.segments {
            match SegmentTable::new(segments, mem, frames) {
                Ok(table) => space.segments = Some(table),
                Err(why) => {
                    shared.remove_space(&space);
                    return Err(why);
                }
            }
        }
        Ok(space)
    }

    #[inline]
    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        self.walk_parts((&self.parts, self.record.as_ref()), mem, va, list);
    }

    #[inline]
    fn walk_by_hardware(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        if !self.heads_only {
            return self.walk_parts((&self.parts, None), mem, va, list);
        }
        let heads = self.parts.iter().map(|&part| PartOfSize { geometry: part.geometry.heads_only(), ..part });
        let heads: ArrayVec<_, { PageSize::ALL.len() }> = heads.collect();
        self.walk_parts((&heads, None), mem, va, list);
    }

    fn hidden_lines(&self, mem: &PhysMem, va: VirtAddr) -> Option<[PhysAddr; 2]> {
        if !self.heads_only && self.record.is_none() {
            return None;
        }
        let Located { part, slot, key, .. } = self.locate(mem, va)?;
        let geometry = &self.parts[part].geometry;
        if let Some(record) = &self.record {
            let room = Self::probe(geometry, mem, key, |_| {}).room;
            return record.contains(slot).then(|| [room.unwrap_or_else(|| power::victim(geometry, mem, key)), slot]);
        }
        let head = geometry.slot(geometry.home(key), key.vpn);
        (slot != head).then_some([head, slot])
    }

    fn uncover(&mut self, mem: &mut PhysMem, va: VirtAddr) -> Result<(), NoRoom> {
        let lines = self.hidden_lines(mem, va).expect("hardware does not find the page");
        if let Some(record) = &self.record {
            let Located { part, key, .. } = self.found(mem, va);
            return power::refill(&self.parts[part].geometry, record, mem, key, lines).ok_or(NoRoom);
        }
        chained::exchange(mem, lines[0], lines[1]);
        Ok(())
    }

    #[inline]
    fn pinned(&self) -> Option<PinnedTable> {
        self.pinned
    }

    /// Prefetches on the host the slots at which the searches for the page begin.
    #[inline]
    fn hint(&self, mem: &PhysMem, va: VirtAddr) {
        if let Some(segments) = &self.segments {
            let Some(segment) = segments.find(mem, va, |_| {}) else { return };
            let (geometry, key) = (&self.parts[self.part_for(segment.base)].geometry, segments.key(segment, va));
            return mem.hint_block(geometry.slot(geometry.home(key), key.vpn));
        }
        for PartOfSize { size, geometry, .. } in &self.parts {
            let key = self.key(*size, va);
            mem.hint_block(geometry.slot(geometry.home(key), key.vpn));
        }
    }

    /// Entry and frame of a page, if its slot is the first one of a search.
    #[inline]
    fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        if self.segments.is_some() {
            return self.locate(mem, va).map(|located| (located.slot, located.mapping.pfn));
        }
        self.parts.iter().find_map(|PartOfSize { size, geometry, .. }| {
            let key = self.key(*size, va);
            let slot = match K::KIND {
                HashedKind::Power => Self::probe(geometry, mem, key, |_| {}).found?,
                HashedKind::Chained | HashedKind::Open | HashedKind::Clustered | HashedKind::Compact => {
                    geometry.slot(geometry.home(key), key.vpn)
                }
            };
            let (tag, index) = (mem.read_block(slot), geometry.index(key.vpn));
            let own = slot::is_named(tag, slot::name(geometry, key)) && tag & slot::valid(index) != 0;
            own.then(|| (slot, target(slot::read_entry(geometry, mem, slot, index))))
        })
    }

    fn entry(&self, mem: &PhysMem, va: VirtAddr, size: PageSize) -> PhysAddr {
        if let Some(segments) = &self.segments {
            return self.entry_in_segment(segments, mem, va, size);
        }
        let several = self.parts.len() > 1 || self.record.is_some();
        let located = if several { self.locate(mem, va) } else { None };
        if let Some(slot) = located.as_ref().map(|located| located.slot).filter(|_| self.record.is_some()) {
            return slot + 8;
        }
        // A size that the table does not hold is not mapped in the end.
        let part_for_size = || self.parts.iter().position(|part| part.size == size).unwrap_or(0);
        let part = located.map_or_else(part_for_size, |located| located.part);
        let PartOfSize { size, ref geometry, .. } = self.parts[part];
        let key = self.key(size, va);
        let mut last = PhysAddr(0);
        let Probe { found, room } = Self::probe(geometry, mem, key, |line| last = line);
        let entry = |slot| slot::entry_addr(geometry, slot, geometry.index(key.vpn));
        let victim = || self.record.map(|_| power::victim(geometry, mem, key));
        found.or(room).or_else(victim).map_or(last, entry)
    }

    fn reserve(&mut self, mem: &mut PhysMem, va: VirtAddr, size: PageSize) -> bool {
        if self.segments.is_some() {
            return self.reserve_in_segment(mem, va, size);
        }
        let geometry = &self.parts[self.part_for(size)].geometry;
        let Probe { found, room } = Self::probe(geometry, mem, self.key(size, va), |_| {});
        match K::KIND {
            HashedKind::Chained => {
                let has_slot = |room| mem.read_block(room) == slot::EMPTY || geometry.chain_slots_left(mem) > 0;
                found.is_some() || room.is_some_and(has_slot)
            }
            HashedKind::Open | HashedKind::Clustered | HashedKind::Compact | HashedKind::Power => {
                found.or(room).is_some() || self.record.is_some()
            }
        }
    }

    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        let page = self.key(mapping.size, va);
        let entry = match self.segments {
            Some(_) => self.map_in_segment(mem, va, &mapping)?,
            None => self.insert(mem, self.part_for(mapping.size), page, &mapping)?,
        };
        self.pages.insert(page.vpn, page.size);
        Ok(entry)
    }

    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        let Located { mapping, .. } = self.found(mem, va);
        self.replace(mem, va, Mapping { flags, ..mapping })
    }

    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        let Located { part, slot, key, mapping: old } = self.found(mem, va);
        assert_eq!(mapping.size, old.size, "{va:?} is mapped in another size");
        if self.segments.is_some() {
            self.replace_in_segment(mem, va, &mapping);
        }
        self.write(mem, part, slot, key, &mapping)
    }

    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        let Located { part, slot, key, mapping } = self.found(mem, va);
        let page = self.key(mapping.size, va);
        self.pages.remove(page.vpn, page.size);
        match self.segments {
            Some(_) => self.unmap_in_segment(mem, va, mapping.size),
            None => self.remove(mem, part, slot, key),
        }
    }

    fn set_shared_segment(&mut self, mem: &mut PhysMem, va: VirtAddr, shared: Option<u32>) -> SegmentChange {
        self.point_segment(mem, va, shared)
    }

    fn reach_shared_segment(&mut self, mem: &mut PhysMem, va: VirtAddr) -> bool {
        self.write_shared_segment(mem, va)
    }

    fn note_shared_page(&mut self, va: VirtAddr, mapped: bool) {
        let Key { vpn, size, .. } = self.key(PageSize::Size4K, va);
        if mapped {
            self.pages.insert(vpn, size);
        } else {
            self.pages.remove(vpn, size);
        }
    }

    fn unlink_leaf_table(&mut self, _: &mut PhysMem, _: VirtAddr) -> Option<Pfn> {
        None
    }

    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        let left = most.saturating_sub(out.len());
        let pages = || self.pages.range(start, end).take(left);
        // The slots of different clusters are scattered: prefetch them all at once.
        pages().for_each(|(va, _)| self.hint(mem, va));
        for (va, _) in pages() {
            out.push(Removed { va, mapping: self.found(mem, va).mapping });
        }
    }

    fn abandon(&mut self, shared: &mut SharedTable, mem: &mut PhysMem) -> bool {
        shared.abandon(mem, self)
    }

    fn report_work(&mut self, shared: &mut SharedTable, work: &mut TableWork) {
        let Some(segments) = &mut self.segments else { return };
        work.lines.append(&mut segments.lines);
        *shared.demoted.get_or_insert(0) += std::mem::take(&mut segments.demoted);
    }

    fn destroy(mut self, shared: &mut SharedTable, mem: &mut PhysMem, release: &mut dyn FnMut(Pfn)) {
        if let Some(segments) = self.segments.take() {
            segments.destroy(mem, release);
        }
        shared.remove_space(&self);
    }

    fn va_bits(&self) -> u32 {
        VA_BITS
    }

    fn exhausted(shared: &SharedTable, mem: &PhysMem, layer: &str, what: Exhausted) -> String {
        match what {
            Exhausted::Tags => format!(
                "layer `{layer}` has no address-space tag left for its hashed page table: all of 16 bits belong to processes, or to \
                 ended ones whose slots no scan has deleted; set a smaller system.layers.{layer}.page_table.exits_per_scan"
            ),
            Exhausted::Places(va) => shared.no_place(mem, layer, va),
            Exhausted::Block { .. } => unreachable!("its memory was set aside at boot"),
        }
    }
}

#[cfg(test)]
mod tests;
