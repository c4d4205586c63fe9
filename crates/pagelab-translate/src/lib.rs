//! Translation from virtual to machine addresses: TLBs, translation units, the page-table walker, and alternatives to
//! walks.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod check;
pub mod config;
pub mod counters;
pub mod flush;
mod guesses;
pub mod hardware;
mod neighbours;
pub mod scheme;
pub mod size_prediction;
pub mod speculation;
pub mod stages;
pub mod tag_checks;
pub mod tlb;
pub mod tlb_arrays;
pub mod tlb_organisation;
pub mod translation_unit;
pub mod walker;
