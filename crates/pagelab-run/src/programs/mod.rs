//! Programs on their way to the CPUs: sources, background load, and accounts.

pub mod account;
pub mod arrivals;
pub mod cpus;
pub mod engine_calls;
pub mod feed;
pub mod input;
pub mod load;
pub mod reorder;
mod replayed;
pub mod role;
pub mod vforks;

pub use replayed::Programs;
