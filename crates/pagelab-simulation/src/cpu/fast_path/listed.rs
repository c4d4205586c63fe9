//! Walks of one layer on the bare machine whose page table lists the references of a walk: tables that do not remember
//! ways.

use super::machine::MachineShape;
use super::walker::{References, WalkMemory, Walker, WalkerParts, add_refs, hint_tags};
use crate::cpu::lookahead::{ENTRIES_AHEAD, TAGS_AHEAD};
use pagelab_base::addr::{FRAME_SHIFT, MachineAddr, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::SpaceId;
use pagelab_base::memory::PhysMem;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::CoreCaches;
use pagelab_kernel::layer::Layer;
use pagelab_tables::mmu_cache::{Asid, MmuCache};
use pagelab_tables::page_table::{Leaf, PageTable, WalkList, WalkRef};
use pagelab_trace::Access;
use pagelab_translate::counters::WalkCounts;
use pagelab_translate::walker::UnsparedRefs;

/// Reads the entries of walks. Not a closure: that would not be compiled for the loop's vector instructions.
pub(super) trait EntryReader {
    /// Whether references have times.
    const IS_TIMED: bool;

    /// Makes the `n`th reference of a walk and adds its cycles. The whole walk began `before` and `cycles` ago.
    fn read(&mut self, n: usize, at: &WalkRef, before: Cycles, cycles: &mut Cycles);
}

/// Reads entries at addresses of the machine, for the layer whose references are at `place` in [`References`].
struct OnMachine<'a, C> {
    memory: &'a mut WalkMemory<C>,
    place: usize,
}

impl<C: CoreCaches> EntryReader for OnMachine<'_, C> {
    const IS_TIMED: bool = C::ARE_TIMED;

    #[inline(always)]
    fn read(&mut self, _: usize, at: &WalkRef, before: Cycles, cycles: &mut Cycles) {
        *cycles += self.memory.read(self.place, at.level, MachineAddr(at.addr.0), before + *cycles);
    }
}

/// The page table of a space, with the MMU cache of its walks.
pub(super) struct ListedTable<'a> {
    pub asid: Asid,
    table: &'a PageTable,
    mem: &'a PhysMem,
    /// None if it keeps nothing.
    upper: Option<&'a mut MmuCache>,
    /// Index of the layer's references in [`References`].
    place: usize,
    layer: usize,
}

impl<'a> ListedTable<'a> {
    #[inline(always)]
    pub fn new(layers: &'a [Layer], space: SpaceId, upper: &'a mut MmuCache, place: usize) -> Self {
        let layer = &layers[space.layer];
        let address_space = &layer.spaces[space.index];
        Self {
            asid: address_space.asid,
            table: &address_space.table,
            mem: &layer.memory.contents,
            upper: upper.keeps_entries().then_some(upper),
            place,
            layer: space.layer.index(),
        }
    }

    /// Lists the references of a walk, and returns what it finds. `None` if the page is not mapped, forbids the access,
    /// or needs a change of its accessed and dirty bits.
    #[inline(always)]
    pub fn find(&self, va: VirtAddr, write: bool, list: &mut WalkList) -> Option<Translation<PhysAddr>> {
        self.table.walk_by_hardware(self.mem, va, list);
        let Leaf::Present(page) = list.leaf else { return None };
        let serves = page.flags.accessed && (!write || page.flags.writable && page.flags.dirty);
        serves.then(|| Translation::from_mapping(&page))
    }

    /// Makes the references of a list that the MMU cache does not spare, and adds their cycles. The whole walk began
    /// `before` and `cycles` ago.
    #[inline(always)]
    pub fn walk<R: EntryReader>(
        &mut self,
        va: VirtAddr,
        list: &WalkList,
        before: Cycles,
        cycles: &mut Cycles,
        mut reader: R,
    ) {
        let refs = list.refs();
        *cycles += list.lead_cycles;
        let mut skip = 0;
        if let Some(upper) = &mut self.upper {
            let spared = upper.look_up(self.asid, va, list);
            *cycles += spared.cycles;
            skip = spared.skip;
        }
        // References of one dependency step overlap: a step costs as much as its slowest reference.
        let (mut step, mut slowest) = (u8::MAX, Cycles::ZERO);
        for n in UnsparedRefs::new(refs.len(), skip) {
            let mut spent = Cycles::ZERO;
            let mut before_read = Cycles::ZERO;
            if R::IS_TIMED {
                before_read = before + *cycles;
                if refs[n].step != step {
                    before_read += slowest;
                }
            }
            reader.read(n, &refs[n], before_read, &mut spent);
            if refs[n].step == step {
                slowest = slowest.max(spent);
            } else {
                *cycles += slowest;
                (step, slowest) = (refs[n].step, spent);
            }
        }
        *cycles += slowest;
        if let Some(upper) = &mut self.upper {
            upper.fill(self.asid, va, list, refs.len(), skip, self.mem);
        }
    }

    /// A walk on the bare machine; as [`Self::walk`].
    #[inline(always)]
    pub fn walk_on_machine<C: CoreCaches>(
        &mut self,
        memory: &mut WalkMemory<C>,
        va: VirtAddr,
        list: &WalkList,
        before: Cycles,
        cycles: &mut Cycles,
    ) {
        let place = self.place;
        self.walk(va, list, before, cycles, OnMachine { memory, place });
    }

    /// Prefetches on the host what [`Self::peek`] will read.
    #[inline(always)]
    pub fn hint(&self, va: VirtAddr) {
        self.table.hint(self.mem, va);
    }

    /// Address of the entry of `va`, and start address of the page that it maps.
    #[inline(always)]
    pub fn peek(&self, va: VirtAddr) -> Option<(PhysAddr, PhysAddr)> {
        self.table.peek(self.mem, va).map(|(entry, frame)| (entry, frame.addr()))
    }

    #[inline(always)]
    pub fn note(&self, refs: &References, bypass: bool, walks: &mut WalkCounts) {
        add_refs(walks, self.layer, &refs[self.place], bypass);
    }
}

/// The walker, see the module's text.
pub(super) struct Listed<'a> {
    table: ListedTable<'a>,
    list: WalkList,
}

impl<'a, M: MachineShape> Walker<'a, M> for Listed<'a> {
    #[inline(always)]
    fn from_parts(parts: WalkerParts<'a>) -> Option<Self> {
        let WalkerParts { layers, space, core, mmu_caches, nested_tlb: _, guest_tlb: _ } = parts;
        if layers[space.layer].host.is_some() {
            return None;
        }
        let table = ListedTable::new(layers, space, mmu_caches.cache(core, space.layer), 0);
        Some(Self { table, list: WalkList::new() })
    }

    type Found = Translation<PhysAddr>;

    #[inline(always)]
    fn find(&mut self, va: VirtAddr, write: bool) -> Option<Translation<PhysAddr>> {
        self.table.find(va, write, &mut self.list)
    }

    #[inline(always)]
    fn walk(
        &mut self,
        memory: &mut WalkMemory<M::Caches<'a>>,
        va: VirtAddr,
        _: bool,
        &found: &Translation<PhysAddr>,
        cycles: &mut Cycles,
    ) -> Translation {
        self.table.walk_on_machine(memory, va, &self.list, Cycles::ZERO, cycles);
        found.on_bare_machine()
    }

    #[inline(always)]
    fn look_ahead(&self, caches: &M::Caches<'a>, accesses: &[Access], at: usize) {
        let Some([first, .., last]) = accesses.get(at + TAGS_AHEAD..=at + ENTRIES_AHEAD) else { return };
        let here = accesses[at].vaddr >> FRAME_SHIFT;
        if last.vaddr >> FRAME_SHIFT != here {
            self.table.hint(VirtAddr(last.vaddr));
        }
        if first.vaddr >> FRAME_SHIFT != here
            && let Some(there) = self.table.peek(VirtAddr(first.vaddr))
        {
            hint_tags(caches, there, VirtAddr(first.vaddr));
        }
    }

    fn note(&self, refs: &References, bypass: bool, walks: &mut WalkCounts) {
        self.table.note(refs, bypass, walks);
    }
}
