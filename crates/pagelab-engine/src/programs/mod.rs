//! Programs on their way to the CPUs: sources, what runs beside the main ones, their events, and what each cost.

pub mod account;
pub mod arrivals;
mod events;
pub mod input;
pub mod load;
