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
//! `exits_per_scan`, processes (64, estimated: the paper says "lazily").
//! Stats: `layer.NAME.page_table.*`.
//! Deviations: the tag contains the address space; the paper's tag does not, although its table is global. A search
//! ends after `search_lines` lines; if a page has no slot within them, the run ends with an error. No pages above 4
//! KiB, and no entry for several processes: a shared page has a slot per process. The kernel's direct map has a radix
//! table of its own with large pages (elsewhere: "bolted" entries); the paper looks at programs only. The segment
//! look-aside buffer of the power design always hits. If both groups of a page are full, the run ends with an error;
//! Linux evicts a slot instead, whose page it finds in tables of its own. The set of mapped pages is kept separately
//! ([`super::page_index`]), as kernels with hashed tables keep it in structures of their own.

mod chained;
mod geometry;
mod open;
mod parameters;
mod power;
mod shared;
mod slot;

use std::marker::PhantomData;

use super::entry::{decode, encode};
use super::page_index::PageIndex;
use super::{
    Context, Design, Exhausted, Leaf, Mapping, NoRoom, NoTable, PageSizes, PteFlags, Removed, TableFrames,
    UpperEntries, WalkList, WalkRef,
};
use geometry::{Counter, Geometry, Key, line_of};
use pagelab_base::addr::{FRAME_SHIFT, PageSize, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::memory::PhysMem;
use parameters::{HashedConfig, HashedKind};
use shared::SharedTable;

const VA_BITS: u32 = 48;

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

/// An address space in the table of its layer.
#[derive(Clone)]
pub struct Hashed<K> {
    geometry: Geometry,
    asid: u16,
    /// Number of slots of this space.
    slots: u64,
    pages: PageIndex,
    kind: PhantomData<K>,
}

impl<K: Kind> Hashed<K> {
    fn new(geometry: Geometry, asid: u16) -> Self {
        Self { geometry, asid, slots: 0, pages: PageIndex::default(), kind: PhantomData }
    }

    #[inline(always)]
    fn key(&self, va: VirtAddr) -> Key {
        Key { asid: self.asid, vpn: (va.0 & ((1 << VA_BITS) - 1)) >> FRAME_SHIFT }
    }

    #[inline(always)]
    fn probe(&self, mem: &PhysMem, key: Key, visit: impl FnMut(PhysAddr)) -> Probe {
        match K::KIND {
            HashedKind::Chained => chained::probe(&self.geometry, mem, key, visit),
            HashedKind::Power => power::probe(&self.geometry, mem, key, visit),
            HashedKind::Open | HashedKind::Clustered | HashedKind::Compact => {
                open::probe(&self.geometry, mem, key, visit)
            }
        }
    }

    /// The mapping of a page in a slot, if the slot contains it.
    #[inline(always)]
    fn read(&self, mem: &PhysMem, slot: PhysAddr, key: Key) -> Option<Mapping> {
        let index = self.geometry.index(key.vpn);
        let there = mem.read_block(slot) & slot::valid(index) != 0;
        there.then(|| decode(1, slot::read_entry(&self.geometry, mem, slot, index)))
    }

    /// Slot and mapping of a mapped page.
    fn found(&self, mem: &PhysMem, va: VirtAddr) -> (PhysAddr, Mapping) {
        let key = self.key(va);
        let slot = self.probe(mem, key, |_| {}).found;
        let found = slot.and_then(|slot| Some((slot, self.read(mem, slot, key)?)));
        found.unwrap_or_else(|| panic!("{va:?} is not mapped"))
    }
}

impl<K: Kind> Design for Hashed<K> {
    type Parameters = HashedConfig;
    type Shared = SharedTable;

    const PAGE_SIZES: PageSizes = PageSizes::only_4k(
        "a slot is found by the number of a 4 KiB page, and a walker does not know the size before it has found it",
    );
    const WORDS: Result<&'static [PageSize], &'static str> =
        Err("a slot of a hashed table is there for pages that are mapped only");
    const CLEARS_LAZILY: bool = true;

    fn samples() -> Vec<HashedConfig> {
        HashedConfig::samples(K::KIND)
    }

    fn upper_entries(_: &HashedConfig) -> UpperEntries {
        UpperEntries::Unfit
    }

    fn validate(parameters: &HashedConfig, context: &Context) -> Result<(), EngineError> {
        parameters.validate(K::KIND, context)
    }

    fn create(
        _: &HashedConfig,
        shared: &mut SharedTable,
        _: &mut PhysMem,
        _: TableFrames,
        _: Option<u64>,
    ) -> Result<Self, NoTable> {
        shared.add_space().ok_or(NoTable::Tags)
    }

    #[inline]
    fn walk(&self, mem: &PhysMem, va: VirtAddr, list: &mut WalkList) {
        list.clear();
        let key = self.key(va);
        let mut step = 0;
        let mut push = |addr| {
            list.push(WalkRef::to_leaf(addr, step));
            step = u8::wrapping_add(step, 1);
        };
        let Probe { found, .. } = self.probe(mem, key, &mut push);
        let mapping = found.and_then(|slot| {
            let entry = slot::entry_addr(&self.geometry, slot, self.geometry.index(key.vpn));
            if line_of(entry) != line_of(slot) {
                push(entry);
            }
            self.read(mem, slot, key)
        });
        list.leaf = mapping.map_or(Leaf::nothing(1), Leaf::Present);
    }

    /// Prefetches on the host the slot at which a search for the page begins.
    #[inline]
    fn hint(&self, mem: &PhysMem, va: VirtAddr) {
        let key = self.key(va);
        mem.hint_block(self.geometry.slot(self.geometry.home(key), key.vpn));
    }

    /// Entry and frame of a page, if its slot is the first one of a search.
    #[inline]
    fn peek(&self, mem: &PhysMem, va: VirtAddr) -> Option<(PhysAddr, Pfn)> {
        let key = self.key(va);
        let slot = match K::KIND {
            HashedKind::Power => self.probe(mem, key, |_| {}).found?,
            HashedKind::Chained | HashedKind::Open | HashedKind::Clustered | HashedKind::Compact => {
                self.geometry.slot(self.geometry.home(key), key.vpn)
            }
        };
        let own = slot::is_named(mem.read_block(slot), slot::name(&self.geometry, key));
        let mapping = if own { self.read(mem, slot, key) } else { None }?;
        Some((slot, mapping.pfn))
    }

    fn entry(&self, mem: &PhysMem, va: VirtAddr) -> PhysAddr {
        let key = self.key(va);
        let mut last = PhysAddr(0);
        let Probe { found, room } = self.probe(mem, key, |line| last = line);
        let entry = |slot| slot::entry_addr(&self.geometry, slot, self.geometry.index(key.vpn));
        found.or(room).map_or(last, entry)
    }

    fn map(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> Result<PhysAddr, NoRoom> {
        assert_eq!(mapping.size, PageSize::Size4K, "the table has no larger pages");
        let (geometry, key) = (self.geometry, self.key(va));
        let Probe { found, room } = self.probe(mem, key, |_| {});
        let slot = match (found, room, K::KIND) {
            (Some(slot), ..) => slot,
            (None, None, _) => return Err(NoRoom),
            (None, Some(room), HashedKind::Chained) => chained::occupy(&geometry, mem, key, room).ok_or(NoRoom)?,
            (None, Some(room), HashedKind::Open | HashedKind::Clustered | HashedKind::Compact | HashedKind::Power) => {
                open::occupy(&geometry, mem, key, room)
            }
        };
        if found.is_none() {
            self.slots += 1;
            geometry.add_to_counter(mem, Counter::Used, 1);
        }
        let (tag, index) = (mem.read_block(slot), geometry.index(key.vpn));
        assert_eq!(tag & slot::valid(index), 0, "the entry of {va:?} is in use");
        mem.write_block(slot, tag | slot::valid(index));
        slot::write_entry(&geometry, mem, slot, index, encode(1, &mapping));
        self.pages.insert(key.vpn);
        Ok(slot::entry_addr(&geometry, slot, index))
    }

    fn set_flags(&mut self, mem: &mut PhysMem, va: VirtAddr, flags: PteFlags) -> PhysAddr {
        let (_, mapping) = self.found(mem, va);
        self.replace(mem, va, Mapping { flags, ..mapping })
    }

    fn replace(&mut self, mem: &mut PhysMem, va: VirtAddr, mapping: Mapping) -> PhysAddr {
        assert_eq!(mapping.size, PageSize::Size4K, "the table has no larger pages");
        let (slot, _) = self.found(mem, va);
        let index = self.geometry.index(self.key(va).vpn);
        slot::write_entry(&self.geometry, mem, slot, index, encode(1, &mapping));
        slot::entry_addr(&self.geometry, slot, index)
    }

    fn unmap(&mut self, mem: &mut PhysMem, va: VirtAddr) -> PhysAddr {
        let (geometry, key) = (self.geometry, self.key(va));
        let (slot, _) = self.found(mem, va);
        let index = geometry.index(key.vpn);
        slot::write_entry(&geometry, mem, slot, index, 0);
        let tag = mem.read_block(slot) & !slot::valid(index);
        mem.write_block(slot, tag);
        self.pages.remove(key.vpn);
        if !slot::is_used(tag) {
            self.slots -= 1;
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

    fn mapped(&self, mem: &PhysMem, start: VirtAddr, end: VirtAddr, most: usize, out: &mut Vec<Removed>) {
        let last = end.0.div_ceil(1 << FRAME_SHIFT);
        let left = most.saturating_sub(out.len());
        let pages = || self.pages.range(start.page_number(), last).take(left);
        // The slots of different clusters are scattered: prefetch them all at once.
        pages().for_each(|vpn| self.hint(mem, VirtAddr::from_page_number(vpn)));
        for vpn in pages() {
            let va = VirtAddr::from_page_number(vpn);
            out.push(Removed { va, mapping: self.found(mem, va).1 });
        }
    }

    fn abandon(&mut self, shared: &mut SharedTable, mem: &mut PhysMem) -> bool {
        shared.abandon(mem, self)
    }

    fn destroy(self, shared: &mut SharedTable, _: &mut PhysMem, _: &mut dyn FnMut(Pfn)) {
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
