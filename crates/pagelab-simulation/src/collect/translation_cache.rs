//! Statistics of the translation caches in which walks of page faults start.

use super::collector::Collector;
use crate::machine::kernels::Kernels;
use pagelab_base::ids::DIRECT_MAP;
use pagelab_kernel::config::InvalidationCause;
use pagelab_kernel::translation_cache::{LOWEST, TranslationCacheCounters, TranslationCaches};

impl Collector {
    pub(super) fn translation_caches(&mut self, kernels: &Kernels) {
        let layers = &kernels.os.layers;
        let caches: Vec<&TranslationCaches> =
            layers.iter().filter_map(|layer| layer.mechanisms.translation_caches.as_ref()).collect();
        if caches.is_empty() {
            return;
        }
        let sum =
            |get: &dyn Fn(&TranslationCacheCounters) -> u64| caches.iter().map(|cache| get(&cache.counters)).sum();
        let text = "Walks of page-fault handlers that began with a look-up in a translation cache, even an empty one";
        self.count("stc.lookups", sum(&|c| c.look_ups), text);
        let top = layers.iter().map(|layer| layer.spaces[DIRECT_MAP].table.levels()).max().unwrap_or(LOWEST);
        let arrays = caches[0].layout.is_some();
        for level in if arrays { LOWEST } else { 1 }..=top {
            let name = match level {
                1 => "pte",
                2 => "pmd",
                3 => "pud",
                4 if top > 4 => "p4d",
                _ => "pgd",
            };
            let (hits, index) = (format!("stc.hits.{name}"), usize::from(level));
            self.count(
                hits,
                sum(&|c| c.hits[index]),
                format!("Walks that began at a {name} entry, the deepest that was cached"),
            );
            if arrays {
                let text = format!("Hits in stc.hits.{name} whose entry belonged to another address");
                self.count(format!("stc.false_hits.{name}"), sum(&|c| c.false_hits[index]), text);
            }
        }
        let text = "References of walks that hits saved";
        self.count("stc.refs.spared", sum(&|c| c.refs_spared), text);
        self.count("stc.refs.look_up", sum(&|c| c.refs_made), "References that look-ups made");
        for cause in InvalidationCause::ALL {
            let name = cause.name();
            let text = format!("Translation caches emptied or freed; cause: {name}");
            self.count(format!("stc.invalidations.{name}"), sum(&|c| c.invalidations[cause as usize]), text);
        }
        if arrays {
            self.count("stc.fills", sum(&|c| c.fills), "Entries written to translation caches");
            let text = "Walks that found no memory for a translation cache";
            self.count("stc.no_memory", sum(&|c| c.no_memory), text);
            let bytes = caches.iter().map(|cache| cache.slab.bytes_in_use()).sum();
            self.state("stc.bytes", bytes, "bytes", "Memory of translation caches at the end");
            let peak = caches.iter().map(|cache| cache.slab.peak_in_use * cache.slab.object_bytes()).sum();
            self.state("stc.peak_bytes", peak, "bytes", "Largest memory of translation caches");
        }
    }
}
