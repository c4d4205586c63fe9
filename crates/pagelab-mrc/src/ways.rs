//! Set-associative caches, estimated from a fully associative one.

use crate::histogram::Histogram;

impl<const BITS: u32> Histogram<BITS> {
    /// Misses of caches with `ways` ways, at sizes that are multiples of `ways`.
    ///
    /// Source: A. J. Smith, "A comparative study of set associative memory mapping algorithms and their use for cache
    /// and main memory", IEEE TSE 4(2), 1978. Each page above a page is in its set with probability 1/sets,
    /// independently. So the page misses if `ways` or more of them are, by the binomial distribution.
    ///
    /// Deviations: real sets are chosen by low bits of the page number, which distribute neighbours evenly. So programs
    /// that use arrays in order miss less, and those with a stride of a power of two miss more. Depths have the
    /// resolution of the histogram's bins.
    pub(crate) fn misses_with_ways(&self, first: f64, sizes: &[u64], ways: u64) -> Vec<u64> {
        let misses = |&size: &u64| {
            let sets = size / ways;
            let found = self.bins().map(|(depth, count)| count * chance(depth, 1.0 / sets as f64, ways)).sum::<f64>();
            (first + found).round() as u64
        };
        sizes.iter().map(misses).collect()
    }
}

/// Probability that of `depth` pages at least `ways` fall into a set that gets the share `share` of them.
fn chance(depth: u64, share: f64, ways: u64) -> f64 {
    if depth < ways {
        return 0.0;
    }
    if share >= 1.0 {
        return 1.0;
    }
    // Computed with logarithms, since the probability that none falls there may be too small for a number.
    let (own, other) = (share.ln(), (-share).ln_1p());
    let mut term = depth as f64 * other;
    let mut fewer = term.exp();
    for pages in 1..ways {
        term += ((depth - pages + 1) as f64 / pages as f64).ln() + own - other;
        fewer += term.exp();
    }
    (1.0 - fewer).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagelab_trace::rng::Rng;

    #[test]
    fn one_set_is_fully_associative() {
        assert_eq!((chance(7, 1.0, 8), chance(8, 1.0, 8)), (0.0, 1.0));
        // Two of two in one of two sets; at least one of ten in one of ten.
        assert!((chance(2, 0.5, 2) - 0.25).abs() < 1e-12);
        assert!((chance(10, 0.1, 1) - (1.0 - 0.9_f64.powi(10))).abs() < 1e-12);
        assert!((chance(1 << 30, 1.0 / (1 << 20) as f64, 4) - 1.0).abs() < 1e-9);
    }

    /// Random pages in random sets, as the estimate assumes.
    #[test]
    fn random_pages_miss_as_estimated() {
        let (pages, sets, ways, uses) = (1000_u64, 64, 4, 400_000);
        let mut rng = Rng::new(5, "ways");
        let set_of: Vec<u64> = (0..pages).map(|_| rng.below(sets)).collect();
        let (mut caches, mut stack) = (vec![Vec::new(); sets as usize], Vec::new());
        let (mut depths, mut first, mut missed) = (Histogram::<12>::default(), 0.0, 0);
        for _ in 0..uses {
            let page = rng.below(pages);
            match stack.iter().position(|&other| other == page) {
                Some(at) => {
                    depths.add(at as u64, 1.0);
                    stack.remove(at);
                }
                None => first += 1.0,
            }
            stack.insert(0, page);
            let cache = &mut caches[set_of[page as usize] as usize];
            match cache.iter().position(|&other| other == page) {
                Some(at) => _ = cache.remove(at),
                None => missed += 1,
            }
            cache.insert(0, page);
            cache.truncate(ways);
        }
        let estimated = depths.misses_with_ways(first, &[sets * ways as u64], ways as u64)[0];
        assert!(estimated.abs_diff(missed) < missed / 100, "{estimated} {missed}");
    }
}
