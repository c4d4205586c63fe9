//! Walks of a guest that runs in a guest: each of its physical addresses is walked for in the outer guest's table, and
//! the addresses of that walk in the host's.

use super::machine::AnyMachine;
use super::native::WalkedTable;
use super::nested::look_up;
use super::walker::{References, WalkMemory, Walker, WalkerParts};
use pagelab_base::addr::{FRAME_BYTES, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::SpaceId;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::AnyCaches;
use pagelab_kernel::layer::Layer;
use pagelab_tables::mmu_cache::{Asid, MmuCache};
use pagelab_tables::page_table::WalkPath;
use pagelab_trace::Access;
use pagelab_translate::counters::{WALK_LEVELS, WalkCounts};
use pagelab_translate::translation_unit::{Counted, Entry, FillSource, GuestTlb, NestedTlb, NoLines};

/// What was found for a table: its address, and how to get there.
type Known<R> = [Option<(PhysAddr, R)>; WALK_LEVELS];

/// A layer's table, and the tag of its space.
struct Table<'a> {
    table: WalkedTable<'a, &'a mut MmuCache>,
    asid: Asid,
}

impl<'a> Table<'a> {
    fn new(layers: &'a [Layer], space: SpaceId, upper: &'a mut MmuCache, place: usize) -> Option<Self> {
        let asid = layers[space.layer].spaces[space.index].asid;
        Some(Self { table: WalkedTable::new(layers, space, upper, place)?, asid })
    }

    /// The way to an address, if a walk along it needs no handler and sets no bits.
    fn way(&self, addr: PhysAddr, store: bool) -> Option<WalkPath> {
        self.table.ways.get(VirtAddr(addr.0)).filter(|way| way.serves(store))
    }
}

/// The way of a physical address of the guest through both tables below.
#[derive(Clone, Copy)]
pub(super) struct Route {
    /// In the outer guest's table.
    outer: WalkPath,
    /// In the host's: to the tables of that walk, by level, and to the page at its end.
    to_tables: [Option<WalkPath>; WALK_LEVELS],
    to_page: WalkPath,
}

/// The walker, see the module's text.
pub(super) struct ThreeLayers<'a> {
    guest: Table<'a>,
    below: Below<'a>,
    /// By level of the guest's table: the last table that a walk read, and the route to it.
    routes: Known<Route>,
}

/// The outer guest and the host.
struct Below<'a> {
    outer: Table<'a>,
    host: Table<'a>,
    /// By level of the outer guest's table: the last table of a route, and the host's way to it.
    tables: Known<WalkPath>,
    nested_tlb: Option<&'a mut Counted<NestedTlb>>,
    guest_tlb: Option<&'a mut Counted<GuestTlb>>,
}

/// The table of a level of a walk.
fn table_of(way: &WalkPath, level: u8, va: VirtAddr) -> (usize, PhysAddr) {
    (usize::from(level) % WALK_LEVELS, way.entry_addr(level, va).align_down(FRAME_BYTES))
}

impl Below<'_> {
    /// The route of a physical address of the guest; `None` if the general code must make a walk for it.
    fn route(&mut self, addr: PhysAddr, store: bool) -> Option<Route> {
        let (outer, va) = (self.outer.way(addr, store)?, VirtAddr(addr.0));
        let mut to_tables = [None; WALK_LEVELS];
        for level in outer.leaf..=outer.root {
            let (index, table) = table_of(&outer, level, va);
            let way = match self.tables[index] {
                Some((known, way)) if known == table => way,
                _ => self.host.way(table, false)?,
            };
            self.tables[index] = Some((table, way));
            to_tables[index] = Some(way);
        }
        let to_page = self.host.way(outer.translation().address(va), store)?;
        Some(Route { outer, to_tables, to_page })
    }

    /// Translates a physical address of the outer guest to the machine.
    fn through_host(
        &mut self,
        memory: &mut WalkMemory<AnyCaches<'_>>,
        addr: PhysAddr,
        way: &WalkPath,
        write: bool,
        cycles: &mut Cycles,
    ) -> Translation {
        let (asid, va) = (self.host.asid, VirtAddr(addr.0));
        let held =
            self.nested_tlb.as_mut().and_then(|tlb| tlb.look_up(&look_up(asid, va, write), &mut NoLines, cycles));
        if let Some(hit) = held {
            return hit;
        }
        self.host.table.walk(memory, va, way, cycles);
        let translation = way.translation().on_bare_machine();
        if let Some(tlb) = &mut self.nested_tlb {
            tlb.fill(&Entry { asid, va, translation }, FillSource::Walk, &mut NoLines);
        }
        translation
    }

    /// Translates a physical address of the guest to the machine.
    fn through_both(
        &mut self,
        memory: &mut WalkMemory<AnyCaches<'_>>,
        addr: PhysAddr,
        route: &Route,
        write: bool,
        cycles: &mut Cycles,
    ) -> Translation {
        let (asid, va, found) = (self.outer.asid, VirtAddr(addr.0), route.outer.translation());
        let wanted = look_up(asid, va, write);
        let held = self.nested_tlb.as_mut().and_then(|tlb| tlb.look_up(&wanted, &mut NoLines, cycles));
        if let Some(hit) = held {
            return hit;
        }
        let held = self.guest_tlb.as_mut().and_then(|tlb| tlb.look_up(&wanted, &mut NoLines, cycles));
        if held.is_none() {
            for level in self.outer.table.pass(va, &route.outer, cycles) {
                let to_table = route.to_tables[usize::from(level) % WALK_LEVELS].expect("it is part of the route");
                let entry = route.outer.entry_addr(level, va);
                let page = self.through_host(memory, entry, &to_table, false, cycles);
                *cycles += memory.read(1, level, page.address(VirtAddr(entry.0)), *cycles);
            }
            if let Some(tlb) = &mut self.guest_tlb {
                tlb.fill(&Entry { asid, va, translation: found }, FillSource::Walk, &mut NoLines);
            }
        }
        let page = self.through_host(memory, found.address(va), &route.to_page, write, cycles);
        let translation = found.through(va, page);
        if let Some(tlb) = &mut self.nested_tlb {
            tlb.fill(&Entry { asid, va, translation }, FillSource::Walk, &mut NoLines);
        }
        translation
    }
}

impl<'a> Walker<'a, AnyMachine> for ThreeLayers<'a> {
    /// The guest's way, and the route of the data.
    type Found = (WalkPath, Route);

    fn from_parts(parts: WalkerParts<'a>) -> Option<Self> {
        let WalkerParts { layers, space, core, mmu_caches, nested_tlb, guest_tlb } = parts;
        let outer = layers[space.layer].host?;
        let host = layers[outer.layer].host?;
        if layers[host.layer].host.is_some() {
            return None;
        }
        let uppers = mmu_caches.several_mut(core, [space.layer, outer.layer, host.layer])?;
        let [upper, outer_upper, host_upper] = uppers;
        let below = Below {
            outer: Table::new(layers, outer, outer_upper, 1)?,
            host: Table::new(layers, host, host_upper, 2)?,
            tables: [None; WALK_LEVELS],
            nested_tlb,
            guest_tlb,
        };
        Some(Self { guest: Table::new(layers, space, upper, 0)?, below, routes: [None; WALK_LEVELS] })
    }

    fn find(&mut self, va: VirtAddr, write: bool) -> Option<(WalkPath, Route)> {
        let way = self.guest.table.ways.get(va).filter(|way| way.serves(write))?;
        for level in way.leaf..=way.root {
            let (index, table) = table_of(&way, level, va);
            let held = &mut self.routes[index];
            if held.as_ref().is_none_or(|(known, _)| *known != table) {
                *held = Some((table, self.below.route(table, false)?));
            }
        }
        let route = self.below.route(way.translation().address(va), write)?;
        Some((way, route))
    }

    fn walk(
        &mut self,
        memory: &mut WalkMemory<AnyCaches<'a>>,
        va: VirtAddr,
        write: bool,
        (way, route): &(WalkPath, Route),
        cycles: &mut Cycles,
    ) -> Translation {
        let (asid, found) = (self.guest.asid, way.translation());
        let wanted = look_up(asid, va, write);
        let held = self.below.guest_tlb.as_mut().and_then(|tlb| tlb.look_up(&wanted, &mut NoLines, cycles));
        if held.is_none() {
            for level in self.guest.table.pass(va, way, cycles) {
                let (_, to_table) = self.routes[usize::from(level) % WALK_LEVELS].as_ref().expect("it has been found");
                let entry = way.entry_addr(level, va);
                let page = self.below.through_both(memory, entry, to_table, false, cycles);
                *cycles += memory.read(0, level, page.address(VirtAddr(entry.0)), *cycles);
            }
            if let Some(tlb) = &mut self.below.guest_tlb {
                tlb.fill(&Entry { asid, va, translation: found }, FillSource::Walk, &mut NoLines);
            }
        }
        let page = self.below.through_both(memory, found.address(va), route, write, cycles);
        found.through(va, page)
    }

    /// Nothing: to search three tables ahead of time takes longer than to wait for them.
    fn look_ahead(&self, _: &AnyCaches<'a>, _: &[Access], _: usize) {}

    fn note(&self, refs: &References, bypass: bool, walks: &mut WalkCounts) {
        for table in [&self.guest, &self.below.outer, &self.below.host] {
            table.table.note(refs, bypass, walks);
        }
    }
}
