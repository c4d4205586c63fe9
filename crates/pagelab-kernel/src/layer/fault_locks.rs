//! Lines of the locks that page faults take for reading: that of the address space, or that of a VMA.
//!
//! Models: with several CPUs, each VMA's lock has a line of its own (`struct vma_lock`, its own slab), beside the VMA's
//! other fields, which faults read. A fault writes the line twice, when it takes the lock and when it releases it.
//! Source: Linux include/linux/mm.h (`vma_start_read`, `vma_end_read`), kernel/locking/rwsem.c (`down_read_trylock`,
//! `up_read`).
//! Parameters: `kernel.fault_lock`.
//! Stats: `layer.NAME.lock.mmap_read.*`, `layer.NAME.lock.vma.*`.
//! Deviations: the locks of a kernel have 1,024 lines; spaces with more VMAs share them. With one CPU nothing can take
//! the line away between the two writes, so the lock is in a line of the VMA and the release costs nothing.

use crate::config::FaultLock;
use crate::context::KernelContext;
use crate::layer::Layer;
use pagelab_base::addr::{LINE_BYTES, Pfn, PhysAddr, VirtAddr};
use pagelab_base::error::EngineError;
use pagelab_base::ids::SpaceIx;

/// Number of lines for the locks of VMAs.
const LINES: u64 = 1024;
/// Between the first locks of two address spaces with consecutive numbers.
const LINES_PER_SPACE: u64 = 97;

/// Memory for the locks of VMAs.
#[derive(Clone, Copy, Debug)]
pub struct VmaLocks {
    first: Pfn,
    frames: u64,
}

impl Layer {
    /// Whether programs run on several CPUs, whose faults compete.
    pub fn has_several_cpus(&self) -> bool {
        self.data.program_cpus > 1
    }

    /// Reserves memory for the locks of VMAs, if several CPUs use them.
    ///
    /// # Errors
    /// There is none.
    pub fn boot_vma_locks(&mut self, lock: FaultLock) -> Result<(), EngineError> {
        if lock == FaultLock::Vma && self.has_several_cpus() {
            let taken = self.memory_for(KernelContext::BOOT).take_ring(LINES * LINE_BYTES);
            let (first, frames) = taken.ok_or_else(|| self.out_of_memory("locks of its VMAs"))?;
            self.data.vma_locks = Some(VmaLocks { first, frames });
        }
        Ok(())
    }

    /// Number of frames of VMAs' locks.
    pub fn vma_lock_frames(&self) -> u64 {
        self.data.vma_locks.map_or(0, |locks| locks.frames)
    }

    /// Address of the lock that a fault in the VMA at `start` takes.
    pub fn fault_lock_line(&self, lock: FaultLock, space: SpaceIx, start: VirtAddr) -> PhysAddr {
        let address_space = &self.spaces[space];
        match (lock, &self.data.vma_locks) {
            (FaultLock::Mm, _) => address_space.lock_line(),
            (FaultLock::Vma, None) => address_space.object_line(start.0),
            (FaultLock::Vma, Some(locks)) => {
                let number = address_space.vmas.number_before(start) as u64 + LINES_PER_SPACE * space.number() as u64;
                locks.first.addr() + number % LINES * LINE_BYTES
            }
        }
    }
}
