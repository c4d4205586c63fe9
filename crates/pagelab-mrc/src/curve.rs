//! Misses over sizes, and how far those of a sample may be off.

use serde::Serialize;

use crate::histogram::{Histogram, Tails};
use crate::tracker::{PARTS, Tracker};

/// Standard deviations that the bounds of a sample lie apart from it. The bounds of a curve's sizes are to hold
/// together, and a spread of 64 parts is known to a tenth: 2 would do for one size whose spread is known.
const DEVIATIONS: f64 = 3.5;
/// Sizes of a curve per octave.
const SIZES_PER_OCTAVE: u64 = 16;

/// What was found of one granule of one stream.
pub(crate) struct Counts<'a> {
    pub references: u64,
    /// References to another page than the one before.
    pub changes: u64,
    pub pages: u64,
    pub depths: &'a Histogram<12>,
    pub tails: Tails<12>,
    /// First references.
    pub first: f64,
    pub estimate: Option<Estimate<'a>>,
}

/// What says how far a sample may be off.
pub(crate) struct Estimate<'a> {
    pub rate: f64,
    pub tracker: &'a Tracker,
}

/// What a curve is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// Translations of data.
    DataTlb,
    /// Translations of instructions.
    CodeTlb,
    /// Lines of data.
    DataCache,
}

/// Misses of fully associative caches with LRU replacement.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What it is of.
    pub stream: Stream,
    /// Size of a page or line.
    pub granule_bytes: u64,
    /// Look-ups: an access makes one for each page or line that it touches.
    pub references: u64,
    /// Misses of a single entry. Counted, even where a sample is looked at.
    pub changes: u64,
    /// Misses of a cache without end: first references to a page, and those after it was unmapped.
    pub first_references: u64,
    /// Pages that are mapped and have been used at the end; of a sample those in it.
    pub pages: u64,
    /// Share of the pages that was looked at, at the end.
    pub sample_rate: f64,
    /// Entries: each number up to 16, then 16 per octave, up to a size at which first references alone miss; and those
    /// that were asked for.
    pub sizes: Vec<u64>,
    /// Misses at each of the sizes.
    pub misses: Vec<u64>,
    /// Between these they are: the same numbers, unless a sample was looked at.
    pub least_misses: Vec<u64>,
    /// The upper bounds at each of the sizes.
    pub most_misses: Vec<u64>,
    /// Misses of caches with this many ways, by Smith's estimate; empty unless it was asked for.
    pub misses_with_ways: Vec<u64>,
}

impl Counts<'_> {
    /// The curve at its own sizes and at `more`.
    pub fn curve(&self, stream: Stream, granule_bytes: u64, more: &[u64], ways: Option<u64>) -> Curve {
        let end = self.depths.end().max(1);
        let mut sizes = ways.map_or_else(|| sizes(end), |ways| sizes_with_ways(end, ways));
        sizes.extend(more.iter().filter(|&size| size.is_multiple_of(ways.unwrap_or(1))));
        sizes.sort_unstable();
        sizes.dedup();
        let (mut misses, mut least, mut most) = (Vec::new(), Vec::new(), Vec::new());
        for &size in &sizes {
            let estimate = self.misses(size);
            let (from, to) = self.bounds(size);
            misses.push(estimate.round() as u64);
            least.push(from.floor() as u64);
            most.push(to.ceil() as u64);
        }
        let with_ways = |ways| self.depths.misses_with_ways(self.first, &sizes, ways);
        Curve {
            stream,
            granule_bytes,
            references: self.references,
            changes: self.changes,
            first_references: self.first.round() as u64,
            pages: self.pages,
            sample_rate: self.estimate.as_ref().map_or(1.0, |estimate| estimate.rate),
            misses_with_ways: ways.map(with_ways).unwrap_or_default(),
            sizes,
            misses,
            least_misses: least,
            most_misses: most,
        }
    }

    /// Misses of a cache with so many entries. A use is a hit if fewer pages lie above.
    fn misses(&self, size: u64) -> f64 {
        // The bin of depth 0 is that of the repeated page, which a sample finds between two of its pages, too.
        (self.first + self.tails.at_least(size)).min(self.changes as f64)
    }

    /// Between which the misses are.
    ///
    /// A sample is off in two ways. Of the pages above a page, it holds a share that is not quite its rate: a depth d
    /// is found with the standard deviation √(d (1 − R) / R). So misses of a size are those of a size that is at most
    /// `DEVIATIONS` of these larger or smaller. And the pages that miss are a sample: what its parts find apart says
    /// how far their sum may be off. One more use than was seen counts beside them, as uses that were never seen have
    /// no spread.
    fn bounds(&self, size: u64) -> (f64, f64) {
        let Some(Estimate { rate, tracker }) = &self.estimate else { return (self.misses(size), self.misses(size)) };
        let left_out = 1.0 - rate;
        let deviation = |size: u64| {
            let parts: Vec<f64> = tracker.misses_by_part(size).collect();
            let mean = parts.iter().sum::<f64>() / PARTS as f64;
            let spread: f64 = parts.iter().map(|part| (part - mean).powi(2)).sum();
            let variance = spread * PARTS as f64 / (PARTS as f64 - 1.0) + rate.powi(-2);
            DEVIATIONS * (variance * left_out).sqrt()
        };
        let reach = DEVIATIONS * (size as f64 * left_out / rate).sqrt();
        let above = size + reach.ceil() as u64;
        let least = self.misses(above) - deviation(above);
        let below = (size as f64 - reach).floor();
        let most = if below < 1.0 { f64::MAX } else { self.misses(below as u64) + deviation(below as u64) };
        (least.max(0.0), most.min(self.changes as f64))
    }
}

/// Each number up to 16, then 16 per octave, up to the first that is not below `end`.
fn sizes(end: u64) -> Vec<u64> {
    let mut sizes = vec![1];
    while let Some(&last) = sizes.last()
        && last < end
    {
        sizes.push(last + (last / SIZES_PER_OCTAVE).checked_ilog2().map_or(1, |octave| 1 << octave));
    }
    sizes
}

/// A power of two of sets each, up to 4 times `end`: with few ways, sets overflow before a cache is full.
fn sizes_with_ways(end: u64, ways: u64) -> Vec<u64> {
    let mut sizes = vec![ways];
    while let Some(&last) = sizes.last()
        && last < 4 * end
    {
        sizes.push(2 * last);
    }
    sizes
}
