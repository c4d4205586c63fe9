//! Mappings inferred from touched pages.
//!
//! A trace without events says which pages a program touched, not what it had mapped. Touched pages become mappings,
//! and so do the untouched ones between them as long as a stretch of these is no longer than a limit: allocators
//! leave holes, and a mapping cut at every hole would forbid huge pages where the program had them. All mappings are
//! private, anonymous, readable and writable, and executable if anything in them was executed. So inferred mappings
//! never make an access fail; how much memory was mapped but not touched is unknown.

use crate::touched_pages::TouchedPages;

/// An inferred mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The process.
    pub space: u32,
    pub first_page: u64,
    pub pages: u64,
    pub executed: bool,
}

/// The mappings around `touched` (which includes `executed`), joined over gaps of up to `max_gap_pages`.
pub(super) fn infer(touched: TouchedPages, executed: TouchedPages, max_gap_pages: u64) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for (space, page) in touched.sorted() {
        match extents.last_mut() {
            Some(last) if last.space == space && page - (last.first_page + last.pages) <= max_gap_pages => {
                last.pages = page + 1 - last.first_page;
            }
            _ => extents.push(Extent { space, first_page: page, pages: 1, executed: false }),
        }
    }
    let mut at = 0;
    for page in executed.sorted() {
        while at < extents.len() && (extents[at].space, extents[at].first_page + extents[at].pages - 1) < page {
            at += 1;
        }
        if let Some(extent) = extents.get_mut(at) {
            extent.executed = true;
        }
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_up_to_the_limit_are_bridged() {
        let infer = |touched: &[u64], executed: &[u64], gap| {
            let mut sets = [TouchedPages::default(), TouchedPages::default()];
            for (set, pages) in sets.iter_mut().zip([touched, executed]) {
                pages.iter().for_each(|page| _ = set.insert(0, *page));
            }
            let [touched, executed] = sets;
            super::infer(touched, executed, gap)
        };
        let extent = |first_page, pages, executed| Extent { space: 0, first_page, pages, executed };
        let touched = [100, 7, 5, 4, 103];
        assert_eq!(
            infer(&touched, &[], 0),
            [extent(4, 2, false), extent(7, 1, false), extent(100, 1, false), extent(103, 1, false)]
        );
        assert_eq!(infer(&touched, &[7], 1), [extent(4, 4, true), extent(100, 1, false), extent(103, 1, false)]);
        assert_eq!(infer(&touched, &[103], 2), [extent(4, 4, false), extent(100, 4, true)]);
        assert_eq!(infer(&touched, &[5, 100], u64::MAX), [extent(4, 100, true)]);
        assert_eq!(infer(&[], &[], 5), []);
    }

    #[test]
    fn processes_have_their_own() {
        let mut sets = [TouchedPages::default(), TouchedPages::default()];
        for (space, page) in [(0, 5), (1, 4), (1, 7)] {
            sets[0].insert(space, page);
        }
        sets[1].insert(1, 4);
        let [touched, executed] = sets;
        let extent = |space, first_page, pages, executed| Extent { space, first_page, pages, executed };
        assert_eq!(super::infer(touched, executed, 2), [extent(0, 5, 1, false), extent(1, 4, 4, true)]);
    }
}
