//! Alternatives to walking the page table of every layer: direct segments, shadow page tables, speculation,
//! do-it-yourself translation; and tables in virtual memory.

pub mod do_it_yourself;
pub mod inverted_shadow;
pub mod pinned_table;
pub mod segment;
pub mod shadow;
pub mod speculation;
