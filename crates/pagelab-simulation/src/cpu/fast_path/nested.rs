//! Walks of a guest on a host: each guest-physical address is walked for in the host's table.

use super::machine::MachineShape;
use super::native::WalkedTable;
use super::walker::{LEVELS, References, WalkMemory, Walker, WalkerParts, hint_tags};
use crate::cpu::lookahead::{ENTRIES_AHEAD, TAGS_AHEAD, WAYS_AHEAD};
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::page_fault::{Intent, Origin};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::CoreCaches;
use pagelab_tables::mmu_cache::{Asid, Pass};
use pagelab_tables::page_table::WalkPath;
use pagelab_trace::Access;
use pagelab_translate::counters::WalkCounts;
use pagelab_translate::translation_unit::{Counted, Entry, FillSource, GuestTlb, NestedTlb, NoLines, UnitLookUp};

/// The walker, see the module's text.
pub(super) struct Nested<'a, U> {
    guest: WalkedTable<'a, U>,
    host: Host<'a, U>,
    /// By level of the guest's table: the last table that a walk read, and the host's way to it. The upper tables
    /// seldom change, and the host's ways do not change during the loop.
    tables: [Option<(PhysAddr, WalkPath)>; LEVELS],
    /// The guest's way for which `tables` has been completed last.
    completed: Option<WalkPath>,
    guest_tlb: Option<&'a mut Counted<GuestTlb>>,
    guest_asid: Asid,
}

/// The host's table, with the TLB of its pages.
struct Host<'a, U> {
    table: WalkedTable<'a, U>,
    nested_tlb: Option<&'a mut Counted<NestedTlb>>,
    asid: Asid,
}

impl<'a, U> Nested<'a, U> {
    /// Finds the host's ways to the tables that a walk of the guest may read; false if one of them needs the general
    /// code.
    #[inline(always)]
    fn find_tables(&mut self, guest: &WalkPath, va: VirtAddr) -> bool {
        let known = self.completed.take().is_some_and(|completed| completed.shares_upper_tables(guest));
        let top = if known { guest.leaf } else { guest.root };
        for level in guest.leaf..=top {
            let table = guest.entry_addr(level, va).align_down(FRAME_BYTES);
            let held = &mut self.tables[usize::from(level) % LEVELS];
            if held.as_ref().is_none_or(|(known, _)| *known != table) {
                let Some(way) = self.host.table.ways.get(VirtAddr(table.0)).filter(|way| way.serves(false)) else {
                    return false;
                };
                *held = Some((table, way));
            }
        }
        self.completed = Some(*guest);
        true
    }
}

impl<U: Pass> Host<'_, U> {
    /// Translates a guest-physical address for which the host has a usable way.
    #[inline(always)]
    fn translate<C: CoreCaches>(
        &mut self,
        memory: &mut WalkMemory<C>,
        addr: PhysAddr,
        way: &WalkPath,
        write: bool,
        cycles: &mut Cycles,
    ) -> Translation {
        let (asid, va) = (self.asid, VirtAddr(addr.0));
        if let Some(tlb) = &mut self.nested_tlb
            && let Some(hit) = tlb.look_up(&look_up(asid, va, write), &mut NoLines, cycles)
        {
            return hit;
        }
        self.table.walk(memory, va, way, cycles);
        let found = way.translation().on_bare_machine();
        if let Some(tlb) = &mut self.nested_tlb {
            tlb.fill(&Entry { asid, va, translation: found }, FillSource::Walk, &mut NoLines);
        }
        found
    }
}

/// A look-up for a program's access. The fast path has no time: no unit on it needs one.
#[inline(always)]
pub(super) fn look_up(asid: Asid, va: VirtAddr, write: bool) -> UnitLookUp {
    let intent = if write { Intent::Store } else { Intent::Load };
    UnitLookUp { asid, va, pc: 0, intent, origin: Origin::Program, now: Cycles::ZERO }
}

impl<'a, M: MachineShape> Walker<'a, M> for Nested<'a, M::Upper<'a>> {
    #[inline(always)]
    fn from_parts(parts: WalkerParts<'a>) -> Option<Self> {
        let WalkerParts { layers, space, core, mmu_caches, nested_tlb, guest_tlb } = parts;
        let host = layers[space.layer].host?;
        if layers[host.layer].host.is_some() {
            return None;
        }
        let [upper, host_upper] = mmu_caches.several_mut(core, [space.layer, host.layer])?;
        Some(Self {
            guest: WalkedTable::new(layers, space, M::upper(upper), 0)?,
            host: Host {
                table: WalkedTable::new(layers, host, M::upper(host_upper), 1)?,
                nested_tlb,
                asid: layers[host.layer].spaces[host.index].asid,
            },
            tables: [None; LEVELS],
            completed: None,
            guest_tlb,
            guest_asid: layers[space.layer].spaces[space.index].asid,
        })
    }

    /// The guest's way, and the host's to the data.
    type Found = [WalkPath; 2];

    #[inline(always)]
    fn find(&mut self, va: VirtAddr, write: bool) -> Option<[WalkPath; 2]> {
        let way = self.guest.ways.get(va)?;
        if !way.serves(write) {
            return None;
        }
        let data = way.translation().address(va);
        let below = self.host.table.ways.get(VirtAddr(data.0))?;
        (below.serves(write) && self.find_tables(&way, va)).then_some([way, below])
    }

    #[inline(always)]
    fn walk(
        &mut self,
        memory: &mut WalkMemory<M::Caches<'a>>,
        va: VirtAddr,
        write: bool,
        [way, below]: &[WalkPath; 2],
        cycles: &mut Cycles,
    ) -> Translation {
        let data = way.translation().address(va);
        let asid = self.guest_asid;
        let held = self.guest_tlb.as_mut().and_then(|tlb| tlb.look_up(&look_up(asid, va, write), &mut NoLines, cycles));
        if held.is_none() {
            for level in self.guest.pass(va, way, cycles) {
                let (_, to_table) = self.tables[usize::from(level) % LEVELS].as_ref().expect("it has been found");
                let entry = way.entry_addr(level, va);
                let page = self.host.translate(memory, entry, to_table, false, cycles);
                *cycles += memory.read(0, level, page.address(VirtAddr(entry.0)), *cycles);
            }
            if let Some(tlb) = &mut self.guest_tlb {
                tlb.fill(&Entry { asid, va, translation: way.translation() }, FillSource::Walk, &mut NoLines);
            }
        }
        let page = self.host.translate(memory, data, below, write, cycles);
        way.translation().through(va, page)
    }

    #[inline(always)]
    fn look_ahead(&self, caches: &M::Caches<'a>, accesses: &[Access], at: usize) {
        const MIDWAY: usize = (TAGS_AHEAD + ENTRIES_AHEAD) / 2;
        let Some(ahead) = accesses.get(at + TAGS_AHEAD..=at + WAYS_AHEAD) else { return };
        let va = |ahead: usize| VirtAddr(accesses[at + ahead].vaddr);
        if ahead[0].vaddr >> FRAME_SHIFT == accesses[at].vaddr >> FRAME_SHIFT {
            return;
        }
        self.guest.ways.hint(va(WAYS_AHEAD));
        self.guest.ways.hint_entry(va(ENTRIES_AHEAD));
        let addresses = |va: VirtAddr| {
            let (entry, page) = self.guest.ways.peek(va)?;
            Some([entry.0, page.0 | va.offset_in(FRAME_BYTES)].map(VirtAddr))
        };
        if let Some(addresses) = addresses(va(MIDWAY)) {
            addresses.into_iter().for_each(|addr| self.host.table.ways.hint_entry(addr));
        }
        if let Some(addresses) = addresses(va(TAGS_AHEAD)) {
            for addr in addresses {
                if let Some(there) = self.host.table.ways.peek(addr) {
                    hint_tags(caches, there, addr);
                }
            }
        }
    }

    fn note(&self, refs: &References, bypass: bool, walks: &mut WalkCounts) {
        self.guest.note(refs, bypass, walks);
        self.host.table.note(refs, bypass, walks);
    }
}
