//! Operations on many whole lines: bulk writes and reads of a core, writes of a device.
//!
//! A bulk write changes the caches first and reports where its lines were, as runs ([`LineRuns`]). Its cycles follow
//! from these. Only where requests have times does it go line by line, since each line begins at a time of its own.

use super::prefetch::CacheLevel;
use super::shape::{Anything, Shape};
use super::streams::{BulkConfig, BulkCost, LineRun, LineRuns, StreamLine, Streams};
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
        let mut sum = Cycles::ZERO;
        self.write_runs(core, first, lines, |_, latency, lines| sum += lines * latency);
        sum.div_ceil(self.bulk_parallelism.into())
    }

    /// Writes `lines` whole lines from `first` on and counts them. Tells `each` run's level, latency and length.
    #[inline(always)]
    fn write_runs(&mut self, core: CoreId, first: LineAddr, lines: u64, mut each: impl FnMut(usize, Cycles, u64)) {
        // Taken out of the caches and put back, so that its memory is reused.
        let mut found = std::mem::take(&mut self.found);
        (self.code.write_lines)(self, core, first, lines, &mut found);
        for LineRun { found, upgraded, lines } in found.drain() {
            self.private[core].stats.bulk_written[found] += lines;
            let extra = if upgraded { self.upgrade_latency } else { 0 };
            each(found, (self.bulk_latency[found] + extra).into(), lines);
        }
        self.found = found;
    }

    /// Writes `lines` whole lines from `first` on, which belong to an operation on `all` lines: at the rates of
    /// `machine.bulk` if it has any, otherwise as [`Self::zero_lines`]. Returns its cycles.
    pub fn store_lines(&mut self, core: CoreId, first: LineAddr, lines: u64, all: u64) -> Cycles {
        let Some(mut streams) = self.streams.take() else {
            return self.zero_lines(core, first, lines, Requester::Kernel);
        };
        let begun = self.time();
        streams.begin();
        if all >= streams.least_non_temporal {
            for line in (first.0..first.0 + lines).map(LineAddr) {
                self.begin_line(begun + streams.start());
                self.store_past_caches(core, line);
                let latency = self.bulk_latency[HitLevel::Dram as usize];
                streams.add(StreamLine::NonTemporal, latency.into(), self.written().saturating_sub(begun));
            }
        } else if self.is_timed() {
            for line in (first.0..first.0 + lines).map(LineAddr) {
                self.begin_line(begun + streams.start());
                let mut stored = (StreamLine::NonTemporal, Cycles::ZERO);
                self.write_runs(core, line, 1, |found, latency, _| stored = (StreamLine::Store(found), latency));
                streams.add(stored.0, stored.1, self.written().saturating_sub(begun));
            }
        } else {
            self.write_runs(core, first, lines, |found, latency, lines| {
                streams.add_run(StreamLine::Store(found), latency, lines);
            });
        }
        let cycles = streams.end();
        self.streams = Some(streams);
        self.set_time(begun + cycles);
        cycles
    }

    /// Writes a line to memory without fetching it; no cache keeps a copy.
    fn store_past_caches(&mut self, core: CoreId, line: LineAddr) {
        self.drop_line(line);
        self.private[core].stats.bulk_written[HitLevel::Dram as usize] += 1;
        self.shared_stats.dram_writes += 1;
        self.write_to_memory(line);
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
    pub(super) fn write_lines<S: Shape>(&mut self, core: CoreId, first: LineAddr, lines: u64, found: &mut LineRuns) {
        for line in (first.0..first.0 + lines).map(LineAddr) {
            let upgrades = self.private[core].stats.upgrades;
            let served = if self.private[core].l1.access(line, true) {
                HitLevel::L1
            } else {
                self.request::<S>(core, line, true, false, false).served
            };
            found.push(served as usize, self.private[core].stats.upgrades > upgrades, 1);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::prefetch::LevelPrefetchConfig;
    use crate::cache::test_support::sandy_bridge;
    use pagelab_base::ids::NodeId;
    use pagelab_base::rng::Rng;

    #[test]
    fn a_stream_takes_as_long_whether_its_lines_have_times_or_not() {
        for cores in [1_usize, 2] {
            let memory = MemoryConfig::default();
            let mut plain = Hierarchy::new(&sandy_bridge(), cores, 1).unwrap();
            plain.set_bulk(&BulkConfig { cost: Some(BulkCost::Bandwidth), ..BulkConfig::default() }, &memory);
            let mut timed = plain.clone();
            timed.set_traffic([&LevelPrefetchConfig::OFF; 3], false, &memory, vec![NodeId::FIRST; cores]);
            let mut rng = Rng::new(8, "streams");
            for _ in 0..1000 {
                let core = CoreId::from(rng.below(cores as u64) as usize);
                let first = LineAddr(rng.below(1 << 12) * 64 + rng.below(2) * rng.below(64));
                let (reads, lines) = (rng.below(2) == 0, if rng.below(2) == 0 { 64 } else { rng.below(130) });
                let run = |caches: &mut Hierarchy| {
                    if reads {
                        caches.access(core, first, false, Requester::Data);
                    }
                    caches.store_lines(CoreId::FIRST, first, lines, lines)
                };
                assert_eq!(run(&mut plain), run(&mut timed), "{lines} lines from {first:?} on");
            }
            let upgrades = plain.stats().cores[0].upgrades;
            assert!(plain.stats() == timed.stats() && (upgrades > 0) == (cores > 1), "{upgrades}");
        }
    }
}
