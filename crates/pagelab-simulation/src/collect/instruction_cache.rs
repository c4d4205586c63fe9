//! Statistics of instruction caches.

use super::collector::Collector;
use pagelab_hardware::cache::{CodeOwner, Hierarchy, HitLevel};

impl Collector {
    pub(super) fn instruction_caches(&mut self, caches: &Hierarchy) {
        if !caches.has_instruction_caches() {
            return;
        }
        let fetched = caches.stats().total().fetched;
        for (owner, name) in CodeOwner::ALL {
            let found = fetched[owner as usize];
            let (all, hits): (u64, u64) = (found.iter().sum(), found[HitLevel::L1 as usize]);
            let whose = format!("the {name}'s instructions");
            let text = format!("Lines of {whose} that were fetched: each line that execution enters");
            self.count(format!("instruction_cache.{name}.accesses"), all, text);
            let text = format!("Lines of {whose} that missed the first-level instruction cache");
            self.count(format!("instruction_cache.{name}.misses"), all - hits, text);
            for (level, place, text) in [
                (HitLevel::L2, "l2", "that the second-level cache served"),
                (HitLevel::L3, "l3", "that the last-level cache served"),
                (HitLevel::Remote, "remote", "that another core's cache served"),
                (HitLevel::Dram, "dram", "that memory served"),
            ] {
                let text = format!("Misses of {whose} {text}");
                self.count(format!("instruction_cache.{name}.misses.{place}"), found[level as usize], text);
            }
        }
    }
}
