//! What a machine fetches before it is asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pagelab_base::error::{EngineError, between};
use pagelab_base::switched::Switched;
use pagelab_hardware::cache::CacheConfig;
use pagelab_hardware::cache::prefetch::{CacheLevel, LevelPrefetchConfig};

/// Prefetchers, by the level that they fetch into. All are off unless they are named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PrefetchConfig {
    /// Of each core's first-level data cache.
    pub l1: LevelPrefetchConfig,
    /// Of each core's second-level cache.
    pub l2: LevelPrefetchConfig,
    /// Of the cache that all cores share.
    pub l3: LevelPrefetchConfig,
    /// Of each core's data TLBs.
    pub tlb: TlbPrefetchConfig,
}

/// Prefetchers of translations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlbPrefetchConfig {
    /// After a miss, a walk for the page behind, into a buffer beside the TLBs.
    pub next_page: Switched<NextPageConfig>,
}

/// What the configuration may say of [`next_page`](TlbPrefetchConfig::next_page).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NextPageConfig {
    /// Translations that the buffer of a core holds, 1 to 65536.
    pub entries: u32,
}

impl Default for NextPageConfig {
    fn default() -> Self {
        Self { entries: 16 }
    }
}

/// Name and description of the prefetchers of translations, for lists.
pub const TLB_PREFETCHERS: &[(&str, &str)] =
    &[("next_page", "after a miss, a walk for the page behind (machine.prefetch.tlb)")];

impl PrefetchConfig {
    /// Whether nothing is prefetched.
    pub fn is_off(&self) -> bool {
        !self.levels().iter().any(|level| level.is_on()) && !self.tlb.next_page.is_on()
    }

    /// From L1 to L3.
    pub fn levels(&self) -> [&LevelPrefetchConfig; 3] {
        [&self.l1, &self.l2, &self.l3]
    }

    /// Refuses what is impossible beside these caches; `key` is the part of the configuration that it is in.
    pub fn validate(&self, key: &str, caches: &CacheConfig) -> Result<(), EngineError> {
        if let Some(next_page) = self.tlb.next_page.on() {
            between(&format!("{key}.tlb.next_page.entries"), next_page.entries, 1, 1 << 16)?;
        }
        for (level, of) in CacheLevel::ALL.into_iter().zip(self.levels()) {
            let key = format!("{key}.{}", level.name());
            of.validate(level).map_err(|e| EngineError::config(format!("{key}.{}", e.key), e.what))?;
            let is_there = match level {
                CacheLevel::L1 => true,
                CacheLevel::L2 => caches.l2.is_some(),
                CacheLevel::L3 => caches.l3.is_some(),
            };
            if of.is_on() && !is_there {
                let name = level.name();
                let what = format!("there is no {name} to fetch into: configure machine.cache.{name}, or leave it off");
                return Err(EngineError::config(key, what));
            }
        }
        Ok(())
    }
}
