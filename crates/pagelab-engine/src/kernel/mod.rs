//! Kernels, one a layer: address spaces, frames, page faults, mapping calls, reclaim and kernel threads.

pub mod fault;
pub mod frames;
pub mod layer;
pub mod locks;
pub mod mapping;
pub mod os;
mod out_of_memory;
mod page_cache;
pub mod placement;
pub mod populate;
pub mod reclaim;
pub mod tables;
pub mod threads;
pub mod translation_cache;
mod user_pages;
pub mod vma;
