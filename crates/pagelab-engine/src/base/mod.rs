//! What every room builds on: addresses, errors, the seeded generator, associative arrays, contents of simulated memory.

pub mod addr;
pub mod assoc;
pub mod error;
pub mod memory;
pub mod rng;
pub mod translation;
