//! The simulation: CPUs that replay sources on the hardware, under the kernels; and what is counted.
//!
//! | room | what it holds |
//! |---|---|
//! | [`config`] | everything that determines a run, besides its traces |
//! | [`observe`] | what is observed of a run: statistics by name, windows, single page faults, profiles |
//! | [`programs`] | sources on their way to the CPUs; the background load; what each source cost |
//! | [`machine`] | the state of a simulation: hardware, kernels, CPUs, inputs |
//! | `collect` | statistics of that state; comparing translations with the kernels' records |
//! | `cpu` | what a CPU does: the loop over accesses, and running activities |
//! | `agenda` | which CPU runs next, and what happens between accesses |
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod agenda;
mod collect;
pub mod config;
mod cpu;
pub mod machine;
pub mod observe;
pub mod programs;
