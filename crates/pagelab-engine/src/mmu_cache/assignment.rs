//! Which MMU cache a layer's walks on a core use.

use super::MmuCache;
use crate::base::error::EngineError;
use crate::base::rng::Rng;
use crate::config::{Config, MmuCacheKind};

/// The MMU caches of the machine. Layers and cores refer to them, so that some can share one.
pub struct MmuCaches {
    caches: Vec<MmuCache>,
    /// By core and layer: the number of the cache.
    used: Vec<u32>,
    layers: usize,
    common: bool,
}

impl MmuCaches {
    /// For the first `cores` cores of the machine.
    pub fn new(config: &Config, cores: usize) -> Result<Self, EngineError> {
        let (machine, layers) = (&config.machine, &config.system.layers);
        // Cores that stand idle leave their part of a common cache to the others.
        let common = machine.mmu_cache.shared_by_cores.map(|shared| machine.mmu_cache.together(machine.cores, shared));
        let geometry = common.as_ref().unwrap_or(&machine.mmu_cache);
        let mut caches = Vec::new();
        let mut used = Vec::new();
        for core in 0..cores {
            if common.is_some() && core > 0 {
                used.extend_from_within(..layers.len());
                continue;
            }
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
        Ok(Self { caches, used, layers: layers.len(), common: common.is_some() })
    }

    /// Whether all cores use the same ones.
    pub fn are_common(&self) -> bool {
        self.common
    }

    #[inline(always)]
    pub fn of(&mut self, core: usize, layer: u16) -> &mut MmuCache {
        let number = self.used[core * self.layers + usize::from(layer)];
        &mut self.caches[number as usize]
    }
}
