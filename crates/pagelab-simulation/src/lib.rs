//! The simulation: CPUs that replay sources on the hardware under the kernels, and what is counted meanwhile.
//!
//! | room | what it holds |
//! |---|---|
//! | [`config`] | everything that determines a run, besides its traces |
//! | [`observe`] | what is watched of a run: statistics by name, windows, page faults one by one, profiles |
//! | [`programs`] | sources on their way to the CPUs; what runs beside the main ones; what each cost |
//! | [`machine`] | the state of a simulation: hardware, kernels, CPUs, inputs |
//! | `collect` | statistics of that state; comparing translations with the kernels' records |
//! | `cpu` | what a CPU does: the loop over accesses, running activities |
//! | `agenda` | whose turn it is, and what happens between accesses |
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod agenda;
mod collect;
pub mod config;
mod cpu;
pub mod machine;
pub mod observe;
pub mod programs;
