//! The hardware: TLBs, walks, MMU caches, page tables, data caches, memory and cores, mostly compared with closed
//! forms.

#[path = "../common/mod.rs"]
mod common;

mod bandwidth;
mod bulk;
mod closed_forms;
mod code_prefetch;
mod core_rows;
mod core_threads;
mod direct_segments;
mod do_it_yourself;
mod edges;
mod hashed;
mod hashed_segments;
mod hashed_sizes;
mod instruction_cache;
mod kernel_branches;
mod kernel_overlap;
mod line_transfers;
mod mmu_caches;
mod nested_walks;
mod pinned_tables;
mod prefetch;
mod preset_tlbs;
mod shared_segments;
mod size_prediction;
mod slices;
mod speculations;
mod tlb_organisations;
mod tlb_stages;
mod victim_tlb;
mod victima;
mod window_core;
