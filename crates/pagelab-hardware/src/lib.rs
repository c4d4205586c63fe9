//! The hardware besides the MMU: data caches with memory and prefetchers, core models, devices.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod cache;
pub mod core_model;
pub mod device;
