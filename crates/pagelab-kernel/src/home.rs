//! Where the processes of a source are created.

use crate::reclaim::GroupId;
use pagelab_base::ids::LayerId;

/// Where the processes of a source are created.
#[derive(Clone, Copy, Debug)]
pub struct ProcessTarget {
    /// The layer whose kernel runs them.
    pub layer: LayerId,
    /// The memory cgroup that their pages are charged to.
    pub group: GroupId,
    /// Whether the layer's placement policy applies to them.
    pub uses_placement: bool,
    /// Whether the layer's fault engine serves them.
    pub uses_fault_engine: bool,
    /// Whether the results report the placement of their memory: they belong to a main source.
    pub reported: bool,
}
