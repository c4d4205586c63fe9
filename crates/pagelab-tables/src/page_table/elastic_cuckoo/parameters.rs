//! The parameters of elastic cuckoo page tables and their checks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::page_table::{Context, SizesConfig};
use pagelab_base::error::EngineError;

/// Allowed range of the initial lines per way: one frame to a block of 4 MiB.
const ENTRIES: std::ops::RangeInclusive<u32> = 64..=65536;

/// Parameters of an elastic cuckoo page table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ElasticCuckooConfig {
    /// Initial lines per way, each for 8 pages; a power of two from 64 (a frame) to 65536.
    pub way_entries: u32,
    /// Share of lines in use above which the next insertion begins to double the table.
    pub max_load: f64,
    /// Share of lines in use below which the next insertion begins to halve the table, down to its initial size; 0 for
    /// never.
    pub min_load: f64,
    /// Lines that each insertion moves from the old table to the new one during a resize.
    pub rehashes_per_insert: u32,
    /// Maximum number of lines that an insertion displaces.
    pub max_displacements: u32,
    /// Seed of the hash functions and of the choice of ways.
    pub seed: u64,
    /// The page sizes that there are tables for, and how a walker finds them. Default: 4 KiB alone.
    pub sizes: SizesConfig,
}

impl Default for ElasticCuckooConfig {
    fn default() -> Self {
        Self {
            way_entries: 128,
            max_load: 0.6,
            min_load: 0.2,
            rehashes_per_insert: 2,
            max_displacements: 32,
            seed: 0,
            sizes: SizesConfig::default(),
        }
    }
}

impl ElasticCuckooConfig {
    /// Checks the parameters.
    pub(super) fn validate(&self, context: &Context) -> Result<(), EngineError> {
        let refuse = |part: &str, what: String| context.refuse(part, what);
        let &Self { way_entries, max_load, min_load, rehashes_per_insert, max_displacements, .. } = self;
        if !ENTRIES.contains(&way_entries) || !way_entries.is_power_of_two() {
            let what = format!("{way_entries} is not possible; allowed are powers of two from 64 to 65536");
            return refuse("page_table.way_entries", what);
        }
        if !(max_load > 0.0 && max_load <= 0.7) {
            let what = format!(
                "{max_load} is not possible; allowed is more than 0 up to 0.7: with more, what is left of a table that moves has no \
             room for new lines"
            );
            return refuse("page_table.max_load", what);
        }
        for (key, value) in [("rehashes_per_insert", rehashes_per_insert), ("max_displacements", max_displacements)] {
            if !(1..=1024).contains(&value) {
                let what = format!("{value} is not possible; allowed are 1 to 1024");
                return refuse(&format!("page_table.{key}"), what);
            }
        }
        if !(0.0..=max_load / 3.0 + 1e-9).contains(&min_load) {
            let what = format!(
                "{min_load} is not possible; allowed is 0 (never) to {:.3}, a third of max_load: a table that was halved would be \
             doubled soon",
                max_load / 3.0
            );
            return refuse("page_table.min_load", what);
        }
        self.sizes.validate(true, context)
    }
}
