//! The simulator: what a machine and its kernels do for a stream of memory accesses.
//!
//! Modules in the order in which an access meets them:
//!
//! | module | what it holds |
//! |---|---|
//! | [`addr`], [`error`], [`rng`], [`assoc`] | vocabulary: addresses, errors, the seeded generator, associative arrays |
//! | [`config`] | the typed configuration and its presets |
//! | [`run`], [`placement`] | a request from outside: sources and their CPUs, systems, overrides; results |
//! | [`input`], [`load`], [`arrivals`], [`account`] | sources on their way to the CPUs; what runs beside the main ones, when it arrives; what each cost |
//! | [`simulation`], [`replay`], [`lookahead`], [`stack`] | whose turn it is; the loop over accesses; host prefetch; running activities |
//! | `events` | mapping calls, forks, execs and exits of programs |
//! | [`cpu`], [`clock`], [`activity`] | a CPU, its clock, what it does besides its program |
//! | [`tlb`], [`mmu_cache`], [`walker`], [`page_table`] | translation |
//! | [`hardware`], [`cache`], [`memory`] | cores' units, data caches, contents of simulated memory |
//! | [`layer`], [`os`] | kernels: address spaces, frames, page faults, mapping calls |
//! | [`shootdown`] | what a CPU holds of which address space, and how it loses it |
//! | [`check`], [`stats`] | comparing translations with the kernels' records; counting |
#![deny(unsafe_code)]

pub mod account;
pub mod activity;
pub mod addr;
pub mod arrivals;
pub mod assoc;
pub mod cache;
pub mod check;
pub mod clock;
pub mod config;
pub mod cpu;
pub mod error;
mod events;
pub mod hardware;
pub mod input;
mod kthreads;
pub mod layer;
pub mod load;
pub mod lookahead;
pub mod memory;
pub mod mmu_cache;
pub mod os;
pub mod page_table;
pub mod placement;
pub mod replay;
pub mod rng;
pub mod run;
pub mod segment;
pub mod shadow;
pub mod shootdown;
pub mod simulation;
pub mod speculation;
pub mod stack;
pub mod stats;
pub mod tlb;
pub mod translation;
pub mod walker;
