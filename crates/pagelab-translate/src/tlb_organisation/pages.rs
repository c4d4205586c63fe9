//! An entry per page.
//!
//! Models: the TLBs of most processors.
//! Parameters: none.
//! Stats: `tlb.LEVEL.pages.*`, only in a level that has another organisation, too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cover::{covering, drop_pages, place};
use super::{ArrayShape, Cover, Organisation, OrganisationCounts, Page, Run};
use crate::translation_unit::ENTRY_BITS;
use pagelab_base::assoc::{AssocArray, Evicted};
use pagelab_base::error::EngineError;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

/// Parameters of an array with an entry per page: there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PagesConfig {}

/// An entry per page.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    counts: OrganisationCounts,
}

impl Organisation for Pages {
    type Parameters = PagesConfig;

    fn validate(_: &PagesConfig, _: &str) -> Result<(), EngineError> {
        Ok(())
    }

    fn samples() -> Vec<PagesConfig> {
        vec![PagesConfig {}]
    }

    fn new(_: &PagesConfig, _: &ArrayShape<'_>, _: &str) -> Result<Self, EngineError> {
        Ok(Self::default())
    }

    fn find(&self, array: &AssocArray, page: Page) -> Option<(u64, Cover)> {
        Some((page.vpn, covering(array, page.vpn, page)?))
    }

    fn cover(&self, page: Page, translation: Translation, _: Run) -> Cover {
        Cover::single(page, translation)
    }

    fn fill(&mut self, array: &mut AssocArray, page: Page, translation: Translation, _: Run) -> Option<Evicted> {
        let cover = Cover::single(page, translation);
        place(array, page.vpn, cover, |_| None, |_, _| None, &mut self.counts)
    }

    fn drop_pages(&mut self, array: &mut AssocArray, asid: Asid, first: u64, last: u64) {
        drop_pages(array, None, (asid, first, last), |_| None, &mut self.counts);
    }

    fn entry_bits(&self) -> u64 {
        ENTRY_BITS
    }

    fn counts(&self) -> &OrganisationCounts {
        &self.counts
    }
}
