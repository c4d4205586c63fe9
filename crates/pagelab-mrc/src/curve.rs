//! Misses by size, and error bounds of samples.

use serde::Serialize;

use crate::histogram::{Histogram, Tails};
use crate::tracker::{PARTS, Tracker};

/// Distance of a sample's bounds in standard deviations. The bounds of all sizes of a curve must hold together, and a
/// spread of 64 parts is known to 10 %; for a single size with known spread 2 would suffice.
const DEVIATIONS: f64 = 3.5;
/// Sizes of a curve per octave.
const SIZES_PER_OCTAVE: u64 = 16;

/// Counts for one granule of one stream.
pub(crate) struct Counts<'a> {
    pub references: u64,
    /// References to another page than the previous reference.
    pub changes: u64,
    pub pages: u64,
    pub depths: &'a Histogram<12>,
    pub tails: Tails<12>,
    /// First references to pages.
    pub first: f64,
    pub estimate: Option<Estimate<'a>>,
}

/// Data for the error bounds of a sample.
pub(crate) struct Estimate<'a> {
    pub rate: f64,
    pub tracker: &'a Tracker,
}

/// What a curve describes.
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
    /// The subject of the curve.
    pub stream: Stream,
    /// Size of a page or line.
    pub granule_bytes: u64,
    /// Look-ups: an access makes one for each page or line that it touches.
    pub references: u64,
    /// Misses of a cache with a single entry. Counted exactly, even with sampling.
    pub changes: u64,
    /// Misses of an infinite cache: first references to a page, and first references after it was unmapped.
    pub first_references: u64,
    /// Pages in use at the end; with sampling, those in the sample.
    pub pages: u64,
    /// Share of pages that the sample contains at the end; 1 without sampling.
    pub sample_rate: f64,
    /// Numbers of entries: every number up to 16, then 16 per octave, up to a size at which only first references miss;
    /// plus the requested sizes.
    pub sizes: Vec<u64>,
    /// Misses at each of the sizes.
    pub misses: Vec<u64>,
    /// Lower bounds of the misses at each size; equal to `misses` without sampling.
    pub least_misses: Vec<u64>,
    /// Upper bounds of the misses at each size.
    pub most_misses: Vec<u64>,
    /// Misses of caches with the requested number of ways, by Smith's estimate; empty if not requested.
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

    /// Misses of a cache with this many entries. A use is a hit if fewer pages lie above in the stack.
    fn misses(&self, size: u64) -> f64 {
        // Depth 0 means a repeated page; in a sample, also other pages may have been used in between.
        (self.first + self.tails.at_least(size)).min(self.changes as f64)
    }

    /// Bounds of the misses.
    ///
    /// A sample has two kinds of error. Of the pages above a page, it contains a share that differs from its rate: a
    /// depth d is measured with the standard deviation √(d (1 − R) / R). So the misses of a size are those of a size
    /// that is larger or smaller by at most `DEVIATIONS` of these. And the pages that miss are a sample: the spread of
    /// its parts bounds the error of their sum. One additional use is assumed, since uses that were never observed have
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

/// Every number up to 16, then 16 per octave, up to the first that is not below `end`.
fn sizes(end: u64) -> Vec<u64> {
    let mut sizes = vec![1];
    while let Some(&last) = sizes.last()
        && last < end
    {
        sizes.push(last + (last / SIZES_PER_OCTAVE).checked_ilog2().map_or(1, |octave| 1 << octave));
    }
    sizes
}

/// Sizes with a power of two of sets, up to 4 times `end`: with few ways, sets overflow before a cache is full.
fn sizes_with_ways(end: u64, ways: u64) -> Vec<u64> {
    let mut sizes = vec![ways];
    while let Some(&last) = sizes.last()
        && last < 4 * end
    {
        sizes.push(2 * last);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_with_ways_go_on_until_four_times_the_pages() {
        for (end, ways, last) in [(1, 1, 4), (100, 4, 512), (128, 4, 512), (129, 4, 1024), (0, 8, 8), (3, 64, 64)] {
            let found = sizes_with_ways(end, ways);
            assert_eq!(found.last(), Some(&last), "{end} pages, {ways} ways");
            assert!(found[0] == ways && found.windows(2).all(|pair| pair[1] == 2 * pair[0]), "{found:?}");
        }
    }
}
