//! From a virtual to a machine address: TLBs, the page-table walker, and what stands in for walks.

mod ahead;
pub mod counters;
pub(crate) mod guest_tlb;
pub mod hardware;
pub mod next_page;
pub mod scheme;
pub mod tlb;
pub(crate) mod tlb_arrays;
pub mod walker;
