//! Look-ahead: having the host fetch what the simulation of coming accesses will read of the simulator's own tables.
//!
//! A program that touches memory at random makes the simulator do the same with its page tables and cache tags, and
//! wait for the host's memory. The coming accesses of a run are known, so their table entries are prefetched, and a
//! little later, when these have arrived, the tags of the lines that they lead to. Nothing here changes a result.

use crate::machine::simulation::Simulation;
use pagelab_base::addr::{FRAME_BYTES, FRAME_SHIFT, MachineAddr, PhysAddr, VirtAddr};
use pagelab_base::ids::{CpuId, SpaceId};
use pagelab_trace::Access;

/// Accesses ahead for which it is found out where their leaf entries are.
pub(super) const WAYS_AHEAD: usize = 32;
/// Accesses ahead whose leaf entries are prefetched.
pub(super) const ENTRIES_AHEAD: usize = 24;
/// Accesses ahead whose cache tags are prefetched.
pub(super) const TAGS_AHEAD: usize = 8;
/// Frames of page tables from which on they are looked ahead for: 1 MiB, half of what a host core's own caches hold.
/// Below, finding out what to prefetch takes longer than waiting for it.
const TABLE_FRAMES: usize = 256;

impl Simulation {
    /// Whether looking ahead for a CPU is worth it.
    pub(super) fn looks_ahead(&self, cpu: CpuId) -> bool {
        self.replay.lookahead
            && self.scheduler.cpus[cpu].space.is_some_and(|space| {
                let mem = &self.kernels.os.layers[space.layer].memory.contents;
                mem.frames_in_use() + mem.block_frames() >= TABLE_FRAMES
            })
    }

    /// Prefetches for the accesses that follow `accesses[at]`: each step for those that the step before has had its
    /// time for.
    #[inline]
    pub(super) fn look_ahead(&self, cpu: CpuId, accesses: &[Access], at: usize) {
        let here = accesses[at].vaddr >> FRAME_SHIFT;
        let elsewhere = |ahead: usize| {
            let vaddr = accesses.get(at + ahead).map(|access| access.vaddr);
            vaddr.filter(|vaddr| vaddr >> FRAME_SHIFT != here).map(VirtAddr)
        };
        let Some(space) = self.scheduler.cpus[cpu].space else { return };
        let layer = &self.kernels.os.layers[space.layer];
        let table = &layer.spaces[space.index].table;
        if let Some(va) = elsewhere(WAYS_AHEAD) {
            table.hint_way(va);
        }
        if let Some(va) = elsewhere(ENTRIES_AHEAD) {
            table.hint(&layer.memory.contents, va);
        }
        if let Some(va) = elsewhere(TAGS_AHEAD) {
            self.hint_tags(self.scheduler.cpus[cpu].core, space, va);
        }
    }

    /// Prefetches the tags of the lines of a leaf entry and of the data that it leads to; of a guest, the host's leaf
    /// entries for both.
    #[inline]
    fn hint_tags(&self, core: usize, space: SpaceId, va: VirtAddr) {
        let layer = &self.kernels.os.layers[space.layer];
        let Some((entry, frame)) = layer.spaces[space.index].table.peek(&layer.memory.contents, va) else { return };
        for addr in [entry, PhysAddr(frame.addr().0 | va.offset_in(FRAME_BYTES))] {
            match layer.host {
                None => self.hw.caches.hint(core, MachineAddr(addr.0).line()),
                Some(host) => self.kernels.hint_entry(host, VirtAddr(addr.0)),
            }
        }
    }
}
