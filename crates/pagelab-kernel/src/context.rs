//! On whose behalf a kernel works.

use crate::reclaim::GroupId;
use pagelab_base::ids::CpuId;

/// The CPU and the cgroup on whose behalf a kernel works. Every function of a kernel that takes, charges or frees
/// memory gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelContext {
    /// The CPU that runs the code: its lists of free pages are used.
    pub cpu: CpuId,
    /// The memory cgroup that pages of programs are charged to.
    pub group: GroupId,
}

impl KernelContext {
    /// Boot, on the first CPU.
    pub const BOOT: Self = Self::on(CpuId(0));

    /// The kernel's own work on a CPU, for no program.
    pub const fn on(cpu: CpuId) -> Self {
        Self { cpu, group: GroupId::REST }
    }
}
