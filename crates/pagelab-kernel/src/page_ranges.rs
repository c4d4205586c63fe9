//! Sets of page numbers, kept as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of page numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRanges {
    /// The end of each range by its start; ranges neither overlap nor touch.
    ends: BTreeMap<u64, u64>,
}

impl PageRanges {
    /// The set of all pages of one range.
    pub fn new(pages: Range<u64>) -> Self {
        let mut set = Self::default();
        set.add(pages);
        set
    }

    /// Whether the set has no page.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether a page is in the set.
    pub fn contains(&self, page: u64) -> bool {
        self.ends.range(..=page).next_back().is_some_and(|(_, &end)| page < end)
    }

    /// The ranges, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// Adds the pages of a range.
    pub fn add(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        let (mut start, mut end) = (pages.start, pages.end);
        while let Some((&other, &other_end)) =
            self.ends.range(..=end).next_back().filter(|&(_, &other_end)| other_end >= start)
        {
            self.ends.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.ends.insert(start, end);
    }

    /// Removes the pages of a range.
    pub fn remove(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ends.range(..pages.end).next_back().filter(|&(_, &end)| end > pages.start)
        {
            self.ends.remove(&start);
            if pages.end < end {
                self.ends.insert(pages.end, end);
            }
            if start < pages.start {
                self.ends.insert(start, pages.start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_a_set_of_pages() {
        let (mut set, mut plain) = (PageRanges::default(), BTreeSet::new());
        let mut seed = 1_u64;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let start = seed >> 40 & 63;
            let pages = start..start + (seed >> 50 & 15);
            if seed >> 60 & 1 == 0 {
                set.add(pages.clone());
                plain.extend(pages);
            } else {
                set.remove(pages.clone());
                plain.retain(|page| !pages.contains(page));
            }
            assert_eq!(set.iter().flatten().collect::<Vec<_>>(), plain.iter().copied().collect::<Vec<_>>());
            assert!((0..100).all(|page| set.contains(page) == plain.contains(&page)));
            let ranges: Vec<_> = set.iter().collect();
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
        }
        assert!(PageRanges::new(3..5).iter().eq(std::iter::once(3..5)));
        assert!(PageRanges::new(3..3).is_empty());
    }
}
