//! Look-ahead: prefetching the simulator's own tables for the next accesses.
//!
//! A program that accesses memory at random makes the simulator access its page tables and cache tags at random, and
//! wait for the real memory. The next accesses of a run are known. So their table entries are prefetched, and a little
//! later, when these have arrived, the cache tags of the lines that they lead to. This changes no result.

use crate::machine::simulation::Simulation;
use pagelab_base::addr::{FRAME_SHIFT, VirtAddr};
use pagelab_base::ids::CpuId;
use pagelab_base::memory::WORDS_PER_FRAME;
use pagelab_trace::Access;

/// How many accesses ahead the location of leaf entries is prefetched.
pub(super) const WAYS_AHEAD: usize = 32;
/// How many accesses ahead leaf entries are prefetched.
pub(super) const ENTRIES_AHEAD: usize = 24;
/// How many accesses ahead cache tags are prefetched.
pub(super) const TAGS_AHEAD: usize = 8;
/// Frames of page tables from which look-ahead is used: 1 MiB, half of the private caches of a real core. With smaller
/// tables, computing what to prefetch takes longer than waiting for it. Of a table that was reserved at boot, the words
/// that are not zero count.
const TABLE_FRAMES: usize = 256;

impl Simulation {
    /// Whether look-ahead pays off for a CPU.
    pub(super) fn looks_ahead(&self, cpu: CpuId) -> bool {
        self.replay.lookahead
            && self.scheduler.cpus[cpu].space.is_some_and(|space| {
                let mem = &self.kernels.os.layers[space.layer].memory.contents;
                mem.frames_in_use() + mem.block_words_in_use() / WORDS_PER_FRAME >= TABLE_FRAMES
            })
    }

    /// Prefetches for the accesses that follow `accesses[at]`. Each step works on accesses whose data from the step
    /// before should have arrived.
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
            self.kernels.hint_tags(&self.hw.caches, self.scheduler.cpus[cpu].core, space, va);
        }
    }
}
