//! Fault engines: MFOE and the storage management unit.

#[path = "../common/mod.rs"]
mod common;

mod mfoe;
mod mfoe_ahead;
mod mfoe_calls;
mod mfoe_huge;
mod mfoe_interleavings;
mod smu;
mod smu_interleavings;
mod smu_sockets;
