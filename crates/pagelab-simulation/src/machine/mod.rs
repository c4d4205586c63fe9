//! The state of a simulation: hardware, kernels, CPUs and inputs. What happens to it is in `cpu` and `agenda`.

pub mod activity;
pub(crate) mod agenda;
pub mod cpu;
pub mod pcids;
pub mod simulation;
pub mod task;
