//! Ranges of pages in a fully associative array, called CoLT-FA.
//!
//! Models: an entry has a first page, a first frame and a length. It covers up to `pages` pages that are next to each
//! other, virtually and in memory, and whose attributes are equal; they need not be aligned. On a fill, the pages that
//! continue the walked one's run enter with it, as far as the line of page-table entries that the walk has read tells
//! them. Ranges that are there and continue the new one, from other lines, are merged with it, up to `pages` in all.
//! An array that lists no 4K takes only runs for which the level's array for 4 KiB pages would need more than one
//! entry; all other pages enter that one. So the array for large pages holds the runs, as in the paper. If the array
//! for 4 KiB pages has coalesced entries, this is CoLT-All.
//! Source: Pham, Vaidyanathan, Jaleel, Bhattacharjee, "CoLT: Coalesced Large-Reach TLBs", MICRO 2012 (notes on it): the
//! fully associative TLB for large pages takes ranges with start and length, merged with neighbours on fill.
//! Parameters: `machine.tlb.LEVEL.N.organisation`: `pages` (8), `shrinks` (on).
//! Stats: `tlb.LEVEL.ranges.*`.
//! Deviations and choices: the limit of 8 pages also holds for merged ranges. A page is in one array of the level: what
//! enters one leaves the other. A range that loses a page keeps its longer part, the first of two equal ones, unless
//! `shrinks` is off. Comparing a range takes no longer than comparing a tag.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cover::{covering, drop_pages, place};
use super::{ArrayShape, Cover, MOST_PAGES, Organisation, OrganisationCounts, Page, Run};
use crate::translation_unit::ENTRY_BITS;
use pagelab_base::assoc::{AssocArray, Evicted};
use pagelab_base::error::{EngineError, between};
use pagelab_base::switch::Switch;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// The only set.
const SET: u64 = 0;
/// Bits of the length.
const LENGTH_BITS: u64 = 3;

/// Parameters of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RangesConfig {
    /// Most pages of a range, 1 to 8.
    pub pages: u32,
    /// Whether a range that loses a page keeps its longer part; otherwise it is dropped.
    pub shrinks: Switch,
}

impl Default for RangesConfig {
    fn default() -> Self {
        Self { pages: MOST_PAGES, shrinks: Switch(true) }
    }
}

/// Ranges of pages.
#[derive(Clone, Debug)]
pub struct Ranges {
    pages: u32,
    shrinks: bool,
    counts: OrganisationCounts,
}

impl Organisation for Ranges {
    type Parameters = RangesConfig;

    fn validate(parameters: &RangesConfig, key: &str) -> Result<(), EngineError> {
        between(&format!("{key}.pages"), parameters.pages, 1, MOST_PAGES)
    }

    fn samples() -> Vec<RangesConfig> {
        let usual = RangesConfig::default();
        vec![usual, RangesConfig { pages: 3, shrinks: Switch(false) }]
    }

    fn new(parameters: &RangesConfig, shape: &ArrayShape<'_>, key: &str) -> Result<Self, EngineError> {
        let &ArrayShape { entries, ways, .. } = shape;
        if entries != ways {
            let what = format!(
                "ranges is for fully associative arrays, and this one has sets of {ways} ways; allowed are \
                 ways={entries}, as many as entries, and the models pages and coalesced"
            );
            return Err(EngineError::config(key, what));
        }
        let &RangesConfig { pages, shrinks } = parameters;
        Ok(Self { pages, shrinks: shrinks.0, counts: OrganisationCounts::default() })
    }

    fn find(&self, array: &AssocArray, page: Page) -> Option<(u64, Cover)> {
        Some((SET, covering(array, SET, page)?))
    }

    fn cover(&self, page: Page, translation: Translation, run: Run) -> Cover {
        Cover::of_run(page, translation, run, MOST_PAGES.into(), false).near(page, self.pages)
    }

    fn fill(&mut self, array: &mut AssocArray, page: Page, translation: Translation, run: Run) -> Option<Evicted> {
        let (cover, shrinks, most) = (self.cover(page, translation, run), self.shrinks, self.pages);
        let rest = |left: &Cover| shrinks.then(|| left.longest_part());
        let join =
            |left: &Cover, new: &Cover| left.joined(new, false).filter(|both| both.is_range() && both.count() <= most);
        place(array, SET, cover, rest, join, &mut self.counts)
    }

    fn drop_pages(&mut self, array: &mut AssocArray, asid: Asid, first: u64, last: u64) {
        let shrinks = self.shrinks;
        let rest = |left: &Cover| shrinks.then(|| left.longest_part());
        drop_pages(array, Some(SET), (asid, first, last), rest, &mut self.counts);
    }

    fn entry_bits(&self) -> u64 {
        ENTRY_BITS + LENGTH_BITS
    }

    fn counts(&self) -> &OrganisationCounts {
        &self.counts
    }
}
