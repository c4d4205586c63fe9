//! Walks that meet nothing unusual: of one layer on the bare machine, down a way that its table remembers, to a page that allows the
//! access.
//!
//! They do what [`walk_to_machine`](Hardware::walk_to_machine) does, without a list of references, as nothing can end them before
//! their leaf: the MMU cache is looked up and filled in one, and the references that it does not spare follow from the way. Any
//! other walk is left to the general code, which does for every system and is the reference (`tests/short_walks.rs`).

use crate::base::addr::MachineAddr;
use crate::base::cycles::Cycles;
use crate::base::page_fault::Intent;
use crate::base::translation::Translation;
use crate::cache::Requester;
use crate::kernel::layer::Layer;
use crate::translate::hardware::Hardware;
use crate::translate::walker::Wanted;

impl Hardware {
    /// A walk and its place in the counters. None, with nothing changed, if it is not for this code.
    #[inline(always)]
    pub(super) fn walk_short(
        &mut self,
        layers: &mut [Layer],
        wanted: &Wanted,
        cycles: &mut Cycles,
    ) -> Option<Translation> {
        let &Wanted { core, space, va, intent, origin } = wanted;
        let layer = &layers[space.layer];
        let of = &layer.spaces[space.index as usize];
        let way = of.table.way(&layer.mem, va)?;
        let store = intent == Intent::Store;
        let mut page = way.page().filter(|page| page.flags.writable || !store)?;
        let passed = self.mmu_caches.of(core, space.layer).pass(of.asid, va, way.levels)?;

        let mut spent = passed.cycles;
        for level in (1..passed.from).rev() {
            let entry = MachineAddr(way.entry(level, va).0);
            let done = self.system_ref(core, entry, false, false, Requester::Walk);
            spent += done.cycles;
            self.walks.count_ref(origin, space.layer, level, done.served);
        }
        if !page.flags.accessed || store && !page.flags.dirty {
            let entry = MachineAddr(way.entry(1, va).0);
            page = self.mark(layers, core, space, va, page, store, entry, &mut spent);
        }
        self.walks.count_walk(origin, spent);
        *cycles += spent;
        Some(Translation::of(&page).on_bare_machine())
    }
}
