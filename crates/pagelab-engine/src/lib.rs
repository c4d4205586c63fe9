//! The simulator: what a machine and its kernels do for a stream of memory accesses.
//!
//! Rooms in the order in which they build on each other; none imports one below it in the table:
//!
//! | room | what it holds |
//! |---|---|
//! | [`base`] | addresses, errors, the seeded generator, associative arrays, contents of simulated memory |
//! | [`page_table`], [`mmu_cache`], [`cache`] | page tables; MMU caches; data caches |
//! | [`core_model`], [`device`] | what a core waits for; devices that pages are written to and read from |
//! | [`config`] | the typed configuration and its presets |
//! | [`engine`] | hardware that handles page faults: what the walker does, and what kernels keep for it |
//! | [`kernel`] | kernels: address spaces, frames, page faults, mapping calls |
//! | [`translate`] | TLBs, walks, segments, shadow tables, shootdowns |
//! | [`programs`] | sources on their way to the CPUs; what runs beside the main ones; what each cost |
//! | [`machine`] | the state of a simulation: hardware, kernels, CPUs, inputs |
//! | `cpu` | what a CPU does: the loop over accesses, running activities |
//! | `agenda` | whose turn it is, and what happens between accesses |
//! | [`observe`] | statistics; comparing translations with the kernels' records |
//! | [`run`] | a request from outside and its results |
//!
//! A run from Rust: the references that a walk makes without MMU caches, on bare metal and in a virtual machine.
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
pub use pagelab_simulation::{machine, observe, programs};
pub use pagelab_tables::{mmu_cache, page_table};
pub use pagelab_translate as translate;
