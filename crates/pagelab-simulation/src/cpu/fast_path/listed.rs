//! Walks of one layer on the bare machine whose page table lists the references of a walk: tables that do not remember
//! ways.

use super::machine::MachineShape;
use super::walker::{References, WalkMemory, Walker, WalkerParts, add_refs, hint_tags};
use crate::cpu::lookahead::{ENTRIES_AHEAD, TAGS_AHEAD};
use pagelab_base::addr::{FRAME_SHIFT, MachineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::memory::PhysMem;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::{Asid, MmuCache};
use pagelab_tables::page_table::{Leaf, PageTable, WalkList};
use pagelab_trace::Access;
use pagelab_translate::counters::WalkCounts;
use pagelab_translate::walker::UnsparedRefs;

/// The walker, see the module's text.
pub(super) struct Listed<'a> {
    asid: Asid,
    table: &'a PageTable,
    mem: &'a PhysMem,
    upper: &'a mut MmuCache,
    list: WalkList,
    layer: usize,
}

impl<'a, M: MachineShape> Walker<'a, M> for Listed<'a> {
    #[inline(always)]
    fn from_parts(parts: WalkerParts<'a>) -> Option<Self> {
        let WalkerParts { layers, space, core, mmu_caches, nested_tlb: _, guest_tlb: _ } = parts;
        let layer = &layers[space.layer];
        let address_space = &layer.spaces[space.index];
        let upper = mmu_caches.cache(core, space.layer);
        layer.host.is_none().then(|| Self {
            asid: address_space.asid,
            table: &address_space.table,
            mem: &layer.memory.contents,
            upper,
            list: WalkList::new(),
            layer: space.layer.index(),
        })
    }

    #[inline(always)]
    fn walk(
        &mut self,
        memory: &mut WalkMemory<M::Caches<'a>>,
        va: VirtAddr,
        write: bool,
        cycles: &mut Cycles,
    ) -> Option<Translation> {
        self.table.walk_by_hardware(self.mem, va, &mut self.list);
        let Leaf::Present(page) = self.list.leaf else { return None };
        if !page.flags.accessed || write && !(page.flags.writable && page.flags.dirty) {
            return None;
        }
        let spared = self.upper.look_up(self.asid, va, &self.list);
        let refs = self.list.refs();
        *cycles += self.list.lead_cycles + spared.cycles;
        // References of one dependency step overlap: a step costs as much as its slowest reference.
        let (mut step, mut slowest) = (u8::MAX, Cycles::ZERO);
        for n in UnsparedRefs::new(refs.len(), spared.skip) {
            let spent = memory.read(0, refs[n].level, MachineAddr(refs[n].addr.0));
            if refs[n].step == step {
                slowest = slowest.max(spent);
            } else {
                *cycles += slowest;
                (step, slowest) = (refs[n].step, spent);
            }
        }
        *cycles += slowest;
        self.upper.fill(self.asid, va, &self.list, refs.len(), spared.skip, self.mem);
        Some(Translation::from_mapping(&page).on_bare_machine())
    }

    #[inline(always)]
    fn look_ahead(&self, caches: &M::Caches<'a>, accesses: &[Access], at: usize) {
        let Some([first, .., last]) = accesses.get(at + TAGS_AHEAD..=at + ENTRIES_AHEAD) else { return };
        let here = accesses[at].vaddr >> FRAME_SHIFT;
        if last.vaddr >> FRAME_SHIFT != here {
            self.table.hint(self.mem, VirtAddr(last.vaddr));
        }
        if first.vaddr >> FRAME_SHIFT != here
            && let Some((entry, frame)) = self.table.peek(self.mem, VirtAddr(first.vaddr))
        {
            hint_tags(caches, (entry, frame.addr()), VirtAddr(first.vaddr));
        }
    }

    fn note(&self, refs: &References, walks: &mut WalkCounts) {
        add_refs(walks, self.layer, &refs[0]);
    }
}
