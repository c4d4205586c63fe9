//! `zipf`: a few elements get most of the accesses.

use super::{
    Workload,
    array::{self, ACCESSES, GRANULARITY, INITIALISE, Mix, Part, REGIONS, SIZE_1G, WRITE, width},
    permutation::Permutation,
    program::Stream,
    spec::{ALIGN, GAP, Kind, Parameter, Preset, SEED, THREADS, Values, YES_NO},
};
use crate::Access;
use crate::rng::Rng;

pub(super) const THETA: Parameter = Parameter {
    name: "theta",
    kind: Kind::Real { max: 10.0 },
    default: Preset::Value("0.99"),
    meaning: "the r-th most frequent element is accessed in proportion to 1 / r^theta; 0 is uniform",
};
const SCRAMBLED: Parameter = Parameter {
    name: "scrambled",
    kind: YES_NO,
    default: Preset::Value("yes"),
    meaning: "whether frequent elements are spread randomly over the array; no: in order, the most frequent first",
};

pub(super) static WORKLOAD: Workload = Workload {
    name: "zipf",
    summary: "accesses elements of an array at random, with frequencies that follow Zipf's law",
    origin: "the skewed request distribution of key-value benchmarks (YCSB: theta 0.99, scrambled)",
    parameters: &[
        SIZE_1G,
        ACCESSES,
        THETA,
        SCRAMBLED,
        GRANULARITY,
        WRITE,
        THREADS,
        REGIONS,
        INITIALISE,
        GAP,
        ALIGN,
        SEED,
    ],
    build: |values| {
        let granularity = values.number(GRANULARITY.name);
        array::build(values, granularity, |part| Zipf::new(values, part, granularity))
    },
};

struct Zipf {
    base: u64,
    granularity: u64,
    ranks: Ranks,
    spread: Option<Permutation>,
    mix: Mix,
    rng: Rng,
}

impl Zipf {
    fn new(values: &Values, part: &Part, granularity: u64) -> Self {
        let elements = part.bytes / granularity;
        // One order for all threads: threads that share the array agree on what is frequent.
        let spread = || Permutation::new(elements, Rng::for_thread(values.seed(), "zipf order", 0));
        Self {
            base: part.base,
            granularity,
            ranks: Ranks::new(elements, values.real(THETA.name)),
            spread: values.is_yes(SCRAMBLED.name).then(spread),
            mix: Mix::new(values, width(granularity)),
            rng: Rng::for_thread(values.seed(), "zipf", part.thread),
        }
    }
}

impl Stream for Zipf {
    fn fill(&mut self, out: &mut [Access]) -> usize {
        let mut rng = self.rng.clone();
        for slot in out.iter_mut() {
            let rank = self.ranks.draw(&mut rng);
            let element = self.spread.as_ref().map_or(rank, |spread| spread.apply(rank));
            *slot = self.mix.access(rng.next_u64(), self.base + element * self.granularity);
        }
        self.rng = rng;
        out.len()
    }
}

/// Draws ranks 0 to n − 1 so that rank r has probability proportional to (r + 1)^−theta.
///
/// Rejection from a histogram: ranks are cut into segments, the first ones of a single rank, later ones 1/32 as
/// wide as they lie far. A segment is drawn in proportion to its width times its first, highest weight (by the alias
/// method: Walker, ACM TOMS 3(3), 1977), then one of its ranks uniformly, which is kept with its weight over that of
/// the segment's first; else all is drawn again. The power is computed only where the least weight of the segment
/// does not decide. A few thousand segments serve any n. Powers are those of a portable library, so that a seed gives
/// the same accesses on every machine.
pub(super) struct Ranks {
    theta: f64,
    segments: Vec<Segment>,
}

/// log2 of the segments that each doubling of the rank is cut into.
const SEGMENTS_SHIFT: u32 = 5;

/// 2^64, for fractions held as integers.
const WHOLE: f64 = (1u128 << 64) as f64;

/// Ranks count from 1 here.
#[derive(Clone, Copy)]
struct Segment {
    first: u64,
    width: u64,
    /// Weight of the last rank over that of the first, in 2^64ths: a rank drawn with less is kept whichever it is.
    sure: u64,
    /// Of 2^64 draws of this place in the table, those below fall to this segment, the rest to `other`.
    own: u64,
    other: usize,
}

impl Ranks {
    pub fn new(n: u64, theta: f64) -> Self {
        let weight = |rank: u64| libm::pow(rank as f64, -theta);
        let mut segments = Vec::new();
        let mut first = 1;
        while first <= n {
            let width = (1 << first.ilog2() >> SEGMENTS_SHIFT).clamp(1, n - first + 1);
            // The conversion saturates, so the single rank of a segment is always kept.
            let sure = (libm::pow((first + width - 1) as f64 / first as f64, -theta) * WHOLE) as u64;
            segments.push(Segment { first, width, sure, own: u64::MAX, other: segments.len() });
            first += width;
        }
        let hat: Vec<f64> = segments.iter().map(|s| s.width as f64 * weight(s.first)).collect();
        share_places(&mut segments, &hat);
        Self { theta, segments }
    }

    /// A rank, from 0.
    #[inline(always)]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let (place, remainder) = divide(rng.next_u64(), self.segments.len() as u64);
            let drawn = &self.segments[place as usize];
            // Chosen by index: as a branch it would be mispredicted half of the time.
            let segment = &self.segments[[drawn.other, place as usize][usize::from(remainder <= drawn.own)]];
            let (offset, remainder) = divide(rng.next_u64(), segment.width);
            if remainder <= segment.sure || self.keep(segment, offset, remainder) {
                return segment.first + offset - 1;
            }
        }
    }

    /// Whether a rank that is not sure to be kept is kept.
    #[cold]
    fn keep(&self, segment: &Segment, offset: u64, remainder: u64) -> bool {
        let relative = (segment.first + offset) as f64 / segment.first as f64;
        (remainder as f64) < libm::pow(relative, -self.theta) * WHOLE
    }
}

/// Uniform in `0..parts`, and where in the part the random number lies, in 2^64ths: uniform, but for the bits that
/// choosing the part took.
#[inline(always)]
fn divide(random: u64, parts: u64) -> (u64, u64) {
    let product = u128::from(random) * u128::from(parts);
    ((product >> 64) as u64, product as u64)
}

/// Gives each segment the share of all places in the table that is proportional to its weight: a place belongs to
/// its segment up to `own` and to another one beyond.
fn share_places(segments: &mut [Segment], weights: &[f64]) {
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    let mut left: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
    let (mut poor, mut rich): (Vec<usize>, Vec<usize>) = (0..left.len()).partition(|&s| left[s] < 1.0);
    while let (Some(&giver), Some(taker)) = (rich.last(), poor.pop()) {
        segments[taker].own = (left[taker] * WHOLE) as u64;
        segments[taker].other = giver;
        left[giver] -= 1.0 - left[taker];
        if left[giver] < 1.0 {
            rich.pop();
            poor.push(giver);
        }
    }
    // What is left over has a full place but for rounding, and keeps it whole as it was made.
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::{arrays, replay};
    use super::*;

    /// Chi-square of the drawn ranks against the law, in standard deviations from its mean. Ranks are pooled so that at
    /// least 50 are expected per pool.
    fn deviation(n: u64, theta: f64, draws: u32) -> f64 {
        let ranks = Ranks::new(n, theta);
        let mut rng = Rng::for_thread(17, "test", 0);
        let mut counts = vec![0u32; n as usize];
        (0..draws).for_each(|_| counts[ranks.draw(&mut rng) as usize] += 1);
        let weights: Vec<f64> = (1..=n).map(|r| (r as f64).powf(-theta)).collect();
        let sum: f64 = weights.iter().sum();
        let (mut chi, mut pools, mut seen, mut expected) = (0.0, 0.0, 0.0, 0.0);
        for (rank, weight) in weights.iter().enumerate() {
            seen += f64::from(counts[rank]);
            expected += weight / sum * f64::from(draws);
            if expected >= 50.0 {
                chi += (seen - expected).powi(2) / expected;
                pools += 1.0;
                (seen, expected) = (0.0, 0.0);
            }
        }
        (chi - pools) / f64::sqrt(2.0 * pools)
    }

    #[test]
    fn frequencies_follow_the_law() {
        for theta in [0.0, 0.5, 0.99, 0.999_999_999_9, 1.0, 1.2, 2.0, 3.5] {
            for n in [2, 10, 1000, 30_000] {
                let deviation = deviation(n, theta, 300_000);
                assert!(deviation.abs() < 4.0, "theta {theta}, n {n}: {deviation} sigma");
            }
        }
    }

    /// Computes the probabilities from the table and the rule for keeping, without drawing.
    #[test]
    fn the_table_implies_the_law() {
        for (n, theta) in [(1, 1.0), (31, 0.3), (5000, 0.0), (5000, 0.99), (5000, 1.0), (5000, 4.0)] {
            let ranks = Ranks::new(n, theta);
            let mut share = vec![0.0; ranks.segments.len()];
            for (place, segment) in ranks.segments.iter().enumerate() {
                let own = segment.own as f64 / WHOLE;
                share[place] += own;
                share[segment.other] += 1.0 - own;
            }
            let mut probability = Vec::new();
            for (segment, share) in ranks.segments.iter().zip(share) {
                for offset in 0..segment.width {
                    let (mut kept, mut step) = (0, 1 << 63);
                    while step > 0 {
                        let drawn = kept + step;
                        kept += if drawn <= segment.sure || ranks.keep(segment, offset, drawn) { step } else { 0 };
                        step >>= 1;
                    }
                    probability.push(share / segment.width as f64 * (kept as f64 / WHOLE));
                }
            }
            assert_eq!(probability.len() as u64, n);
            for (rank, p) in (1..).zip(&probability) {
                let expected = f64::powf(f64::from(rank), -theta) * probability[0];
                assert!((p / expected - 1.0).abs() < 1e-7, "n {n}, theta {theta}, rank {rank}: {p} {expected}");
            }
        }
    }

    #[test]
    fn extreme_parameters_stay_in_range() {
        for (n, theta) in [(1, 0.0), (1, 1.0), (1, 10.0), (1 << 46, 0.0), (1 << 46, 0.99), (1 << 46, 10.0), (3, 10.0)] {
            let ranks = Ranks::new(n, theta);
            let mut rng = Rng::for_thread(1, "test", 0);
            assert!((0..10_000).all(|_| ranks.draw(&mut rng) < n), "n {n}, theta {theta}");
        }
    }

    #[test]
    fn scrambling_keeps_frequencies_and_moves_elements() {
        let histogram = |spec: &str| {
            let (accesses, events) = replay(spec, 8);
            let base = arrays(&events)[0].0;
            let mut counts = vec![0u32; 1 << 10];
            accesses.iter().for_each(|(_, a)| counts[((a.vaddr - base) / 64) as usize] += 1);
            counts
        };
        let plain = histogram("zipf:size=64K,granularity=64,accesses=50K,scrambled=no");
        let mut scrambled = histogram("zipf:size=64K,granularity=64,accesses=50K");
        assert!(plain[0] > plain[1] && plain[1] > plain[3] && plain[3] > 4 * plain[1000]);
        assert_ne!(plain, scrambled);
        let mut sorted = plain.clone();
        sorted.sort_unstable();
        scrambled.sort_unstable();
        assert_eq!(sorted, scrambled, "the same draws, in other places");
    }
}
