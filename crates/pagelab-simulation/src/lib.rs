//! The simulation: CPUs that replay sources on the hardware under the kernels, and what is counted meanwhile.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod agenda;
mod collect;
pub mod config;
mod cpu;
pub mod machine;
pub mod observe;
pub mod programs;
