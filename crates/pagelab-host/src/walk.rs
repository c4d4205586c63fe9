//! The micro-benchmark of page walks: the cost of the replica of the fault handler's walk, plain and with a translation
//! cache.
//!
//! Models: nothing; it times the [`Replica`], one walk at a time, between fenced readings of the time-stamp counter.
//! The time of two readings with nothing in between is measured as well and subtracted.
//! Source: the patterns are those of Wu and Patel, section 5.1: sequential pages, random pages, and random pages with
//! four page-sized steps after each. Between two walks, a buffer of other data is accessed line by line, as the rest of
//! a fault and the program would.
//! Parameters: none.
//! Deviations: only the walk itself is executed and timed, not the rest of a fault. Loads go through pages of 4 KiB,
//! where the kernel's direct map has larger ones.

use std::{hint::black_box, io};

use pagelab_trace::rng::Rng;
use serde::Serialize;

use crate::{
    Cost,
    replica::{BYTES, Form, From, Replica, START},
    stamp::Stamps,
};

/// Number of runs for median and quartiles.
const RUNS: usize = 11;
/// Bytes of other data between two walks.
pub const BETWEEN: [usize; 5] = [0, 4 << 10, 32 << 10, 256 << 10, 1 << 20];
/// Maximum number of lines of other data per run; a run makes fewer walks if each has many.
const LINES_PER_RUN: usize = 4 << 20;
const WALKS_PER_RUN: std::ops::RangeInclusive<usize> = 256..=8192;
/// Share of a run's walks that is kept; the slowest ones, which contain interrupts, are discarded.
const KEPT_PERMILLE: usize = 990;
const LINE_WORDS: usize = 8;
const PAGE_BYTES: u64 = 4096;
const PMD_BYTES: u64 = 2 << 20;
/// Sequential accesses after each random one.
const STEPS: u64 = 4;

/// Cost of a walk for one pattern and one amount of other data before each walk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WalkCost {
    /// The order of the walks' addresses.
    pub pattern: &'static str,
    /// Bytes of other data accessed before each walk.
    pub between_bytes: usize,
    /// How `struct vm_fault` was zeroed: by `stores`, or by a `string` instruction.
    pub zeroing: &'static str,
    /// Without a translation cache.
    pub plain: Cost,
    /// With a translation cache of 16 entries per level that is tagged by full prefixes.
    pub full_prefix: Cost,
    /// With the published translation cache.
    pub published: Cost,
    /// Share of the plain walk that the full-prefix cache saves; statistics over the runs.
    pub full_prefix_saves: Share,
    /// Share of the plain walk that the published cache saves; statistics over the runs.
    pub published_saves: Share,
}

/// A share, measured in several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The median of the runs, in percent.
    pub median_percent: f64,
    /// Their lower quartile.
    pub lower_quartile_percent: f64,
    /// Their upper quartile.
    pub upper_quartile_percent: f64,
}

impl Share {
    /// The saving of each run: the relative difference between the cycles before and after.
    fn saved(runs: impl Iterator<Item = (f64, f64)>) -> Self {
        let saving = Cost::from_samples(runs.map(|(before, after)| 100.0 * (1.0 - after / before)).collect());
        let (median_percent, lower_quartile_percent) = (saving.median_cycles, saving.lower_quartile_cycles);
        Self { median_percent, lower_quartile_percent, upper_quartile_percent: saving.upper_quartile_cycles }
    }
}

#[derive(Clone, Copy)]
enum Pattern {
    Sequential,
    SemiRandom,
    Random,
}

impl Pattern {
    const ALL: [Self; 3] = [Self::Sequential, Self::SemiRandom, Self::Random];

    fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::SemiRandom => "semi-random",
            Self::Random => "random",
        }
    }

    /// Addresses of this many walks, different in each run.
    fn addresses(self, walks: usize, run: u64) -> Vec<u64> {
        let pages = BYTES / PAGE_BYTES;
        let mut rng = Rng::new(run, "walks");
        let mut page = rng.below(pages);
        let next = |n: usize| {
            let jumps = match self {
                Self::Sequential => false,
                Self::SemiRandom => (n as u64).is_multiple_of(STEPS + 1),
                Self::Random => true,
            };
            page = if jumps { rng.below(pages) } else { (page + 1) % pages };
            START + page * PAGE_BYTES
        };
        (0..walks).map(next).collect()
    }
}

/// Times walks one by one.
struct Bench<const BY_STRING: bool> {
    stamps: Stamps,
    replica: Replica<BY_STRING>,
    other: Vec<u64>,
    samples: Vec<u64>,
}

impl<const BY_STRING: bool> Bench<BY_STRING> {
    fn new(stamps: Stamps) -> Self {
        let largest = BETWEEN.into_iter().max().unwrap_or(0);
        Self { stamps, replica: Replica::new(), other: vec![1; largest / 8], samples: Vec::new() }
    }

    /// Mean cycles of `walk` over addresses, with other data accessed before each, including the timer's own cycles.
    #[inline(always)]
    fn mean(
        &mut self,
        addresses: &[u64],
        between: usize,
        mut walk: impl FnMut(&mut Replica<BY_STRING>, u64) -> usize,
    ) -> f64 {
        self.samples.clear();
        for &address in addresses {
            touch(&self.other[..between / 8]);
            let begin = self.stamps.begin();
            let entry = walk(&mut self.replica, black_box(address));
            let end = self.stamps.end();
            black_box(entry);
            self.samples.push(end - begin);
        }
        self.samples.sort_unstable();
        let kept = &self.samples[..(self.samples.len() * KEPT_PERMILLE / 1000).max(1)];
        kept.iter().sum::<u64>() as f64 * self.stamps.cycles_per_tick / kept.len() as f64
    }

    /// Cycles of two clock readings with nothing in between.
    fn timer(&mut self, addresses: &[u64], between: usize) -> f64 {
        self.mean(addresses, between, |_, address| address as usize)
    }

    /// Net cycles of a walk: plain, with the full-prefix cache, with the published cache.
    fn compare(&mut self, pattern: Pattern, between: usize, run: u64) -> [f64; 3] {
        let walks = (LINES_PER_RUN * 64).checked_div(between).unwrap_or(usize::MAX);
        let walks = walks.clamp(*WALKS_PER_RUN.start(), *WALKS_PER_RUN.end());
        let addresses = pattern.addresses(walks, run);
        let timer = self.timer(&addresses, between);
        let plain = self.mean(&addresses, between, |replica, address| replica.walk(address));
        self.replica.forget();
        let forms =
            Form::ALL.map(|form| self.mean(&addresses, between, |replica, address| replica.walk_cached(address, form)));
        [plain, forms[0], forms[1]].map(|cycles| cycles - timer)
    }

    /// The timer's cycles, and net cycles of the parts of a walk to pages of one pmd, in the order of [`PARTS`].
    fn parts(&mut self) -> (f64, [f64; OF_EACH]) {
        const FORM: Form = Form::FullPrefix;
        let pages = PMD_BYTES / PAGE_BYTES;
        let walks = *WALKS_PER_RUN.end() as u64;
        let addresses: Vec<u64> = (0..walks).map(|n| START + n % pages * PAGE_BYTES).collect();
        let timer = self.timer(&addresses, 0);
        let mut net =
            |walk: &mut dyn FnMut(&mut Replica<BY_STRING>, u64) -> usize| self.mean(&addresses, 0, walk) - timer;
        let walk = net(&mut |replica, address| replica.walk(address));
        let entry = Replica::<BY_STRING>::entry;
        let [from_pgd, from_pmd] = [From::Pgd, From::Pmd]
            .map(|from| net(&mut |replica, address| replica.walk_known(address, from, entry(replica, START, from))));
        // The first walk fills the cache.
        let [hit, hit_published] =
            Form::ALL.map(|form| net(&mut |replica, address| replica.walk_cached(address, form)));
        let miss = net(&mut |replica, address| {
            // Two entries further: a miss every time, since nothing is filled.
            replica.walk_looked_up(address + 2 * PMD_BYTES, FORM)
        });
        let filled = {
            let mut turn = 0;
            net(&mut |replica, _| {
                turn += 1;
                // Cycles through pmds that use the same cache entry.
                replica.walk_cached(START + turn % 8 * 16 * PMD_BYTES, FORM)
            })
        };
        let level = (from_pgd - from_pmd) / 2.0;
        (timer, [walk, walk - from_pgd, level, hit - from_pmd, hit_published - from_pmd, filled - miss])
    }
}

const OF_EACH: usize = 6;

/// Names of the costs that [`parts`] measures: two clock readings; the walk, finding the root, each level with its
/// reference, a look-up that hits the pmd (with full prefixes, and as published), and filling one level. Then the same
/// with `struct vm_fault` zeroed by one store per word.
pub const PARTS: [&str; 1 + 2 * OF_EACH] = [
    "walk-timer",
    "walk",
    "walk-root",
    "walk-level",
    "walk-look-up",
    "walk-look-up-published",
    "walk-fill",
    "walk-by-stores",
    "walk-by-stores-root",
    "walk-by-stores-level",
    "walk-by-stores-look-up",
    "walk-by-stores-look-up-published",
    "walk-by-stores-fill",
];

/// Reads every line of a piece of memory.
#[inline(never)]
fn touch(words: &[u64]) {
    for line in words.chunks(LINE_WORDS) {
        black_box(line[0]);
    }
}

/// Costs of the parts of a walk, in the order of [`PARTS`], with all lines in the first-level cache.
///
/// # Errors
/// If the processor has no readable counter.
pub fn parts() -> io::Result<Vec<Cost>> {
    let stamps = Stamps::new()?;
    let (mut by_stores, mut by_string) = (Bench::<false>::new(stamps), Bench::<true>::new(stamps));
    let mut both = || {
        let ((timer, stores), (_, string)) = (by_stores.parts(), by_string.parts());
        [&[timer][..], &string, &stores].concat()
    };
    both();
    let runs: Vec<_> = (0..RUNS).map(|_| both()).collect();
    Ok((0..PARTS.len()).map(|part| Cost::from_samples(runs.iter().map(|run| run[part]).collect())).collect())
}

/// Costs of walks with all patterns and all amounts of other data.
///
/// # Errors
/// If the processor has no readable counter.
pub fn walks(going: &(dyn Fn() -> bool + Sync)) -> io::Result<Vec<WalkCost>> {
    let stamps = Stamps::new()?;
    let mut costs = patterns(&mut Bench::<true>::new(stamps), "string", going)?;
    costs.extend(patterns(&mut Bench::<false>::new(stamps), "stores", going)?);
    Ok(costs)
}

fn patterns<const BY_STRING: bool>(
    bench: &mut Bench<BY_STRING>,
    zeroing: &'static str,
    going: &(dyn Fn() -> bool + Sync),
) -> io::Result<Vec<WalkCost>> {
    let mut costs = Vec::new();
    for pattern in Pattern::ALL {
        for between_bytes in BETWEEN {
            if !going() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            bench.compare(pattern, between_bytes, 0);
            let runs: Vec<_> = (1..=RUNS as u64).map(|run| bench.compare(pattern, between_bytes, run)).collect();
            let cost = |value: &dyn Fn(&[f64; 3]) -> f64| Cost::from_samples(runs.iter().map(value).collect());
            costs.push(WalkCost {
                pattern: pattern.name(),
                between_bytes,
                zeroing,
                plain: cost(&|run| run[0]),
                full_prefix: cost(&|run| run[1]),
                published: cost(&|run| run[2]),
                full_prefix_saves: Share::saved(runs.iter().map(|run| (run[0], run[1]))),
                published_saves: Share::saved(runs.iter().map(|run| (run[0], run[2]))),
            });
        }
    }
    Ok(costs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica;

    #[test]
    fn a_share_is_what_each_run_saves() {
        let saved = Share::saved([(20.0, 10.0), (10.0, 9.0), (10.0, 12.0), (8.0, 2.0), (10.0, 10.0)].into_iter());
        let expected = Share { median_percent: 10.0, lower_quartile_percent: 0.0, upper_quartile_percent: 50.0 };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(saved.median_percent, expected.median_percent), "{saved:?}");
        assert!(near(saved.lower_quartile_percent, expected.lower_quartile_percent), "{saved:?}");
        assert!(near(saved.upper_quartile_percent, expected.upper_quartile_percent), "{saved:?}");
    }

    /// A reading of the clock takes longer than two cycles, and four loads that wait for each other take longer than
    /// four. A look-up that hits spares some of them. Another program may disturb one measurement, but not all.
    #[test]
    fn parts_of_a_walk_take_time() {
        let mut bench = Bench::<true>::new(Stamps::new().unwrap());
        let measured: Vec<_> = (0..20).map(|_| bench.parts()).collect();
        let is_plausible = |(timer, [walk, ..]): &(f64, [f64; OF_EACH])| *timer > 2.0 && *walk > 4.0;
        assert!(measured.iter().any(is_plausible), "{measured:?}");
    }

    #[test]
    fn patterns_differ_by_their_jumps() {
        let pages = replica::BYTES / PAGE_BYTES;
        for (pattern, steady) in [(Pattern::Sequential, 1999), (Pattern::SemiRandom, 1600), (Pattern::Random, 0)] {
            let addresses = pattern.addresses(2000, 1);
            let next = |pair: &&[u64]| {
                (pair[1] - replica::START) / PAGE_BYTES == ((pair[0] - replica::START) / PAGE_BYTES + 1) % pages
            };
            let steps = addresses.windows(2).filter(next).count();
            // By chance, a jump may lead to the next page.
            assert!((steady..steady + 5).contains(&steps), "{}: {steps}", pattern.name());
            assert_ne!(addresses, pattern.addresses(2000, 2), "each run has its own");
        }
    }
}
