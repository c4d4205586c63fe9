//! Page tables, and the MMU caches that let walks skip their upper levels.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod mmu_cache;
pub mod page_table;
