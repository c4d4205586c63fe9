//! What walks page tables on the fast path, and the references that it makes.

use super::machine::Machine;
use pagelab_base::addr::{FRAME_BYTES, MachineAddr, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::SpaceId;
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::{CoreCaches, HitLevel, Requester};
use pagelab_kernel::layer::Layer;
use pagelab_tables::mmu_cache::MmuCaches;
use pagelab_trace::Access;
use pagelab_translate::counters::{WALK_LEVELS, WalkCounts, place_index};
use pagelab_translate::translation_unit::{Counted, GuestTlb, NestedTlb};

/// Layers that walks refer to at most: a guest and its host.
pub(super) const LAYERS: usize = 2;

/// What a walker is made of.
pub(super) struct WalkerParts<'a> {
    pub layers: &'a [Layer],
    /// The space that the program runs in.
    pub space: SpaceId,
    pub core: usize,
    pub mmu_caches: &'a mut MmuCaches,
    pub nested_tlb: Option<&'a mut Counted<NestedTlb>>,
    pub guest_tlb: Option<&'a mut Counted<GuestTlb>>,
}

/// A walker of the layers that a system has.
pub(super) trait Walker<'a, M: Machine>: Sized {
    /// None if the program's layers or their tables are not for it.
    fn from_parts(parts: WalkerParts<'a>) -> Option<Self>;

    /// Walks for `va` to the machine; none, with nothing changed, if it meets anything unusual. Adds its cycles.
    fn walk(
        &mut self,
        memory: &mut Memory<M::Caches<'a>>,
        va: VirtAddr,
        write: bool,
        cycles: &mut Cycles,
    ) -> Option<Translation>;

    /// Prefetches for the accesses that follow `accesses[at]`; see [`crate::cpu::lookahead`].
    fn look_ahead(&self, caches: &M::Caches<'a>, accesses: &[Access], at: usize);

    /// Notes in the end what was counted, and the references of walks by the walker's layers.
    fn note(&self, refs: &References, walks: &mut WalkCounts);
}

/// References of walks by layer, the program's first, level and place, as [`HitLevel`].
pub(super) type References = [[[u64; HitLevel::ALL.len()]; WALK_LEVELS]; LAYERS];

/// The caches, and what walks have referred to.
pub(super) struct Memory<C> {
    pub caches: C,
    pub refs: References,
}

impl<C: CoreCaches> Memory<C> {
    /// Reads a page-table entry for a walker; returns the cycles.
    #[inline(always)]
    pub fn read(&mut self, layer: usize, level: u8, entry: MachineAddr) -> Cycles {
        debug_assert!(layer < LAYERS && usize::from(level) < WALK_LEVELS);
        let outcome = self.caches.access(entry.line(), false, Requester::Walk);
        self.refs[layer % LAYERS][usize::from(level) % WALK_LEVELS][outcome.served as usize] += 1;
        outcome.cycles.into()
    }
}

/// Prefetches the tags of the lines of a leaf entry and of `va` in the page that it maps, both on the machine.
#[inline(always)]
pub(super) fn hint_tags<C: CoreCaches>(caches: &C, (entry, page): (PhysAddr, PhysAddr), va: VirtAddr) {
    caches.hint(MachineAddr(entry.0).line());
    caches.hint(MachineAddr(page.0 | va.offset_in(FRAME_BYTES)).line());
}

/// Adds references of a layer to its counts.
pub(super) fn add_refs(walks: &mut WalkCounts, layer: usize, counted: &[[u64; HitLevel::ALL.len()]; WALK_LEVELS]) {
    for (refs, counted) in walks.refs[layer].iter_mut().zip(counted) {
        HitLevel::ALL.iter().zip(counted).for_each(|(&place, count)| refs[place_index(Some(place))] += count);
    }
}
