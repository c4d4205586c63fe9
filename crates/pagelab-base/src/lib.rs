//! What every crate of the simulator builds on: addresses, identifiers, errors, choices of designs in the
//! configuration, the seeded generator, associative arrays, contents of simulated memory, and the types that describe
//! activities and page faults.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod addr;
pub mod assoc;
pub mod choice;
pub mod code_cost;
pub mod cycles;
pub mod error;
pub mod hash_tiers;
pub mod host;
pub mod ids;
pub mod io;
pub mod latencies;
pub mod lock_kind;
pub mod lru_sets;
pub mod mapping;
pub mod measure;
pub mod memory;
pub mod page_fault;
pub mod rng;
pub mod step;
pub mod switch;
pub mod switched;
pub mod translation;
