//! When reclaim takes memory of late segments ([`crate::threads::late_segments`]), and how often it did.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When reclaim takes memory of late segments, from the earliest to never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dissolve {
    /// When kswapd is woken, before it scans: 2 MiB of a segment each time. Otherwise as a last resort.
    LowWatermark,
    /// When memory is short and no other page can be reclaimed.
    LastResort,
    /// Never.
    #[default]
    Never,
}

pagelab_base::counters! {
    /// What reclaim took from late segments.
    pub struct DissolvedCounters {
        dissolved: u64 as count("dissolved", "Pages of 4 KiB of late segments for which reclaim wrote entries of page tables");
        freed: u64 as count("freed", "Frames of late segments' memory that no segment used, and that reclaim freed");
        kept: u64 as count("kept", "Times that reclaim kept a late segment, as there was no memory for page tables");
    }
}
