//! Organisations of TLB arrays: what one entry covers.
//!
//! In an array of [`Pages`] an entry covers a page. Other designs let an entry cover several pages of 4 KiB, if a walk
//! finds that they are next to each other in memory. What else is in the line of page-table entries that the walk has
//! read is known without a reference (`neighbours.rs`), and a TLB that fills another one passes on what its own entry
//! covers. Entries for large pages are the same in every organisation, and may be in the same array.
//!
//! A design is one file here that implements [`Organisation`], and one line below. From these lines `registry.rs` makes
//! the configuration (`machine.tlb.LEVEL.N.organisation`), the rows of `pagelab list tlb-organisations`, the dispatch
//! and the list of designs that the tests run.
//!
//! Levels whose arrays are all of pages do not call designs: `tlb.rs` and `tlb_arrays.rs` have the code for them. In
//! any other level, all pages of 4 KiB take the way through [`OrganisedLevel`].

mod blocks;
mod coalesced;
mod cover;
mod level;
mod pages;
mod ranges;
#[macro_use]
mod registry;

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::blocks::Blocks;
pub use self::coalesced::Coalesced;
pub use self::cover::{Cover, MOST_PAGES, OrganisationCounts, Page, Run};
pub(crate) use self::cover::{key, key_asid, key_page, vpn};
pub use self::level::{ArrayShape, OrganisedLevel};
pub use self::pages::Pages;
pub use self::ranges::Ranges;
use pagelab_base::assoc::{AssocArray, Evicted};
use pagelab_base::error::EngineError;
use pagelab_base::model_choice;
use pagelab_base::translation::Translation;
use pagelab_tables::mmu_cache::Asid;

organisations! {
    Pages(Pages) = "pages", "an entry per page";
    Coalesced(Coalesced) = "coalesced", "an entry for pages of an aligned group that keep their distance in memory (CoLT-SA)";
    Ranges(Ranges) = "ranges", "an entry for a run of pages, in a fully associative array; also in that for large pages (CoLT-FA)";
    Blocks(Blocks) = "blocks", "an entry for a whole aligned block of pages, as a size of its own (16 KiB of AMD's processors)";
}

/// A design of a TLB array's entries for pages of 4 KiB.
///
/// What an implementor must uphold:
///
/// - [`find`](Self::find) returns an entry with the page, as the last [`fill`](Self::fill) of this page gave it, or
///   nothing. Of each of its pages it knows the frame, whether it may be written, and whether it is dirty, as if the
///   page had an entry of its own: a store to a page that is not dirty finds no entry that allows it.
/// - At most one entry of an array covers a page. It is found by the pages that it covers alone.
/// - `fill` makes the array hold the page, with this translation. It may let the entry cover pages of `run`, and join
///   it with entries that the array holds. Pages that it does not change may be dropped, never changed.
/// - [`drop_pages`](Self::drop_pages) drops each page of the range, and may drop more. It drops no entry that covers
///   none of them.
/// - The state is that of the array, [`Cover`]s as keys and values, and the counters. Nothing allocates. Entries for
///   large pages are left alone, but may be replaced.
///
/// The conformance tests check this for every registered design: against a map, and in random programs under every page
/// table, in guests and hosts.
pub trait Organisation: Sized + Clone + Debug {
    /// The keys of the configuration beside `model`. The type refuses unknown fields.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;

    /// Refuses impossible parameters; `key` is the part of the configuration that contains them.
    fn validate(parameters: &Self::Parameters, key: &str) -> Result<(), EngineError>;

    /// Parameters for the tests.
    fn samples() -> Vec<Self::Parameters>;

    /// For an array of this shape; `key` is as above. Errors: impossible parameters, or an array that it is not for.
    fn new(parameters: &Self::Parameters, shape: &ArrayShape<'_>, key: &str) -> Result<Self, EngineError>;

    /// The entry that covers a page, and the hash of its set; does not count as a use.
    fn find(&self, array: &AssocArray, page: Page) -> Option<(u64, Cover)>;

    /// The translation of a page; a hit counts as a use of its entry.
    fn look_up(&self, array: &mut AssocArray, page: Page) -> Option<Translation> {
        let (set, cover) = self.find(array, page)?;
        array.lookup(set, cover.key());
        Some(cover.translation(page))
    }

    /// What an entry for a page and its run covers, before it is joined with others.
    fn cover(&self, page: Page, translation: Translation, run: Run) -> Cover;

    /// Inserts a page; returns the entry that it replaced.
    fn fill(&mut self, array: &mut AssocArray, page: Page, translation: Translation, run: Run) -> Option<Evicted>;

    /// Drops the pages `first..=last` of a space.
    fn drop_pages(&mut self, array: &mut AssocArray, asid: Asid, first: u64, last: u64);

    /// Bits of storage of an entry, see [`ENTRY_BITS`](crate::translation_unit::ENTRY_BITS).
    fn entry_bits(&self) -> u64;

    /// Its counters.
    fn counts(&self) -> &OrganisationCounts;
}
