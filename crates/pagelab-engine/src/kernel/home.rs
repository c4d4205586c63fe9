//! Where the processes of a source live.

use crate::kernel::reclaim::GroupId;

/// Where the processes of an input live.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    pub layer: u16,
    /// The memory cgroup that their pages are charged to.
    pub group: GroupId,
    /// Whether the results tell how their memory lies: they are a main source's.
    pub measured: bool,
}
