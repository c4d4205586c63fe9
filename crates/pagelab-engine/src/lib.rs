//! The simulator.
#![deny(unsafe_code)]

pub mod addr;
pub mod assoc;
pub mod cache;
pub mod os;
pub mod rng;
