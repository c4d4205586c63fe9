//! Walkers of page tables on the fast path, and the references that they make.

use super::machine::MachineShape;
use pagelab_base::addr::{FRAME_BYTES, MachineAddr, PhysAddr, VirtAddr};
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::{CoreId, SpaceId};
use pagelab_base::translation::Translation;
use pagelab_hardware::cache::{CoreCaches, HitLevel, Requester};
use pagelab_kernel::layer::Layer;
use pagelab_tables::mmu_cache::MmuCaches;
use pagelab_trace::Access;
use pagelab_translate::counters::{WALK_LEVELS, WalkCounts, place_index};
use pagelab_translate::translation_unit::{Counted, GuestTlb, NestedTlb};

/// Room for the layers that walks refer to, of which there are three at most. A power of two, for the loop's indices.
pub(super) const LAYERS: usize = 4;
/// Room for the levels of a table; as [`LAYERS`].
pub(super) const LEVELS: usize = WALK_LEVELS.next_power_of_two();

/// The parts of the simulation that a walker uses.
pub(super) struct WalkerParts<'a> {
    pub layers: &'a [Layer],
    /// The program's address space.
    pub space: SpaceId,
    pub core: CoreId,
    pub mmu_caches: &'a mut MmuCaches,
    pub nested_tlb: Option<&'a mut Counted<NestedTlb>>,
    pub guest_tlb: Option<&'a mut Counted<GuestTlb>>,
}

/// A walker for the layers of a system.
pub(super) trait Walker<'a, M: MachineShape>: Sized {
    /// `None` if the walker does not fit the program's layers or their tables.
    fn from_parts(parts: WalkerParts<'a>) -> Option<Self>;

    /// What [`Self::find`] passes to [`Self::walk`].
    type Found;

    /// Finds a way to the machine for `va`; makes no reference. `None` if the general code must make the access.
    fn find(&mut self, va: VirtAddr, write: bool) -> Option<Self::Found>;

    /// Walks for `va` to the machine, for which [`Self::find`] has just been called, and adds the cycles.
    fn walk(
        &mut self,
        memory: &mut WalkMemory<M::Caches<'a>>,
        va: VirtAddr,
        write: bool,
        found: &Self::Found,
        cycles: &mut Cycles,
    ) -> Translation;

    /// Prefetches the simulator's data for the accesses that follow `accesses[at]`; see [`crate::cpu::lookahead`].
    fn look_ahead(&self, caches: &M::Caches<'a>, accesses: &[Access], at: usize);

    /// Adds the counts of the loop to the simulation's, with the references of walks by the walker's layers; `bypass`
    /// says whether these bypassed the caches.
    fn note(&self, refs: &References, bypass: bool, walks: &mut WalkCounts);
}

/// References of walks by layer (the program's first), level and place (as [`HitLevel`]). Those that bypass the caches
/// are all in the first place.
pub(super) type References = [LayerReferences; LAYERS];

/// The caches, and counts of the references of walks.
pub(super) struct WalkMemory<C> {
    pub caches: C,
    pub refs: References,
}

impl<C: CoreCaches> WalkMemory<C> {
    /// Reads a page-table entry for a walker, `spent` after the begin of the whole walk; returns the cycles.
    #[inline(always)]
    pub fn read(&mut self, layer: usize, level: u8, entry: MachineAddr, spent: Cycles) -> Cycles {
        debug_assert!(layer < LAYERS && usize::from(level) < WALK_LEVELS);
        if let Some(latency) = self.caches.bypass() {
            self.refs[layer % LAYERS][usize::from(level) % LEVELS][HitLevel::L1 as usize] += 1;
            return latency;
        }
        self.caches.set_time_in_walk(spent);
        let outcome = self.caches.access(entry.line(), false, Requester::Walk);
        self.refs[layer % LAYERS][usize::from(level) % LEVELS][outcome.served as usize] += 1;
        outcome.cycles.into()
    }
}

/// Prefetches the cache tags for the lines of a leaf entry and of `va` in the page that it maps, both on the machine.
#[inline(always)]
pub(super) fn hint_tags<C: CoreCaches>(caches: &C, (entry, page): (PhysAddr, PhysAddr), va: VirtAddr) {
    caches.hint(MachineAddr(entry.0).line());
    caches.hint(MachineAddr(page.0 | va.offset_in(FRAME_BYTES)).line());
}

/// References of one layer's walks.
type LayerReferences = [[u64; HitLevel::ALL.len()]; LEVELS];

/// Adds references to the counts of a layer; `bypass` if they bypassed the caches.
pub(super) fn add_refs(walks: &mut WalkCounts, layer: usize, counted: &LayerReferences, bypass: bool) {
    for (refs, counted) in walks.refs[layer].iter_mut().zip(counted) {
        for (&place, count) in HitLevel::ALL.iter().zip(counted) {
            refs[place_index((!bypass).then_some(place))] += count;
        }
    }
}
