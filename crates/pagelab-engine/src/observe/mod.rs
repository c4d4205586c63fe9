//! Looking at a simulation: its statistics, and the check of its translations.

pub mod check;
mod collect;
pub mod page_faults;
pub mod profile;
pub mod statistics;
pub mod windows;
