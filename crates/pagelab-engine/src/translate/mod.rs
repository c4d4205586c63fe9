//! From a virtual to a machine address: TLBs, the page-table walker, and what stands in for walks.

pub mod counters;
pub mod hardware;
pub mod scheme;
pub mod tlb;
pub(crate) mod tlb_arrays;
pub mod walker;
