//! Counters of the caches.

use serde::Serialize;

use super::{HitLevel, Requester};

/// Statistics of one core's requests and private caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoreCacheStats {
    /// Requests by [`Requester`] and [`HitLevel`], without bulk writes.
    pub served: [[u64; 5]; 3],
    /// Lines of bulk writes by the level at which they were found ([`HitLevel`]); `Dram` means in no cache: nothing was
    /// fetched.
    pub bulk_written: [u64; 5],
    /// Lines that were fetched from the instruction cache, by [`CodeOwner`](super::CodeOwner) and [`HitLevel`]; `L1` is
    /// a hit.
    pub fetched: [[u64; 5]; 2],
    /// Writes to a shared line.
    pub upgrades: u64,
    /// Modified lines that the L1 passed to the L2 (or, without one, further out), including those of page walks that
    /// enter at the L2.
    pub l1_writebacks: u64,
    /// Modified lines that the L2 passed to the L3 (or, without one, to DRAM).
    pub l2_writebacks: u64,
    /// Lines that this core lost because another core wrote them.
    pub invalidations: u64,
    /// Lines that this core held exclusive or modified and that became shared because another core read them.
    pub downgrades: u64,
    /// Downgrades of modified lines, which are written to the L3 (or, without one, to DRAM).
    pub downgrade_writebacks: u64,
    /// Lines that this core lost because the inclusive L3 evicted them.
    pub back_invalidations: u64,
    /// Requests that waited for a transfer of their line between cores, by [`Requester`].
    pub queued: [u64; 3],
    /// Cycles of these waits, by [`Requester`].
    pub queue_cycles: [u64; 3],
}

/// Statistics that belong to no single core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SharedCacheStats {
    /// Lines that the L3 evicted while it or a private cache held them modified.
    pub l3_writebacks: u64,
    /// Lines written to DRAM from any level, without device writes.
    pub dram_writes: u64,
    /// Lines of device writes that some cache held.
    pub dma_invalidations: u64,
}

/// A copy of all counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheStats {
    /// One per core.
    pub cores: Vec<CoreCacheStats>,
    /// Statistics that belong to no single core.
    pub shared: SharedCacheStats,
    /// Victims of data instead of lines of page tables, if a level keeps those.
    pub tables_kept: Option<u64>,
    /// Lines that left an L2 instead of a block of translations, if it keeps those.
    pub blocks_kept: Option<u64>,
}

impl CoreCacheStats {
    /// Requests of `requester` served at the level `by`, without bulk writes.
    pub fn served(&self, requester: Requester, by: HitLevel) -> u64 {
        self.served[requester as usize][by as usize]
    }

    /// Requests of `requester` at all levels.
    pub fn requests(&self, requester: Requester) -> u64 {
        self.served[requester as usize].iter().sum()
    }

    fn add(&mut self, other: &Self) {
        for (row, other) in self.served.iter_mut().zip(&other.served) {
            row.iter_mut().zip(other).for_each(|(count, other)| *count += other);
        }
        for (row, other) in self.fetched.iter_mut().zip(&other.fetched) {
            row.iter_mut().zip(other).for_each(|(count, other)| *count += other);
        }
        self.bulk_written.iter_mut().zip(&other.bulk_written).for_each(|(count, other)| *count += other);
        self.upgrades += other.upgrades;
        self.l1_writebacks += other.l1_writebacks;
        self.l2_writebacks += other.l2_writebacks;
        self.invalidations += other.invalidations;
        self.downgrades += other.downgrades;
        self.downgrade_writebacks += other.downgrade_writebacks;
        self.back_invalidations += other.back_invalidations;
        self.queued.iter_mut().zip(other.queued).for_each(|(count, other)| *count += other);
        self.queue_cycles.iter_mut().zip(other.queue_cycles).for_each(|(cycles, other)| *cycles += other);
    }
}

impl CacheStats {
    /// Sum over the cores.
    pub fn total(&self) -> CoreCacheStats {
        let mut total = CoreCacheStats::default();
        self.cores.iter().for_each(|core| total.add(core));
        total
    }
}
