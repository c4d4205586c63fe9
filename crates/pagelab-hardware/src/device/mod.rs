//! Devices: kernels write pages to them and read pages from them.
//!
//! A design is one file here that implements [`Device`], and one line below. `registry.rs` generates the enums
//! [`BlockDevice`] and [`DeviceConfig`] from these lines. A line gives the design its name in the configuration (the
//! key `model` of `kernel.swap` and `kernel.storage`), its row in `pagelab list devices`, and its place in error texts
//! and in the conformance tests.

#[macro_use]
mod registry;

use std::fmt::Debug;

use pagelab_trace::quantity::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use pagelab_base::cycles::Cycles;
use pagelab_base::error::EngineError;
use pagelab_base::io::{Answer, DeviceRequest, Striping};
use pagelab_base::measure::Measure;
use pagelab_base::model_choice;

devices! {
    mod fixed_latency {
        FixedLatency(fixed_latency::FixedLatency) = "fixed-latency",
            "serves `queue_depth` requests at a time, each in the same time, in the order in which they come";
    }
    mod drive {
        Drive(drive::Drive) = "drive",
            "a controller before units that serve side by side, with times in nanoseconds: flash drives, and disks";
    }
}

/// Converts a device's times to cycles of the simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Cycles per microsecond.
    pub mhz: u32,
}

impl Clock {
    /// Rounded to the nearest cycle.
    pub fn cycles(self, ns: u64) -> Cycles {
        Cycles((u128::from(ns) * u128::from(self.mhz) + 500).div_euclid(1000) as u64)
    }
}

/// A device design.
///
/// Requirements on an implementation:
///
/// - [`submit`](Self::submit) takes a request and returns its completion, which is not before the request. Later
///   requests do not change it.
/// - CPUs are simulated in turns, so a request may have an earlier time than the previous one. Requests are served in
///   the order of the calls nevertheless.
/// - Completions depend on parameters and calls only: no clock of the host, no order of a hash map. A copy returns what
///   the original would have returned.
/// - A device only computes times. The engine puts the completion on the agenda, and the requester waits for it by a
///   key ([`BlockKey::Answer`](pagelab_base::step::BlockKey::Answer)). The device moves no page, wakes no task and
///   accesses no simulated memory. What a driver writes to memory for a request is part of the step that makes the
///   request.
///
/// `tests/conformance` runs every registered design, with its samples as swap device and as storage.
pub trait Device: Sized + Clone {
    /// Parameters in addition to `model`. Unknown fields are refused.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;

    /// An idle device.
    fn new(parameters: &Self::Parameters, clock: Clock) -> Self;

    /// Refuses impossible parameters; `key` is the part of the configuration that contains them.
    fn validate(parameters: &Self::Parameters, key: &str) -> Result<(), EngineError>;

    /// Parameters for the conformance tests. The first are the example in error texts.
    fn samples() -> Vec<Self::Parameters>;

    /// Capacity in bytes of a device with these parameters; `None` if it adapts to the kernel's needs.
    fn capacity(_: &Self::Parameters) -> Option<Bytes> {
        None
    }

    /// How the device's blocks are distributed over its drives.
    fn striping(_: &Self::Parameters) -> Striping {
        Striping::NONE
    }

    /// Makes a request at `now`. Its blocks are within the device's capacity.
    fn submit(&mut self, request: DeviceRequest, now: Cycles) -> Answer;

    /// Statistics, named `layer.NAME.swap.…` or `layer.NAME.storage.…`.
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }
}
