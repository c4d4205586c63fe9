//! Statistics of prefetched lines and of memory nodes.

use super::collector::Collector;
use pagelab_hardware::cache::Hierarchy;
use pagelab_hardware::cache::prefetch::CacheLevel;

impl Collector {
    pub(super) fn prefetches(&mut self, caches: &Hierarchy) {
        for (level, counts) in CacheLevel::ALL.into_iter().zip(caches.prefetched().into_iter().flatten()) {
            self.add_all(&format!("prefetch.{}", level.name()), counts.measures());
        }
    }

    pub(super) fn nodes_of_memory(&mut self, caches: &Hierarchy) {
        for (number, counts) in caches.memory_counts().iter().flatten().enumerate() {
            self.add_all(&format!("memory.node.{number}"), counts.measures());
        }
    }
}
