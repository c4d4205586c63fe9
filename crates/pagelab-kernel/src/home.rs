//! Where the processes of a source live.

use crate::reclaim::GroupId;
use pagelab_base::ids::LayerId;

/// Where the processes of an input live.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTarget {
    /// The layer whose kernel keeps them.
    pub layer: LayerId,
    /// The memory cgroup that their pages are charged to.
    pub group: GroupId,
    /// Whether the layer's placement policy is for them.
    pub uses_placement: bool,
    /// Whether its fault engine is.
    pub uses_fault_engine: bool,
    /// Whether the results tell how their memory lies: they are a main source's.
    pub reported: bool,
}
