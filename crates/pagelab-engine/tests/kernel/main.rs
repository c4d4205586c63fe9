//! The kernel: page faults, memory pressure, placement policies, mapping calls, and scheduling during waits.

#[path = "../common/mod.rs"]
mod common;

mod balloon_manager;
mod block_io;
mod ca_paging;
mod coloring;
mod eager;
mod fair;
mod fault_walks;
mod files;
mod hash_tiers;
mod host_memory;
mod interleavings;
mod late_segments;
mod load;
mod lock_interleavings;
mod lock_waits;
mod mapping_calls;
mod memory_files;
mod migration;
mod page_faults;
mod page_out;
mod page_reporting;
mod page_sizes;
mod read_ahead;
mod reclaim;
mod reservations;
mod scans;
mod shootdowns;
mod table_locks;
mod tasks;
mod threads;
mod translation_cache;
mod translation_slots;
mod vma_fallbacks;
mod words;
