//! The fast path: accesses that meet nothing unusual, in code that is compiled for the machine.
//!
//! Most accesses hit the TLBs, or miss them and are walked down a way that the page table remembers to a page that is
//! mapped, allows the access and has been marked before. [`core`] makes those, one after the other, in one loop, and
//! stops before the first access that is anything else, with nothing of it changed; the general code
//! ([`super::replay`]) makes that one. The general code does for every system and is the reference: results are the
//! same with the fast path and without (`tests/simulation/fast_path.rs`).
//!
//! [`eligibility`] lists what it can simulate. [`code`] says for which machines the loop is compiled; the choice is
//! made once, when a simulation is made. A [`walker`] is that of one layer on the bare machine whose table remembers
//! ways ([`native`]) or not ([`listed`]), or of a guest on its host ([`nested`]).

mod code;
mod core;
mod eligibility;
mod listed;
mod machine;
mod native;
mod nested;
mod walker;

pub(crate) use code::choose;
