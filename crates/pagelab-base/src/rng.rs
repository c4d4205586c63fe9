//! Random numbers: those of the workloads, one stream a component.

pub use pagelab_trace::rng::{Rng, mix};
