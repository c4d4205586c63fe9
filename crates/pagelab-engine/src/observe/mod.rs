//! Looking at a simulation: its statistics, and the check of its translations.

pub mod check;
pub mod stats;
