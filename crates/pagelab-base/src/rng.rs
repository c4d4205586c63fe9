//! Random numbers: the generator of the workloads, with one stream per component.

pub use pagelab_trace::rng::{Rng, mix};
