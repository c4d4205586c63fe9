//! The state of a simulation by parts: hardware, kernels, scheduler, programs, observers. What concerns several of them
//! is in `cpu` and `agenda`.

pub mod activity;
pub(crate) mod agenda;
pub mod cpu;
pub mod kernels;
pub mod pcids;
pub mod scheduler;
pub mod simulation;
pub mod task;
mod waiting;
