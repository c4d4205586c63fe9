//! Walks of a guest on a host if the table of one of them remembers no ways: both tables list the references of a walk.

use super::listed::{EntryReader, ListedTable};
use super::machine::MachineShape;
use super::nested::look_up;
use super::walker::{References, WalkMemory, Walker, WalkerParts};
use pagelab_base::addr::{FRAME_BYTES, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::CoreCaches;
use pagelab_tables::page_table::{WalkList, WalkRef};
use pagelab_trace::Access;
use pagelab_translate::counters::WalkCounts;
use pagelab_translate::translation_unit::{Counted, Entry, FillSource, GuestTlb, NestedTlb, NoLines};

/// The walker, see the module's text.
pub(super) struct NestedListed<'a> {
    guest: ListedTable<'a>,
    host: Host<'a>,
    guest_tlb: Option<&'a mut Counted<GuestTlb>>,
    list: WalkList,
    /// Walks of the host, by the guest's reference that needs them; that for the data is the first. A reference often
    /// reads the page that the same one of the walk before read, and the host's table does not change in the loop.
    walks: Vec<HostWalk>,
}

/// A walk of the host's table.
#[derive(Default)]
struct HostWalk {
    list: WalkList,
    end: Option<HostPage>,
}

/// The page at which a walk of the host's table ends.
struct HostPage {
    /// The guest's frame.
    frame: PhysAddr,
    /// Whether the walk may be for a store.
    stores: bool,
    translation: Translation,
}

/// The host's table, with the TLB of its pages.
struct Host<'a> {
    table: ListedTable<'a>,
    nested_tlb: Option<&'a mut Counted<NestedTlb>>,
}

impl Host<'_> {
    /// Sets `walk` to the walk for a guest-physical address; false if the general code must make it.
    #[inline(always)]
    fn find(&self, walk: &mut HostWalk, addr: PhysAddr, store: bool) -> bool {
        let frame = addr.align_down(FRAME_BYTES);
        if walk.end.as_ref().is_none_or(|end| end.frame != frame || store && !end.stores) {
            let found = self.table.find(VirtAddr(addr.0), store, &mut walk.list);
            walk.end = found.map(|found| HostPage { frame, stores: store, translation: found.on_bare_machine() });
        }
        walk.end.is_some()
    }

    /// Translates a guest-physical address by a walk that [`Self::find`] has set, and adds the cycles. The whole walk
    /// of the access began `before` and `cycles` ago.
    #[inline(always)]
    fn translate<C: CoreCaches>(
        &mut self,
        memory: &mut WalkMemory<C>,
        walk: &HostWalk,
        (addr, write): (PhysAddr, bool),
        before: Cycles,
        cycles: &mut Cycles,
    ) -> Translation {
        let (asid, va) = (self.table.asid, VirtAddr(addr.0));
        let translation = walk.end.as_ref().expect("the walk has been set").translation;
        if let Some(tlb) = &mut self.nested_tlb
            && let Some(hit) = tlb.look_up(&look_up(asid, va, write), &mut NoLines, cycles)
        {
            return hit;
        }
        self.table.walk_on_machine(memory, va, &walk.list, before, cycles);
        if let Some(tlb) = &mut self.nested_tlb {
            tlb.fill(&Entry { asid, va, translation }, FillSource::Walk, &mut NoLines);
        }
        translation
    }
}

/// Reads entries of a guest, for each of which there is a walk of the host.
struct ThroughHost<'a, 'b, C> {
    host: &'a mut Host<'b>,
    memory: &'a mut WalkMemory<C>,
    walks: &'a [HostWalk],
}

impl<C: CoreCaches> EntryReader for ThroughHost<'_, '_, C> {
    const IS_TIMED: bool = C::ARE_TIMED;

    #[inline(always)]
    fn read(&mut self, n: usize, at: &WalkRef, before: Cycles, cycles: &mut Cycles) {
        let page = self.host.translate(self.memory, &self.walks[n], (at.addr, false), before, cycles);
        *cycles += self.memory.read(0, at.level, page.address(VirtAddr(at.addr.0)), before + *cycles);
    }
}

impl<'a, M: MachineShape> Walker<'a, M> for NestedListed<'a> {
    #[inline(always)]
    fn from_parts(parts: WalkerParts<'a>) -> Option<Self> {
        let WalkerParts { layers, space, core, mmu_caches, nested_tlb, guest_tlb } = parts;
        let host = layers[space.layer].host?;
        if layers[host.layer].host.is_some() {
            return None;
        }
        let [upper, host_upper] = mmu_caches.several_mut(core, [space.layer, host.layer])?;
        Some(Self {
            guest: ListedTable::new(layers, space, upper, 0),
            host: Host { table: ListedTable::new(layers, host, host_upper, 1), nested_tlb },
            guest_tlb,
            list: WalkList::new(),
            walks: Vec::new(),
        })
    }

    type Found = Translation<PhysAddr>;

    #[inline(always)]
    fn find(&mut self, va: VirtAddr, write: bool) -> Option<Translation<PhysAddr>> {
        let found = self.guest.find(va, write, &mut self.list)?;
        let (refs, data) = (self.list.refs(), found.address(va));
        if self.walks.len() <= refs.len() {
            self.walks.resize_with(refs.len() + 1, HostWalk::default);
        }
        let (to_data, to_entries) = self.walks.split_first_mut().expect("there is one more than references");
        if !self.host.find(to_data, data, write) {
            return None;
        }
        // A closure would be a function of its own.
        for (at, walk) in refs.iter().zip(to_entries) {
            if !self.host.find(walk, at.addr, false) {
                return None;
            }
        }
        Some(found)
    }

    #[inline(always)]
    fn walk(
        &mut self,
        memory: &mut WalkMemory<M::Caches<'a>>,
        va: VirtAddr,
        write: bool,
        &found: &Translation<PhysAddr>,
        cycles: &mut Cycles,
    ) -> Translation {
        let (to_data, to_entries) = self.walks.split_first().expect("there is one more than references");
        let asid = self.guest.asid;
        let held = self.guest_tlb.as_mut().and_then(|tlb| tlb.look_up(&look_up(asid, va, write), &mut NoLines, cycles));
        if held.is_none() {
            let reader = ThroughHost { host: &mut self.host, memory, walks: to_entries };
            self.guest.walk(va, &self.list, Cycles::ZERO, cycles, reader);
            if let Some(tlb) = &mut self.guest_tlb {
                tlb.fill(&Entry { asid, va, translation: found }, FillSource::Walk, &mut NoLines);
            }
        }
        let page = self.host.translate(memory, to_data, (found.address(va), write), Cycles::ZERO, cycles);
        found.through(va, page)
    }

    /// Nothing: to search both tables ahead of time takes longer than to wait for them.
    #[inline(always)]
    fn look_ahead(&self, _: &M::Caches<'a>, _: &[Access], _: usize) {}

    fn note(&self, refs: &References, bypass: bool, walks: &mut WalkCounts) {
        self.guest.note(refs, bypass, walks);
        self.host.table.note(refs, bypass, walks);
    }
}
