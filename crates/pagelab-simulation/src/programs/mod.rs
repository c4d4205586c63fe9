//! Programs on their way to the CPUs: sources, what runs beside the main ones, and what each cost.

pub mod account;
pub mod arrivals;
pub mod feed;
pub mod input;
pub mod load;
pub mod reorder;
mod replayed;
pub mod role;

pub use replayed::Programs;
