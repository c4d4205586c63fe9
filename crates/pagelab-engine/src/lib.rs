//! The simulator: what a machine and its kernels do for a stream of memory accesses.
//!
//! This crate runs requests. It builds on seven others; each imports only those above it in this table:
//!
//! | crate | contents |
//! |---|---|
//! | [`pagelab_base`] | addresses, errors, the seeded generator, associative arrays, contents of simulated memory |
//! | [`pagelab_tables`] | page tables; MMU caches |
//! | [`pagelab_hardware`] | data caches and memory; core models; storage devices |
//! | [`pagelab_kernel`] | kernels: address spaces, frames, page faults, mapping calls; fault engines |
//! | [`pagelab_translate`] | TLBs, translation units, page walks, segments, shadow tables; the hardware as a whole |
//! | [`pagelab_run`] | the configuration of a run, its sources, and what is observed of it |
//! | [`pagelab_simulation`] | the state of a simulation, the actions of its CPUs, and the statistics |
//! | this one | presets, run configuration, requests and results |
//!
//! The folders of each crate are *rooms*, which have an order, too; `tests/structure.rs` defines and checks it. This
//! crate re-exports modules of the others, so users of the simulator need to import only this crate.
//!
//! Example: references per walk without MMU caches, on bare metal and in a virtual machine.
//!
//! ```
//! use pagelab_engine::run::{Request, run};
//!
//! let request = Request {
//!     sources: vec!["gups:size=16MiB,updates=10K".into()],
//!     systems: vec!["radix-no-mmu-cache".into(), "nested-radix-no-mmu-cache".into()],
//!     ..Request::default()
//! };
//! let results = run(&request, &|_| true)?;
//! for (result, expected) in results.results.iter().zip([4.0, 24.0]) {
//!     let refs = result.stats["walk.refs"] as f64 / result.stats["walk.count"] as f64;
//!     assert_eq!(refs, expected, "{}", result.system);
//! }
//! # Ok::<(), pagelab_engine::base::error::EngineError>(())
//! ```
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod config;
pub mod run;

pub use pagelab_base as base;
pub use pagelab_hardware::{cache, core_model, device};
pub use pagelab_kernel::{self as kernel, fault_engine};
pub use pagelab_run::{observe, programs};
pub use pagelab_simulation::machine;
pub use pagelab_tables::{mmu_cache, page_table};
pub use pagelab_translate as translate;
