//! Walks of one layer on the bare machine whose page table remembers ways.

use super::machine::MachineShape;
use super::walker::{References, WalkMemory, Walker, WalkerParts, add_refs, hint_tags};
use crate::cpu::lookahead::{ENTRIES_AHEAD, TAGS_AHEAD, WAYS_AHEAD};
use pagelab_base::addr::{FRAME_SHIFT, MachineAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::SpaceId;
use pagelab_base::memory::PhysMem;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::CoreCaches;
use pagelab_kernel::layer::Layer;
use pagelab_tables::mmu_cache::{Asid, Pass};
use pagelab_tables::page_table::{WalkPath, Ways};
use pagelab_trace::Access;
use pagelab_translate::counters::WalkCounts;

/// The page table of a space, with the MMU cache of its walks.
pub(super) struct WalkedTable<'a, U> {
    asid: Asid,
    pub ways: Ways<'a>,
    upper: U,
    mem: &'a PhysMem,
    /// Index of the layer's references in [`References`].
    place: usize,
    layer: usize,
}

impl<'a, U: Pass> WalkedTable<'a, U> {
    #[inline(always)]
    pub fn new(layers: &'a [Layer], space: SpaceId, upper: U, place: usize) -> Option<Self> {
        let layer = &layers[space.layer];
        let address_space = &layer.spaces[space.index];
        let ways = address_space.table.ways(&layer.memory.contents)?;
        Some(Self {
            asid: address_space.asid,
            ways,
            upper,
            mem: &layer.memory.contents,
            place,
            layer: space.layer.index(),
        })
    }

    /// Looks up and fills the MMU cache for a walk along `way`. Returns the levels that the walk reads, by bit, and
    /// adds the cycles.
    #[inline(always)]
    pub fn pass(&mut self, va: VirtAddr, way: &WalkPath, cycles: &mut Cycles) -> Levels {
        let passed = self.upper.pass(self.asid, va, way, self.mem);
        *cycles += passed.cycles;
        Levels(passed.reads)
    }

    /// A whole walk on the bare machine.
    #[inline(always)]
    pub fn walk<C: CoreCaches>(
        &mut self,
        memory: &mut WalkMemory<C>,
        va: VirtAddr,
        way: &WalkPath,
        cycles: &mut Cycles,
    ) {
        for level in self.pass(va, way, cycles) {
            *cycles += memory.read(self.place, level, MachineAddr(way.entry_addr(level, va).0), *cycles);
        }
    }

    #[inline(always)]
    pub fn note(&self, refs: &References, bypass: bool, walks: &mut WalkCounts) {
        add_refs(walks, self.layer, &refs[self.place], bypass);
    }
}

/// Iterates over levels, given by bit, from the highest.
pub(super) struct Levels(u8);

impl Iterator for Levels {
    type Item = u8;

    #[inline(always)]
    fn next(&mut self) -> Option<u8> {
        let level = self.0.checked_ilog2()? as u8;
        self.0 ^= 1 << level;
        Some(level)
    }
}

/// The walker, see the module's text.
pub(super) struct Native<'a, U>(WalkedTable<'a, U>);

impl<'a, M: MachineShape> Walker<'a, M> for Native<'a, M::Upper<'a>> {
    #[inline(always)]
    fn from_parts(parts: WalkerParts<'a>) -> Option<Self> {
        // Only walks of guests use these.
        let WalkerParts { layers, space, core, mmu_caches, nested_tlb: _, guest_tlb: _ } = parts;
        if layers[space.layer].host.is_some() {
            return None;
        }
        let upper = M::upper(mmu_caches.cache(core, space.layer));
        WalkedTable::new(layers, space, upper, 0).map(Self)
    }

    type Found = WalkPath;

    #[inline(always)]
    fn find(&mut self, va: VirtAddr, write: bool) -> Option<WalkPath> {
        let way = self.0.ways.get(va)?;
        if !way.serves(write) {
            return None;
        }
        Some(way)
    }

    #[inline(always)]
    fn walk(
        &mut self,
        memory: &mut WalkMemory<M::Caches<'a>>,
        va: VirtAddr,
        _: bool,
        way: &WalkPath,
        cycles: &mut Cycles,
    ) -> Translation {
        self.0.walk(memory, va, way, cycles);
        way.translation().on_bare_machine()
    }

    #[inline(always)]
    fn look_ahead(&self, caches: &M::Caches<'a>, accesses: &[Access], at: usize) {
        let Some([first, .., last]) = accesses.get(at + TAGS_AHEAD..=at + WAYS_AHEAD) else { return };
        let (here, middle) = (accesses[at].vaddr >> FRAME_SHIFT, &accesses[at + ENTRIES_AHEAD]);
        self.0.ways.hint(VirtAddr(last.vaddr));
        if middle.vaddr >> FRAME_SHIFT != here {
            self.0.ways.hint_entry(VirtAddr(middle.vaddr));
        }
        if first.vaddr >> FRAME_SHIFT != here
            && let Some(there) = self.0.ways.peek(VirtAddr(first.vaddr))
        {
            hint_tags(caches, there, VirtAddr(first.vaddr));
        }
    }

    fn note(&self, refs: &References, bypass: bool, walks: &mut WalkCounts) {
        self.0.note(refs, bypass, walks);
    }
}
