//! Costs of batches under locks that all CPUs share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CallCost;

/// What page faults do while they hold the lock of free pages or of the LRU lists, beyond the references to the pages'
/// metadata. Others that need the lock wait meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldLocksConfig {
    /// Per page that is taken from the zone's lists to refill a CPU's list (`rmqueue_bulk`).
    pub zone_page: CallCost,
    /// Per page that is added to the LRU lists (`lru_add`).
    pub lru_page: CallCost,
}
