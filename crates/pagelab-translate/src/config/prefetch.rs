//! Prefetchers of a machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::translation_unit::TlbPrefetchConfig;
use pagelab_base::error::EngineError;
use pagelab_hardware::cache::CacheConfig;
use pagelab_hardware::cache::prefetch::{CacheLevel, LevelPrefetchConfig};

/// Prefetchers, by the level that they fill. All are off by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PrefetchConfig {
    /// Prefetchers of each core's first-level data cache.
    pub l1: LevelPrefetchConfig,
    /// Prefetchers of each core's second-level cache.
    pub l2: LevelPrefetchConfig,
    /// Prefetchers of the cache that all cores share.
    pub l3: LevelPrefetchConfig,
    /// Prefetchers of each core's data TLBs.
    pub tlb: TlbPrefetchConfig,
}

impl PrefetchConfig {
    /// Whether all prefetchers are off.
    pub fn is_off(&self) -> bool {
        !self.levels().iter().any(|level| level.is_on()) && self.tlb.is_off()
    }

    /// The cache levels from L1 to L3.
    pub fn levels(&self) -> [&LevelPrefetchConfig; 3] {
        [&self.l1, &self.l2, &self.l3]
    }

    /// Refuses prefetchers that these caches rule out; `key` is the configuration key of this part.
    pub fn validate(&self, key: &str, caches: &CacheConfig) -> Result<(), EngineError> {
        for (level, prefetch) in CacheLevel::ALL.into_iter().zip(self.levels()) {
            let key = format!("{key}.{}", level.name());
            prefetch.validate(level).map_err(|e| EngineError::config(format!("{key}.{}", e.key), e.what))?;
            let is_there = match level {
                CacheLevel::L1 => true,
                CacheLevel::L2 => caches.l2.is_some(),
                CacheLevel::L3 => caches.l3.is_some(),
            };
            if prefetch.is_on() && !is_there {
                let name = level.name();
                let what = format!(
                    "there is no {name} to fetch into: configure machine.cache.{name}, or switch this prefetcher off"
                );
                return Err(EngineError::config(key, what));
            }
        }
        Ok(())
    }
}
