//! The simulation: CPUs that replay sources on the hardware, under the kernels; and what is counted.
//!
//! | room | what it holds |
//! |---|---|
//! | [`machine`] | the state of a simulation: hardware, kernels, CPUs, inputs |
//! | `collect` | statistics of that state; comparing translations with the kernels' records |
//! | `cpu` | what a CPU does: the loop over accesses, and running activities |
//! | `agenda` | which CPU runs next, and what happens between accesses |
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod agenda;
mod collect;
mod cpu;
pub mod machine;
