//! Kernels, one per layer: address spaces, frames, page faults, mapping calls, reclaim and kernel threads.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod ballooned;
pub mod config;
pub mod context;
pub mod direct_segment;
pub mod dissolve;
pub mod effects;
pub mod entry_word;
pub mod fault;
pub mod fault_engine;
pub mod files;
pub mod frame_tags;
pub mod frames;
pub mod held_batches;
pub mod home;
pub mod invalidation;
pub mod inverted_table;
pub mod layer;
pub mod locks;
pub mod mapping;
pub mod mapping_call;
pub mod memory;
pub mod mmap_misses;
pub mod needs;
pub mod os;
pub mod page_out;
pub mod page_ranges;
pub mod placement;
pub mod populate;
pub mod reclaim;
pub mod scanning;
pub mod scheduler;
pub mod shadows;
pub mod sync;
pub mod table_blocks;
pub mod table_lock;
pub mod threads;
pub mod translation_cache;
pub mod vma;
