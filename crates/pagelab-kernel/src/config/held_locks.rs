//! Costs of batches under locks that all CPUs share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CallCost;

/// What page faults, scans and mapping calls do while they hold the lock of free pages or of the LRU lists, beyond the
/// references to the pages' metadata. Others that need the lock wait meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldLocksConfig {
    /// Per page that moves from the zone's lists to a CPU's list (`rmqueue_bulk`), or back (`free_pcppages_bulk`);
    /// a larger block counts as one page.
    pub zone_page: CallCost,
    /// Per page that is added to the LRU lists (`lru_add`), or taken from them (`isolate_lru_folios`, `release_pages`).
    pub lru_page: CallCost,
}
