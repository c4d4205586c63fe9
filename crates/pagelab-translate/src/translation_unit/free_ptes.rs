//! Free translations of TLB prefetchers: the entries beside the one that a walk reads (sampling-based free prefetching,
//! SBFP).
//!
//! Models: a walk brings a line with eight entries of a page table, so the translations of up to seven other pages come
//! for free. Their *free distance* is the number of pages from the walked one, -7 to 7. Each distance has a counter. At
//! the end of a walk, a neighbour whose distance has a counter above `threshold` enters the prefetch buffer; any other
//! enters the sampler, which has pages without translations. A hit on a free translation in the buffer, or on a page in
//! the sampler after a miss of the buffer, adds one to the counter of its distance; the page leaves the sampler. If a
//! counter reaches its maximum, all are halved.
//! Source: Vavouliotis et al., "Exploiting Page Table Locality for Agile TLB Prefetching", ISCA 2021 (notes on it): 14
//! counters of 10 bits, a threshold of 100, a sampler of 64 pages in FIFO order.
//! Parameters: `machine.prefetch.tlb.NAME.free`, `off` or: `threshold` (100), `sampler` (64), `initial` (0).
//! Stats: `prefetch.tlb.NAME.free.*`.
//! Deviations: in a guest, an entry of the guest's table has a guest-physical frame, whose translation is not in the
//! line. The neighbour is free only if the nested TLB holds it; these look-ups take no time, and change neither the
//! counts of the nested TLB nor its order. Without a nested TLB, nothing is free in guests.
//! Choices: walks of a program's data bring free translations, its demand walks and those of the prefetcher itself, if
//! they end at a page of 4 KiB. A neighbour is one of the eight pages of an aligned group whose entry the walk would
//! find in the same line, whatever the page table. It counts only if its page was accessed before, as for prefetch
//! walks. One that a data TLB or a stage holds is passed over, and a page that is in the sampler is not sampled again.
//! It arrives with the end of the walk. An invalidation drops pages from the sampler, too.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::VA_MASK;
use pagelab_base::addr::{FRAME_SHIFT, VirtAddr};
use pagelab_base::error::{EngineError, between};
use pagelab_base::measure::Measure;
use pagelab_tables::mmu_cache::Asid;

/// Pages of an aligned group, whose entries fit into a line.
pub use pagelab_tables::page_table::GROUP;
/// Number of pages from a walked page to a neighbour: -7 to 7, never 0.
pub type FreeDistance = i8;
/// Maximum of a counter of 10 bits.
const COUNTER_MAX: u16 = (1 << 10) - 1;
/// Bits of a free distance in hardware.
const DISTANCE_BITS: u64 = 4;

/// Parameters of free translations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FreeConfig {
    /// A free translation is taken if the counter of its distance is above this, 0 to 1023; with 1023 none is.
    pub threshold: u16,
    /// Pages in the sampler of a core, 0 to 65536.
    pub sampler: u32,
    /// Value of the counters at the start, 0 to 1023.
    pub initial: u16,
}

impl Default for FreeConfig {
    fn default() -> Self {
        Self { threshold: 100, sampler: 64, initial: 0 }
    }
}

/// A page in the sampler.
#[derive(Clone, Copy, Debug)]
struct Sample {
    asid: Asid,
    /// Number of the page.
    page: u64,
    distance: FreeDistance,
}

/// The counters of distances, and the sampler of a core.
#[derive(Clone, Debug)]
pub(super) struct FreePtes {
    config: FreeConfig,
    /// By distance plus 7; that of 0 stays unused.
    counters: [u16; 2 * GROUP as usize - 1],
    /// Oldest first.
    sampler: VecDeque<Sample>,
    sampled: u64,
    sampler_hits: u64,
    halvings: u64,
}

fn index(distance: FreeDistance) -> usize {
    (distance + GROUP as FreeDistance - 1) as usize
}

fn page_number(va: VirtAddr) -> u64 {
    (va.0 & VA_MASK) >> FRAME_SHIFT
}

impl FreePtes {
    /// `key` is the configuration key of the parameters. Errors: impossible parameters.
    pub fn new(config: &FreeConfig, key: &str) -> Result<Self, EngineError> {
        between(&format!("{key}.threshold"), config.threshold.into(), 0, COUNTER_MAX.into())?;
        between(&format!("{key}.initial"), config.initial.into(), 0, COUNTER_MAX.into())?;
        between(&format!("{key}.sampler"), config.sampler, 0, 1 << 16)?;
        let counters = [config.initial; 2 * GROUP as usize - 1];
        let sampler = VecDeque::with_capacity(config.sampler as usize + 1);
        Ok(Self { config: *config, counters, sampler, sampled: 0, sampler_hits: 0, halvings: 0 })
    }

    /// The distances whose translations are taken.
    pub fn accepted(&self) -> AcceptedDistances {
        let bits =
            self.counters.iter().enumerate().map(|(at, &counter)| u16::from(counter > self.config.threshold) << at);
        AcceptedDistances(bits.sum())
    }

    /// Samples a page whose translation is not taken.
    pub fn sample(&mut self, asid: Asid, va: VirtAddr, distance: FreeDistance) {
        let page = page_number(va);
        if self.config.sampler == 0 || self.sampler.iter().any(|sample| (sample.asid, sample.page) == (asid, page)) {
            return;
        }
        self.sampler.push_back(Sample { asid, page, distance });
        if self.sampler.len() > self.config.sampler as usize {
            self.sampler.pop_front();
        }
        self.sampled += 1;
    }

    /// Looks up a page that the buffer does not hold in the sampler.
    pub fn look_up(&mut self, asid: Asid, va: VirtAddr) {
        let page = page_number(va);
        let at = self.sampler.iter().position(|sample| (sample.asid, sample.page) == (asid, page));
        if let Some(sample) = at.and_then(|at| self.sampler.remove(at)) {
            self.sampler_hits += 1;
            self.credit(sample.distance);
        }
    }

    /// Adds one to the counter of a distance.
    pub fn credit(&mut self, distance: FreeDistance) {
        let counter = &mut self.counters[index(distance)];
        *counter = (*counter + 1).min(COUNTER_MAX);
        if *counter == COUNTER_MAX {
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
            self.halvings += 1;
        }
    }

    /// Drops the pages that overlap `start..end` of an address space from the sampler.
    pub fn invalidate(&mut self, asid: Asid, start: VirtAddr, end: VirtAddr) {
        let (first, last) = (page_number(start), page_number(VirtAddr(end.0.wrapping_sub(1))));
        self.sampler.retain(|sample| sample.asid != asid || !(first..=last).contains(&sample.page));
    }

    /// Drops the pages of an address space from the sampler.
    pub fn flush(&mut self, asid: Asid) {
        self.sampler.retain(|sample| sample.asid != asid);
    }

    /// Bits of storage, with those that each of the buffer's `entries` takes for its distance. A sample has the number
    /// of the page, the tag of its space and the distance.
    pub fn storage_bits(&self, entries: u64) -> u64 {
        let counters = 2 * (GROUP - 1) * 10;
        entries * DISTANCE_BITS + counters + u64::from(self.config.sampler) * (45 + 12 + DISTANCE_BITS)
    }

    /// Statistics of the sampler.
    pub fn measures(&self) -> Vec<Measure> {
        vec![
            Measure::count("free.sampled", self.sampled, "Neighbours of walked pages that entered the sampler"),
            Measure::count("free.sampler_hits", self.sampler_hits, "Pages in the sampler that an access needed"),
            Measure::count("free.halvings", self.halvings, "How often all counters of distances were halved"),
        ]
    }
}

/// The free distances whose translations are taken at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedDistances(u16);

impl AcceptedDistances {
    /// Whether translations at a distance are taken.
    pub fn contains(self, distance: FreeDistance) -> bool {
        self.0 >> index(distance) & 1 != 0
    }

    /// Numbers of the pages that a walk for a page of 4 KiB would bring, if all neighbours are mapped.
    pub fn pages_beside(self, page: u64) -> impl Iterator<Item = u64> {
        let first = page & !(GROUP - 1);
        (first..first + GROUP)
            .filter(move |&other| other != page && self.contains(other.wrapping_sub(page) as FreeDistance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASID: Asid = Asid(1);

    fn free(config: FreeConfig) -> FreePtes {
        FreePtes::new(&config, "free").unwrap()
    }

    fn va(page: u64) -> VirtAddr {
        VirtAddr(page << FRAME_SHIFT | 8)
    }

    #[test]
    fn a_distance_is_accepted_strictly_above_the_threshold() {
        let mut unit = free(FreeConfig { threshold: 3, ..FreeConfig::default() });
        for times in 1..6 {
            unit.sample(ASID, va(8), -3);
            unit.look_up(ASID, va(8));
            unit.look_up(ASID, va(8));
            assert_eq!(unit.accepted().contains(-3), times > 3, "{times} hits; the page leaves the sampler");
            assert!(!unit.accepted().contains(3));
        }
        assert_eq!((unit.sampled, unit.sampler_hits), (5, 5));
        let never = free(FreeConfig { threshold: 1023, initial: 1023, ..FreeConfig::default() });
        assert_eq!(never.accepted(), AcceptedDistances::default());
        let all = free(FreeConfig { initial: 101, ..FreeConfig::default() });
        assert_eq!(all.accepted().pages_beside(19).collect::<Vec<_>>(), [16, 17, 18, 20, 21, 22, 23]);
        assert_eq!(
            AcceptedDistances(1 << 8 | 1 << 5).pages_beside(16).collect::<Vec<_>>(),
            [17],
            "14 is in another line"
        );
    }

    #[test]
    fn the_sampler_forgets_the_oldest_page_and_what_is_invalidated() {
        let mut unit = free(FreeConfig { sampler: 3, ..FreeConfig::default() });
        let hits = |unit: &mut FreePtes| {
            let mut hits = |asid, page| {
                let before = unit.sampler_hits;
                unit.look_up(Asid(asid), va(page));
                unit.sampler_hits > before
            };
            [hits(1, 1), hits(1, 2), hits(1, 3), hits(2, 3), hits(1, 4)]
        };
        let fill = |unit: &mut FreePtes| {
            for (asid, page) in [(1, 1), (1, 2), (1, 2), (1, 3), (2, 3)] {
                unit.sample(Asid(asid), va(page), 1);
            }
        };
        fill(&mut unit);
        assert_eq!(hits(&mut unit), [false, true, true, true, false]);
        fill(&mut unit);
        unit.invalidate(ASID, VirtAddr(0x2fff), VirtAddr(0x3001));
        assert_eq!(hits(&mut unit), [false, false, false, true, false]);
        fill(&mut unit);
        unit.invalidate(ASID, VirtAddr(0x1000), VirtAddr(0x2000));
        unit.flush(Asid(2));
        assert_eq!(hits(&mut unit), [false, true, true, false, false]);
        let mut none = free(FreeConfig { sampler: 0, ..FreeConfig::default() });
        fill(&mut none);
        assert_eq!(hits(&mut none), [false; 5]);
    }

    #[test]
    fn halving_keeps_the_order_and_bounds_the_sum() {
        let mut unit = free(FreeConfig { initial: 1000, ..FreeConfig::default() });
        let distances = || (-7..=7).filter(|&distance| distance != 0);
        let mut random = pagelab_base::rng::Rng::new(1, "distances");
        for _ in 0..50_000 {
            let distance = distances().nth(random.below(14) as usize % (1 + random.below(14) as usize)).unwrap();
            let order = |unit: &FreePtes| -> Vec<u16> { distances().map(|d| unit.counters[index(d)]).collect() };
            let (before, halvings) = (order(&unit), unit.halvings);
            unit.credit(distance);
            let after = order(&unit);
            assert!(after.iter().map(|&counter| u32::from(counter)).sum::<u32>() <= 14 * 1023);
            if unit.halvings > halvings {
                assert!(after.iter().all(|&counter| counter <= 511));
                let mut pairs = (0..14).flat_map(|a| (0..14).map(move |b| (a, b)));
                let is_kept = |(a, b): (usize, usize)| before[a] < before[b] || after[a] >= after[b];
                assert!(pairs.all(is_kept), "{before:?} {after:?}");
                assert_eq!(unit.counters[index(distance)], 511, "it had the maximum");
            } else {
                assert_eq!(after.iter().sum::<u16>(), before.iter().sum::<u16>() + 1);
            }
        }
        assert!(unit.halvings > 10);
    }
}
