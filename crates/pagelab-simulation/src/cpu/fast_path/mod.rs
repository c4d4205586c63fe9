//! The fast path: ordinary accesses, in code that is compiled for the machine.
//!
//! Most accesses hit the TLBs, or miss them and are walked along a way that the page table remembers, to a page that is
//! mapped, allows the access and is already marked. [`core`] makes these accesses in one loop. It stops before the
//! first access of another kind, without changing any of its state; the general code ([`super::replay`]) makes that
//! one. The general code works for every system and is the reference: results are the same with and without the fast
//! path (`tests/simulation/fast_path.rs`).
//!
//! [`eligibility`] lists what the fast path can simulate. [`code`] says for which machines the loop is compiled; the
//! code is chosen once, when a simulation is built. A [`walker`] is for one layer on the bare machine whose table
//! remembers ways ([`native`]) or does not ([`listed`]), or for a guest on its host whose tables both remember ways
//! ([`nested`]) or do not ([`nested_listed`]), or for a guest on a guest on its host whose tables all remember ways
//! ([`three_layers`]).

mod checked;
mod code;
mod core;
mod eligibility;
mod listed;
mod machine;
mod native;
mod nested;
mod nested_listed;
mod stage_units;
mod staged;
mod three_layers;
mod timed;
mod walker;

pub(crate) use code::choose;
