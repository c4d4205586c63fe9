//! Entries of whole aligned blocks, such as the 16 KiB entries of AMD's processors.
//!
//! Models: an entry covers a page, or a block of `pages` pages that are aligned and next to each other, virtually and
//! in memory, and whose attributes are equal, dirty bits included. A block is a page size of its own: its set is chosen
//! by its number, and a look-up asks for the page and for its block at once. Hardware makes blocks by itself, when a
//! walk has read a line of page-table entries that has a whole one. A page that changes takes its block's entry with
//! it.
//! Source: AMD, Software Optimization Guide for the AMD Zen 4 Microarchitecture (57647; notes on it): four consecutive
//! pages of 4 KiB that are aligned to 16 KiB and have the same attributes may share an entry.
//! Parameters: `machine.tlb.LEVEL.N.organisation`: `pages` (4).
//! Stats: `tlb.LEVEL.blocks.*`.
//! Deviations and choices: every array of a level that is configured so takes blocks in all of its ways; some parts are
//! said to reserve ways of the second level for them. Whether blocks need pages that were accessed before is not
//! published: here they do, as every entry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cover::{covering, drop_pages, place};
use super::{ArrayShape, Cover, MOST_PAGES, Organisation, OrganisationCounts, Page, Run};
use crate::translation_unit::ENTRY_BITS;
use pagelab_base::addr::PageSize;
use pagelab_base::assoc::{AssocArray, Evicted};
use pagelab_base::error::EngineError;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Ranges of up to this many pages are dropped set by set; larger ones by looking at all entries.
const FEW_PAGES: u64 = 16;

/// Parameters of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BlocksConfig {
    /// Pages of a block: 2, 4 or 8.
    pub pages: u32,
}

impl Default for BlocksConfig {
    fn default() -> Self {
        Self { pages: 4 }
    }
}

/// Entries of blocks.
#[derive(Clone, Debug)]
pub struct Blocks {
    pages: u64,
    counts: OrganisationCounts,
}

impl Blocks {
    /// The number of a page's block.
    fn block(&self, vpn: u64) -> u64 {
        vpn / self.pages
    }
}

impl Organisation for Blocks {
    type Parameters = BlocksConfig;

    fn validate(parameters: &BlocksConfig, key: &str) -> Result<(), EngineError> {
        let pages = parameters.pages;
        if pages.is_power_of_two() && (2..=MOST_PAGES).contains(&pages) {
            return Ok(());
        }
        let what = format!(
            "{pages} is not possible; allowed are 2, 4 and 8: the entries of 8 pages are in the line that a walk reads"
        );
        Err(EngineError::config(format!("{key}.pages"), what))
    }

    fn samples() -> Vec<BlocksConfig> {
        vec![BlocksConfig::default(), BlocksConfig { pages: 2 }]
    }

    fn new(parameters: &BlocksConfig, shape: &ArrayShape<'_>, key: &str) -> Result<Self, EngineError> {
        shape.must_hold(PageSize::Size4K, "blocks", key)?;
        Ok(Self { pages: parameters.pages.into(), counts: OrganisationCounts::default() })
    }

    fn find(&self, array: &AssocArray, page: Page) -> Option<(u64, Cover)> {
        let sets = [page.vpn, self.block(page.vpn)];
        sets.into_iter().find_map(|set| Some((set, covering(array, set, page)?)))
    }

    fn cover(&self, page: Page, translation: Translation, run: Run) -> Cover {
        let run = Cover::of_run(page, translation, run, self.pages, false);
        let is_block = u64::from(run.count()) == self.pages && run.frame.is_multiple_of(self.pages);
        if is_block { run } else { Cover::single(page, translation) }
    }

    fn fill(&mut self, array: &mut AssocArray, page: Page, translation: Translation, run: Run) -> Option<Evicted> {
        let cover = self.cover(page, translation, run);
        let is_block = cover.count() > 1;
        let set = if is_block { self.block(page.vpn) } else { page.vpn };
        // Pages of a new block leave their own sets, and a page on its own leaves its block, which ends.
        let mut leave = |set: u64| {
            drop_pages(array, Some(set), (page.asid, cover.first, cover.last()), |_| None, &mut self.counts);
        };
        if is_block {
            (cover.first..=cover.last()).for_each(&mut leave);
        } else {
            leave(page.vpn / self.pages);
        }
        place(array, set, cover, |_| None, |_, _| None, &mut self.counts)
    }

    fn drop_pages(&mut self, array: &mut AssocArray, asid: Asid, first: u64, last: u64) {
        if last.saturating_sub(first) >= FEW_PAGES {
            drop_pages(array, None, (asid, first, last), |_| None, &mut self.counts);
            return;
        }
        for set in (first..=last).chain(self.block(first)..=self.block(last)) {
            drop_pages(array, Some(set), (asid, first, last), |_| None, &mut self.counts);
        }
    }

    /// The size of a block is one more that an entry's two bits of the page size can say.
    fn entry_bits(&self) -> u64 {
        ENTRY_BITS
    }

    fn counts(&self) -> &OrganisationCounts {
        &self.counts
    }
}
