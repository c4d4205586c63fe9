//! Coalesced entries of set-associative arrays, called CoLT-SA.
//!
//! Models: an entry has a bit for each page of an aligned group of `pages`, and a base frame. It covers those pages of
//! the group whose frames keep their distance from the pages and whose attributes are equal. The set is chosen by the
//! group's number, so all pages of a group are in one set. On a fill, the pages next to the walked one that continue
//! its run enter with it, as far as the line of page-table entries that the walk has read tells them; if the set has an
//! entry for the same group, frames and attributes, the new pages enter that one.
//! Source: Pham, Vaidyanathan, Jaleel, Bhattacharjee, "CoLT: Coalesced Large-Reach TLBs", MICRO 2012 (notes on it):
//! entries for groups, indexed beyond the low bits of the page number, filled from the line that the walk has read.
//! Parameters: `machine.tlb.LEVEL.N.organisation`: `pages` (4), `mixed_dirty` (off), `shrinks` (on).
//! Stats: `tlb.LEVEL.coalesced.*`.
//! Deviations and choices: groups of 4 pages are from memory of the paper. Entries of one group with other frames or
//! attributes are entries of their own, in the same set. A page joins only if it was accessed before, as an entry
//! requires. Notes on the paper do not say what a changed page does to its entry: here the others remain, since each
//! has a bit, unless `shrinks` is off. The same holds for a page whose dirty bit changes: it leaves for an entry of its
//! own, or that of its dirty neighbours. With `mixed_dirty` an entry has a dirty bit per page, and such pages stay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cover::{covering, drop_pages, place};
use super::{ArrayShape, Cover, MOST_PAGES, Organisation, OrganisationCounts, Page, Run};
use crate::translation_unit::ENTRY_BITS;
use pagelab_base::addr::PageSize;
use pagelab_base::assoc::{AssocArray, Evicted};
use pagelab_base::error::EngineError;
use pagelab_base::switch::Switch;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Ranges of up to this many pages are dropped set by set; larger ones by looking at all entries.
const FEW_PAGES: u64 = 16;

/// Parameters of coalesced entries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CoalescedConfig {
    /// Pages of an aligned group that an entry can cover: 1, 2, 4 or 8.
    pub pages: u32,
    /// Whether pages whose dirty bits differ may share an entry, which then has a dirty bit for each.
    pub mixed_dirty: Switch,
    /// Whether an entry that loses a page keeps the others; otherwise it is dropped.
    pub shrinks: Switch,
}

impl Default for CoalescedConfig {
    fn default() -> Self {
        Self { pages: 4, mixed_dirty: Switch(false), shrinks: Switch(true) }
    }
}

/// Coalesced entries.
#[derive(Clone, Debug)]
pub struct Coalesced {
    pages: u64,
    mixed_dirty: bool,
    shrinks: bool,
    counts: OrganisationCounts,
}

impl Coalesced {
    /// The set of a page's group.
    fn set(&self, vpn: u64) -> u64 {
        vpn >> self.pages.trailing_zeros()
    }
}

impl Organisation for Coalesced {
    type Parameters = CoalescedConfig;

    fn validate(parameters: &CoalescedConfig, key: &str) -> Result<(), EngineError> {
        let pages = parameters.pages;
        if pages.is_power_of_two() && pages <= MOST_PAGES {
            return Ok(());
        }
        let what = format!(
            "{pages} is not possible; allowed are 1, 2, 4 and 8: the entries of 8 pages are in the line that a walk reads"
        );
        Err(EngineError::config(format!("{key}.pages"), what))
    }

    fn samples() -> Vec<CoalescedConfig> {
        let usual = CoalescedConfig::default();
        vec![
            usual,
            CoalescedConfig { pages: 1, ..usual },
            CoalescedConfig { pages: 8, mixed_dirty: Switch(true), ..usual },
            CoalescedConfig { pages: 2, shrinks: Switch(false), ..usual },
        ]
    }

    fn new(parameters: &CoalescedConfig, shape: &ArrayShape<'_>, key: &str) -> Result<Self, EngineError> {
        shape.must_hold(PageSize::Size4K, "coalesced", key)?;
        let &CoalescedConfig { pages, mixed_dirty, shrinks } = parameters;
        let counts = OrganisationCounts::default();
        Ok(Self { pages: pages.into(), mixed_dirty: mixed_dirty.0, shrinks: shrinks.0, counts })
    }

    fn find(&self, array: &AssocArray, page: Page) -> Option<(u64, Cover)> {
        let set = self.set(page.vpn);
        Some((set, covering(array, set, page)?))
    }

    fn cover(&self, page: Page, translation: Translation, run: Run) -> Cover {
        Cover::of_run(page, translation, run, self.pages, self.mixed_dirty)
    }

    fn fill(&mut self, array: &mut AssocArray, page: Page, translation: Translation, run: Run) -> Option<Evicted> {
        let (set, cover) = (self.set(page.vpn), self.cover(page, translation, run));
        let (shrinks, mixed, pages) = (self.shrinks, self.mixed_dirty, self.pages);
        let rest = |left: &Cover| shrinks.then_some(*left);
        let join = |left: &Cover, new: &Cover| {
            if left.first / pages == new.first / pages { left.joined(new, mixed) } else { None }
        };
        place(array, set, cover, rest, join, &mut self.counts)
    }

    fn drop_pages(&mut self, array: &mut AssocArray, asid: Asid, first: u64, last: u64) {
        let shrinks = self.shrinks;
        let rest = |left: &Cover| shrinks.then_some(*left);
        if last.saturating_sub(first) >= FEW_PAGES {
            drop_pages(array, None, (asid, first, last), rest, &mut self.counts);
            return;
        }
        for set in self.set(first)..=self.set(last) {
            drop_pages(array, Some(set), (asid, first, last), rest, &mut self.counts);
        }
    }

    /// Without the bits of the page's number within the group, and with a bit for each page.
    fn entry_bits(&self) -> u64 {
        let bits_of_each = if self.mixed_dirty { 2 } else { 1 };
        let usual = ENTRY_BITS - u64::from(self.pages.trailing_zeros());
        // The bits for valid, and with `mixed_dirty` for dirty, are there already.
        usual + (self.pages - 1) * bits_of_each
    }

    fn counts(&self) -> &OrganisationCounts {
        &self.counts
    }
}
