//! Devices: what kernels write pages to and read them from.
//!
//! A design is one file here that implements [`Device`], and one line below. `registry.rs` makes the enums
//! [`BlockDevice`] and [`DeviceConfig`] of these lines. A line gives the design its name in the configuration (the key
//! `model` of `kernel.swap` and `kernel.storage`), its row in `pagelab list devices`, its place in error texts and in
//! the conformance tests.

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

/// What turns a device's times into cycles of the simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Cycles per microsecond.
    pub mhz: u32,
}

impl Clock {
    /// To the nearest cycle.
    pub fn cycles(self, ns: u64) -> Cycles {
        Cycles((u128::from(ns) * u128::from(self.mhz) + 500).div_euclid(1000) as u64)
    }
}

/// A device design.
///
/// What an implementor must uphold:
///
/// - [`submit`](Self::submit) takes a request, and says when it is answered: not before it is made. What it has said
///   stands, whatever is asked of it later.
/// - CPUs take turns, so a request may come with an earlier time than the one before it. What is asked first is served
///   first all the same.
/// - Answers follow from parameters and calls alone: no clock of the host, no order of a hash map. A copy answers as
///   the original would have.
/// - It only says when. The engine enters the answer on the agenda, and whoever asked waits for it by a key
///   ([`BlockKey::Answer`](pagelab_base::step::BlockKey::Answer)). It moves no page, wakes nobody and touches no
///   simulated memory. What a driver writes to memory for a request is references of the step that makes it.
///
/// `tests/conformance` runs every registered design, with its samples as swap device and as storage.
pub trait Device: Sized + Clone {
    /// What the configuration may say beside `model`. It refuses unknown fields.
    type Parameters: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema;

    /// A device at rest.
    fn new(parameters: &Self::Parameters, clock: Clock) -> Self;

    /// Refuses impossible parameters; `key` is the part of the configuration that they are in.
    fn validate(parameters: &Self::Parameters, key: &str) -> Result<(), EngineError>;

    /// Parameters that the conformance tests run it with. The first are an example for error texts.
    fn samples() -> Vec<Self::Parameters>;

    /// Bytes that a device of these parameters holds; none: as many as it is asked for.
    fn capacity(_: &Self::Parameters) -> Option<Bytes> {
        None
    }

    /// The drives that it consists of.
    fn striping(_: &Self::Parameters) -> Striping {
        Striping::NONE
    }

    /// Makes a request at `now`. Its blocks are among those that the device has.
    fn submit(&mut self, request: DeviceRequest, now: Cycles) -> Answer;

    /// What it counts, behind `layer.NAME.swap.` or `layer.NAME.storage.`.
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }
}
