//! From a virtual to a machine address: TLBs, the page-table walker, and what stands in for walks.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod ahead;
pub mod check;
pub mod config;
pub mod counters;
pub mod flush;
pub mod guest_tlb;
pub mod hardware;
pub mod next_page;
pub mod scheme;
pub mod tlb;
pub mod tlb_arrays;
pub mod walker;
