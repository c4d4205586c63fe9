//! Operations on many whole lines: bulk writes and reads of a core, writes of a device.

use super::prefetch::CacheLevel;
use super::shape::{Anything, Shape};
use super::ways::AnyWays;
use super::{Hierarchy, HitLevel, Requester};
use pagelab_base::addr::LineAddr;
use pagelab_base::cycles::Cycles;
use pagelab_base::ids::CoreId;

impl Hierarchy {
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

    /// Reads `lines` whole lines from `first` on, as `rep movsb` reads its source. Returns its cycles: the sum of the
    /// lines' latencies divided by `bulk_parallelism`.
    pub fn load_lines(&mut self, core: CoreId, first: LineAddr, lines: u64, requester: Requester) -> Cycles {
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
            self.shared_stats.dma_invalidations += u64::from(was_cached);
        }
    }

    /// [`Self::dma_write`] of one line.
    pub fn invalidate_line(&mut self, line: LineAddr) {
        self.dma_write(line, 1);
    }
}
