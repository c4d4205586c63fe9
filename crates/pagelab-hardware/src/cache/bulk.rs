//! Operations on many whole lines: bulk writes and reads of a core, writes of a device.

use super::prefetch::CacheLevel;
use super::shape::{Anything, Shape};
use super::streams::{BulkConfig, BulkCost, StreamLine, Streams};
use super::ways::AnyWays;
use super::{Hierarchy, HitLevel, MemoryConfig, Requester};
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;

impl Hierarchy {
    /// From now on operations on many lines cost what `config` says.
    pub fn set_bulk(&mut self, config: &BulkConfig, memory: &MemoryConfig) {
        self.streams = match config.cost(memory) {
            BulkCost::Latency => None,
            BulkCost::Bandwidth => Some(Box::new(Streams::new(config, self.bulk_parallelism))),
        };
    }

    /// Writes `lines` whole lines from `first` on without fetching them, as `rep stosb` zeroes a page. Returns its
    /// cycles: the sum of the lines' latencies divided by `bulk_parallelism`.
    pub fn zero_lines(&mut self, core: CoreId, first: LineAddr, lines: u64, _requester: Requester) -> Cycles {
        let mut found = [0_u64; 5];
        let upgrades_before = self.private[core].stats.upgrades;
        (self.code.write_lines)(self, core, first, lines, &mut found);
        let stats = &mut self.private[core].stats;
        stats.bulk_written.iter_mut().zip(&found).for_each(|(count, found)| *count += found);
        let upgrades = stats.upgrades - upgrades_before;
        let latencies = found.iter().zip(&self.bulk_latency).map(|(&count, &latency)| count * Cycles::from(latency));
        let sum = latencies.sum::<Cycles>() + upgrades * Cycles::from(self.upgrade_latency);
        sum.div_ceil(self.bulk_parallelism.into())
    }

    /// Writes `lines` whole lines from `first` on, which belong to an operation on `all` lines: at the rates of
    /// `machine.bulk` if it has any, otherwise as [`Self::zero_lines`]. Returns its cycles.
    pub fn store_lines(&mut self, core: CoreId, first: LineAddr, lines: u64, all: u64) -> Cycles {
        let Some(mut streams) = self.streams.take() else {
            return self.zero_lines(core, first, lines, Requester::Kernel);
        };
        let (begun, past_caches) = (self.time(), all >= streams.least_non_temporal);
        streams.begin();
        for line in (first.0..first.0 + lines).map(LineAddr) {
            self.begin_line(begun + streams.start());
            let (served, extra) =
                if past_caches { self.store_past_caches(core, line) } else { self.store_line(core, line) };
            let latency = self.bulk_latency[served as usize] + extra;
            let kind = if past_caches { StreamLine::NonTemporal } else { StreamLine::Store(served as usize) };
            streams.add(kind, latency.into(), self.written().saturating_sub(begun));
        }
        let cycles = streams.end();
        self.streams = Some(streams);
        self.set_time(begun + cycles);
        cycles
    }

    /// Writes a line without fetching it. Returns where it was, and the cycles beyond that level's latency.
    fn store_line(&mut self, core: CoreId, line: LineAddr) -> (HitLevel, u32) {
        let mut found = [0_u64; 5];
        let upgrades = self.private[core].stats.upgrades;
        (self.code.write_lines)(self, core, line, 1, &mut found);
        let served = HitLevel::ALL.into_iter().find(|&level| found[level as usize] > 0).unwrap_or(HitLevel::Dram);
        let stats = &mut self.private[core].stats;
        stats.bulk_written[served as usize] += 1;
        (served, if stats.upgrades > upgrades { self.upgrade_latency } else { 0 })
    }

    /// Writes a line to memory without fetching it; no cache keeps a copy.
    fn store_past_caches(&mut self, core: CoreId, line: LineAddr) -> (HitLevel, u32) {
        self.drop_line(line);
        self.private[core].stats.bulk_written[HitLevel::Dram as usize] += 1;
        self.shared_stats.dram_writes += 1;
        self.write_to_memory(line);
        (HitLevel::Dram, 0)
    }

    /// Reads `lines` whole lines from `first` on, as `rep movsb` reads its source. Returns its cycles: the sum of the
    /// lines' latencies divided by `bulk_parallelism`, or what the rates of `machine.bulk` allow.
    pub fn load_lines(&mut self, core: CoreId, first: LineAddr, lines: u64, requester: Requester) -> Cycles {
        if let Some(mut streams) = self.streams.take() {
            let begun = self.time();
            streams.begin();
            for line in (first.0..first.0 + lines).map(LineAddr) {
                self.begin_line(begun + streams.start());
                let outcome = self.access(core, line, false, requester);
                streams.add(StreamLine::Load(outcome.served as usize), outcome.cycles.into(), Cycles::ZERO);
            }
            let cycles = streams.end();
            self.streams = Some(streams);
            self.set_time(begun + cycles);
            return cycles;
        }
        let all = (first.0..first.0 + lines).map(LineAddr);
        let parallelism = self.bulk_parallelism.into();
        let sum = all.map(|line| {
            let cycles = Cycles::from(self.access(core, line, false, requester).cycles);
            self.pass(cycles.div_ceil(parallelism));
            cycles
        });
        sum.sum::<Cycles>().div_ceil(parallelism)
    }

    #[inline(always)]
    pub(super) fn write_lines<S: Shape>(&mut self, core: CoreId, first: LineAddr, lines: u64, found: &mut [u64; 5]) {
        for line in (first.0..first.0 + lines).map(LineAddr) {
            let served = if self.private[core].l1.access(line, true) {
                HitLevel::L1
            } else {
                self.request::<S>(core, line, true, false).served
            };
            found[served as usize] += 1;
        }
    }

    /// A device writes `lines` whole lines from `first` on: no cache keeps a copy.
    pub fn dma_write(&mut self, first: LineAddr, lines: u64) {
        for line in (first.0..first.0 + lines).map(LineAddr) {
            self.shared_stats.dma_invalidations += u64::from(self.drop_line(line));
            if self.streams.is_some() {
                self.write_to_memory(line);
            }
        }
    }

    /// Removes a line from all caches, without writing it back; true if one of them held it.
    fn drop_line(&mut self, line: LineAddr) -> bool {
        let in_l3 = self.l3.as_mut().and_then(|l3| l3.remove_line::<AnyWays>(line)).is_some();
        self.note_loss::<Anything>(&[CacheLevel::L3], CoreId::FIRST, line);
        let mut was_cached = in_l3;
        // A line that an inclusive L3 does not hold is in no cache.
        if in_l3 || !self.inclusive {
            for core in CoreId::all(self.private.len()) {
                was_cached |= self.private[core].remove::<Anything>(line).is_some();
                self.note_loss::<Anything>(&[CacheLevel::L1, CacheLevel::L2], core, line);
            }
        }
        was_cached
    }

    /// [`Self::dma_write`] of one line.
    pub fn invalidate_line(&mut self, line: LineAddr) {
        self.dma_write(line, 1);
    }
}
