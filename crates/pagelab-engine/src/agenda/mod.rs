//! Simulated time: the machine with all that runs on it, and whose turn it is.

mod kthreads;
pub mod simulation;
