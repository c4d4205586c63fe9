//! What is watched of a simulation: statistics, windows, page faults one by one, profiles.

mod observers;
pub mod page_faults;
pub mod profile;
pub mod statistics;
pub mod windows;

pub use observers::{Observers, RefusedAccess};
