//! Which MMU cache a layer's walks on a core use.

use super::MmuCache;
use crate::config::{Config, MmuCacheKind};
use crate::error::EngineError;
use crate::rng::Rng;

/// The MMU caches of the machine. Layers and cores refer to them, so that some can share one.
pub struct MmuCaches {
    caches: Vec<MmuCache>,
    /// By core and layer: the number of the cache.
    used: Vec<u32>,
    layers: usize,
}

impl MmuCaches {
    /// For the first `cores` cores of the machine.
    pub fn new(config: &Config, cores: usize) -> Result<Self, EngineError> {
        let (geometry, layers) = (&config.machine.mmu_cache, &config.system.layers);
        let mut caches = Vec::new();
        let mut used = Vec::new();
        for core in 0..cores {
            let mut shared = None;
            for layer in layers {
                let next = caches.len() as u32;
                let number = match layer.mmu_cache {
                    MmuCacheKind::SharedPageWalkCache => *shared.get_or_insert(next),
                    _ => next,
                };
                if number == next {
                    let rng = Rng::new(config.engine.seed, &format!("core {core} mmu cache {}", layer.name));
                    caches.push(MmuCache::new(layer.mmu_cache, geometry, &rng)?);
                }
                used.push(number);
            }
        }
        Ok(Self { caches, used, layers: layers.len() })
    }

    #[inline(always)]
    pub fn of(&mut self, core: usize, layer: u16) -> &mut MmuCache {
        let number = self.used[core * self.layers + usize::from(layer)];
        &mut self.caches[number as usize]
    }
}
