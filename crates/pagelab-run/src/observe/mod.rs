//! Observing a simulation: statistics, windows, single page faults, profiles.

mod observers;
pub mod page_faults;
pub mod profile;
pub mod statistics;
pub mod windows;

pub use observers::{Observers, RefusedAccess};
