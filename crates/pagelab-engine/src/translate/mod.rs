//! From a virtual to a machine address: TLBs, the page-table walker, and what stands in for walks.

pub mod counters;
pub mod hardware;
pub mod scheme;
mod short_walk;
pub mod tlb;
pub mod walker;
