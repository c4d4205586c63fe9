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
        #[cfg(test)]
        TAKEN.set(TAKEN.get() + 1);
        Some(Translation::of(&page).on_bare_machine())
    }
}

#[cfg(test)]
thread_local! {
    /// Walks of this thread that went the short way.
    static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Results are the same either way (`tests/short_walks.rs`), so they do not tell whether any walk takes this code.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Request, run};

    /// Walks that completed, and those of them that went the short way.
    fn walks(system: &str, set: &[&str]) -> (u64, u64) {
        let request = Request {
            sources: vec!["random:size=16MiB,accesses=40K".to_owned()],
            systems: vec![system.to_owned()],
            machine: Some("kabylake-7700hq".to_owned()),
            set: set.iter().map(|&set| set.to_owned()).collect(),
            threads: Some(1),
            ..Request::default()
        };
        TAKEN.set(0);
        let results = run(&request, &|_| true).unwrap();
        let count = results.results[0].stats.iter().find(|(name, _)| *name == "walk.count");
        (*count.unwrap().1, TAKEN.get())
    }

    #[test]
    fn mapped_pages_on_the_bare_machine_are_walked_to_the_short_way() {
        for system in ["radix", "radix-eager", "radix-5level", "radix-ptemagnet"] {
            let (all, short) = walks(system, &[]);
            assert!(all > 20_000, "{system}");
            assert_eq!(short, all, "{system}");
        }
    }

    #[test]
    fn other_walks_are_not() {
        let off: &[&str] = &["engine.short_walks=off"];
        for (system, set) in [("radix", off), ("nested-radix", &[]), ("hashed-open", &[])] {
            let (all, short) = walks(system, set);
            assert!(all > 20_000, "{system} {set:?}");
            assert_eq!(short, 0, "{system} {set:?}");
        }
    }
}
