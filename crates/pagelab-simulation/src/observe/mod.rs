//! What is watched of a run: statistics by name, windows, page faults one by one, profiles.

pub mod page_faults;
pub mod profile;
pub mod statistics;
pub mod windows;
