//! Counts by depth in the LRU stack.

/// Counts of depths. The first `2^BITS` depths have a bin each. Beyond, an octave is divided into `2^(BITS-1)` bins. So
/// the count below a depth is exact for every depth with at most `BITS` significant bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram<const BITS: u32> {
    counts: Vec<f64>,
}

impl<const BITS: u32> Histogram<BITS> {
    #[inline(always)]
    pub fn add(&mut self, depth: u64, weight: f64) {
        let bin = Self::bin(depth);
        if bin >= self.counts.len() {
            self.grow(bin);
        }
        self.counts[bin] += weight;
    }

    #[cold]
    fn grow(&mut self, bin: usize) {
        self.counts.resize((bin + 1).next_power_of_two(), 0.0);
    }

    #[inline(always)]
    fn bin(depth: u64) -> usize {
        let shift = (u64::BITS - BITS).saturating_sub(depth.leading_zeros());
        ((u64::from(shift) << (BITS - 1)) + (depth >> shift)) as usize
    }

    /// Counts of all depths from `depth` on, including lower ones in the same bin.
    pub fn at_least(&self, depth: u64) -> f64 {
        self.counts.iter().skip(Self::bin(depth)).rev().sum()
    }

    /// For each bin, the sum of its count and all later ones.
    pub fn tails(&self) -> Tails<BITS> {
        let mut tails = self.counts.clone();
        for bin in (1..tails.len()).rev() {
            tails[bin - 1] += tails[bin];
        }
        Tails(tails)
    }

    /// A number above every counted depth.
    pub fn end(&self) -> u64 {
        self.counts.iter().rposition(|&count| count > 0.0).map_or(0, |last| Self::begin(last + 1))
    }

    /// The first depth and the count of every nonempty bin.
    pub fn bins(&self) -> impl Iterator<Item = (u64, f64)> {
        let counted = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0.0);
        counted.map(|(bin, &count)| (Self::begin(bin), count))
    }

    fn begin(bin: usize) -> u64 {
        let (bin, half) = (bin as u64, 1 << (BITS - 1));
        if bin < 2 * half { bin } else { (bin % half + half) << (bin / half - 1) }
    }
}

/// Suffix sums of counts, computed once for many depths.
pub(crate) struct Tails<const BITS: u32>(Vec<f64>);

impl<const BITS: u32> Tails<BITS> {
    /// See [`Histogram::at_least`].
    pub fn at_least(&self, depth: u64) -> f64 {
        self.0.get(Histogram::<BITS>::bin(depth)).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_order_and_leave_none_out() {
        let mut last = 0;
        for depth in 0..1_u64 << 20 {
            let bin = Histogram::<4>::bin(depth);
            assert!(bin == last || bin == last + 1);
            // One bin each for 0 to 15, then eight per octave.
            let begins = depth < 16 || depth.trailing_zeros() >= depth.ilog2() - 3;
            assert_eq!(bin == last, !begins || depth == 0, "{depth}");
            last = bin;
        }
        assert!(Histogram::<12>::bin(u64::MAX) < 1 << 18);
    }

    #[test]
    fn the_end_is_above_the_last() {
        for depth in [0, 1, 15, 16, 17, 18, 100, 1 << 20, (1 << 33) + 5] {
            let mut counts = Histogram::<4>::default();
            counts.add(depth, 1.0);
            let end = counts.end();
            assert!(end > depth && end <= depth + depth / 8 + 1, "{depth} {end}");
            assert_eq!((counts.at_least(end), counts.at_least(depth)), (0.0, 1.0));
            assert_eq!((counts.tails().at_least(end), counts.tails().at_least(depth)), (0.0, 1.0));
        }
    }
}
