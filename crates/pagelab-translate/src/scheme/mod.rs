//! Alternatives to walking the page table of every layer: direct segments, shadow page tables, speculation,
//! do-it-yourself translation.

pub mod do_it_yourself;
pub mod inverted_shadow;
pub mod segment;
pub mod shadow;
pub mod speculation;
