//! Assignment of MMU caches to the layers and cores of a machine.

use super::{MmuCache, MmuCacheGeometry, MmuCacheKind, SegmentCounts};
use pagelab_base::error::EngineError;
use pagelab_base::ids::{CoreId, LayerId};
use pagelab_base::rng::Rng;

/// The MMU caches of the machine. Layers and cores refer to them by number, so some can share one.
#[derive(Clone)]
pub struct MmuCaches {
    caches: Vec<MmuCache>,
    /// Number of the cache, by core and layer.
    used: Vec<u32>,
    layers: usize,
    common: bool,
}

impl MmuCaches {
    /// Caches for the first `used` of the machine's `cores`; `layers` gives the name of each layer and the kind of its
    /// caches.
    pub fn new(
        own: &MmuCacheGeometry,
        layers: &[(&str, MmuCacheKind)],
        (cores, used): (u32, usize),
        seed: u64,
    ) -> Result<Self, EngineError> {
        // Idle cores leave their share of a common cache to the others.
        let common = own.shared_by_cores.map(|shared| own.together(cores, shared));
        let geometry = common.as_ref().unwrap_or(own);
        let mut caches = Vec::new();
        let mut numbers = Vec::new();
        for core in 0..used {
            if common.is_some() && core > 0 {
                numbers.extend_from_within(..layers.len());
                continue;
            }
            let first = numbers.len();
            for (index, &(name, kind)) in layers.iter().enumerate() {
                let alike = layers[..index].iter().position(|&(_, other)| kind.is_shared_by_layers() && other == kind);
                let number = alike.map_or(caches.len() as u32, |other| numbers[first + other]);
                if number == caches.len() as u32 {
                    let rng = Rng::new(seed, &format!("core {core} mmu cache {name}"));
                    caches.push(MmuCache::new(kind, geometry, &rng)?);
                }
                numbers.push(number);
            }
        }
        Ok(Self { caches, used: numbers, layers: layers.len(), common: common.is_some() })
    }

    /// Whether all cores use the same caches.
    pub fn are_common(&self) -> bool {
        self.common
    }

    /// Where `used` has the number of the cache of a layer on a core.
    #[inline(always)]
    fn place(&self, core: CoreId, layer: LayerId) -> usize {
        core.index() * self.layers + layer.index()
    }

    /// The caches of several layers, if they are different.
    #[inline(always)]
    pub fn several_mut<const N: usize>(&mut self, core: CoreId, layers: [LayerId; N]) -> Option<[&mut MmuCache; N]> {
        let numbers = layers.map(|layer| self.used[self.place(core, layer)] as usize);
        self.caches.get_disjoint_mut(numbers).ok()
    }

    /// The cache that walks of a layer's tables use on a core; several layers may share it.
    #[inline(always)]
    pub fn cache(&mut self, core: CoreId, layer: LayerId) -> &mut MmuCache {
        let number = self.used[self.place(core, layer)];
        &mut self.caches[number as usize]
    }

    /// Counts of a layer's buffers of segments on all cores, if it has some.
    pub fn segment_counts(&self, layer: LayerId) -> Option<SegmentCounts> {
        let cores = if self.common { 1 } else { self.used.len() / self.layers };
        let numbers = (0..cores).map(|core| self.used[core * self.layers + layer.index()]);
        numbers.filter_map(|number| self.caches[number as usize].segment_counts()).reduce(|mut sum, counts| {
            sum += counts;
            sum
        })
    }
}
